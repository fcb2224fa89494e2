//! A state of a small cluster: its nodes, the messages between them, and what clients know.

use std::hash::{Hash, Hasher};

use curtail_consistency::symmetric::{Config, Mode, Model, Place, Symmetric, Ticket, Visibility};
use curtail_types::{Cas, Message, NodeId, NodeSet, RouteHash, View, ViewNumber, WriterId};

use crate::interned_parts::Shared;
use crate::judge::{Linearizable, Sessions, Written};
use crate::moves::{Mover, Moving};
use crate::search::fingerprint_of;
use crate::setup::{Chances, Change, Kind, Setup, Witness};

/// The view that everybody begins with.
pub(crate) const FIRST_VIEW: ViewNumber = ViewNumber(1);

/// What the key has at first.
pub(crate) const FIRST_VERSION: Cas = Cas::new(2, WriterId::of(Setup::HOME, 0));

/// The one key.
pub(crate) const KEY: RouteHash = RouteHash(1);

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) nodes: Vec<Shared<Node>>,
    /// What is on its way, sorted; if order is kept, per link in the order of sending.
    pub(crate) parcels: Vec<Parcel>,
    /// Requests that are not answered yet, by their labels.
    pub(crate) operations: Vec<Operation>,
    /// Keys on their way to new holders, per link in the order of sending.
    pub(crate) moving: Vec<Moving>,
    pub(crate) counts: Counts,
    pub(crate) judge: Shared<Judge>,
    /// All views so far; nodes adopt the last one when they come to it.
    pub(crate) views: Shared<Vec<View>>,
    /// The last version that was given, where keys move: what clocks are for.
    pub(crate) last: Cas,
    /// Of the last step; not part of the state.
    pub(crate) witnesses: u32,
    pub(crate) fault: Option<&'static str>,
}

/// How often what may happen has not happened yet.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Counts {
    /// How many of each kind were not asked yet.
    pub(crate) unasked: [u8; Kind::ALL.len()],
    /// How many writes each node was asked for.
    pub(crate) writes: [u8; Setup::NODES_MAX as usize],
    /// What may happen still.
    pub(crate) left: Chances,
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
    pub(crate) mover: Mover,
}

/// A value and its version.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Item {
    pub(crate) ts: Cas,
    pub(crate) value: Written,
}

/// What travels.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Parcel {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) content: Content,
    /// Of all this: states are many, and have many of them.
    fingerprint: u64,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Content {
    Message(Message, Item),
    /// A request that is sent on, what its session has seen, and, where keys move, the view under
    /// which it was sent.
    Request(Label, Cas, ViewNumber),
    /// A node asks for the key, under a view.
    MoveRequest(ViewNumber),
}

impl Parcel {
    pub(crate) fn new((from, to): (NodeId, NodeId), content: Content) -> Self {
        Self {
            from,
            to,
            content,
            fingerprint: fingerprint_of(&(from, to, content)),
        }
    }
}

impl Hash for Parcel {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.fingerprint);
    }
}

/// What a request is called. Requests of one kind are alike until they are asked, so a label says
/// of which node a request is asked, and how many before it: in whatever order requests are asked
/// of different nodes, they come to the same state.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Label(pub(crate) u8);

/// How far a request has come.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Operation {
    pub(crate) label: Label,
    pub(crate) kind: Kind,
    pub(crate) stage: OperationStage,
    /// What it wrote, the last time that it ran.
    pub(crate) wrote: Item,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum OperationStage {
    Asked,
    /// A reader beside the machine has the item, and whether it changed since.
    Copied(Item, bool),
    /// Its client knows only that it does not know.
    Unknown,
}

impl Label {
    /// Of a write that nobody asked for: a value is lost, as it may be.
    pub(crate) const EVICTION: Self = Self(14);

    /// Of what is lost with all nodes that had it.
    pub(crate) const LOSS: Self = Self(12);

    /// Of a `flush_all`.
    pub(crate) const FLUSH: Self = Self(13);

