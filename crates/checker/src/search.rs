//! Every state that a model can be in, breadth first: so the way to a fault is a shortest one.
//!
//! States of one distance from the start are expanded by all processors together. Of a state that
//! has been expanded only its fingerprint (64 bits) stays, with where it came from; the way to a
//! fault is walked again. Two states with one fingerprint would hide each other: among n states
//! that happens with a chance of n^2 / 2^65, one in a million for six million states.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::setup::Witness;

/// Something that moves from state to state.
pub trait Model: Sync {
    /// A state.
    type State: Clone + Hash + Send + Sync;
    /// A way to move on.
    type Action: Send;

    /// Where it starts.
    fn start(&self) -> Self::State;

    /// The ways on from `state`, always in the same order.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Where `action` leads.
    fn next(&self, state: &Self::State, action: &Self::Action) -> Self::State;

    /// What is wrong in `state`, if something is. `is_end` says that it has no way on.
    fn fault(&self, state: &Self::State, is_end: bool) -> Option<String>;

    /// A bit for each of the things worth seeing that have been seen on the way to `state`.
    fn witnesses(&self, state: &Self::State) -> u32;

    /// `action` as a person reads it, and what came of it.
    fn describe(&self, before: &Self::State, action: &Self::Action, after: &Self::State) -> String;
}

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// States at most; a search that needs more ends unfinished.
    pub states_max: usize,
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
    /// States of that distance.
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

impl Outcome {
    /// Whether `witness` was seen.
    pub fn saw(&self, witness: Witness) -> bool {
        self.witnesses & witness.bit() != 0
    }
}

impl Default for Limits {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            states_max: 100_000_000,
            threads,
        }
    }
}

/// Looks at every state of `model`, or stops at the first fault. `report` hears after every level.
pub fn search<M: Model>(model: &M, limits: Limits, mut report: impl FnMut(Progress)) -> Outcome {
    let began = Instant::now();
    let mut search = Search::new(model, limits);
    while search.fault.is_none() && !search.frontier.is_empty() && search.has_budget() {
        search.expand();
        report(search.progress());
    }
    Outcome {
        progress: search.progress(),
        witnesses: search.witnesses,
        fault: search.counterexample(),
        is_complete: search.frontier.is_empty(),
        took: began.elapsed(),
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    limits: Limits,
    seen: Seen,
    /// The states of the last level, and their numbers.
    frontier: Vec<(M::State, u32)>,
    /// By number: which state a state came from, by which of its actions.
    origins: Vec<(u32, u16)>,
    witnesses: u32,
    transitions: usize,
    depth: usize,
    fault: Option<(u32, String)>,
}

/// What a thread finds in a part of the frontier.
struct Found<S> {
    states: Vec<(S, u32, u16)>,
    transitions: usize,
    witnesses: u32,
    fault: Option<(u32, String)>,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, limits: Limits) -> Self {
        let (start, seen) = (model.start(), Seen::new());
        seen.insert(&start);
        Self {
            model,
            limits,
            seen,
            frontier: vec![(start, 0)],
            origins: vec![(0, 0)],
            witnesses: 0,
            transitions: 0,
            depth: 0,
            fault: None,
        }
    }

    fn has_budget(&self) -> bool {
        self.origins.len() < self.limits.states_max
    }

    fn progress(&self) -> Progress {
        Progress {
            states: self.origins.len(),
            transitions: self.transitions,
            depth: self.depth,
            frontier: self.frontier.len(),
        }
    }

    fn expand(&mut self) {
        let next = AtomicUsize::new(0);
        let this = &*self;
        let found: Vec<_> = thread::scope(|scope| {
            let threads = 0..self.limits.threads.max(1);
            let handles: Vec<_> = threads
                .map(|_| scope.spawn(|| this.expand_some(&next)))
                .collect();
            handles
                .into_iter()
                .filter_map(|one| one.join().ok())
                .collect()
        });
        self.frontier.clear();
        self.depth += 1;
        for part in found {
            self.transitions += part.transitions;
            self.witnesses |= part.witnesses;
            self.fault = self.fault.take().or(part.fault);
            for (state, from, action) in part.states {
                self.frontier.push((state, self.origins.len() as u32));
                self.origins.push((from, action));
            }
        }
    }

    /// A thread's work: chunks of the frontier, as long as there are any.
    fn expand_some(&self, next: &AtomicUsize) -> Found<M::State> {
        let mut found = Found {
            states: Vec::new(),
            transitions: 0,
            witnesses: 0,
            fault: None,
        };
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
        actions.clear();
        self.model.actions(state, actions);
        found.witnesses |= self.model.witnesses(state);
        if let Some(fault) = self.model.fault(state, actions.is_empty()) {
            found.fault = Some((number, fault));
            return;
        }
        for (index, action) in actions.iter().enumerate() {
            let next = self.model.next(state, action);
            found.transitions += 1;
            if self.seen.insert(&next) {
                found.states.push((next, number, index as u16));
            }
        }
    }

    /// Walks the way to the fault once more.
    fn counterexample(&self) -> Option<Counterexample> {
        let (number, fault) = self.fault.clone()?;
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
            steps.push(self.model.describe(&state, action, &next));
            state = next;
        }
        Some(Counterexample { fault, steps })
    }
}

/// The fingerprints of the states that have been seen.
struct Seen {
    shards: Vec<Mutex<HashSet<u64, Plain>>>,
}

impl Seen {
    fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards }
    }

    /// Whether it is new.
    fn insert(&self, state: &impl Hash) -> bool {
        let fingerprint = fingerprint_of(state);
        let shard = self.shards.get((fingerprint >> 57) as usize % SHARDS);
        shard.is_some_and(|shard| {
            let mut shard = shard.lock().unwrap_or_else(|broken| broken.into_inner());
            shard.insert(fingerprint)
        })
    }
}

/// The same in every run.
pub(crate) fn fingerprint_of(value: &impl Hash) -> u64 {
    let mut mixer = Mixer(MULTIPLIERS[0]);
    value.hash(&mut mixer);
    mixer.finish()
}

/// Folds words with the halves of a product, as wyhash does (Wang Yi, 2019): most of a search is
/// spent on hashing, and states are not chosen by an adversary.
struct Mixer(u64);

impl Mixer {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIERS[1]);
        self.0 = (product as u64) ^ ((product >> 64) as u64).wrapping_add(MULTIPLIERS[2]);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.fold(MULTIPLIERS[2]);
        last.fold(MULTIPLIERS[0]);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.fold(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.fold(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.fold(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.fold(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.fold(word as u64);
    }
}

/// A fingerprint is its own hash.
#[derive(Clone, Copy, Debug, Default)]
struct Plain(u64);

impl BuildHasher for Plain {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

const CHUNK: usize = 64;
const SHARDS: usize = 128;
/// Odd, with as many ones as zeros: the first digits of the fraction of pi.
const MULTIPLIERS: [u64; 3] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
];
