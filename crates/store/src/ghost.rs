//! Ghosts: fingerprints of items that were evicted before they proved useful.
//!
//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023) admits a key
//! that comes back soon after its eviction straight to the main queue. Here the ghosts are 16-bit
//! fingerprints in cache lines of 32; a line forgets its oldest one when it is full. Memory is
//! touched only once something was evicted.

use curtail_types::KeyHash;

use crate::sync::{AtomicU16, Ordering};

/// A bounded set of fingerprints; approximate on both sides.
#[derive(Debug)]
pub(crate) struct Ghosts {
    fingerprints: Box<[AtomicU16]>,
}

const LINE: usize = 32;

impl Ghosts {
    /// Room for about `bytes / 2` ghosts; none below one line.
    pub(crate) fn new(bytes: usize) -> Self {
        let lines = bytes / (LINE * 2);
        Self {
            fingerprints: (0..lines * LINE).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * 2
    }

    fn line(&self, hash: KeyHash) -> &[AtomicU16] {
        let lines = (self.fingerprints.len() / LINE) as u128;
        let mixed = hash.0.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let line = ((u128::from(mixed) * lines) >> 64) as usize;
        &self.fingerprints[line * LINE..][..LINE.min(self.fingerprints.len())]
    }

    fn fingerprint(hash: KeyHash) -> u16 {
        (hash.0 as u16).max(1)
    }

    /// Remembers an evicted key.
    pub(crate) fn insert(&self, hash: KeyHash) {
        // The line is a shift register: the newest comes first. Two at once may lose a ghost.
        let mut carried = Self::fingerprint(hash);
        for place in self.line(hash) {
            let pushed = place.load(Ordering::Relaxed);
            place.store(carried, Ordering::Relaxed);
            carried = pushed;
            if carried == 0 {
                return;
            }
        }
    }

    /// Whether the key was evicted not long ago; forgets it.
    pub(crate) fn take(&self, hash: KeyHash) -> bool {
        let fingerprint = Self::fingerprint(hash);
        let found = self
            .line(hash)
            .iter()
            .find(|place| place.load(Ordering::Relaxed) == fingerprint);
        if let Some(place) = found {
            place.store(0, Ordering::Relaxed);
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_are_found_once_and_the_oldest_are_forgotten() {
        let ghosts = Ghosts::new(64);
        for n in 1..=33 {
            ghosts.insert(KeyHash(n));
        }
        assert!(!ghosts.take(KeyHash(1)));
        assert!(ghosts.take(KeyHash(2)));
        assert!(!ghosts.take(KeyHash(2)));
        assert!(ghosts.take(KeyHash(33)));
    }

    #[test]
    fn no_memory_means_no_ghosts() {
        let ghosts = Ghosts::new(63);
        ghosts.insert(KeyHash(5));
        assert!(!ghosts.take(KeyHash(5)));
        assert_eq!(ghosts.memory_bytes(), 0);
    }
}
