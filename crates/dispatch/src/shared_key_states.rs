//! The states of keys that several nodes share: a word for each key says whether readers on any
//! thread may show this node's copy.
//!
//! A protocol decides under a lock what may be read of a shared key, but a reader must know without
//! a lock whether it may show a copy *now* (ccKVS, EuroSys 2018, section 6.2: reads take none). So
//! the thread that runs the protocol writes the word, and a reader checks it before and after it
//! copies the item:
//!
//! ```text
//!   reader                              protocol, for a write that begins
//!   seen = look(key)     Valid          settle(key, Unsettled)
//!   copy the item                       change the item
//!   is_as(seen)?  no: ask the protocol  tell the others that this copy is invalid
//! ```
//!
//! A key without a word is not shared. Keys lie in buckets of two cache lines, one for keys and one
//! for words. A key that finds no place in its bucket is counted there; until it is removed, every
//! key of that bucket counts as unsettled, which is slower but never wrong.
//!
//! Most requests are for keys that are not shared. Their lookups should not access buckets, which
//! are rarely in a near cache, so a table of a few KiB counts the keys of several buckets together
//! (measured: without it a node spent 9 % of its processor time on waiting for empty buckets).
//!
//! Invariants: only the thread that holds the lock of a key changes its word; the version of a word
//! never decreases, even if another key gets its place, so a word with an equal value has not
//! changed.

use alloc::boxed::Box;

use curtail_types::RouteHash;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The states of all shared keys of a node.
#[derive(Debug)]
pub struct SharedKeys {
    buckets: Box<[Bucket]>,
    /// How many keys are here of those with the same lowest bits, with a place or without.
    counts: Box<[AtomicU32]>,
}

/// What a reader saw of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seen {
    /// What it is.
    pub state: SharedState,
    place: usize,
    word: u64,
}

/// Whether this node may answer for a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SharedState {
    /// The key is shared with nobody, or nothing is going on with it.
    Ordinary,
    /// This node's copy may be shown.
    Valid,
    /// Only the protocol knows.
    Unsettled,
}

#[derive(Debug)]
#[repr(align(128))]
struct Bucket {
    keys: [AtomicU64; PLACES],
    /// Keys that found no place.
    homeless: AtomicU64,
    /// The state in the lowest bits, above it a count of its changes.
    words: [AtomicU64; PLACES],
}

/// Keys of a bucket: with the count of the homeless they fill a line.
const PLACES: usize = 7;

/// What stands where there is no key.
const NOBODY: u64 = 0;

const VALID: u64 = 1;
const UNSETTLED: u64 = 0;
const STATE_MASK: u64 = 1;
const CHANGE: u64 = 2;

/// Counts of keys at most: 16 KiB.
const COUNTS_MAX: usize = 4096;

/// The place of a key that has none.
const NOWHERE: usize = usize::MAX;

