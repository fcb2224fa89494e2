//! Finds the items of many slices in one walk through the index.

use curtail_table::Walk;
use curtail_types::{Now, RouteHash};

use crate::{Store, item::Kind, large_values::Value, route_hash::route_of, store::Presence};

/// How far a scan is; the default one begins. Dropping it ends the scan.
#[derive(Debug, Default)]
pub struct ScanCursor {
    walk: Option<Walk>,
    is_end: bool,
}

impl ScanCursor {
    /// Whether the scan has shown everything.
    pub fn is_end(&self) -> bool {
        self.is_end
    }
}

/// Items that are looked at together: those of two buckets at most.
const TOGETHER: usize = 16;

impl Store {
    /// Shows `found` the items in the next buckets, at most `buckets_max`, each with its slice, its
    /// route hash and its [bytes](Self::item_bytes). Returns where to go on.
    ///
    /// An item that is there from the first call to the last is shown at least once, one that moves
    /// in the index perhaps twice; of one that is written or removed meanwhile nothing is promised.
    /// A cursor may rest as long as it likes. Nothing is shown without slices.
    pub fn scan_slices(
        &self,
        now: Now,
        mut from: ScanCursor,
        buckets_max: usize,
        found: &mut dyn FnMut(u16, RouteHash, u32),
    ) -> ScanCursor {
        let Some(slices) = self.slices.get().filter(|_| !from.is_end) else {
            from.is_end = true;
            return from;
        };
        let walk = from.walk.get_or_insert_with(|| self.index.walk());
        for _ in 0..buckets_max {
            let mut shown = [(0, RouteHash(0), 0); TOGETHER];
            let mut count = 0;
            let goes_on = self.index.walk_on(walk, 1, |reference| {
                if let Some(place) = shown.get_mut(count)
                    && let Some((route, bytes)) = self.scanned(now, reference.get())
                {
                    *place = (slices.of(route), route, bytes);
                    count += 1;
                }
            });
            for &(slice, route, bytes) in &shown[..count] {
                found(slice, route, bytes);
            }
            if !goes_on {
                from.walk = None;
                from.is_end = true;
                break;
            }
        }
        from
    }

    /// Buckets that a scan goes through now.
    pub fn scan_buckets(&self) -> usize {
        self.index.slots() / (TOGETHER / 2)
    }

    /// What a scan shows of an item; its bucket is locked, so its words are its own.
    fn scanned(&self, now: Now, reference: u64) -> Option<(RouteHash, u32)> {
        let item = self.item(reference);
        let meta = item.meta();
        let is_item = matches!(meta.kind(), Kind::Inline | Kind::Head);
        if !is_item || self.presence(reference, item.extension(meta), now) != Presence::Here {
            return None;
        }
        let mut key = [0; 256];
        let length = item.copy_key(meta, &mut key);
        let value_bytes = Value::of(reference, item, meta).bytes;
        let bytes = Self::item_bytes(length, value_bytes);
        Some((route_of(&key[..length]), bytes))
    }
}
