//! A turn: the lease holder executes the waiting entries in order, up to the first hole; of several
//! unconditional sets of one key only the last is applied.
//!
//! The run of sets is found and closed by the [`Compactor`] that C-4 needs (ASPLOS 2023, section
//! 4.2), with a window that never outlives the turn. Its rules hold: a write is answered after the
//! value that covers it was applied, and any other operation on the key closes the window first.
//! Head moves once, at the end, so that a read that waits for a covered write waits for the
//! covering one as well.

use curtail_dispatch::{
    Answers, Closing, CompactionConfig, Compactor, Deadline, Decision, Effect, RequestId,
};
use curtail_types::Instant;

use crate::{
    entry::{EntryKind, QueueEntry},
    lease::{Peek, QueueLease},
    sessions::Sessions,
};

/// Entries that a turn executes at most.
pub const TURN_MAX: usize = 64;

/// The memory of an executor's turns.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Turn {
    compactor: Compactor,
    /// The first entry of this turn with the same key, of each entry.
    first: [u8; TURN_MAX],
    /// Whether the next entry with the same key is a set, of each entry.
    is_covered: [bool; TURN_MAX],
    /// The newest entry of a key, by the key's first one.
    newest: [u8; TURN_MAX],
}

/// What the executor has to do, in this order.
#[derive(Clone, Copy, Debug)]
pub enum TurnStep<'a> {
    /// Execute this entry on the store, unless the key's item has its position or a later one.
    Apply(QueueEntry<'a>),
    /// Answer this entry's client; for those that were not acknowledged when they were admitted.
    Answer(QueueEntry<'a>),
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Drained {
    /// Entries that are executed now.
    pub entries: u64,
    /// Bytes of those among them that were acknowledged when they were admitted: the queue's memory
    /// credits lack them until they are granted again.
    pub accepted_bytes: u64,
    /// Why it ended.
    pub stop: TurnEnd,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TurnEnd {
    /// Nothing waits.
    Empty,
    /// Behind what was executed nothing is published; whether a place was given out there was not
    /// looked at.
    Unpublished,
    /// The next entry is not published yet.
    Hole,
    /// As many as were asked for.
    Bound,
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

impl Turn {
    /// All memory is allocated here.
    pub fn new() -> Self {
        let config = CompactionConfig {
            closing: Closing::NoMatch,
            deadline: Deadline::AfterOpening { ns: u64::MAX / 4 },
            answers: Answers::AfterApply,
            windows_max: 8,
            writes_max: TURN_MAX,
        };
        Self {
            compactor: Compactor::new(config),
            first: [0; TURN_MAX],
            is_covered: [false; TURN_MAX],
            newest: [0; TURN_MAX],
        }
    }

    /// Executes up to `entries_max` entries: `carry_out` does each step before the next is given.
    /// With `sessions`, claims are settled before head moves, as is needed where who admits can be
    /// stopped half-way; and before the entry is executed, so that its executor may reopen it.
    pub fn run<'a>(
        &mut self,
        lease: &mut QueueLease<'a>,
        entries_max: usize,
        sessions: Option<Sessions<'_>>,
        mut carry_out: impl FnMut(TurnStep<'a>),
    ) -> Drained {
        let (count, stop) = self.look(lease, entries_max.min(TURN_MAX));
        let mut accepted_bytes = 0;
        for index in 0..count {
            if let Some(entry) = lease.entry(index as u64) {
                accepted_bytes += entry.accepted_bytes();
                if let Some(sessions) = sessions {
                    sessions.settle(&entry);
                }
                self.execute(lease, index, entry, &mut carry_out);
            }
        }
        self.compactor
            .close_all(|effect| perform(lease, effect, &mut carry_out));
        if count > 0 {
            lease.advance(count as u64);
        }
        Drained {
            entries: count as u64,
            accepted_bytes,
            stop,
        }
    }

    /// Counts what can be executed, and finds which sets are covered by later ones.
    fn look(&mut self, lease: &QueueLease<'_>, entries_max: usize) -> (usize, TurnEnd) {
        for index in 0..entries_max {
            let Some(entry) = lease.entry(index as u64) else {
                return (index, stop_at(lease, index));
            };
            self.is_covered[index] = false;
            let first = self.first_of(lease, index, &entry);
            self.first[index] = first as u8;
            if first != index {
                let before = usize::from(self.newest[first]);
                self.is_covered[before] = entry.kind() == EntryKind::Set;
            }
            self.newest[first] = index as u8;
        }
        (entries_max, TurnEnd::Bound)
    }

    fn first_of(&self, lease: &QueueLease<'_>, index: usize, entry: &QueueEntry<'_>) -> usize {
        let same = |other: &usize| {
            let is_first = usize::from(self.first[*other]) == *other;
            let Some(other) = lease.entry(*other as u64) else {
                return false;
            };
            is_first && other.kind() != EntryKind::Noop && other.same_key(entry)
        };
        match entry.kind() {
            EntryKind::Noop => index,
            _ => (0..index).find(same).unwrap_or(index),
        }
    }

    fn execute<'a>(
        &mut self,
        lease: &QueueLease<'a>,
        index: usize,
        entry: QueueEntry<'a>,
        carry_out: &mut impl FnMut(TurnStep<'a>),
    ) {
        let key = u64::from(self.first[index]);
        let request = RequestId(index as u32);
        let now = Instant::default();
        let is_covered = self.is_covered[index];
        let decision = match entry.kind() {
            EntryKind::Noop => return,
            EntryKind::Set => self.compactor.write(now, key, request, now, || is_covered),
            EntryKind::Write => {
                self.compactor
                    .close_key(key, |effect| perform(lease, effect, carry_out));
                Decision::Apply
            }
        };
        if decision == Decision::Apply {
            perform(lease, Effect::Apply(request), carry_out);
            perform(lease, Effect::Answer(request), carry_out);
            return;
        }
        if !is_covered {
            self.compactor
                .close_key(key, |effect| perform(lease, effect, carry_out));
        }
    }
}

/// Why there is no entry at `index`. Tail is read only when nothing at all was found: to
/// read it costs the next producer a fetch of its line.
fn stop_at(lease: &QueueLease<'_>, index: usize) -> TurnEnd {
    if index > 0 {
        return TurnEnd::Unpublished;
    }
    match lease.peek(0) {
        Peek::Hole => TurnEnd::Hole,
        _ => TurnEnd::Empty,
    }
}

fn perform<'a>(lease: &QueueLease<'a>, effect: Effect, carry_out: &mut impl FnMut(TurnStep<'a>)) {
    let (Effect::Apply(RequestId(index)) | Effect::Answer(RequestId(index))) = effect;
    let Some(entry) = lease.entry(u64::from(index)) else {
        return;
    };
    match effect {
        Effect::Apply(_) => carry_out(TurnStep::Apply(entry)),
        Effect::Answer(_) if entry.is_accepted() => {}
        Effect::Answer(_) => carry_out(TurnStep::Answer(entry)),
    }
}
