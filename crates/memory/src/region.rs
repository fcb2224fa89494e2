//! The region: a fixed array of atomic words, and the pages behind it.

use std::io;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// What pages a region asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pages {
    /// Small ones.
    Small,
    /// Huge ones (2 MiB), wherever it is touched first.
    Huge,
    /// Huge ones, where [`Region::supply`] has been; small ones elsewhere.
    HugeAhead,
}

/// A fixed array of atomic words, all zero at first, at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    pages: Pages,
    /// Words from the start on that have been supplied or overtaken.
    ready: AtomicUsize,
    /// How often released words were told to get small pages.
    pieces: AtomicUsize,
}

/// Words of a huge page.
const HUGE_PAGE_WORDS: usize = HUGE_PAGE_BYTES / 8;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Released words that are told to get small pages: each may cut a mapping in three, of which Linux
/// gives a process 65,530 unless told, and refuses memory to all of it beyond that.
const PIECES_MAX: usize = if cfg!(test) { 64 } else { 1 << 14 };
/// Words of a small page; those that are larger are only touched more often than needed.
const PAGE_WORDS: usize = 4096 / 8;

impl Region {
    /// Reserves `words` words, at least one cache line.
    ///
    /// # Errors
    /// What the operating system says when it gives no address space.
    pub fn new(words: usize, pages: Pages) -> io::Result<Self> {
        let memory = Memory::new(words.max(8))?;
        match pages {
            Pages::Small | Pages::HugeAhead => memory.advise(0, memory.words().len(), false),
            Pages::Huge => memory.advise(0, memory.words().len(), true),
        }
        Ok(Self {
            memory,
            pages,
            ready: AtomicUsize::new(0),
            pieces: AtomicUsize::new(0),
        })
    }

    /// All words.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Gives the pages of `words` words from `first` on back; they read as zero afterwards.
    pub fn release(&self, first: usize, words: usize) {
        assert!(first + words <= self.words().len());
        self.memory.release(first, words);
        let is_huge = self.pages == Pages::HugeAhead;
        if is_huge && self.pieces.fetch_add(1, Ordering::Relaxed) < PIECES_MAX {
            // Who uses them again must not wait for a huge page.
            self.memory.advise(first, words, false);
        }
    }

    /// Whether [`Region::supply`] with the same arguments has something to do.
    #[inline]
    pub fn is_short(&self, used: usize, ahead: usize) -> bool {
        // Relaxed: a hint.
        self.pages == Pages::HugeAhead
            && self.ready.load(Ordering::Relaxed) < self.goal(used, ahead)
    }

