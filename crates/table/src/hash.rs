//! The map's hash: a few multiplications under a secret, different in every table.
//!
//! For one word `x` and secret 128-bit `a` and `b` it computes the high 64 bits of
//! `a * x + b mod 2^128`. That family is strongly universal (Dietzfelbinger, 1996): for any two
//! keys chosen without knowing the secret, the two hashes are independent and uniform. So whoever
//! does not see the secret cannot make keys that collide more often than random ones, which is
//! what a flood of crafted keys needs. Linear families keep the structure of structured keys,
//! though, and cuckoo hashing is known to suffer from that (Dietzfelbinger and Schellbach, 2009);
//! a fixed bijective mixer after it removes the structure and, being a bijection, keeps the
//! guarantee. It is no cryptographic function: a caller that shows hashes, or an exact timing of
//! every operation, to an attacker should use a `KeyHasher` of its own made of SipHash, as the
//! store does for its clients' keys.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

use crate::plain::Plain;

/// How a map hashes its keys. Both halves of the result choose a bucket, so all 64 bits matter.
pub trait KeyHasher<K> {
    /// The hash of a key: the same for equal keys, as long as the hasher lives.
    fn hash(&self, key: &K) -> u64;
}

/// The default hasher; see the head of this file. Also a [`BuildHasher`], so that other tables can
/// be measured with the same function.
#[derive(Clone, Copy, Debug)]
pub struct SeededHash {
    multiplier: u128,
    addend: u128,
}

impl SeededHash {
    /// A hasher with a secret of its own, from the operating system's random source.
    pub fn random() -> Self {
        let state = RandomState::new();
        let word = |index: u64| u128::from(state.hash_one(index));
        Self::from_secret(word(0) << 64 | word(1), word(2) << 64 | word(3))
    }

    /// A hasher with a given secret, for tests and benches that must repeat.
    pub const fn from_secret(multiplier: u128, addend: u128) -> Self {
        Self { multiplier, addend }
    }

    #[inline(always)]
    fn absorb(&self, state: u64, word: u64) -> u64 {
        let input = u128::from(state ^ word);
        let linear = (self
            .multiplier
            .wrapping_mul(input)
            .wrapping_add(self.addend)
            >> 64) as u64;
        mix(linear)
    }
}

impl Default for SeededHash {
    fn default() -> Self {
        Self::random()
    }
}

impl<K: Plain> KeyHasher<K> for SeededHash {
    #[inline(always)]
    fn hash(&self, key: &K) -> u64 {
        (0..K::WORDS).fold(0, |state, index| self.absorb(state, key.word(index)))
    }
}

/// A fixed bijection of 64-bit words in which every input bit reaches every output bit.
#[inline(always)]
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}

impl BuildHasher for SeededHash {
    type Hasher = SeededHasher;

    #[inline(always)]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher {
            hash: *self,
            state: 0,
        }
    }
}

/// [`SeededHash`] in the standard library's shape.
#[derive(Clone, Copy, Debug)]
pub struct SeededHasher {
    hash: SeededHash,
    state: u64,
}

impl Hasher for SeededHasher {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        self.state = self.hash.absorb(self.state, word);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both halves of the hash spread structured keys evenly. Method: sequences with several
    /// strides, and keys with a few bits set; the fullest of 256 cells must not stand out.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, and slow")]
    fn structured_keys_spread() {
        let hash = SeededHash::random();
        for stride_bits in [0, 3, 12, 32, 48] {
            let mut cells = [[0_u32; 256]; 2];
            for number in 0..16_384_u64 {
                let value = hash.hash(&(number << stride_bits));
                cells[0][(value & 255) as usize] += 1;
                cells[1][(value >> 32 & 255) as usize] += 1;
            }
            for cell in cells {
                // 64 on average, 8 standard deviation: seven of them.
                assert!(
                    cell.iter().all(|&count| count < 120),
                    "stride 2^{stride_bits}"
                );
            }
        }
    }

    /// Goal: the standard library's face computes the same function. Method: one key.
    #[test]
    fn both_faces_agree() {
        let hash = SeededHash::random();
        let mut hasher = hash.build_hasher();
        hasher.write_u64(77);
        assert_eq!(hasher.finish(), hash.hash(&77_u64));
        assert_ne!(hash.hash(&[1_u64, 2]), hash.hash(&[2_u64, 1]));
    }
}
