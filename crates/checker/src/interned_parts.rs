//! Stores parts that many states share once.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::search::{ByFingerprint, fingerprint_of};

/// A part of a state that most steps do not change: copied only when it is, and hashed once.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T>(Arc<Part<T>>);

#[derive(Clone, Debug)]
struct Part<T> {
    value: T,
    /// 0 while it is not known.
    fingerprint: u64,
}

/// Parts of one kind, each once.
#[derive(Debug)]
pub(crate) struct Parts<T>(ByFingerprint<Shared<T>>);

impl<T: Clone + Hash> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        let fingerprint = fingerprint_of(&value);
        Self(Arc::new(Part { value, fingerprint }))
    }

    pub(crate) fn edit(&mut self) -> &mut T {
        let part = Arc::make_mut(&mut self.0);
        part.fingerprint = 0;
        &mut part.value
    }

    pub(crate) fn seal(&mut self) {
        if self.0.fingerprint == 0 {
            let part = Arc::make_mut(&mut self.0);
            part.fingerprint = fingerprint_of(&part.value);
        }
    }
}

impl<T: Clone> Parts<T> {
    /// The one that is the same.
    pub(crate) fn shared(&self, part: &Shared<T>) -> Shared<T> {
        let same = self.0.entry(part.0.fingerprint);
        same.or_insert_with(|| part.clone()).clone()
    }

    /// Throws away what nobody else has.
    pub(crate) fn sweep(&self) {
        self.0.retain(|_, part| Arc::strong_count(&part.0) > 1);
    }
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self(ByFingerprint::default())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0.fingerprint);
    }
}
