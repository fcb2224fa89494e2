//! Lists the keys, a bounded part of the index at a time.
//!
//! For people who look into a cache, not for programs: an item that moves or changes while it is
//! being listed may be missed.

use curtail_types::{Get, ItemStatus, Key, Now};

use crate::{Store, Writer};

impl Store {
    /// Shows `each` the keys in `buckets_max` buckets of the index from `from` (0 at first) on, and
    /// returns where to go on, or nothing at the end. Nothing is looked up: an item may have ended,
    /// and what is changed at that moment may show a key that nobody has. So these are keys to ask
    /// for.
    pub fn keys(
        &self,
        from: usize,
        buckets_max: usize,
        mut each: impl FnMut(Key<'_>),
    ) -> Option<usize> {
        self.index.for_some(from, buckets_max, |reference| {
            let item = self.item(reference.get());
            let mut bytes = [0; 256];
            let length = item.copy_key(item.meta(), &mut bytes);
            if let Some(Ok(key)) = bytes.get(..length).map(Key::new) {
                each(key);
            }
        })
    }

    /// Shows `each` the items in `buckets_max` buckets of the index from `from` (0 at first) on,
    /// without counting as a read. Returns where to go on, or nothing at the end.
    pub fn list(
        &self,
        writer: &mut Writer,
        now: Now,
        from: usize,
        buckets_max: usize,
        mut each: impl FnMut(Key<'_>, &ItemStatus),
    ) -> Option<usize> {
        let get = Get {
            quiet_access: true,
            keep_token: true,
            ..Get::default()
        };
        self.index.for_some(from, buckets_max, |reference| {
            // The words may change under our eyes: what they give is a key to ask for, no more.
            let item = self.item(reference.get());
            let mut bytes = [0; 256];
            let length = item.copy_key(item.meta(), &mut bytes);
            let Some(Ok(key)) = bytes.get(..length).map(Key::new) else {
                return;
            };
            let status = self.get(writer, now, key, self.hash(key.bytes()), &get, |view| {
                view.status()
            });
            if let Some(status) = status {
                each(key, &status);
            }
        })
    }
}
