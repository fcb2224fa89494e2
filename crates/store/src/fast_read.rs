//! The fast path of reads: a short item of which only the value is asked.
//!
//! The general way ([`Store::get_hinted`]) asks one thing after the other: is this an item, is it
//! large, does it end, is it stale, has somebody won it. One look at the item's meta word says no
//! to all of them at once; then the value goes word by word to where the reply is being written.
//! Whatever is not such an item, or is not where the hint says, is left to the general way, which
//! begins anew; so this way need never decide that something is missing.
//!
//! Why nothing is shown that is not the key's whole value of one moment: whatever happens to the
//! words meanwhile, a version that `Index::read_at` compares has changed by then (`locks.rs` in
//! `table` says how a reader comes to see that).
//!
//! - A write in place, and every change of the meta word that hides an item, is made under the
//!   key's lock and noted there. Notes of accesses are not: with and without them all is true.
//! - Words are used again only after their reference went from the index, under the lock of the
//!   key, and their segment was retired. Who retires it may have found an item dead without taking
//!   that lock; the fence in `Segments::retire` makes up for it (`loom/items.rs` in `table`). Who
//!   writes there next took its own key's lock before it was given the words; the fence that hands
//!   them out makes up for that.
//! - A segment's memory that was given back to the system reads as zeros: a key of no bytes.
//! - The version is that of the bucket of the hint. A key is in the index once, so an item of the
//!   key that is found there is the key's, whichever buckets are its own by then.
//! - A flush makes the segment old before it is answered, and that is looked at in between.
//! - Up to seven bytes behind the value may be another item's. They are never sent.

use curtail_table::Hint;
use curtail_types::{Key, KeyHash, Now};

use crate::{
    COPY_BYTES_MAX, Store,
    item::{Meta, copy_words},
};

impl Store {
    /// Writes a reply with the item of `key` into `room` if it is a short one at the place of
    /// `hint`, without expiry, client flags or anything else to tell; returns the bytes of head and
    /// value, and those of the value. `head` is given the room and the value's length, writes what
    /// comes before the value, and says how many bytes that is. It may be called though the read
    /// comes to nothing: then `room` holds garbage, as it does up to seven bytes behind the value.
    ///
    /// `None` says nothing about the item: ask [`Store::get_hinted`].
    #[inline(always)] // into the loop over the batch, where most requests pass
    pub fn get_plain(
        &self,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        hint: Hint,
        room: &mut [u8],
        head: impl FnOnce(&mut [u8], usize) -> Option<usize>,
    ) -> Option<(usize, usize)> {
        self.tick(now);
        let mut seen = None;
        let written = self.index.read_at(hash, hint, |reference, mark| {
            let item = self.item(reference.get());
            let meta = item.meta();
            let is_plain = meta.is_plain_with(key) && item.has_key(key);
            if !is_plain || self.is_flushed(reference.get()) {
                return None;
            }
            seen = Some((reference, mark, meta));
            let (key_bytes, value_bytes) = (key.bytes().len(), meta.value_bytes());
            let head_bytes = head(room, value_bytes)?;
            let value_room = room.get_mut(head_bytes..)?;
            copy_words(item.plain_body(), key_bytes, value_bytes, value_room)?;
            Some((head_bytes + value_bytes, value_bytes))
        })?;
        let (reference, mark, meta) = seen?;
        self.note_plain_access(now, hash, hint, reference, mark, meta);
        Some(written)
    }
}

impl Meta {
    /// Whether this is an item with a key as long as `key` and its whole, short value, and nothing
    /// to tell beside it.
    #[inline(always)]
    fn is_plain_with(self, key: Key<'_>) -> bool {
        self.plain_key_bytes() == Some(key.bytes().len()) && self.value_bytes() <= COPY_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{Get, Set, WriterId};

    use super::*;
    use crate::StoreConfig;

    /// Goal: a key is told from another with the same hash, at each of its bytes. Method: an item
    /// under a hash, and the same hash asked for with keys that differ in one byte.
    #[test]
    fn another_key_of_the_same_hash_is_not_taken_for_it() {
        let store = Store::new(StoreConfig::default()).expect("a store");
        let (mut writer, now) = (store.writer(WriterId(1)), Now::default());
        for length in [1, 7, 8, 9, 16, 23, 250] {
            let mut bytes = vec![b'k'; length];
            let (hash, set) = (store.hash(&bytes), Set::default());
            store.set(
                &mut writer,
                now,
                Key::new(&bytes).expect("a key"),
                hash,
                &set,
                b"value",
            );
            let hint = store.prefetch_item(hash);
            let read = |bytes: &[u8]| {
                let key = Key::new(bytes).expect("a key");
                store.get_plain(now, key, hash, hint, &mut [0; 64], |_, _| Some(0))
            };
            assert_eq!(read(&bytes), Some((5, 5)), "{length}");
            for place in 0..length {
                bytes[place] ^= 0x80;
                assert_eq!(read(&bytes), None, "{place} of {length}");
                bytes[place] ^= 0x80;
            }
            bytes.pop();
            assert!(
                bytes.is_empty() || read(&bytes).is_none(),
                "a shorter key, {length}"
            );
        }
    }

    /// Goal: a read without a hint, or with room that is too short, is left to the general way, and
    /// a read the short way counts as an access. Method: those reads, and the item's status.
    #[test]
    fn what_cannot_be_answered_is_left_alone() {
        let store = Store::new(StoreConfig::default()).expect("a store");
        let (mut writer, now) = (store.writer(WriterId(1)), Now::default());
        let key = Key::new(b"key").expect("a key");
        let (hash, set) = (store.hash(key.bytes()), Set::default());
        store.set(&mut writer, now, key, hash, &set, b"nine more");
        let hint = store.prefetch_item(hash);
        let read =
            |hint, room: &mut [u8]| store.get_plain(now, key, hash, hint, room, |_, _| Some(0));
        assert_eq!(read(Hint::default(), &mut [0; 64]), None);
        assert_eq!(read(hint, &mut [0; 15]), None, "it writes whole words");
        let mut fetched = || {
            let unnoticed = Get {
                quiet_access: true,
                ..Get::default()
            };
            let status = store.get(&mut writer, now, key, hash, &unnoticed, |view| {
                view.status()
            });
            status.expect("it is there").fetched
        };
        assert!(!fetched());
        assert_eq!(read(hint, &mut [0; 16]), Some((9, 9)));
        assert!(fetched());
    }
}
