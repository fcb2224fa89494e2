//! The exclusive-writer table for several dispatching threads: safe atomics, one word for each
//! partition.
//!
//! [`SharedWriters`] has one word for each partition, so that no entry is ever searched for, moved
//! or evicted, and the table cannot overflow:
//!
//! ```text
//! | generation 40 | writes 12 | owner 12 |     writes = 0: nobody owns the partition
//! ```
//!
//! A claim compares and swaps the whole word; the generation moves with every new owner, so that a
//! release which comes too late is found (C-4 counts releases; a bug there would give a partition
//! two writers). A ticket keeps the word that its claim left: if it still stands there at the
//! release, which is nearly always, one more compare-and-swap against it is all.
//!
//! **Hand-over.** When a partition goes from one worker to another without a lock, the second must
//! see what the first wrote: the last [`SharedWriters::release`] is a Release and the next
//! [`SharedWriters::claim`] an Acquire of the same word.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use crate::{
    request::{Partition, Worker},
    sync::{AtomicU64, Ordering},
};

/// Who writes each of so many partitions, for several threads. How many there are is known to the
/// compiler, so that no claim has to look whether its partition exists.
#[derive(Debug)]
pub struct SharedWriters<const PARTITIONS: usize> {
    words: Box<[AtomicU64; PARTITIONS]>,
    writes_max: u64,
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Claim {
    /// The write goes to this worker: the claimant itself if nobody owned the partition, else its
    /// owner. The ticket is handed back with the answer.
    Granted(Worker, Ticket),
    /// The partition has as many outstanding writes as are counted.
    Full(Worker),
}

/// The right to write a partition, to be given back exactly once.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use]
pub struct Ticket {
    partition: Partition,
    /// What the claim made of the partition's word, which is never 0: it counts the claim.
    word: NonZeroU64,
}

impl Ticket {
    #[inline]
    fn of(partition: Partition, word: u64) -> Self {
        let word = NonZeroU64::new(word).unwrap_or(NonZeroU64::MIN);
        Self { partition, word }
    }
}

impl<const PARTITIONS: usize> SharedWriters<PARTITIONS> {
    /// Partitions that nobody owns, with at most `writes_max` (up to [`Self::WRITES_MAX`])
    /// outstanding writes to each. Takes 8 bytes for a partition.
    pub fn new(writes_max: u16) -> Self {
        let words: Box<[_]> = (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect();
        let Ok(words) = words.try_into() else {
            unreachable!("so many were collected");
        };
        Self::over(words, writes_max)
    }

    /// The same over words that are zero, wherever they come from: some memory costs nothing before
    /// it is used.
    pub fn over(words: Box<[AtomicU64; PARTITIONS]>, writes_max: u16) -> Self {
        const { assert!(PARTITIONS.is_power_of_two()) };
        assert!((1..=Self::WRITES_MAX).contains(&writes_max));
        Self {
            words,
            writes_max: u64::from(writes_max),
        }
    }

    /// Where the word of `partition` lies, for a worker that prefetches it before it claims.
    #[inline]
    pub fn address(&self, partition: Partition) -> *const impl Sized {
        core::ptr::from_ref(self.word(partition))
    }

    /// The bytes of their words.
    pub const BYTES: usize = 8 * PARTITIONS;

    /// The greatest count of outstanding writes: what 12 bits hold.
    pub const WRITES_MAX: u16 = (1 << WRITES_BITS) - 1;

    /// One more write to `partition`, for its owner, or for `worker`, who becomes the owner if
    /// there is none.
    #[inline]
    pub fn claim(&self, partition: Partition, worker: Worker) -> Claim {
        match self.claim_free(partition, worker) {
            Some(ticket) => Claim::Granted(worker, ticket),
            None => self.claim_once_more(partition, worker),
        }
    }

    /// The first write to a partition that nobody owns, for `worker`. `None` says nothing: others
    /// may be there, or have been a moment ago; [`SharedWriters::claim`] then tells.
    #[inline]
    pub fn claim_free(&self, partition: Partition, worker: Worker) -> Option<Ticket> {
        let word = self.word(partition);
        let seen = word.load(Ordering::Relaxed);
        if writes_of(seen) > 0 {
            return None;
        }
        // `None` in the last generation, from which the other way leads on.
        let next = last_of_generation(seen).checked_add(first_of_next(worker))?;
        // Acquire pairs with the Release in `release`: a new owner sees what the last wrote.
        // The strong form: to fail without a reason would cost more than it saves.
        word.compare_exchange(seen, next.get(), Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let word = next;
        Some(Ticket { partition, word })
    }

    /// The same where others are at the partition.
    #[cold]
    fn claim_once_more(&self, partition: Partition, worker: Worker) -> Claim {
        let word = self.word(partition);
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let (owner, writes) = (owner_of(seen), writes_of(seen));
            if writes == self.writes_max {
                return Claim::Full(owner);
            }
            let next = match writes {
                0 => first_claim(seen, worker),
                _ => seen + ONE_WRITE,
            };
            // Acquire pairs with the Release in `release`: a new owner sees what the last one
            // wrote.
            match word.compare_exchange_weak(seen, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    return Claim::Granted(owner_of(next), Ticket::of(partition, next));
                }
                Err(other) => seen = other,
            }
        }
    }

