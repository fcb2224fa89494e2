//! Lock kinds to compare the default with: one lock for all, and none.
//!
//! The paper's factor analysis (section 3.6.1; CK-35, CK-43) begins with a table whose writers
//! share one lock held for a whole insert, and removes one cost at a time. Readers stay optimistic
//! throughout, as in MemC3, so every kind here still marks the stripes' versions.
//!
//! | kind | writers hold |
//! |---|---|
//! | `Global<SpinWord, true>`, `Global<OsMutex, true>` | one lock, search included |
//! | `Global<SpinWord, false>`, `Global<OsMutex, false>` | one lock per step ("lock later") |
//! | `VersionedSpin` (in `locks.rs`) | the stripes they change |
//! | `NoLock` | nothing; one thread only |
//!
//! Hardware lock elision would be one more `Locks`; `docs/decisions/table-no-lock-elision.md` says
//! why it is not here.

use std::{cell::Cell, marker::PhantomData};

use crate::{
    locks::{Locks, Stripes},
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, OwnLine, lock, pause},
};

/// A lock that one thread at a time holds.
pub trait Exclusive: Default {
    /// Releases when dropped.
    type Guard<'a>
    where
        Self: 'a;
    /// Waits for the lock.
    fn acquire(&self) -> Self::Guard<'_>;
}

/// The operating system's mutex.
#[derive(Default)]
pub struct OsMutex(Mutex<()>);

impl Exclusive for OsMutex {
    type Guard<'a> = MutexGuard<'a, ()>;

    fn acquire(&self) -> MutexGuard<'_, ()> {
        lock(&self.0)
    }
}

/// One word, spun on.
#[derive(Default)]
pub struct SpinWord(OwnLine<AtomicU64>);

/// Holds a [`SpinWord`].
pub struct SpinGuard<'a>(&'a AtomicU64);

impl Exclusive for SpinWord {
    type Guard<'a> = SpinGuard<'a>;

    fn acquire(&self) -> SpinGuard<'_> {
        let word = &self.0.0;
        let mut round = 0;
        // Acquire: pairs with the Release in `SpinGuard::drop`.
        while word.load(Ordering::Relaxed) != 0
            || word
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            pause(round);
            round += 1;
        }
        SpinGuard(word)
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `SpinWord::acquire`.
        self.0.store(0, Ordering::Release);
    }
}

/// One lock for all writers; `EARLY` takes it before the search instead of after.
pub struct Global<X, const EARLY: bool> {
    stripes: Stripes,
    exclusive: X,
}

impl<X: Exclusive, const EARLY: bool> Locks for Global<X, EARLY> {
    type Whole<'a>
        = Option<X::Guard<'a>>
    where
        X: 'a;
    type Section<'a>
        = Option<X::Guard<'a>>
    where
        X: 'a;

    fn new(stripes: Stripes) -> Self {
        Self {
            stripes,
            exclusive: X::default(),
        }
    }

    fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    fn begin(&self) -> Option<X::Guard<'_>> {
        EARLY.then(|| self.exclusive.acquire())
    }

    fn enter(&self) -> Option<X::Guard<'_>> {
        (!EARLY).then(|| self.exclusive.acquire())
    }

    fn lock(&self, stripe: usize) {
        self.stripes.mark_locked(stripe);
    }

    fn unlock(&self, stripe: usize, changed: bool) {
        self.stripes.unlock(stripe, changed);
    }
}

/// One spinlock for all writers, taken late.
pub type GlobalSpin = Global<SpinWord, false>;
/// One operating-system mutex for all writers, taken late.
pub type GlobalMutex = Global<OsMutex, false>;

/// No lock at all, for one thread: what synchronisation costs is the difference. A table with it
/// is not `Sync`.
pub struct NoLock(Stripes, PhantomData<Cell<()>>);

impl Locks for NoLock {
    type Whole<'a> = ();
    type Section<'a> = ();

    fn new(stripes: Stripes) -> Self {
        Self(stripes, PhantomData)
    }

    #[inline(always)]
    fn stripes(&self) -> &Stripes {
        &self.0
    }

    #[inline(always)]
    fn begin(&self) {}

    #[inline(always)]
    fn enter(&self) {}

    #[inline(always)]
    fn lock(&self, _stripe: usize) {}

    #[inline(always)]
    fn unlock(&self, _stripe: usize, _changed: bool) {}
}
