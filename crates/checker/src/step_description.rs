//! Sentences about what a step did, for the path to a fault.
//!
//! A search takes millions of steps and describes a few of them. So a step is repeated when it is
//! described, and only then are sentences gathered.

use std::hash::{Hash, Hasher};

/// Gathers sentences while a step is described, and drops them otherwise. Not part of a state.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepDescription(Option<Vec<String>>);

impl StepDescription {
    /// Notes that gather.
    pub(crate) const fn gathering() -> Self {
        Self(Some(Vec::new()))
    }

    /// Adds a sentence; `sentence` is called only while notes are gathered.
    pub(crate) fn add(&mut self, sentence: impl FnOnce() -> String) {
        if let Some(sentences) = &mut self.0 {
            sentences.push(sentence());
        }
    }

    /// `what`, then the sentences.
    pub(crate) fn behind(self, what: String) -> String {
        let sentences = self.0.unwrap_or_default();
        sentences
            .iter()
            .fold(what, |text, one| format!("{text}; {one}"))
    }
}

impl Hash for StepDescription {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
