//! The parameters of a model: nodes, requests, allowed faults, and how many of each.

use curtail_consistency::symmetric::{Access, Model};
use curtail_types::{NodeId, NodeSet};

/// A bounded cluster with one key.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What to call it.
    pub name: &'static str,
    /// How copies of the key agree while it is hot.
    pub model: Model,
    /// The nodes that take part, a bit for each; [`Setup::HOME`] is the key's home.
    pub nodes: u8,
    /// How many of them hold the key while it is cold.
    pub replicas: u8,
    /// Whether every node has the key already.
    pub starts_hot: bool,
    /// What clients ask, each once, of any node, at any time.
    pub operations: &'static [Kind],
    /// How often each of the things may happen that need not.
    pub chances: Chances,
    /// How the key moves, if it does.
    pub change: Option<Change>,
    /// Whether some threads of a node act on the view before for a while.
    pub slow_threads: bool,
    /// Whether keys may begin to move while one becomes hot, or ceases to be.
    pub is_unannounced: bool,
    /// What becomes of messages.
    pub network: Network,
    /// Whether readers beside the machine take a step to copy the item, and another to look whether
    /// they may use it.
    pub readers_take_time: bool,
    /// What must be seen on some way, or else the model is too small to show anything.
    pub sees: &'static [Witness],
    /// Whether it takes long and runs only when asked for.
    pub is_deep: bool,
}

/// What a client asks.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Reads the value.
    Get,
    /// Writes another, whatever was there.
    Set,
    /// Writes one that holds what was there.
    Append,
    /// Removes what is there, and says whether something was.
    Delete,
}

/// Why the key moves.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Change {
    /// Keys are placed on the last node, too, which becomes the home of this one.
    Comes,
    /// The home is to leave.
    Goes,
    /// Nobody comes or leaves; keys move when a holder dies, and nobody dies while they do.
    Dies,
}

/// What is between nodes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Network {
    /// A message arrives once, whenever.
    Unordered,
    /// The same, but those between two nodes in the order in which they were sent, as on the
    /// server's links.
    Ordered,
    /// Every message that was ever sent may arrive at any time, any number of times, or never. This
    /// is more than any network does, and yet there are fewer states, since nothing has to be said
    /// of what has arrived. Timers ring when no message would change anything.
    Repeating,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Chances {
    /// A message is lost.
    pub losses: u8,
    /// A message arrives twice.
    pub duplicates: u8,
    /// A timer rings although what it waits for is on its way.
    pub early_timers: u8,
    /// The key becomes hot.
    pub promotions: u8,
    /// The key ceases to be hot, or ceases to become so.
    pub demotions: u8,
    /// A node dies and is taken out of the view.
    pub crashes: u8,
    /// A node that died comes back with nothing, and joins.
    pub rejoins: u8,
    /// A node's lease ends and it is taken out of the view, but it lives on.
    pub lost_leases: u8,
    /// Which nodes that may be, a bit for each.
    pub victims: u8,
    /// The last node, which is no member at first, joins.
    pub joins: u8,
}

/// Something that is worth seeing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Witness {
    /// Everything that was asked is answered.
    AllAnswered,
    /// A get returned what a set or an append wrote.
    GetSawWrite,
    /// A node that is not the home answered a get.
    GetAnsweredElsewhere,
    /// Two nodes' writes were on their way at once.
    WritesRaced,
    /// A node completed another's write.
    Replayed,
    /// An update lost against a write and ran again.
    UpdateRanAgain,
    /// A request was sent on.
    Forwarded,
    /// The key became hot.
    Promoted,
    /// The key ceased to be hot.
    Demoted,
    /// A node other than the first became home of the hot key.
    TookOver,
    /// A reader beside the machine had to start over.
    ReaderStartedOver,
    /// A get answered after a node was taken out of the view.
    GetAfterView,
    /// A get returned what was no longer the last write (SC).
    GetSawOldValue,
    /// A message of an earlier view arrived.
    LateMessage,
    /// A node that joined answered a get.
    GetAnsweredByJoiner,
    /// A node that showed the key when it became live went on with what it had followed.
    JoinerGoesOn,
    /// The item came to a node that did not have it.
    KeyMoved,
    /// A request waited until the key had come.
    WaitedForKey,
    /// What had moved was not wanted any more.
    MoveRefused,
    /// All keys were where they belong.
    Settled,
    /// A node came from one move to the next, and did not hear that the first had ended.
    SettledUnseen,
    /// A node that was to leave did.
    Departed,
    /// Something was deleted that was there.
    Deleted,
}

impl Chances {
    /// Nothing goes wrong, and nothing changes.
    pub const NONE: Self = Self {
        losses: 0,
        duplicates: 0,
        early_timers: 0,
        promotions: 0,
        demotions: 0,
        crashes: 0,
        rejoins: 0,
        lost_leases: 0,
        victims: 0,
        joins: 0,
    };
}

