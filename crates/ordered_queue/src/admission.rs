//! Admission: what a thread or the XDP program does with a write when it arrives.
//!
//! The steps are JB-35's, each a function of its own, so that a test can stop or reorder them:
//!
//! ```text
//! check     is the queue open, is the server alive
//! claim     is it new in its session                    no: repeat, drop, refuse
//! reserve   a position                                  full: reopen the claim, refuse
//! fill      the slot's words                            failed: the entry is a no-op
//! publish   the commit word
//! raise     the bucket's stamp
//! commit    the session's word
//! then, and not before, the caller acknowledges
//! ```

use crate::{
    bucket_stamps::Stamps,
    entry::{ACCEPTED_BIT, EntryKind, KIND_SHIFT, SEQUENCE_MASK},
    layout,
    queue::{OrderedQueue, QueueState},
    sessions::{Claim, ClaimTicket, Peer, SessionName, Sessions},
    sync::{Ordering, fence},
};

/// A write that has arrived, decoded, of a class that goes through the queue.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// In whose name.
    pub session: SessionName,
    /// From where.
    pub peer: Peer,
    /// The session's slot.
    pub slot: u8,
    /// The sequence number in that slot.
    pub sequence: u64,
    /// Whether it may be acknowledged before it is executed: asked for, and of a class that may.
    pub nilext: bool,
    /// What it does to its key.
    pub kind: EntryKind,
    /// The keyed hash of its key.
    pub key_hash: u64,
    /// When it arrived, in nanoseconds of wall time.
    pub arrived_ns: u64,
    /// The whole datagram.
    pub payload: &'a [u8],
    /// Where in it the key begins.
    pub key_at: u8,
    /// Length of the key in bytes.
    pub key_bytes: u8,
    /// The opcode and the low flags, for the executor.
    pub opcode_and_flags: (u8, u8),
    /// The receive queue that it came by.
    pub rx_queue: u8,
}

/// Everything that a write meets on its way in.
#[derive(Clone, Copy, Debug)]
pub struct Ingress<'a> {
    /// The queues, a power of two of them.
    pub queues: &'a [OrderedQueue<'a>],
    /// The stamps, at least as many as queues.
    pub stamps: Stamps<'a>,
    /// The sessions.
    pub sessions: Sessions<'a>,
    /// How old the server's heartbeat may be, in nanoseconds (JB-48 a).
    pub heartbeat_ns_max: u64,
}

/// What is to be done with a write.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verdict {
    /// Acknowledge it: it has this position.
    Accepted(u64),
    /// It has this position, and its executor answers.
    Queued(u64),
    /// Acknowledge it again: it has this position already.
    Repeated(u64),
    /// It has this position already and is not acknowledged from here: the executor's to answer,
    /// or to say that it was executed. `None`: it was executed past the queues.
    Replay(Option<u64>),
    /// Say nothing: it is under way, or over.
    Dropped,
    /// Say nothing: no server is there to execute it.
    Absent,
    /// Say that it is to be sent again: no slot is free.
    Full,
    /// Say that it is to be sent again: the queue is closed.
    NotReady,
    /// An error: the session is not the sender's.
    NoSession,
    /// An error: longer than a slot. Nothing is executed; the sequence number may be used again.
    TooLarge,
}

impl<'a> Ingress<'a> {
    /// Admits a write, or says why not. `now_ns` is the clock of the heartbeat.
    #[inline]
    pub fn admit(&self, arrival: &Arrival<'_>, now_ns: u64) -> Verdict {
        let queue = self.queue(arrival.key_hash);
        if let Some(refusal) = self.check(queue, now_ns) {
            return refusal;
        }
        let Arrival {
            session,
            peer,
            slot,
            sequence,
            ..
        } = *arrival;
        let ticket = match self.sessions.claim(session, peer, slot, sequence) {
            Claim::Granted(ticket) => ticket,
            Claim::Repeated {
                pos: Some(pos),
                accepted: true,
            } if arrival.nilext => return Verdict::Repeated(pos),
            Claim::Repeated { pos, .. } => return Verdict::Replay(pos),
            Claim::Stale => return Verdict::Dropped,
            Claim::Unknown => return Verdict::NoSession,
        };
        let Some(reservation) = queue.reserve(arrival.payload.len(), arrival.nilext) else {
            self.sessions.reopen(ticket);
            return Verdict::Full;
        };
        let is_whole = queue.fill(&reservation, arrival);
        queue.publish(&reservation);
        if !is_whole {
            queue.give_back(&reservation, arrival.payload.len());
            self.sessions.reopen(ticket);
            return Verdict::TooLarge;
        }
        self.stamps.raise(arrival.key_hash, reservation.pos);
        self.sessions
            .commit(ticket, reservation.pos, reservation.early);
        match reservation.early {
            true => Verdict::Accepted(reservation.pos),
            false => Verdict::Queued(reservation.pos),
        }
    }

