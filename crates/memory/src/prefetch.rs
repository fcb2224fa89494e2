//! Prefetches a cache line before it is needed.
//!
//! A table of millions of items misses the cache on every line it touches, so the only way to be
//! fast is to have many misses under way at once (cuckoo paper, section 3.4.3.1 "prefetch"). A
//! prefetch never faults and never changes what a program computes.

/// Asks for the cache line that holds `target`.
#[inline(always)]
pub fn prefetch<T>(target: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching has no effect but on the cache, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(target.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
    {
        // SAFETY: `prfm` has no effect but on the cache, whatever the address.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) target,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, loom))]
    let _ = target;
}

/// Asks for the cache line that holds `target`, to write it: nobody else may keep a copy. A line
/// that another core wrote last then arrives while this one still has other things to do, and is
/// not asked for twice, first to read it and then to own it.
#[inline(always)]
pub fn prefetch_to_write<T>(target: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        // SAFETY: `prefetchw` has no effect but on the cache, whatever the address; processors
        // that do not have it take it for a no-op.
        unsafe {
            std::arch::asm!("prefetchw [{0}]", in(reg) target,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    prefetch(target);
}
