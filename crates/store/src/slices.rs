//! What the store of a node knows of the slices that the keys of a cluster are divided into.
//!
//! A server alone has none of this: then [`Store::slices`](crate::Store) is empty, and what depends
//! on it costs one look.
//!
//! On a node the store evicts of its own accord only items of slices that are *free*, which this
//! node alone holds. What may go from another slice is *condemned*: it waits until the machine of
//! the slice's stage asks (`slice_eviction.rs`). Room that was promised to other nodes is kept
//! (`promises.rs`), and a slice can be cleared at once (`slice_clear.rs`).

use std::collections::VecDeque;

use curtail_types::{Key, KeyHash, RouteHash};

use crate::{
    Store,
    item::Meta,
    promised_room::Promises,
    route_hash::route_of,
    slice_clear::Clears,
    sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock},
};

/// The slices of a node, and the stages that its workers divide them into.
#[derive(Debug)]
pub(crate) struct Slices {
    count: u16,
    stages: u16,
    free: Box<[AtomicBool]>,
    frees: AtomicUsize,
    condemned: Box<[Stage]>,
    pub(crate) clears: Clears,
    pub(crate) promises: Promises,
    #[cfg(test)]
    pub(crate) bug: SliceBug,
}

/// What waits for one stage.
#[derive(Debug, Default)]
struct Stage {
    items: Mutex<VecDeque<Condemned>>,
    /// How many there are, to be looked at without the mutex.
    length: AtomicUsize,
    /// Items that were judged for it in vain, one after the other.
    barren: AtomicUsize,
}

/// An item that the policy would drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condemned {
    pub(crate) hash: KeyHash,
    pub(crate) reference: u64,
    pub(crate) slice: u16,
    /// Its mark then; if that has risen, somebody has read it since.
    pub(crate) mark: u8,
}

/// Errors that a test plants and must catch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(not(test), allow(dead_code))] // Named in the code that would have them, made by tests.
pub(crate) enum SliceBug {
    #[default]
    None,
    /// Segments are not kept for what is promised.
    KeepsNothing,
    /// No segments are kept for open ones that are full.
    KeepsNoOpenSegments,
    /// What is promised goes to open segments that others write to.
    SharesSegments,
    /// The store evicts of its own accord from slices that are not free.
    EvictsUnasked,
    /// Who has read an item since it was judged is not looked at.
    ReadsIgnored,
    /// What belongs to another stage is not kept for it, but stays.
    OtherStagesStay,
    /// A clear does not concern what earlier clears have left.
    ClearsLastIncarnation,
    /// A sweep ends clears that were made after it began.
    SweepEndsAll,
    /// What is written after a clear is of the incarnation before it.
    WritesFormerIncarnation,
}

/// Items that may wait for one stage. A stage that does not ask for them keeps them.
const CONDEMNED_MAX: usize = 1024;

impl Slices {
    fn new(count: u16, stages: u16) -> Self {
        let (count, stages) = (count.max(1), stages.max(1));
        Self {
            count,
            stages,
            free: (0..count).map(|_| AtomicBool::new(false)).collect(),
            frees: AtomicUsize::new(0),
            condemned: (0..stages).map(|_| Stage::default()).collect(),
            clears: Clears::new(count),
            promises: Promises::new(),
            #[cfg(test)]
            bug: SliceBug::None,
        }
    }

    /// The same with an error planted.
    #[cfg(test)]
    pub(crate) fn with_bug(count: u16, stages: u16, bug: SliceBug) -> Self {
        let slices = Self::new(count, stages);
        Self { bug, ..slices }
    }

    #[inline(always)]
    pub(crate) fn planted(&self, bug: SliceBug) -> bool {
        #[cfg(test)]
        return self.bug == bug;
        #[cfg(not(test))]
        {
            let _ = bug;
            false
        }
    }

    /// The slice of a key, as `consistency::slice_view::slice_of` has it.
    pub(crate) fn of(&self, route: RouteHash) -> u16 {
        (((route.0 >> 32) * u64::from(self.count)) >> 32) as u16
    }

    pub(crate) fn is_free(&self, slice: u16) -> bool {
        let free = self.free.get(usize::from(slice));
        free.is_some_and(|free| free.load(Ordering::Acquire))
    }

    pub(crate) fn is_any_free(&self) -> bool {
        self.frees.load(Ordering::Relaxed) > 0
    }

    fn set_free(&self, slice: u16, is_free: bool) {
        let Some(free) = self.free.get(usize::from(slice)) else {
            return;
        };
        match (free.swap(is_free, Ordering::AcqRel), is_free) {
            (false, true) => self.frees.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.frees.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    fn stage(&self, stage: u16) -> &Stage {
        &self.condemned[usize::from(stage % self.stages)]
    }

    /// Has an item wait for the stage of its slice; whether it may.
    pub(crate) fn condemn(&self, condemned: Condemned) -> bool {
        let is_other = !condemned.slice.is_multiple_of(self.stages);
        if is_other && self.planted(SliceBug::OtherStagesStay) {
            return false;
        }
        let stage = self.stage(condemned.slice % self.stages);
        let mut items = lock(&stage.items);
        let is_room = items.len() < CONDEMNED_MAX;
        if is_room {
            items.push_back(condemned);
            stage.length.store(items.len(), Ordering::Relaxed);
        }
        is_room
    }

    /// The item that has waited longest for a stage.
    pub(crate) fn next_condemned(&self, stage: u16) -> Option<Condemned> {
        let stage = self.stage(stage);
        if stage.length.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut items = lock(&stage.items);
        let next = items.pop_front();
        stage.length.store(items.len(), Ordering::Relaxed);
        next
    }

    /// How many items wait for a stage; a hint.
    pub(crate) fn condemned(&self, stage: u16) -> usize {
        self.stage(stage).length.load(Ordering::Relaxed)
    }

    /// The meta word of an item of `key` that is written now; out of line, as a server alone has no
    /// use for it.
    #[inline(never)]
    fn written_now(&self, meta: Meta, key: Key<'_>) -> Meta {
        let slice = self.of(route_of(key.bytes()));
        if self.planted(SliceBug::WritesFormerIncarnation) {
            return meta;
        }
        meta.with_incarnation(self.clears.incarnation(slice))
    }

    /// Items that were judged for a stage since it last evicted one.
    pub(crate) fn barren(&self, stage: u16) -> &AtomicUsize {
        &self.stage(stage).barren
    }
}

impl Store {
    /// Makes this the store of a node, whose cluster has so many slices; slice `s` belongs to stage
    /// `s % stages`. None is free at first. To be called once, before anything is written, but for
    /// what was restored; a second call changes nothing.
    pub fn set_slices(&self, slices: u16, stages: u16) {
        let slices = Slices::new(slices, stages);
        if !self.index.is_empty() {
            slices.clears.note_restored();
        }
        let _ = self.slices.set(slices);
        self.follow_low_water();
    }

    /// Whether the store may evict items of a slice whenever it needs room: this node alone has
    /// them.
    pub fn set_free(&self, slice: u16, is_free: bool) {
        if let Some(slices) = self.slices.get() {
            slices.set_free(slice, is_free);
        }
    }

    pub(crate) fn plants(&self, bug: SliceBug) -> bool {
        self.slices.get().is_some_and(|slices| slices.planted(bug))
    }

    /// The meta word of an item of `key` that is written now.
    #[inline]
    pub(crate) fn in_slice(&self, meta: Meta, key: Key<'_>) -> Meta {
        match self.slices.get() {
            None => meta,
            Some(slices) => slices.written_now(meta, key),
        }
    }
}

#[cfg(test)]
mod tests;