impl SharedKeys {
    /// Room for about `keys` shared keys, all of them ordinary.
    pub fn new(keys: usize) -> Self {
        let buckets = (2 * keys / PLACES + 1).next_power_of_two();
        let counts = buckets.min(COUNTS_MAX);
        Self {
            buckets: (0..buckets).map(|_| Bucket::new()).collect(),
            counts: (0..counts).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>() + self.counts.len() * size_of::<AtomicU32>()
    }

    /// What may be done with the copy of `key`; to be asked again, with [`SharedKeys::is_as`], when
    /// the item was copied.
    #[inline]
    pub fn look(&self, key: RouteHash) -> Seen {
        // Pairs with the Release in `settle`: who finds nobody sees the item that was left.
        let is_here = |count: &AtomicU32| count.load(Ordering::Acquire) != 0;
        if !self.count(key).is_some_and(is_here) {
            return Seen::ORDINARY;
        }
        let Some(bucket) = self.bucket(key) else {
            return Seen::ORDINARY;
        };
        let Some(place) = bucket.place_of(named(key)) else {
            // Pairs with the Release in `settle`: a thread that sees the count sees why.
            let homeless = bucket.homeless.load(Ordering::Acquire);
            return if homeless == 0 {
                Seen::ORDINARY
            } else {
                Seen::UNSETTLED
            };
        };
        // Pairs with the Release in `settle`: a valid word comes with the item that it speaks of.
        let word = bucket.words[place].load(Ordering::Acquire);
        let state = match word & STATE_MASK {
            VALID => SharedState::Valid,
            _ => SharedState::Unsettled,
        };
        Seen { state, place, word }
    }

    /// Whether nothing has happened to `key` since it looked like `seen`: then what was copied in
    /// between may be shown.
    #[inline]
    pub fn is_as(&self, key: RouteHash, seen: Seen) -> bool {
        // Pairs with the fences of changes: if what was copied is newer, so is the word.
        fence(Ordering::Acquire);
        let Some(bucket) = self.bucket(key) else {
            return true;
        };
        match seen.state {
            SharedState::Unsettled => false,
            SharedState::Ordinary => self.look(key).state == SharedState::Ordinary,
            SharedState::Valid => {
                let keys = bucket.keys.get(seen.place);
                let words = bucket.words.get(seen.place);
                keys.is_some_and(|key_here| key_here.load(Ordering::Relaxed) == named(key))
                    && words.is_some_and(|word| word.load(Ordering::Relaxed) == seen.word)
            }
        }
    }

    /// Says what may be done with `key` from now on. The caller holds the lock of the
    /// key: before its item is changed if it becomes unsettled, after that if it becomes valid or
    /// ordinary.
    pub fn settle(&self, key: RouteHash, state: SharedState) {
        let Some(bucket) = self.bucket(key) else {
            return;
        };
        match (bucket.place_of(named(key)), state) {
            (Some(place), SharedState::Ordinary) => bucket.leave(place),
            (Some(place), SharedState::Valid) => bucket.note(place, VALID),
            (Some(place), SharedState::Unsettled) => bucket.note(place, UNSETTLED),
            // It had no place when it came.
            (None, SharedState::Ordinary) => bucket.count_homeless(u64::wrapping_sub),
            (None, SharedState::Valid) => {}
            (None, SharedState::Unsettled) => {}
        }
        if state == SharedState::Ordinary
            && let Some(count) = self.count(key)
        {
            // Release pairs with the Acquire in `look`.
            count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Takes up `key`, which is ordinary, as unsettled. The same conditions as for
    /// [`SharedKeys::settle`].
    pub fn enter(&self, key: RouteHash) {
        let (Some(bucket), Some(count)) = (self.bucket(key), self.count(key)) else {
            return;
        };
        // Before the item changes: pairs with the fence in `is_as`, as all that follows.
        count.fetch_add(1, Ordering::Relaxed);
        for place in 0..PLACES {
            if bucket.keys[place].load(Ordering::Relaxed) != NOBODY {
                continue;
            }
            bucket.note(place, UNSETTLED);
            let won = bucket.keys[place].compare_exchange(
                NOBODY,
                named(key),
                Ordering::Release, // pairs with the Acquire in `place_of`
                Ordering::Relaxed,
            );
            if won.is_ok() {
                fence(Ordering::Release); // pairs with the fence in `is_as`
                return;
            }
        }
        bucket.count_homeless(u64::wrapping_add);
    }

    #[inline]
    fn bucket(&self, key: RouteHash) -> Option<&Bucket> {
        // The top bits choose slot and slice; these are others.
        self.buckets.get(key.0 as usize & (self.buckets.len() - 1))
    }

    /// The count in which `key` is counted if it is here.
    #[inline]
    fn count(&self, key: RouteHash) -> Option<&AtomicU32> {
        self.counts.get(key.0 as usize & (self.counts.len() - 1))
    }
}

impl Bucket {
    fn new() -> Self {
        Self {
            keys: core::array::from_fn(|_| AtomicU64::new(NOBODY)),
            homeless: AtomicU64::new(0),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    #[inline]
    fn place_of(&self, name: u64) -> Option<usize> {
        // Pairs with the Release in `enter`: the word of a key that is found is its own.
        let is_it = |key: &AtomicU64| key.load(Ordering::Acquire) == name;
        self.keys.iter().position(is_it)
    }

    /// Writes the next word of a place.
    fn note(&self, place: usize, state: u64) {
        let before = self.words[place].load(Ordering::Relaxed);
        let next = (before & !STATE_MASK).wrapping_add(CHANGE) | state;
        // A valid word is seen together with the item: pairs with the Acquire in `look`.
        self.words[place].store(next, Ordering::Release);
        // The item is changed after this: pairs with the fence in `is_as`.
        fence(Ordering::Release);
    }

    /// Gives a place up; what the item became was written before.
    fn leave(&self, place: usize) {
        self.note(place, UNSETTLED);
        // Pairs with the Acquire in `place_of`: who finds nobody sees the item.
        self.keys[place].store(NOBODY, Ordering::Release);
    }

    fn count_homeless(&self, change: impl Fn(u64, u64) -> u64) {
        let next = |count| Some(change(count, 1));
        // Release pairs with the Acquire in `look`.
        let _ = self
            .homeless
            .fetch_update(Ordering::Release, Ordering::Relaxed, next);
        fence(Ordering::Release); // pairs with the fence in `is_as`
    }
}

impl Seen {
    const ORDINARY: Self = Self::without_place(SharedState::Ordinary);
    const UNSETTLED: Self = Self::without_place(SharedState::Unsettled);

    const fn without_place(state: SharedState) -> Self {
        Self {
            state,
            place: NOWHERE,
            word: 0,
        }
    }
}

/// What stands for a key in a bucket; never [`NOBODY`].
#[inline]
fn named(key: RouteHash) -> u64 {
    key.0.max(1)
}

const _: () = assert!(size_of::<Bucket>() == 128 || cfg!(loom));

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key(number: u64) -> RouteHash {
        RouteHash(number << 20 | 5)
    }

    #[test]
    fn a_key_is_ordinary_until_it_enters_and_after_it_left() {
        let keys = SharedKeys::new(100);
        let seen = keys.look(key(1));
        assert_eq!(seen.state, SharedState::Ordinary);
        assert!(keys.is_as(key(1), seen));
        keys.enter(key(1));
        assert!(!keys.is_as(key(1), seen));
        assert_eq!(keys.look(key(1)).state, SharedState::Unsettled);
        keys.settle(key(1), SharedState::Valid);
        let seen = keys.look(key(1));
        assert_eq!(seen.state, SharedState::Valid);
        assert!(keys.is_as(key(1), seen));
        keys.settle(key(1), SharedState::Ordinary);
        assert!(!keys.is_as(key(1), seen));
        assert_eq!(keys.look(key(1)).state, SharedState::Ordinary);
    }

    /// A reader between whose two looks a write began and ended must not show what it copied.
    #[test]
    fn valid_again_is_not_as_before() {
        let keys = SharedKeys::new(100);
        keys.enter(key(1));
        keys.settle(key(1), SharedState::Valid);
        let seen = keys.look(key(1));
        keys.settle(key(1), SharedState::Unsettled);
        keys.settle(key(1), SharedState::Valid);
        assert!(!keys.is_as(key(1), seen));
        let seen = keys.look(key(1));
        keys.settle(key(1), SharedState::Ordinary);
        keys.enter(key(1));
        keys.settle(key(1), SharedState::Valid);
        assert!(!keys.is_as(key(1), seen));
    }

    #[test]
    fn a_full_bucket_makes_its_keys_unsettled_and_no_others() {
        let keys = SharedKeys::new(100);
        // The low bits choose the bucket: these are all in one.
        for number in 0..PLACES as u64 + 2 {
            keys.enter(key(number));
        }
        keys.settle(key(0), SharedState::Valid);
        assert_eq!(keys.look(key(0)).state, SharedState::Valid);
        assert_eq!(keys.look(key(100)).state, SharedState::Unsettled);
        let other = RouteHash(100 << 20 | 6);
        assert_eq!(keys.look(other).state, SharedState::Ordinary);
        for number in 0..PLACES as u64 + 2 {
            keys.settle(key(number), SharedState::Ordinary);
        }
        assert_eq!(keys.look(key(100)).state, SharedState::Ordinary);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{sync::Arc, thread};

    use super::*;

    const KEY: RouteHash = RouteHash(5);

    /// Goal: no reader shows a value that a node has promised not to show. Method: a protocol
    /// makes the key unsettled, changes the item and promises; a reader that began after the
    /// promise must not show the old value as valid, and no reader shows the new one before it is
    /// valid.
    #[test]
    fn loom_what_is_shown_was_valid() {
        loom::model(|| {
            let keys = Arc::new(SharedKeys::new(1));
            let item = Arc::new(AtomicU64::new(1));
            let promised = Arc::new(AtomicU64::new(0));
            keys.enter(KEY);
            keys.settle(KEY, SharedState::Valid);
            let protocol = {
                let (keys, item, promised) = (keys.clone(), item.clone(), promised.clone());
                thread::spawn(move || {
                    keys.settle(KEY, SharedState::Unsettled);
                    item.store(2, Ordering::Relaxed);
                    promised.store(1, Ordering::Release);
                })
            };
            let had_promised = promised.load(Ordering::Acquire) == 1;
            let seen = keys.look(KEY);
            if seen.state == SharedState::Valid {
                let value = item.load(Ordering::Relaxed);
                if keys.is_as(KEY, seen) {
                    assert_eq!(value, 1, "a value that is not valid was shown");
                    assert!(!had_promised, "shown after the promise");
                }
            }
            assert!(protocol.join().is_ok());
        });
    }

    /// Goal: the same for a key that was ordinary. Method: it enters before its item is changed
    /// and leaves after that.
    #[test]
    fn loom_an_ordinary_key_that_enters_is_not_shown_changed() {
        loom::model(|| {
            let keys = Arc::new(SharedKeys::new(1));
            let item = Arc::new(AtomicU64::new(1));
            let done = Arc::new(AtomicU64::new(0));
            let protocol = {
                let (keys, item, done) = (keys.clone(), item.clone(), done.clone());
                thread::spawn(move || {
                    keys.enter(KEY);
                    item.store(2, Ordering::Relaxed);
                    done.store(1, Ordering::Relaxed);
                    keys.settle(KEY, SharedState::Ordinary);
                })
            };
            let seen = keys.look(KEY);
            if seen.state == SharedState::Ordinary {
                let value = item.load(Ordering::Relaxed);
                if keys.is_as(KEY, seen) && value == 2 {
                    let finished = done.load(Ordering::Relaxed) == 1;
                    assert!(finished, "shown before it was done");
                }
            }
            assert!(protocol.join().is_ok());
        });
    }
}
