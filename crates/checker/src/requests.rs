//! What clients ask of a model, and what their requests are called.

/// What a client asks.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Reads the value.
    Get,
    /// Writes another, whatever was there.
    Set,
    /// Writes one that holds what was there.
    Append,
    /// Removes what is there, and says whether something was.
    Delete,
}

/// What a request is called: its place among those of the model.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Label(pub(crate) u8);

impl Label {
    /// Of a write that nobody asked for: a value is lost, as it may be.
    pub(crate) const EVICTION: Self = Self(14);

    /// Of what is lost with all nodes that had it.
    pub(crate) const LOSS: Self = Self(12);

    /// Of a `flush_all`.
    pub(crate) const FLUSH: Self = Self(13);
}

/// A name in words with dashes.
pub(crate) fn in_words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
