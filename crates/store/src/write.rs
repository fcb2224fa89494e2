//! Writes: how a value is stored under a key.
//!
//! Small values (up to [`COPY_BYTES_MAX`]) are written under the key's lock, in place when the old
//! item takes as many words and its segment suits; that is the common overwrite and allocates
//! nothing. Larger ones are written outside the lock into words that nobody else sees, and
//! published under it.

use curtail_segments::SegmentClaim;
use curtail_table::Locked;
use curtail_types::{Cas, Expiry, Exptime, Get, Key, KeyHash, Now, Set, SetMode, SetOutcome};

use crate::{
    COPY_BYTES_MAX, Reservation, Store, Writer,
    counters::Count,
    eviction::Queue,
    item::{Extension, Kind, Meta},
    large_values::{Chain, Plan, Value, give_up},
    open_segments::{NoSegment, RESERVE, Slot},
    reclaim::ITEMS_A_TURN,
    slices::SliceBug,
    store::{Found, ITEM_BYTES_LIMIT, Items},
    ttl_buckets::expiry_note,
};

/// What a change of one key needs: who makes it and when, and the key, which is locked.
pub(crate) struct ChangeContext<'a, 'i> {
    pub(crate) writer: &'a mut Writer,
    pub(crate) now: Now,
    pub(crate) key: Key<'a>,
    pub(crate) hash: KeyHash,
    pub(crate) locked: Locked<'i, Items>,
    pub(crate) taker: Taker,
}

/// Whose room an item takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Taker {
    /// That of any writer.
    Writer,
    /// What was promised.
    Promised,
}

impl Taker {
    pub(crate) fn claim(self) -> SegmentClaim {
        match self {
            Self::Writer => SegmentClaim::Beyond(RESERVE),
            Self::Promised => SegmentClaim::Kept,
        }
    }
}

impl ChangeContext<'_, '_> {
    /// The version for a write: the client's, or the next one.
    #[inline]
    pub(crate) fn cas(&mut self, wanted: Option<Cas>, old: Option<Cas>) -> Cas {
        wanted.unwrap_or_else(|| self.writer.next_cas(self.now, old))
    }
}

/// What an attempt under the key's lock lacked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Need {
    /// A free segment.
    Room,
    /// A free slot in the index.
    Slot,
    /// A second look: a flush came between.
    Again,
}

/// A small item that is to be written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fresh {
    pub(crate) cas: Cas,
    pub(crate) extension: Extension,
    pub(crate) stale: bool,
    pub(crate) won: bool,
    /// The item whose access time and fetched mark it inherits.
    pub(crate) keep_access: Option<Meta>,
}

impl Fresh {
    fn meta(&self, key: Key<'_>, value: &[u8], now: Now) -> Meta {
        let extended = self.extension.is_needed();
        let meta = Meta::new(Kind::Inline, key.bytes().len(), value.len(), extended)
            .with_stale(self.stale)
            .with_won(self.won);
        match self.keep_access {
            Some(old) => meta.with_access_of(old),
            None => meta.with_access(now),
        }
    }
}

/// What a write may do with what it found.
enum Judged {
    Refuse(SetOutcome),
    Store(Terms),
    Join(Found),
}

/// Under which terms a value is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) extension: Extension,
    pub(crate) stale: bool,
    pub(crate) won: bool,
}

/// How an attempt of a small write ended.
enum Attempt {
    Done(SetOutcome),
    /// The joined value is not small.
    JoinLarge,
}

/// Attempts under the key's lock, each after some room was made.
const ATTEMPTS_MAX: usize = 64;

/// Attempts to join a large value with what is there, each lost to another write of the same key.
const JOIN_ATTEMPTS_MAX: usize = 1000;

