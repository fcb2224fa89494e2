//! The bucket of each key.
//!
//! Under skew the result depends on which popular keys share a worker, so the most popular keys
//! are placed exactly as in the authors' simulator: the bucket of rank r is 20 bits of the SHA-256
//! (FIPS 180-4) of r in decimal digits. All other keys, of which none matters by itself, are
//! placed by a cheaper function.

use std::sync::LazyLock;

use curtail_workload::mix;
use sha2::{Digest, Sha256};

/// Buckets of the store: partitions.
pub(crate) const BUCKETS: u32 = 1 << 20;

/// Buckets of the popular keys.
pub(crate) fn popular() -> &'static [u32] {
    static TABLE: LazyLock<Vec<u32>> = LazyLock::new(|| (0..POPULAR).map(of_digits).collect());
    &TABLE
}

/// The bucket of `rank`; `popular` is [`popular`].
#[inline]
pub(crate) fn bucket(popular: &[u32], rank: u64) -> u32 {
    match popular.get(rank as usize) {
        Some(bucket) => *bucket,
        None => mix(rank) as u32 % BUCKETS,
    }
}

fn of_digits(rank: u32) -> u32 {
    // The last 20 bits of the digest's first 224.
    let digest = Sha256::digest(rank.to_string().as_bytes());
    digest[24..28]
        .iter()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
        % BUCKETS
}

/// Ranks that are placed one by one.
const POPULAR: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// The three most popular keys are the workers' that the authors' simulator names.
    #[test]
    fn popular_keys_are_where_they_are_in_the_reference() {
        let owners = [0, 1, 2].map(|rank| bucket(popular(), rank) % 64);
        assert_eq!(owners, [58, 29, 46]);
    }
}
