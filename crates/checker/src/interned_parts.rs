//! Stores parts that many states share once (the collapse compression of Holzmann, "State
//! compression in SPIN", 1997).

use std::any::{Any, TypeId};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast;

use crate::search::fingerprint_of;

/// A part of a state that most steps do not change: copied only when it is, and hashed once.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T>(Arc<Part<T>>);

#[derive(Clone, Debug)]
struct Part<T> {
    value: T,
    /// 0 while it is not known.
    fingerprint: u64,
}

/// Parts of all kinds, each once.
#[derive(Debug, Default)]
pub(crate) struct Pool(DashMap<(TypeId, u64), Arc<dyn Any + Send + Sync>, fast::FixedState>);

/// A [`Shared`] part of any kind.
pub(crate) trait SharedPart {
    /// Hashes it if it has changed.
    fn seal(&mut self);

    /// Takes the one of the pool that is the same.
    fn share(&mut self, pool: &Pool);
}

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
}

impl<T: Clone + Hash + Send + Sync + 'static> SharedPart for Shared<T> {
    fn seal(&mut self) {
        if self.0.fingerprint == 0 {
            let part = Arc::make_mut(&mut self.0);
            part.fingerprint = fingerprint_of(&part.value);
        }
    }

    fn share(&mut self, pool: &Pool) {
        let kind = (TypeId::of::<T>(), self.0.fingerprint);
        let same = pool.0.entry(kind).or_insert_with(|| self.0.clone());
        if let Ok(same) = Arc::clone(&same).downcast() {
            self.0 = same;
        }
    }
}

impl Pool {
    /// Throws away what no state has.
    pub(crate) fn sweep(&self) {
        self.0.retain(|_, part| Arc::strong_count(part) > 1);
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