impl Store {
    /// Writes `value` under `key`.
    #[inline]
    pub fn set(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value: &[u8],
    ) -> SetOutcome {
        self.tick(now);
        if value.len() > COPY_BYTES_MAX {
            return self.set_large(writer, now, key, hash, set, value);
        }
        if value.len() > self.config().item_bytes_max {
            return self.refuse(writer, key, hash, set, SetOutcome::TooLarge);
        }
        let attempt = self.with_room(writer, now, key, hash, |context, _| {
            self.try_set(context, set, value)
        });
        match attempt {
            Some(Attempt::Done(outcome)) => outcome,
            Some(Attempt::JoinLarge) => self.join_large(writer, now, key, hash, set, value),
            None => self.refuse(writer, key, hash, set, SetOutcome::OutOfMemory),
        }
    }

    /// Locks the key and tries; between the tries makes the room that the last one lacked. `None`
    /// when there is none to be made. The attempt is told when it is the last.
    #[inline]
    pub(crate) fn with_room<T>(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        mut attempt: impl FnMut(&mut ChangeContext<'_, '_>, bool) -> Result<T, Need>,
    ) -> Option<T> {
        // The lock is given back before anything else: draining takes locks of its own.
        let mut attempt_locked = |writer: &mut Writer, locked: Locked<'_, Items>, is_last| {
            let mut context = ChangeContext {
                writer,
                now,
                key,
                hash,
                locked,
                taker: Taker::Writer,
            };
            attempt(&mut context, is_last)
        };
        let mut need = match attempt_locked(writer, self.index.lock(hash), false) {
            Ok(result) => {
                self.assist(writer, now);
                return Some(result);
            }
            Err(need) => need,
        };
        let mut needs_slot = false;
        for _ in 0..ATTEMPTS_MAX {
            needs_slot |= need == Need::Slot;
            let is_last = need == Need::Room && !self.make_room(writer, now, 1);
            let locked = match needs_slot {
                true => self.index.lock_with_room(hash).map_err(|_| Need::Room),
                false => Ok(self.index.lock(hash)),
            };
            let result = locked.and_then(|locked| attempt_locked(writer, locked, is_last));
            match result {
                Ok(result) => return Some(result),
                Err(_) if is_last => return None,
                // An index that is full has room only when an item goes, wherever segments are.
                Err(Need::Room) if needs_slot => {
                    self.reclaim(writer, now, ITEMS_A_TURN, usize::MAX);
                    need = Need::Room;
                }
                Err(next) => need = next,
            }
        }
        None
    }

    /// One attempt of a small write under the key's lock.
    fn try_set(
        &self,
        context: &mut ChangeContext<'_, '_>,
        set: &Set,
        value: &[u8],
    ) -> Result<Attempt, Need> {
        let found = self.find_present(context);
        let old_cas = found.map(|found| self.item(found.reference).cas());
        let mut joined;
        let (value, fresh) = match self.judge(context.now, set, found) {
            Judged::Refuse(outcome) => return Ok(Attempt::Done(outcome)),
            Judged::Store(terms) => {
                let fresh = Fresh {
                    extension: terms.extension,
                    stale: terms.stale,
                    won: terms.won,
                    ..Fresh::default()
                };
                (value, fresh)
            }
            Judged::Join(old) => {
                joined = [0; COPY_BYTES_MAX];
                let Some(joined) = self.join_small(old, set.mode, value, &mut joined) else {
                    return Ok(Attempt::JoinLarge);
                };
                let fresh = Fresh {
                    extension: self.item(old.reference).extension(old.meta),
                    ..Fresh::default()
                };
                (joined, fresh)
            }
        };
        let cas = context.cas(set.new_cas, old_cas);
        self.store_small(context, found, Fresh { cas, ..fresh }, value)?;
        context.writer.count(Count::ItemsTotal);
        Ok(Attempt::Done(SetOutcome::Stored(cas)))
    }

    /// What memcached would do with this write, given what is there.
    fn judge(&self, now: Now, set: &Set, found: Option<Found>) -> Judged {
        let joins = matches!(set.mode, SetMode::Append | SetMode::Prepend);
        let exptime = match set.vivify {
            Some(vivify) if joins => vivify,
            _ => set.exptime,
        };
        let mut terms = Terms {
            extension: Extension {
                expiry: exptime.expiry(now),
                flags: set.flags,
            },
            stale: false,
            won: false,
        };
        let Some(found) = found else {
            let stores = match set.mode {
                SetMode::Set if set.compare.is_some() => {
                    return Judged::Refuse(SetOutcome::NotFound);
                }
                SetMode::Replace if set.compare.is_some() => {
                    return Judged::Refuse(SetOutcome::NotFound);
                }
                SetMode::Set | SetMode::Add => true,
                SetMode::Replace => false,
                SetMode::Append | SetMode::Prepend => set.vivify.is_some(),
            };
            return match stores {
                true => Judged::Store(terms),
                false => Judged::Refuse(SetOutcome::NotStored),
            };
        };
        if set.mode == SetMode::Add {
            return Judged::Refuse(SetOutcome::NotStored);
        }
        let item = self.item(found.reference);
        if let Some(compare) = set.compare
            && compare != item.cas()
        {
            let is_older = Cas(0) < compare && compare < item.cas();
            let may_be_stale = set.invalidate && is_older && !joins;
            if !may_be_stale {
                return Judged::Refuse(SetOutcome::Exists);
            }
            terms.extension.expiry = item.extension(found.meta).expiry;
            terms.stale = true;
            terms.won = found.meta.won();
        }
        if joins {
            Judged::Join(found)
        } else {
            Judged::Store(terms)
        }
    }

    /// Writes a small item: over the old one where that is possible, else to new words. Returns
    /// where it is. The old one must be present and locked.
    pub(crate) fn store_small(
        &self,
        context: &mut ChangeContext<'_, '_>,
        old: Option<Found>,
        fresh: Fresh,
        value: &[u8],
    ) -> Result<u64, Need> {
        debug_assert!(value.len() <= COPY_BYTES_MAX);
        let ChangeContext {
            writer,
            now,
            key,
            hash,
            locked,
            taker,
        } = context;
        let expiry = fresh.extension.expiry;
        let meta = self.in_slice(fresh.meta(*key, value, *now), *key);
        if let Some(old) = old
            && self.fits_in_place(*now, old, meta, expiry)
        {
            self.item(old.reference)
                .write(fresh.cas, meta, fresh.extension, key.bytes(), value);
            locked.changed(old.position);
            self.mark_hit(locked, old);
            writer.count(Count::InPlace);
            return Ok(old.reference);
        }
        if old.is_none() && !locked.has_room() {
            return Err(Need::Slot);
        }
        let queue = self.queue_for(old, *hash, meta.words() * 8);
        let slot = self.slot_for(writer, *taker, queue, expiry, *now);
        let allocation = self
            .room
            .allocate(slot, meta.words(), expiry, taker.claim())
            .map_err(|NoSegment| Need::Room)?;
        // A flush between finding the old item and allocating would let its value survive.
        if old.is_some_and(|old| self.is_flushed(old.reference)) {
            give_up(self.segments(), allocation);
            return Err(Need::Again);
        }
        let reference = allocation.reference();
        self.item(reference)
            .write(fresh.cas, meta, fresh.extension, key.bytes(), value);
        if self.publish(writer, locked, old, reference).is_err() {
            give_up(self.segments(), allocation);
            return Err(Need::Slot);
        }
        self.segments().finish(allocation);
        Ok(reference)
    }

    /// Where an item goes that is written for a taker.
    #[inline]
    pub(crate) fn slot_for(
        &self,
        writer: &Writer,
        taker: Taker,
        queue: Queue,
        expiry: Expiry,
        now: Now,
    ) -> Slot {
        match taker {
            Taker::Writer => self.room.slot(writer.group(), queue, expiry, now),
            Taker::Promised if self.plants(SliceBug::SharesSegments) => {
                self.room.slot(writer.group(), queue, expiry, now)
            }
            Taker::Promised => self.room.promised_slot(queue, expiry, now),
        }
    }

    /// The same in the place of an item, which it returns as it is afterwards.
    pub(crate) fn rewrite(
        &self,
        context: &mut ChangeContext<'_, '_>,
        found: Found,
        fresh: Fresh,
        value: &[u8],
    ) -> Result<Found, Need> {
        let reference = self.store_small(context, Some(found), fresh, value)?;
        Ok(Found {
            position: found.position,
            reference,
            meta: self.item(reference).meta(),
        })
    }

    /// Whether a small item may be written over an old one: both small, of the same size and with
    /// the key at the same place, and the end suits the segment. A drain reads keys without a lock,
    /// and takes an item for removed that is not found under the key that it read; so as long as an
    /// item lies where it lies, the words of its key are the same.
    #[inline]
    fn fits_in_place(&self, now: Now, old: Found, new: Meta, expiry: Expiry) -> bool {
        if old.meta.kind() != Kind::Inline
            || old.meta.extended() != new.extended()
            || old.meta.words() != new.words()
            || old.meta.value_bytes() > COPY_BYTES_MAX
        {
            return false;
        }
        let Some(id) = self.segments().segment_of(old.reference) else {
            return false;
        };
        if !self
            .room
            .ttl
            .fits(expiry, self.segments().expiry_max(id), now)
        {
            return false;
        }
        self.segments().note_expiry(id, expiry_note(expiry));
        true
    }

    /// The old value with `value` behind or before it, if that is still small.
    fn join_small<'a>(
        &self,
        old: Found,
        mode: SetMode,
        value: &[u8],
        joined: &'a mut [u8; COPY_BYTES_MAX],
    ) -> Option<&'a [u8]> {
        let old = Value::of(old.reference, self.item(old.reference), old.meta);
        let joined = joined.get_mut(..old.bytes + value.len())?;
        if mode == SetMode::Prepend {
            let (first, rest) = joined.split_at_mut(value.len());
            first.copy_from_slice(value);
            old.copy(self.segments(), 0, rest);
        } else {
            let (first, rest) = joined.split_at_mut(old.bytes);
            old.copy(self.segments(), 0, first);
            rest.copy_from_slice(value);
        }
        Some(joined)
    }

    /// Joins a value that is large, or becomes it: reads, joins, and writes if nothing came
    /// between.
    fn join_large(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value: &[u8],
    ) -> SetOutcome {
        let unnoticed = Get {
            quiet_access: true,
            keep_token: true,
            ..Get::default()
        };
        for _ in 0..JOIN_ATTEMPTS_MAX {
            let mut joined = Vec::new();
            let seen = self.get(writer, now, key, hash, &unnoticed, |view| {
                joined.clear();
                // Garbage until the read is validated.
                joined.resize(view.value_bytes().min(ITEM_BYTES_LIMIT), 0);
                view.copy_value(0, &mut joined);
                view.status()
            });
            let Some(status) = seen else {
                return self.join_nothing(writer, now, key, hash, set, value);
            };
            if set.compare.is_some_and(|compare| compare != status.cas) {
                return SetOutcome::Exists;
            }
            let at = if set.mode == SetMode::Prepend {
                0
            } else {
                joined.len()
            };
            joined.splice(at..at, value.iter().copied());
            let end = |ttl: u32| i64::from(now.unix_seconds()) + i64::from(ttl);
            let whole = Set {
                mode: SetMode::Set,
                flags: status.flags,
                exptime: Exptime(status.ttl_seconds.map_or(0, end)),
                compare: Some(status.cas),
                invalidate: false,
                vivify: None,
                new_cas: set.new_cas,
            };
            match self.set(writer, now, key, hash, &whole, &joined) {
                SetOutcome::Exists => {}
                SetOutcome::NotFound => {}
                outcome => return outcome,
            }
        }
        SetOutcome::NotStored
    }

    /// Append and prepend when nothing is there.
    fn join_nothing(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value: &[u8],
    ) -> SetOutcome {
        let Some(exptime) = set.vivify else {
            return SetOutcome::NotStored;
        };
        let add = Set {
            mode: SetMode::Add,
            exptime,
            compare: None,
            ..*set
        };
        self.set(writer, now, key, hash, &add, value)
    }

    /// A write that cannot be done. Like memcached, a plain `set` then removes what is there, so
    /// that nobody reads an old value after a newer write was seen to fail. A caller that may not
    /// evict for it will try again: then nothing changes.
    #[cold]
    pub(crate) fn refuse(
        &self,
        writer: &mut Writer,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        outcome: SetOutcome,
    ) -> SetOutcome {
        writer.count(match outcome {
            SetOutcome::TooLarge => Count::TooLarge,
            _ => Count::NoMemory,
        });
        if outcome == SetOutcome::OutOfMemory && !writer.evicts_freely {
            return outcome;
        }
        if set.mode == SetMode::Set && set.compare.is_none() {
            let mut locked = self.index.lock(hash);
            if let Some(found) = self.find(&mut locked, key) {
                self.unlink(writer, &mut locked, found);
            }
        }
        outcome
    }

    // ---- large values ----

    fn set_large(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value: &[u8],
    ) -> SetOutcome {
        if matches!(set.mode, SetMode::Append | SetMode::Prepend) {
            return self.join_large(writer, now, key, hash, set, value);
        }
        match self.reserve(writer, now, key, hash, set, value.len()) {
            Ok(mut reservation) => {
                reservation.write(value);
                self.commit(writer, now, reservation)
            }
            Err(outcome) => outcome,
        }
    }

    /// Room for a value of `value_bytes`, to be received into and then given to
    /// [`Store::commit`].
    ///
    /// # Errors
    /// What the write would end with: too large, or out of memory.
    pub fn reserve(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value_bytes: usize,
    ) -> Result<Reservation, SetOutcome> {
        let reserved = self.reserve_only(writer, now, key, hash, set, value_bytes);
        reserved.map_err(|outcome| self.refuse(writer, key, hash, set, outcome))
    }

    /// The same for an item that another node decides about, or its machine: without room, what is
    /// there stays.
    ///
    /// # Errors
    /// What the write would end with: too large, or out of memory.
    pub fn reserve_only(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value_bytes: usize,
    ) -> Result<Reservation, SetOutcome> {
        self.tick(now);
        if value_bytes > self.config().item_bytes_max {
            return Err(SetOutcome::TooLarge);
        }
        let Some(plan) = Plan::new(key, value_bytes, self.segments()) else {
            return Err(SetOutcome::OutOfMemory);
        };
        let expiry = set.exptime.expiry(now);
        let queue = self.queue_for(None, hash, value_bytes);
        for _ in 0..ATTEMPTS_MAX {
            let slot = self.slot_for(writer, Taker::Writer, queue, expiry, now);
            if let Ok(chain) = self.allocate_chain(slot, &plan, expiry, Taker::Writer) {
                return Ok(Reservation::new(chain, key, hash, *set));
            }
            if !self.make_room(writer, now, plan.segments_max()) {
                break;
            }
        }
        Err(SetOutcome::OutOfMemory)
    }

    pub(crate) fn allocate_chain(
        &self,
        slot: Slot,
        plan: &Plan,
        expiry: Expiry,
        taker: Taker,
    ) -> Result<Chain, NoSegment> {
        let (words, claim) = (plan.inline_words(), taker.claim());
        let head =
            self.room
                .allocate_rest(slot, words, plan.head_words_least(), (expiry, claim))?;
        let (wholes, tail_bytes) = plan.rest(head.words());
        let mut chain = Chain::new(self.segments(), plan, head);
        for _ in 0..wholes {
            chain.add_whole(self.segments().take_whole(claim).ok_or(NoSegment)?);
        }
        if tail_bytes > 0 {
            let words = Plan::tail_words(tail_bytes);
            chain.set_tail(self.room.allocate(slot, words, expiry, claim)?);
        }
        Ok(chain)
    }

    /// Makes a complete chain the item of the key that is locked.
    pub(crate) fn publish_chain(
        &self,
        context: &mut ChangeContext<'_, '_>,
        (chain, meta): (&Chain, Meta),
        old: Option<Found>,
        (cas, terms): (Cas, Terms),
    ) -> Result<(), Need> {
        let reference = chain.reference();
        let item = self.item(reference);
        item.set_word(0, cas.0);
        item.set_extension(terms.extension);
        let meta = meta.with_stale(terms.stale).with_won(terms.won);
        let meta = self.in_slice(meta.with_access(context.now), context.key);
        item.set_meta(meta);
        chain.note_expiry(expiry_note(terms.extension.expiry));
        self.publish(context.writer, &mut context.locked, old, reference)
            .map_err(|_| Need::Slot)?;
        context.writer.count(Count::ItemsTotal);
        Ok(())
    }

    /// Publishes a value that was received completely. The versions and the mode are judged now.
    pub fn commit(&self, writer: &mut Writer, now: Now, reservation: Reservation) -> SetOutcome {
        assert!(reservation.is_full(), "only a complete value is committed");
        self.tick(now);
        let (chain, key, hash, set) = reservation.into_parts();
        let key = key.key();
        if matches!(set.mode, SetMode::Append | SetMode::Prepend) {
            let mut value = vec![0; chain.value_bytes];
            chain.read(&mut value);
            drop(chain);
            return self.join_large(writer, now, key, hash, &set, &value);
        }
        // A flush since its room was reserved is before the write, but would take it along.
        if self.room.is_flushed(chain.reference()) {
            let mut value = vec![0; chain.value_bytes];
            chain.read(&mut value);
            drop(chain);
            return self.set(writer, now, key, hash, &set, &value);
        }
        let meta = chain.complete(key, hash);
        let outcome = self.with_room(writer, now, key, hash, |context, _| {
            let found = self.find_present(context);
            let terms = match self.judge(now, &set, found) {
                Judged::Store(terms) => terms,
                Judged::Refuse(outcome) => return Ok(outcome),
                Judged::Join(_) => return Ok(SetOutcome::NotStored),
            };
            let old_cas = found.map(|found| self.item(found.reference).cas());
            let cas = context.cas(set.new_cas, old_cas);
            self.publish_chain(context, (&chain, meta), found, (cas, terms))?;
            Ok(SetOutcome::Stored(cas))
        });
        match outcome {
            Some(SetOutcome::Stored(cas)) => {
                chain.published();
                SetOutcome::Stored(cas)
            }
            Some(outcome) => outcome,
            None => self.refuse(writer, key, hash, &set, SetOutcome::OutOfMemory),
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::WriterId;

    use super::*;
    use crate::StoreConfig;

    /// Goal: an item is written over in place only if its key stays where it is. Method: values of
    /// as many words, with flags (which take one) and without.
    #[test]
    fn an_item_written_over_keeps_its_key_in_place() {
        let store = Store::new(StoreConfig::default()).expect("a store");
        let (mut writer, now) = (store.writer(WriterId(1)), Now::default());
        let key = Key::new(b"key").expect("a key");
        let hash = store.hash(key.bytes());
        for (flags, value_bytes, in_place) in
            [(0, 24, 0), (0, 23, 1), (7, 16, 1), (9, 14, 2), (0, 24, 2)]
        {
            let set = Set {
                flags,
                ..Set::default()
            };
            store.set(&mut writer, now, key, hash, &set, &[1; 24][..value_bytes]);
            assert_eq!(
                store.counters().in_place,
                in_place,
                "{flags}, {value_bytes}"
            );
        }
    }
}
