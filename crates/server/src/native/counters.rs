//! What the path counts: plain numbers of a thread, published once a turn.

use crate::sync::{AtomicU64, Relaxed};

/// What is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum NativeCount {
    /// Datagrams received.
    Received,
    /// System calls that received something.
    Receives,
    /// Datagrams sent.
    Sent,
    /// Datagrams that the kernel had no room for.
    LostSending,
    /// Entries executed.
    Executed,
    /// Entries that a later one of their key made needless.
    Compacted,
    /// Turns with a queue.
    Leases,
    /// Turns with a queue that a waiting read or direct write had somebody take.
    Helped,
    /// Writes acknowledged again.
    Reacknowledged,
    /// Results that were sent again.
    Replayed,
    /// Writes refused because their queue was full.
    NackFull,
    /// Writes refused because the server starts or stops.
    NackNotReady,
    /// Reads and barriers refused because too many wait.
    NackBusy,
    /// Datagrams answered by an error.
    Errors,
    /// Dropped: shorter than a header, or not of this protocol.
    DroppedForeign,
    /// Dropped: under way, or over.
    DroppedStale,
    /// Dropped: handshakes above the rate.
    DroppedHandshakes,
    /// Dropped: the heartbeat had stopped.
    DroppedAbsent,
    /// Cookies given.
    Cookies,
    /// Sessions granted, some perhaps twice.
    Grants,
    /// Sessions refused.
    GrantsRefused,
    /// Reads that found an item.
    GetHits,
    /// Reads that found none.
    GetMisses,
    /// Reads answered from a queue.
    Forwarded,
    /// Reads that waited for a queue.
    Parked,
    /// Requests that a worker took from another one.
    Stolen,
    /// Writes that went past the queues.
    Direct,
    /// Entries whose bytes were not those that were acknowledged.
    CorruptAfterAck,
}

/// All of them in their order, under the names of `stats curtail`.
pub(crate) const NATIVE_COUNTS: [(&str, NativeCount); 28] = [
    ("received", NativeCount::Received),
    ("receives", NativeCount::Receives),
    ("sent", NativeCount::Sent),
    ("lost_sending", NativeCount::LostSending),
    ("executed", NativeCount::Executed),
    ("compacted", NativeCount::Compacted),
    ("leases", NativeCount::Leases),
    ("helped", NativeCount::Helped),
    ("reacknowledged", NativeCount::Reacknowledged),
    ("replayed", NativeCount::Replayed),
    ("nack_full", NativeCount::NackFull),
    ("nack_not_ready", NativeCount::NackNotReady),
    ("nack_busy", NativeCount::NackBusy),
    ("errors", NativeCount::Errors),
    ("dropped_foreign", NativeCount::DroppedForeign),
    ("dropped_stale", NativeCount::DroppedStale),
    ("dropped_handshakes", NativeCount::DroppedHandshakes),
    ("dropped_absent", NativeCount::DroppedAbsent),
    ("cookies", NativeCount::Cookies),
    ("grants", NativeCount::Grants),
    ("grants_refused", NativeCount::GrantsRefused),
    ("get_hits", NativeCount::GetHits),
    ("get_misses", NativeCount::GetMisses),
    ("forwarded", NativeCount::Forwarded),
    ("parked", NativeCount::Parked),
    ("stolen", NativeCount::Stolen),
    ("direct", NativeCount::Direct),
    ("corrupt_after_ack", NativeCount::CorruptAfterAck),
];

const LENGTH: usize = NATIVE_COUNTS.len();

/// The counts of one thread, or a sum of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeCounts([u64; LENGTH]);

/// The counts of one thread as others may read them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PublishedNativeCounts([AtomicU64; LENGTH]);

impl NativeCounts {
    pub(crate) const fn new() -> Self {
        Self([0; LENGTH])
    }

    #[inline]
    pub(crate) fn add(&mut self, count: NativeCount, amount: u64) {
        if let Some(number) = self.0.get_mut(count as usize) {
            *number += amount;
        }
    }

    pub(crate) fn get(&self, count: NativeCount) -> u64 {
        self.0.get(count as usize).copied().unwrap_or(0)
    }
}

impl PublishedNativeCounts {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; LENGTH])
    }

    /// Shows `counts` to the others; only their thread calls this.
    pub(crate) fn publish(&self, counts: &NativeCounts) {
        for (shown, number) in self.0.iter().zip(counts.0) {
            shown.store(number, Relaxed);
        }
    }

    /// Adds them to `sum`.
    pub(crate) fn add_to(&self, sum: &mut NativeCounts) {
        for (number, shown) in sum.0.iter_mut().zip(&self.0) {
            *number += shown.load(Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_counts() {
        for (number, (name, count)) in NATIVE_COUNTS.iter().enumerate() {
            assert_eq!(*count as usize, number, "{name}");
        }
        let mut counts = NativeCounts::new();
        counts.add(NativeCount::CorruptAfterAck, 2);
        let published = PublishedNativeCounts::new();
        published.publish(&counts);
        let mut sum = counts;
        published.add_to(&mut sum);
        assert_eq!(sum.get(NativeCount::CorruptAfterAck), 4);
    }
}
