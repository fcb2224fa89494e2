//! The ghost table as the store has it: fingerprints whose place in their bucket is their age.
//!
//! A bucket is one cache line of 32 fingerprints, the newest first. Nothing else is kept: what was
//! dropped about `rank * buckets` drops ago stands at `rank`, because every bucket receives the
//! same share of the drops. Fingerprints of 16 bits mistake a stranger for a ghost once in 2,000
//! look-ups; 12 bits (which would leave room for a time stamp) cost P2 half a point.

use curtail_workload::mix;

use crate::trace::ObjectId;

/// What was dropped lately.
pub(crate) struct Ghost {
    buckets: Vec<[u16; BUCKET]>,
    drops: u64,
}

const BUCKET: usize = 32;

impl Ghost {
    /// A table for the last `entries` drops or a few more.
    pub(crate) fn new(entries: u64) -> Self {
        let buckets = entries.div_ceil(BUCKET as u64).max(1) as usize;
        Self {
            buckets: vec![[0; BUCKET]; buckets],
            drops: 0,
        }
    }

    /// How many objects were inserted so far: the clock of the policy.
    pub(crate) fn drops(&self) -> u64 {
        self.drops
    }

    /// Notes that `object` was dropped. The first hole, or the oldest, makes room.
    pub(crate) fn insert(&mut self, object: ObjectId) {
        let (bucket, mut carried) = self.place(object);
        self.drops += 1;
        for entry in &mut self.buckets[bucket] {
            std::mem::swap(entry, &mut carried);
            if carried == 0 {
                break;
            }
        }
    }

    /// Forgets `object`. Returns how many drops ago it was dropped, roughly.
    pub(crate) fn take(&mut self, object: ObjectId) -> Option<u64> {
        let (bucket, fingerprint) = self.place(object);
        let buckets = self.buckets.len() as u64;
        let entries = &mut self.buckets[bucket];
        let position = entries.iter().position(|&entry| entry == fingerprint)?;
        entries[position] = 0;
        let rank = entries[..position]
            .iter()
            .filter(|&&entry| entry != 0)
            .count() as u64;
        Some((2 * rank + 1) * buckets / 2)
    }

    fn place(&self, object: ObjectId) -> (usize, u16) {
        let hash = mix((u64::from(object) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let bucket = ((hash >> 32) * self.buckets.len() as u64) >> 32;
        (bucket as usize, (hash as u16).max(1))
    }
}
