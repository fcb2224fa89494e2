//! Reads: optimistic where they change nothing, under the key's lock where they do.

use curtail_table::{Hint, Locked, Reference};
use curtail_types::{Expiry, Exptime, Get, Key, KeyHash, Now};

use crate::{
    COPY_BYTES_MAX, ItemView, Store, Writer,
    counters::Count,
    eviction::MARK_ENOUGH,
    item::{Extension, Item, Meta},
    large_values::Value,
    store::{Found, Items, Presence},
    ttl_buckets::expiry_note,
    write::{ChangeContext, Fresh, Need},
};

/// An access is noted in the item when it is the first one, or this long after the last note; so a
/// hot item is written to once a minute, and the idle time may be shown that much too high.
const ACCESS_NOTE_SECONDS: u32 = 60;

/// What an optimistic read came upon.
enum Seen<T> {
    /// The item, its meta word as seen.
    Item(T, Reference, Hint, Meta),
    /// An item that may not be shown.
    Gone,
    /// A stale item whose right to recache is free.
    Winnable,
}

impl Store {
    /// Reads the item of `key`. `view` may run more than once and must start over each time; the
    /// result of its last run counts.
    #[inline]
    pub fn get<T>(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        get: &Get,
        view: impl FnMut(&ItemView<'_>) -> T,
    ) -> Option<T> {
        self.get_hinted(writer, now, key, hash, Hint::default(), get, view)
    }

    /// The same with what [`Store::prefetch_item`] returned, which saves a search.
    #[inline]
    #[allow(clippy::too_many_arguments)] // the request's parts, passed through once
    pub fn get_hinted<T>(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        hint: Hint,
        get: &Get,
        mut view: impl FnMut(&ItemView<'_>) -> T,
    ) -> Option<T> {
        self.tick(now);
        if get.changes() {
            return self.get_changing(writer, now, key, hash, get, view);
        }
        let seen = self.index.read_hinted(hash, hint, |reference, place| {
            let item = self.item(reference.get());
            let meta = item.meta();
            if !item.is_of(meta, key.bytes()) {
                return None;
            }
            if self.presence(reference.get(), item.extension(meta), now) != Presence::Here {
                return Some(Seen::Gone);
            }
            if meta.stale() && !meta.won() && !get.keep_token {
                return Some(Seen::Winnable);
            }
            let shown = self.view(reference.get(), item, meta, now);
            Some(Seen::Item(view(&shown), reference, place, meta))
        })?;
        match seen {
            Seen::Item(result, reference, place, meta) => {
                if !get.quiet_access {
                    self.note_access(now, hash, reference, place, meta);
                }
                Some(result)
            }
            Seen::Gone => {
                self.get_gone(writer, now, key, hash);
                None
            }
            Seen::Winnable => self.get_changing(writer, now, key, hash, get, view),
        }
    }

    #[inline]
    pub(crate) fn view<'a>(
        &'a self,
        reference: u64,
        item: Item<'a>,
        meta: Meta,
        now: Now,
    ) -> ItemView<'a> {
        ItemView::new(self.segments(), &self.gate, reference, item, meta, now)
    }

    /// Tells eviction, and now and then the item itself, that it was read. A hot item's mark has
    /// come to its end, and then nothing is written.
    #[inline(never)]
    fn note_access(&self, now: Now, hash: KeyHash, reference: Reference, place: Hint, meta: Meta) {
        self.index.raise_mark(place, reference, |mark| {
            self.mark_after_hit(reference.get(), mark)
        });
        if !meta.fetched() || meta.idle_seconds(now) >= ACCESS_NOTE_SECONDS {
            self.write_access(now, hash, reference);
        }
    }

    /// The same where the item's mark was seen as well.
    #[inline(always)]
    pub(crate) fn note_plain_access(
        &self,
        now: Now,
        hash: KeyHash,
        place: Hint,
        reference: Reference,
        mark: u8,
        meta: Meta,
    ) {
        let is_noted = meta.fetched() && meta.idle_seconds(now) < ACCESS_NOTE_SECONDS;
        if mark < MARK_ENOUGH || !is_noted {
            self.note_access(now, hash, reference, place, meta);
        }
    }

    /// Writes the access into the item. Readers need not repeat for it: both states are true.
    #[cold]
    fn write_access(&self, now: Now, hash: KeyHash, reference: Reference) {
        let mut locked = self.index.lock(hash);
        if locked.find(|found| found == reference).is_some() {
            let item = self.item(reference.get());
            item.set_meta(item.meta().with_fetched().with_access(now));
        }
    }

    /// Removes an item that a read found expired or flushed.
    #[cold]
    fn get_gone(&self, writer: &mut Writer, now: Now, key: Key<'_>, hash: KeyHash) {
        let mut locked = self.index.lock(hash);
        if let Some(found) = self.find(&mut locked, key) {
            self.count_gone(writer, now, &mut locked, found);
        }
    }

    /// Removes the item if it is gone, and counts the read that found it; whether it was.
    fn count_gone(
        &self,
        writer: &Writer,
        now: Now,
        locked: &mut Locked<'_, Items>,
        found: Found,
    ) -> bool {
        let extension = self.item(found.reference).extension(found.meta);
        let gone = self.presence(found.reference, extension, now);
        match gone {
            Presence::Here => return false,
            Presence::Expired => writer.count(Count::GetExpired),
            Presence::Flushed => writer.count(Count::GetFlushed),
        }
        self.remove_gone(writer, locked, found, gone);
        true
    }

