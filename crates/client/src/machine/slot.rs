//! A slot of the session: one outstanding request and the time of its next transmission.
//!
//! ```text
//!   Free --take--> Outstanding --answer, refusal, patience--> Free
//!                       |  ^
//!            session lost  session granted            (reads alone: they have no effect)
//!                       v  |
//!                     Parked
//! ```
//!
//! A sequence number is given out once and never again, whatever became of it: a delayed copy of an
//! abandoned request must find a higher one in its place, or its own.

use curtail_codec::native::{NackReason, SEQUENCE_MAX};

use super::Ask;

/// What a slot does.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) enum State {
    /// Nothing.
    #[default]
    Free,
    /// Waits for another session; only what has no effect may.
    Parked,
    /// Is sent, and perhaps sent again, until there is an answer.
    Outstanding,
}

/// One slot. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Slot {
    pub(super) state: State,
    /// The last sequence number that was given out.
    pub(super) sequence: u64,
    /// The request's, in the driver's words; `None` for the machine's own.
    pub(super) ticket: Option<u64>,
    pub(super) key_hash: u64,
    pub(super) is_queued: bool,
    pub(super) is_marked: bool,
    /// Has no effect, so that it may be asked again in another session.
    pub(super) is_read: bool,
    pub(super) by_stream: bool,
    /// The window that it is counted against.
    pub(super) window: Option<u16>,
    /// Stamp and time of the first and of the last transmission.
    pub(super) first: (u32, u64),
    pub(super) last: (u32, u64),
    /// When it is sent again.
    pub(super) resend_ns: u64,
    /// When it is given up.
    pub(super) give_up_ns: u64,
    /// Waits that ended without an answer.
    pub(super) silences: u8,
    /// Times that the server said "not now".
    pub(super) refusals: u8,
    /// Transmissions that met an error that damage may have caused, and the last of them.
    pub(super) errors: u8,
    pub(super) error_stamp: Option<u32>,
    /// The last answer was this, and it has not been sent again since.
    pub(super) refusal: Option<NackReason>,
    /// Whether the last answer ever was a refusal, for the error that ends it.
    pub(super) last_word: Option<NackReason>,
}

impl Slot {
    /// Takes a new request; the window is the caller's.
    pub(super) fn take(&mut self, ask: &Ask, give_up_ns: u64) {
        assert!(self.state == State::Free, "a slot has one request");
        assert!(
            self.sequence < SEQUENCE_MAX,
            "a slot without numbers is not given out"
        );
        *self = Self {
            state: State::Outstanding,
            sequence: self.sequence + 1,
            ticket: ask.ticket,
            key_hash: ask.key_hash,
            is_queued: ask.is_queued,
            is_marked: ask.is_marked,
            is_read: ask.is_read,
            give_up_ns,
            ..Self::default()
        };
    }

    /// It is sent, for the first time.
    pub(super) fn begin(&mut self, stamp: u32, now_ns: u64, wait_ns: u64) {
        self.first = (stamp, now_ns);
        self.again(stamp, now_ns, wait_ns);
    }

    /// It is sent.
    pub(super) fn again(&mut self, stamp: u32, now_ns: u64, wait_ns: u64) {
        self.last = (stamp, now_ns);
        self.refusal = None;
        self.resend_ns = match self.by_stream {
            true => u64::MAX,
            false => now_ns.saturating_add(wait_ns),
        };
    }

    /// How long the answer with this stamp took, if it is known to which transmission it is.
    pub(super) fn round_trip_ns(&self, stamp: u32, now_ns: u64) -> Option<u64> {
        [self.last, self.first]
            .iter()
            .find(|(sent, _)| *sent == stamp)
            .map(|(_, at_ns)| now_ns.saturating_sub(*at_ns))
    }

    /// When something is to be done about it.
    pub(super) fn due_ns(&self) -> u64 {
        match self.state {
            State::Free => u64::MAX,
            State::Parked => self.give_up_ns,
            State::Outstanding => self.resend_ns.min(self.give_up_ns),
        }
    }
}
