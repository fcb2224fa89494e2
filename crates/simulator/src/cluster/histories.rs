//! The histories of the clients, and the checkers that judge them.
//!
//! What nobody asked for is judged as an operation of nobody: an eviction is a delete between
//! the moment at which its primary made it and the next request for the key, which may come to
//! nothing if the primary dies; a slice that begins
//! empty is cleared between the view that says so and the first request that its new primary runs.
//! So a value that is gone for any other reason is found, and one that comes back, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use curtail_consistency::replica::Model;
use curtail_history::{
    Action, Entry, History, Numbered, Outcome, Updates, Verdict, check_agreed, check_linearizable,
};
use curtail_types::{Cas, Instant, ViewNumber};

use super::{
    keys::Keys,
    packet::{Demand, Effect, Stamp},
};

/// Every operation that may have had an effect.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Those that were answered, and with what.
    answered: Vec<(Entry, Effect)>,
    unanswered: Vec<Asked>,
    /// What an operation wrote, each time that it ran, until it is answered.
    ran: BTreeMap<u64, Vec<(Action, Stamp)>>,
    /// Items that were evicted, until the next request for the key runs: before that nobody can
    /// tell.
    evicted: Vec<Removal>,
    /// Keys of slices that were flushed.
    flushed: Vec<Removal>,
    /// Keys of slices that began empty.
    lost: Vec<Removal>,
    /// By its number: when a flush was asked for, and what it removed if it ran.
    flushes: BTreeMap<u64, (u64, Option<Range<usize>>)>,
}

/// What nobody asked for, as an operation of nobody, and what it removed at most.
type Removal = (Entry, Place);

/// An operation as its client knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) client: u32,
    pub(super) invoked: u64,
    pub(super) demand: Demand,
}

impl Record {
    /// An operation wrote, whether or not its answer ever arrives.
    pub(super) fn ran(&mut self, number: u64, action: Action, stamp: Stamp) {
        self.ran.entry(number).or_default().push((action, stamp));
    }

    pub(super) fn answered(&mut self, asked: Asked, at: u64, effect: Effect) {
        self.ran.remove(&asked.demand.number);
        let returned = (Instant { ns: at }, effect.outcome);
        // What was asked is judged, whatever the store says that it did.
        let found = match effect.action {
            Action::CompareAndSet { expected, .. } => Some(expected),
            _ => None,
        };
        let entry = entry(&asked, asked.demand.command.on(found), Some(returned));
        self.answered.push((entry, effect));
    }

    /// Its client will never know.
    pub(super) fn unanswered(&mut self, asked: Asked) {
        self.unanswered.push(asked);
    }

    /// Whether an operation that was refused wrote all the same.
    pub(super) fn has_run(&self, number: u64) -> bool {
        self.ran.contains_key(&number)
    }

    pub(super) fn evicted(&mut self, key: usize, at: u64, stamp: Stamp) {
        let entry = nobodys(key, at, Action::Delete);
        self.evicted.push((entry, (stamp, 1)));
    }

    pub(super) fn flush_asked(&mut self, number: u64, at: u64) {
        self.flushes.insert(number, (at, None));
    }

    /// A flush removed what is older of these keys.
    pub(super) fn flush_ran(&mut self, number: u64, keys: impl Iterator<Item = usize>, at: Stamp) {
        let first = self.flushed.len();
        if let Some((asked, removals)) = self.flushes.get_mut(&number) {
            let entries = keys.map(|key| nobodys(key, *asked, Action::Clear));
            self.flushed.extend(entries.map(|entry| (entry, (at, 0))));
            *removals = Some(first..self.flushed.len());
        }
    }

    /// A flush is answered; whether it had run.
    pub(super) fn flush_answered(&mut self, number: u64, at: u64) -> bool {
        let flush = self.flushes.get(&number);
        let Some((_, Some(removals))) = flush.cloned() else {
            return false;
        };
        for (entry, _) in &mut self.flushed[removals] {
            entry.returned = Some((Instant { ns: at }, Outcome::Done));
        }
        true
    }

    /// A view says that the slice of a key begins empty.
    pub(super) fn lost(&mut self, key: usize, born: ViewNumber, at: u64) {
        let born = born.0;
        let stamp = Stamp {
            born,
            ..Stamp::default()
        };
        let entry = nobodys(key, at, Action::Clear);
        self.lost.push((entry, (stamp, 0)));
    }

