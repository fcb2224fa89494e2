//! The parts of a reply: accepted, the result, or how far a queue has been executed.
//!
//! Words are never mixed (JB-52): an *accepted* write is ordered and held once in the memory of the
//! server's kernel; an *executed* one has taken effect; a *replicated* one is at every node of a
//! cluster that is in sync, which are several; a *durable* one is on stable storage.

use curtail_codec::native::{Place, Promise, Status};

use crate::error::ClientError;

/// A write's place in the order, which is its acknowledgement.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Accepted {
    /// What it promises: accepted, or more at once.
    pub promise: Promise,
    /// Where it stands: queue, position, and the life of the queues that the position counts in.
    pub place: Place,
}

/// What came of a request that was executed, borrowed from the bytes that it came in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Outcome<'a> {
    /// How it ended.
    pub status: Status,
    /// The item's version; 0 if there is none, also if a read found a write that is accepted and
    /// not executed yet: to compare, ask again.
    pub version: u64,
    /// The number that arithmetic left.
    pub number: u64,
    /// The item's 32 bits.
    pub item_flags: u32,
    /// The item's value, of a read.
    pub value: &'a [u8],
    /// Where it stood, and how its queue is.
    pub place: Place,
}

/// What came of a request, with a value of its own.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Answer {
    /// How it ended.
    pub status: Status,
    /// The item's version; 0 if there is none, also if a read found a write that is accepted and
    /// not executed yet: to compare, ask again.
    pub version: u64,
    /// The number that arithmetic left; of a ping, the first position that is not executed.
    pub number: u64,
    /// The item's 32 bits.
    pub item_flags: u32,
    /// The item's value, of a read.
    pub value: Vec<u8>,
    /// Where it stood, and how its queue is.
    pub place: Place,
}

/// Something that happened to a request, named by the ticket it was submitted with.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// A marked write is accepted; nothing more will be heard of it.
    Accepted {
        /// Which.
        ticket: u64,
        /// Where.
        accepted: Accepted,
    },
    /// A request was answered; nothing more will be heard of it.
    Answered {
        /// Which.
        ticket: u64,
        /// How.
        outcome: Outcome<'a>,
    },
    /// A request failed; nothing more will be heard of it.
    Failed {
        /// Which.
        ticket: u64,
        /// Why, and whether it may have had an effect.
        error: ClientError,
    },
    /// A queue's durable prefix has grown; not told of a queue that has none.
    Durable {
        /// The queue, its incarnation, and how far it is durable now.
        place: Place,
    },
}

impl Event<'_> {
    /// Whose it is; `None` if it is no single request's.
    pub const fn ticket(&self) -> Option<u64> {
        match self {
            Self::Accepted { ticket, .. }
            | Self::Answered { ticket, .. }
            | Self::Failed { ticket, .. } => Some(*ticket),
            Self::Durable { .. } => None,
        }
    }
}

impl Accepted {
    /// How many nodes of a cluster had it when it was acknowledged; 1 at a server that is alone.
    pub const fn copies(&self) -> u8 {
        at_least_one(self.place.copies())
    }

    /// Whether an answer that came from `place` later says that this write is durable: every
    /// position below the told one is.
    pub const fn is_durable_at(&self, place: &Place) -> bool {
        self.place.incarnation == place.incarnation
            && self.place.queue == place.queue
            && self.place.pos < place.durable_pos
    }
}

impl Answer {
    /// What the answer to a write promises: that it was executed, or replicated as well.
    pub const fn promise(&self) -> Promise {
        self.place.promise_of_executed()
    }

    /// How many nodes of a cluster had what it says of a write; 1 at a server that is alone.
    pub const fn copies(&self) -> u8 {
        at_least_one(self.place.copies())
    }
}

/// Who does not count copies has one.
const fn at_least_one(copies: u8) -> u8 {
    match copies {
        0 => 1,
        copies => copies,
    }
}

impl Outcome<'_> {
    /// The same with a value of its own, kept in `value`'s room.
    pub(crate) fn into_answer(self, mut value: Vec<u8>) -> Answer {
        value.clear();
        value.extend_from_slice(self.value);
        Answer {
            status: self.status,
            version: self.version,
            number: self.number,
            item_flags: self.item_flags,
            value,
            place: self.place,
        }
    }
}