    /// Backs the next 2 MiB with a huge page, so that memory is ready for `ahead` words more than
    /// the `used` from the start on; whether there is more to do. May take milliseconds. One thread
    /// at a time does this; others use the words meanwhile, these too.
    pub fn supply(&self, used: usize, ahead: usize) -> bool {
        if !self.is_short(used, ahead) {
            return false;
        }
        // Relaxed: of the calling thread alone.
        let ready = self.ready.load(Ordering::Relaxed);
        // Where small pages are already, a huge one would not come; at first there are none.
        let start = match ready {
            0 => 0,
            _ => ready.max(used.next_multiple_of(HUGE_PAGE_WORDS)),
        };
        let end = start + HUGE_PAGE_WORDS;
        if let Some(page) = self.words().get(start..end) {
            self.memory.advise(start, HUGE_PAGE_WORDS, true);
            for word in page.iter().step_by(PAGE_WORDS) {
                // A write that changes nothing, even if another thread writes.
                let _ = word.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        self.ready.store(end, Ordering::Relaxed);
        self.is_short(used, ahead)
    }

    /// Up to where memory should be ready: whole huge pages only.
    #[inline]
    fn goal(&self, used: usize, ahead: usize) -> usize {
        let wanted = used.saturating_add(ahead).min(self.words().len());
        wanted / HUGE_PAGE_WORDS * HUGE_PAGE_WORDS
    }
}

#[cfg(any(loom, miri))]
#[derive(Debug)]
struct Memory(Box<[AtomicU64]>);

#[cfg(any(loom, miri))]
impl Memory {
    fn new(words: usize) -> io::Result<Self> {
        Ok(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn advise(&self, _first: usize, _words: usize, _huge: bool) {}

    fn release(&self, first: usize, words: usize) {
        for word in &self.0[first..first + words] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(not(any(loom, miri)))]
use mapped::Memory;

#[cfg(not(any(loom, miri)))]
mod mapped {
    use std::{io, ptr::NonNull};

    use super::HUGE_PAGE_BYTES;
    use crate::sync::AtomicU64;

    #[derive(Debug)]
    pub(super) struct Memory {
        // INVARIANT: `mapping_bytes` bytes at `mapping` are ours, readable and writable, until
        // drop; `first` and the `words` words after it lie inside.
        mapping: NonNull<libc::c_void>,
        mapping_bytes: usize,
        first: NonNull<AtomicU64>,
        words: usize,
    }

    // SAFETY: the memory is ours alone and is shared only as atomics, or as bytes under rules that
    // its owner keeps.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(words: usize) -> io::Result<Self> {
            let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
            let bytes = words.checked_mul(8).ok_or_else(out_of_memory)?;
            // A huge page can only back an aligned 2 MiB of addresses.
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
                return Err(refused(io::Error::last_os_error(), mapping_bytes));
            }
            let mapping = NonNull::new(address).ok_or_else(out_of_memory)?;
            let skip = address.addr().next_multiple_of(HUGE_PAGE_BYTES) - address.addr();
            // SAFETY: `skip` is below HUGE_PAGE_BYTES, by which the mapping exceeds `bytes`.
            let first = unsafe { mapping.byte_add(skip) };
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

        /// Says what pages should back these words from now on. A kernel without huge pages
        /// refuses, which costs speed only.
        pub(super) fn advise(&self, first: usize, words: usize, huge: bool) {
            let advice = if huge {
                libc::MADV_HUGEPAGE
            } else {
                libc::MADV_NOHUGEPAGE
            };
            self.madvise(first, words, advice);
        }

        pub(super) fn release(&self, first: usize, words: usize) {
            self.madvise(first, words, libc::MADV_DONTNEED);
        }

        fn madvise(&self, first: usize, words: usize, advice: libc::c_int) {
            let range = &self.words()[first..first + words];
            let address = range.as_ptr().cast_mut().cast();
            // SAFETY: the range lies in our mapping. At most its pages become zero pages, and any
            // bits are a valid AtomicU64. Refusal costs memory or speed only.
            unsafe { libc::madvise(address, size_of_val(range), advice) };
        }
    }

    /// What the operating system says, with the limit that is to blame.
    #[cold]
    fn refused(error: io::Error, bytes: usize) -> io::Error {
        if error.kind() != io::ErrorKind::OutOfMemory {
            return error;
        }
        let mut limit = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: `limit` is ours to be filled; a failure leaves it as it is.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        let cause = if limit.rlim_cur != libc::RLIM_INFINITY {
            let mib = limit.rlim_cur >> 20;
            format!("the process may have {mib} MiB in all (RLIMIT_AS, ulimit -v)")
        } else if overcommit.is_ok_and(|mode| mode.trim() == "2") {
            "the kernel reserves only what it could supply (vm.overcommit_memory is 2; 0 and 1 \
             let a process reserve more)"
                .to_owned()
        } else {
            error.to_string()
        };
        let mib = bytes >> 20;
        let text = format!("{mib} MiB of address space were refused: {cause}");
        io::Error::new(io::ErrorKind::OutOfMemory, text)
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

    fn load(region: &Region, index: usize) -> u64 {
        region.words()[index].load(Ordering::Relaxed)
    }

    /// Goal: a reservation is aligned and zero, and costs nothing where it is not touched.
    /// Method: reserve far more than the machine's memory, touch the first and last word.
    #[test]
    fn reserves_more_than_there_is() {
        let words = 1 << 37;
        let region = Region::new(words, Pages::Small).unwrap();
        assert_eq!(region.words().as_ptr().addr() % HUGE_PAGE_BYTES, 0);
        for index in [0, words - 1] {
            assert_eq!(load(&region, index), 0);
            region.words()[index].store(7, Ordering::Relaxed);
        }
    }

    /// Goal: supplying runs ahead of use to the end, a page a call, and changes no word. Method:
    /// words already written, a region that ends inside a page, a user who overtakes.
    #[test]
    fn memory_is_supplied_ahead_and_stays_what_it_is() {
        let words = 5 * HUGE_PAGE_WORDS + 100;
        let region = Region::new(words, Pages::HugeAhead).unwrap();
        for index in (0..words).step_by(999) {
            region.words()[index].store(index as u64, Ordering::Relaxed);
        }
        assert!(!region.is_short(0, HUGE_PAGE_WORDS - 1));
        let ahead = 2 * HUGE_PAGE_WORDS;
        assert!(region.is_short(0, ahead));
        assert!(region.supply(0, ahead));
        assert!(!region.supply(0, ahead));
        assert!(!region.is_short(0, ahead));
        // Three pages were used meanwhile, and 1 word of the fourth.
        assert!(!region.supply(3 * HUGE_PAGE_WORDS + 1, ahead));
        assert!(!region.supply(words, ahead));
        for index in (0..words).step_by(999) {
            assert_eq!(load(&region, index), index as u64);
        }
    }

    #[test]
    fn released_words_are_zero_and_usable() {
        let region = Region::new(4 * HUGE_PAGE_WORDS, Pages::HugeAhead).unwrap();
        while region.supply(0, usize::MAX) {}
        region.words()[HUGE_PAGE_WORDS].store(7, Ordering::Relaxed);
        region.release(HUGE_PAGE_WORDS, PAGE_WORDS);
        assert_eq!(load(&region, HUGE_PAGE_WORDS), 0);
        region.words()[HUGE_PAGE_WORDS].store(8, Ordering::Relaxed);
        assert_eq!(load(&region, HUGE_PAGE_WORDS), 8);
    }

    #[test]
    fn a_region_of_one_kind_of_page_is_never_short() {
        for pages in [Pages::Small, Pages::Huge] {
            let region = Region::new(HUGE_PAGE_WORDS, pages).unwrap();
            assert!(!region.is_short(0, usize::MAX));
            assert!(!region.supply(0, usize::MAX));
        }
    }

    /// Goal: released words do not take all mappings that a process may have. The story: of a large
    /// memory whose limit was lowered each segment became a mapping. Method: every other page of a
    /// region is released.
    #[test]
    #[cfg(target_os = "linux")]
    fn releases_take_a_bounded_number_of_mappings() {
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
        let region = Region::new(16 * HUGE_PAGE_WORDS, Pages::HugeAhead).unwrap();
        while region.supply(0, usize::MAX) {}
        let before = maps().lines().count();
        for page in (0..16 * HUGE_PAGE_WORDS / PAGE_WORDS).step_by(2) {
            region.release(page * PAGE_WORDS, PAGE_WORDS);
        }
        let more = maps().lines().count().saturating_sub(before);
        assert!(more < 4 * PIECES_MAX, "{more} more mappings");
    }
}
