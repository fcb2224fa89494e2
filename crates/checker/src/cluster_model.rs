//! A small cluster as a model: the state that each step leads to.

use curtail_consistency::membership::Change;
use curtail_consistency::symmetric::{Config, Symmetric, Visibility};
use curtail_types::NodeId;

use crate::actions::rings;
use crate::frontier_state::{Packed, Pool};
use crate::mutants::Mutant;
use crate::outputs::Driver;
use crate::search::Model;
use crate::setup::{Kind, Network, Setup};
use crate::world::{Content, FIRST_VERSION, Label, Node, OperationStage, Parcel, World, config};

/// A bounded cluster, right or with a planted error.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// What it is made of.
    pub setup: Setup,
    /// The error.
    pub mutant: Option<Mutant>,
    /// Whether states are kept apart that differ only by what is over: many times as many, of which
    /// nothing else comes. Tests compare both.
    pub keeps_past: bool,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A client asks a node.
    Ask(Kind, NodeId),
    /// A reader beside the machine looks whether it may use what it copied.
    Look(Label),
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
    /// It starts again, with nothing, and is taken into the view to follow.
    Rejoin(NodeId),
    /// A node may answer no more, and the others go on without it.
    LoseLease(NodeId),
    /// A node is taken into the view to follow.
    Join,
    /// It has followed, and may answer.
    Admit,
    /// A node comes to the newest view.
    Adopt(NodeId),
    /// A slow thread is asked, which acts on the view before.
    AskSlow(Kind, NodeId),
    /// Keys are to be elsewhere from now on.
    Place,
    /// All threads of a node act on its view.
    AllAct(NodeId),
    /// A node that has keys to send looks for the key.
    Scan(NodeId),
    /// The key arrives, or that there is none.
    Arrive(usize),
    /// Everybody has seen that it sends no more.
    End(NodeId),
    /// A request that did not find its node is asked again where the key is now.
    AskAgain(usize),
    /// All keys are where they belong.
    Settle,
    /// A node throws away what it does not hold any more.
    Sweep(NodeId),
    /// A node that was to leave does.
    Depart(NodeId),
}

impl Model for Cluster {
    type State = World;
    type Packed = Packed;
    type Pool = Pool;
    type Action = Action;

    fn start(&self) -> World {
        let mut world = World::new(&self.setup, |config| self.machine(config));
        let nodes = self.setup.members();
        for node in nodes {
            self.driver(&mut world).adopt(node);
        }
        if self.setup.starts_hot {
            self.driver(&mut world).promote(Setup::HOME);
            while !world.parcels.is_empty() {
                self.driver(&mut world).deliver(0, false);
            }
        }
        world.witnesses = 0;
        if self.setup.moves() {
            world.last = FIRST_VERSION;
        }
        world.counts.left = self.setup.chances;
        if !self.keeps_past {
            self.driver(&mut world).end_moves();
        }
        world.seal(self.keeps_past);
        world
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.fault.is_none() {
            self.client_actions(world, actions);
            self.network_actions(world, actions);
            // What is kept back is on its way, too: else timers would send more for ever.
            let is_quiet = world.is_still() && !self.repeats();
            self.node_actions(world, is_quiet, actions);
            self.view_actions(world, actions);
            self.move_actions(world, actions);
        }
    }

    fn may_be_still(&self) -> bool {
        self.repeats()
    }

    fn is_of_itself(&self, action: &Action) -> bool {
        matches!(
            action,
            Action::Deliver(_)
                | Action::CatchUp(_)
                | Action::Adopt(_)
                | Action::AllAct(_)
                | Action::Scan(_)
                | Action::End(_)
                | Action::Arrive(_)
                | Action::AskAgain(_)
                | Action::Settle
                | Action::Sweep(_)
        )
    }

    fn actions_if_still(&self, world: &World, actions: &mut Vec<Action>) {
        let ringing = self.nodes(world).filter(|(_, node)| rings(node));
        actions.extend(ringing.map(|(id, _)| Action::Tick(id)));
    }

    fn is_idle(&self, world: &World, action: &Action, pool: &Pool) -> bool {
        match *action {
            Action::Deliver(index) if self.repeats() => self.reply(world, index, pool).is_some(),
            _ => false,
        }
    }

