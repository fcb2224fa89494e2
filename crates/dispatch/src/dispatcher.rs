//! The dispatcher: every request is bound to a worker, waits centrally, or is refused.
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
//! Invariants: a request that arrived is emitted exactly once, as `Run` or as `Refuse`, in this
//! step or a later one; under EREW, CREW and d-CREW at most one worker has writes of a partition
//! outstanding; requests of one partition that have one owner are emitted in order of arrival;
//! what waits is bounded.

use alloc::{boxed::Box, collections::VecDeque, vec};

use curtail_types::Instant;

use crate::{
    exclusive::{ClaimError, ExclusiveWriters},
    jbsq::{Jbsq, TieBreak},
    placement::static_owner,
    request::{Access, Partition, Request, Worker},
};

/// The machine. Step it with what arrives and with what workers report.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Dispatcher {
    policy: Policy,
    sticky: Sticky,
    overflow: Overflow,
    queues: Jbsq,
    writers: ExclusiveWriters,
    waiting: VecDeque<Request>,
    waiting_max: usize,
    /// How many writes wait, by partition modulo the length: one of them must not be passed by a
    /// later one that finds the partition owned meanwhile.
    waiting_writes: Box<[u32]>,
    late_releases: u64,
}

/// Who may read and who may write a partition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Policy {
    /// Exclusive read, exclusive write: everything of a partition goes to its static owner.
    Erew,
    /// Concurrent read, exclusive write: writes go to the static owner.
    Crew,
    /// Concurrent read, concurrent write: anything goes anywhere.
    Crcw,
    /// Dynamic CREW, the paper's own: an owner only while writes are outstanding.
    DynamicCrew,
    /// As CRCW, for a workload without writes: the upper bound that others are compared with.
    Ideal,
}

/// What a request whose worker is already known does when others cannot be placed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Sticky {
    /// It waits while every worker is at its bound, as in the authors' simulator.
    WhileAllFull,
    /// It waits only behind a request that waits already.
    #[default]
    BehindHead,
    /// It never waits.
    Bypasses,
}

/// What happens to a write for which the exclusive-writer table is full.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Overflow {
    /// It is refused; the client is told that the server is busy.
    Refuse,
    /// It waits centrally (and all behind it) until a write is answered.
    #[default]
    Wait,
}

/// What a dispatcher is built from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DispatchConfig {
    /// The policy.
    pub policy: Policy,
    /// Workers, 1 to [`crate::WORKERS_MAX`].
    pub workers: u16,
    /// The bound of JBSQ; `None` for plain shortest-queue.
    pub depth: Option<u16>,
    /// How ties between equally short queues are broken.
    pub tie_break: TieBreak,
    /// Whether requests with a known worker wait behind those without.
    pub sticky: Sticky,
    /// What a full exclusive-writer table means.
    pub overflow: Overflow,
    /// Requests that may wait centrally; one more is refused.
    pub waiting_max: usize,
    /// Partitions that may be written at once; `workers * depth` is never exceeded (section 5.1).
    pub entries_max: u32,
    /// Writes to one partition that may be outstanding at once; the paper counts in 6 bits.
    pub writes_max: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Input {
    /// A request came.
    Arrive(Request),
    /// A worker has answered a request.
    Complete(Completion),
    /// A worker put a write aside until its compaction window closes: it can take another request
    /// meanwhile, while the partition stays its own. (Beyond the paper, which leaves such a worker
    /// idle: section 7.2.)
    Defer(Worker),
    /// Nothing; for drivers that step every machine on a timer.
    Tick,
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
    /// Whether the write gives up its claim (section 4.1's flag; C-4 itself always does). If not,
    /// the worker reports the release later, as a completion that is `deferred`.
    pub release: bool,
    /// Whether the worker was credited for it by [`Input::Defer`] already.
    pub deferred: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Output {
    /// Hand the request to the worker, behind all it was handed before.
    Run {
        /// The request.
        request: Request,
        /// Who runs it.
        worker: Worker,
    },
    /// Answer that the server is busy.
    Refuse {
        /// The request.
        request: Request,
        /// What was full.
        reason: Refusal,
    },
}

/// What was full when a request was refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Refusal {
    /// The central queue.
    Waiting,
    /// The exclusive-writer table.
    Table,
    /// The partition's count of outstanding writes.
    Partition,
}

/// Where a request can go now.
enum Place {
    At(Worker),
    Wait,
    Refuse(Refusal),
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
            overflow: Overflow::default(),
            waiting_max: 1 << 12,
            entries_max: 2 * u32::from(workers),
            writes_max: 63,
        }
    }
}

impl Dispatcher {
    /// An idle dispatcher. All memory that it will ever use is allocated here.
    pub fn new(config: DispatchConfig, seed: u64) -> Self {
        Self {
            policy: config.policy,
            sticky: config.sticky,
            overflow: config.overflow,
            queues: Jbsq::new(config.workers, config.depth, config.tie_break, seed),
            writers: ExclusiveWriters::new(config.entries_max, config.writes_max),
            waiting: VecDeque::with_capacity(config.waiting_max),
            waiting_max: config.waiting_max,
            waiting_writes: vec![0; WAITING_SLOTS].into(),
            late_releases: 0,
        }
    }

