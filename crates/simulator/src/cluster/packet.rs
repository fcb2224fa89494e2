//! What clients ask of nodes, and nodes of each other.

use curtail_consistency::membership::Heartbeat;
use curtail_types::{Cas, Message, ViewNumber};

/// A request of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Demand {
    /// Which operation of the run; no other has this number.
    pub(super) number: u64,
    /// One of the keys, by its index.
    pub(super) key: usize,
    pub(super) command: Command,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Command {
    Get,
    Set(u64),
    /// Only if nothing is there.
    Add(u64),
    Delete,
    Increment(u64),
    /// If the item has still this version, which had this value.
    Swap {
        version: Cas,
        expected: u64,
        new: u64,
    },
}

/// What a client is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    Carried(Effect),
    /// It had no effect: another node may be asked.
    Refused,
    /// The same: the node that was asked is not the one.
    Elsewhere,
    /// It may have had an effect, or have one yet.
    Unknown,
}

/// What carrying out a command did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Effect {
    pub(super) outcome: Done,
    /// The write that it made, or else the one that it saw.
    pub(super) version: Cas,
    /// The write that was there before its own.
    pub(super) replaced: Cas,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Done {
    Value(u64),
    Missing,
    Written,
    /// An increment: what was there, and what is now.
    Counted {
        from: u64,
        to: u64,
    },
    /// Something was there, or another version.
    Exists,
}

/// An item as it travels and as it is stored; a version without a value is a deleted item.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Item {
    pub(super) version: Cas,
    pub(super) value: Option<u64>,
}

/// What travels between nodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    /// What the machines say to each other, with the value if it has one.
    Key {
        key: usize,
        message: Message,
        item: Item,
    },
    /// A request for somebody else's key.
    Ask {
        number: u64,
        demand: Demand,
        after: Cas,
    },
    /// Its answer, for the life of the node that asked.
    Tell {
        life: u64,
        number: u64,
        answer: Answer,
    },
    Heartbeat(Heartbeat),
    /// An item moves to a new holder; version 0 says that there is none.
    Move {
        key: usize,
        view: ViewNumber,
        item: Item,
    },
    /// The sender waits for this key.
    Wanted {
        key: usize,
        view: ViewNumber,
    },
    Moved {
        key: usize,
        view: ViewNumber,
    },
    /// All keys that leave the sender have arrived.
    MovesDone {
        view: ViewNumber,
    },
    /// The sender's machine has filled nothing yet that the receiver must have.
    Unfilled {
        view: ViewNumber,
        any: bool,
    },
}

impl Packet {
    /// Whether the network may lose, double and overtake it; the others are carried by a link that
    /// sends again.
    pub(super) fn is_loose(&self) -> bool {
        matches!(self, Self::Key { .. } | Self::Heartbeat(_))
    }
}
