//! Checks that every state can reach an end: a cluster that cycles for ever is as stuck as one that
//! stops.
//!
//! While a search goes on, its steps are kept; afterwards they are walked backwards from the ends.
//! What is not reached that way is a state from which nothing leads to an end.

use std::collections::HashMap;
use std::mem;

use foldhash::fast::FixedState;

/// The steps of a search, as long as there are not too many.
pub(super) struct Ends {
    /// By the number of a state: its fingerprint.
    states: Vec<u64>,
    /// Numbers of states, and the fingerprints of those that a step leads to.
    from: Vec<u32>,
    to: Vec<u64>,
    /// States where it ends as it should.
    ends: Vec<u32>,
    steps_max: usize,
    is_full: bool,
}

impl Ends {
    pub(super) fn new(steps_max: usize) -> Self {
        Self {
            states: Vec::new(),
            from: Vec::new(),
            to: Vec::new(),
            ends: Vec::new(),
            steps_max,
            is_full: steps_max == 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn add_state(&mut self, fingerprint: u64) {
        if !self.is_full {
            self.states.push(fingerprint);
        }
    }

    pub(super) fn add_end(&mut self, number: u32) {
        if !self.is_full {
            self.ends.push(number);
        }
    }

    pub(super) fn add_steps(&mut self, steps: &[(u32, u64)]) {
        if self.from.len() + steps.len() > self.steps_max {
            *self = Self::new(0);
        }
        if !self.is_full {
            self.from.extend(steps.iter().map(|step| step.0));
            self.to.extend(steps.iter().map(|step| step.1));
        }
    }

    /// A state nearest to the start that has no way to an end; none if the steps were too many to
    /// be kept.
    pub(super) fn first_without(self) -> Option<u32> {
        let mut reaches = vec![self.is_full; self.states.len()];
        for end in self.ends {
            reaches[end as usize] = true;
        }
        let numbered = self.states.iter().enumerate();
        let numbers: HashMap<u64, u32, FixedState> = numbered
            .map(|(number, state)| (*state, number as u32))
            .collect();
        let targets: Vec<u32> = self.to.iter().map(|to| numbers[to]).collect();
        drop(numbers);
        // Nearly all steps lead away from the start, so that one walk finds nearly all.
        let mut goes_on = true;
        while mem::take(&mut goes_on) {
            for (from, to) in self.from.iter().zip(&targets).rev() {
                if reaches[*to as usize] && !reaches[*from as usize] {
                    reaches[*from as usize] = true;
                    goes_on = true;
                }
            }
        }
        let first = reaches.iter().position(|reaches| !reaches)?;
        Some(first as u32)
    }
}
