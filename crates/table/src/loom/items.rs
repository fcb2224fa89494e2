//! Items that lie elsewhere, read through the index, also at a hint (`Index::read_at`) as the
//! store's plain read does: written over in place, and their words given to another item meanwhile.

use loom::{sync::Arc, thread};

use curtail_memory::Pages;
use curtail_types::KeyHash;

use super::{beside, explore, is_caught};
use crate::{
    Hint, Index, IndexConfig, Locked, Reference, Resolver,
    sync::{AtomicU64, Ordering, fence},
};

/// One item: its key, and a value of two words.
struct Place {
    words: [AtomicU64; 3],
    /// What the store marks words with that nothing refers to any more.
    dead: AtomicU64,
}

impl Resolver for Place {
    fn hash_of(&self, _reference: Reference) -> KeyHash {
        KeyHash(self.words[0].load(Ordering::Relaxed))
    }

    fn prefetch(&self, _reference: Reference) {}
}

impl Place {
    fn write(&self, key: KeyHash, value: u64) {
        for (word, bits) in self.words.iter().zip([key.0, value, value]) {
            word.store(bits, Ordering::Relaxed);
        }
    }
}

/// What is done wrong.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Wrong {
    Nothing,
    /// A write in place does not change the version of its stripe.
    Unnoticed,
    /// Words are used again by who saw without a fence that they are dead.
    Unfenced,
    /// Words that a thread took under a key's lock are used without another fence.
    TakenUnfenced,
}

/// Two keys in different buckets and stripes; the hash is the key.
const KEYS: [KeyHash; 2] = [KeyHash(0x10_0000_0010), KeyHash(0x21_0000_0021)];

/// An index with the first key, whose value is 1, and where it is.
fn items() -> (Arc<Index<Place>>, Hint) {
    let config = IndexConfig {
        slots_initial: 16,
        slots_max: 16,
        slots_reserved: 0,
        pages: Pages::Small,
        stripe_slots: 8,
        ..IndexConfig::default()
    };
    // First: an Acquire fence in loom looks through the atomics in their order, and takes what a
    // thread saw that it has just learned of for seen by itself.
    let dead = AtomicU64::new(0);
    let place = Place {
        words: [0; 3].map(AtomicU64::new),
        dead,
    };
    let index = Index::new(config, place).unwrap();
    index.resolver().write(KEYS[0], 1);
    index.lock(KEYS[0]).insert(here()).unwrap();
    let hint = index.prefetch_candidates(KEYS[0]);
    (Arc::new(index), hint)
}

fn here() -> Reference {
    Reference::new(1).unwrap()
}

/// The value of the first key at the hint, as far as it can be told.
fn read_at(index: &Index<Place>, hint: Hint) -> Option<[u64; 2]> {
    index.read_at(KEYS[0], hint, |_, _| value(index))
}

fn value(index: &Index<Place>) -> Option<[u64; 2]> {
    let [key, first, second] = &index.resolver().words;
    (key.load(Ordering::Relaxed) == KEYS[0].0)
        .then(|| [first, second].map(|word| word.load(Ordering::Relaxed)))
}

/// Adds one to the value of the first key.
fn add_one(index: &Index<Place>, wrong: Wrong) {
    let mut locked = index.lock(KEYS[0]);
    let position = locked.find(|_| true).unwrap();
    let [first, _] = value(index).unwrap();
    index.resolver().write(KEYS[0], first + 1);
    if wrong != Wrong::Unnoticed {
        locked.changed(position);
    }
}

/// A value is read whole: both words from one write. Anywhere, the item is also never missed.
fn written_over_beside_read(wrong: Wrong, is_hinted: bool) {
    let (index, hint) = items();
    let (_, seen) = beside(
        &index,
        move |index| add_one(index, wrong),
        move |index| match is_hinted {
            true => read_at(index, hint).or(Some([1, 1])),
            false => index.read(KEYS[0], |_| value(index)),
        },
    );
    assert!(matches!(seen, Some([1, 1] | [2, 2])), "{seen:?}");
}

/// Uses the words for an item of the key that is locked: all but the key in them is written, so
/// that nothing but the versions keeps a reader from them.
fn use_again(index: &Index<Place>, locked: &mut Locked<'_, Place>) {
    let [_, first, second] = &index.resolver().words;
    first.store(9, Ordering::Relaxed);
    second.store(9, Ordering::Relaxed);
    locked.insert(here()).unwrap();
}