    /// Of the next request of `kind` that `node` is asked in `world`.
    pub(crate) fn next(world: &World, node: NodeId, kind: Kind) -> Self {
        let label = |index: u8| Self(index * Setup::NODES_MAX + node.0);
        if kind == Kind::Get {
            let is_free = |label: &Self| world.operation(*label).is_none();
            let free = (GETS..).map(label).find(is_free);
            return free.unwrap_or(Self(u8::MAX));
        }
        label(world.counts.writes[usize::from(node.0)])
    }

    /// The node that it was asked of.
    pub(crate) const fn session(self) -> NodeId {
        NodeId(self.0 % Setup::NODES_MAX)
    }

    /// How many came before it there.
    pub(crate) const fn index(self) -> u8 {
        self.0 / Setup::NODES_MAX % GETS
    }

    pub(crate) const fn ticket(self) -> Ticket {
        Ticket(self.0 as u64)
    }

    pub(crate) const fn of(ticket: Ticket) -> Self {
        Self(ticket.0 as u8)
    }
}

/// The labels of gets come after those of writes, which have room in a value.
const GETS: u8 = 16;

/// Who judges.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Judge {
    Linearizable(Linearizable),
    Sessions(Sessions),
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.nodes.hash(hasher);
        self.parcels.hash(hasher);
        self.operations.hash(hasher);
        self.moving.hash(hasher);
        self.counts.hash(hasher);
        self.judge.hash(hasher);
        self.views.hash(hasher);
        self.last.hash(hasher);
        self.fault.hash(hasher);
    }
}

impl World {
    /// Before anything was asked; the item is there, and no node has heard of a view.
    pub(crate) fn new(setup: &Setup, machine: impl Fn(Config) -> Symmetric) -> Self {
        let nodes = (0..Setup::NODES_MAX).map(NodeId);
        let first = first_view(setup);
        let judge = match setup.model {
            Model::Lin => Judge::Linearizable(Linearizable::new(Written(0))),
            Model::Sc => Judge::Sessions(Sessions::new(Setup::NODES_MAX.into(), FIRST_VERSION)),
        };
        Self {
            nodes: nodes
                .map(|me| Shared::new(Node::member(setup, &first, machine(config(setup, me)), me)))
                .collect(),
            parcels: Vec::new(),
            operations: Vec::new(),
            moving: Vec::new(),
            counts: Counts {
                unasked: Kind::ALL.map(|kind| setup.count(kind)),
                writes: [0; Setup::NODES_MAX as usize],
                left: setup.chances,
            },
            judge: Shared::new(judge),
            views: Shared::new(vec![first]),
            last: Cas(0),
            witnesses: 0,
            fault: None,
        }
    }

