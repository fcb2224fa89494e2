//! The rules of a cache node as a model: the cache's side and the controller's, every order of what
//! may happen to the messages between them, to the switch and to either process.
//!
//! What is on its way to a controller when it dies is lost with its socket. A controller that
//! begins finds the rules of the one before.

#[cfg(test)]
mod tests;
mod world;

use std::collections::BTreeSet;

use curtail_consistency::tiered::{
    RuleBudget, RuleController, RuleLife, RuleMutant, RuleQueue, RuleSender, RulesAnswer,
};
use curtail_types::{Instant, RouteHash};

use self::world::{CACHE, ModelTable, RuleCache, RuleWorld, address};
use crate::fault_counts::fault_counts;
use crate::planted::planted;
use crate::search::Model;
use crate::setup::setup;
use crate::step_notes::StepNotes;
use crate::witnesses::witnesses;

setup! {
    /// A bounded model of rules.
    pub(crate) struct RuleSetup(RuleMutant) {
        /// Keys 0 to this, of which the cache node has the first one at first.
        keys: u64,
        /// Whether it takes long.
        is_deep: bool,
        ..
        /// What may happen, and how often.
        faults: RuleFaults,
        /// What must be seen, or the model is too small to show anything.
        sees: u32,
    }
}

fault_counts! {
    /// How often something may happen.
    pub(crate) struct RuleFaults {
        /// The cache node admits a key.
        admissions: "admissions",
        /// It evicts one.
        evictions: "evictions",
        /// A message is lost.
        losses: "losses",
        /// A message arrives twice.
        duplicates: "duplicates",
        /// The switch forgets its rules.
        forgets: "tables forgotten",
        /// The controller dies, and another one begins.
        controllers: "controller restarts",
        /// The cache node dies, and begins empty.
        caches: "cache restarts",
        /// The rule of a key is spread, or is not any more.
        marks: "rules that begin or cease to be spread",
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RuleAction {
    /// The cache node admits a key.
    Admit(u64),
    /// It evicts one.
    Evict(u64),
    /// It sends what waits, a message again, or one that shows that it lives.
    Send,
    /// A message arrives, and may arrive once more.
    Deliver(usize, bool),
    /// It does not.
    Lose(usize),
    /// An answer arrives.
    Answer(usize),
    /// It does not.
    LoseAnswer(usize),
    /// The switch forgets its rules.
    Forget,
    /// The controller looks at its switch.
    Reconcile,
    /// Another controller begins.
    RestartController,
    /// The cache node begins again.
    RestartCache,
    /// A key's rule is to be spread, or not any more.
    Mark(u64),
}

witnesses! {
    KEPT = 1, "a rule that was found is kept";
    STALE = 2, "a rule that was found is deleted";
    RENAMED = 4, "the cache node installs its rules again";
    SPREAD_KEPT = 8, "a rule that was found is spread, and kept";
    MARKED = 16, "a rule that is there is spread, or not any more";
}

const fn model(name: &'static str, keys: u64) -> RuleSetup {
    RuleSetup {
        name,
        keys,
        faults: RuleFaults::NOTHING,
        sees: 0,
        is_deep: false,
        mutant: None,
    }
}

/// Two keys are admitted and one is evicted.
const CHANGES: RuleFaults = RuleFaults::NOTHING.admissions(2).evictions(1);
const SPREADS: RuleFaults = RuleFaults::NOTHING.controllers(1);

/// All of them.
pub(crate) const RULE_MODELS: &[RuleSetup] = &[
    model("rules-controller", 3)
        .faults(CHANGES.controllers(1))
        .sees(KEPT | STALE | RENAMED),
    model("rules-forgotten", 2)
        .faults(CHANGES.losses(1).duplicates(1).forgets(1))
        .sees(RENAMED),
    model("rules-restarts", 2)
        .faults(CHANGES.losses(1).controllers(1).caches(1))
        .sees(STALE | RENAMED),
    model("rules-spread", 1)
        .faults(SPREADS.losses(1).forgets(1).marks(2))
        .sees(RENAMED | SPREAD_KEPT | MARKED),
    model("rules-spread-restarts", 2)
        .faults(SPREADS.admissions(1).evictions(1).caches(1).marks(1))
        .sees(RENAMED | SPREAD_KEPT | MARKED),
];

impl RuleSetup {
    fn controller(&self, incarnation: u64) -> RuleController {
        RuleController::new(1, incarnation << 8).with_mutant(self.mutant)
    }

    /// Whether the cache node shares: one that begins again does not.
    const fn shares(&self, generation: u32) -> bool {
        self.faults.marks > 0 && generation == 1
    }

    fn cache(&self, generation: u32) -> RuleCache {
        let mut sender = RuleSender::new(generation, 1);
        if self.shares(generation) {
            sender.share();
        }
        RuleCache {
            generation,
            wanted: BTreeSet::new(),
            spread: BTreeSet::new(),
            marked: BTreeSet::new(),
            queue: RuleQueue::new(RuleBudget {
                per_s: 0,
                burst: 1,
                queue_max: 64,
                delay_max_ns: 0,
            }),
            // So that naming all rules takes several messages.
            sender,
            now: 0,
            named_all: RuleLife(0),
        }
    }

    /// Its bounds but for faults, as a person reads them.
    fn parts(&self) -> Vec<String> {
        vec![format!("{} keys", self.keys)]
    }

    /// The errors that can be planted, with their names.
    pub(crate) fn mutants() -> impl Iterator<Item = (RuleMutant, String)> {
        planted(RuleMutant::ALL, "rules")
    }

    /// Whether the cache node has something to send: a message for its changes, one again of which
    /// nothing is on its way, or, while it does not know the life of its rules, a sign of life.
    fn sends(world: &RuleWorld) -> bool {
        let sender = &world.cache.sender;
        let is_quiet = world.messages.is_empty() && world.answers.is_empty();
        let (installs, withdrawals) = world.cache.queue.lengths();
        match sender.is_idle() {
            true => installs + withdrawals > 0 || is_news(world),
            false => is_quiet,
        }
    }

    fn answer(&self, world: &mut RuleWorld, index: usize) {
        let taken = world.answers.remove(index);
        if world.cache.sender.take(&taken) == RulesAnswer::Lost {
            world.notes.seen |= RENAMED;
            world.cache.queue.clear();
            world.cache.marked.clear();
            for key in world.cache.wanted.clone() {
                want(&mut world.cache, key);
            }
        }
    }
}

fn want(cache: &mut RuleCache, key: u64) {
    // The queue has room for every key.
    let _ = cache.queue.install(RouteHash(key), Instant { ns: 0 });
}

/// Whether a sign of life would tell either side something new.
fn is_news(world: &RuleWorld) -> bool {
    let life = world.controller.life(CACHE);
    life != world.cache.sender.life() || life != world.cache.named_all || world.has_restarted
}

impl Model for RuleSetup {
    type State = RuleWorld;
    type Action = RuleAction;

    fn start(&self) -> RuleWorld {
        let mut world = RuleWorld {
            cache: self.cache(1),
            controller: self.controller(0),
            table: ModelTable::default(),
            has_restarted: false,
            incarnation: 0,
            messages: Vec::new(),
            answers: Vec::new(),
            left: self.faults,
            notes: StepNotes::default(),
        };
        world.left.admissions += 1;
        for action in [
            RuleAction::Admit(0),
            RuleAction::Send,
            RuleAction::Deliver(0, false),
            RuleAction::Answer(0),
        ] {
            self.act(&mut world, &action);
        }
        world
    }

    fn actions(&self, world: &RuleWorld, actions: &mut Vec<RuleAction>) {
        let left = &world.left;
        // The switch is looked at before a message is read.
        if world.has_restarted {
            actions.push(RuleAction::Reconcile);
        } else {
            for index in 0..world.messages.len() {
                actions.push(RuleAction::Deliver(index, false));
                if left.duplicates > 0 {
                    actions.push(RuleAction::Deliver(index, true));
                }
            }
        }
        if left.losses > 0 {
            actions.extend((0..world.messages.len()).map(RuleAction::Lose));
            actions.extend((0..world.answers.len()).map(RuleAction::LoseAnswer));
        }
        actions.extend((0..world.answers.len()).map(RuleAction::Answer));
        if Self::sends(world) {
            actions.push(RuleAction::Send);
        }
        for key in 0..self.keys {
            match world.cache.wanted.contains(&key) {
                true if left.evictions > 0 => actions.push(RuleAction::Evict(key)),
                false if left.admissions > 0 => actions.push(RuleAction::Admit(key)),
                _ => {}
            }
            // As hosts do: only while somebody shares.
            let shares = world.cache.sender.sharing().contains(CACHE);
            let is_own = world.cache.wanted.contains(&key);
            if left.marks > 0 && is_own && (shares || world.cache.spread.contains(&key)) {
                actions.push(RuleAction::Mark(key));
            }
        }
        let faults = [
            (left.forgets, RuleAction::Forget),
            (left.controllers, RuleAction::RestartController),
            (left.caches, RuleAction::RestartCache),
        ];
        let faults = faults.iter().filter(|(count, _)| *count > 0);
        actions.extend(faults.map(|(_, action)| *action));
    }

    fn act(&self, world: &mut RuleWorld, action: &RuleAction) {
        match *action {
            RuleAction::Admit(key) => {
                world.left.admissions -= 1;
                world.cache.wanted.insert(key);
                want(&mut world.cache, key);
            }
            RuleAction::Evict(key) => {
                world.left.evictions -= 1;
                world.cache.wanted.remove(&key);
                world.cache.spread.remove(&key);
                let now = Instant { ns: 0 };
                world.cache.queue.withdraw(RouteHash(key), now);
            }
            RuleAction::Send => {
                // A clock that is as late as it must be; then as if nothing had been sent.
                world.cache.now = world.cache.sender.deadline().ns;
                world.send();
            }
            RuleAction::Deliver(index, again) => {
                let message = match again {
                    true => {
                        world.left.duplicates -= 1;
                        world.messages[index].clone()
                    }
                    false => world.messages.remove(index),
                };
                world.deliver(&message);
            }
            RuleAction::Lose(index) => {
                world.left.losses -= 1;
                world.messages.remove(index);
            }
            RuleAction::Answer(index) => self.answer(world, index),
            RuleAction::LoseAnswer(index) => {
                world.left.losses -= 1;
                world.answers.remove(index);
            }
            RuleAction::Forget => {
                world.left.forgets -= 1;
                world.table = ModelTable::default();
                world.has_restarted = true;
            }
            RuleAction::Reconcile => {
                world.has_restarted = false;
                let now = Instant { ns: 0 };
                world.controller.reconcile(&mut world.table, now);
            }
            RuleAction::RestartController => {
                world.left.controllers -= 1;
                world.incarnation += 1;
                world.controller = self.controller(world.incarnation);
                world.messages.clear();
                world.has_restarted = true;
            }
            RuleAction::RestartCache => {
                world.left.caches -= 1;
                world.cache = self.cache(world.cache.generation + 1);
                world.answers.clear();
            }
            RuleAction::Mark(key) => {
                world.left.marks -= 1;
                world.mark(key);
            }
        }
    }

    fn settle(&self, before: &RuleWorld, world: &mut RuleWorld) {
        let (old, new) = (before.controller.counts(), world.controller.counts());
        let spread = |world: &RuleWorld| -> BTreeSet<_> {
            let rules = world.table.0.iter();
            let spread = rules.filter(|(_, cookie)| cookie.is_spread);
            spread.map(|(key, _)| *key).collect()
        };
        let (before, after) = (spread(before), spread(world));
        let is_kept = new.kept > old.kept;
        let seen = [
            (is_kept, KEPT),
            (new.stale > old.stale, STALE),
            (is_kept && !after.is_empty(), SPREAD_KEPT),
            (before != after, MARKED),
        ];
        let seen = seen.iter().filter(|(is_seen, _)| *is_seen);
        world.notes.seen |= seen.fold(0, |all, (_, witness)| all | witness);
    }

    /// When nothing is on its way any more, the switch has the rules that the cache node wants.
    fn fault_at_end(&self, world: &RuleWorld) -> Option<&'static str> {
        let wanted: BTreeSet<_> = world.cache.wanted.iter().map(|key| address(*key)).collect();
        let there: BTreeSet<_> = world.table.0.keys().copied().collect();
        let is_own = |cookie: &curtail_types::RuleCookie| {
            cookie.cache == CACHE && cookie.generation == world.cache.generation
        };
        if !wanted.is_subset(&there) {
            return Some("a cached key has no rule for ever");
        }
        if !there.is_subset(&wanted) || !world.table.0.values().all(is_own) {
            return Some("a rule outlives its key for ever");
        }
        let spread = world.cache.spread.iter().map(|key| address(*key));
        let spread: BTreeSet<_> = spread.collect();
        let marked = world.table.0.iter().filter(|(_, cookie)| cookie.is_spread);
        if !marked.map(|(key, _)| *key).eq(spread) {
            return Some("a rule is not spread as it is to be");
        }
        let shares = self.shares(world.cache.generation);
        if shares && !world.table.1.contains(CACHE) {
            return Some("the switch does not know who shares");
        }
        if shares != world.cache.sender.sharing().contains(CACHE) {
            return Some("the cache node does not know who shares");
        }
        None
    }

    fn in_words(&self, before: &RuleWorld, action: &RuleAction) -> String {
        match *action {
            RuleAction::Admit(key) => format!("the cache node admits key {key}"),
            RuleAction::Evict(key) => format!("the cache node evicts key {key}"),
            RuleAction::Send => "the cache node sends a message of rules".to_owned(),
            RuleAction::Deliver(index, again) => {
                let message = &before.messages[index];
                let stays = if again { " (and once more)" } else { "" };
                format!(
                    "the controller receives message {} of generation {}: {:?}{stays}",
                    message.number, message.generation, message.changes
                )
            }
            RuleAction::Lose(index) => {
                let number = before.messages[index].number;
                format!("the network loses message {number}")
            }
            RuleAction::Answer(index) => {
                let answer = &before.answers[index];
                format!(
                    "the cache node receives the answer to message {}: life {}",
                    answer.number, answer.life.0
                )
            }
            RuleAction::LoseAnswer(index) => {
                let number = before.answers[index].number;
                format!("the network loses the answer to message {number}")
            }
            RuleAction::Forget => "the switch forgets its rules".to_owned(),
            RuleAction::Reconcile => "the controller finds its switch".to_owned(),
            RuleAction::RestartController => "the controller dies, another one begins".to_owned(),
            RuleAction::RestartCache => "the cache node begins again, empty".to_owned(),
            RuleAction::Mark(key) => match before.cache.spread.contains(&key) {
                true => format!("the rule of key {key} is not to be spread any more"),
                false => format!("the rule of key {key} is to be spread"),
            },
        }
    }
}
