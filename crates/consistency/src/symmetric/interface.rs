//! Inputs and outputs of the protocol's machine.

use curtail_types::{Access, Cas, HotEpoch, Message, NodeId, NodeSet, RouteHash, View, WriterId};

pub use crate::replica::{Model, Ticket};

/// What a machine is made with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Config {
    /// The node that it runs on.
    pub me: NodeId,
    /// How the copies of a hot key agree; keys with several holders that are not hot are always
    /// linearizable.
    pub model: Model,
    /// Keys that it may have something to remember about at a time; beyond, requests are refused.
    pub keys_max: usize,
    /// Requests that may wait at a time.
    pub waiting_max: usize,
    /// After how long without an answer something is sent again.
    pub retransmit_ns: u64,
    /// How long a key may be invalid here before whoever asks for it completes the write that made
    /// it so (Hermes, section 3.4).
    pub replay_ns: u64,
    /// How long a request may wait; then it is refused.
    pub patience_ns: u64,
    /// Under [`Model::Sc`]: how long after a write of a hot key the nodes make sure that all have
    /// it.
    pub settle_ns: u64,
    /// Who writes: the machines of a node share one writer that nobody else uses.
    pub writer: WriterId,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Input {
    /// Time has come (its deadline).
    Tick,
    /// A request for `key` arrived at this node, from a client or forwarded.
    Request {
        /// What to call it.
        ticket: Ticket,
        /// The key.
        key: RouteHash,
        /// Its place.
        place: Place,
        /// What it does.
        access: Access,
        /// What [`Output::Forward`] said, else 0: the session has seen this write of the key.
        after: Cas,
        /// A write of it shall be later than this: the driver's clock for a key that it has no item
        /// of, else 0. So versions rise across a delete.
        floor: Cas,
    },
    /// The request of an [`Output::Run`] wrote: the item in the store has the timestamp that was
    /// given for it.
    Write {
        /// The request.
        ticket: Ticket,
        /// The key.
        key: RouteHash,
    },
    /// The request of an [`Output::Run`] with [`Access::Replace`] or [`Access::Update`] does not
    /// write after all; it has been answered.
    Decline {
        /// The request.
        ticket: Ticket,
        /// The key.
        key: RouteHash,
    },
    /// A message arrived; its value, if it has one, is the *incoming* one.
    Message {
        /// From whom.
        from: NodeId,
        /// About which key.
        key: RouteHash,
        /// The key's place.
        place: Place,
        /// What it says.
        message: Message,
    },
    /// The key shall become hot. Only at its home, when no request runs beside the machine any
    /// more. Answered by [`Output::Moved`], with [`Mode::Cold`] if it cannot be now.
    Promote {
        /// The key.
        key: RouteHash,
        /// Its place.
        place: Place,
        /// Greater than those of all its promotions before, at whichever home: the clock part of a
        /// version, for example.
        epoch: HotEpoch,
        /// What is written from here on shall be later than this: [`nothing_since`] the driver's
        /// clock if it has no item of the key, else 0. The others are told, so that versions rise
        /// everywhere across a delete before the promotion.
        floor: Cas,
    },
    /// The key shall cease to be hot. Only at its home.
    Demote {
        /// The key.
        key: RouteHash,
    },
    /// Another view is in force. The driver has waited until nodes that left cannot answer any
    /// more. It then tells of every key in [`super::Symmetric::keys`] where it is now, by
    /// [`Input::Placed`], before anything else.
    View(View),
    /// Where a key is under the view that came just before.
    Placed {
        /// The key.
        key: RouteHash,
        /// Its place.
        place: Place,
    },
    /// A reply that this node relayed showed this write of the key to a session of this node, which
    /// shall not see an earlier one here (ccKVS requirement CC-72). Of use under [`Model::Sc`]
    /// only.
    Seen {
        /// The key.
        key: RouteHash,
        /// The write.
        ts: Cas,
    },
}