    /// The primary of this term runs a request for a key.
    pub(super) fn runs(&mut self, key: usize, term: ViewNumber, at: u64) {
        let key = key as u64;
        let end = |entry: &mut Entry, outcome| {
            let returned = (Instant { ns: at }, outcome);
            entry.returned = entry.returned.or(Some(returned));
        };
        let mut evicted = self.evicted.iter_mut().rev();
        if let Some((entry, _)) = evicted.find(|(entry, _)| entry.key == key) {
            end(entry, Outcome::Perhaps);
        }
        for (entry, (stamp, _)) in &mut self.lost {
            if entry.key == key && stamp.born <= term.0 {
                end(entry, Outcome::Done);
            }
        }
    }

    pub(super) fn judge(&self, model: Model, keys: &Keys) -> Verdict {
        match model {
            Model::Lin => check_linearizable(&self.history(), STEPS_MAX),
            Model::Sc => check_agreed(&self.numbered(keys), Updates::Atomic),
        }
    }

    /// Operations that were not answered, once for each time that they wrote.
    fn open(&self) -> impl Iterator<Item = (Entry, Stamp)> + Clone + '_ {
        self.unanswered.iter().flat_map(|asked| {
            let runs = self.ran.get(&asked.demand.number).into_iter().flatten();
            runs.map(|(action, stamp)| (entry(asked, *action, None), *stamp))
        })
    }

    /// What nobody asked for, and flushes.
    fn removals(&self) -> impl Iterator<Item = Removal> + '_ {
        let all = self.evicted.iter().chain(&self.flushed).chain(&self.lost);
        all.copied()
    }

    fn history(&self) -> History {
        let answered = self.answered.iter().map(|(entry, _)| *entry);
        let open = self.open().map(|(entry, _)| entry);
        let removals = self.removals().map(|(entry, _)| entry);
        answered.chain(open).chain(removals).collect()
    }

    // ---- the order that the store claims ----

    /// The operations, each where its version says that it stands. Of nothing there are no
    /// versions: a session that sees nothing is taken to see the earliest nothing that it may.
    fn numbered(&self, keys: &Keys) -> Vec<Numbered<Place>> {
        let mut nothing = vec![BTreeSet::from([Place::default()]); keys.count()];
        let done = |(_, effect): &&(Entry, Effect)| effect.outcome == Outcome::Done;
        let answered = self.answered.iter().filter(done);
        let answered = answered.filter_map(|(entry, effect)| Some((*entry, (effect.stamp?, 0))));
        let open = self.open().map(|(entry, stamp)| (entry, (stamp, 0)));
        for (entry, place) in answered.chain(open.clone()).chain(self.removals()) {
            if entry.action.leaves().is_none() {
                nothing[entry.key as usize].insert(place);
            }
        }
        let mut answered: Vec<_> = self.answered.iter().collect();
        answered.sort_by_key(|(entry, _)| entry.invoked);
        // How far each session has come with each key.
        let mut last: BTreeMap<(u32, u64), Place> = BTreeMap::new();
        let placed = answered.into_iter().map(|(entry, effect)| {
            let nothing = &nothing[entry.key as usize];
            let last = last.entry((entry.client, entry.key)).or_default();
            let number = match effect.stamp {
                Some(stamp) => (stamp, 0),
                None => nothing.range(*last..).next().copied().unwrap_or(NOWHERE),
            };
            let replaced = match effect.replaced {
                Some(stamp) => (stamp, 0),
                None => nothing
                    .range(..number)
                    .next_back()
                    .copied()
                    .unwrap_or_default(),
            };
            *last = number.max(*last);
            Numbered {
                entry: *entry,
                number,
                replaced,
            }
        });
        let mut removals = BTreeMap::new();
        for (entry, place) in self.removals() {
            removals.entry((entry.key, place)).or_insert(Entry {
                returned: None,
                ..entry
            });
        }
        let removals = removals
            .into_iter()
            .map(|((_, place), entry)| (entry, place));
        let others = open.chain(removals).map(|(entry, number)| Numbered {
            entry,
            number,
            replaced: Place::default(),
        });
        placed.chain(others).collect()
    }
}

/// Where a write or an absence stands: an eviction right behind the write that it evicted.
type Place = (Stamp, u8);

/// Where nothing stands.
const NOWHERE: Place = (
    Stamp {
        born: u32::MAX,
        version: Cas(u64::MAX),
    },
    u8::MAX,
);

/// What nobody asked for.
fn nobodys(key: usize, at: u64, action: Action) -> Entry {
    Entry {
        client: u32::MAX,
        key: key as u64,
        invoked: Instant { ns: at },
        action,
        returned: None,
    }
}

fn entry(asked: &Asked, action: Action, returned: Option<(Instant, Outcome)>) -> Entry {
    Entry {
        client: asked.client,
        key: asked.demand.key as u64,
        invoked: Instant { ns: asked.invoked },
        action,
        returned,
    }
}

/// Placements that the search of one key may try.
const STEPS_MAX: u64 = 500_000;