    /// A read that changes the item: touch, vivify, recache, or winning a stale one.
    fn get_changing<T>(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        get: &Get,
        mut view: impl FnMut(&ItemView<'_>) -> T,
    ) -> Option<T> {
        self.with_room(writer, now, key, hash, |context, last_try| {
            let ChangeContext { writer, locked, .. } = context;
            let evicts_freely = writer.evicts_freely;
            let found = self.find(locked, key);
            let found = found.filter(|&found| !self.count_gone(writer, now, locked, found));
            match found {
                Some(found) => {
                    // Before the touch: `R30 T300` keeps an item that is about to end, and has its
                    // reader store it again.
                    let expiry = self.item(found.reference).extension(found.meta).expiry;
                    let is_due = get
                        .recache
                        .is_some_and(|within| ends_within(expiry, within, now));
                    let found = match self.touch_found(context, found, get.touch) {
                        Ok(found) => found,
                        // Without room the expiry stays what it is; the read is still answered.
                        // A caller that may not evict for it will try again: then nothing changes.
                        Err((found, need)) => match last_try || need != Need::Room {
                            true if evicts_freely => found,
                            _ => return Err(need),
                        },
                    };
                    let locked = &mut context.locked;
                    Ok(Some(
                        self.show_found(now, locked, found, get, is_due, &mut view),
                    ))
                }
                None => match get.vivify {
                    Some(exptime) => self
                        .vivify(context, get, exptime)
                        .map(|reference| Some(self.show_vivified(now, reference, get, &mut view))),
                    None => Ok(None),
                },
            }
        })
        .flatten()
    }

    /// Shows a locked item, giving away the right to recache if that `is_due` or the item is stale.
    fn show_found<T>(
        &self,
        now: Now,
        locked: &mut Locked<'_, Items>,
        found: Found,
        get: &Get,
        is_due: bool,
        view: &mut impl FnMut(&ItemView<'_>) -> T,
    ) -> T {
        let item = self.item(found.reference);
        let meta = item.meta();
        let won = !get.keep_token && !meta.won() && (meta.stale() || is_due);
        let mut shown = self.view(found.reference, item, meta, now);
        if won {
            shown.win(false);
        }
        let result = view(&shown);
        let mut changed = meta.with_won(meta.won() || won);
        if !get.quiet_access {
            changed = changed.with_fetched().with_access(now);
            self.mark_hit(locked, found);
        }
        item.set_meta(changed);
        if won {
            locked.changed(found.position);
        }
        result
    }

    /// Creates an empty item that its reader has won.
    fn vivify(
        &self,
        context: &mut ChangeContext<'_, '_>,
        get: &Get,
        exptime: Exptime,
    ) -> Result<u64, Need> {
        let fresh = Fresh {
            cas: context.cas(get.new_cas, None),
            extension: Extension {
                expiry: exptime.expiry(context.now),
                flags: 0,
            },
            won: true,
            ..Fresh::default()
        };
        self.store_small(context, None, fresh, &[])
    }

    fn show_vivified<T>(
        &self,
        now: Now,
        reference: u64,
        get: &Get,
        view: &mut impl FnMut(&ItemView<'_>) -> T,
    ) -> T {
        let item = self.item(reference);
        let meta = item.meta();
        let mut shown = self.view(reference, item, meta, now);
        shown.win(true);
        let result = view(&shown);
        if !get.quiet_access {
            item.set_meta(meta.with_fetched());
        }
        result
    }

    /// Gives a locked item a new expiry; returns where it is afterwards. An item without room for
    /// an expiry, or in a segment of another TTL, is written anew if it is small.
    pub(crate) fn touch_found(
        &self,
        context: &mut ChangeContext<'_, '_>,
        found: Found,
        touch: Option<Exptime>,
    ) -> Result<Found, (Found, Need)> {
        let Some(expiry) = touch.map(|exptime| exptime.expiry(context.now)) else {
            return Ok(found);
        };
        let item = self.item(found.reference);
        let old = item.extension(found.meta);
        if old.expiry == expiry {
            return Ok(found);
        }
        let new = Extension { expiry, ..old };
        let Some(id) = self.segments().segment_of(found.reference) else {
            return Ok(found);
        };
        let last = self.segments().expiry_max(id);
        let is_large = found.meta.value_bytes() > COPY_BYTES_MAX;
        let stays = is_large || self.room.ttl.fits(expiry, last, context.now);
        if !(found.meta.extended() && stays) {
            let mut value = [0; COPY_BYTES_MAX];
            let length =
                Value::of(found.reference, item, found.meta).copy(self.segments(), 0, &mut value);
            let fresh = Fresh {
                cas: item.cas(),
                extension: new,
                stale: found.meta.stale(),
                won: found.meta.won(),
                keep_access: Some(found.meta),
            };
            match self.rewrite(context, found, fresh, &value[..length]) {
                Ok(found) => return Ok(found),
                Err(need) if !found.meta.extended() => return Err((found, need)),
                // A note that it ends is better than none, wherever it lies.
                Err(_) => {}
            }
        }
        item.set_extension(new);
        self.segments().note_expiry(id, expiry_note(expiry));
        context.locked.changed(found.position);
        Ok(found)
    }
}

/// Whether something that ends at `expiry` has less left than `within` asks for.
fn ends_within(expiry: Expiry, within: Exptime, now: Now) -> bool {
    let limit = within.expiry(now);
    !expiry.is_never() && expiry.to_bits() < limit.to_bits()
}
