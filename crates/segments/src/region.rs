//! The memory of all segments: words at a fixed address, reserved once, backed as they are touched.
//!
//! Item memory never moves and never goes back to the allocator, so a stale reference always
//! reads some word of ours: that is what "type-stable" means. The kernel supplies zeroed pages at
//! the first touch and takes them back on [`Region::release`]. Under Miri and loom, where there is
//! no such system call, a region is an ordinary small allocation.

use crate::sync::AtomicU64;

/// A fixed array of atomic words, all zero at first.
#[derive(Debug)]
pub(crate) struct Region {
    memory: Memory,
}

impl Region {
    /// Reserves `words` words at a multiple of 2 MiB; `huge_pages` asks for pages of that size.
    pub(crate) fn new(words: usize, huge_pages: bool) -> std::io::Result<Self> {
        Ok(Self {
            memory: Memory::new(words, huge_pages)?,
        })
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Gives the pages of `words` words from `first` on back; they read as zero afterwards.
    pub(crate) fn release(&self, first: usize, words: usize) {
        assert!(first + words <= self.words().len());
        self.memory.release(first, words);
    }

    /// The memory of `words[first..first + words]` as bytes.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn bytes(&self, first: usize, words: usize) -> *mut u8 {
        self.words()[first..first + words]
            .as_ptr()
            .cast_mut()
            .cast()
    }
}

#[cfg(any(loom, miri))]
#[derive(Debug)]
struct Memory(Box<[AtomicU64]>);

#[cfg(any(loom, miri))]
impl Memory {
    fn new(words: usize, _huge_pages: bool) -> std::io::Result<Self> {
        Ok(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn release(&self, first: usize, words: usize) {
        for word in &self.0[first..first + words] {
            word.store(0, crate::sync::Ordering::Relaxed);
        }
    }
}

#[cfg(not(any(loom, miri)))]
use mapped::Memory;

#[cfg(not(any(loom, miri)))]
mod mapped {
    use std::{io, ptr::NonNull};

    use crate::sync::AtomicU64;

    const HUGE_PAGE_BYTES: usize = 2 << 20;

    #[derive(Debug)]
    pub(super) struct Memory {
        // INVARIANT: `mapping_bytes` bytes at `mapping` are ours, readable and writable, until
        // drop; `first` and the `words` words after it lie inside.
        mapping: NonNull<libc::c_void>,
        mapping_bytes: usize,
        first: NonNull<AtomicU64>,
        words: usize,
    }

    // SAFETY: the memory is ours alone and is shared only as atomics, or as bytes under the
    // rules of `Segments::leased_bytes` and `Allocation`.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(words: usize, huge_pages: bool) -> io::Result<Self> {
            let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
            let bytes = words.checked_mul(8).ok_or_else(out_of_memory)?;
            let mapping_bytes = bytes
                .checked_add(HUGE_PAGE_BYTES)
                .ok_or_else(out_of_memory)?;
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
            let mapping = NonNull::new(address).ok_or_else(out_of_memory)?;
            let skip = address.addr().next_multiple_of(HUGE_PAGE_BYTES) - address.addr();
            // SAFETY: `skip` is below HUGE_PAGE_BYTES, by which the mapping exceeds `bytes`.
            let first = unsafe { mapping.byte_add(skip) };
            let advice = if huge_pages {
                libc::MADV_HUGEPAGE
            } else {
                libc::MADV_NOHUGEPAGE
            };
            // Refusal (a kernel without huge pages) costs speed only, so it is not an error.
            // SAFETY: the range lies in our own fresh mapping.
            unsafe { libc::madvise(first.as_ptr(), bytes, advice) };
            Ok(Self {
                mapping,
                mapping_bytes,
                first: first.cast(),
                words,
            })
        }

        #[inline(always)]
        pub(super) fn words(&self) -> &[AtomicU64] {
            // SAFETY: see INVARIANT; any bits are a valid AtomicU64, and 2 MiB alignment is
            // enough for it.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
        }

        pub(super) fn release(&self, first: usize, words: usize) {
            let address = self.words()[first..first + words].as_ptr();
            // SAFETY: the range lies in our mapping; its pages become zero pages, and any bits
            // are a valid AtomicU64. Refusal costs memory only.
            unsafe { libc::madvise(address.cast_mut().cast(), words * 8, libc::MADV_DONTNEED) };
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: see INVARIANT; nothing refers to the memory once its owner is dropped.
            unsafe { libc::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
        }
    }
}
