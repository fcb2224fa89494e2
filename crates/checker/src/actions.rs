//! The steps that are possible next in a small cluster.

use curtail_consistency::symmetric::Mode;
use curtail_consistency::symmetric::Model::Sc;
use curtail_types::NodeId;

use crate::cluster_model::{Action, Cluster};
use crate::mutants::{DriverMutant, Mutant};
use crate::setup::{Change, Kind, Network};
use crate::world::{Content, FIRST_VIEW, Node, OperationStage, Parcel, World};

impl Cluster {
    pub(crate) fn client_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let asks_anyway = self.mutant == Some(Mutant::Driver(DriverMutant::AnswersWithoutLease));
        for (kind, unasked) in Kind::ALL.into_iter().zip(world.counts.unasked) {
            let able = self.nodes(world).filter(|(node, state)| {
                (state.has_lease || asks_anyway) && !self.is_busy(world, *node)
            });
            let able = able.filter(|_| unasked > 0);
            for (node, state) in able {
                actions.push(Action::Ask(kind, node));
                if self.setup.moves() && !state.all_act() {
                    actions.push(Action::AskSlow(kind, node));
                }
            }
        }
        for operation in &world.operations {
            if let OperationStage::Copied(..) = operation.stage {
                actions.push(Action::Look(operation.label));
            }
        }
    }

    /// Under SC a node's requests are one session: one after the other.
    fn is_busy(&self, world: &World, node: NodeId) -> bool {
        let is_open = |stage| stage != OperationStage::Unknown;
        let mut operations = world.operations.iter();
        self.setup.model == Sc
            && operations.any(|one| one.label.session() == node && is_open(one.stage))
    }

    pub(crate) fn network_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let mut last: Option<&Parcel> = None;
        for (index, parcel) in world.parcels.iter().enumerate() {
            let link = |parcel: &Parcel| (parcel.from, parcel.to);
            let is_behind = last.is_some_and(|last| {
                *last == *parcel
                    || (self.setup.network == Network::Ordered && link(last) == link(parcel))
            });
            let may_arrive = self.may_arrive(world, parcel);
            // A request that has to wait, or is sent back, does so beside the link.
            if may_arrive || matches!(parcel.content, Content::Message(..)) {
                last = Some(parcel);
            }
            if is_behind || !may_arrive {
                continue;
            }
            actions.push(Action::Deliver(index));
            if matches!(parcel.content, Content::Message(..)) {
                if world.counts.left.duplicates > 0 {
                    actions.push(Action::Duplicate(index));
                }
                if world.counts.left.losses > 0 {
                    actions.push(Action::Lose(index));
                }
            }
        }
    }

    pub(crate) fn may_arrive_at(&self, world: &World, index: usize) -> bool {
        let parcel = world.parcels.get(index);
        parcel.is_some_and(|parcel| self.may_arrive(world, parcel))
    }

    /// A message of a later view is kept back until the node has the view.
    fn may_arrive(&self, world: &World, parcel: &Parcel) -> bool {
        let view = world.node(parcel.to).view;
        match parcel.content {
            Content::Message(message, _) => message.view <= view,
            _ if self.setup.moves() => self.finds(world, parcel),
            _ => true,
        }
    }

    pub(crate) fn node_actions(&self, world: &World, is_quiet: bool, actions: &mut Vec<Action>) {
        for (id, node) in self.nodes(world) {
            if !node.late.is_empty() {
                actions.push(Action::CatchUp(id));
            }
            if rings(node) && (is_quiet || world.counts.left.early_timers > 0) {
                actions.push(Action::Tick(id));
            }
            let is_home = node.has_lease
                && world.place(&self.setup, node.view).home == id
                && self.may_change_hot(world, node);
            if is_home && world.counts.left.promotions > 0 && node.mode == Mode::Cold {
                actions.push(Action::Promote(id));
            }
            if is_home
                && world.counts.left.demotions > 0
                && matches!(node.mode, Mode::Promoting | Mode::Hot)
            {
                actions.push(Action::Demote(id));
            }
        }
    }

    /// The hot set rests while keys are about to move, and while they do.
    fn may_change_hot(&self, world: &World, node: &Node) -> bool {
        let has_heard = !self.setup.is_unannounced || node.view > FIRST_VIEW;
        !self.setup.moves()
            || !has_heard
            || world.in_force(&self.setup, node.view).is_settled
            || self.has(DriverMutant::ChangesHotWhileMoving)
    }

    pub(crate) fn view_actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.counts.left.joins > 0 {
            actions.push(Action::Join);
        }
        if world.counts.left.rejoins > 0 {
            let is_gone = |id: &NodeId| !world.node(*id).is_up;
            let gone = self.setup.members().into_iter().filter(is_gone);
            actions.extend(gone.map(Action::Rejoin));
        }
        if self.may_admit(world) {
            actions.push(Action::Admit);
        }
        for (id, node) in self.nodes(world) {
            if node.view < world.newest().number {
                actions.push(Action::Adopt(id));
                if !self.setup.moves() {
                    continue;
                }
            }
            if self.setup.chances.victims & 1 << id.0 != 0 && node.has_lease {
                let rests = self.setup.change != Some(Change::Dies) || !world.newest().moves();
                if world.counts.left.crashes > 0 && rests {
                    actions.push(Action::Crash(id));
                }
                if world.counts.left.lost_leases > 0 {
                    actions.push(Action::LoseLease(id));
                }
            }
        }
    }

    /// Whether the home says that the node that joins has the key, if it is hot.
    fn may_admit(&self, world: &World) -> bool {
        let newest = world.newest();
        let home = world.place(&self.setup, newest.number).home;
        let home = world.node(home);
        let mut joining = newest.joining.into_iter();
        home.view == newest.number && joining.any(|joiner| !home.machine.is_unfilled(joiner))
    }
}

pub(crate) fn rings(node: &Node) -> bool {
    node.machine.deadline().is_some_and(|due| due.ns == 0)
}
