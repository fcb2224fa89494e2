//! What a replica is told, and what it asks of its host.

use curtail_types::{Access, Cas, Instant, NodeId, NodeSet, RouteHash, named_enum};

use super::message::{ReplicaMessage, SliceChange};
use crate::slice_view::{RowChange, RowStep, SliceId, SliceView};

named_enum! {
    /// How the copies of a hot key agree (ccKVS, section 5).
    #[derive(Default)]
    pub enum Model {
        /// Sequential consistency per key: a write is done when its primary has it, the others hear
        /// of it soon.
        Sc = "sc",
        /// Linearizability: a write is done when every copy has it.
        #[default]
        Lin = "lin",
    }
}

/// A request of the host; it is given back, and never looked into.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(pub u64);

/// What a replica is made with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReplicaConfig {
    /// The node that it runs on.
    pub me: NodeId,
    /// How the copies of a hot key agree.
    pub model: Model,
    /// After how long without an answer something is sent again.
    pub retransmit_ns: u64,
    /// After how long without progress a follower is put out of the slice; after a quarter of that
    /// a node that catches up begins anew.
    pub suspicion_ns: u64,
    /// How long a request may wait; then it is refused.
    pub patience_ns: u64,
    /// How long the primary of a slice spares it from eviction at first: it has seen no reads yet.
    pub learning_ns: u64,
    /// Requests that may wait at a time; beyond, they are refused.
    pub waiting_max: usize,
    /// Changes of a slice that a follower may not have acknowledged; further writes wait.
    pub window_max: usize,
    /// Bytes of room that a primary asks of a follower at a time; 0 if stores have no end.
    pub room_ask: u64,
    /// Slices that may catch up at a time.
    pub catch_ups_max: usize,
    /// Of the machines that a node divides its slices among, which this is, and how many there are.
    pub stage: (u16, u16),
}

/// A request, as its machine sees it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReplicaRequest {
    /// What the host calls it.
    pub ticket: Ticket,
    /// The key.
    pub key: RouteHash,
    /// What it does.
    pub access: Access,
    /// Bytes that the item takes at most if the request stores it; 0 if it stores nothing.
    pub size: u32,
    /// Another node sent it here: it is executed here or given back, never sent on.
    pub is_forwarded: bool,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum ReplicaEvent<'a> {
    /// Time has come (its deadline).
    Tick,
    /// Another view is in force: members that it removed are fenced.
    View(&'a SliceView),
    /// What the placement wants of a slice of which this node is the primary, in the view that is
    /// in force: in another one it is said again, if it is still wanted.
    Wanted(SliceId, RowStep),
    /// A request of a client, or one that another node forwarded.
    Request(ReplicaRequest),
    /// The answer of a node to a request that this one forwarded is with the host: `Ok` with the
    /// version that it shows.
    Answered(NodeId, Ticket, Result<Cas, ReplicaRefusal>),
    /// A message; its image, if its kind carries one, is the host's *incoming* one.
    Message(NodeId, &'a ReplicaMessage),
    /// Keys of a scan with the bytes of their items; whether these are the last.
    Scanned(SliceId, &'a [(RouteHash, u32)], bool),
    /// No request runs beside the machine any more in a slice whose gate was closed.
    Closed(SliceId),
    /// A key of a slice of this primary shall be hot from now on, or no more.
    Heat(RouteHash, bool),
    /// Empty a slice of what is there now (`flush_all`).
    Flush(SliceId, Ticket),
}

/// How a request ran on the host's store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RunResult {
    /// It changed nothing; its answer is kept.
    Unchanged,
    /// It stored an item of so many bytes.
    Stored(u32),
    /// It removed the item.
    Removed,
    /// There is no room that the store may make alone. It did not run.
    NoRoom,
}

/// Which requests of a slice may run beside the machine.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Gate {
    /// None.
    #[default]
    Closed,
    /// Reads: every change is finished.
    Reads,
    /// All: this node alone holds the slice.
    Open,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ReplicaRefusal {
    /// Too much waits already; it had no effect.
    Busy,
    /// A holder has no room for it; it had no effect.
    NoRoom,
    /// This node is not the key's primary, or not yet; it had no effect.
    Elsewhere,
    /// It waited too long, and had no effect.
    Late,
    /// The view changed while it was unfinished; a write may still take effect.
    Unknown,
}

/// What a copy of a hot key may show.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CopyState {
    /// Nothing: there is none.
    #[default]
    Absent,
    /// Nothing: a write is on its way.
    Invalid,
    /// Its value, without asking the machine.
    Valid,
}

