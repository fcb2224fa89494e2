//! What a step came to: what was seen of what is worth seeing, a fault, and sentences for the path
//! to it.
//!
//! A search takes millions of steps and describes a few of them. So a step is repeated when it is
//! described, and only then are sentences gathered.

use std::hash::{Hash, Hasher};

/// Notes of the step that led to a state. Of these only the fault is a part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepNotes {
    /// A bit for each of the things worth seeing that was seen.
    pub(crate) seen: u32,
    /// What is wrong.
    pub(crate) fault: Option<&'static str>,
    /// Sentences, while a step is described.
    sentences: Option<Vec<String>>,
}

impl StepNotes {
    /// Another step begins.
    pub(crate) fn begin(&mut self, gathers: bool) {
        self.seen = 0;
        self.sentences = gathers.then(Vec::new);
    }

    pub(crate) fn fail(&mut self, what: &'static str) {
        self.fault.get_or_insert(what);
    }

    /// Adds a sentence; `sentence` is called only while they are gathered.
    pub(crate) fn add(&mut self, sentence: impl FnOnce() -> String) {
        if let Some(sentences) = &mut self.sentences {
            sentences.push(sentence());
        }
    }

    /// `what`, then the sentences.
    pub(crate) fn behind(&self, what: String) -> String {
        let sentences = self.sentences.iter().flatten();
        sentences.fold(what, |text, one| format!("{text}; {one}"))
    }
}

impl Hash for StepNotes {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.fault.hash(hasher);
    }
}
