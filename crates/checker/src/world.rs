//! A state of a small cluster: nodes, what is between them, and what clients know.

use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

use curtail_consistency::symmetric::{Config, Mode, Model, Place, Symmetric, Visibility};
use curtail_types::{Cas, Message, NodeId, NodeSet, RouteHash, View, ViewNumber, WriterId};

use crate::judge::{Linearizable, Sessions, Written};
use crate::search::fingerprint_of;
use crate::setup::{Chances, Setup, Witness};

/// The one key.
pub(crate) const KEY: RouteHash = RouteHash(1);

/// A state.
#[derive(Clone, Debug, Hash)]
pub struct World {
    pub(crate) nodes: Vec<Shared<Node>>,
    /// What is on its way, sorted; if order is kept, per link in the order of sending.
    pub(crate) parcels: Vec<Parcel>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) judge: Shared<Judge>,
    /// What may happen still.
    pub(crate) left: Chances,
    /// All views so far; nodes adopt the last one when they come to it.
    pub(crate) views: Vec<View>,
    pub(crate) witnesses: u32,
    pub(crate) fault: Option<&'static str>,
}

/// A node as its driver has it.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Node {
    pub(crate) machine: Symmetric,
    pub(crate) item: Option<Item>,
    /// Who may answer for the item; `None` if the machine knows nothing of it.
    pub(crate) state: Option<Visibility>,
    /// What was emitted after something was sent or answered, and is not carried out yet.
    pub(crate) late: Vec<(Visibility, Option<Item>)>,
    pub(crate) view: ViewNumber,
    pub(crate) mode: Mode,
    pub(crate) is_up: bool,
    pub(crate) has_lease: bool,
    /// The item when the key became hot (for the mutant that does not write back).
    pub(crate) item_when_cold: Option<Item>,
}

/// A value and its version.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Item {
    pub(crate) ts: Cas,
    pub(crate) value: Written,
}

/// What travels.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Parcel {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) content: Content,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Content {
    Message(Message, Item),
    /// A request that is sent on, and what its session has seen.
    Request(usize, Cas),
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Operation {
    /// The node that it was asked of.
    pub(crate) session: NodeId,
    pub(crate) stage: OperationStage,
    /// What it wrote, the last time that it ran.
    pub(crate) wrote: Item,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum OperationStage {
    NotAsked,
    Asked,
    /// A reader beside the machine has the item, and whether it changed since.
    Copied(Item, bool),
    Answered,
    /// Its client knows only that it does not know.
    Unknown,
}

/// Who judges.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Judge {
    Linearizable(Linearizable),
    Sessions(Sessions),
}

/// A part of a state that most steps do not change: copied only when it is, and hashed once.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    value: Arc<T>,
    fingerprint: u64,
}

impl<T: Clone + Hash> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        let fingerprint = fingerprint_of(&value);
        let value = Arc::new(value);
        Self { value, fingerprint }
    }

    pub(crate) fn edit(&mut self) -> &mut T {
        self.fingerprint = 0;
        Arc::make_mut(&mut self.value)
    }

    pub(crate) fn seal(&mut self) {
        if self.fingerprint == 0 {
            self.fingerprint = fingerprint_of(&*self.value);
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.fingerprint);
    }
}

impl World {
    /// Before anything was asked; the item is there, and no node has heard of a view.
    pub(crate) fn new(setup: &Setup, machine: impl Fn(Config) -> Symmetric) -> Self {
        let nodes = (0..setup.nodes).map(NodeId);
        let joiners = NodeId(setup.nodes - setup.chances.joins);
        let live: NodeSet = nodes.clone().filter(|node| *node < joiners).collect();
        let judge = match setup.model {
            Model::Lin => Judge::Linearizable(Linearizable::new(Written(0))),
            Model::Sc => Judge::Sessions(Sessions::new(usize::from(setup.nodes))),
        };
        let operation = Operation {
            session: NodeId(0),
            stage: OperationStage::NotAsked,
            wrote: Item::default(),
        };
        Self {
            nodes: nodes
                .map(|me| Shared::new(Node::new(setup, me, machine(config(setup, me)))))
                .collect(),
            parcels: Vec::new(),
            operations: vec![operation; setup.operations.len()],
            judge: Shared::new(judge),
            left: setup.chances,
            views: vec![view(1, live, NodeSet::NONE)],
            witnesses: 0,
            fault: None,
        }
    }

