//! The exclusive-writer table: which worker writes a partition, as long as a write to it is
//! outstanding.
//!
//! d-CREW (Sutherland, Falsafi, Daglis, ASPLOS 2023, sections 4.1 and 5.1): a write to a partition
//! that nobody writes may go to any worker, which then owns the partition; later writes to it
//! follow, and with the answer to the last one it is free again. The paper's table is a memory of
//! the network card that is searched by content; this one is a small hash table with linear
//! probing, owned by one dispatching thread. The
//! server has [`curtail_dispatch::SharedWriters`], a word for each partition that several threads
//! share; a test holds the two to the same answers.
//!
//! Invariants: an entry exists exactly while its count is above 0; at most `entries_max` exist;
//! a full table or a full count is an error that the caller must turn into back-pressure, never an
//! eviction.

use curtail_dispatch::{Partition, Worker};

use crate::c4::counted_table::Counted;

/// Owners and outstanding writes of the partitions that are being written.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ExclusiveWriters {
    /// By partition; at least four places for an entry.
    owners: Counted<Worker>,
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

/// A release that has no claim: a bug of the caller, which must not bring the server down.
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
        assert!(entries_max <= 1 << 24);
        Self {
            owners: Counted::new((entries_max as usize * 4).next_power_of_two()),
            entries_max,
            writes_max,
        }
    }

    /// Who writes `partition` now.
    #[inline]
    pub fn owner(&self, partition: Partition) -> Option<Worker> {
        let place = self.owners.find(partition.0);
        (self.owners.count(place) > 0).then_some(self.owners.value(place))
    }

    /// One more write to a partition that has an owner; its owner. `Ok(None)` if nobody owns it.
    #[inline]
    pub fn join(&mut self, partition: Partition) -> Result<Option<Worker>, ClaimError> {
        let place = self.owners.find(partition.0);
        let writes = self.owners.count(place);
        if writes == 0 {
            return Ok(None);
        }
        if writes == self.writes_max {
            return Err(ClaimError::PartitionFull);
        }
        let owner = self.owners.value(place);
        self.owners.enter(place, partition.0, owner);
        Ok(Some(owner))
    }

    /// `worker` becomes the owner of a partition that nobody owns, with one write outstanding.
    /// Claiming an owned partition would break the single-writer invariant and panics.
    #[inline]
    pub fn claim(&mut self, partition: Partition, worker: Worker) -> Result<(), ClaimError> {
        if self.is_full() {
            return Err(ClaimError::TableFull);
        }
        let place = self.owners.find(partition.0);
        assert!(self.owners.count(place) == 0, "a partition with two owners");
        self.owners.enter(place, partition.0, worker);
        Ok(())
    }

    /// One write to `partition` has been answered; true if that was the last one and the
    /// partition is free.
    #[inline]
    pub fn release(&mut self, partition: Partition) -> Result<bool, ReleaseError> {
        let place = self.owners.find(partition.0);
        match self.owners.count(place) {
            0 => Err(ReleaseError::NotOwned),
            _ => Ok(self.owners.leave(place)),
        }
    }

    /// Partitions with an owner.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.owners.used() as u32
    }

    /// Whether a new partition could not be claimed now.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries() == self.entries_max
    }

    /// Outstanding writes of a partition.
    pub fn writes(&self, partition: Partition) -> u32 {
        self.owners.count(self.owners.find(partition.0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use curtail_workload::Random;

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

    /// Goal: probing loses nothing when entries leave in any order. Method: random claims, joins
    /// and releases in a crowded table, against a map.
    #[test]
    fn agrees_with_a_map() {
        let mut table = ExclusiveWriters::new(64, 5);
        let mut model: BTreeMap<u32, (u16, u32)> = BTreeMap::new();
        let mut random = Random::new(5);
        for _ in 0..50_000 {
            let number = random.below(90) as u32;
            let (partition, worker) = (Partition(number), random.below(8) as u16);
            if random.below(2) == 0 {
                let expected = match model.get_mut(&number) {
                    None => Err(ReleaseError::NotOwned),
                    Some((_, writes)) => {
                        *writes -= 1;
                        Ok(*writes == 0)
                    }
                };
                model.retain(|_, (_, writes)| *writes > 0);
                assert_eq!(table.release(partition), expected);
            } else if let Some((owner, writes)) = model.get_mut(&number) {
                let joined = table.join(partition);
                if *writes == 5 {
                    assert_eq!(joined, Err(ClaimError::PartitionFull));
                } else {
                    *writes += 1;
                    assert_eq!(joined, Ok(Some(Worker(*owner))));
                }
            } else if model.len() < 64 {
                table.claim(partition, Worker(worker)).unwrap();
                model.insert(number, (worker, 1));
            }
            assert_eq!(table.entries() as usize, model.len());
            let owner = model.get(&number).map(|(owner, _)| Worker(*owner));
            assert_eq!(table.owner(partition), owner);
        }
    }
}
