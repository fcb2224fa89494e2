//! Detects keys that suddenly become hot, in a circular log of the latest requests (Li 2016,
//! section 2.2.2.2).
//!
//! The log holds the hashes of the latest requests that were looked at, a table beside it how often
//! each of them is there. A key that is there more often than a threshold *bursts*: it need not
//! wait for the end of its segment. A caller that was told suppresses the key for a while, so that
//! one burst is one report.

use alloc::{boxed::Box, vec, vec::Vec};

use curtail_types::{Instant, KeyHash};

use crate::{hash_index::HashIndex, parameters::Parameters};

/// The circular log and its counts.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Bursts {
    /// The latest requests; 0, a hash like any other, stands where none was yet.
    log: Box<[u64]>,
    /// How often each hash is in the log.
    counts: HashIndex,
    /// The oldest entry, which the next request overwrites.
    oldest: usize,
    /// Entries that were written: all, after one round.
    filled: usize,
    above: u32,
    suppressed: Vec<Suppressed>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Suppressed {
    hash: u64,
    until: Instant,
}

impl Bursts {
    /// Keys that can be suppressed at a time. Beyond, the one whose time ends first is forgotten,
    /// and may be reported again.
    pub const SUPPRESSED_MAX: usize = 64;

    /// As `parameters` say.
    pub fn new(parameters: &Parameters) -> Self {
        let entries = parameters.logged.min(Parameters::LOGGED_MAX);
        Self {
            log: vec![0; entries as usize].into_boxed_slice(),
            counts: HashIndex::new(entries),
            oldest: 0,
            filled: 0,
            above: parameters.burst_above,
            suppressed: Vec::with_capacity(Self::SUPPRESSED_MAX),
        }
    }

    /// Logs a request; how often its key is in the log if that is a burst nobody was told of yet.
    #[inline]
    pub fn see(&mut self, hash: KeyHash) -> Option<u32> {
        let place = self.log.get_mut(self.oldest)?;
        let forgotten = core::mem::replace(place, hash.0);
        if self.filled == self.log.len() {
            self.forget(forgotten);
        } else {
            self.filled += 1;
        }
        self.oldest = (self.oldest + 1) % self.log.len();
        let count = match self.counts.get_mut(hash.0) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                self.counts.set(hash.0, 1);
                1
            }
        };
        (count > self.above && !self.is_suppressed(hash)).then_some(count)
    }

    /// Says nothing more of this key until then: it was reported.
    pub fn suppress(&mut self, hash: KeyHash, until: Instant) {
        self.release(hash);
        if self.suppressed.len() == Self::SUPPRESSED_MAX {
            let ends = self.suppressed.iter().enumerate();
            if let Some((first, _)) = ends.min_by_key(|(_, entry)| entry.until) {
                self.suppressed.swap_remove(first);
            }
        }
        self.suppressed.push(Suppressed {
            hash: hash.0,
            until,
        });
    }

    /// The report of this key was acknowledged, or declined.
    pub fn release(&mut self, hash: KeyHash) {
        self.suppressed.retain(|entry| entry.hash != hash.0);
    }

    /// Ends what is suppressed until `now` at most.
    pub fn expire(&mut self, now: Instant) {
        self.suppressed.retain(|entry| entry.until > now);
    }

    fn forget(&mut self, hash: u64) {
        match self.counts.get_mut(hash) {
            Some(count) if *count > 1 => *count -= 1,
            _ => self.counts.remove(hash),
        }
    }

    #[cold]
    fn is_suppressed(&self, hash: KeyHash) -> bool {
        self.suppressed.iter().any(|entry| entry.hash == hash.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(logged: u32, burst_above: u32) -> Bursts {
        Bursts::new(&Parameters {
            logged,
            burst_above,
            ..Parameters::switchkv()
        })
    }

    fn at(ns: u64) -> Instant {
        Instant { ns }
    }

    /// Goal: "more than 8 times within the last 200" means just that. Method: random streams beside
    /// a count over the last 200 of them, hash 0 among the keys.
    #[test]
    fn a_burst_is_a_key_above_the_threshold_in_the_log() {
        let (mut bursts, mut random, mut told) = (bursts(200, 8), 5_u64, 0);
        let mut stream = Vec::new();
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let key = (random >> 40) % 64;
            stream.push(key * (random >> 63));
            let recent = stream.iter().rev().take(200);
            let key = stream[stream.len() - 1];
            let count = recent.filter(|&&other| other == key).count();
            let burst = (count > 8).then_some(count as u32);
            assert_eq!(bursts.see(KeyHash(key)), burst);
            told += usize::from(burst.is_some());
        }
        assert!(told > 1000 && told < 19_000, "{told}");
    }

    #[test]
    fn one_burst_is_told_once_a_period() {
        let (mut bursts, key) = (bursts(200, 8), KeyHash(7));
        let told: Vec<_> = (0..9).map(|_| bursts.see(key)).collect();
        assert_eq!(told.iter().flatten().collect::<Vec<_>>(), [&9]);
        bursts.suppress(key, at(1000));
        assert_eq!(bursts.see(key), None);
        bursts.expire(at(999));
        assert_eq!(bursts.see(key), None);
        bursts.expire(at(1000));
        assert_eq!(bursts.see(key), Some(12));
        bursts.suppress(key, at(2000));
        bursts.release(key);
        assert_eq!(bursts.see(key), Some(13));
    }

    #[test]
    fn what_is_suppressed_is_bounded_and_without_a_log_nothing_bursts() {
        let mut bursts = bursts(200, 8);
        (0..1000).for_each(|key| bursts.suppress(KeyHash(key), at(key)));
        assert_eq!(bursts.suppressed.len(), Bursts::SUPPRESSED_MAX);
        assert!(bursts.is_suppressed(KeyHash(999)));
        assert!(!bursts.is_suppressed(KeyHash(900)));
        let mut none = self::bursts(0, 0);
        assert!((0..100).all(|_| none.see(KeyHash(1)).is_none()));
    }
}
