//! What happens in the system, and what answers tell.

use crate::{event_queue::EventQueue, juneberry::run::Packet};

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

/// All that is planned, in nanoseconds.
pub(super) type Events = EventQueue<Event>;
