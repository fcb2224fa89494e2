//! What will happen, in order of time; of one moment in the order in which it was planned.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::juneberry::run::Packet;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request of an open load.
    Arrival,
    /// A packet is past the card.
    AtServer(Packet),
    /// A packet comes to the card.
    AtCard(Packet),
    /// An input thread has dealt with a packet.
    PastInput(Packet),
    /// A worker has finished what it does.
    WorkerDone(u16),
    /// An answer is with the client.
    AtClient(Answer),
    /// A connection may send again.
    Resume(u32),
    /// A client sends a request again, if it still waits with this attempt.
    Resend { id: u32, serial: u32, attempt: u8 },
}

/// An answer on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) id: u32,
    pub(super) serial: u32,
    pub(super) tells: Tells,
    /// Free places of the queue.
    pub(super) credits: u32,
}

/// What an answer tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tells {
    /// The write has its place.
    Accepted,
    /// It is executed; the value, of a read.
    Done,
    /// The queue is full.
    Full,
    /// No buffer was ready.
    NotReady,
    /// The packet is in a buffer: a card's acknowledgement of what a worker will answer.
    Received,
}

/// All that is planned.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    at: u64,
    number: u64,
    event: Event,
}

impl Events {
    #[inline]
    pub(super) fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Planned {
            at,
            number: self.planned,
            event,
        });
    }

    #[inline]
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
