//! What is worth seeing in a search: a model that does not show it is too small to show anything.

use crate::search::Outcome;

/// Declares what is worth seeing, a bit each, with the words that say it is seen.
macro_rules! witnesses {
    ($($name:ident = $bit:literal, $words:literal;)+) => {
        $(#[doc = $words] pub(crate) const $name: u32 = $bit;)+

        const WITNESSES: &[(u32, &str)] = &[$(($name, $words),)+];
    };
}

pub(crate) use witnesses;

impl Outcome {
    /// In words, what of `sees` was not seen.
    pub(crate) fn unseen(&self, sees: u32, witnesses: &[(u32, &str)]) -> Vec<String> {
        let unseen = sees & !self.witnesses;
        let unseen = witnesses.iter().filter(|(bit, _)| unseen & bit != 0);
        unseen.map(|(_, words)| (*words).to_owned()).collect()
    }
}
