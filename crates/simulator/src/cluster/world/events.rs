//! What happens in a cluster.

use curtail_consistency::membership::Change;
use curtail_types::{Instant, NodeId};

use super::{Asked, Said, chance::Chance};
use crate::{
    cluster::packet::{Answer, Parcel},
    event_queue::EventQueue,
};

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrive(Parcel),
    Demand {
        node: usize,
        life: u64,
        asked: Asked,
    },
    Reply {
        number: u64,
        answer: Answer,
    },
    Wake {
        node: usize,
        life: u64,
    },
    Next {
        session: usize,
    },
    Start {
        node: usize,
    },
    Reset {
        node: usize,
        life: u64,
        peer: NodeId,
    },
    StoreRead {
        node: usize,
        life: u64,
        started: Instant,
    },
    StorePropose {
        node: usize,
        life: u64,
        expected: u64,
        change: Change,
    },
    StoreSays {
        node: usize,
        life: u64,
        said: Said,
    },
    Chance(Chance),
}

impl Event {
    /// The node that it happens to, if it waits while the node pauses.
    pub(super) fn node(&self) -> Option<usize> {
        match self {
            Self::Arrive(parcel) => Some(usize::from(parcel.to.0)),
            Self::Demand { node, .. }
            | Self::Wake { node, .. }
            | Self::Reset { node, .. }
            | Self::StoreSays { node, .. } => Some(*node),
            _ => None,
        }
    }
}

/// All that is planned, in nanoseconds.
pub(super) type Events = EventQueue<Event>;
