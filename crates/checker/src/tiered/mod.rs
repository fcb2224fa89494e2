//! A back end and its caches as models: the machines of `consistency::tiered`, every order of what
//! may happen.
//!
//! There are no rules here: a read may go to a cache or to the back end at any time, which is all
//! that a rule that lags, or was lost, can do. Processes stand still as long as they like: a clock
//! that is read says the present time, a timer may ring late.

mod actions;
mod host;
mod in_words;
mod models;
#[cfg(test)]
mod tests;
mod world;

use curtail_consistency::lease::LeaseTerms;
use curtail_consistency::tiered::{
    BackEndConfig, BackEndEvent, CacheConfig, CacheEvent, CacheId, TierBackEnd, TierCache,
    TierMutant,
};
use curtail_types::{Instant, RouteHash, listed_enum};

pub(crate) use models::TIER_MODELS;

use self::actions::{Stepper, TierAction};
use self::host::BACK_END;
use self::world::{CacheNode, Stage, TierWorld};
use crate::fault_counts::fault_counts;
use crate::interned_parts::Shared;
use crate::judge::{Linearizable, Written};
use crate::planted::{named, planted};
use crate::requests::Kind;
use crate::search::{Model, ModelState as _};
use crate::setup::setup;
use crate::step_notes::StepNotes;
use crate::witnesses::witnesses;

setup! {
    /// A bounded tier.
    pub(crate) struct TierSetup(TierModelMutant) {
        /// A lease, in units of time.
        terms: LeaseTerms,
        ..
        /// Cache nodes; the back end reports to the first one at first.
        caches: u8,
        /// Whether the others may have copies, too.
        is_group: bool,
        /// The keys.
        keys: &'static [RouteHash],
        /// What is asked once, anywhere, and of which key.
        operations: &'static [(Kind, usize)],
        /// Keys that the back end lets its cache have.
        entries_max: usize,
        /// What may happen, and how often.
        faults: TierFaults,
        /// What must be seen, or the model is too small to show anything.
        sees: u32,
        /// Whether it takes long.
        is_deep: bool,
    }
}

fault_counts! {
    /// How often something may happen.
    pub(crate) struct TierFaults {
        /// A message is lost.
        losses: "losses",
        /// A message arrives twice.
        duplicates: "duplicates",
        /// A cache wants a copy.
        fetches: "fetches",
        /// A key bursts.
        reports: "instant reports",
        /// A cache evicts a copy.
        evictions: "evictions",
        /// The store removes an item by itself.
        expiries: "expiries",
        /// Every item is removed, at most once.
        flushes: "flushes",
        /// Time passes by one unit.
        time: "units of time",
        /// A cache dies, and comes back empty.
        cache_crashes: "cache crashes",
        /// The back end dies, and comes back with its store.
        back_end_crashes: "back end crashes",
        /// The back end gets the other cache.
        reassigns: "changes of cache",
    }
}

/// A planted error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum TierModelMutant {
    /// In the machines.
    Machine(TierMutant),
    /// In what drives them.
    Driver(TierDriverMutant),
}

listed_enum! {
    /// An error of the driver of the machines.
    pub(crate) enum TierDriverMutant {
        /// A reader at the cache judges a request by a clock that it read before that came.
        ReadsByOldClock,
        /// It does not ask whether the session is still the one in which it looked.
        SessionUnchecked,
        /// The back end takes a message by a clock that it read before that came.
        ReceivesByOldClock,
    }
}

witnesses! {
    ANSWERED = 1, "every request is answered";
    HIT = 2, "a cache node answers a read";
    DETOUR = 4, "a cache node does not answer with a copy that it has";
    WAITED = 8, "a request waits for the cache node";
    ENDED = 16, "the back end ends a session";
    REFUSED = 32, "a request is refused after a restart";
    DROPPED = 64, "a key leaves the cached-key set";
    SECOND = 128, "the other cache node answers a read";
    FLUSHED = 256, "a flush is answered";
}

impl TierSetup {
    fn has(&self, mutant: TierDriverMutant) -> bool {
        self.mutant == Some(TierModelMutant::Driver(mutant))
    }

    fn machine_mutant(&self) -> Option<TierMutant> {
        match self.mutant? {
            TierModelMutant::Machine(mutant) => Some(mutant),
            TierModelMutant::Driver(_) => None,
        }
    }

    fn back_end(&self, incarnation: u64, now: Instant) -> TierBackEnd {
        let config = BackEndConfig {
            terms: self.terms,
            incarnation,
            entries_max: self.entries_max,
            waiting_max: 4,
            retransmit_ns: 0,
            patience_ns: 1,
        };
        TierBackEnd::new(config, now, incarnation > 0).with_mutant(self.machine_mutant())
    }

