//! A small cluster as a model: what may happen next, and what comes of it.

use curtail_consistency::symmetric::{Config, Input, Mode, Symmetric, Ticket, Visibility};
use curtail_types::{Cas, HotEpoch, MessageKind, NodeId, NodeSet, ViewNumber};

use crate::driver::Driver;
use crate::mutants::{DriverMutant, Mutant};
use crate::search::Model;
use crate::setup::{Kind, Setup, Witness};
use crate::world::{Content, KEY, Node, OperationStage, Parcel, World};

/// A bounded cluster, right or with a planted error.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// What it is made of.
    pub setup: Setup,
    /// The error.
    pub mutant: Option<Mutant>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A client asks a node.
    Ask(usize, NodeId),
    /// A reader beside the machine looks whether it may use what it copied.
    Look(usize),
    /// What is on its way arrives.
    Deliver(usize),
    /// It arrives, and will once more.
    Duplicate(usize),
    /// It does not.
    Lose(usize),
    /// A timer rings.
    Tick(NodeId),
    /// A node carries out the rest of what it had to do.
    CatchUp(NodeId),
    /// The home makes the key hot.
    Promote(NodeId),
    /// The home lets it be hot no longer.
    Demote(NodeId),
    /// A node dies.
    Crash(NodeId),
    /// A node may answer no more, and the others go on without it.
    LoseLease(NodeId),
    /// A node is taken into the view to follow.
    Join,
    /// It has followed, and may answer.
    Admit,
    /// A node comes to the newest view.
    Adopt(NodeId),
}

impl Model for Cluster {
    type State = World;
    type Action = Action;

    fn start(&self) -> World {
        let mut world = World::new(&self.setup, |config| self.machine(config));
        let nodes = (0..self.setup.nodes).map(NodeId);
        for node in nodes {
            self.driver(&mut world).adopt(node);
        }
        if self.setup.starts_hot {
            self.driver(&mut world).promote(NodeId(0));
            while !world.parcels.is_empty() {
                self.driver(&mut world).deliver(0, false);
            }
            world.witnesses = 0;
        }
        world.left = self.setup.chances;
        world.seal();
        world
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.fault.is_none() {
            self.client_actions(world, actions);
            self.network_actions(world, actions);
            // What is kept back is on its way, too: else timers would send more for ever.
            self.node_actions(world, world.parcels.is_empty(), actions);
            self.view_actions(world, actions);
        }
    }

    fn next(&self, world: &World, action: &Action) -> World {
        let mut world = world.clone();
        let mut driver = self.driver(&mut world);
        match *action {
            Action::Ask(number, node) => driver.ask(number, node),
            Action::Look(number) => driver.look(number),
            Action::Deliver(index) => driver.deliver(index, false),
            Action::Duplicate(index) => driver.deliver(index, true),
            Action::Lose(index) => {
                driver.world.left.losses -= 1;
                driver.world.parcels.remove(index);
            }
            Action::Tick(node) => driver.tick(node),
            Action::CatchUp(node) => driver.catch_up(node),
            Action::Promote(node) => driver.promote(node),
            Action::Demote(node) => driver.demote(node),
            Action::Crash(node) => driver.crash(node),
            Action::LoseLease(node) => driver.lose_lease(node),
            Action::Join => driver.join(),
            Action::Admit => driver.admit(),
            Action::Adopt(node) => driver.adopt(node),
        }
        world.seal();
        world
    }

    fn fault(&self, world: &World, _is_end: bool) -> Option<String> {
        let stuck = || {
            let mut actions = Vec::new();
            self.network_actions(world, &mut actions);
            self.node_actions(world, true, &mut actions);
            let takes_time =
                |action: &Action| !matches!(action, Action::Promote(_) | Action::Demote(_));
            let is_quiet = !actions.iter().any(takes_time) && self.is_one_view(world);
            is_quiet.then(|| world.fault_at_rest()).flatten()
        };
        world.fault.or_else(stuck).map(str::to_string)
    }

    fn witnesses(&self, world: &World) -> u32 {
        world.witnesses
    }

    fn describe(&self, before: &World, action: &Action, after: &World) -> String {
        crate::story::tell(&self.setup, before, action, after)
    }
}

impl Cluster {
    fn machine(&self, config: Config) -> Symmetric {
        #[cfg(any(test, feature = "mutants"))]
        if let Some(Mutant::Machine(mutant)) = self.mutant {
            return Symmetric::with_mutant(config, mutant);
        }
        Symmetric::new(config)
    }

