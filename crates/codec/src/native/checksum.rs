//! The checksum of a frame: XXH64 (Yann Collet's xxHash, the 64-bit variant), over bytes that
//! arrive in pieces.
//!
//! It vouches for the bytes between the client's memory and the store's (JB-19, JB-38); it is no
//! defence against forgery, tokens are. XXH64 was taken because it needs nothing but 64-bit
//! multiplication, so that the XDP program can compute it as well, and is known to
//! every language that a client may be written in.

use core::hash::Hasher as _;

use twox_hash::XxHash64;

/// XXH64 in the making; how the bytes are cut does not matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Checksum(XxHash64);

impl Checksum {
    /// The checksum of nothing under `seed`; of a frame, the seed is word 0 of its header.
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Self(XxHash64::with_seed(seed))
    }

    /// Takes in the next bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of what was taken in.
    #[inline]
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}
