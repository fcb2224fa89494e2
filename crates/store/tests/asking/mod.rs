//! What tests ask a store with: moments, keys by their names, and the values of items.

use curtail_store::{ItemView, Store};
use curtail_types::{Key, KeyHash, Now};

/// When tests begin, in seconds.
pub(crate) const START: u64 = 1_800_000_000;

/// So many seconds after the beginning.
pub(crate) fn at(seconds: u64) -> Now {
    Now {
        unix_ns: (START + seconds) * 1_000_000_000,
        ..Now::default()
    }
}

/// The key of this name, and its hash in `store`.
pub(crate) fn named<'k>(
    store: &Store,
    name: &'k (impl AsRef<[u8]> + ?Sized),
) -> (Key<'k>, KeyHash) {
    let name = name.as_ref();
    (Key::new(name).expect("a key"), store.hash(name))
}

/// The whole value of an item.
pub(crate) fn value_of(view: &ItemView<'_>) -> Vec<u8> {
    let mut value = vec![0; view.value_bytes()];
    assert_eq!(view.copy_value(0, &mut value), value.len());
    value
}
