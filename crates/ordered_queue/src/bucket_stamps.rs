//! Stamps: for every bucket of keys, up to where its queue must be executed before a read of it may
//! look into the store (JB-40).
//!
//! A word is the greatest position + 1 that was given to a write of the bucket. The bucket is the
//! top bits of the key hash and the queue is fewer of the same bits, so that a word never mixes the
//! positions of two queues.

use crate::sync::{AtomicU64, Ordering};

/// The stamp table in words that somebody lends; a power of two of them.
#[derive(Clone, Copy, Debug)]
pub struct Stamps<'a> {
    words: &'a [AtomicU64],
    shift: u32,
}

impl<'a> Stamps<'a> {
    /// The table in these words: 2 at least, all 0 at the start of an incarnation.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert!(words.len().is_power_of_two() && words.len() > 1);
        Self {
            words,
            shift: 64 - words.len().trailing_zeros(),
        }
    }

    /// Buckets.
    pub const fn buckets(&self) -> usize {
        self.words.len()
    }

    /// Step 7, before anything is acknowledged: `pos` was given to a write of this hash's bucket.
    /// Every turn of the loop is lost to somebody who raised the word, so it ends.
    #[inline]
    pub fn raise(&self, key_hash: u64, pos: u64) {
        let word = self.word(key_hash);
        let mut seen = word.load(Ordering::Relaxed);
        while seen <= pos {
            // Release pairs with the Acquire in `stamp`.
            let raised =
                word.compare_exchange_weak(seen, pos + 1, Ordering::Release, Ordering::Relaxed);
            match raised {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// What a read of this hash waits for; taken once, when the read begins.
    #[inline]
    pub fn stamp(&self, key_hash: u64) -> u64 {
        // Acquire pairs with the Release in `raise`.
        self.word(key_hash).load(Ordering::Acquire)
    }

    #[inline]
    fn word(&self, key_hash: u64) -> &'a AtomicU64 {
        &self.words[(key_hash >> self.shift) as usize]
    }
}
