//! Write compaction inside a batch: of writes to one key with nothing else on that key between them
//! only the last is carried out, and each is answered.
//!
//! C-4 (Sutherland, Falsafi, Daglis, ASPLOS 2023, section 4.2), with a window that closes by
//! itself: it is the batch, so it costs nothing at low load and nobody waits for it. All writes of
//! a run have arrived and none is answered before the run's last value is in the store, so they are
//! concurrent with every read until then, and take effect together, in their order.
//!
//! ```text
//!  set a=1   get b   set a=2   set b=7   set a=3   get a   set a=4
//!  ^ aside           ^ aside             ^ carried out     ^ carried out: a read lies between
//! ```
//!
//! Looking for runs costs some instructions a request, so one batch in 16 is looked through, and
//! all for a while when that finds some. A write takes part if it stores whatever is there and is
//! not asked for the version it gave.
//!
//! Invariants: what was put aside is carried out, or its successor is, before the next operation on
//! its key and before any reply of the turn leaves; a batch has at most [`REQUESTS_MAX`] requests.

use curtail_codec::memcached::{Form, Request, Return, WireKey, encode};
use curtail_dispatch::{Access, Placement};
use curtail_store::COPY_BYTES_MAX;
use curtail_types::{Cas, KeyHash, Operation, Set, SetMode, SetOutcome};

use crate::{
    batch::{Batch, Entry, REQUESTS_MAX, Work},
    counts::Count,
    delegate::{Decision, partition_of},
    execute::{Item, OUTPUT_BYTES_MAX, ROOM_BYTES},
    fault::Fault,
    kit::Kit,
    replies::Replies,
    worker::Worker,
};

/// Which requests of a batch are superseded by the next one to their key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Superseded([u64; REQUESTS_MAX / 64]);

/// What a worker has put aside, and whether looking has paid.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    /// Keys, and which requests of the batch wrote them last.
    aside: Vec<(KeyHash, usize)>,
    /// Batches that are still to be looked through in a row.
    looks: u32,
}

/// One batch in so many is looked through to learn whether it pays.
const LOOKED_EVERY: u64 = 16;

/// So many are looked through in a row when it does.
const LOOKS: u32 = 64;

/// It pays when one request in so many is superseded.
const PAYS_AT: usize = 32;

/// A smaller batch is not looked through.
const REQUESTS_MIN: usize = 8;

/// Places of the filter; two keys in one place hide a run at worst.
const PLACES: usize = 512;

impl Superseded {
    /// Looks through `count` requests from the last to the first. `hash` is that of a request's
    /// key, and `folds` says whether the first of two may be superseded by the second, which is
    /// the next one found to have the same hash.
    pub(crate) fn find(
        count: usize,
        hash: impl Fn(usize) -> KeyHash,
        folds: impl Fn(usize, usize) -> bool,
    ) -> Self {
        // The number of the nearest later request in each place, counted from 1.
        let mut places = [0_u16; PLACES];
        let mut found = Self::default();
        for number in (0..count.min(REQUESTS_MAX)).rev() {
            let key = hash(number);
            let Some(place) = places.get_mut(key.0 as usize % PLACES) else {
                continue;
            };
            let next = std::mem::replace(place, number as u16 + 1);
            if let Some(next) = usize::from(next).checked_sub(1)
                && hash(next) == key
                && folds(number, next)
                && let Some(bits) = found.0.get_mut(number / 64)
            {
                *bits |= 1 << (number % 64);
            }
        }
        found
    }

    /// Whether any is.
    pub(crate) fn any(&self) -> bool {
        self.0 != Self::default().0
    }

    /// How many are.
    fn count(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Whether this one is.
    pub(crate) fn contains(&self, number: usize) -> bool {
        let bits = self.0.get(number / 64);
        bits.is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }
}

impl Worker {
    /// What of the batch is superseded, if it is looked through.
    #[inline]
    pub(crate) fn superseded(&mut self, batch: &Batch<'_>) -> Superseded {
        let looks = self.compaction.looks > 0
            || self.turns.is_multiple_of(LOOKED_EVERY)
            || self.kit.is_contended();
        let count = batch.entries().len();
        // Those who look on are told of every write, and a store that refuses writes when it is
        // full must be asked about each.
        if !looks || count < REQUESTS_MIN || self.kit.notice.on || !self.kit.shared.config.evict {
            return Superseded::default();
        }
        self.look_for_runs(batch)
    }

