//! Whether the table of exclusive writers that the server ships, [`SharedWriters`], and the
//! paper's, [`ExclusiveWriters`], which the figures run, are the same table.
//!
//! That a call of several threads answers as some order of the calls does is loom's to show, beside
//! [`SharedWriters`]; here every order of a few calls is tried on both.

use std::collections::VecDeque;

use curtail_dispatch::{Claim, Partition, SharedWriters, Ticket, Worker};
use curtail_simulator::{ClaimError, ExclusiveWriters, ReleaseError};

const PARTITIONS: [Partition; 2] = [Partition(0), Partition(1)];
const WRITES_MAX: u16 = 2;
/// Calls in a row, and what each may be.
const LENGTH: u32 = 7;
const CALLS: u32 = 6;

struct Both {
    shared: SharedWriters<2>,
    exclusive: ExclusiveWriters,
    /// What was granted and not given back, by partition.
    tickets: [VecDeque<Ticket>; 2],
    /// The ticket that was given back last, by partition.
    spent: [Option<Ticket>; 2],
}

impl Both {
    fn new() -> Self {
        Self {
            shared: SharedWriters::new(WRITES_MAX),
            exclusive: ExclusiveWriters::new(2, u32::from(WRITES_MAX)),
            tickets: Default::default(),
            spent: Default::default(),
        }
    }

    fn claim(&mut self, partition: Partition, worker: Worker) {
        let joined = self.exclusive.join(partition);
        let owner = match joined {
            Ok(Some(owner)) => Some(owner),
            Ok(None) => {
                assert_eq!(self.exclusive.claim(partition, worker), Ok(()));
                Some(worker)
            }
            Err(error) => {
                assert_eq!(error, ClaimError::PartitionFull);
                None
            }
        };
        match self.shared.claim(partition, worker) {
            Claim::Granted(granted, ticket) => {
                assert_eq!(Some(granted), owner);
                self.tickets[partition.0 as usize].push_back(ticket);
            }
            Claim::Full(holder) => {
                assert_eq!(owner, None);
                assert_eq!(Some(holder), self.exclusive.owner(partition));
            }
        }
    }

    /// The oldest claim is given back; without one, what was given back before is once more.
    fn release(&mut self, partition: Partition) {
        let at = partition.0 as usize;
        if let Some(ticket) = self.tickets[at].pop_front() {
            let free = self.exclusive.release(partition);
            assert_eq!(self.shared.release(ticket).ok(), free.ok());
            self.spent[at] = Some(ticket);
        } else if let Some(ticket) = self.spent[at] {
            assert_eq!(self.shared.release(ticket), Err(ticket));
            let late = self.exclusive.release(partition);
            assert_eq!(late, Err(ReleaseError::NotOwned));
        }
    }

    fn call(&mut self, number: u32) {
        let partition = PARTITIONS[number as usize % 2];
        match number / 2 {
            0 | 1 => self.claim(partition, Worker((number / 2) as u16)),
            _ => self.release(partition),
        }
        for partition in PARTITIONS {
            let owner = self.exclusive.owner(partition);
            assert_eq!(self.shared.owner(partition), owner);
            let writes = self.exclusive.writes(partition);
            assert_eq!(u32::from(self.shared.writes(partition)), writes);
        }
    }
}

/// Goal: on every sequence of calls both tables give the same answers and are in the same state.
/// Method: all sequences of seven claims and releases, by two workers, of two partitions with room
/// for two writes each.
#[test]
fn both_tables_answer_alike_on_every_sequence() {
    for sequence in 0..CALLS.pow(LENGTH) {
        let mut both = Both::new();
        let mut rest = sequence;
        for _ in 0..LENGTH {
            both.call(rest % CALLS);
            rest /= CALLS;
        }
    }
}
