//! Inputs from a fixed seed for properties that must hold for every input, and the proof that the
//! harness would notice if one did not.

use std::panic::{self, AssertUnwindSafe};

/// A name, and what must hold.
type Property = (&'static str, fn(&[u8]));

/// Every property holds for `rounds` inputs each.
pub(crate) fn assert_all_hold(
    properties: &[Property],
    rounds: usize,
    invent: fn(&mut Random) -> Vec<u8>,
) {
    for (name, property) in properties {
        let mut random = Random(curtail_workload::Random::new(SEED));
        for round in 0..rounds {
            let input = invent(&mut random);
            let result = panic::catch_unwind(AssertUnwindSafe(|| property(&input)));
            assert!(
                result.is_ok(),
                "{name} fails in round {round} with {}",
                input.escape_ascii()
            );
        }
    }
}

/// `property`, which is false, fails for one of `rounds` inputs.
pub(crate) fn assert_noticed(
    property: fn(&[u8]),
    rounds: usize,
    invent: fn(&mut Random) -> Vec<u8>,
) {
    let mut random = Random(curtail_workload::Random::new(SEED));
    let found = (0..rounds).any(|_| {
        let input = invent(&mut random);
        panic::catch_unwind(AssertUnwindSafe(|| property(&input))).is_err()
    });
    assert!(found, "a planted failure went unnoticed");
}

/// Random numbers as lengths and indices.
pub(crate) struct Random(curtail_workload::Random);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }
}

const SEED: u64 = 92;
