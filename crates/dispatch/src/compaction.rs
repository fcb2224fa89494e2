//! Write compaction: of several writes of one key that wait in a worker's queue only the last is
//! executed, and all are answered after it.
//!
//! C-4 (Sutherland, Falsafi, Daglis, ASPLOS 2023, sections 4.2 and 5.2). A write that finds another
//! one to its key in the queue opens a *window*; writes to the key are then put aside until the
//! window closes. Nobody is answered before that, so every read in between is concurrent with all
//! of them, and answering all after the last value is visible keeps every key linearizable.
//!
//! ```text
//! write k, match behind it      further writes k          close
//! ----- open ------------------ put aside ... ----------- apply last, answer all in order
//!            |<---------------- until the deadline, or earlier (`Closing`) --->|
//! ```
//!
//! The machine belongs to one worker. It holds handles, not values. Invariants: every write that
//! was put aside is answered exactly once, after the value that covers it was applied (but under
//! [`Answers::Early`], which copies the authors' simulator and is for comparison only); at most
//! `writes_max` writes are in a window and `windows_max` windows open.

use alloc::vec::Vec;

use curtail_types::Instant;

use crate::request::RequestId;

/// A worker's open windows.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Compactor {
    config: CompactionConfig,
    open: Vec<Window>,
    /// Windows that are not in use, with their memory.
    spare: Vec<Window>,
    counts: Counts,
}

/// What a compactor is built from; times in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CompactionConfig {
    /// When a window may close before its deadline.
    pub closing: Closing,
    /// How the deadline is set.
    pub deadline: Deadline,
    /// In which order a window's writes are applied and answered.
    pub answers: Answers,
    /// Windows that may be open at once.
    pub windows_max: usize,
    /// Writes in one window at most, up to [`WRITES_MAX`]; the count of outstanding writes in the
    /// exclusive-writer table limits it too.
    pub writes_max: usize,
}

/// When a window closes, apart from its deadline and from being full.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Closing {
    /// Never before (the paper's system, section 5.2).
    DeadlineOnly,
    /// When the worker has nothing else to do (the paper's proposal, section 7.1.3).
    QueueEmpty,
    /// When no further write to the key is in the part of the queue that is looked at.
    NoMatch,
    /// Stays open only while another write is near: one is in sight, or, the queue not being
    /// empty, is expected before the deadline from the gaps between those before.
    Adaptive,
    /// As the authors' simulator does it: like `NoMatch`, but looked at only when a write was put
    /// aside; the deadline too.
    Reference,
}

/// When a window closes at the latest.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Deadline {
    /// This long after it opened: the paper's S x (m - 1).
    AfterOpening {
        /// Nanoseconds.
        ns: u64,
    },
    /// So that the oldest write is answered within the limit although closing takes its time.
    BeforeLimit {
        /// The limit on latency, from the request's arrival, in nanoseconds.
        limit_ns: u64,
        /// Estimated time to apply one write.
        apply_ns: u64,
        /// Estimated time to answer one write.
        answer_ns: u64,
    },
}

/// The order of a closing window.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Answers {
    /// Apply, then answer all: linearizable.
    AfterApply,
    /// All but the last are answered first: the authors' simulator; not linearizable.
    Early,
}

/// What is to be done with a write.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Decision {
    /// Carry it out and answer it, as if there were no compaction.
    Apply,
    /// It is put aside: keep its bytes, do not answer.
    PutAside,
}

/// What is to be done when a window closes, in order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Effect {
    /// Make this write's value visible.
    Apply(RequestId),
    /// Answer this write.
    Answer(RequestId),
}

/// What a worker sees when it has finished a request or polled its queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Situation {
    /// A write of this key was put aside just now.
    PutAside(u64),
    /// Some other request was finished; more wait.
    Finished,
    /// Nothing waits in the worker's queue.
    Idle,
}

/// What compaction did so far.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Counts {
    /// Windows closed.
    pub windows: u64,
    /// Writes answered by them.
    pub writes: u64,
    /// The most writes that one window had.
    pub writes_max: u64,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Window {
    key: u64,
    /// In queue order, which is the order of the writes.
    writes: Vec<RequestId>,
    opened: Instant,
    oldest_arrival: Instant,
    last: Instant,
    /// Mean gap between its writes: a quarter of the newest, three quarters of what was known.
    gap_ns: u64,
}

impl Compactor {
    /// No window is open. All memory is allocated here.
    pub fn new(config: CompactionConfig) -> Self {
        assert!((1..=WRITES_MAX).contains(&config.writes_max));
        assert!(config.windows_max > 0);
        let window = || Window::new(config.writes_max);
        Self {
            config,
            open: Vec::with_capacity(config.windows_max),
            spare: (0..config.windows_max).map(|_| window()).collect(),
            counts: Counts::default(),
        }
    }

    /// A write of `key` that arrived at `arrived` has been taken from the queue. `matches` says
    /// whether the queue holds another write to the key, as far as the worker looks; it is asked
    /// only if the answer matters.
    #[inline]
    pub fn write(
        &mut self,
        now: Instant,
        key: u64,
        request: RequestId,
        arrived: Instant,
        matches: impl FnOnce() -> bool,
    ) -> Decision {
        if let Some(window) = self.open.iter_mut().find(|window| window.key == key) {
            assert!(
                window.writes.len() < self.config.writes_max,
                "a full window was not closed by a step"
            );
            window.put_aside(now, request, arrived);
            return Decision::PutAside;
        }
        if self.spare.is_empty() || !matches() {
            return Decision::Apply;
        }
        let Some(mut window) = self.spare.pop() else {
            return Decision::Apply;
        };
        window.open(now, key, request, arrived);
        self.open.push(window);
        Decision::PutAside
    }

