//! The seal of a datagram: what vouches for its bytes.
//!
//! Clients' requests and replies carry a checksum (XXH64): it finds damage, not forgery, as in the
//! native protocol. Messages between nodes decide what readers see, so theirs is a keyed hash
//! under the cluster's secret: SipHash of the head before the seal and of the SipHash of the rest.
//! A forger has 2^-64 for each datagram. [`ReplayWindow`] refuses what was sent before.
//!
//! [`ReplayWindow`]: super::ReplayWindow

use curtail_types::HashSeed;
use twox_hash::XxHash64;

use core::hash::Hasher as _;

/// What nodes of a cluster share; clients do not have it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TierSecret(pub HashSeed);

/// Bytes before the seal.
const HEAD_BYTES: usize = 16;
/// Where it ends.
const REST_AT: usize = HEAD_BYTES + 8;

/// The checksum of a datagram of a client, or to one; `None` if it is too short to have one.
pub(super) fn checksum(datagram: &[u8]) -> Option<u64> {
    let (head, rest) = parts(datagram)?;
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(head);
    hasher.write(rest);
    Some(hasher.finish())
}

/// The keyed hash of a datagram between nodes.
pub(super) fn keyed(datagram: &[u8], secret: &TierSecret) -> Option<u64> {
    let (head, rest) = parts(datagram)?;
    let mut outer = [0; HEAD_BYTES + 8];
    let inner = secret.0.hash(rest).0.to_le_bytes();
    for (byte, from) in outer.iter_mut().zip(head.iter().chain(&inner)) {
        *byte = *from;
    }
    Some(secret.0.hash(&outer).0)
}

fn parts(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    Some((datagram.get(..HEAD_BYTES)?, datagram.get(REST_AT..)?))
}