impl Setup {
    /// Nodes that a setup may have.
    pub const NODES_MAX: u8 = 3;

    /// The key's home at first. Its number lies between those of the others, so that of two writes
    /// with one clock sometimes its own is the later one and sometimes not.
    pub const HOME: NodeId = NodeId(1);

    /// Which nodes hold the key, the first one being its home.
    pub(crate) const RANKS: [NodeId; 3] = [Self::HOME, NodeId(0), NodeId(2)];

    /// The same where a node comes to which the key is to move.
    const RANKS_COMING: [NodeId; 3] = [Self::JOINER, Self::HOME, NodeId(0)];

    /// The one that joins, if one does.
    pub(crate) const JOINER: NodeId = NodeId(2);

    /// What it consists of, in a line: its bound.
    pub fn bound(&self) -> String {
        let mut parts = vec![format!("{} nodes", self.nodes.count_ones())];
        let sc = if self.model == Model::Sc { ", SC" } else { "" };
        parts.push(match (self.starts_hot, self.replicas) {
            (true, _) => format!("hot key{sc}"),
            (false, 1) => format!("cold key{sc}"),
            (false, holders) => format!("cold key with {holders} holders{sc}"),
        });
        let kinds = [
            (Kind::Set, "set"),
            (Kind::Append, "append"),
            (Kind::Delete, "delete"),
            (Kind::Get, "get"),
        ];
        parts.extend(
            kinds
                .into_iter()
                .filter_map(|(kind, name)| times(self.count(kind), name)),
        );
        let chances = self.chances;
        let faults = [
            (chances.promotions, "promotion"),
            (chances.demotions, "demotion"),
            (chances.losses, "loss"),
            (chances.duplicates, "duplicate"),
            (chances.early_timers, "early timer"),
            (chances.crashes, "crash"),
            (chances.rejoins, "return"),
            (chances.lost_leases, "lost lease"),
            (chances.joins, "join"),
        ];
        parts.extend(
            faults
                .into_iter()
                .filter_map(|(count, name)| times(count, name)),
        );
        match self.change {
            None => {}
            Some(Change::Comes) => parts.push("moves to a node that comes".into()),
            Some(Change::Goes) => parts.push("moves from a node that leaves".into()),
            Some(Change::Dies) => parts.push("moves when a node dies".into()),
        }
        if self.is_unannounced {
            parts.push("unannounced".into());
        }
        if self.slow_threads {
            parts.push("slow threads".into());
        }
        match self.network {
            Network::Unordered => {}
            Network::Ordered => parts.push("links keep order".into()),
            Network::Repeating => parts.push("messages repeat".into()),
        }
        if self.readers_take_time {
            parts.push("slow readers".into());
        }
        parts.join("; ")
    }

    /// The nodes that take part.
    pub(crate) fn members(&self) -> NodeSet {
        NodeSet::from_bits(self.nodes.into())
    }

    /// The nodes that hold the key at first.
    pub(crate) fn holders(&self) -> NodeSet {
        let placed = match self.change {
            Some(Change::Comes) => self.members().without(Self::JOINER),
            _ => self.members(),
        };
        let ranks = self.ranks().into_iter();
        let members = ranks.filter(|node| placed.contains(*node));
        members.take(self.replicas.into()).collect()
    }

    /// Which nodes hold the key, the first one being its home.
    pub(crate) fn ranks(&self) -> [NodeId; 3] {
        match self.change {
            Some(Change::Comes) => Self::RANKS_COMING,
            _ => Self::RANKS,
        }
    }

    /// Whether the key moves.
    pub(crate) fn moves(&self) -> bool {
        self.change.is_some()
    }

    /// The node that is to leave.
    pub(crate) fn leaving(&self) -> NodeSet {
        match self.change {
            Some(Change::Goes) => NodeSet::only(Self::HOME),
            _ => NodeSet::NONE,
        }
    }

    /// How many requests of `kind` there are.
    pub(crate) fn count(&self, kind: Kind) -> u8 {
        let operations = self.operations.iter();
        operations.filter(|one| **one == kind).count() as u8
    }
}

fn times(count: u8, name: &str) -> Option<String> {
    let ending = match name {
        _ if count == 1 => "",
        "loss" | "crash" => "es",
        _ => "s",
    };
    (count > 0).then(|| format!("{count} {name}{ending}"))
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Get, Self::Set, Self::Append, Self::Delete];

    pub(crate) const fn access(self) -> Access {
        match self {
            Self::Get => Access::Read,
            Self::Set => Access::Replace,
            Self::Append | Self::Delete => Access::Update,
        }
    }
}

impl Witness {
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }
}
