//! Words for states: what a search remembers of them.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Mutex;

/// The same in every run.
pub(crate) fn fingerprint_of(value: &impl Hash) -> u64 {
    let mut mixer = Mixer(MULTIPLIERS[0]);
    value.hash(&mut mixer);
    mixer.finish()
}

/// The fingerprints of the states that have been seen.
pub(super) struct Seen {
    shards: Vec<Mutex<HashSet<u64, Plain>>>,
}

impl Seen {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards }
    }

    /// Whether it is new.
    pub(super) fn insert(&self, fingerprint: u64) -> bool {
        // The table tells entries apart by the highest bits, and finds their place by the lowest.
        let shard = self.shards.get((fingerprint >> 40) as usize % SHARDS);
        shard.is_some_and(|shard| {
            let mut shard = shard.lock().unwrap_or_else(|broken| broken.into_inner());
            shard.insert(fingerprint)
        })
    }
}

/// Folds words with the halves of a product, as wyhash does (Wang Yi, 2019): most of a search is
/// spent on hashing, and states are not chosen by an adversary.
struct Mixer(u64);

impl Mixer {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIERS[1]);
        self.0 = (product as u64) ^ ((product >> 64) as u64).wrapping_add(MULTIPLIERS[2]);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.fold(MULTIPLIERS[2]);
        last.fold(MULTIPLIERS[0]);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.fold(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.fold(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.fold(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.fold(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.fold(word as u64);
    }
}

/// A fingerprint is its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain(u64);

impl BuildHasher for Plain {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

const SHARDS: usize = 128;
/// Odd, with as many ones as zeros: the first digits of the fraction of pi.
const MULTIPLIERS: [u64; 3] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
];
