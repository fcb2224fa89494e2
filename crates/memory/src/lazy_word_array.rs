//! Arrays of words that take memory only where they are used.

use crate::sync::AtomicU64;

/// So many zeros. The system supplies the page of a word when somebody first writes to it: a large
/// array that nobody uses is only address space.
pub fn zeros<const COUNT: usize>() -> Box<[AtomicU64; COUNT]> {
    #[cfg(not(loom))]
    // SAFETY: a word of zero bytes is the atomic zero.
    unsafe {
        Box::new_zeroed().assume_init()
    }
    #[cfg(loom)]
    {
        Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    /// Goal: every word is there, and zero. Method: all are read, the last is written.
    #[test]
    fn all_words_are_zero_and_can_be_written() {
        let words = zeros::<{ 1 << 16 }>();
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        words[(1 << 16) - 1].store(7, Ordering::Relaxed);
        assert_eq!(words[(1 << 16) - 1].load(Ordering::Relaxed), 7);
    }
}
