//! Recorded operations and the checkers that judge them.
//!
//! A history is what clients saw: who asked what of which key, when, and what came back. The
//! checkers say whether one order of the operations explains all answers. Linearizable (Herlihy
//! and Wing, 1990): that order also respects real time, so that an operation that returned before
//! another was invoked comes before it. Sequentially consistent (Lamport, 1979): it respects each
//! client's own order only, and is judged where a store numbers its writes. Both are judged key by
//! key; for linearizability nothing is lost by that (it is local), for sequential consistency the
//! promise is per key, as in ccKVS.
//!
//! Nothing here reads a clock, sends anything or knows a server: the recorder supplies the
//! instants, and a simulator's virtual time serves as well as a real clock.
//!
//! ```text
//!   client 0  |--write 1--|
//!   client 1        |------read -> 1------|      explained: the write, then the read
//!   client 2                  |--read -> none--|  not explained: after the write, nothing deleted
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod linearizability;
mod minimal_violation;
mod record;
mod register;
mod sequential_consistency;
mod values_still_needed;

pub use linearizability::check_linearizable;
pub use minimal_violation::Violation;
pub use record::{Action, Entry, History, Outcome};
pub use sequential_consistency::{Numbered, Updates, check_agreed};

/// What a checker found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// One order of the operations of each key explains every answer.
    Consistent,
    /// No order does, for this key.
    Violation(Violation),
    /// The search ended before it found an order or had tried them all.
    TooHard {
        /// The key whose operations were too many or too concurrent.
        key: u64,
        /// Operations recorded for it.
        entries: usize,
    },
}
