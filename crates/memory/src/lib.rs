//! Address space that is reserved once and backed as it is used, for the table and the items.
//!
//! A table grows in place and items never move for the allocator's sake, so their arrays must stay
//! where they are. A region asks the operating system for address space for the greatest size it
//! may ever have, without any memory behind it; the kernel supplies zeroed pages at the first touch
//! and takes them back on [`Region::release`]. What is read there is always some word of ours,
//! however stale the reader's idea of it: the memory is "type-stable".
//!
//! ```text
//!   base            used so far        ready                    end
//!   |###############|==================|........................|
//!    memory          huge pages, zeroed  address space only, costs nothing
//! ```
//!
//! A random access in small pages waits for address translation as long as for the memory itself.
//! Huge pages avoid that, but the first touch of one costs milliseconds (2 MiB are zeroed, and a
//! virtual machine's host may have to find them first), which a thread with clients cannot give.
//! So the region asks for huge pages only where [`Region::supply`] is about to touch them, ahead of
//! use and from a thread that nobody waits for; a thread that overtakes it gets small pages, a few
//! microseconds each, and loses nothing else.
//!
//! Under Miri and loom, where there is no such system call, a region is an ordinary small
//! allocation.

mod lazy_word_array;
pub mod prefetch;
mod region;
mod sync;

pub use lazy_word_array::zeros;
pub use region::{Pages, Region};