    fn cache(&self, incarnation: u64) -> TierCache {
        let config = CacheConfig {
            terms: self.terms,
            incarnation,
            renew_ns: 1,
        };
        TierCache::new(config).with_mutant(self.machine_mutant())
    }

    fn ids(&self) -> impl Iterator<Item = CacheId> + use<> {
        (0..self.caches).map(CacheId)
    }

    /// Its bounds but for faults, as a person reads them.
    fn parts(&self) -> Vec<String> {
        let mut parts = vec![format!("cache nodes {}", self.caches)];
        parts.extend(self.is_group.then(|| "in a group".to_owned()));
        let kinds = self.operations.iter();
        parts.extend(kinds.map(|(kind, key)| format!("{kind} key {key}")));
        if self.entries_max < self.keys.len() {
            parts.push(format!("cached keys {}", self.entries_max));
        }
        parts
    }

    /// The errors that can be planted, with their names.
    pub(crate) fn mutants() -> impl Iterator<Item = (TierModelMutant, String)> {
        let machine = planted(TierMutant::ALL, "tiered");
        let machine = machine.map(|(one, name)| (TierModelMutant::Machine(one), name));
        let driver = named(TierDriverMutant::ALL, "tiered");
        machine.chain(driver.map(|(one, name)| (TierModelMutant::Driver(one), name)))
    }

    fn stepper<'a>(&'a self, world: &'a mut TierWorld) -> Stepper<'a> {
        Stepper { setup: self, world }
    }
}

/// What may happen.
impl TierSetup {
    fn client_actions(&self, world: &TierWorld, actions: &mut Vec<TierAction>) {
        for (label, &(kind, key)) in self.operations.iter().enumerate() {
            let (stage, label) = (world.operations[label], label as u8);
            if let Stage::Looked(..) | Stage::Clock(..) = stage {
                actions.push(TierAction::Confirm(label));
            }
            // Of requests that are alike the first is asked first.
            let before = &self.operations[..usize::from(label)];
            let mut alike = before.iter().zip(&world.operations);
            let waits = alike.any(|(one, at)| *one == (kind, key) && *at == Stage::Unasked);
            if stage != Stage::Unasked || waits {
                continue;
            }
            if world.back_end.machine.is_some() {
                actions.push(TierAction::Ask(label));
            }
            for cache in self.ids().filter(|_| kind == Kind::Get) {
                let machine = world.cache(cache).machine.as_ref();
                let copy = machine.and_then(|one| one.look(BACK_END, self.keys[key]));
                let begins = self.has(TierDriverMutant::ReadsByOldClock) && machine.is_some();
                if copy.is_some() || begins {
                    actions.push(TierAction::Look(label, cache));
                }
            }
        }
    }

    fn network_actions(&self, world: &TierWorld, actions: &mut Vec<TierAction>) {
        for (index, parcel) in world.parcels.iter().enumerate() {
            if index > 0 && world.parcels[index - 1] == *parcel {
                continue;
            }
            actions.push(TierAction::Deliver(index, false));
            if world.left.losses > 0 {
                actions.push(TierAction::Lose(index));
            }
            if world.left.duplicates > 0 {
                actions.push(TierAction::Deliver(index, true));
            }
        }
    }

    fn cache_actions(&self, world: &TierWorld, actions: &mut Vec<TierAction>) {
        for id in self.ids() {
            let Some(machine) = &world.cache(id).machine else {
                actions.push(TierAction::RestartCache(id));
                continue;
            };
            for (key, hash) in self.keys.iter().enumerate() {
                let has = machine.look(BACK_END, *hash).is_some();
                if world.left.fetches > 0 && machine.lease_end(BACK_END).is_some() && !has {
                    actions.push(TierAction::Fetch(id, key));
                }
                if world.left.evictions > 0 && has {
                    actions.push(TierAction::Evict(id, key));
                }
            }
            let node = 1 + usize::from(id.0);
            if machine.deadline().is_some_and(|at| world.now(node) >= at) {
                actions.push(TierAction::TickCache(id));
            }
            if world.left.cache_crashes > 0 {
                actions.push(TierAction::CrashCache(id));
            }
        }
    }

    fn back_end_actions(&self, world: &TierWorld, actions: &mut Vec<TierAction>) {
        let Some(machine) = &world.back_end.machine else {
            actions.push(TierAction::RestartBackEnd);
            return;
        };
        for key in 0..self.keys.len() {
            if world.left.reports > 0 && machine.lease_end().is_some() {
                actions.push(TierAction::Report(key));
            }
            if world.left.expiries > 0 && world.back_end.items.contains_key(&self.keys[key]) {
                actions.push(TierAction::Expire(key));
            }
        }
        if world.left.flushes > 0 {
            actions.push(TierAction::Flush);
        }
        let now = world.now(0);
        let is_due = match machine.lease_end() {
            Some(_) => {
                let waits = machine.waiting().1 > 0 && world.parcels.is_empty();
                machine.has_ended(now) || waits
            }
            None => machine.deadline().is_some_and(|at| now >= at),
        };
        if is_due {
            actions.push(TierAction::TickBackEnd);
        }
        if world.left.back_end_crashes > 0 {
            actions.push(TierAction::CrashBackEnd);
        }
        if world.left.reassigns > 0 {
            actions.push(TierAction::Reassign);
        }
    }