    fn driver<'a>(&'a self, world: &'a mut World) -> Driver<'a> {
        let mutant = match self.mutant {
            Some(Mutant::Driver(mutant)) => Some(mutant),
            _ => None,
        };
        Driver {
            setup: &self.setup,
            mutant,
            world,
        }
    }

    fn nodes<'a>(&self, world: &'a World) -> impl Iterator<Item = (NodeId, &'a Node)> {
        let nodes = world.nodes.iter().enumerate();
        nodes
            .map(|(id, node)| (NodeId(id as u8), &**node))
            .filter(|(_, node)| node.is_up)
    }

    fn client_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let operations = world.operations.iter().zip(self.setup.operations);
        let asks_anyway = self.mutant == Some(Mutant::Driver(DriverMutant::AnswersWithoutLease));
        let mut offered: Vec<Kind> = Vec::new();
        for (number, (operation, kind)) in operations.enumerate() {
            match operation.stage {
                // Of requests that are alike the first is asked first.
                OperationStage::NotAsked if !offered.contains(kind) => {
                    offered.push(*kind);
                    let able = self.nodes(world).filter(|(node, state)| {
                        (state.has_lease || asks_anyway) && !self.is_busy(world, *node)
                    });
                    actions.extend(able.map(|(node, _)| Action::Ask(number, node)));
                }
                OperationStage::Copied(..) => actions.push(Action::Look(number)),
                _ => {}
            }
        }
    }

    /// Under SC a node's requests are one session: one after the other.
    fn is_busy(&self, world: &World, node: NodeId) -> bool {
        let is_open = |stage| matches!(stage, OperationStage::Asked | OperationStage::Copied(..));
        let mut operations = world.operations.iter();
        self.setup.model == curtail_consistency::symmetric::Model::Sc
            && operations.any(|one| one.session == node && is_open(one.stage))
    }

    fn network_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let mut last: Option<&Parcel> = None;
        for (index, parcel) in world.parcels.iter().enumerate() {
            let link = |parcel: &Parcel| (parcel.from, parcel.to);
            let is_behind = last.is_some_and(|last| {
                *last == *parcel || (self.setup.is_ordered && link(last) == link(parcel))
            });
            last = Some(parcel);
            if is_behind || !self.may_arrive(world, parcel) {
                continue;
            }
            actions.push(Action::Deliver(index));
            if matches!(parcel.content, Content::Message(..)) {
                if world.left.duplicates > 0 {
                    actions.push(Action::Duplicate(index));
                }
                if world.left.losses > 0 {
                    actions.push(Action::Lose(index));
                }
            }
        }
    }

    /// A message of a later view is kept back until the node has the view.
    fn may_arrive(&self, world: &World, parcel: &Parcel) -> bool {
        let view = world
            .node(parcel.to)
            .map_or(ViewNumber(0), |node| node.view);
        match parcel.content {
            Content::Message(message, _) => message.view <= view,
            Content::Request(..) => true,
        }
    }

    fn node_actions(&self, world: &World, is_quiet: bool, actions: &mut Vec<Action>) {
        for (id, node) in self.nodes(world) {
            if !node.late.is_empty() {
                actions.push(Action::CatchUp(id));
            }
            let rings = node.machine.deadline().is_some_and(|due| due.ns == 0);
            if rings && (is_quiet || world.left.early_timers > 0) {
                actions.push(Action::Tick(id));
            }
            let is_home = node.has_lease && world.place(&self.setup, node.view).home == id;
            if is_home && world.left.promotions > 0 && node.mode == Mode::Cold {
                actions.push(Action::Promote(id));
            }
            if is_home
                && world.left.demotions > 0
                && matches!(node.mode, Mode::Promoting | Mode::Hot)
            {
                actions.push(Action::Demote(id));
            }
        }
    }

    fn view_actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.left.joins > 0 {
            actions.push(Action::Join);
        }
        if self.may_admit(world) {
            actions.push(Action::Admit);
        }
        for (id, node) in self.nodes(world) {
            if node.view < world.newest().number {
                actions.push(Action::Adopt(id));
            } else if self.setup.chances.victims & 1 << id.0 != 0 && node.has_lease {
                if world.left.crashes > 0 {
                    actions.push(Action::Crash(id));
                }
                if world.left.lost_leases > 0 {
                    actions.push(Action::LoseLease(id));
                }
            }
        }
    }

    /// Whether the home says that the node that joins has the key, if it is hot.
    fn may_admit(&self, world: &World) -> bool {
        let newest = world.newest();
        let home = world.place(&self.setup, newest.number).home;
        let home = world.node(home).filter(|home| home.view == newest.number);
        let mut joining = newest.joining.into_iter();
        joining.any(|joiner| home.is_some_and(|home| !home.machine.is_unfilled(joiner)))
    }

    fn is_one_view(&self, world: &World) -> bool {
        let newest = world.newest().number;
        self.nodes(world).all(|(_, node)| node.view == newest)
    }
}

