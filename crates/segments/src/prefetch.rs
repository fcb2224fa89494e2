//! Asking the processor for memory before it is needed.
//!
//! Items are found by random references, so each is a miss; a batch of prefetches has them under
//! way at once. A prefetch never faults and never changes what a program computes.

use crate::sync::AtomicU64;

/// Words from one cache line to the next.
const LINE_WORDS: usize = 8;

/// Asks for the line of the first word and the one after it, where small items lie.
#[inline(always)]
pub(crate) fn prefetch(words: &[AtomicU64]) {
    for word in [words.first(), words.get(LINE_WORDS)].into_iter().flatten() {
        prefetch_line(word);
    }
}

/// Asks for the lines after those that [`prefetch`] asked for.
#[inline]
pub(crate) fn prefetch_rest(words: &[AtomicU64]) {
    for word in words.iter().step_by(LINE_WORDS).skip(2) {
        prefetch_line(word);
    }
}

#[inline(always)]
fn prefetch_line(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching has no effect but on the cache, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
    {
        let address = std::ptr::from_ref(word);
        // SAFETY: `prfm` has no effect but on the cache, whatever the address.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, loom))]
    let _ = word;
}
