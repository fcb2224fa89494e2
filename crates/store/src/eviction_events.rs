//! Records evicted items for watchers.
//!
//! Off by default, and then an eviction costs one look at a flag. While it is on, each writer notes
//! what it evicts, up to a bound per turn; the rest is only counted.

use curtail_types::{ItemStatus, Now};

use crate::{Store, Writer, item_view::status_of, large_values::Value, store::Found};

/// An item that was evicted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Evicted {
    /// Its key.
    pub key: Box<[u8]>,
    /// What else was known of it.
    pub status: ItemStatus,
}

/// What one writer evicted.
#[derive(Debug, Default)]
pub(crate) struct EvictionRecord {
    on: bool,
    items: Vec<Evicted>,
    left_out: u64,
}

/// Items noted between two calls of [`Writer::drain_evicted`]: more than a turn usually evicts.
const NOTED_MAX: usize = 1024;

impl Writer {
    /// Has evictions noted from now on, or no longer.
    pub fn note_evicted(&mut self, on: bool) {
        self.evicted.on = on;
    }

    /// Shows `each` the items evicted since the last call, and returns how many more there were.
    pub fn drain_evicted(&mut self, each: impl FnMut(Evicted)) -> u64 {
        self.evicted.items.drain(..).for_each(each);
        std::mem::take(&mut self.evicted.left_out)
    }
}

impl Store {
    /// Notes that the locked item `found` is about to be evicted, if anybody wants to know.
    #[inline]
    pub(crate) fn note_evicted(&self, writer: &mut Writer, now: Now, found: &Found) {
        if writer.evicted.on {
            self.describe_evicted(&mut writer.evicted, now, found);
        }
    }

    #[cold]
    fn describe_evicted(&self, record: &mut EvictionRecord, now: Now, found: &Found) {
        if record.items.len() >= NOTED_MAX {
            record.left_out += 1;
            return;
        }
        let item = self.item(found.reference);
        let mut key = [0; 256];
        let key_bytes = item.copy_key(found.meta, &mut key);
        let value_bytes = Value::of(found.reference, item, found.meta).bytes;
        let extension = item.extension(found.meta);
        record.items.push(Evicted {
            key: key.get(..key_bytes).unwrap_or_default().into(),
            status: status_of(item, found.meta, extension, value_bytes, now),
        });
    }
}
