//! The paper's dispatcher: every request is bound to a worker, or waits centrally.
//!
//! One machine for all policies of C-4 (Sutherland, Falsafi, Daglis, ASPLOS 2023, sections 3 and
//! 4), so that they can be compared. Reads go to any worker by JBSQ (but under EREW); writes:
//!
//! ```text
//! EREW, CREW   the static owner of the partition
//! d-CREW       the owner in the exclusive-writer table, else any by JBSQ, who then owns it
//! CRCW, Ideal  any by JBSQ (Ideal is meant for workloads without writes, where it is a bound)
//! ```
//!
//! The server has no such dispatcher: nobody can choose where a connection's request arrives. What
//! it does is [`crate::queueing::server_dispatch`].
//!
//! Invariants: a request that arrived is emitted exactly once, in this step or a later one; under
//! EREW, CREW and d-CREW at most one worker has writes of a partition outstanding; requests of one
//! partition that have one owner are emitted in order of arrival.

use std::collections::VecDeque;

use curtail_dispatch::{Access, Partition, Policy, RequestId, Worker, static_owner};

use crate::c4::{
    exclusive_writers::ExclusiveWriters,
    jbsq::{Jbsq, TieBreak},
};

/// The machine. Step it with what arrives and with what workers report.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    policy: Policy,
    sticky: Sticky,
    queues: Jbsq,
    writers: ExclusiveWriters,
    waiting: VecDeque<Arrival>,
}

/// A request, as a dispatcher sees it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Arrival {
    /// The driver's handle.
    pub id: RequestId,
    /// The partition of its key.
    pub partition: Partition,
    /// Whether it writes.
    pub access: Access,
}

/// What a request whose worker is already known does when others cannot be placed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Sticky {
    /// It waits while every worker is at its bound, as in the authors' simulator.
    WhileAllFull,
    /// It waits only behind a request that waits already.
    #[default]
    BehindHead,
}

/// What a dispatcher is built from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DispatchConfig {
    /// The policy.
    pub policy: Policy,
    /// Workers, 1 to [`curtail_dispatch::WORKERS_MAX`].
    pub workers: u16,
    /// The bound of JBSQ; `None` for plain shortest-queue.
    pub depth: Option<u16>,
    /// How ties between equally short queues are broken.
    pub tie_break: TieBreak,
    /// Whether requests with a known worker wait behind those without.
    pub sticky: Sticky,
    /// Partitions that may be written at once; `workers * depth` is never exceeded (section 5.1).
    pub entries_max: u32,
    /// Writes to one partition that may be outstanding at once; the paper counts in 6 bits. While
    /// there are as many, or the table is full, a further one waits centrally, and all behind it.
    pub writes_max: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Input {
    /// A request came.
    Arrive(Arrival),
    /// A worker has answered a request.
    Complete(Completion),
    /// A worker put a write aside until its compaction window closes: it can take another request
    /// meanwhile, while the partition stays its own. (Beyond the paper, which leaves such a worker
    /// idle: section 7.2.)
    Defer(Worker),
}

/// A worker's report. One message returns the worker's credit and the partition's claim together,
/// so that the number of entries stays within its bound.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Completion {
    /// Who reports.
    pub worker: Worker,
    /// The request's partition.
    pub partition: Partition,
    /// Whether it was a write.
    pub access: Access,
    /// Whether the worker was credited for it by [`Input::Defer`] already.
    pub deferred: bool,
}

impl DispatchConfig {
    /// The paper's setting for `workers` workers: JBSQ(2), two entries for each worker, 63 writes
    /// to each.
    pub fn new(policy: Policy, workers: u16) -> Self {
        Self {
            policy,
            workers,
            depth: Some(2),
            tie_break: TieBreak::default(),
            sticky: Sticky::default(),
            entries_max: 2 * u32::from(workers),
            writes_max: 63,
        }
    }
}

impl Dispatcher {
    /// An idle dispatcher.
    pub fn new(config: DispatchConfig) -> Self {
        Self {
            policy: config.policy,
            sticky: config.sticky,
            queues: Jbsq::new(config.workers, config.depth, config.tie_break),
            writers: ExclusiveWriters::new(config.entries_max, config.writes_max),
            waiting: VecDeque::new(),
        }
    }

    /// Takes one input and emits which requests are to be handed to which workers, each behind all
    /// that the worker was handed before.
    #[inline]
    pub fn step(&mut self, input: Input, mut emit: impl FnMut(Arrival, Worker)) {
        match input {
            Input::Arrive(request) => self.arrive(request, &mut emit),
            Input::Complete(completion) => self.complete(completion, &mut emit),
            Input::Defer(worker) => {
                self.queues.complete(worker);
                self.drain(&mut emit);
            }
        }
    }

    /// Requests that wait centrally.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Partitions that have a dynamic owner; 0 but for d-CREW.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.writers.entries()
    }

    /// Whether a balanced request could be placed now.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.queues.has_room()
    }

    #[inline]
    fn arrive(&mut self, request: Arrival, emit: &mut impl FnMut(Arrival, Worker)) {
        let place = self.waiting.is_empty().then(|| self.place(request));
        match place.flatten() {
            Some(worker) => emit(request, worker),
            None => self.waiting.push_back(request),
        }
    }

    #[inline]
    fn complete(&mut self, completion: Completion, emit: &mut impl FnMut(Arrival, Worker)) {
        let writes = completion.access == Access::Write;
        if writes && self.policy == Policy::DynamicCrew {
            let released = self.writers.release(completion.partition);
            assert!(released.is_ok(), "a write was answered twice");
        }
        if !completion.deferred {
            self.queues.complete(completion.worker);
        }
        self.drain(emit);
    }

    #[inline]
    fn drain(&mut self, emit: &mut impl FnMut(Arrival, Worker)) {
        while let Some(&request) = self.waiting.front() {
            let Some(worker) = self.place(request) else {
                return;
            };
            emit(request, worker);
            self.waiting.pop_front();
        }
    }

    /// Finds the request's worker and counts the request as outstanding there; `None`: it waits.
    #[inline]
    fn place(&mut self, request: Arrival) -> Option<Worker> {
        if self.sticky == Sticky::WhileAllFull && !self.queues.has_room() {
            return None;
        }
        let is_write = request.access == Access::Write;
        let owner = || static_owner(request.partition, self.queues.workers());
        let worker = match self.policy {
            Policy::Erew => owner(),
            Policy::Crew if is_write => owner(),
            Policy::DynamicCrew if is_write => self.place_write(request.partition)?,
            _ => self.queues.shortest()?,
        };
        self.queues.place(worker);
        Some(worker)
    }

    #[inline]
    fn place_write(&mut self, partition: Partition) -> Option<Worker> {
        if let Some(owner) = self.writers.join(partition).ok()? {
            return Some(owner);
        }
        let worker = self.queues.shortest()?;
        self.writers.claim(partition, worker).ok()?;
        Some(worker)
    }
}

#[cfg(test)]
mod tests;
