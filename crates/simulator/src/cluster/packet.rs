//! Requests of clients, their answers, and what nodes send each other.

use curtail_consistency::replica::{ReplicaMessage, ReplicaRefusal, Ticket};
use curtail_history::{Action, Outcome};
use curtail_types::{Access, Cas};

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

/// What a client is told: what was done, or why not.
pub(super) type Answer = Result<Effect, ReplicaRefusal>;

/// What carrying out a command did, in the judge's words: an increment is a compare-and-set of
/// what it found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Effect {
    pub(super) action: Action,
    pub(super) outcome: Outcome,
    /// The write that it made, or else the one that it saw; `None` if there was nothing.
    pub(super) stamp: Option<Stamp>,
    /// The write that was there before its own.
    pub(super) replaced: Option<Stamp>,
    /// It shows the key as of this version, if there was nothing that has one.
    pub(super) as_of: Cas,
}

/// Where a write stands among those of its key: a slice that begins empty begins a new age.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Stamp {
    /// The view in which the slice last began empty.
    pub(super) born: u32,
    pub(super) version: Cas,
}

/// An item as it travels and as it is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Item {
    pub(super) stamp: Stamp,
    pub(super) value: u64,
    /// Room that it takes.
    pub(super) bytes: u32,
    /// The operation that wrote it.
    pub(super) number: u64,
}

/// What travels between nodes.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    /// What the machines of one stage say to each other, with the item that travels beside it.
    Message {
        stage: u16,
        message: ReplicaMessage,
        item: Option<Item>,
    },
    /// A client's request that another node shall carry out.
    Request(Demand),
    /// Its answer.
    Answer { number: u64, answer: Answer },
}

impl Packet {
    /// Whether the network may lose, double and overtake it; the others are carried by a link that
    /// keeps order, though what is on its way when the link breaks is lost.
    pub(super) const fn is_loose(&self) -> bool {
        matches!(self, Self::Message { .. })
    }
}

impl Command {
    /// What it is in the judge's words where it finds this.
    pub(super) fn on(self, found: Option<u64>) -> Action {
        match self {
            Self::Get => Action::Read,
            Self::Set(value) => Action::Write(value),
            Self::Add(value) => Action::Insert(value),
            Self::Delete => Action::Delete,
            Self::Increment(by) => {
                let expected = found.unwrap_or(u64::MAX);
                let new = expected.wrapping_add(by);
                Action::CompareAndSet { expected, new }
            }
            Self::Swap { expected, new, .. } => Action::CompareAndSet { expected, new },
        }
    }
}

impl Item {
    pub(super) const fn new(stamp: Stamp, value: u64, number: u64) -> Self {
        Self {
            stamp,
            value,
            bytes: bytes_of(value),
            number,
        }
    }
}

impl Effect {
    /// Of a read that finds this.
    pub(super) fn of_read(item: Option<&Item>) -> Self {
        let outcome = item.map_or(Outcome::Missing, |item| Outcome::Value(item.value));
        Self::unchanged(Action::Read, outcome, item)
    }

    /// Of an action that leaves there what it found.
    pub(super) fn unchanged(action: Action, outcome: Outcome, found: Option<&Item>) -> Self {
        Self {
            action,
            outcome,
            stamp: found.map(|item| item.stamp),
            replaced: None,
            as_of: Cas(0),
        }
    }

    /// Of a write with this stamp.
    pub(super) fn wrote(action: Action, stamp: Stamp, found: Option<&Item>) -> Self {
        Self {
            action,
            outcome: Outcome::Done,
            stamp: Some(stamp),
            replaced: found.map(|item| item.stamp),
            as_of: Cas(0),
        }
    }
}

impl Demand {
    pub(super) const fn ticket(&self) -> Ticket {
        Ticket(self.number)
    }

    pub(super) const fn access(&self) -> Access {
        match self.command {
            Command::Get => Access::Read,
            Command::Set(_) => Access::Replace,
            _ => Access::Update,
        }
    }

    /// Room that its item takes at most.
    pub(super) const fn size(&self) -> u32 {
        match self.command {
            Command::Get | Command::Delete => 0,
            Command::Set(value) | Command::Add(value) | Command::Swap { new: value, .. } => {
                bytes_of(value)
            }
            Command::Increment(_) => BYTES_MAX,
        }
    }
}

/// Room that an item with this value takes.
pub(super) const fn bytes_of(value: u64) -> u32 {
    1 + (value >> VALUE_BITS) as u32 % BYTES_MAX
}

/// The most that an item takes.
pub(super) const BYTES_MAX: u32 = 3;

/// Increments of one value that do not reach the next.
pub(super) const VALUE_BITS: u32 = 20;