    /// Time passes as often as it may, and as long as the back end waits for a cache that is dead
    /// or has no lease, a flush waits for the end of one, or a restarted back end waits for the
    /// leases of the one before it.
    fn may_pass(&self, world: &TierWorld) -> bool {
        let machine = world.back_end.machine.as_ref();
        let (requests, rounds) = machine.map_or((0, 0), TierBackEnd::waiting);
        let has_lease = |id: CacheId| {
            let cache = world.cache(id).machine.as_ref();
            cache.is_some_and(|cache| cache.lease_end(BACK_END).is_some())
        };
        let waits_for_lease = rounds > 0 && !self.ids().all(has_lease);
        let is_flushing = rounds == 0 && requests > 0;
        let serves_from = machine.map_or(0, |machine| machine.serves_from().ns);
        let has_restarted = world.clocks[0] < serves_from;
        let is_waiting = waits_for_lease || is_flushing || has_restarted;
        let is_still = world.parcels.is_empty() && is_waiting;
        world.left.time > 0 || (is_still && world.clocks[0] < TIME_MAX)
    }
}

impl Model for TierSetup {
    type State = TierWorld;
    type Action = TierAction;

    fn start(&self) -> TierWorld {
        let start = Instant { ns: 0 };
        let cache = |_| {
            Shared::new(CacheNode {
                machine: Some(self.cache(1)),
                copies: Default::default(),
                incarnation: 1,
            })
        };
        let mut world = TierWorld {
            back_end: Shared::new(world::BackEndNode {
                machine: Some(self.back_end(0, start)),
                cache: CacheId(0),
                items: self.keys.iter().map(|key| (*key, FIRST)).collect(),
                results: Default::default(),
                incarnation: 0,
                clock_read: 0,
            }),
            caches: self.ids().map(cache).collect(),
            parcels: Vec::new(),
            operations: vec![Stage::Unasked; self.operations.len()],
            judges: Shared::new(vec![Linearizable::new(FIRST); self.keys.len()]),
            clocks: vec![0; 1 + usize::from(self.caches)],
            left: self.faults,
            notes: StepNotes::default(),
        };
        let mut stepper = self.stepper(&mut world);
        stepper.step_back_end(BackEndEvent::Assign(CacheId(0)), None);
        stepper.join_group();
        for id in self.ids() {
            stepper.step_cache(id, CacheEvent::Join(BACK_END), None);
        }
        while !stepper.world.parcels.is_empty() {
            stepper.act(&TierAction::Deliver(0, false));
        }
        world.seal();
        world
    }

    fn actions(&self, world: &TierWorld, actions: &mut Vec<TierAction>) {
        self.client_actions(world, actions);
        self.network_actions(world, actions);
        self.cache_actions(world, actions);
        self.back_end_actions(world, actions);
        if self.may_pass(world) {
            actions.push(TierAction::Pass);
        }
    }

    fn act(&self, world: &mut TierWorld, action: &TierAction) {
        self.stepper(world).act(action);
    }

    fn settle(&self, before: &TierWorld, world: &mut TierWorld) {
        world.note_seen(before);
        world.parcels.shrink_to_fit();
    }

    fn fault_at_end(&self, world: &TierWorld) -> Option<&'static str> {
        let mut stages = world.operations.iter();
        if stages.any(|stage| matches!(stage, Stage::Asked)) {
            return Some("a request is never answered");
        }
        let machine = world.back_end.machine.as_ref()?;
        if machine.waiting() != (0, 0) {
            return Some("something waits for ever");
        }
        for id in self.ids() {
            let cache = world.cache(id).machine.as_ref()?;
            let now = world.now(1 + usize::from(id.0));
            for key in cache.copies(BACK_END) {
                let session = cache.look(BACK_END, key)?;
                let shown = world.cache(id).copies.get(&key);
                if cache.shows(BACK_END, session, now) && shown != world.back_end.items.get(&key) {
                    return Some("a copy differs from the item for ever");
                }
            }
        }
        None
    }

    fn in_words(&self, before: &TierWorld, action: &TierAction) -> String {
        self.action_in_words(before, action)
    }
}

/// What the keys have at first.
const FIRST: Written = Written(0);
/// By then every lease has ended.
const TIME_MAX: u64 = 24;
