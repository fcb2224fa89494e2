//! The memory of a table: words at a fixed address, reserved once, backed as they are touched.
//!
//! A table grows in place, so its array must never move. A region asks the operating system for
//! address space for the greatest size it may ever have, without any memory behind it; the kernel
//! supplies zeroed pages when a word is first written. Under Miri and loom, where there is no such
//! system call (and where an atomic must be constructed), it is an ordinary small allocation.
//!
//! ```text
//!   base                 touched so far                      words_max
//!   |####################|...................................|
//!    backed by memory     address space only, costs nothing
//! ```

use crate::sync::AtomicU64;

/// A fixed array of atomic words, all zero at first.
pub(crate) struct Region {
    memory: Memory,
}

impl Region {
    /// Reserves `words` words, aligned to a cache line; `huge_pages` asks for 2 MiB pages.
    pub(crate) fn new(words: usize, huge_pages: bool) -> std::io::Result<Self> {
        Ok(Self {
            memory: Memory::new(words.max(8), huge_pages)?,
        })
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }
}

#[cfg(any(loom, miri))]
struct Memory(Box<[AtomicU64]>);

#[cfg(any(loom, miri))]
impl Memory {
    fn new(words: usize, _huge_pages: bool) -> std::io::Result<Self> {
        Ok(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

#[cfg(not(any(loom, miri)))]
use mapped::Memory;

#[cfg(not(any(loom, miri)))]
mod mapped {
    use std::{io, ptr::NonNull};

    use crate::sync::AtomicU64;

    const HUGE_PAGE_BYTES: usize = 2 << 20;

    pub(super) struct Memory {
        // INVARIANT: `mapping_bytes` bytes at `mapping` are ours, readable and writable, until
        // drop; `first` and the `words` words after it lie inside, and are only ever accessed as
        // atomics.
        mapping: NonNull<libc::c_void>,
        mapping_bytes: usize,
        first: NonNull<AtomicU64>,
        words: usize,
    }

    // SAFETY: the memory is reached only through shared references to atomics.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(words: usize, huge_pages: bool) -> io::Result<Self> {
            let bytes = words.checked_mul(8).ok_or(io::ErrorKind::OutOfMemory)?;
            let mapping_bytes = bytes
                .checked_add(HUGE_PAGE_BYTES)
                .ok_or(io::ErrorKind::OutOfMemory)?;
            // SAFETY: a new anonymous mapping at an address of the kernel's choice.
            let address = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    mapping_bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if address == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let mapping = NonNull::new(address).ok_or(io::ErrorKind::OutOfMemory)?;
            // A huge page can only back an aligned 2 MiB of addresses.
            let skip = address.addr().next_multiple_of(HUGE_PAGE_BYTES) - address.addr();
            // SAFETY: `skip` is below HUGE_PAGE_BYTES, by which the mapping exceeds `bytes`.
            let first = unsafe { mapping.byte_add(skip) };
            if huge_pages {
                // Refusal (a kernel without huge pages) costs speed only, so it is not an error.
                // SAFETY: the range lies in our own fresh mapping.
                unsafe { libc::madvise(first.as_ptr(), bytes, libc::MADV_HUGEPAGE) };
            }
            Ok(Self {
                mapping,
                mapping_bytes,
                first: first.cast(),
                words,
            })
        }

        #[inline(always)]
        pub(super) fn words(&self) -> &[AtomicU64] {
            // SAFETY: see INVARIANT; zeroed memory is a valid AtomicU64, and 2 MiB alignment
            // is enough for it.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: see INVARIANT; nothing refers to the memory once its owner is dropped.
            unsafe { libc::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    /// Goal: a reservation is aligned and zero, and costs nothing where it is not touched.
    /// Method: reserve far more than the machine's memory, touch the first and last word.
    #[test]
    fn reserves_more_than_there_is() {
        let words = 1 << 37;
        let region = Region::new(words, false).unwrap();
        assert_eq!(region.words().as_ptr().addr() % (2 << 20), 0);
        for index in [0, words - 1] {
            assert_eq!(region.words()[index].load(Ordering::Relaxed), 0);
            region.words()[index].store(7, Ordering::Relaxed);
        }
    }
}