    pub(crate) fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(usize::from(node.0)).map(|node| &**node)
    }

    pub(crate) fn edit(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(node.0)).map(Shared::edit)
    }

    pub(crate) fn see(&mut self, witness: Witness) {
        self.witnesses |= witness.bit();
    }

    pub(crate) fn fail(&mut self, fault: &'static str) {
        self.fault = self.fault.or(Some(fault));
    }

    pub(crate) fn seal(&mut self) {
        self.nodes.iter_mut().for_each(Shared::seal);
        self.judge.seal();
    }

    pub(crate) fn newest(&self) -> View {
        self.views.last().copied().unwrap_or_default()
    }

    pub(crate) fn view(&self, number: ViewNumber) -> View {
        let mut views = self.views.iter();
        let found = views.find(|view| view.number == number).copied();
        found.unwrap_or_default()
    }

    pub(crate) fn change_view(&mut self, live: NodeSet, joining: NodeSet) {
        let number = self.newest().number.0 + 1;
        self.views.push(view(number, live, joining));
    }

    /// Where the key is: the first nodes hold it. When one of them goes, nobody comes in its place,
    /// for keys that move are the server's matter.
    pub(crate) fn place(&self, setup: &Setup, view: ViewNumber) -> Place {
        let members = self.view(view).live;
        let home = members.first().unwrap_or_default();
        let first: NodeSet = (0..setup.replicas).map(NodeId).collect();
        let holders = first.intersection(members).with(home);
        Place { home, holders }
    }
}

impl Node {
    fn new(setup: &Setup, me: NodeId, machine: Symmetric) -> Self {
        let item = Item {
            ts: Cas::new(2, writer_of(NodeId(0))),
            value: Written(0),
        };
        Self {
            machine,
            item: (me.0 < setup.replicas).then_some(item),
            state: None,
            late: Vec::new(),
            view: ViewNumber(0),
            mode: Mode::Cold,
            is_up: true,
            has_lease: me.0 < setup.nodes - setup.chances.joins,
            item_when_cold: None,
        }
    }

    /// The item once everything that was emitted is carried out.
    pub(crate) fn item_in_the_end(&self) -> Option<Item> {
        let late = self.late.iter().rev();
        late.filter_map(|late| late.1).next().or(self.item)
    }
}

fn view(number: u32, live: NodeSet, joining: NodeSet) -> View {
    View {
        number: ViewNumber(number),
        live,
        joining,
        placed: live,
        placed_before: live,
    }
}

/// Who writes at a node. The home's number lies between those of the others, so that of two writes
/// with one clock sometimes its own is the later one and sometimes not; the map is its own inverse.
pub(crate) fn writer_of(node: NodeId) -> WriterId {
    WriterId::of(NodeId(if node.0 < 2 { 1 - node.0 } else { node.0 }), 0)
}

/// The node that wrote.
pub(crate) fn node_of(writer: WriterId) -> NodeId {
    writer_of(writer.node()).node()
}

/// Time stands still: every timer rings when the model says so.
fn config(setup: &Setup, me: NodeId) -> Config {
    Config {
        me,
        model: setup.model,
        keys_max: 2,
        waiting_max: 8,
        retransmit_ns: 0,
        replay_ns: 0,
        patience_ns: u64::MAX,
        settle_ns: 0,
        writer: writer_of(me),
    }
}
