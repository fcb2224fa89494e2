//! The requests that a worker has delegated to others and whose replies it awaits.

use std::sync::Arc;

use curtail_dispatch::Worker as Id;
use curtail_types::KeyHash;

use crate::request::delegated_batch::{DelegatedBatch, Sealed};

/// What a worker has handed on.
#[derive(Debug, Default)]
pub(crate) struct Delegation {
    /// A delegated batch for each owner that gets one in this turn.
    pub(crate) gathering: Vec<Option<Box<DelegatedBatch>>>,
    /// The keys in them, and whose they are; a key stands there once for each of its requests.
    pub(crate) keys: Vec<(KeyHash, Id)>,
    /// Which connections' requests for which keys they are, for the slow log, while that is on.
    pub(crate) handed_on: Vec<(usize, KeyHash)>,
    /// A bit for each of `keys`: most keys are seen not to be among them at once.
    pub(crate) key_bits: u64,
    /// The last connection that had something handed on in this turn.
    pub(crate) slot: Option<usize>,
    /// Delegated batches that are not back.
    pub(crate) outstanding: Vec<Outstanding>,
    #[expect(
        clippy::vec_box,
        reason = "a delegated batch keeps its place from hand to hand"
    )]
    pub(crate) spare: Vec<Box<DelegatedBatch>>,
    pub(crate) next_number: u64,
    /// The last mark that was seen, and the batch that must be back to have passed it.
    pub(crate) mark_seen: (u64, Option<u64>),
}

impl Delegation {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            gathering: (0..workers).map(|_| None).collect(),
            ..Self::default()
        }
    }

    /// Whether nothing was handed on in this turn.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.key_bits == 0
    }

    /// Whether the last request that was handed on in this turn is of the connection in `slot`.
    pub(crate) fn has_handed_on(&self, slot: usize) -> bool {
        self.slot == Some(slot)
    }

    /// Who has a request to the same key in this turn.
    #[inline]
    pub(crate) fn follows(&self, hash: KeyHash) -> Option<Id> {
        if self.key_bits & bit_of(hash) == 0 {
            return None;
        }
        let mut keys = self.keys.iter();
        keys.find(|(key, _)| *key == hash).map(|(_, owner)| *owner)
    }

    pub(crate) fn note(&mut self, slot: usize, hash: KeyHash, owner: Id) {
        self.slot = Some(slot);
        self.key_bits |= bit_of(hash);
        self.keys.push((hash, owner));
    }

    pub(crate) fn delegated_for(&mut self, origin: usize, owner: Id) -> &mut DelegatedBatch {
        let (spare, next_number) = (&mut self.spare, &mut self.next_number);
        if self.gathering.len() <= owner.index() {
            self.gathering.resize_with(owner.index() + 1, || None);
        }
        self.gathering[owner.index()].get_or_insert_with(|| {
            let mut delegated = spare.pop().unwrap_or_else(|| DelegatedBatch::new(origin));
            delegated.owner = owner.0;
            delegated.number = *next_number;
            *next_number += 1;
            delegated
        })
    }
}

#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) number: u64,
    pub(crate) sealed: Arc<Sealed>,
    pub(crate) sent_ns: u64,
}

#[inline]
pub(crate) fn bit_of(hash: KeyHash) -> u64 {
    1 << (hash.0 & 63)
}