    fn look_for_runs(&mut self, batch: &Batch<'_>) -> Superseded {
        let entries = batch.entries();
        let across = self.kit.has(Fault::FoldsAcross);
        let hash = |number: usize| match entries.get(number) {
            Some(entry) if !across || folds(&entry.work, &entry.work) => entry.hash,
            _ => KeyHash(number as u64),
        };
        let folds = |first: usize, second: usize| match (entries.get(first), entries.get(second)) {
            (Some(first), Some(second)) => folds(&first.work, &second.work),
            _ => false,
        };
        let found = Superseded::find(entries.len(), hash, folds);
        self.compaction.looks = match found.count() * PAYS_AT >= entries.len() {
            true => LOOKS,
            false => self.compaction.looks.saturating_sub(1),
        };
        found
    }

    /// Carries out a batch of which some is superseded.
    pub(crate) fn execute_compacted(&mut self, batch: &Batch<'_>, superseded: &Superseded) {
        for (number, entry) in batch.entries().iter().enumerate() {
            self.look_ahead(batch, number, entry);
            if superseded.contains(number) && self.may_put_aside(entry) {
                self.put_aside(number, entry);
                continue;
            }
            if self.replies.remaining() < 2 * ROOM_BYTES {
                // The next request may send what is answered so far.
                self.carry_out_aside(batch, None);
            }
            let is_off = self.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX;
            let decision = self.decide(entry);
            if is_off || !matches!(decision, Decision::Here | Decision::Held(_)) {
                self.carry_out_aside(batch, Some(entry.hash));
            }
            self.follow(entry, decision);
            self.forget_aside(entry.hash);
        }
        self.carry_out_aside(batch, None);
    }

    /// Whether a superseded write would run here.
    fn may_put_aside(&self, entry: &Entry<'_>) -> bool {
        if self.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX
            || self.replies.remaining() < 2 * ROOM_BYTES
        {
            return false;
        }
        if !self.decides {
            return true;
        }
        let (policy, partition) = (self.regime.name.policy, partition_of(entry.hash));
        let workers = self.kit.shared.config.workers as u16;
        let is_ours = match policy.placement(partition, Access::Write, workers) {
            Placement::Here | Placement::Claim => true,
            Placement::Owner(owner) => owner.index() == self.index,
        };
        is_ours && !self.delegation.has(entry.hash)
    }

    /// Answers a write that the next one to its key supersedes.
    fn put_aside(&mut self, number: usize, entry: &Entry<'_>) {
        let Work::Request(Request::Item {
            key, value, form, ..
        }) = &entry.work
        else {
            return;
        };
        let item = Item {
            slot: entry.slot,
            key,
            hash: entry.hash,
            form,
            hint: entry.hint,
        };
        self.kit
            .answer_superseded(&mut self.replies, &item, value.len());
        self.forget_aside(entry.hash);
        self.compaction.aside.push((entry.hash, number));
    }

    /// Its key was written again.
    fn forget_aside(&mut self, hash: KeyHash) {
        if !self.compaction.aside.is_empty() {
            self.compaction.aside.retain(|(aside, _)| *aside != hash);
        }
    }

    /// Carries out what was put aside after all: of one key, or everything.
    #[cold]
    fn carry_out_aside(&mut self, batch: &Batch<'_>, only: Option<KeyHash>) {
        let mut aside = std::mem::take(&mut self.compaction.aside);
        aside.retain(|&(hash, number)| {
            if only.is_some_and(|only| only != hash) {
                return true;
            }
            if let Some(entry) = batch.entries().get(number)
                && let Work::Request(Request::Item {
                    key,
                    operation: Operation::Set(set),
                    value,
                    ..
                }) = &entry.work
            {
                self.kit.store_aside(key, hash, set, value);
            }
            false
        });
        self.compaction.aside = aside;
    }
}

impl Kit {
    /// Answers a write as stored, which it is together with the next one.
    pub(crate) fn answer_superseded(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        value_bytes: usize,
    ) {
        self.note_superseded(item, value_bytes);
        self.counts.add(Count::CmdSet, 1);
        self.counts.add(Count::Compacted, 1);
        // The version is not shown.
        let outcome = SetOutcome::Stored(Cas(0));
        replies.write(item.slot, |sink| {
            encode::set(sink, item.key, item.form, outcome)
        });
    }

