//! The replies of executed requests, so that a repeated request is answered again and not executed
//! again (JB-46).
//!
//! One place for each slot of each session: a slot has one request outstanding, so only its newest
//! answer can be asked for. It is written before the entry's queue moves on, and read by whoever
//! receives the request again. Values are not kept: a read with a touch is carried out again, which
//! does no harm.
//!
//! The answers are memory of the process. After its end a request that is sent again gets the
//! status `Executed`: its result is no longer known.

use curtail_codec::native::{SLOTS, Status};
use curtail_ordered_queue::SessionName;

use crate::sync::{Mutex, lock};

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Done {
    pub(crate) status: Status,
    /// The item's version, 0 if there is none.
    pub(crate) version: u64,
    /// What arithmetic left.
    pub(crate) number: u64,
    /// The item's 32 bits, of a read.
    pub(crate) item_flags: u32,
    /// Length of the value, of a read.
    pub(crate) value_bytes: usize,
    /// At a node of a cluster: how many nodes in sync have it; 0 if that is not known.
    pub(crate) copies: u8,
}

/// The newest answer of every slot.
pub(crate) struct Answers {
    sessions: Box<[Mutex<Kept>]>,
}

/// The answers of one session.
#[derive(Clone)]
struct Kept {
    generation: u32,
    slots: Option<Box<Slots>>,
}

/// The newest answer of each slot, if its end is known, and the sequence number it answers.
type Slots = [Option<(u64, Option<Done>)>; SLOTS as usize];

impl Default for Done {
    fn default() -> Self {
        Self::of(Status::Done)
    }
}

impl Done {
    pub(crate) const fn of(status: Status) -> Self {
        Self {
            status,
            version: 0,
            number: 0,
            item_flags: 0,
            value_bytes: 0,
            copies: 0,
        }
    }

    /// Whether the server failed, and not only a condition of the request.
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(self.status, Status::OutOfMemory | Status::TooLarge)
    }
}

impl Answers {
    /// Room for all slots of so many sessions.
    pub(crate) fn new(sessions: usize) -> Self {
        let empty = || {
            Mutex::new(Kept {
                generation: 0,
                slots: None,
            })
        };
        Self {
            sessions: (0..sessions).map(|_| empty()).collect(),
        }
    }

    /// Bytes that the answers of one session take.
    pub(crate) const fn session_bytes() -> usize {
        size_of::<Mutex<Kept>>() + size_of::<Slots>()
    }

    /// Makes room for a session that is granted, so that keeping its answers allocates nothing.
    pub(crate) fn open(&self, name: SessionName) {
        let Some(kept) = self.sessions.get(name.index as usize) else {
            return;
        };
        let mut kept = lock(kept);
        if kept.generation != name.generation {
            kept.generation = name.generation;
            kept.slots = None;
        }
        kept.slots
            .get_or_insert_with(|| Box::new([None; SLOTS as usize]));
    }

    /// Keeps what the request in `slot` of a session ended with.
    pub(crate) fn keep(&self, name: SessionName, slot: u8, sequence: u64, done: Done) {
        self.put(name, slot, (sequence, Some(done)));
    }

    /// Nobody knows what the request in `slot` of a session ended with, nor whether it was
    /// executed.
    pub(crate) fn keep_unknown(&self, name: SessionName, slot: u8, sequence: u64) {
        self.put(name, slot, (sequence, None));
    }

    fn put(&self, name: SessionName, slot: u8, kept_for_slot: (u64, Option<Done>)) {
        let Some(kept) = self.sessions.get(name.index as usize) else {
            return;
        };
        let mut kept = lock(kept);
        if kept.generation != name.generation {
            return;
        }
        if let Some(place) = kept
            .slots
            .as_mut()
            .and_then(|slots| slots.get_mut(usize::from(slot)))
            // A request that its client gave up may be executed after a later one of its slot.
            .filter(|place| place.is_none_or(|(newest, _)| newest <= kept_for_slot.0))
        {
            *place = Some(kept_for_slot);
        }
    }

    /// What it ended with, if that is known.
    pub(crate) fn find(&self, name: SessionName, slot: u8, sequence: u64) -> Option<Done> {
        self.kept(name, slot, sequence).flatten()
    }

    /// Whether nobody knows what it ended with.
    pub(crate) fn is_unknown(&self, name: SessionName, slot: u8, sequence: u64) -> bool {
        self.kept(name, slot, sequence) == Some(None)
    }

    fn kept(&self, name: SessionName, slot: u8, sequence: u64) -> Option<Option<Done>> {
        let kept = lock(self.sessions.get(name.index as usize)?);
        let slots = kept.slots.as_ref()?;
        let (kept_sequence, done) = slots.get(usize::from(slot)).copied().flatten()?;
        (kept.generation == name.generation && kept_sequence == sequence).then_some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: u32, generation: u32) -> SessionName {
        SessionName {
            index,
            generation,
            token: 0,
        }
    }

    /// Goal: only the newest answer of a slot is found, and none of another holder's.
    #[test]
    fn answers_belong_to_a_session_slot_and_sequence() {
        let answers = Answers::new(2);
        let done = Done {
            number: 7,
            ..Done::of(Status::Done)
        };
        answers.keep(name(1, 1), 3, 5, done);
        assert_eq!(answers.find(name(1, 1), 3, 5), None, "never granted");
        answers.open(name(1, 1));
        answers.keep(name(1, 1), 3, 5, done);
        answers.open(name(1, 1));
        assert_eq!(answers.find(name(1, 1), 3, 5), Some(done));
        assert_eq!(answers.find(name(1, 1), 3, 6), None);
        assert_eq!(answers.find(name(1, 1), 4, 5), None);
        assert_eq!(answers.find(name(1, 2), 3, 5), None);
        assert_eq!(answers.find(name(9, 1), 3, 5), None);
        answers.keep(name(1, 1), 3, 6, Done::default());
        assert_eq!(answers.find(name(1, 1), 3, 5), None, "over");
        answers.keep_unknown(name(1, 1), 3, 8);
        assert_eq!(answers.find(name(1, 1), 3, 8), None);
        assert!(answers.is_unknown(name(1, 1), 3, 8));
        assert!(!answers.is_unknown(name(1, 1), 3, 6) && !answers.is_unknown(name(1, 1), 4, 8));
        answers.keep(name(1, 1), 3, 7, done);
        assert!(answers.is_unknown(name(1, 1), 3, 8), "7 is late");
        answers.open(name(1, 2));
        answers.keep(name(1, 1), 3, 7, done);
        assert_eq!(answers.find(name(1, 2), 3, 6), None, "another's");
        assert_eq!(answers.find(name(1, 2), 3, 7), None, "too late");
    }
}