/// Where a key belongs under the view in force.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Place {
    /// The node that decides about it.
    pub home: NodeId,
    /// The nodes that store it when it is not hot, its home among them.
    pub holders: NodeSet,
}

/// Something to do, in the order in which it is emitted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Output {
    /// Carry the request out now, on the item as it is stored. One that may write is followed by
    /// [`Input::Write`] or [`Input::Decline`] before anything else is told about its key. An update
    /// that lost against a later write is run again, on what that one left.
    Run {
        /// The request.
        ticket: Ticket,
        /// The timestamp that its write has if it writes; 0 for [`Access::Read`].
        ts: Cas,
    },
    /// The write of this request is complete: answer it.
    Done {
        /// The request.
        ticket: Ticket,
    },
    /// Have another node carry the request out. If it is this node itself, the key's item is to
    /// come from who held it before: begin anew with the request, and wait for the item.
    Forward {
        /// The request.
        ticket: Ticket,
        /// Who.
        to: NodeId,
        /// To be told there with the request: what the sessions of this node may have seen.
        after: Cas,
    },
    /// Answer that the request could not be carried out; it had no effect, or its effect is
    /// unknown.
    Refuse {
        /// The request.
        ticket: Ticket,
        /// Why.
        reason: Refusal,
    },
    /// Change the stored item and what readers beside the machine see of the key.
    Publish {
        /// The key.
        key: RouteHash,
        /// The write that it now shows.
        ts: Cas,
        /// Who may answer for it.
        state: Visibility,
        /// Where its value comes from.
        value: Value,
    },
    /// Send `message` to each of `to`, with the value of `key` if its kind carries one.
    Send {
        /// To whom.
        to: NodeSet,
        /// About which key.
        key: RouteHash,
        /// What to say.
        message: Message,
        /// Which value goes with it.
        value: Value,
    },
    /// For reports: where this node, as its home, has come to with the key.
    Moved {
        /// The key.
        key: RouteHash,
        /// Which promotion of it.
        epoch: HotEpoch,
        /// Where to.
        mode: Mode,
    },
}

/// The version that an absent key has from its promotion on, by its home `me`, whose clock shows
/// `clock`. Nobody wrote it: when the promotion ends it gives way to any write.
pub const fn nothing_since(me: NodeId, clock: Cas) -> Cas {
    Cas::new(clock.clock(), WriterId::of(me, NOBODY))
}

/// Whether a version is one of [`nothing_since`].
pub const fn is_nothing(ts: Cas) -> bool {
    ts.writer().0 % WriterId::PER_NODE == NOBODY
}

/// Of the writers of a node, the one that writes nothing.
pub const NOBODY: u16 = WriterId::PER_NODE - 1;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// Too much waits already, or too many keys are in transition; it had no effect.
    Full,
    /// It waited too long; a write may still take effect.
    Late,
    /// The view changed under it; a write may still take effect.
    View,
}

/// Who may answer for a key of which the machine knows something.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Visibility {
    /// Any reader on this node, without asking the machine.
    Valid,
    /// Nobody: every request goes through the machine.
    Unsettled,
    /// The machine forgets the key: it is treated as any other of the store, and the item stays. On
    /// a node that does not hold it, it stays only if it is to move from there to its new home,
    /// which has nothing of it.
    Ordinary,
    /// The machine forgets the key and the item is removed: this node does not hold it, or is not
    /// sure of its value. If it is to hold it, it waits for the item of who held it before.
    Gone,
}

/// A value, as a machine speaks of it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Value {
    /// None, or the one that is there.
    Stored,
    /// The one that came with the input of this step.
    Incoming,
}

/// What the home of a key has come to with it (ccKVS requirements, CC-67).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Mode {
    /// Only its holders know it.
    #[default]
    Cold,
    /// The others are being told.
    Promoting,
    /// Every node answers for it.
    Hot,
    /// The others are being told to stop.
    Demoting,
}
