//! The worker that runs a request, decided by the worker that received it: C-4's policies without a
//! central queue.
//!
//! On a connection-bound transport nobody chooses where a request arrives, so reads are balanced by
//! where connections are, and a policy says only whether a request may run where it arrived
//! (Sutherland, Falsafi, Daglis, ASPLOS 2023, section 3, without JBSQ).
//!
//! ```text
//!            read              write
//! EREW       owner             owner
//! CREW       here              owner
//! d-CREW     here              the partition's holder; none: here, which then holds it
//! CRCW       here              here
//! ```

use crate::request::{Access, Partition, Worker};

/// Who may read and who may write a partition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Policy {
    /// Exclusive read, exclusive write: everything of a partition goes to its static owner.
    Erew,
    /// Concurrent read, exclusive write: writes go to the static owner.
    Crew,
    /// Concurrent read, concurrent write: anything goes anywhere.
    Crcw,
    /// Dynamic CREW, the paper's own: an owner only while writes are outstanding.
    DynamicCrew,
    /// As CRCW, for a workload without writes: the upper bound that others are compared with.
    #[cfg(feature = "baselines")]
    Ideal,
}

/// Where a request runs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Placement {
    /// Where it arrived.
    Here,
    /// At the partition's static owner.
    Owner(Worker),
    /// At the worker that holds the partition in [`crate::SharedWriters`]; the claim tells.
    Claim,
}

impl Policy {
    /// Where a request to `partition` runs on a node of `workers` workers.
    #[inline]
    pub const fn placement(self, partition: Partition, access: Access, workers: u16) -> Placement {
        match (self, access) {
            (Self::Erew, _) | (Self::Crew, Access::Write) => {
                Placement::Owner(static_owner(partition, workers))
            }
            (Self::DynamicCrew, Access::Write) => Placement::Claim,
            (Self::Crew | Self::DynamicCrew, Access::Read) | (Self::Crcw, _) => Placement::Here,
            #[cfg(feature = "baselines")]
            (Self::Ideal, _) => Placement::Here,
        }
    }
}

/// The worker that a partition belongs to under EREW and CREW.
#[inline]
pub const fn static_owner(partition: Partition, workers: u16) -> Worker {
    Worker((partition.0 % workers as u32) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the table at the head of this file. Method: every policy and access.
    #[test]
    fn policies_differ_in_who_may_read_and_write() {
        let (partition, workers) = (Partition(7), 4);
        let owner = Placement::Owner(Worker(3));
        for (policy, read, write) in [
            (Policy::Erew, owner, owner),
            (Policy::Crew, Placement::Here, owner),
            (Policy::DynamicCrew, Placement::Here, Placement::Claim),
            (Policy::Crcw, Placement::Here, Placement::Here),
        ] {
            let place = |access| policy.placement(partition, access, workers);
            assert_eq!((place(Access::Read), place(Access::Write)), (read, write));
        }
    }
}