/// The words are given up by one thread, found dead without a lock by another, which uses them for
/// another key, and read by a third under the first.
fn used_again_beside_read(wrong: Wrong) {
    let (index, hint) = items();
    let remover = {
        let index = Arc::clone(&index);
        thread::spawn(move || {
            let mut locked = index.lock(KEYS[0]);
            let position = locked.find(|_| true).unwrap();
            locked.remove(position);
            index.resolver().dead.store(1, Ordering::Relaxed);
        })
    };
    let user = {
        let index = Arc::clone(&index);
        thread::spawn(move || {
            if index.resolver().dead.load(Ordering::Relaxed) == 0 {
                return;
            }
            if wrong != Wrong::Unfenced {
                // As when a segment is retired; pairs with the fence of the remover's lock.
                fence(Ordering::SeqCst);
            }
            let mut locked = index.lock(KEYS[1]);
            use_again(&index, &mut locked);
        })
    };
    let reader = thread::spawn(move || read_at(&index, hint));
    let seen = reader.join().unwrap();
    assert!(matches!(seen, None | Some([1, 1])), "{seen:?}");
    remover.join().unwrap();
    user.join().unwrap();
}

/// The words are given up and freed by one thread, taken by another that holds the lock of the key
/// that it uses them for, and read by a third under the first.
fn taken_beside_read(wrong: Wrong) {
    let (index, hint) = items();
    let remover = {
        let index = Arc::clone(&index);
        thread::spawn(move || {
            let mut locked = index.lock(KEYS[0]);
            let position = locked.find(|_| true).unwrap();
            locked.remove(position);
            drop(locked);
            // SeqCst: as when a segment is retired; pairs with the fence below.
            fence(Ordering::SeqCst);
            // Release: as the mutex of the free segments; pairs with the Acquire below.
            index.resolver().dead.store(1, Ordering::Release);
        })
    };
    let user = {
        let index = Arc::clone(&index);
        thread::spawn(move || {
            let mut locked = index.lock(KEYS[1]);
            // Acquire: pairs with the Release above.
            if index.resolver().dead.load(Ordering::Acquire) == 0 {
                return;
            }
            if wrong != Wrong::TakenUnfenced {
                // Release: as when a segment's words are handed out; pairs with the reader's fence.
                fence(Ordering::Release);
            }
            use_again(&index, &mut locked);
        })
    };
    let reader = thread::spawn(move || read_at(&index, hint));
    let seen = reader.join().unwrap();
    assert!(matches!(seen, None | Some([1, 1])), "{seen:?}");
    remover.join().unwrap();
    user.join().unwrap();
}

#[test]
fn loom_words_taken_beside_a_read_at_a_hint() {
    explore(2, || taken_beside_read(Wrong::Nothing));
}

#[test]
fn loom_catches_words_taken_without_a_fence() {
    assert!(is_caught(|| taken_beside_read(Wrong::TakenUnfenced)));
}

#[test]
fn loom_an_item_written_over_beside_a_read() {
    explore(3, || written_over_beside_read(Wrong::Nothing, false));
}

#[test]
fn loom_an_item_written_over_beside_a_read_at_a_hint() {
    explore(3, || written_over_beside_read(Wrong::Nothing, true));
}

/// Two writers of one item: none of their updates is lost.
#[test]
fn loom_two_writers() {
    explore(2, || {
        let (index, _) = items();
        let add = |index: &Index<Place>| add_one(index, Wrong::Nothing);
        beside(&index, add, add);
        assert_eq!(value(&index), Some([3, 3]));
    });
}

#[test]
fn loom_words_used_again_beside_a_read_at_a_hint() {
    explore(2, || used_again_beside_read(Wrong::Nothing));
}

#[test]
fn loom_catches_a_write_in_place_that_is_not_noticed() {
    for is_hinted in [false, true] {
        assert!(is_caught(move || written_over_beside_read(
            Wrong::Unnoticed,
            is_hinted
        )));
    }
}

#[test]
fn loom_catches_words_used_again_without_a_fence() {
    assert!(is_caught(|| used_again_beside_read(Wrong::Unfenced)));
}
