//! The inputs of a turn's routing decisions, and the table of claims.

use std::sync::Arc;

use curtail_dispatch::{Access, Partition, Placement, Policy, SharedWriters};
use curtail_types::KeyHash;

use crate::size_aware::plan_snapshot::PlanSnapshot;

/// What routes follow from in a turn: settled when it begins.
#[derive(Debug)]
pub(crate) struct Routing {
    /// The policy and the plan in force.
    pub(crate) snapshot: Arc<PlanSnapshot>,
    /// Whether requests may have to run at other workers.
    pub(crate) decides: bool,
    /// Whether only writes have to ask where they run, and ask for their partition; until something
    /// is handed on in this turn.
    pub(crate) claims: bool,
    /// Whether writes run at the static owners of their partitions.
    pub(crate) writes_at_owners: bool,
    /// Whether reads run where they arrive.
    pub(crate) reads_here: bool,
    /// What is read may be shown only as long as this node's lease holds.
    pub(crate) under_lease: bool,
}

impl Routing {
    pub(crate) fn new(snapshot: Arc<PlanSnapshot>) -> Self {
        Self {
            snapshot,
            decides: false,
            claims: false,
            writes_at_owners: false,
            reads_here: true,
            under_lease: false,
        }
    }

    /// Settles what holds for a turn, on one of so many workers; a large worker decides nothing.
    pub(crate) fn settle(&mut self, workers: usize, is_large_worker: bool) {
        let policy = self.snapshot.name.policy;
        self.decides = workers > 1 && policy != Policy::Crcw && !is_large_worker;
        self.claims = self.decides && policy == Policy::DynamicCrew;
        let at_owners = |access| {
            let place = policy.placement(Partition(0), access, 1);
            matches!(place, Placement::Owner(_))
        };
        self.writes_at_owners = self.decides && at_owners(Access::Write);
        self.reads_here = !at_owners(Access::Read);
    }

    /// Whether writes claim their partition, and nothing else has to ask.
    #[inline]
    pub(crate) const fn claims(&self) -> bool {
        self.claims
    }

    /// Whether each request has to ask where it runs.
    #[inline]
    pub(crate) const fn asks(&self) -> bool {
        self.decides && !self.claims
    }

    /// Something was handed on in this turn: what follows it has to ask.
    pub(crate) const fn note_handed_on(&mut self) {
        self.claims = false;
    }
}

/// Partitions that are held one by one: slices of the key hash. A claim lasts as long as a write is
/// executed or on its way, so even a worker's whole batch holds few of them.
pub(crate) const PARTITION_BITS: u32 = 16;

/// The table of claims.
pub(crate) type Writers = SharedWriters<{ 1 << PARTITION_BITS }>;

/// Bytes of memory that it takes: a worker that is alone never claims, and touches none of it.
pub(crate) const fn bytes_of_writers(workers: usize) -> usize {
    match workers {
        0 | 1 => 0,
        _ => Writers::BYTES,
    }
}

#[inline]
pub(crate) fn partition_of(hash: KeyHash) -> Partition {
    Partition((hash.0 >> (u64::BITS - PARTITION_BITS)) as u32)
}