    /// What was answered is in the store, or was and had to go: there may be no room.
    fn store_aside(&mut self, key: &WireKey<'_>, hash: KeyHash, set: &Set, value: &[u8]) {
        let key = key.resolve(&mut self.scratch);
        let _ = self
            .store
            .set(&mut self.writer, self.now, key, hash, set, value);
    }
}

fn folds(first: &Work<'_>, second: &Work<'_>) -> bool {
    match (first, second) {
        (Work::Request(first), Work::Request(second)) => {
            match (write_of(first), write_of(second)) {
                (Some((key, _, bytes, form)), Some((next_key, ..))) => {
                    is_same(key, next_key) && bytes <= COPY_BYTES_MAX && !shows_version(form)
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn write_of<'b, 'a>(
    request: &'b Request<'a>,
) -> Option<(&'b WireKey<'a>, &'b Set, usize, &'b Form<'a>)> {
    match request {
        Request::Item {
            key,
            operation: Operation::Set(set),
            value,
            form,
        } if overwrites(set) => Some((key, set, value.len(), form)),
        _ => None,
    }
}

/// Whether a write stores whatever is there.
pub(crate) fn overwrites(set: &Set) -> bool {
    set.mode == SetMode::Set
        && set.compare.is_none()
        && !set.invalidate
        && set.vivify.is_none()
        && set.new_cas.is_none()
}

/// Whether two keys are one, and spelt alike.
pub(crate) fn is_same(one: &WireKey<'_>, other: &WireKey<'_>) -> bool {
    one.text() == other.text() && one.is_base64() == other.is_base64()
}

/// Whether the answer to a write names the version that it gave.
pub(crate) fn shows_version(form: &Form<'_>) -> bool {
    match form {
        Form::Meta(meta) => meta.returns.into_iter().any(|what| what == Return::Cas),
        Form::Line { .. } | Form::Value { .. } | Form::Debug => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runs in a line of operations: a capital letter writes its key, a small one reads it.
    fn runs(line: &str) -> String {
        let line: Vec<u8> = line.bytes().collect();
        let hash = |number: usize| KeyHash(u64::from(line[number].to_ascii_lowercase()));
        let folds = |first: usize, second: usize| {
            line[first].is_ascii_uppercase() && line[second].is_ascii_uppercase()
        };
        let found = Superseded::find(line.len(), hash, folds);
        assert_eq!(found.any(), found.count() > 0);
        (0..line.len())
            .map(|number| if found.contains(number) { 'x' } else { '.' })
            .collect()
    }

    #[test]
    fn only_runs_without_anything_between_are_found() {
        assert_eq!(runs("AbABAaA"), "x.x....");
        assert_eq!(runs("AAAA"), "xxx.");
        assert_eq!(runs("AaAaA"), ".....");
        assert_eq!(runs("ABCABC"), "xxx...");
        assert_eq!(runs(""), "");
    }

    /// Goal: other keys in the same place of the filter hide runs and never make up any. Method:
    /// two keys that share a place, against the rule itself, in all lines of eight.
    #[test]
    fn a_shared_place_makes_no_run_up() {
        for code in 0..4_u32.pow(8) {
            let op = |number: usize| code >> (2 * number) & 3;
            let (key, writes) = (|n| op(n) & 1, |n| op(n) & 2 != 0);
            let hash = |n: usize| KeyHash(u64::from(key(n)) * PLACES as u64);
            let found = Superseded::find(8, hash, |a, b| writes(a) && writes(b));
            for number in 0..8 {
                let next = (number + 1..8).find(|&n| key(n) == key(number));
                let may = next.is_some_and(writes) && writes(number);
                assert!(may || !found.contains(number), "{code:x} {number}");
            }
        }
    }
}
