//! Values that are nothing but words: what a table can hold under racing readers.
//!
//! A reader may copy a slot while a writer changes it, and throws the copy away then. That is
//! defined behaviour only if the slot is atomics and the copy is made of them, word by word; and
//! harmless only if any mixture of words is a value (CK-51, CK-56). So a key or value says how it
//! is spelt in words and how any words at all are read back.

/// A value made of whole words, any combination of which is a value.
pub trait Plain: Copy + Eq {
    /// Its length in words of eight bytes.
    const WORDS: usize;

    /// The word at `index`, which is below `WORDS`.
    fn word(&self, index: usize) -> u64;

    /// The value whose words `word` gives, each asked for once, in order. The words may be torn
    /// between two values; the result is then dropped unused.
    fn from_words(word: impl FnMut(usize) -> u64) -> Self;
}

impl Plain for u64 {
    const WORDS: usize = 1;

    #[inline(always)]
    fn word(&self, _index: usize) -> u64 {
        *self
    }

    #[inline(always)]
    fn from_words(mut word: impl FnMut(usize) -> u64) -> Self {
        word(0)
    }
}

impl Plain for u32 {
    const WORDS: usize = 1;

    #[inline(always)]
    fn word(&self, _index: usize) -> u64 {
        u64::from(*self)
    }

    #[inline(always)]
    fn from_words(mut word: impl FnMut(usize) -> u64) -> Self {
        word(0) as Self
    }
}

/// Nothing: a map with this value is a set.
impl Plain for () {
    const WORDS: usize = 0;

    fn word(&self, _index: usize) -> u64 {
        0
    }

    fn from_words(_word: impl FnMut(usize) -> u64) -> Self {}
}

impl<const N: usize> Plain for [u64; N] {
    const WORDS: usize = N;

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self[index]
    }

    #[inline(always)]
    fn from_words(word: impl FnMut(usize) -> u64) -> Self {
        std::array::from_fn(word)
    }
}
