//! The keyed hash of a key: SipHash-1-3, written for one short string at a time.
//!
//! The seed is secret and random per process (or restored by a warm restart), so that nobody can
//! craft keys that meet in one bucket. SipHash is from Aumasson and Bernstein, "SipHash: a fast
//! short-input PRF" (2012); the 1-3 variant is the one that several languages use for their hash
//! tables. It is written out here, not taken from a crate, because the same function must exist in
//! the XDP program, and because keys are at most 250 bytes and arrive whole: no streaming state.

/// The secret that keys a [`KeyHash`]: 128 random bits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HashSeed(pub [u64; 2]);

/// The hash of a key under the process's seed; computed once per request, never taken from the
/// wire and never sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct KeyHash(pub u64);

impl HashSeed {
    /// SipHash-1-3 of `key` under this seed.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mut state = State::new(self);
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        let length_byte = (key.len() as u64) << 56;
        state.absorb(little_endian(rest) | length_byte);
        KeyHash(state.finish())
    }
}

/// The four words of SipHash, named as in the paper.
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline]
    fn new(seed: &HashSeed) -> Self {
        let [k0, k1] = seed.0;
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

/// Fewer than eight bytes as a little-endian number; missing bytes are zero.
#[inline]
fn little_endian(bytes: &[u8]) -> u64 {
    if bytes.is_empty() {
        return 0;
    }
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let overlap = 8 * (bytes.len() - 4) as u32;
        return u64::from(u32::from_le_bytes(*low))
            | u64::from(u32::from_le_bytes(*high)) << overlap;
    }
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use core::hash::Hasher;

    use siphasher::sip::SipHasher13;

    use super::*;

    /// Goal: the function is SipHash-1-3. Method: every length up to two blocks and a key's
    /// greatest length, against an independent implementation.
    #[test]
    fn agrees_with_an_independent_implementation() {
        let seed = HashSeed([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let bytes: [u8; 250] = core::array::from_fn(|i| (i * 7 + 3) as u8);
        for length in (0..40).chain([249, 250]) {
            let mut reference = SipHasher13::new_with_keys(seed.0[0], seed.0[1]);
            reference.write(&bytes[..length]);
            assert_eq!(
                seed.hash(&bytes[..length]).0,
                reference.finish(),
                "length {length}"
            );
        }
    }
}
