//! Copies of hot keys whose slices have their primaries elsewhere: what readers here may show.
//!
//! A copy stands apart from the stored items, since a follower's store may have a change that is
//! not to be shown yet. The machine of a slice changes its copies under a lock that is held for a
//! moment only; readers copy under the same lock, so what they show was valid.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use curtail_consistency::replica::CopyState;
use curtail_store::Image;
use curtail_types::{ItemStatus, Now, Outcome, RouteHash};

use crate::sync::{Mutex, lock};

/// The copies of one stage.
#[derive(Debug, Default)]
pub(crate) struct CopyTable(Mutex<ByRoute<HotCopy>>);

/// What readers may see of one key.
#[derive(Debug, Default)]
struct HotCopy {
    state: CopyState,
    /// The value of the key; `None` at the primary, whose stored item it is.
    image: Option<CopiedItem>,
}

/// An item, or that there is none.
#[derive(Debug, Default)]
pub(super) struct CopiedItem {
    image: Option<Image>,
    value: Vec<u8>,
}

/// Route hashes are hashes already.
pub(super) type ByRoute<T> = HashMap<RouteHash, T, BuildHasherDefault<RouteHasher>>;

#[derive(Default)]
pub(super) struct RouteHasher(u64);

impl Hasher for RouteHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The top bits are the same for all keys of a slice, and the table tells keys by them.
        self.0 = self.0.rotate_left(5) ^ hash.rotate_left(20);
    }
}

impl CopyTable {
    /// Has `show` look at the copy of `key`, if there is one that readers may show: how a read of
    /// it ends, and its value.
    pub(crate) fn read<T>(
        &self,
        now: Now,
        key: RouteHash,
        show: impl FnOnce(Outcome, &[u8]) -> T,
    ) -> Option<T> {
        let copies = lock(&self.0);
        let copy = copies
            .get(&key)
            .filter(|copy| copy.state == CopyState::Valid)?;
        let item = copy.image.as_ref()?;
        Some(match item.status(now) {
            Some(status) => show(Outcome::Found(status), &item.value),
            None => show(Outcome::Missing, &[]),
        })
    }

    /// Whether there is one of a stale item that no reader was told to store again.
    pub(in crate::node) fn may_be_won(&self, key: RouteHash) -> bool {
        let copies = lock(&self.0);
        let image = copies.get(&key).and_then(|copy| copy.image.as_ref()?.image);
        image.is_some_and(|image| image.stale && !image.won)
    }

    /// Whether there is one, or the key is hot and its item is the copy.
    pub(super) fn has(&self, key: RouteHash) -> bool {
        lock(&self.0).contains_key(&key)
    }

    /// What readers may see from now on; with `image`, another value.
    pub(super) fn show(
        &self,
        key: RouteHash,
        state: CopyState,
        image: Option<(Option<Image>, &[u8])>,
    ) {
        let mut copies = lock(&self.0);
        if state == CopyState::Absent {
            copies.remove(&key);
            return;
        }
        let copy = copies.entry(key).or_default();
        copy.state = state;
        if let Some((image, value)) = image {
            let item = copy.image.get_or_insert_default();
            item.image = image;
            item.value.clear();
            item.value.extend_from_slice(value);
        }
    }

    /// Forgets all; `each` is told which.
    pub(super) fn clear(&self, mut each: impl FnMut(RouteHash)) {
        for (key, _) in lock(&self.0).drain() {
            each(key);
        }
    }

    /// How many there are, with keys whose items are the copies.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

impl CopiedItem {
    /// What a read tells of it; `None` if there is none, or no more.
    fn status(&self, now: Now) -> Option<ItemStatus> {
        let image = self.image.as_ref()?;
        let left = image.expiry.checked_sub(now.unix_seconds());
        if image.expiry != 0 && left.is_none_or(|seconds| seconds == 0) {
            return None;
        }
        Some(ItemStatus {
            flags: image.flags,
            cas: image.cas,
            value_bytes: u32::try_from(self.value.len()).unwrap_or(u32::MAX),
            ttl_seconds: left.filter(|_| image.expiry != 0),
            stale: image.stale,
            contended: image.won,
            fetched: true,
            ..ItemStatus::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RouteHash = RouteHash(7);

    fn now(seconds: u64) -> Now {
        Now {
            unix_ns: seconds * 1_000_000_000,
            ..Now::default()
        }
    }

    fn shown(copies: &CopyTable, seconds: u64) -> Option<(Outcome, Vec<u8>)> {
        copies.read(now(seconds), KEY, |outcome, value| {
            (outcome, value.to_vec())
        })
    }

    #[test]
    fn a_copy_is_shown_while_it_is_valid_and_has_a_value_until_it_expires() {
        let copies = CopyTable::default();
        copies.show(KEY, CopyState::Valid, None);
        assert_eq!(shown(&copies, 5), None, "the stored item is the copy");
        let image = Image {
            expiry: 10,
            ..Image::default()
        };
        copies.show(KEY, CopyState::Invalid, Some((Some(image), b"v")));
        assert_eq!(shown(&copies, 5), None);
        copies.show(KEY, CopyState::Valid, None);
        let (outcome, value) = shown(&copies, 5).unwrap();
        assert!(matches!(outcome, Outcome::Found(status) if status.ttl_seconds == Some(5)));
        assert_eq!(value, b"v");
        assert_eq!(shown(&copies, 10).unwrap().0, Outcome::Missing);
        copies.show(KEY, CopyState::Absent, None);
        assert_eq!((shown(&copies, 5), copies.len()), (None, 0));
    }

    /// Goal: the right to store a stale item again is asked for until a reader has it. Method: a
    /// copy of an item that is fresh, stale, and stale with a reader; and none.
    #[test]
    fn a_copy_may_be_won_while_it_is_stale() {
        let copies = CopyTable::default();
        for (stale, won) in [(false, false), (true, false), (true, true)] {
            let image = Image {
                stale,
                won,
                ..Image::default()
            };
            copies.show(KEY, CopyState::Valid, Some((Some(image), b"v")));
            assert_eq!(copies.may_be_won(KEY), stale && !won);
        }
        copies.show(KEY, CopyState::Absent, None);
        assert!(!copies.may_be_won(KEY));
    }
}
