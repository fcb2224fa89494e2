//! Inputs from a fixed seed for properties that must hold for every input, and the proof that the
//! harness would notice if one did not.

use std::panic::{self, AssertUnwindSafe};

/// A name, and what must hold.
type Property = (&'static str, fn(&[u8]));

/// Every property holds for `rounds` inputs each, and the harness finds what is there to be found:
/// `canary`, which is false, fails for one of them.
pub(crate) fn check(
    properties: &[Property],
    canary: fn(&[u8]),
    rounds: usize,
    invent: fn(&mut Random) -> Vec<u8>,
) {
    let failing = |property: fn(&[u8])| {
        let mut random = Random(curtail_workload::Random::new(SEED));
        let mut inputs = (0..rounds).map(|_| invent(&mut random));
        inputs.find(|input| panic::catch_unwind(AssertUnwindSafe(|| property(input))).is_err())
    };
    for (name, property) in properties {
        let input = failing(*property).map(|input| input.escape_ascii().to_string());
        assert_eq!(input, None, "{name} fails");
    }
    assert!(
        failing(canary).is_some(),
        "a planted failure went unnoticed"
    );
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
