//! Verifies every value: its key, whether it is whole, and whether it had been overwritten.
//!
//! Values carry their key and a version (see `self_checking_value`). Whether a version is too old
//! is decided for all connections and threads together, without guessing in which order concurrent
//! writes took effect. Per key there is a floor: no read that is *sent* after the floor was raised
//! may return an older version. It is raised
//!
//! - when a write is answered that met no other write of its key, from its sending to its answer:
//!   all that were sent before it had been answered, so that it is the newest;
//! - when a read is answered that met no write of its key either: what it saw had won over
//!   everything before it.
//!
//! Two writes that overlap raise nothing, so that a sound server is never accused. Values of less
//! than 24 bytes have no room for a version: they prove their key alone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    request_source::piece,
    self_checking_value::{HEAD_BYTES, Piece},
};

/// What all threads of a target know about its keys.
#[derive(Debug)]
pub(crate) struct Versions {
    stripes: Box<[Mutex<HashMap<u64, State>>]>,
    texts: Mutex<Vec<String>>,
}

/// One key.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// No read sent from now on may return an older version.
    floor: u64,
    /// The newest version that was given out.
    last: u64,
    under_way: u32,
    /// Writes begun so far.
    begun: u32,
}

/// What a request needs to know of its key's state when it is answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proof {
    /// A write's own version, a read's floor.
    pub(crate) version: u64,
    begun: u32,
    alone: bool,
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// It was never written as a whole, or not by this tool.
    Torn,
    /// It belongs to another key.
    Foreign,
    /// It had been overwritten or deleted before it was asked for.
    Stale,
}

const STRIPES: u64 = 256;

/// Keys whose versions are followed, in each stripe: 4 million in all. Values of further keys are
/// checked but for their age.
const KEYS_MAX: usize = (4 << 20) / STRIPES as usize;

/// Faults told in words; more are only counted.
const TEXTS_MAX: usize = 10;