impl Driver<'_> {
    fn ask(&mut self, number: usize, node: NodeId) {
        let kind = self.kind(number);
        if let Some(operation) = self.world.operations.get_mut(number) {
            operation.session = node;
            operation.stage = OperationStage::Asked;
        }
        if let crate::world::Judge::Linearizable(judge) = self.world.judge.edit() {
            judge.asked(number, kind);
        }
        let home = self.home(node);
        let reads_cold = home == node && self.is(DriverMutant::HomeReadsBesideEntry);
        let readable = self.world.node(node).and_then(|state| {
            let is_shown = match state.state {
                Some(state) => state == Visibility::Valid,
                None => home == node,
            };
            state.item.filter(|_| is_shown || reads_cold)
        });
        match readable {
            Some(item) if kind == Kind::Get && self.setup.readers_take_time => {
                if let Some(operation) = self.world.operations.get_mut(number) {
                    operation.stage = OperationStage::Copied(item, false);
                }
            }
            Some(item) if kind == Kind::Get => {
                self.conclude(node, number, Some(item));
            }
            _ => self.request(number, node, Cas(0)),
        }
    }

    fn request(&mut self, number: usize, node: NodeId, after: Cas) {
        let view = self
            .world
            .node(node)
            .map_or(ViewNumber(0), |node| node.view);
        let has_item = self
            .world
            .node(node)
            .is_some_and(|node| node.item.is_some());
        let nodes = self.world.nodes.iter();
        let last = nodes.filter_map(|node| node.item).map(|item| item.ts).max();
        let input = Input::Request {
            ticket: Ticket(number as u64),
            key: KEY,
            place: self.world.place(self.setup, view),
            access: self.kind(number).access(),
            after,
            floor: last.filter(|_| !has_item).unwrap_or_default(),
        };
        self.step(node, input, None);
    }

    fn look(&mut self, number: usize) {
        let Some(&operation) = self.world.operations.get(number) else {
            return;
        };
        if let OperationStage::Copied(item, has_changed) = operation.stage {
            if has_changed && !self.is(DriverMutant::ReaderLooksOnce) {
                self.world.see(Witness::ReaderStartedOver);
                if let Some(operation) = self.world.operations.get_mut(number) {
                    operation.stage = OperationStage::Asked;
                }
                self.request(number, operation.session, Cas(0));
            } else {
                self.conclude(operation.session, number, Some(item));
            }
        }
    }

    fn deliver(&mut self, index: usize, stays: bool) {
        let Some(&parcel) = self.world.parcels.get(index) else {
            return;
        };
        if stays {
            self.world.left.duplicates -= 1;
        } else {
            self.world.parcels.remove(index);
        }
        match parcel.content {
            Content::Request(number, after) => self.request(number, parcel.to, after),
            Content::Message(message, item) => {
                let view = self
                    .world
                    .node(parcel.to)
                    .map_or(ViewNumber(0), |node| node.view);
                if message.view < view {
                    self.world.see(Witness::LateMessage);
                }
                self.note_race();
                let input = Input::Message {
                    from: parcel.from,
                    key: KEY,
                    place: self.world.place(self.setup, view),
                    message,
                };
                self.step(parcel.to, input, Some(item));
            }
        }
    }

    fn note_race(&mut self) {
        let writers = self
            .world
            .parcels
            .iter()
            .filter_map(|parcel| match parcel.content {
                Content::Message(message, _) => {
                    let kinds = [MessageKind::Invalidate, MessageKind::Update];
                    kinds.contains(&message.kind).then_some(message.ts.writer())
                }
                Content::Request(..) => None,
            });
        let mut writers = writers;
        let first = writers.next();
        if writers.any(|writer| Some(writer) != first) {
            self.world.see(Witness::WritesRaced);
        }
    }

    fn tick(&mut self, node: NodeId) {
        if !self.world.parcels.is_empty() {
            self.world.left.early_timers = self.world.left.early_timers.saturating_sub(1);
        }
        self.step(node, Input::Tick, None);
    }

    fn promote(&mut self, node: NodeId) {
        self.world.left.promotions = self.world.left.promotions.saturating_sub(1);
        let view = self
            .world
            .node(node)
            .map_or(ViewNumber(0), |node| node.view);
        let all = u64::from(self.setup.chances.promotions);
        let place = self.world.place(self.setup, view);
        let epoch = HotEpoch(1 + all - u64::from(self.world.left.promotions));
        let key = KEY;
        let floor = Cas(0);
        let input = Input::Promote {
            key,
            place,
            epoch,
            floor,
        };
        self.step(node, input, None);
    }

    fn demote(&mut self, node: NodeId) {
        self.world.left.demotions -= 1;
        self.step(node, Input::Demote { key: KEY }, None);
    }

    /// What it had, was doing and would have been told is gone.
    fn crash(&mut self, node: NodeId) {
        self.world.left.crashes -= 1;
        if let Some(state) = self.world.edit(node) {
            state.is_up = false;
            state.has_lease = false;
            state.late.clear();
        }
        let mut lost = Vec::new();
        self.world.parcels.retain(|parcel| {
            if let (true, Content::Request(number, _)) = (parcel.to == node, parcel.content) {
                lost.push(number);
            }
            parcel.to != node
        });
        for number in lost {
            self.lose(number);
        }
        self.lose_operations_of(node);
        // A cold key dies with its only holder.
        let is_hot = self.setup.starts_hot && self.setup.chances.demotions == 0;
        if self.setup.replicas == 1 && !is_hot {
            self.evict();
        }
        self.remove(node);
    }

    /// Those that are in the hands of a node that died.
    fn lose_operations_of(&mut self, node: NodeId) {
        let travels = |number: usize| {
            let mut parcels = self.world.parcels.iter();
            parcels.any(|parcel| matches!(parcel.content, Content::Request(n, _) if n == number))
        };
        let operations = self.world.operations.iter().enumerate();
        let lost = operations.filter(|(number, operation)| {
            let is_open = matches!(
                operation.stage,
                OperationStage::Asked | OperationStage::Copied(..)
            );
            let is_there = operation.session == node || !self.waits_elsewhere(*number, node);
            is_open && is_there && !travels(*number)
        });
        let lost: Vec<usize> = lost.map(|(number, _)| number).collect();
        for number in lost {
            self.lose(number);
        }
    }

    /// Whether a living node has the request.
    fn waits_elsewhere(&self, number: usize, node: NodeId) -> bool {
        let mut nodes = self.world.nodes.iter().enumerate();
        nodes.any(|(id, other)| {
            id != usize::from(node.0) && other.machine.holds(Ticket(number as u64))
        })
    }

    fn lose_lease(&mut self, node: NodeId) {
        self.world.left.lost_leases -= 1;
        if let Some(state) = self.world.edit(node) {
            state.has_lease = false;
        }
        self.remove(node);
    }

    fn join(&mut self) {
        self.world.left.joins -= 1;
        let view = self.world.newest();
        let joiner = NodeId(self.setup.nodes - 1);
        self.world.change_view(view.live, view.joining.with(joiner));
    }

    fn admit(&mut self) {
        let view = self.world.newest();
        self.world.change_view(view.followers(), NodeSet::NONE);
    }

    fn remove(&mut self, node: NodeId) {
        let view = self.world.newest();
        self.world
            .change_view(view.live.without(node), view.joining);
    }

    fn adopt(&mut self, node: NodeId) {
        let view = self.world.newest();
        let joins = self.setup.chances.joins > 0 && view.live.contains(node);
        if let Some(state) = self.world.edit(node) {
            state.view = view.number;
            state.has_lease |= joins;
        }
        self.step(node, Input::View(view), None);
        let place = self.world.place(self.setup, view.number);
        let known = self
            .world
            .node(node)
            .map(|node| node.machine.keys().count());
        if known > Some(0) {
            self.step(node, Input::Placed { key: KEY, place }, None);
        }
    }
}

impl World {
    /// What is wrong when nothing is on its way and nothing will happen of itself.
    fn fault_at_rest(&self) -> Option<&'static str> {
        let mut operations = self.operations.iter();
        if operations.any(|one| one.stage == OperationStage::Asked) {
            return Some("a request is never answered");
        }
        let live = self
            .nodes
            .iter()
            .filter(|node| node.is_up && node.has_lease);
        let mut shown = live.filter(|node| node.state == Some(Visibility::Valid));
        let first = shown.next().and_then(|node| node.item);
        let differs = shown.any(|node| node.item != first);
        differs.then_some("copies that may be read differ for ever")
    }
}