    /// To be called after every request and on every poll that finds nothing: closes the windows
    /// whose time has come. `matches` says of a key whether the queue holds a write to it, as far
    /// as the worker looks.
    #[inline]
    pub fn step(
        &mut self,
        now: Instant,
        situation: Situation,
        mut matches: impl FnMut(u64) -> bool,
        mut emit: impl FnMut(Effect),
    ) {
        let mut index = 0;
        while let Some(window) = self.open.get(index) {
            if self.is_due(window, now, situation, &mut matches) {
                self.close(index, &mut emit);
            } else {
                index += 1;
            }
        }
    }

    /// Closes the window of `key`, if there is one: before a command that needs the key's present
    /// value (compare-and-swap, increment, append, delete) or a read that must see its own write.
    pub fn close_key(&mut self, key: u64, mut emit: impl FnMut(Effect)) {
        if let Some(index) = self.open.iter().position(|window| window.key == key) {
            self.close(index, &mut emit);
        }
    }

    /// Closes all windows: before a worker stops, is drained, or runs out of memory.
    pub fn close_all(&mut self, mut emit: impl FnMut(Effect)) {
        while !self.open.is_empty() {
            self.close(0, &mut emit);
        }
    }

    /// When to call [`Compactor::step`] at the latest.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = self.open.iter().map(|window| self.deadline_of(window));
        deadlines.min()
    }

    /// Windows that are open.
    #[inline]
    pub fn windows(&self) -> usize {
        self.open.len()
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn is_due(
        &self,
        window: &Window,
        now: Instant,
        situation: Situation,
        matches: &mut impl FnMut(u64) -> bool,
    ) -> bool {
        let deadline = self.deadline_of(window);
        if window.writes.len() == self.config.writes_max {
            return true;
        }
        if self.config.closing == Closing::Reference {
            let looked_at = situation == Situation::PutAside(window.key);
            return looked_at && (now >= deadline || !matches(window.key));
        }
        if now >= deadline {
            return true;
        }
        match self.config.closing {
            Closing::DeadlineOnly | Closing::Reference => false,
            Closing::QueueEmpty => situation == Situation::Idle,
            Closing::NoMatch => situation == Situation::Idle || !matches(window.key),
            Closing::Adaptive => {
                let expected = window.last.ns + window.gap_ns;
                let in_sight = situation != Situation::Idle && matches(window.key);
                let soon = now.ns < expected && expected < deadline.ns;
                !in_sight && (situation == Situation::Idle || !soon)
            }
        }
    }

    fn deadline_of(&self, window: &Window) -> Instant {
        let ns = match self.config.deadline {
            Deadline::AfterOpening { ns } => window.opened.ns + ns,
            Deadline::BeforeLimit {
                limit_ns,
                apply_ns,
                answer_ns,
            } => {
                // One more write may be put aside until the next look.
                let answers_ns = answer_ns * (window.writes.len() as u64 + 1);
                let left_ns = limit_ns.saturating_sub(apply_ns + answers_ns);
                window.oldest_arrival.ns + left_ns
            }
        };
        Instant { ns }
    }

    fn close(&mut self, index: usize, emit: &mut impl FnMut(Effect)) {
        let mut window = self.open.swap_remove(index);
        let early = self.config.answers == Answers::Early;
        if let Some((last, before)) = window.writes.split_last() {
            if early {
                before.iter().for_each(|write| emit(Effect::Answer(*write)));
            }
            emit(Effect::Apply(*last));
            if !early {
                before.iter().for_each(|write| emit(Effect::Answer(*write)));
            }
            emit(Effect::Answer(*last));
        }
        let writes = window.writes.len() as u64;
        self.counts.windows += 1;
        self.counts.writes += writes;
        self.counts.writes_max = self.counts.writes_max.max(writes);
        window.writes.clear();
        self.spare.push(window);
    }
}

impl Window {
    fn new(writes_max: usize) -> Self {
        Self {
            key: 0,
            writes: Vec::with_capacity(writes_max),
            opened: Instant::default(),
            oldest_arrival: Instant::default(),
            last: Instant::default(),
            gap_ns: 0,
        }
    }

    fn open(&mut self, now: Instant, key: u64, request: RequestId, arrived: Instant) {
        self.key = key;
        self.opened = now;
        self.oldest_arrival = arrived;
        self.last = now;
        self.gap_ns = 0;
        self.writes.push(request);
    }

    fn put_aside(&mut self, now: Instant, request: RequestId, arrived: Instant) {
        let gap_ns = now.ns - self.last.ns;
        self.gap_ns = match self.writes.len() {
            1 => gap_ns,
            _ => (self.gap_ns * 3 + gap_ns) / 4,
        };
        self.last = now;
        self.oldest_arrival = self.oldest_arrival.min(arrived);
        self.writes.push(request);
    }
}

/// The most writes that a window can be built for.
pub const WRITES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