    pub(crate) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[usize::from(node.0)]
    }

    pub(crate) fn edit(&mut self, node: NodeId) -> &mut Node {
        self.nodes[usize::from(node.0)].edit()
    }

    pub(crate) fn operation(&self, label: Label) -> Option<&Operation> {
        self.operations.iter().find(|one| one.label == label)
    }

    pub(crate) fn edit_operation(&mut self, label: Label) -> Option<&mut Operation> {
        self.operations.iter_mut().find(|one| one.label == label)
    }

    pub(crate) fn see(&mut self, witness: Witness) {
        self.witnesses |= witness.bit();
    }

    pub(crate) fn fail(&mut self, fault: &'static str) {
        self.fault = self.fault.or(Some(fault));
    }

    /// Ends a step: what nobody can come back to is forgotten.
    pub(crate) fn seal(&mut self, keeps_past: bool) {
        let (nodes, parcels) = (&self.nodes, &self.parcels);
        self.operations.retain(|one| {
            let is_on_its_way = |parcel: &Parcel| {
                matches!(parcel.content, Content::Request(label, ..) if label == one.label)
            };
            one.stage != OperationStage::Unknown
                || nodes.iter().any(|node| node.has(one.label))
                || parcels.iter().any(is_on_its_way)
        });
        self.nodes.iter_mut().for_each(Shared::seal);
        if !keeps_past {
            self.forget_past();
        }
        self.judge.seal();
        self.views.seal();
    }

    /// What only the past tells apart is the same: how many writes whom was asked for when no more
    /// come, and what is known of answers when nothing will be answered.
    fn forget_past(&mut self) {
        let of_writes = &self.counts.unasked[Kind::Set as usize..];
        if of_writes.iter().all(|count| *count == 0) {
            self.counts.writes = Default::default();
        }
        let waits = |one: &Operation| one.stage != OperationStage::Unknown;
        let is_asked = self.counts.unasked != [0; Kind::ALL.len()];
        if is_asked || self.operations.iter().any(waits) {
            return;
        }
        let at_rest = match &*self.judge {
            Judge::Linearizable(_) => Judge::Linearizable(Linearizable::at_rest()),
            Judge::Sessions(judge) => Judge::Sessions(judge.at_rest()),
        };
        if *self.judge != at_rest {
            *self.judge.edit() = at_rest;
        }
    }

    pub(crate) fn newest(&self) -> View {
        self.views.last().copied().unwrap_or_default()
    }

    /// The last version that somebody has, or that was given.
    pub(crate) fn newest_write(&self) -> Cas {
        let items = self.nodes.iter().filter_map(|node| node.item);
        let moving = self.moving.iter().filter_map(|moving| moving.item);
        let newest = items.chain(moving).map(|item| item.ts).max();
        newest.unwrap_or_default().max(self.last)
    }

    pub(crate) fn view(&self, number: ViewNumber) -> View {
        let mut views = self.views.iter();
        let found = views.find(|view| view.number == number).copied();
        found.unwrap_or_default()
    }

    /// Where the key is.
    pub(crate) fn place(&self, setup: &Setup, view: ViewNumber) -> Place {
        if setup.moves() {
            return self.in_force(setup, view).place(setup.route());
        }
        // When one of them goes, nobody comes in its place.
        let members = self.view(view).live;
        let home = Setup::RANKS
            .into_iter()
            .find(|node| members.contains(*node));
        let home = home.unwrap_or_default();
        let holders = setup.holders().intersection(members).with(home);
        Place { home, holders }
    }
}

impl Node {
    /// One that has nothing and may not answer.
    pub(crate) fn new(machine: Symmetric) -> Self {
        Self {
            machine,
            item: None,
            state: None,
            late: Vec::new(),
            view: ViewNumber(0),
            mode: Mode::Cold,
            is_up: true,
            has_lease: false,
            item_when_cold: None,
            mover: Mover::default(),
        }
    }

    fn member(setup: &Setup, view: &View, machine: Symmetric, me: NodeId) -> Self {
        let item = Item {
            ts: FIRST_VERSION,
            value: Written(0),
        };
        Self {
            item: setup.holders().contains(me).then_some(item),
            is_up: setup.members().contains(me),
            has_lease: view.live.contains(me),
            ..Self::new(machine)
        }
    }

    /// Whether the request is in its hands.
    pub(crate) fn has(&self, label: Label) -> bool {
        let mut arrivals = self.mover.arrivals.iter();
        self.machine.holds(label.ticket()) || arrivals.any(|one| one.0 == label)
    }

    /// The item once everything that was emitted is carried out.
    pub(crate) fn item_in_the_end(&self) -> Option<Item> {
        let late = self.late.iter().rev();
        late.filter_map(|late| late.1).next().or(self.item)
    }
}

fn first_view(setup: &Setup) -> View {
    let members = setup.members();
    let live = match setup.chances.joins {
        0 => members,
        _ => members.without(Setup::JOINER),
    };
    let placed = match setup.change {
        Some(Change::Comes) => members.without(Setup::JOINER),
        _ => live,
    };
    View {
        number: FIRST_VIEW,
        live,
        joining: NodeSet::NONE,
        placed,
        placed_before: placed,
    }
}

/// Time stands still: every timer rings when the model says so.
pub(crate) fn config(setup: &Setup, me: NodeId) -> Config {
    Config {
        me,
        model: setup.model,
        keys_max: 2,
        waiting_max: 8,
        retransmit_ns: 0,
        replay_ns: 0,
        patience_ns: u64::MAX,
        settle_ns: 0,
        writer: WriterId::of(me, 0),
    }
}
