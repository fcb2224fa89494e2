//! The exclusive-writer table: which worker writes a partition, as long as a write to it is
//! outstanding.
//!
//! d-CREW (Sutherland, Falsafi, Daglis, ASPLOS 2023, sections 4.1 and 5.1): a write to a partition
//! that nobody writes may go to any worker, which then owns the partition; later writes to it
//! follow, and with the answer to the last one it is free again. The paper's table is a memory of
//! the network card that is searched by content. The server has
//! [`curtail_dispatch::SharedWriters`], a word for each partition that several threads share; a
//! test holds the two to the same answers.
//!
//! Invariants: an entry exists exactly while its count is above 0; at most `entries_max` exist;
//! a full table or a full count is an error that the caller must turn into back-pressure, never an
//! eviction.

use std::collections::HashMap;

use curtail_dispatch::{Partition, Worker};

/// Owners and outstanding writes of the partitions that are being written.
#[derive(Clone, Debug)]
pub struct ExclusiveWriters {
    /// Who owns a partition, and how many writes are outstanding.
    owners: HashMap<u32, (Worker, u32)>,
    entries_max: u32,
    writes_max: u32,
}

/// Why a write cannot be admitted; the caller throttles (the paper's section 5.1: a full table
/// means that far more arrives than is processed).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ClaimError {
    /// As many partitions are being written as the table holds.
    TableFull,
    /// As many writes to this partition are outstanding as are counted.
    PartitionFull,
}

/// A release that has no claim: a bug of the caller.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Nobody writes the partition.
    NotOwned,
}

impl ExclusiveWriters {
    /// An empty table for `entries_max` partitions at once with `writes_max` writes each. With a
    /// queue bound of d for each of W workers no more than d x W entries can exist: a worker that
    /// is given new partitions has fewer than d requests outstanding.
    pub fn new(entries_max: u32, writes_max: u32) -> Self {
        assert!(entries_max > 0 && writes_max > 0);
        Self {
            owners: HashMap::new(),
            entries_max,
            writes_max,
        }
    }

    /// Who writes `partition` now.
    pub fn owner(&self, partition: Partition) -> Option<Worker> {
        self.owners.get(&partition.0).map(|(owner, _)| *owner)
    }

    /// One more write to a partition that has an owner; its owner. `Ok(None)` if nobody owns it.
    #[inline]
    pub fn join(&mut self, partition: Partition) -> Result<Option<Worker>, ClaimError> {
        match self.owners.get_mut(&partition.0) {
            None => Ok(None),
            Some((_, writes)) if *writes == self.writes_max => Err(ClaimError::PartitionFull),
            Some((owner, writes)) => {
                *writes += 1;
                Ok(Some(*owner))
            }
        }
    }

    /// `worker` becomes the owner of a partition that nobody owns, with one write outstanding.
    /// Claiming an owned partition would break the single-writer invariant and panics.
    #[inline]
    pub fn claim(&mut self, partition: Partition, worker: Worker) -> Result<(), ClaimError> {
        if self.entries() == self.entries_max {
            return Err(ClaimError::TableFull);
        }
        let before = self.owners.insert(partition.0, (worker, 1));
        assert!(before.is_none(), "a partition with two owners");
        Ok(())
    }

    /// One write to `partition` has been answered; true if that was the last one and the
    /// partition is free.
    #[inline]
    pub fn release(&mut self, partition: Partition) -> Result<bool, ReleaseError> {
        let owned = self.owners.get_mut(&partition.0);
        let (_, writes) = owned.ok_or(ReleaseError::NotOwned)?;
        *writes -= 1;
        let is_free = *writes == 0;
        if is_free {
            self.owners.remove(&partition.0);
        }
        Ok(is_free)
    }

    /// Partitions with an owner.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Outstanding writes of a partition.
    pub fn writes(&self, partition: Partition) -> u32 {
        self.owners
            .get(&partition.0)
            .map_or(0, |(_, writes)| *writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flow of the paper's Fig. 5: two writes to one partition, two answers.
    #[test]
    fn a_partition_is_owned_from_its_first_write_to_its_last_answer() {
        let mut table = ExclusiveWriters::new(128, 63);
        let partition = Partition(7);
        assert_eq!(table.join(partition), Ok(None));
        assert_eq!(table.claim(partition, Worker(1)), Ok(()));
        assert_eq!(table.join(partition), Ok(Some(Worker(1))));
        assert_eq!(table.release(partition), Ok(false));
        assert_eq!(table.owner(partition), Some(Worker(1)));
        assert_eq!(table.release(partition), Ok(true));
        assert_eq!(table.owner(partition), None);
        assert_eq!(table.release(partition), Err(ReleaseError::NotOwned));
    }

    #[test]
    fn full_is_an_error_and_not_an_eviction() {
        let mut table = ExclusiveWriters::new(2, 2);
        for partition in [1, 2] {
            table.claim(Partition(partition), Worker(0)).unwrap();
        }
        assert_eq!(
            table.claim(Partition(3), Worker(0)),
            Err(ClaimError::TableFull)
        );
        table.join(Partition(1)).unwrap();
        assert_eq!(table.join(Partition(1)), Err(ClaimError::PartitionFull));
        assert_eq!((table.writes(Partition(1)), table.entries()), (2, 2));
    }

    #[test]
    #[should_panic(expected = "two owners")]
    fn a_second_owner_is_a_bug() {
        let mut table = ExclusiveWriters::new(2, 2);
        table.claim(Partition(1), Worker(0)).unwrap();
        let _ = table.claim(Partition(1), Worker(1));
    }
}
