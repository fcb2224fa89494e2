//! The checksum of a frame: XXH64 (Yann Collet's xxHash, the 64-bit variant), over bytes that
//! arrive in pieces.
//!
//! It vouches for the bytes between the client's memory and the store's (JB-19, JB-38); it is no
//! defence against forgery, tokens are. XXH64 was taken because it needs nothing but 64-bit
//! multiplication, so that the network card's program can compute it as well, and is known to
//! every language that a client may be written in.
//!
//! Invariant: how the bytes are cut does not matter.

/// XXH64 in the making.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Checksum {
    lanes: [u64; 4],
    seed: u64,
    /// Bytes that do not fill a stripe yet.
    rest: [u8; STRIPE_BYTES],
    rest_bytes: usize,
    total_bytes: u64,
}

impl Checksum {
    /// The checksum of nothing under `seed`; of a frame, the seed is word 0 of its header.
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Self {
            lanes: [
                seed.wrapping_add(PRIME_1).wrapping_add(PRIME_2),
                seed.wrapping_add(PRIME_2),
                seed,
                seed.wrapping_sub(PRIME_1),
            ],
            seed,
            rest: [0; STRIPE_BYTES],
            rest_bytes: 0,
            total_bytes: 0,
        }
    }

    /// Takes in the next bytes.
    #[inline]
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.total_bytes = self.total_bytes.wrapping_add(bytes.len() as u64);
        if self.rest_bytes > 0 {
            bytes = self.top_up(bytes);
        }
        let (stripes, rest) = bytes.as_chunks::<STRIPE_BYTES>();
        for stripe in stripes {
            self.absorb(stripe);
        }
        if !rest.is_empty() {
            self.top_up(rest);
        }
    }

    /// The checksum of what was taken in.
    #[inline]
    pub fn finish(&self) -> u64 {
        let mut hash = if self.total_bytes >= STRIPE_BYTES as u64 {
            self.merged()
        } else {
            self.seed.wrapping_add(PRIME_5)
        };
        hash = hash.wrapping_add(self.total_bytes);
        let rest = self.rest.get(..self.rest_bytes).unwrap_or_default();
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            hash ^= round(0, u64::from_le_bytes(*word));
            hash = rotated(hash, 27).wrapping_add(PRIME_4);
        }
        let (halves, rest) = rest.as_chunks::<4>();
        for half in halves {
            hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIME_1);
            hash = hash
                .rotate_left(23)
                .wrapping_mul(PRIME_2)
                .wrapping_add(PRIME_3);
        }
        for byte in rest {
            hash ^= u64::from(*byte).wrapping_mul(PRIME_5);
            hash = rotated(hash, 11);
        }
        avalanche(hash)
    }

    /// Fills the unfinished stripe; what did not fit.
    fn top_up<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let room = self.rest.get_mut(self.rest_bytes..).unwrap_or_default();
        let taken = room.len().min(bytes.len());
        let (now, later) = bytes.split_at(taken);
        for (place, byte) in room.iter_mut().zip(now) {
            *place = *byte;
        }
        self.rest_bytes += taken;
        if self.rest_bytes == STRIPE_BYTES {
            let stripe = self.rest;
            self.absorb(&stripe);
            self.rest_bytes = 0;
        }
        later
    }

    #[inline]
    fn absorb(&mut self, stripe: &[u8; STRIPE_BYTES]) {
        let (words, _) = stripe.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }

    fn merged(&self) -> u64 {
        let turns = [1, 7, 12, 18];
        let lanes = self.lanes.iter().zip(turns);
        let mut hash = lanes.fold(0_u64, |sum, (lane, turn)| {
            sum.wrapping_add(lane.rotate_left(turn))
        });
        for lane in self.lanes {
            hash ^= round(0, lane);
            hash = hash.wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
        }
        hash
    }
}

#[inline]
const fn round(lane: u64, word: u64) -> u64 {
    rotated(lane.wrapping_add(word.wrapping_mul(PRIME_2)), 31)
}

/// Turned by `bits` and multiplied by the first prime, as three of the five steps do.
#[inline]
const fn rotated(hash: u64, bits: u32) -> u64 {
    hash.rotate_left(bits).wrapping_mul(PRIME_1)
}

#[inline]
const fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(PRIME_2);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIME_3);
    hash ^ hash >> 32
}

const STRIPE_BYTES: usize = 32;
const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_5: u64 = 0x27d4_eb2f_1656_67c5;

#[cfg(test)]
mod tests {
    use core::hash::Hasher;

    use twox_hash::XxHash64;

    use super::*;

    /// Goal: the function is XXH64, however the bytes are cut. Method: every length up to four
    /// stripes and two long ones, in pieces of every size up to a stripe, against an independent
    /// implementation.
    #[test]
    fn agrees_with_an_independent_implementation() {
        let bytes: [u8; 1500] = core::array::from_fn(|i| (i * 7 + i / 256) as u8);
        for length in (0..130).chain([1407, 1500]) {
            let mut reference = XxHash64::with_seed(length as u64);
            reference.write(&bytes[..length]);
            for piece in [1, 3, 8, 31, 32, 33, 1500] {
                let mut checksum = Checksum::new(length as u64);
                for part in bytes[..length].chunks(piece) {
                    checksum.update(part);
                }
                assert_eq!(
                    checksum.finish(),
                    reference.finish(),
                    "{length} bytes in pieces of {piece}"
                );
            }
        }
    }
}
