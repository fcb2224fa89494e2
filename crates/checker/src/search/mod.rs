//! Visits every state of a model breadth first, so that the path to a fault is a shortest one.
//!
//! States of one distance from the start are expanded by all processors together, a batch at a
//! time. Of what waits to be expanded the parts that many states share are kept once. Of a state
//! that has been expanded only its fingerprint (64 bits) stays, with where it came from; the way to
//! a fault is walked again. Two states with one fingerprint would hide each other (hash compaction,
//! Wolper and Leroy, 1993): among n states that happens with a chance of n^2 / 2^65, one in a
//! million for six million states.

mod liveness;
#[cfg(test)]
pub(crate) mod tests;

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dashmap::DashSet;
use foldhash::{fast, quality};

use self::liveness::Ends;
use crate::interned_parts::{Pool, SharedPart};
use crate::step_notes::StepNotes;

/// Something that moves from state to state.
pub(crate) trait Model: Sync {
    /// A state.
    type State: ModelState;
    /// A way to move on.
    type Action;

    /// Where it starts.
    fn start(&self) -> Self::State;

    /// The ways on from `state`, always in the same order.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Moves on from `state`.
    fn act(&self, state: &mut Self::State, action: &Self::Action);

    /// Notes what was seen in the step from `before`; states that are the same become equal.
    fn settle(&self, before: &Self::State, state: &mut Self::State);

    /// What is wrong in `state`, which has no way on, if something is.
    fn fault_at_end(&self, state: &Self::State) -> Option<&'static str>;

    /// `action` as a person reads it, in state `before`.
    fn in_words(&self, before: &Self::State, action: &Self::Action) -> String;

    /// Where `action` leads.
    fn next(&self, before: &Self::State, action: &Self::Action) -> Self::State {
        let mut state = before.clone();
        state.notes().begin(false);
        self.act(&mut state, action);
        self.settle(before, &mut state);
        state.seal();
        state
    }

    /// `action` as a person reads it, and what comes of it in state `before`.
    fn describe(&self, before: &Self::State, action: &Self::Action) -> String {
        let mut state = before.clone();
        state.notes().begin(true);
        self.act(&mut state, action);
        state.notes().behind(self.in_words(before, action))
    }
}

/// A state of a model.
pub(crate) trait ModelState: Clone + Hash + Send + Sync {
    /// What the step to it came to.
    fn notes(&mut self) -> &mut StepNotes;

    /// Does `each` with the parts that many states share.
    fn each_part(&mut self, _each: &mut dyn FnMut(&mut dyn SharedPart)) {}

    /// Has the parts hashed that have changed.
    fn seal(&mut self) {
        self.each_part(&mut |part| part.seal());
    }
}

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// States at most; a search that needs more ends unfinished.
    pub states_max: usize,
    /// Steps that are remembered at most, 12 bytes each, to see afterwards whether every state has
    /// a way to an end; a search of more does not judge that.
    pub steps_max: usize,
    /// Threads.
    pub threads: usize,
}

/// What a search has found so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Different states.
    pub states: usize,
    /// Steps taken, many of which lead to a state that is known.
    pub transitions: usize,
    /// The greatest distance from the start.
    pub depth: usize,
    /// States that wait to be expanded.
    pub frontier: usize,
}

/// What a search has found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How much was searched.
    pub progress: Progress,
    /// A bit for each thing worth seeing that was seen.
    pub witnesses: u32,
    /// What went wrong and the steps that led to it, if something did.
    pub fault: Option<Counterexample>,
    /// Whether every state was seen.
    pub is_complete: bool,
    /// Whether it is known that every state has a way to an end.
    pub ends: bool,
    /// How long it took.
    pub took: Duration,
}

/// The way to a fault.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// What is wrong in the end.
    pub fault: String,
    /// The steps.
    pub steps: Vec<String>,
}

impl Default for Limits {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            states_max: 100_000_000,
            steps_max: 300_000_000,
            threads,
        }
    }
}