    /// A write has been answered. True if it was the last one and the partition is free; `Err` if
    /// the ticket is not of the present owner's time: a bug of the caller, which is survived.
    #[inline]
    pub fn release(&self, ticket: Ticket) -> Result<bool, Ticket> {
        let claimed = ticket.word.get();
        let next = claimed - ONE_WRITE;
        // Release pairs with the Acquire in `claim`; see `release_late`.
        let word = self.word(ticket.partition);
        match word.compare_exchange(claimed, next, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(writes_of(next) == 0),
            Err(seen) => self.release_late(ticket, seen),
        }
    }

    /// The same where others have been at the partition since the claim.
    #[cold]
    fn release_late(&self, ticket: Ticket, mut seen: u64) -> Result<bool, Ticket> {
        let word = self.word(ticket.partition);
        loop {
            if writes_of(seen) == 0 || generation_of(seen) != generation_of(ticket.word.get()) {
                return Err(ticket);
            }
            let next = seen - ONE_WRITE;
            // Release pairs with the Acquire in `claim`; all writes to the word between the two are
            // read-modify-writes, so that they stay in this one's release sequence.
            match word.compare_exchange_weak(seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(writes_of(next) == 0),
                Err(other) => seen = other,
            }
        }
    }

    /// Who owns `partition`, a moment ago.
    #[inline]
    pub fn owner(&self, partition: Partition) -> Option<Worker> {
        let seen = self.word(partition).load(Ordering::Relaxed);
        (writes_of(seen) > 0).then(|| owner_of(seen))
    }

    /// Outstanding writes of `partition`, a moment ago: with 2 or more it is worth looking for
    /// writes that can be compacted.
    #[inline]
    pub fn writes(&self, partition: Partition) -> u16 {
        writes_of(self.word(partition).load(Ordering::Relaxed)) as u16
    }

    /// The partition's word; numbers beyond the last partition begin again at the first.
    #[inline]
    fn word(&self, partition: Partition) -> &AtomicU64 {
        &self.words[partition.0 as usize % PARTITIONS]
    }
}

/// The word when `worker` becomes the owner of a partition that nobody owns: the next generation,
/// with one write.
#[inline]
const fn first_claim(seen: u64, worker: Worker) -> u64 {
    last_of_generation(seen)
        .get()
        .wrapping_add(first_of_next(worker))
}

/// The greatest word of the generation of `seen`.
#[inline]
const fn last_of_generation(seen: u64) -> NonZeroU64 {
    match NonZeroU64::new(seen | ((1 << GENERATION_SHIFT) - 1)) {
        Some(word) => word,
        None => NonZeroU64::MAX,
    }
}

/// From there to the first claim of the next one.
#[inline]
const fn first_of_next(worker: Worker) -> u64 {
    1 + ONE_WRITE + worker.0 as u64
}

#[inline]
const fn writes_of(word: u64) -> u64 {
    word >> OWNER_BITS & ((1 << WRITES_BITS) - 1)
}

#[inline]
const fn owner_of(word: u64) -> Worker {
    Worker((word & ((1 << OWNER_BITS) - 1)) as u16)
}

#[inline]
const fn generation_of(word: u64) -> u64 {
    word >> GENERATION_SHIFT
}

const WRITES_BITS: u32 = 12;
const OWNER_BITS: u32 = 12;
/// Below the count is the owner: who claims adds it without a shift.
const ONE_WRITE: u64 = 1 << OWNER_BITS;
const GENERATION_SHIFT: u32 = WRITES_BITS + OWNER_BITS;

const _: () = assert!(crate::request::WORKERS_MAX <= 1 << OWNER_BITS);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn granted(claim: Claim) -> (Worker, Ticket) {
        match claim {
            Claim::Granted(worker, ticket) => (worker, ticket),
            Claim::Full(_) => panic!("full"),
        }
    }

    #[test]
    fn a_partition_is_owned_from_its_first_claim_to_its_last_release() {
        let writers = SharedWriters::<4>::new(2);
        let (owner, first) = granted(writers.claim(Partition(3), Worker(7)));
        assert_eq!(owner, Worker(7));
        let (owner, second) = granted(writers.claim(Partition(3), Worker(9)));
        assert_eq!((owner, writers.writes(Partition(3))), (Worker(7), 2));
        let third = writers.claim(Partition(3), Worker(9));
        assert_eq!(third, Claim::Full(Worker(7)));
        assert_eq!(writers.release(first), Ok(false));
        assert_eq!(writers.owner(Partition(3)), Some(Worker(7)));
        assert_eq!(writers.release(second), Ok(true));
        assert_eq!(writers.owner(Partition(3)), None);
        // A late release does not touch the next owner's claim.
        let (owner, _ticket) = granted(writers.claim(Partition(3), Worker(9)));
        assert_eq!(owner, Worker(9));
        assert_eq!(writers.release(second), Err(second));
        assert_eq!(writers.writes(Partition(3)), 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