    /// Admits a write whose claim is `ticket`, if it can be acknowledged at once and `may` says so
    /// when its place is given out; returns its position. If not, the claim stays as it is.
    ///
    /// Whoever ends this has `may` say no and takes [`OrderedQueue::tail_behind_a_gate`] then: what
    /// has a place below that tail may be accepted, and nothing above it is.
    pub fn accept(
        &self,
        arrival: &Arrival<'_>,
        ticket: ClaimTicket,
        now_ns: u64,
        may: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let queue = self.queue(arrival.key_hash);
        let bytes = arrival.payload.len();
        let fits = bytes <= layout::PAYLOAD_BYTES_MAX && arrival.nilext;
        if !fits || self.check(queue, now_ns).is_some() || !queue.is_early() {
            return None;
        }
        let reservation = queue.reserve(bytes, true)?;
        // Pairs with the fence in `tail_behind_a_gate`: either `may` sees that it was ended, or the
        // tail that is taken then is above this place.
        fence(Ordering::SeqCst);
        if !reservation.early || !may() {
            queue.give_back(&reservation, bytes);
            queue.fill_hole(reservation.pos);
            return None;
        }
        queue.fill(&reservation, arrival);
        queue.publish(&reservation);
        self.stamps.raise(arrival.key_hash, reservation.pos);
        self.sessions.commit(ticket, reservation.pos, true);
        Some(reservation.pos)
    }

    /// The queue of a hash: its top bits, so that stamps and queues agree.
    #[inline]
    pub fn queue(&self, key_hash: u64) -> &'a OrderedQueue<'a> {
        &self.queues[self.queue_number(key_hash)]
    }

    /// The number of the queue of a hash.
    #[inline]
    pub fn queue_number(&self, key_hash: u64) -> usize {
        assert!(self.queues.len().is_power_of_two());
        let bits = self.queues.len().trailing_zeros();
        key_hash.checked_shr(64 - bits).unwrap_or(0) as usize
    }

    /// Step 1, as far as it is the queue's.
    #[inline]
    pub(crate) fn check(&self, queue: &OrderedQueue<'_>, now_ns: u64) -> Option<Verdict> {
        if now_ns.saturating_sub(queue.heartbeat_ns()) > self.heartbeat_ns_max {
            return Some(Verdict::Absent);
        }
        (queue.state() == QueueState::Closed).then_some(Verdict::NotReady)
    }
}

#[cfg(test)]
impl Ingress<'_> {
    /// The first of the steps 2 to 7 of an admission, and then nothing.
    pub(crate) fn stop_after(&self, steps: usize, arrival: &Arrival<'_>) {
        let queue = self.queue(arrival.key_hash);
        let Arrival {
            session,
            peer,
            slot,
            sequence,
            ..
        } = *arrival;
        let claim = self.sessions.claim(session, peer, slot, sequence);
        let Claim::Granted(ticket) = claim else {
            panic!("{claim:?}");
        };
        if steps < 2 {
            return;
        }
        let Some(reservation) = queue.reserve(arrival.payload.len(), arrival.nilext) else {
            panic!("there is room");
        };
        if steps >= 3 {
            assert!(queue.fill(&reservation, arrival));
        }
        if steps >= 4 {
            queue.publish(&reservation);
        }
        if steps >= 5 {
            self.stamps.raise(arrival.key_hash, reservation.pos);
        }
        if steps >= 6 {
            self.sessions
                .commit(ticket, reservation.pos, reservation.early);
        }
    }
}

impl Arrival<'_> {
    #[inline]
    pub(crate) fn meta(&self, accepted: bool) -> u64 {
        let (opcode, flags) = self.opcode_and_flags;
        self.payload.len() as u64
            | u64::from(self.key_at) << 16
            | u64::from(self.key_bytes) << 24
            | u64::from(opcode) << 32
            | u64::from(flags) << 40
            | (self.kind as u64) << KIND_SHIFT
            | if accepted { ACCEPTED_BIT } else { 0 }
            | u64::from(self.rx_queue) << 56
    }

    #[inline]
    pub(crate) fn session_word(&self) -> u64 {
        u64::from(self.session.index) | u64::from(self.slot) << 32 | u64::from(self.peer.port) << 48
    }

    #[inline]
    pub(crate) fn sequence_word(&self) -> u64 {
        self.sequence & SEQUENCE_MASK | u64::from(self.session.generation) << 48
    }
}
