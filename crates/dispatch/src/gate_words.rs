//! A word for each slice of a node's keys: which requests may run beside the slice's machine.
//!
//! Only the worker that owns the machine changes a word. A reader looks at it before and after it
//! copies an item, so what it shows was there while readers might pass:
//!
//! ```text
//!   reader                            machine, for a write
//!   seen = look(slice)   passable     set(slice, closed)
//!   copy the item                     change the item
//!   is_as(slice, seen)?  no: ask the machine
//! ```
//!
//! Invariant: a word never comes again, so one that is the same has not changed.

use alloc::boxed::Box;

use crate::sync::{AtomicU64, Ordering, fence};

/// The words of all slices of a node.
#[derive(Debug)]
pub struct GateWords(Box<[AtomicU64]>);

/// What was seen of a slice's word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SeenGate {
    word: u64,
}

const STATE_MASK: u64 = 3;
const CHANGE: u64 = 4;

impl GateWords {
    /// So many slices, each in state 0.
    pub fn new(slices: usize) -> Self {
        Self((0..slices).map(|_| AtomicU64::new(0)).collect())
    }

    /// The present state of a slice; of one that there is not it is 0.
    #[inline]
    pub fn look(&self, slice: u16) -> SeenGate {
        let word = self.word(slice);
        // Pairs with the Release in `set`: a thread that sees a state sees what was done before.
        let word = word.map_or(0, |word| word.load(Ordering::Acquire));
        SeenGate { word }
    }

    /// Whether a word has not changed since.
    #[inline]
    pub fn is_as(&self, slice: u16, seen: SeenGate) -> bool {
        // Pairs with the fence in `set`: if what was copied is newer, so is the word.
        fence(Ordering::Acquire);
        let word = self.word(slice).map(|word| word.load(Ordering::Relaxed));
        word == Some(seen.word)
    }

    /// Changes a state, of 0 to 3. One thread alone changes a slice's.
    pub fn set(&self, slice: u16, state: u8) {
        if let Some(word) = self.word(slice) {
            let before = word.load(Ordering::Relaxed);
            let next = (before & !STATE_MASK).wrapping_add(CHANGE) | u64::from(state) & STATE_MASK;
            // Pairs with the Acquire in `look`.
            word.store(next, Ordering::Release);
            // Items change after this: pairs with the fence in `is_as`.
            fence(Ordering::Release);
        }
    }

    #[inline]
    fn word(&self, slice: u16) -> Option<&AtomicU64> {
        self.0.get(usize::from(slice))
    }
}

impl SeenGate {
    /// The state that was set.
    #[inline]
    pub const fn state(self) -> u8 {
        (self.word & STATE_MASK) as u8
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_was_left_and_came_again_is_another() {
        let words = GateWords::new(4);
        assert_eq!(words.look(3).state(), 0);
        words.set(3, 1);
        let seen = words.look(3);
        assert!(words.is_as(3, seen) && seen.state() == 1);
        words.set(3, 0);
        words.set(3, 1);
        assert!(!words.is_as(3, seen));
        assert_eq!(words.look(9).state(), 0);
    }
}
