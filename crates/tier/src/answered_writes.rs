//! Writes that clients may send again (SW-14): each runs once.
//!
//! A client repeats a write that was not answered for [`WRITE_RETRY_NS`] at most. A back end
//! remembers what it answered for twice as long. One that has not been up for so long does not know
//! what it did before, and answers a repeated write that it does not know with `Busy`: the client
//! then knows that this repetition changed nothing, and not what the first one did.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use curtail_codec::tiered::WRITE_RETRY_NS;
use curtail_types::Instant;

use crate::back_end_requests::RequestAnswer;

/// Which write it is: the client's number and its request's.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct WriteId {
    pub(crate) sender: u32,
    pub(crate) sequence: u64,
}

/// What is known of a write that comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KnownWrite {
    /// It has not come before: it runs.
    New,
    /// It is under way: its answer will come.
    Pending,
    /// It was answered like this.
    Answered(RequestAnswer),
    /// It may have come before this back end started, or too many writes are remembered.
    Unknown,
}

/// The writes of the last seconds.
#[derive(Debug)]
pub(crate) struct AnsweredWrites {
    writes: HashMap<WriteId, Option<RequestAnswer>>,
    order: VecDeque<(WriteId, Instant)>,
    /// From then on every write that a client may repeat is known.
    knows_all_from: Instant,
}

impl AnsweredWrites {
    /// Writes that are remembered at most; beyond, writes are refused.
    pub(crate) const WRITES_MAX: usize = 1 << 16;

    pub(crate) fn new(now: Instant) -> Self {
        Self {
            writes: HashMap::new(),
            order: VecDeque::new(),
            knows_all_from: now.later(WRITE_RETRY_NS),
        }
    }

    /// Takes in a write; if it is new, [`answer`](Self::answer) ends it.
    pub(crate) fn admit(&mut self, id: WriteId, is_repeated: bool, now: Instant) -> KnownWrite {
        self.forget(now);
        let is_full = self.writes.len() >= Self::WRITES_MAX;
        match self.writes.entry(id) {
            Entry::Occupied(known) => match *known.get() {
                Some(answer) => KnownWrite::Answered(answer),
                None => KnownWrite::Pending,
            },
            Entry::Vacant(_) if is_full || (is_repeated && now < self.knows_all_from) => {
                KnownWrite::Unknown
            }
            Entry::Vacant(place) => {
                place.insert(None);
                self.order.push_back((id, now));
                KnownWrite::New
            }
        }
    }

    /// The write was answered.
    pub(crate) fn answer(&mut self, id: WriteId, answer: RequestAnswer) {
        if let Some(known) = self.writes.get_mut(&id) {
            *known = Some(answer);
        }
    }

    /// The write was refused: it may come again, and run then.
    pub(crate) fn refuse(&mut self, id: WriteId) {
        self.writes.remove(&id);
    }

    fn forget(&mut self, now: Instant) {
        while let Some(&(id, since)) = self.order.front()
            && now.ns.saturating_sub(since.ns) > 2 * WRITE_RETRY_NS
        {
            // If it is still under way, its client has given up.
            self.order.pop_front();
            self.writes.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: WriteId = WriteId {
        sender: 300,
        sequence: 7,
    };

    fn at(seconds: u64) -> Instant {
        Instant {
            ns: seconds * 1_000_000_000,
        }
    }

    #[test]
    fn a_repeated_write_runs_once() {
        let mut writes = AnsweredWrites::new(at(0));
        assert_eq!(writes.admit(ID, false, at(10)), KnownWrite::New);
        assert_eq!(writes.admit(ID, true, at(10)), KnownWrite::Pending);
        let answer = RequestAnswer {
            place: 5,
            ..RequestAnswer::default()
        };
        writes.answer(ID, answer);
        let answered = KnownWrite::Answered(answer);
        assert_eq!(writes.admit(ID, true, at(12)), answered);
        assert_eq!(
            writes.admit(ID, false, at(12)),
            answered,
            "the network doubled it"
        );
    }

    #[test]
    fn a_refused_write_may_come_again() {
        let mut writes = AnsweredWrites::new(at(0));
        assert_eq!(writes.admit(ID, false, at(10)), KnownWrite::New);
        writes.refuse(ID);
        assert_eq!(writes.admit(ID, true, at(10)), KnownWrite::New);
    }

    #[test]
    fn who_has_just_started_does_not_know_what_was_repeated() {
        let mut writes = AnsweredWrites::new(at(10));
        assert_eq!(writes.admit(ID, true, at(11)), KnownWrite::Unknown);
        assert_eq!(writes.admit(ID, true, at(12)), KnownWrite::New);
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut writes = AnsweredWrites::new(at(0));
        let id = |sequence| WriteId { sequence, ..ID };
        let room = AnsweredWrites::WRITES_MAX as u64;
        assert!((0..room).all(|n| writes.admit(id(n), false, at(5)) == KnownWrite::New));
        assert_eq!(writes.admit(id(room), false, at(5)), KnownWrite::Unknown);
        assert_eq!(writes.admit(id(room), false, at(10)), KnownWrite::New);
        assert_eq!(writes.writes.len(), 1);
    }
}
