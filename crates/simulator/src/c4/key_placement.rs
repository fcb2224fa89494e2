//! Which bucket a key is in.
//!
//! Under skew the result depends on which popular keys share a worker, so the most popular keys
//! are placed exactly as in the authors' simulator: the bucket of rank r is 20 bits of the SHA-256
//! (FIPS 180-4) of r in decimal digits. All other keys, of which none matters by itself, are
//! placed by a cheaper function.

use std::sync::LazyLock;

use curtail_workload::mix;

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
    sha256(rank.to_string().as_bytes())[6] % BUCKETS
}

/// The digest of a message that fits in one block, as words.
fn sha256(message: &[u8]) -> [u32; 8] {
    assert!(message.len() <= 55);
    let mut block = [0_u8; 64];
    block[..message.len()].copy_from_slice(message);
    block[message.len()] = 0x80;
    block[62..].copy_from_slice(&(message.len() as u16 * 8).to_be_bytes());
    let mut schedule = [0_u32; 64];
    for (word, bytes) in schedule.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for index in 16..64 {
        let (two, fifteen) = (schedule[index - 2], schedule[index - 15]);
        let small0 = fifteen.rotate_right(7) ^ fifteen.rotate_right(18) ^ (fifteen >> 3);
        let small1 = two.rotate_right(17) ^ two.rotate_right(19) ^ (two >> 10);
        schedule[index] = schedule[index - 16]
            .wrapping_add(small0)
            .wrapping_add(schedule[index - 7])
            .wrapping_add(small1);
    }
    let start: [u32; 8] = std::array::from_fn(|index| fraction(f64::from(PRIMES[index]).sqrt()));
    let mut state = start;
    for (word, prime) in schedule.into_iter().zip(PRIMES) {
        round(
            &mut state,
            word.wrapping_add(fraction(f64::from(prime).cbrt())),
        );
    }
    std::array::from_fn(|index| start[index].wrapping_add(state[index]))
}

fn round(state: &mut [u32; 8], word: u32) {
    let [a, b, c, d, e, f, g, h] = *state;
    let big1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
    let choice = (e & f) ^ (!e & g);
    let first = h.wrapping_add(big1).wrapping_add(choice).wrapping_add(word);
    let big0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
    let majority = (a & b) ^ (a & c) ^ (b & c);
    let second = big0.wrapping_add(majority);
    *state = [
        first.wrapping_add(second),
        a,
        b,
        c,
        d.wrapping_add(first),
        e,
        f,
        g,
    ];
}

/// The first 32 bits behind the point. The standard's constants are these of the primes' square
/// and cube roots; a double has 53 bits, of which a root's whole part needs 5.
fn fraction(root: f64) -> u32 {
    (root.fract() * 4_294_967_296.0) as u32
}

/// The first 64 primes.
const PRIMES: [u16; 64] = {
    let mut primes = [0; 64];
    let (mut found, mut number) = (0, 2);
    while found < 64 {
        let mut index = 0;
        while index < found && number % primes[index] != 0 {
            index += 1;
        }
        if index == found {
            primes[found] = number;
            found += 1;
        }
        number += 1;
    }
    primes
};

/// Ranks that are placed one by one.
const POPULAR: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard's example.
    #[test]
    fn the_digest_is_sha256() {
        let digest = [
            0xba78_16bf,
            0x8f01_cfea,
            0x4141_40de,
            0x5dae_2223,
            0xb003_61a3,
            0x9617_7a9c,
            0xb410_ff61,
            0xf200_15ad,
        ];
        assert_eq!(sha256(b"abc"), digest);
    }

    /// The three most popular keys are the workers' that the authors' simulator names.
    #[test]
    fn popular_keys_are_where_they_are_in_the_reference() {
        let owners = [0, 1, 2].map(|rank| bucket(popular(), rank) % 64);
        assert_eq!(owners, [58, 29, 46]);
    }
}
