//! What will happen, in order of time; of one moment in the order in which it was planned.

use std::{cmp::Ordering, collections::BinaryHeap};

use curtail_consistency::membership::Change;
use curtail_types::{Instant, NodeId};

use super::{Asked, Said, chance::Chance};
use crate::cluster::packet::{Answer, Parcel};

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

/// All that is planned.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

#[derive(Debug)]
struct Planned {
    at: u64,
    number: u64,
    event: Event,
}

impl Events {
    pub(super) fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        let number = self.planned;
        self.heap.push(Planned { at, number, event });
    }

    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        let Planned { at, event, .. } = self.heap.pop()?;
        Some((at, event))
    }
}

/// The earliest is the greatest, as the heap wants it.
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}
