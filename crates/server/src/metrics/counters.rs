//! What a thread counts: plain numbers during a turn, published once at its end. A counter is
//! declared once; `stats` and `/metrics` take its name and number from here.
//!
//! Counting must cost nothing, so a request adds to a number that only its thread knows. The sums
//! go to shared atomics before the replies leave: a client that has seen a reply sees it counted.

use std::marker::PhantomData;

use curtail_types::{ArithmeticOutcome, DeleteOutcome, Direction, Operation, Outcome, SetOutcome};

use crate::sync::{AtomicU64, Relaxed};

/// Declares counters, each with its name in `stats`, in groups that `stats` prints in this order.
macro_rules! counters {
    ($(#[$meta:meta])* $kind:ident {
        $($(#[$about:meta])* $group:ident { $($count:ident = $name:literal,)+ })+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(usize)]
        pub(crate) enum $kind { $($($count,)+)+ }

        impl $kind {
            $($(#[$about])* pub(crate) const $group: &[Self] = &[$(Self::$count),+];)+
            pub(crate) const LENGTH: usize = 0 $(+ Self::$group.len())+;

            /// Its row of `stats`.
            pub(crate) const fn name(self) -> &'static str {
                match self { $($(Self::$count => $name,)+)+ }
            }
        }

        impl From<$kind> for usize {
            #[inline(always)]
            fn from(count: $kind) -> Self {
                count as Self
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// The counters of a worker. Names are those of memcached's `stats` where it has them.
    Count {
        /// Commands and reads, in plain `stats`.
        COMMANDS {
            CmdGet = "cmd_get",
            CmdSet = "cmd_set",
            CmdFlush = "cmd_flush",
            CmdTouch = "cmd_touch",
            CmdMeta = "cmd_meta",
            GetHits = "get_hits",
            GetMisses = "get_misses",
        }
        /// Behind two counters of the store.
        OUTCOMES {
            DeleteMisses = "delete_misses",
            DeleteHits = "delete_hits",
            IncrMisses = "incr_misses",
            IncrHits = "incr_hits",
            DecrMisses = "decr_misses",
            DecrHits = "decr_hits",
            CasMisses = "cas_misses",
            CasHits = "cas_hits",
            CasBadval = "cas_badval",
            TouchHits = "touch_hits",
            TouchMisses = "touch_misses",
            StoreTooLarge = "store_too_large",
            StoreNoMemory = "store_no_memory",
            AuthCmds = "auth_cmds",
            AuthErrors = "auth_errors",
        }
        /// Those of plain `stats` that stand by themselves.
        SINGLE {
            ReplyNoMemory = "response_obj_oom",
            ReadNoMemory = "read_buf_oom",
            IdleKicks = "idle_kicks",
            BytesRead = "bytes_read",
            BytesWritten = "bytes_written",
            ConnYields = "conn_yields",
        }
        /// Turns and policies, in `stats curtail`.
        TURNS {
            Turns = "turns",
            Requests = "requests",
            Receives = "receives",
            Sends = "sends",
            MaintainedItems = "maintained_items",
            SpinsFound = "spins_found",
            SpinsInVain = "spins_in_vain",
            SlowReadersClosed = "slow_readers_closed",
            Delegations = "delegations",
            DelegationsRefused = "delegations_refused",
            DelegatedBatchesSent = "parcels_sent",
            DelegatedBatchesTakenBack = "parcels_taken_back",
            LateReleases = "late_releases",
            Compacted = "writes_compacted",
            HandOffs = "hand_offs",
            HandOffsRelieved = "hand_offs_relieved",
            LargeRefused = "large_refused",
            SmallBehindLarge = "small_behind_large",
            ConnectionsMoved = "connections_moved",
        }
        /// The disk tier, in `stats curtail`.
        DISK {
            DiskReads = "disk_reads",
            DiskLoaded = "disk_loaded",
            DiskWaits = "disk_waits",
            DiskRefused = "disk_writes_refused",
        }
        /// A gateway to a cache tier, in `stats curtail`.
        GATEWAY {
            TierFromCache = "tier_from_cache",
            TierFailed = "tier_failed",
            TierRepeated = "tier_repeated",
        }
        /// A node of a cluster, in `stats curtail`.
        NODE {
            ClusterHot = "cluster_hot_reads",
            ClusterRelayed = "cluster_relayed",
            ClusterAnswered = "cluster_answered",
            ClusterProtocol = "cluster_protocol",
            ClusterKeysSent = "cluster_keys_sent",
            ClusterFramesSent = "cluster_frames_sent",
            ClusterPartsSent = "cluster_parts_sent",
            ClusterMessagesSent = "cluster_messages_sent",
            ClusterLinkSends = "cluster_link_sends",
            ClusterLinkReceives = "cluster_link_receives",
        }
    }
}

/// The numbers of one thread, or a sum of them: one of each counter of kind `K`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<K, const LENGTH: usize>([u64; LENGTH], PhantomData<K>);

/// The same of one thread as others may read them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Published<K, const LENGTH: usize>([AtomicU64; LENGTH], PhantomData<K>);

/// The counts of a worker.
pub(crate) type Counts = Numbers<Count, { Count::LENGTH }>;
pub(crate) type PublishedCounts = Published<Count, { Count::LENGTH }>;

impl<K: Copy + Into<usize>, const LENGTH: usize> Numbers<K, LENGTH> {
    pub(crate) const fn new() -> Self {
        Self([0; LENGTH], PhantomData)
    }

    #[inline]
    pub(crate) fn add(&mut self, count: K, amount: u64) {
        if let Some(number) = self.0.get_mut(count.into()) {
            *number += amount;
        }
    }

    /// What was counted once too often.
    pub(crate) fn take_back(&mut self, count: K) {
        if let Some(number) = self.0.get_mut(count.into()) {
            *number -= 1;
        }
    }

    pub(crate) fn get(&self, count: K) -> u64 {
        self.0.get(count.into()).copied().unwrap_or(0)
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (number, more) in self.0.iter_mut().zip(other.0) {
            *number += more;
        }
    }

    /// What was counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (number, less) in difference.0.iter_mut().zip(earlier.0) {
            *number = number.saturating_sub(less);
        }
        difference
    }
}

impl Counts {
    /// A read: whether it shows a value, touches, and has found its item.
    #[inline(always)]
    pub(crate) fn add_get(&mut self, shows: bool, touches: bool, hit: bool) {
        if shows {
            self.add(Count::CmdGet, 1);
        }
        let count = match (touches, hit) {
            (false, true) => Count::GetHits,
            (false, false) => Count::GetMisses,
            (true, true) => Count::TouchHits,
            (true, false) => Count::TouchMisses,
        };
        self.add(count, 1);
        self.add(Count::CmdTouch, u64::from(touches));
    }

    /// A write, and whether it compared versions.
    #[inline]
    pub(crate) fn add_set(&mut self, compares: bool, outcome: SetOutcome) {
        self.add(Count::CmdSet, 1);
        let count = match (outcome, compares) {
            (SetOutcome::TooLarge, _) => Count::StoreTooLarge,
            (SetOutcome::OutOfMemory, _) => Count::StoreNoMemory,
            (SetOutcome::Stored(_), true) => Count::CasHits,
            (SetOutcome::Exists, true) => Count::CasBadval,
            (SetOutcome::NotFound, true) => Count::CasMisses,
            _ => return,
        };
        self.add(count, 1);
    }

    #[inline]
    pub(crate) fn add_delete(&mut self, outcome: DeleteOutcome) {
        match outcome {
            DeleteOutcome::Deleted => self.add(Count::DeleteHits, 1),
            DeleteOutcome::NotFound => self.add(Count::DeleteMisses, 1),
            DeleteOutcome::Exists | DeleteOutcome::OutOfMemory => {}
        }
    }

    #[inline]
    pub(crate) fn add_arithmetic(&mut self, direction: Direction, outcome: &ArithmeticOutcome) {
        let (hits, misses) = match direction {
            Direction::Increment => (Count::IncrHits, Count::IncrMisses),
            Direction::Decrement => (Count::DecrHits, Count::DecrMisses),
        };
        match outcome {
            ArithmeticOutcome::Counted { .. } => self.add(hits, 1),
            ArithmeticOutcome::NotFound => self.add(misses, 1),
            _ => {}
        }
    }

    /// An operation of another node, or one that was kept for later.
    pub(crate) fn add_outcome(&mut self, operation: &Operation, shows: bool, outcome: &Outcome) {
        match (operation, outcome) {
            (Operation::Get(get), found) => {
                let hit = matches!(found, Outcome::Found(_));
                self.add_get(shows, get.touch.is_some(), hit);
            }
            (Operation::Set(set), Outcome::Set(outcome)) => {
                self.add_set(set.compare.is_some(), *outcome);
            }
            (_, Outcome::Delete(outcome)) => self.add_delete(*outcome),
            (Operation::Arithmetic(arithmetic), Outcome::Arithmetic(outcome)) => {
                self.add_arithmetic(arithmetic.direction, outcome);
            }
            _ => {}
        }
    }
}

/// A counter of several threads that `stats reset` starts over for `stats`, and for nobody else.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    total: AtomicU64,
    at_reset: AtomicU64,
}

impl Tally {
    pub(crate) const fn new() -> Self {
        Self {
            total: AtomicU64::new(0),
            at_reset: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, amount: u64) {
        self.total.fetch_add(amount, Relaxed);
    }

    /// Since the start.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Since the last reset.
    pub(crate) fn since_reset(&self) -> u64 {
        let at_reset = self.at_reset.load(Relaxed);
        self.total().saturating_sub(at_reset)
    }

    pub(crate) fn reset(&self) {
        self.at_reset.store(self.total(), Relaxed);
    }
}

impl<K: Copy + Into<usize>, const LENGTH: usize> Published<K, LENGTH> {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; LENGTH], PhantomData)
    }

    /// Shows `counts` to the others; only the thread itself calls this.
    pub(crate) fn publish(&self, counts: &Numbers<K, LENGTH>) {
        for (shown, number) in self.0.iter().zip(&counts.0) {
            shown.store(*number, Relaxed);
        }
    }

    /// One of them.
    pub(crate) fn get(&self, count: K) -> u64 {
        let shown = self.0.get(count.into());
        shown.map_or(0, |shown| shown.load(Relaxed))
    }

    pub(crate) fn read(&self) -> Numbers<K, LENGTH> {
        let mut counts = Numbers::new();
        for (number, shown) in counts.0.iter_mut().zip(&self.0) {
            *number = shown.load(Relaxed);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_starts_over_for_one_reader_alone() {
        let tally = Tally::new();
        tally.add(3);
        tally.reset();
        tally.add(2);
        assert_eq!((tally.since_reset(), tally.total()), (2, 5));
    }

    #[test]
    fn published_counts_are_read_and_subtracted() {
        let mut counts = Counts::new();
        counts.add(Count::CmdGet, 2);
        counts.add(Count::MaintainedItems, 1);
        let published = PublishedCounts::new();
        published.publish(&counts);
        let earlier = published.read();
        counts.add(Count::CmdGet, 3);
        let since = counts.since(&earlier);
        assert_eq!(since.get(Count::CmdGet), 3);
        assert_eq!(since.get(Count::MaintainedItems), 0);
    }
}
