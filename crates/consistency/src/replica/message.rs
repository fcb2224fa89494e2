//! What replicas send each other.

use alloc::boxed::Box;

use curtail_types::{Cas, RouteHash, ViewNumber, numbered_enum};

use crate::slice_view::SliceId;

/// A message from one replica to another. It may be lost, doubled and overtaken.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ReplicaMessage {
    /// A change of a slice, from its primary.
    Append(Append),
    /// The follower has applied all of its stream up to this number.
    Applied {
        /// The slice.
        slice: SliceId,
        /// The primary's term.
        term: ViewNumber,
        /// The number.
        seq: u64,
    },
    /// A new primary wants the follower's [`Tail`](Self::Tail).
    TailWanted {
        /// The slice.
        slice: SliceId,
        /// The new term.
        term: ViewNumber,
    },
    /// The sender obeys the new primary; it may know unfinished changes of these keys.
    Tail {
        /// The slice.
        slice: SliceId,
        /// The new term.
        term: ViewNumber,
        /// The keys.
        keys: Box<[RouteHash]>,
        /// The sender has seen no later version.
        seen: Cas,
        /// The last flush that it has applied; if one of the keys is the whole slice, that may be
        /// unfinished.
        flushed: Cas,
    },
    /// The primary holds `held` bytes of the receiver's room, and wants so much more.
    RoomWanted {
        /// Counts these requests; an earlier one is void.
        number: u64,
        /// Bytes of which the primary may still make use, or has and does not know to be applied.
        held: u64,
        /// Bytes beyond.
        wanted: u64,
    },
    /// The answer: so many bytes more.
    Room {
        /// Of which request.
        number: u64,
        /// The bytes.
        bytes: u64,
        /// More may come once something is evicted.
        grows: bool,
    },
    /// A message about the copies of a hot key.
    Copy(CopyMessage),
    /// The sender is in this view, and has no copy of an earlier one.
    Entered(ViewNumber),
    /// The sender waits until the receiver has entered this view, or an earlier one: the receiver
    /// shall say which it is in.
    EnteredWanted(ViewNumber),
    /// The receiver shall evict about so many bytes of slices that the sender holds as well.
    Evict(u64),
}

/// A change of a slice. `prev` is the number of the change before it in the stream of this
/// follower, so that streams may differ.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Append {
    /// The slice.
    pub slice: SliceId,
    /// The primary's term.
    pub term: ViewNumber,
    /// The change before it in this stream.
    pub prev: u64,
    /// Its number in the term.
    pub seq: u64,
    /// Up to this number the receiver has applied everything, and so have the nodes in sync. No
    /// later change shows in what it was sent of earlier ones, unless that is committed, too.
    pub committed: u64,
    /// The sender's last request for room when this left. Once the receiver has seen a later one
    /// this is void: the room may be counted on for something else. What is still wanted is
    /// repeated.
    pub asked: u64,
    /// What changes.
    pub change: SliceChange,
}

/// What changes in a slice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SliceChange {
    /// The key; the largest hash if the change is about the whole slice.
    pub key: RouteHash,
    /// What happens to it.
    pub kind: ChangeKind,
    /// Where a flush ends; else no change before, nor what travels with this one, has a later
    /// version.
    pub version: Cas,
    /// Bytes of the follower's room that it takes.
    pub room: u32,
}

/// What is said of the copies of a hot key, in one view.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CopyMessage {
    /// The view.
    pub view: ViewNumber,
    /// The key.
    pub key: RouteHash,
    /// The write.
    pub version: Cas,
    /// What is said of it.
    pub kind: CopyKind,
    /// With the primary's acknowledgement: how many nodes in sync have the write. Else 0, and from
    /// a node that does not say it.
    pub copies: u8,
}

impl SliceChange {
    /// A change of this kind.
    pub const fn new(kind: ChangeKind, key: RouteHash, version: Cas, room: u32) -> Self {
        Self {
            key,
            kind,
            version,
            room,
        }
    }
}

impl CopyMessage {
    /// A message that does not say how many nodes have the write.
    pub const fn new(view: ViewNumber, of: (RouteHash, Cas), kind: CopyKind) -> Self {
        Self {
            view,
            key: of.0,
            version: of.1,
            kind,
            copies: 0,
        }
    }
}

numbered_enum! {
    /// What is said of a write of a hot key.
    #[derive(Ord, PartialOrd)]
    pub enum CopyKind: u8 {
        /// It is on its way, and older values may not be shown; from the primary, which wants the
        /// receiver to have a copy.
        Install = 0,
        /// The same, from another node that writes; its image is of the request.
        Invalidate = 1,
        /// The receiver of an installation, an invalidation or an update has it.
        Ack = 2,
        /// The primary does not take the write: it was given no later version than what is there.
        Reject = 3,
        /// Everybody has it: it may be shown.
        Validate = 4,
        /// The sender waits for that.
        ValidateWanted = 5,
        /// It happened, and may be shown (SC).
        Update = 6,
        /// The receiver shall have no copy any more.
        Drop = 7,
        /// It has none.
        Dropped = 8,
    }
}

numbered_enum! {
    /// What happens to a key, or to a slice.
    #[derive(Ord, PartialOrd)]
    pub enum ChangeKind: u8 {
        /// It is as the image says; without an image there is no item.
        Store = 0,
        /// The primary evicted it.
        Evict = 1,
        /// Everything older in the slice goes.
        Flush = 2,
        /// The follower begins to catch up, from an empty slice.
        Begin = 3,
    }
}

impl ReplicaMessage {
    /// Of which key the stored item travels with it, as it is when the message leaves.
    pub const fn carries_image(&self) -> Option<RouteHash> {
        match *self {
            Self::Append(Append { change, .. }) if matches!(change.kind, ChangeKind::Store) => {
                Some(change.key)
            }
            Self::Copy(message) => match message.kind {
                CopyKind::Install | CopyKind::Update => Some(message.key),
                _ => None,
            },
            _ => None,
        }
    }
}
