//! Evicts from slices that this node orders for others: its machines decide, and tell the others.
//!
//! One drain judges the items of all slices as on a server alone. What it would drop goes at once
//! if its slice is free; else it is *condemned*: it stays where it is and waits for the stage of
//! its slice, whose machine asks for it with [`Store::evict_slices`]. If it has been read since, it
//! stays after all; if the slice is ordered by another node, it moves on to main and is marked
//! once, for nobody here sees its reads. So a stage evicts what the policy gives up of everything,
//! however few of the items are its own.

use std::ops::ControlFlow;

use curtail_table::Locked;
use curtail_types::{KeyHash, Now, RouteHash};

use crate::{
    Store, Writer,
    eviction::{Fate, Queue, fate},
    item::Kind,
    reclaim::{ITEMS_A_TURN, NextDrain, Progress},
    slices::{Condemned, SliceBug, Slices},
    store::{Found, Items, Presence},
    sync::Ordering,
};

/// What becomes of an item that the policy drops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DropFate {
    /// It goes.
    Drop,
    /// It waits where it is for its stage.
    Waits,
    /// It stays: too many wait for its stage.
    Stays,
}

/// A stage whose items fill this share of what was judged in vain rests, in items of the store.
const BARREN_ROUNDS: usize = 2;

impl Store {
    /// Whether the store may evict anything.
    pub fn evicts(&self) -> bool {
        self.config().evict
    }

    /// Whether making room for a writer may cost live items, on a node those of free slices.
    pub(crate) fn evicts_for(&self, writer: &Writer) -> bool {
        self.config().evict
            && match self.slices.get() {
                None => writer.evicts_freely,
                Some(slices) => writer.evicts_freely && slices.is_any_free(),
            }
    }

    /// Whether a stage should evict now: less room is free than there should be, and something of
    /// its slices may go.
    pub fn wants_eviction(&self, stage: u16) -> bool {
        let Some(slices) = self.slices.get().filter(|_| self.config().evict) else {
            return false;
        };
        self.is_short_of_room() && (slices.condemned(stage) > 0 || !self.is_barren(slices, stage))
    }

    /// About how many bytes to evict then.
    pub fn eviction_bytes(&self) -> u64 {
        self.segments().segment_bytes() as u64 / 4
    }

    /// Evicts about `bytes` bytes of items in slices of `stage` that `may_evict` names, and shows
    /// `evicted` the slice and the route hash of each; returns the bytes. Handles at most so many
    /// items as [`Store::maintain`] does in a turn, and so may come to less: then it is to be
    /// called again, in another turn.
    pub fn evict_slices(
        &self,
        writer: &mut Writer,
        now: Now,
        stage: u16,
        bytes: u64,
        may_evict: &mut dyn FnMut(u16) -> bool,
        evicted: &mut dyn FnMut(u16, RouteHash),
    ) -> u64 {
        let Some(slices) = self.slices.get().filter(|_| self.config().evict) else {
            return 0;
        };
        let mut freed = 0;
        let mut left = ITEMS_A_TURN;
        while freed < bytes && left > 0 {
            if let Some(condemned) = slices.next_condemned(stage) {
                left -= 1;
                freed += self.evict_condemned(writer, now, condemned, may_evict, evicted);
                continue;
            }
            match self.judge_on(writer, now, left) {
                ControlFlow::Continue(items) => {
                    left = left.saturating_sub(items);
                    slices.barren(stage).fetch_add(items, Ordering::Relaxed);
                }
                ControlFlow::Break(()) => break,
            }
        }
        if freed > 0 {
            slices.barren(stage).store(0, Ordering::Relaxed);
        }
        self.reclaim(writer, now, ITEMS_A_TURN, 0);
        freed
    }

