//! Zipf's law against exact probabilities.

use super::*;
use crate::{random::Random, zipf_sampler::Bins};

/// How far drawn ranks are from the exact probabilities.
///
/// Ranks are gathered into bins of about equal probability, but at least a rank each. The result
/// is chi-square over the bins, in standard deviations from its mean: below 5 for a correct
/// generator but once in a million seeds.
fn deviation(count: u64, exponent: f64, draws: u32, mut draw: impl FnMut() -> u64) -> f64 {
    let total = harmonic(count, exponent);
    let ends = bin_ends(count, exponent);
    let mut seen = vec![0_u32; ends.len()];
    for _ in 0..draws {
        let rank = draw();
        assert!(rank < count, "rank {rank} of {count}");
        seen[ends.partition_point(|&end| end <= rank)] += 1;
    }
    let mut below = 0.0;
    let mut chi_square = 0.0;
    for (&end, &seen) in ends.iter().zip(&seen) {
        let upto = harmonic(end, exponent);
        let expected = (upto - below) / total * f64::from(draws);
        below = upto;
        chi_square += (f64::from(seen) - expected).powi(2) / expected;
    }
    let freedom = (ends.len() - 1) as f64;
    if freedom == 0.0 {
        return 0.0;
    }
    (chi_square - freedom) / (2.0 * freedom).sqrt()
}

/// Where bins of at least 1/64 of the probability end (exclusive), the last with what is left.
fn bin_ends(count: u64, exponent: f64) -> Vec<u64> {
    let total = harmonic(count, exponent);
    let mut ends = Vec::new();
    let mut below = 0.0;
    while ends.last() != Some(&count) {
        let from = ends.last().copied().unwrap_or(0);
        let enough = |end: u64| harmonic(end, exponent) - below >= total / 64.0;
        let (mut low, mut high) = (from + 1, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if enough(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        below = harmonic(low, exponent);
        ends.push(low);
    }
    if ends.len() > 1
        && harmonic(count, exponent) - harmonic(ends[ends.len() - 2], exponent) < total / 1000.0
    {
        ends.remove(ends.len() - 2);
    }
    ends
}

/// Goal: ranks have Zipf's probabilities for every exponent and size that is promised. Method:
/// chi-square of 60,000 draws over up to 64 bins, for 13 exponents (either side of 1, and 1) and 9
/// sizes up to 10^10, some around the bins' edges; tolerance 5 standard deviations.
#[test]
fn ranks_have_the_exact_probabilities() {
    for exponent in EXPONENTS {
        for count in [1, 2, 10, 256, 300, 1000, 20_000, 1_600_000, 10_000_000_000] {
            let bins = Bins::new(count, exponent);
            let mut random = Random::new(count ^ exponent.to_bits());
            let far = deviation(count, exponent, 60_000, || bins.rank(&mut random));
            assert!(far < 5.0, "{far} with exponent {exponent}, {count} keys");
        }
    }
}

/// Goal: the test above can fail. Method: exponents and ranks a little off are found out.
#[test]
fn wrong_probabilities_are_found_out() {
    let mut random = Random::new(2);
    let near = Bins::new(1000, 0.95);
    let far = deviation(1000, 0.99, 60_000, || near.rank(&mut random));
    assert!(far > 5.0, "exponent 0.95 passed for 0.99: {far}");
    let shifted = Bins::new(999, 0.99);
    let far = deviation(1000, 0.99, 60_000, || shifted.rank(&mut random) + 1);
    assert!(far > 5.0, "ranks shifted by one passed: {far}");
}

/// Goal: the formula for sums agrees with adding up. Method: 200,000 terms one by one.
#[test]
fn harmonic_numbers_are_the_sums() {
    for exponent in EXPONENTS {
        let sum: f64 = (1..=200_000_u64).rev().map(|r| term(r, exponent)).sum();
        let far = (harmonic(200_000, exponent) - sum).abs() / sum;
        assert!(far < 1e-12, "{far} with exponent {exponent}");
    }
    assert_eq!(harmonic(1, 0.99), 1.0);
    assert_eq!(harmonic(0, 0.99), 0.0);
}

/// Goal: shares that others computed come out. Method: 10^10 keys at 0.99 (the hottest key and the
/// top 1 K, 10 K and 100 K), 250 M keys with 250 K cached at three exponents.
#[test]
fn shares_of_the_top_are_the_published_ones() {
    let of_1e10 = |top| top_share(top, 10_000_000_000, 0.99);
    assert!((of_1e10(1) - 0.0378).abs() < 5e-5);
    assert!((of_1e10(1_000) - 0.292).abs() < 5e-4);
    assert!((of_1e10(10_000) - 0.386).abs() < 5e-4);
    assert!((of_1e10(100_000) - 0.483).abs() < 5e-4);
    for (exponent, share) in [(0.90, 0.422), (0.99, 0.630), (1.01, 0.675)] {
        let found = top_share(250_000, 250_000_000, exponent);
        assert!((found - share).abs() < 5e-4, "{found} at {exponent}");
    }
}

const EXPONENTS: [f64; 13] = [
    0.0,
    0.3048,
    0.5,
    0.9,
    0.99,
    0.999_9,
    1.0,
    1.000_000_1,
    1.01,
    1.25,
    1.4,
    2.0,
    2.7,
];