/// Looks at every state of `model`, or stops at the first fault, or when `report`, which hears now
/// and then, breaks it off.
pub(crate) fn search<M: Model>(
    model: &M,
    limits: Limits,
    mut report: impl FnMut(Progress) -> ControlFlow<()>,
) -> Outcome {
    let began = Instant::now();
    let mut search = Search::new(model, limits);
    while search.goes_on() && search.expand_level(&mut report).is_continue() {}
    // A search that is broken off between two levels has the next one still before it.
    let is_all = search.frontier.is_empty() && search.next.is_empty();
    let is_complete = search.fault.is_none() && is_all;
    let ends = is_complete && search.judge_ends();
    Outcome {
        progress: search.progress(),
        witnesses: search.witnesses,
        fault: search.counterexample(),
        is_complete,
        ends,
        took: began.elapsed(),
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    limits: Limits,
    pool: Pool,
    /// The fingerprints of the states that have been seen.
    seen: DashSet<u64, fast::FixedState>,
    /// The states of the last level that are not expanded yet, and their numbers.
    frontier: Vec<(M::State, u32)>,
    /// Those of the next level.
    next: Vec<(M::State, u32)>,
    /// By number: which state a state came from, by which of its actions.
    origins: Vec<(u32, u16)>,
    ends: Ends,
    witnesses: u32,
    transitions: usize,
    depth: usize,
    fault: Option<(u32, &'static str)>,
}

/// What a thread finds in a part of the frontier.
struct Found<S> {
    states: Vec<(S, u64, u32, u16)>,
    /// From which state, and the fingerprint of where to.
    steps: Vec<(u32, u64)>,
    ends: Vec<u32>,
    transitions: usize,
    witnesses: u32,
    /// In an end.
    fault: Option<(u32, &'static str)>,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, limits: Limits) -> Self {
        let (start, seen) = (model.start(), DashSet::default());
        let fingerprint = fingerprint_of(&start);
        seen.insert(fingerprint);
        let mut ends = Ends::new(limits.steps_max);
        ends.add_state(fingerprint);
        Self {
            model,
            limits,
            seen,
            frontier: vec![(start, 0)],
            next: Vec::new(),
            pool: Pool::default(),
            origins: vec![(0, 0)],
            ends,
            witnesses: 0,
            transitions: 0,
            depth: 0,
            fault: None,
        }
    }

    fn goes_on(&self) -> bool {
        let has_budget = self.origins.len() < self.limits.states_max;
        self.fault.is_none() && !self.frontier.is_empty() && has_budget
    }

    fn progress(&self) -> Progress {
        Progress {
            states: self.origins.len(),
            transitions: self.transitions,
            depth: self.depth,
            frontier: self.frontier.len() + self.next.len(),
        }
    }

    /// Batches are taken from the end of the level, so that its memory is given back.
    fn expand_level(
        &mut self,
        report: &mut impl FnMut(Progress) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while self.goes_on() {
            let rest = self.frontier.len().saturating_sub(BATCH);
            self.expand(rest);
            self.frontier.truncate(rest);
            self.frontier.shrink_to(rest + rest / 4);
            report(self.progress())?;
        }
        if self.frontier.is_empty() {
            self.frontier = core::mem::take(&mut self.next);
            self.depth += usize::from(!self.frontier.is_empty());
            self.pool.sweep();
        }
        ControlFlow::Continue(())
    }

    /// Expands the frontier from state `first` on.
    fn expand(&mut self, first: usize) {
        let next = AtomicUsize::new(first);
        let this = &*self;
        let found: Vec<_> = thread::scope(|scope| {
            let threads = 0..self.limits.threads.max(1);
            let spawned = threads.map(|_| scope.spawn(|| this.expand_some(&next)));
            let handles = spawned.collect::<Vec<_>>().into_iter();
            handles.filter_map(|one| one.join().ok()).collect()
        });
        for part in found {
            self.take(part);
        }
    }

    fn take(&mut self, part: Found<M::State>) {
        self.transitions += part.transitions;
        self.witnesses |= part.witnesses;
        self.ends.add_steps(&part.steps);
        part.ends.iter().for_each(|end| self.ends.add_end(*end));
        self.fault = self.fault.or(part.fault);
        for (mut state, fingerprint, from, action) in part.states {
            let number = self.origins.len() as u32;
            let fault = state.notes().fault;
            self.fault = self.fault.or(fault.map(|fault| (number, fault)));
            self.next.push((state, number));
            self.origins.push((from, action));
            self.ends.add_state(fingerprint);
        }
    }

    /// A thread's work: chunks of the frontier, as long as there are any.
    fn expand_some(&self, next: &AtomicUsize) -> Found<M::State> {
        let mut found = Found::default();
        let mut actions = Vec::new();
        loop {
            let from = next.fetch_add(CHUNK, Ordering::Relaxed);
            let until = (from + CHUNK).min(self.frontier.len());
            for (state, number) in self.frontier.get(from..until).unwrap_or_default() {
                self.expand_one(state, *number, &mut actions, &mut found);
            }
            if from >= self.frontier.len() {
                return found;
            }
        }
    }

    fn expand_one(
        &self,
        state: &M::State,
        number: u32,
        actions: &mut Vec<M::Action>,
        found: &mut Found<M::State>,
    ) {
        let before = fingerprint_of(state);
        actions.clear();
        self.model.actions(state, actions);
        let mut is_end = true;
        for (index, action) in actions.iter().enumerate() {
            let mut next = self.model.next(state, action);
            let fingerprint = fingerprint_of(&next);
            found.transitions += 1;
            found.witnesses |= next.notes().seen;
            if fingerprint != before {
                is_end = false;
                self.take_step((number, index), next, fingerprint, found);
            }
        }
        if is_end {
            let fault = self.model.fault_at_end(state);
            found.ends.push(number);
            found.fault = found.fault.or(fault.map(|fault| (number, fault)));
        }
    }

    fn take_step(
        &self,
        (number, index): (u32, usize),
        mut next: M::State,
        fingerprint: u64,
        found: &mut Found<M::State>,
    ) {
        if !self.ends.is_full() {
            found.steps.push((number, fingerprint));
        }
        if self.seen.insert(fingerprint) {
            next.each_part(&mut |part| part.share(&self.pool));
            found.states.push((next, fingerprint, number, index as u16));
        }
    }

    /// Looks whether there is a way to an end from everywhere; whether that is known.
    fn judge_ends(&mut self) -> bool {
        let ends = core::mem::replace(&mut self.ends, Ends::new(0));
        let is_known = !ends.is_full();
        let stuck = ends.first_without();
        self.fault = stuck.map(|number| (number, "nothing leads to an end from here"));
        is_known && stuck.is_none()
    }

    /// Walks the way to the fault once more.
    fn counterexample(&self) -> Option<Counterexample> {
        let (number, fault) = self.fault?;
        let mut way = Vec::new();
        let mut at = number;
        while at != 0 {
            let (from, action) = *self.origins.get(at as usize)?;
            way.push(action);
            at = from;
        }
        let mut state = self.model.start();
        let mut steps = Vec::new();
        for index in way.into_iter().rev() {
            let mut actions = Vec::new();
            self.model.actions(&state, &mut actions);
            let action = actions.get(usize::from(index))?;
            let next = self.model.next(&state, action);
            steps.push(self.model.describe(&state, action));
            state = next;
        }
        let fault = fault.to_owned();
        Some(Counterexample { fault, steps })
    }
}

impl<S> Default for Found<S> {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            steps: Vec::new(),
            ends: Vec::new(),
            transitions: 0,
            witnesses: 0,
            fault: None,
        }
    }
}

/// A word for a value, the same in every run.
pub(crate) fn fingerprint_of(value: &impl Hash) -> u64 {
    quality::FixedState::default().hash_one(value)
}

const BATCH: usize = 1 << 16;
const CHUNK: usize = 64;