    /// Takes one input and emits what follows from it, in the order in which it is to be done.
    #[inline]
    pub fn step(&mut self, _now: Instant, input: Input, mut emit: impl FnMut(Output)) {
        match input {
            Input::Arrive(request) => self.arrive(request, &mut emit),
            Input::Complete(completion) => self.complete(completion, &mut emit),
            Input::Defer(worker) => {
                self.queues.complete(worker);
                self.drain(&mut emit);
            }
            Input::Tick => self.drain(&mut emit),
        }
    }

    /// A dispatcher has no timers.
    pub fn deadline(&self) -> Option<Instant> {
        None
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

    /// Who alone may write `partition` now, if anybody is bound to.
    #[inline]
    pub fn writer(&self, partition: Partition) -> Option<Worker> {
        match self.policy {
            Policy::Erew | Policy::Crew => Some(self.static_owner(partition)),
            Policy::DynamicCrew => self.writers.owner(partition),
            Policy::Crcw | Policy::Ideal => None,
        }
    }

    /// Whether a balanced request could be placed now.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.queues.has_room()
    }

    /// Outstanding requests of `worker`.
    pub fn outstanding(&self, worker: Worker) -> u32 {
        self.queues.outstanding(worker)
    }

    /// Releases of partitions that nobody owned: bugs of a driver, survived and counted.
    pub fn late_releases(&self) -> u64 {
        self.late_releases
    }

    #[inline]
    fn arrive(&mut self, request: Request, emit: &mut impl FnMut(Output)) {
        let first = self.waiting.is_empty();
        let may_pass = !first
            && self.sticky == Sticky::Bypasses
            && *self.waiting_writes(request) == 0
            && self.is_bound(request);
        let place = if first || may_pass {
            self.place(request)
        } else {
            Place::Wait
        };
        match place {
            Place::At(worker) => emit(Output::Run { request, worker }),
            Place::Refuse(reason) => emit(Output::Refuse { request, reason }),
            Place::Wait if self.waiting.len() < self.waiting_max => {
                *self.waiting_writes(request) += u32::from(request.access == Access::Write);
                self.waiting.push_back(request);
            }
            Place::Wait => emit(Output::Refuse {
                request,
                reason: Refusal::Waiting,
            }),
        }
    }

    #[inline]
    fn complete(&mut self, completion: Completion, emit: &mut impl FnMut(Output)) {
        let writes = completion.access == Access::Write;
        if writes && self.policy == Policy::DynamicCrew && completion.release {
            let released = self.writers.release(completion.partition);
            debug_assert!(released.is_ok(), "a write answered twice");
            self.late_releases += u64::from(released.is_err());
        }
        if !completion.deferred {
            self.queues.complete(completion.worker);
        }
        self.drain(emit);
    }

    #[inline]
    fn drain(&mut self, emit: &mut impl FnMut(Output)) {
        while let Some(&request) = self.waiting.front() {
            match self.place(request) {
                Place::At(worker) => emit(Output::Run { request, worker }),
                Place::Refuse(reason) => emit(Output::Refuse { request, reason }),
                Place::Wait => return,
            }
            self.waiting.pop_front();
            *self.waiting_writes(request) -= u32::from(request.access == Access::Write);
        }
    }

    #[inline]
    fn waiting_writes(&mut self, request: Request) -> &mut u32 {
        &mut self.waiting_writes[request.partition.0 as usize % WAITING_SLOTS]
    }

    /// Finds the request's worker and counts the request as outstanding there.
    #[inline]
    fn place(&mut self, request: Request) -> Place {
        if self.sticky == Sticky::WhileAllFull && !self.queues.has_room() {
            return Place::Wait;
        }
        let writes = request.access == Access::Write;
        let place = match self.policy {
            Policy::Erew => Place::At(self.static_owner(request.partition)),
            Policy::Crew if writes => Place::At(self.static_owner(request.partition)),
            Policy::DynamicCrew if writes => self.place_write(request.partition),
            _ => self.queues.shortest().map_or(Place::Wait, Place::At),
        };
        if let Place::At(worker) = place {
            self.queues.place(worker);
        }
        place
    }

    #[inline]
    fn place_write(&mut self, partition: Partition) -> Place {
        let claimed = match self.writers.join(partition) {
            Ok(Some(owner)) => return Place::At(owner),
            Ok(None) => match self.queues.shortest() {
                None => return Place::Wait,
                Some(worker) => self.writers.claim(partition, worker).map(|()| worker),
            },
            Err(error) => Err(error),
        };
        match (claimed, self.overflow) {
            (Ok(worker), _) => Place::At(worker),
            (Err(_), Overflow::Wait) => Place::Wait,
            (Err(ClaimError::TableFull), _) => Place::Refuse(Refusal::Table),
            (Err(ClaimError::PartitionFull), _) => Place::Refuse(Refusal::Partition),
        }
    }

    /// Whether the request's worker is known, whatever the queues' lengths.
    fn is_bound(&self, request: Request) -> bool {
        let bound = request.access == Access::Write || self.policy == Policy::Erew;
        bound && self.writer(request.partition).is_some()
    }

    fn static_owner(&self, partition: Partition) -> Worker {
        static_owner(partition, self.queues.workers())
    }
}

/// A power of two, so that the slot is a mask.
const WAITING_SLOTS: usize = 256;

#[cfg(test)]
mod tests;
