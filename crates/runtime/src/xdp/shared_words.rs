//! Memory shared with other processes or the kernel, as atomic words: a mapped BPF array or file.
//!
//! Who else writes it, another process or the kernel's program, does so in whole words, so that
//! atomics are all that is needed to read it safely. Nothing here says what the words mean.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

use crate::sync::AtomicU64;

/// A shared mapping; unmapped when dropped.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    words: usize,
}

impl SharedWords {
    /// Maps the first `words` words of a file or BPF array, which must be that long. All pages are
    /// there when it returns, so that none is missed later.
    pub fn map(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<AtomicU64>();
        // SAFETY: a new shared mapping at an address that the kernel chooses touches no memory that
        // anybody has; the descriptor is borrowed, so open.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { start, words }),
            None => Err(io::Error::other("mapped at address 0")),
        }
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many words, is aligned to pages, lives as long as `self`,
        // and any bytes are a valid AtomicU64.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<AtomicU64>();
        // SAFETY: this range was mapped by `map` and nobody borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), bytes) };
    }
}

// SAFETY: the words are atomics, and the mapping belongs to the process, not to a thread.
unsafe impl Send for SharedWords {}
// SAFETY: all access is through atomics.
unsafe impl Sync for SharedWords {}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::sync::Ordering;

    /// Two mappings of a file show each other's words, and they are in the file.
    #[test]
    fn two_mappings_share_their_words() {
        let path = std::env::temp_dir().join(format!("curtail-words-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(8 * 1000).unwrap();
        let one = SharedWords::map(file.as_fd(), 1000).unwrap();
        let other = SharedWords::map(file.as_fd(), 1000).unwrap();
        one.words()[999].store(7, Ordering::Relaxed);
        assert_eq!(other.words()[999].load(Ordering::Relaxed), 7);
        drop((one, other));
        assert_eq!(std::fs::read(&path).unwrap()[999 * 8], 7);
        std::fs::remove_file(&path).unwrap();
    }
}