/// What a replica asks of its host. The host performs each call before it returns.
pub trait ReplicaHost {
    /// Runs a request on the local store. One that writes gives the item this version, or while the
    /// gate is open one that is above the item's, as requests beside the machine do.
    fn run(&mut self, request: &ReplicaRequest, version: Cas) -> RunResult;

    /// What [`run`](Self::run) just left of a request shows the key as of this version, though it
    /// may have found nothing that has one. The node that it is sent to is told at least this.
    fn stamp(&mut self, ticket: Ticket, version: Cas);

    /// The answer that [`run`](Self::run) or another node left goes to whoever asked. So many nodes
    /// in sync have what it shows; 0 if another node has said how many, or it is a copy's.
    fn respond(&mut self, ticket: Ticket, copies: u8);

    /// Whoever asked is told why there is no answer.
    fn refuse(&mut self, ticket: Ticket, refusal: ReplicaRefusal);

    /// Sends a client's request to another node, which sees it as
    /// [`is_forwarded`](ReplicaRequest::is_forwarded).
    fn forward(&mut self, request: &ReplicaRequest, to: NodeId);

    /// Sends a message to each of `to`; one that
    /// [carries an image](ReplicaMessage::carries_image) with the item as it is stored now.
    fn send(&mut self, to: NodeSet, message: &ReplicaMessage);

    /// Applies a change of primary `from` to the local store: `Store` with the incoming image, or
    /// a removal if there is none. It takes its room out of what was promised; if that is less, it
    /// changes nothing and returns false.
    fn apply(&mut self, from: NodeId, change: &SliceChange) -> bool;

    /// The version and the bytes of the stored item.
    fn item(&mut self, key: RouteHash) -> Option<(Cas, u32)>;

    /// From now on the store keeps `held` bytes free for changes that node `to` sends, and if it
    /// can up to `wanted` more; returns how many more.
    fn promise(&mut self, to: NodeId, held: u64, wanted: u64) -> u64;

    /// Whether the store may evict anything to make room.
    fn evicts(&self) -> bool;

    /// The store evicts about so many bytes in slices that `may_evict` names, and says which keys
    /// went. If that is not enough, the host asks the node's other machines, by
    /// [`ReplicaMessage::Evict`] of the same node.
    fn evict(
        &mut self,
        bytes: u64,
        may_evict: &mut dyn FnMut(SliceId) -> bool,
        evicted: &mut dyn FnMut(SliceId, RouteHash),
    );

    /// Begins to scan a slice, or goes on; answered by [`ReplicaEvent::Scanned`].
    fn scan(&mut self, slice: SliceId, begins: bool);

    /// Removes everything in a slice that is older than `before`; everything if that is `None`.
    fn clear(&mut self, slice: SliceId, before: Option<Cas>);

    /// Removes everything that is in a slice of this primary now, and returns the version of this
    /// flush: above all that were given, beside the machine, too.
    fn flush(&mut self, slice: SliceId) -> Cas;

    /// Which requests may run beside the machine. A gate that closes is answered by
    /// [`ReplicaEvent::Closed`] when none does any more.
    fn gate(&mut self, slice: SliceId, gate: Gate);

    /// Whether the store may evict from a slice whose gate is open whenever it needs room, without
    /// being asked. A store that only evicts when it is asked may ignore that.
    fn free(&mut self, _slice: SliceId, _is_free: bool) {}

    /// A change of the view, until a new view is in force.
    fn propose(&mut self, change: RowChange);

    /// A version above every one that was given or [seen](Self::saw).
    fn next_version(&mut self) -> Cas;

    /// Versions given from now on are above this one.
    fn saw(&mut self, version: Cas);

    /// What readers beside the machine may see of a hot key here. At its primary that is the stored
    /// item, which the store does not evict while it is shown; elsewhere a copy, which takes the
    /// incoming image if `takes_image`.
    fn show(&mut self, key: RouteHash, version: Cas, state: CopyState, takes_image: bool);

    /// Runs a read on the copy of a hot key.
    fn read_copy(&mut self, request: &ReplicaRequest);

    /// Runs a write without condition on the copy of a hot key: its value is kept with the request
    /// until that ends, and becomes what the copy shows when it is valid. False if it cannot.
    fn write_copy(&mut self, request: &ReplicaRequest, version: Cas) -> bool;

    /// Sends a message with the value that [`write_copy`](Self::write_copy) kept.
    fn send_write(&mut self, to: NodeSet, message: &ReplicaMessage, ticket: Ticket);

    /// Stores the incoming image as a write of this version.
    fn store_copy(&mut self, key: RouteHash, version: Cas) -> RunResult;

    /// Bytes of the item that came with the message.
    fn incoming_bytes(&self) -> u32;

    /// The time.
    fn now(&self) -> Instant;
}
