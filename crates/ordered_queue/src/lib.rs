//! The Ordered Queue: a write is acknowledged when it has its place in the order, and executed
//! later, exactly once; every read still sees it.
//!
//! Juneberry (NSDI 2025). There the receive queue of a network card orders the writes; here words
//! of memory do, which a program in the kernel's receive path and threads of a process may share.
//! Nothing here owns memory, reads a clock or sends: the words are lent (`&[AtomicU64]`: a mapped
//! BPF array or a boxed slice), and what is to be answered is returned.
//!
//! ```text
//!  Ingress::admit                                                      a worker with the lease
//!   check -> claim -> reserve -> fill -> publish -> raise -> commit -> (acknowledge)
//!            |        |                  |          |        |              Turn::run: in order,
//!            session  tail < head + N    commit     stamp    session        stop at a hole,
//!            word                        word       word     word           then move head
//! ```
//!
//! Invariants. *Rule 1*: nothing is acknowledged before it is published, stamped and committed
//! (JB-7, JB-36). *Rule 2*: entries are executed in the order of their positions, by the one holder
//! of the queue's lease, and a hole is waited for, never skipped (JB-8, JB-10). A position is a
//! 64-bit number that is never used again, and the commit word holds it, so that an entry of an
//! earlier lap never looks published (JB-22, JB-33). A request that is sent again finds the
//! session word claimed or committed and takes no second place (JB-46). A read takes the stamp of
//! its bucket and is served when head has reached it (JB-40).
//!
//! Beside the paper's rules two things are decided here. A higher sequence number does not take
//! over a slot in which a claim is under way, it is dropped and sent again: so a claim is
//! exclusive, and a refused one leaves the word *open* at its number. And a forwarded value is
//! checked against tail after copying, since the commit word of a slot does not change while the
//! next lap's entry is written into it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admission;
mod bucket_stamps;
mod doorbell;
mod early_limit;
mod entry;
pub mod layout;
mod lease;
mod parked_until_executed;
mod queue;
mod recovery;
mod sessions;
mod sync;
mod turn;

pub use admission::{Arrival, Ingress, Verdict};
pub use bucket_stamps::Stamps;
pub use doorbell::{BellListener, before_looking_again};
pub use early_limit::{EarlyLimits, ExecutionTime};
pub use entry::{EntryKind, QueueEntry};
pub use lease::{Peek, QueueLease};
pub use parked_until_executed::Parked;
pub use queue::{Backlog, Forward, OpenError, OrderedQueue, QueueReservation, QueueState};
pub use recovery::{Recovered, recover};
pub use sessions::{
    Claim, ClaimTicket, GrantError, Peer, SessionLimits, SessionName, Sessions, SlotState, WAYS,
};
pub use turn::{Drained, TURN_MAX, Turn, TurnEnd, TurnStep};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