    fn next(&self, before: &World, action: &Action, pool: &Pool) -> World {
        let mut world = before.clone();
        world.witnesses = 0;
        let mut driver = self.driver(&mut world);
        match *action {
            Action::Ask(kind, node) => driver.ask(kind, node),
            Action::Look(label) => driver.look(label),
            Action::Deliver(index) => driver.deliver(index, self.repeats()),
            Action::Duplicate(index) => {
                driver.world.counts.left.duplicates -= 1;
                driver.deliver(index, true);
            }
            Action::Lose(index) => {
                driver.world.counts.left.losses -= 1;
                driver.world.parcels.remove(index);
            }
            Action::Tick(node) => driver.tick(node),
            Action::CatchUp(node) => driver.catch_up(node),
            Action::Promote(node) => driver.promote(node),
            Action::Demote(node) => driver.demote(node),
            Action::Crash(node) => driver.crash(node),
            Action::Rejoin(node) => driver.rejoin(node, self.machine(config(&self.setup, node))),
            Action::LoseLease(node) => driver.lose_lease(node),
            Action::Join => driver.join(),
            Action::Admit => driver.admit(),
            Action::Adopt(node) => driver.adopt(node),
            Action::AskSlow(kind, node) => driver.ask_slow(kind, node),
            Action::Place => driver.change(Change::Place, NodeId::default()),
            Action::AllAct(node) => driver.all_act(node),
            Action::Scan(node) => driver.scan(node),
            Action::End(node) => driver.end_moves_of(node),
            Action::Arrive(index) => driver.arrive(index),
            Action::AskAgain(index) => driver.ask_again(index),
            Action::Settle => driver.change(Change::Settle, NodeId::default()),
            Action::Sweep(node) => driver.sweep(node),
            Action::Depart(node) => driver.depart(node),
        }
        driver.carry_out_unseen();
        if !self.keeps_past {
            driver.end_moves();
        }
        world.seal(self.keeps_past);
        if !self.keeps_past {
            self.drop_late(&mut world, pool);
        }
        if self.repeats() {
            self.add_replies(before, &mut world, pool);
        }
        world
    }

    fn fault(&self, world: &World) -> Option<String> {
        let fault = world.fault.or_else(|| self.fault_if_quiet(world));
        fault.map(str::to_string)
    }

    fn fault_at_end(&self, world: &World) -> Option<String> {
        let fault = match world.newest().joining.is_empty() {
            true => self.fault_at_rest(world),
            false => Some("a node that joins is never told that it may answer"),
        };
        fault.map(str::to_string)
    }

    fn witnesses(&self, world: &World) -> u32 {
        world.witnesses
    }

    fn describe(&self, before: &World, action: &Action, after: &World) -> String {
        crate::counterexample::tell(before, action, after)
    }

    fn pack(&self, world: World, pool: &Pool) -> Packed {
        Packed::new(world, pool)
    }

    fn unpack(&self, packed: &Packed) -> World {
        packed.world()
    }

    fn sweep(&self, pool: &Pool) {
        pool.sweep();
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

    pub(crate) fn driver<'a>(&'a self, world: &'a mut World) -> Driver<'a> {
        let mutant = match self.mutant {
            Some(Mutant::Driver(mutant)) => Some(mutant),
            _ => None,
        };
        Driver {
            setup: &self.setup,
            mutant,
            keeps_past: self.keeps_past,
            world,
        }
    }

    /// What is wrong if nothing is on its way and nothing will happen of itself.
    fn fault_if_quiet(&self, world: &World) -> Option<&'static str> {
        let mut nodes = self.nodes(world);
        let is_quiet = world.is_silent()
            && nodes.all(|(_, node)| node.late.is_empty() && !rings(node))
            && self.is_one_view(world);
        is_quiet.then(|| self.fault_at_rest(world)).flatten()
    }

    /// What is wrong when nothing is on its way and nothing will happen of itself.
    fn fault_at_rest(&self, world: &World) -> Option<&'static str> {
        let differ = self.holders_differ(world);
        let fault = differ.then_some("the holders of the key differ for ever");
        world.fault_at_rest().or(fault)
    }

    pub(crate) fn is_one_view(&self, world: &World) -> bool {
        let newest = world.newest().number;
        self.nodes(world).all(|(_, node)| node.view == newest)
    }

    fn repeats(&self) -> bool {
        self.setup.network == Network::Repeating
    }

    pub(crate) fn nodes<'a>(&self, world: &'a World) -> impl Iterator<Item = (NodeId, &'a Node)> {
        let nodes = world.nodes.iter().enumerate();
        nodes
            .map(|(id, node)| (NodeId(id as u8), &**node))
            .filter(|(_, node)| node.is_up)
    }
}

impl World {
    /// Whether nothing is on its way that timers wait for.
    pub(crate) fn is_still(&self) -> bool {
        let asks = |parcel: &Parcel| matches!(parcel.content, Content::MoveRequest(_));
        self.parcels.iter().all(asks) && self.moving.is_empty()
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_silent(&self) -> bool {
        self.parcels.is_empty() && self.moving.is_empty()
    }

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