impl Versions {
    pub(crate) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            texts: Mutex::default(),
        }
    }

    /// A write of a key is about to be sent; `now` is a clock that all runs share.
    pub(crate) fn write_begins(&self, key: u64, now: u64) -> Proof {
        let mut stripe = self.stripe(key);
        let Some(state) = state(&mut stripe, key) else {
            return Proof {
                version: now,
                ..Proof::default()
            };
        };
        let alone = state.under_way == 0;
        state.last = now.max(state.last + 1);
        state.under_way += 1;
        state.begun = state.begun.wrapping_add(1);
        Proof {
            version: state.last,
            begun: state.begun,
            alone,
        }
    }

    /// A write was answered, and the key changed or did not.
    pub(crate) fn write_ends(&self, key: u64, proof: Proof, changed: bool) {
        let mut stripe = self.stripe(key);
        let Some(state) = stripe.get_mut(&key) else {
            return;
        };
        state.under_way = state.under_way.saturating_sub(1);
        if changed && proof.alone && state.begun == proof.begun {
            state.floor = state.floor.max(proof.version);
        }
    }

    /// A read of a key is about to be sent.
    pub(crate) fn read_begins(&self, key: u64) -> Proof {
        let mut stripe = self.stripe(key);
        state(&mut stripe, key).map_or(Proof::default(), |state| Proof {
            version: state.floor,
            begun: state.begun,
            alone: state.under_way == 0,
        })
    }

    /// A read was answered with this value.
    pub(crate) fn read_ends(&self, key: u64, proof: Proof, value: &[u8]) -> Result<(), Fault> {
        let checked = self.judge(key, proof, value);
        if let Err(fault) = checked {
            self.note(key, fault, value);
        }
        checked
    }

    /// The first faults in words, for a person.
    pub(crate) fn texts(&self) -> Vec<String> {
        let texts = self.texts.lock();
        texts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn judge(&self, key: u64, proof: Proof, value: &[u8]) -> Result<(), Fault> {
        let bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
        if bytes < HEAD_BYTES {
            return if piece(key, 0, bytes).is(value) {
                Ok(())
            } else {
                Err(Fault::Torn)
            };
        }
        let found = Piece::identify(value).filter(|found| found.is(value));
        let found = found.ok_or(Fault::Torn)?;
        if found.key != key {
            return Err(Fault::Foreign);
        }
        if found.version < proof.version {
            return Err(Fault::Stale);
        }
        if proof.alone
            && let Some(state) = self.stripe(key).get_mut(&key)
            && state.begun == proof.begun
        {
            state.floor = state.floor.max(found.version);
        }
        Ok(())
    }

    fn note(&self, key: u64, fault: Fault, value: &[u8]) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() == TEXTS_MAX {
            return;
        }
        let length = value.len();
        texts.push(match (fault, Piece::identify(value)) {
            (Fault::Torn, None) => {
                format!("key {key}: {length} bytes that no write of --verify sent")
            }
            (Fault::Torn, Some(found)) => format!(
                "key {key}: {length} bytes that begin as version {} of key {} ({} bytes) and do \
                 not go on so",
                found.version, found.key, found.bytes
            ),
            (Fault::Foreign, found) => {
                let other = found.map_or(0, |found| found.key);
                format!("key {key}: the value of key {other}")
            }
            (Fault::Stale, found) => {
                let version = found.map_or(0, |found| found.version);
                format!("key {key}: version {version}, overwritten before it was asked for")
            }
        });
    }

    fn stripe(&self, key: u64) -> MutexGuard<'_, HashMap<u64, State>> {
        let stripe = &self.stripes[(key % STRIPES) as usize];
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key's state, unless there are too many keys.
fn state(stripe: &mut HashMap<u64, State>, key: u64) -> Option<&mut State> {
    if stripe.len() >= KEYS_MAX && !stripe.contains_key(&key) {
        return None;
    }
    Some(stripe.entry(key).or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 7;

    fn value(key: u64, version: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        piece(key, version, 64).put(&mut bytes);
        bytes
    }

    #[test]
    fn what_was_overwritten_is_stale() {
        let versions = Versions::new();
        let first = versions.write_begins(KEY, 100);
        versions.write_ends(KEY, first, true);
        let second = versions.write_begins(KEY, 50);
        assert!(second.version > first.version, "clocks may go back");
        let during = versions.read_begins(KEY);
        versions.write_ends(KEY, second, true);
        let after = versions.read_begins(KEY);
        let old = value(KEY, first.version);
        assert_eq!(versions.read_ends(KEY, during, &old), Ok(()));
        assert_eq!(versions.read_ends(KEY, after, &old), Err(Fault::Stale));
        let new = value(KEY, second.version);
        assert_eq!(versions.read_ends(KEY, after, &new), Ok(()));
        assert_eq!(versions.texts().len(), 1);
    }

    /// Goal: a sound server is not accused. Method: two writes overlap and take effect in the
    /// reverse order of their versions; both values may be read, in that order, later too.
    #[test]
    fn writes_that_overlap_may_take_effect_in_any_order() {
        let versions = Versions::new();
        let first = versions.write_begins(KEY, 100);
        let second = versions.write_begins(KEY, 101);
        let between = versions.read_begins(KEY);
        versions.write_ends(KEY, second, true);
        let newer = value(KEY, second.version);
        assert_eq!(versions.read_ends(KEY, between, &newer), Ok(()));
        versions.write_ends(KEY, first, true);
        let after = versions.read_begins(KEY);
        let older = value(KEY, first.version);
        assert_eq!(versions.read_ends(KEY, after, &older), Ok(()));
        // What a read saw when nothing was under way has won for good.
        let later = versions.read_begins(KEY);
        assert_eq!(versions.read_ends(KEY, later, &older), Ok(()));
    }

    #[test]
    fn what_a_read_saw_does_not_come_undone() {
        let versions = Versions::new();
        let read = versions.read_begins(KEY);
        assert_eq!(versions.read_ends(KEY, read, &value(KEY, 500)), Ok(()));
        let again = versions.read_begins(KEY);
        let before = value(KEY, 499);
        assert_eq!(versions.read_ends(KEY, again, &before), Err(Fault::Stale));
    }

    /// Goal: what a read saw of two writes that began after it is no floor: the older version may
    /// take effect after the newer one.
    #[test]
    fn a_read_that_writes_overtook_raises_nothing() {
        let versions = Versions::new();
        let read = versions.read_begins(KEY);
        let first = versions.write_begins(KEY, 100);
        let second = versions.write_begins(KEY, 101);
        let newer = value(KEY, second.version);
        assert_eq!(versions.read_ends(KEY, read, &newer), Ok(()));
        versions.write_ends(KEY, second, true);
        versions.write_ends(KEY, first, true);
        let after = versions.read_begins(KEY);
        let older = value(KEY, first.version);
        assert_eq!(versions.read_ends(KEY, after, &older), Ok(()));
    }

    #[test]
    fn writes_that_were_refused_overwrite_nothing() {
        let versions = Versions::new();
        let write = versions.write_begins(KEY, 100);
        versions.write_ends(KEY, write, false);
        let read = versions.read_begins(KEY);
        assert_eq!(versions.read_ends(KEY, read, &value(KEY, 3)), Ok(()));
    }

    #[test]
    fn torn_and_foreign_values_are_told() {
        let versions = Versions::new();
        let read = versions.read_begins(KEY);
        let mut torn = value(KEY, 5);
        torn[40..].copy_from_slice(&value(KEY, 6)[40..]);
        assert_eq!(versions.read_ends(KEY, read, &torn), Err(Fault::Torn));
        let short = &value(KEY, 5)[..63];
        assert_eq!(versions.read_ends(KEY, read, short), Err(Fault::Torn));
        let foreign = value(8, 5);
        assert_eq!(versions.read_ends(KEY, read, &foreign), Err(Fault::Foreign));
        let mut tiny = Vec::new();
        piece(KEY, 9, 10).put(&mut tiny);
        assert_eq!(versions.read_ends(KEY, read, &tiny), Ok(()));
        assert_eq!(versions.read_ends(8, read, &tiny), Err(Fault::Torn));
    }
}
