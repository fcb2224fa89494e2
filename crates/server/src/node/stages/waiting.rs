//! The requests that a machine has, by their tickets: what was asked, by whom, and what it will be
//! answered.

use curtail_store::Image;
use curtail_types::{Access, NodeId, Outcome, RouteHash};

use super::jobs::{Completed, End, Origin};

/// A request that the machine has.
#[derive(Debug)]
pub(super) struct Waiting {
    /// What was asked and by whom, and how it ended as soon as it has run.
    pub(super) done: Completed,
    pub(super) key: RouteHash,
    pub(super) access: Access,
    /// Bytes of the item that it may store at most.
    pub(super) size: u32,
    /// Who was asked last to carry it out, and in which attempt.
    pub(super) sent: Option<(NodeId, u64)>,
    /// What it wrote to the copy of a hot key, without the value.
    pub(super) written: Option<Image>,
    /// What becomes of it when the machine has its answer.
    pub(super) next: Next,
}

/// What becomes of a request whose answer the machine lets go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// The requester is told.
    Answer,
    /// It did not run, because the item had grown: it is given to the machine again.
    Again,
    /// It removed what was there, because the write before it found no room: that is told.
    Refused(Outcome),
}

impl Waiting {
    pub(super) fn new(
        origin: Origin,
        (key, access): (RouteHash, Access),
        bytes: Vec<u8>,
        value: Vec<u8>,
    ) -> Self {
        Self {
            done: Completed {
                value,
                ..Completed::without_value(origin, bytes, End::Elsewhere)
            },
            key,
            access,
            size: 0,
            sent: None,
            written: None,
            next: Next::Answer,
        }
    }

    /// The flush of a slice.
    pub(super) fn flush(origin: Origin) -> Self {
        let of = (RouteHash(0), Access::Update);
        let mut flush = Self::new(origin, of, Vec::new(), Vec::new());
        flush.done.end = End::Done(None);
        flush
    }
}
