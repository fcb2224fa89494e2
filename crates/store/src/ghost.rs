//! Ghosts: fingerprints of evicted items, whose position in their cache line tells their age.
//!
//! A line is one cache line of 32 fingerprints of 16 bits, the newest first. Every line receives
//! the same share of the drops, so a fingerprint at rank r was dropped about `(r + 1/2) * lines`
//! drops ago, and no time stamp is needed. Memory is reserved but not touched until something is
//! evicted; the number of lines follows the number of items. Two threads at once in a line may lose
//! a ghost.

use curtail_segments::Reserve;
use curtail_types::KeyHash;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// A bounded set of fingerprints; approximate on both sides.
#[derive(Debug)]
pub(crate) struct Ghosts {
    words: Reserve,
    lines: AtomicUsize,
}

/// Fingerprints in a line, and words that hold them.
const LINE: usize = 32;
const LINE_WORDS: usize = LINE / 4;

impl Ghosts {
    /// Address space for `ghosts_max`; none can be remembered before [`Ghosts::resize`].
    pub(crate) fn new(ghosts_max: usize) -> std::io::Result<Self> {
        Ok(Self {
            words: Reserve::new(ghosts_max.div_ceil(LINE) * LINE_WORDS)?,
            lines: AtomicUsize::new(0),
        })
    }

    /// Forgets all, and remembers about `ghosts` from now on, as far as there is address space.
    pub(crate) fn resize(&self, ghosts: usize) {
        self.lines.store(0, Ordering::Relaxed);
        self.words.clear();
        let lines_max = self.words.words().len() / LINE_WORDS;
        let lines = ghosts.div_ceil(LINE).clamp(1, lines_max.max(1));
        self.lines.store(lines, Ordering::Relaxed);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.lines.load(Ordering::Relaxed) * LINE_WORDS * 8
    }

    fn line(&self, hash: KeyHash, lines: usize) -> &[AtomicU64] {
        let mixed = hash.0.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let line = ((u128::from(mixed) * lines as u128) >> 64) as usize;
        let words = self.words.words();
        words
            .get(line * LINE_WORDS..(line + 1) * LINE_WORDS)
            .unwrap_or(&[])
    }

    fn fingerprint(hash: KeyHash) -> u16 {
        (hash.0 as u16).max(1)
    }

    /// Remembers an evicted key. The first hole, or the oldest, makes room.
    pub(crate) fn insert(&self, hash: KeyHash) {
        let lines = self.lines.load(Ordering::Relaxed);
        if lines == 0 {
            return;
        }
        let mut carried = Self::fingerprint(hash);
        for place in self.line(hash, lines) {
            let mut four = unpack(place.load(Ordering::Relaxed));
            for entry in &mut four {
                std::mem::swap(entry, &mut carried);
                if carried == 0 {
                    break;
                }
            }
            place.store(pack(four), Ordering::Relaxed);
            if carried == 0 {
                break;
            }
        }
    }

    /// About how many drops ago the key was evicted, if it is remembered; forgets it.
    pub(crate) fn take(&self, hash: KeyHash) -> Option<u64> {
        let lines = self.lines.load(Ordering::Relaxed);
        if lines == 0 {
            return None;
        }
        let fingerprint = Self::fingerprint(hash);
        let mut rank = 0;
        for place in self.line(hash, lines) {
            let mut four = unpack(place.load(Ordering::Relaxed));
            for index in 0..four.len() {
                if four[index] == fingerprint {
                    four[index] = 0;
                    place.store(pack(four), Ordering::Relaxed);
                    return Some((2 * rank + 1) * lines as u64 / 2);
                }
                rank += u64::from(four[index] != 0);
            }
        }
        None
    }
}

fn unpack(word: u64) -> [u16; 4] {
    std::array::from_fn(|index| (word >> (16 * index)) as u16)
}

fn pack(four: [u16; 4]) -> u64 {
    four.iter()
        .rev()
        .fold(0, |word, &entry| word << 16 | u64::from(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_are_found_once_and_the_oldest_are_forgotten() {
        let ghosts = Ghosts::new(32).unwrap();
        ghosts.resize(32);
        for n in 1..=33 {
            ghosts.insert(KeyHash(n));
        }
        assert_eq!(ghosts.take(KeyHash(1)), None);
        assert_eq!(ghosts.take(KeyHash(33)), Some(0));
        assert_eq!(ghosts.take(KeyHash(33)), None);
        assert_eq!(ghosts.take(KeyHash(2)), Some(30));
    }

    /// Goal: the place tells the age. Method: thousands of drops over many lines; the mean error
    /// of the ages of those remembered is small.
    #[test]
    fn ages_are_told_by_the_place() {
        let ghosts = Ghosts::new(32 * 64).unwrap();
        ghosts.resize(32 * 64);
        let key = |n: u64| KeyHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for n in 0..5000 {
            ghosts.insert(key(n));
        }
        for age in [100, 500, 1000, 1500] {
            let told: Vec<_> = (0..50)
                .filter_map(|i| ghosts.take(key(4999 - age - i)))
                .collect();
            assert!(told.len() > 35, "{age}: {}", told.len());
            let mean = told.iter().sum::<u64>() / told.len() as u64;
            assert!(mean.abs_diff(age) < 150 + age / 5, "{age}: {mean}");
        }
    }

    #[test]
    fn nothing_is_remembered_before_there_is_a_size() {
        let ghosts = Ghosts::new(1000).unwrap();
        ghosts.insert(KeyHash(5));
        assert_eq!(ghosts.take(KeyHash(5)), None);
        assert_eq!(ghosts.memory_bytes(), 0);
    }
}