    /// Judges the next items of the segment that the policy gives up, and says how many.
    fn judge_on(&self, writer: &mut Writer, now: Now, items_max: usize) -> ControlFlow<(), usize> {
        let choose = || match self.choose_victim() {
            NextDrain::Nothing => {
                self.room.seal_all();
                self.choose_victim()
            }
            chosen => chosen,
        };
        match self.drain_on(writer, now, items_max, choose) {
            Progress::Worked(items) => ControlFlow::Continue(items),
            Progress::Busy | Progress::Nothing => ControlFlow::Break(()),
        }
    }

    /// Whether so much was judged for a stage in vain that it has nothing to give.
    fn is_barren(&self, slices: &Slices, stage: u16) -> bool {
        let judged = slices.barren(stage).load(Ordering::Relaxed);
        judged > BARREN_ROUNDS * self.ledger.items_now().max(ITEMS_A_TURN)
    }

    /// Whether the store may drop the item at `reference` of its own accord.
    pub(crate) fn may_drop(&self, reference: u64) -> bool {
        let Some(slices) = self.slices.get() else {
            return true;
        };
        slices.is_free(slices.of(self.index.resolver().route(reference)))
    }

    /// What becomes of a locked item that the policy drops.
    pub(crate) fn drop_fate(&self, hash: KeyHash, reference: u64, mark: u8) -> DropFate {
        let Some(slices) = self.slices.get() else {
            return DropFate::Drop;
        };
        let slice = slices.of(self.index.resolver().route(reference));
        let condemned = Condemned {
            hash,
            reference,
            slice,
            mark,
        };
        if slices.is_free(slice) || slices.planted(SliceBug::EvictsUnasked) {
            DropFate::Drop
        } else if slices.condemn(condemned) {
            DropFate::Waits
        } else {
            DropFate::Stays
        }
    }

    /// Evicts an item that waited, if it is still there and nobody has read it; returns its bytes.
    fn evict_condemned(
        &self,
        writer: &mut Writer,
        now: Now,
        condemned: Condemned,
        may_evict: &mut dyn FnMut(u16) -> bool,
        evicted: &mut dyn FnMut(u16, RouteHash),
    ) -> u64 {
        let Condemned {
            hash,
            reference,
            slice,
            ..
        } = condemned;
        let mut locked = self.index.lock(hash);
        let Some(position) = locked.find(|found| found.get() == reference) else {
            return 0;
        };
        let item = self.item(reference);
        let found = Found {
            position,
            reference,
            meta: item.meta(),
        };
        if !matches!(found.meta.kind(), Kind::Inline | Kind::Head) {
            return 0;
        }
        let presence = self.presence(reference, item.extension(found.meta), now);
        if presence != Presence::Here {
            self.remove_gone(writer, &mut locked, found, presence);
            return 0;
        }
        let queue = self.queue_of(reference);
        let mark = locked.mark(position);
        let is_read = mark > condemned.mark && !self.plants(SliceBug::ReadsIgnored);
        let is_read = is_read || self.is_kept(hash);
        if is_read || !may_evict(slice) {
            self.spare(writer, now, &mut locked, found, (queue, is_read));
            return 0;
        }
        let route = self.index.resolver().route(reference);
        let bytes = self.footprint_words(reference, found.meta) * 8;
        self.evict(writer, now, &mut locked, found);
        self.room.eviction.dropped(queue, hash);
        drop(locked);
        evicted(slice, route);
        bytes as u64
    }

    /// Moves an item on that stays after all.
    fn spare(
        &self,
        writer: &Writer,
        now: Now,
        locked: &mut Locked<'_, Items>,
        found: Found,
        (queue, is_read): (Queue, bool),
    ) {
        let mark = locked.mark(found.position);
        let (queue, mark) = match fate(queue, mark) {
            Fate::Keep { queue, mark } => (queue, mark),
            Fate::Drop if is_read => (queue, mark),
            Fate::Drop => (Queue::Main, mark.max(1)),
        };
        // Without room it stays where it is.
        let _ = self.relocate(writer, now, locked, found, queue, mark, None);
    }
}
