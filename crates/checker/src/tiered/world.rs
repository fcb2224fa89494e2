//! A state of a tier: its processes, what is on its way, and what clients know.

use std::collections::BTreeMap;

use curtail_consistency::replica::Ticket;
use curtail_consistency::tiered::{
    CacheId, CacheSession, TierBackEnd, TierCache, TierMessage, TierRefusal,
};
use curtail_types::{Instant, RouteHash};

use super::in_words::refusal_in_words;
use super::{ANSWERED, DROPPED, ENDED, FLUSHED, REFUSED, TierFaults, WAITED};
use crate::interned_parts::{Shared, SharedPart};
use crate::judge::{Linearizable, Written};
use crate::requests::{Kind, Label, answer_in_words};
use crate::search::ModelState;
use crate::step_notes::StepNotes;

/// A state.
#[derive(Clone, Debug, Hash)]
pub(crate) struct TierWorld {
    pub(super) back_end: Shared<BackEndNode>,
    pub(super) caches: Vec<Shared<CacheNode>>,
    /// What is on its way, sorted.
    pub(super) parcels: Vec<TierParcel>,
    /// The requests, by their labels.
    pub(super) operations: Vec<Stage>,
    /// One for each key.
    pub(super) judges: Shared<Vec<Linearizable>>,
    /// Of the back end, and of each cache.
    pub(super) clocks: Vec<u64>,
    pub(super) left: TierFaults,
    pub(super) notes: StepNotes,
}

/// The back end and its store, which outlives it.
#[derive(Clone, Debug, Hash)]
pub(super) struct BackEndNode {
    /// `None` while it is down.
    pub(super) machine: Option<TierBackEnd>,
    /// The cache that it is to report to.
    pub(super) cache: CacheId,
    pub(super) items: BTreeMap<RouteHash, Written>,
    /// What requests that ran are answered with.
    pub(super) results: BTreeMap<Ticket, Written>,
    pub(super) incarnation: u64,
    /// When it last read its clock, for a planted error.
    pub(super) clock_read: u64,
}

/// A cache and its copies.
#[derive(Clone, Debug, Hash)]
pub(super) struct CacheNode {
    /// `None` while it is down.
    pub(super) machine: Option<TierCache>,
    pub(super) copies: BTreeMap<RouteHash, Written>,
    pub(super) incarnation: u64,
}

/// A message with the item that it carries, if it does.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct TierParcel {
    pub(super) cache: CacheId,
    /// Whether it goes to the cache, or comes from it.
    pub(super) is_to_cache: bool,
    pub(super) message: TierMessage,
    pub(super) image: Option<Written>,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Stage {
    Unasked,
    /// The back end has it.
    Asked,
    /// A reader at a cache has read its clock before the request comes: a planted error.
    Clock(CacheId, u64),
    /// A reader at a cache has the value of a copy.
    Looked(CacheId, CacheSession, Written),
    Answered,
    /// Its client knows only that it does not know.
    Unknown,
}

impl ModelState for TierWorld {
    fn notes(&mut self) -> &mut StepNotes {
        &mut self.notes
    }

    fn each_part(&mut self, each: &mut dyn FnMut(&mut dyn SharedPart)) {
        each(&mut self.back_end);
        self.caches.iter_mut().for_each(|cache| each(cache));
        each(&mut self.judges);
    }
}

impl TierWorld {
    pub(super) fn cache(&self, id: CacheId) -> &CacheNode {
        &self.caches[usize::from(id.0)]
    }

    pub(super) fn edit_cache(&mut self, id: CacheId) -> &mut CacheNode {
        self.caches[usize::from(id.0)].edit()
    }

    /// What the clock of the back end shows, or that of a cache.
    pub(super) fn now(&self, node: usize) -> Instant {
        let ns = self.clocks[node];
        Instant { ns }
    }

    pub(super) fn post(&mut self, parcel: TierParcel) {
        let at = self.parcels.partition_point(|other| *other <= parcel);
        self.parcels.insert(at, parcel);
    }

    /// A request is answered with `value`, which its client reads, or has left there.
    pub(super) fn answer(&mut self, key: usize, (label, kind): (Label, Kind), value: Written) {
        self.operations[usize::from(label.0)] = Stage::Answered;
        self.notes.add(|| answer_in_words(label, kind, value));
        if !self.judges.edit()[key].answered(label, kind, value) {
            self.notes
                .fail("an answer that no order of the requests explains");
        }
    }

    /// A request ended without an effect.
    pub(super) fn refuse(&mut self, key: usize, label: Label, refusal: Option<TierRefusal>) {
        self.operations[usize::from(label.0)] = Stage::Answered;
        let why = refusal_in_words(refusal);
        self.notes.add(|| format!("{label} is refused: {why}"));
        if refusal == Some(TierRefusal::Restarted) {
            self.notes.seen |= REFUSED;
        }
        if !self.judges.edit()[key].had_no_effect(label) {
            self.notes.fail("a request took effect that was refused");
        }
    }

    /// A flush begins: from now on it may remove what the keys have.
    pub(super) fn begin_flush(&mut self) {
        for judge in self.judges.edit() {
            judge.begun(Label::FLUSH, Kind::Delete);
        }
    }

    /// A flush is answered: what was there before it was asked for is gone.
    pub(super) fn flushed(&mut self) {
        self.notes.seen |= FLUSHED;
        self.notes.add(|| "the flush is answered".to_owned());
        let mut judges = self.judges.edit().iter_mut();
        if !judges.all(|judge| judge.took_effect(Label::FLUSH)) {
            self.notes
                .fail("an answer to a flush that no order of the requests explains");
        }
    }

    pub(super) fn note_seen(&mut self, before: &Self) {
        let is_over = |stage: &Stage| matches!(stage, Stage::Answered | Stage::Unknown);
        if self.operations.iter().all(is_over) {
            self.notes.seen |= ANSWERED;
        }
        let (old, new) = (&before.back_end.machine, &self.back_end.machine);
        if let (Some(old), Some(new)) = (old, new) {
            if new.waiting().0 > old.waiting().0 {
                self.notes.seen |= WAITED;
            }
            if old.lease_end().is_some() && new.lease_end().is_none() {
                self.notes.seen |= ENDED;
            }
            if old.lease_end() == new.lease_end() && new.cached() < old.cached() {
                self.notes.seen |= DROPPED;
            }
        }
    }
}
