//! Workers: what each does next, and how long it takes.
//!
//! A worker of a system with queues does one thing at a time, in this order of preference:
//!
//! ```text
//! a read whose write is executed now
//! a read, while fewer than `deferred_max` entries wait and no read waits for them;
//!         else reads and entries in turn
//! a turn of its queue's entries, under the queue's lease
//! ```
//!
//! With [`Reads::Shared`] reads come from one socket that all workers take from, there are four
//! queues for each worker, and any worker may take the lease of any; before others, the one that
//! its oldest waiting read needs. A turn is the production one: its time is charged when it
//! begins, its effects come when it ends.

use std::collections::VecDeque;

use curtail_dispatch::{RequestId, Worker as WorkerId};
use curtail_ordered_queue::{
    EntryKind, Forward, Parked, Peek, QueueEntry, QueueLease, Turn, TurnStep,
};

use crate::juneberry::{
    Datapath, Reads,
    queue_memory::{self, PAYLOAD_BYTES},
    run::{Event, Request, Run, Tells},
};

/// A worker.
pub(super) struct Worker<'a> {
    work: Work<'a>,
    /// Requests that came to it.
    pub(super) inbox: VecDeque<u32>,
    /// Reads that need wait no longer.
    woken: VecDeque<u32>,
    parked: Parked,
    turn: Turn,
    /// Whether a read goes first, where reads and entries take turns.
    read_is_next: bool,
    /// The queue that it looks at first.
    next_queue: usize,
}

/// What a worker is doing.
#[derive(Debug)]
enum Work<'a> {
    Idle,
    Rpc(u32),
    /// A read, that sees everything below this position.
    Read(u32, u64),
    /// So many entries, of which so many are applied.
    Turn {
        lease: QueueLease<'a>,
        queue: usize,
        entries: Vec<(u32, u32)>,
        applied: usize,
    },
}

impl Worker<'_> {
    pub(super) fn new(index: usize) -> Self {
        Self {
            work: Work::Idle,
            inbox: VecDeque::new(),
            woken: VecDeque::new(),
            parked: Parked::new(PARKED_MAX),
            turn: Turn::new(),
            read_is_next: false,
            next_queue: index,
        }
    }
}

impl<'a> Run<'a> {
    pub(super) fn worker_done(&mut self, now: u64, index: u16) {
        let worker = usize::from(index);
        let work = std::mem::replace(&mut self.server.workers[worker].work, Work::Idle);
        match work {
            Work::Idle => {}
            Work::Rpc(id) => self.end_rpc(now, id),
            Work::Read(id, sees) => {
                self.audit.read(self.requests.get(id).needs, sees);
                self.execute(now, id);
                self.answer(now, id, Tells::Done);
            }
            Work::Turn {
                lease,
                queue,
                entries,
                applied,
            } => self.end_turn(now, worker, (lease, queue), (&entries, applied)),
        }
        self.next_work(now, worker);
    }

    fn is_idle(&self, worker: usize) -> bool {
        matches!(self.server.workers[worker].work, Work::Idle)
    }

    pub(super) fn wake(&mut self, now: u64, worker: usize) {
        if self.is_idle(worker) {
            self.next_work(now, worker);
        }
    }

    pub(super) fn wake_for_entries(&mut self, now: u64, queue: usize) {
        match self.model.system.reads() {
            Some(Reads::Shared) => self.wake_idle(now, queue),
            _ => self.wake(now, queue % self.server.workers.len()),
        }
    }

    /// Wakes an idle worker, if there is one; looks at this one first.
    pub(super) fn wake_idle(&mut self, now: u64, first: usize) {
        let all = self.server.workers.len();
        let mut some = (0..all).map(|offset| (first + offset) % all);
        if let Some(idle) = some.find(|worker| self.is_idle(*worker)) {
            self.wake(now, idle);
        }
    }

    fn next_work(&mut self, now: u64, worker: usize) {
        match self.model.system.reads() {
            None => self.next_rpc(now, worker),
            Some(reads) => self.next_queued(now, worker, reads),
        }
    }

    fn next_rpc(&mut self, now: u64, worker: usize) {
        let Some(id) = self.server.workers[worker].inbox.pop_front() else {
            return;
        };
        let prices = &self.model.prices;
        let request = *self.requests.get(id);
        let own = match self.model.system {
            Datapath::Erpc => prices.erpc_ns,
            _ => 0.0,
        };
        let around =
            prices.receive_ns + prices.reply_ns + own + self.fetch_worker_ns(request.packet.write);
        if self.model.system == Datapath::DeferredExec && request.packet.write {
            self.answer(now + around.round() as u64, id, Tells::Accepted);
        }
        let bare = now as f64 + around + f64::from(request.execution_ns);
        let end = self.stored(now, bare, &request);
        self.start(worker, end, Work::Rpc(id));
    }

    fn end_rpc(&mut self, now: u64, id: u32) {
        let write = self.requests.get(id).packet.write;
        self.execute(now, id);
        if !(self.model.system == Datapath::DeferredExec && write) {
            self.answer(now, id, Tells::Done);
        }
    }

    fn next_queued(&mut self, now: u64, worker: usize, reads: Reads) {
        if let Some(id) = self.server.workers[worker].woken.pop_front() {
            let sees = self.head_of(id);
            return self.start_read(now, worker, (id, sees), false);
        }
        loop {
            let queue = self.queue_to_execute(worker, reads);
            let state = &mut self.server.workers[worker];
            let waits = match reads {
                Reads::Shared => !self.server.shared_reads.is_empty(),
                _ => !state.inbox.is_empty(),
            };
            let has_read = waits && state.parked.len() < PARKED_MAX;
            let reads_first = match queue {
                Some((_, backlog)) => {
                    let waits_for_entries = !state.parked.is_empty();
                    let few = !waits_for_entries && backlog < self.model.deferred_max;
                    few || std::mem::replace(&mut state.read_is_next, false)
                }
                None => true,
            };
            if has_read && reads_first {
                if self.look_at_read(now, worker, reads) {
                    return;
                }
                continue;
            }
            if let Some((queue, _)) = queue {
                self.server.workers[worker].read_is_next = true;
                self.start_turn(now, worker, queue);
            }
            return;
        }
    }

    /// A queue with entries that this worker may execute, and how many wait there.
    fn queue_to_execute(&mut self, worker: usize, reads: Reads) -> Option<(usize, u64)> {
        let queues = self.ingress.queues;
        let waiting = |queue: usize| {
            let backlog = queues[queue].backlog();
            let count = backlog.tail - backlog.head;
            let is_free = count > 0 && queues[queue].lease_holder().is_none();
            is_free.then_some((queue, count))
        };
        if reads != Reads::Shared {
            return waiting(worker);
        }
        let state = &mut self.server.workers[worker];
        if let Some((queue, _)) = state.parked.oldest()
            && let Some(found) = waiting(usize::from(queue))
        {
            return Some(found);
        }
        let start = state.next_queue;
        let mut all = (0..queues.len()).map(|offset| (start + offset) % queues.len());
        let found = all.find_map(waiting)?;
        state.next_queue = (found.0 + 1) % queues.len();
        Some(found)
    }

    /// Takes the next read: it is begun, or parked. Whether it was begun.
    fn look_at_read(&mut self, now: u64, worker: usize, reads: Reads) -> bool {
        let next = match reads {
            Reads::Shared => self.server.shared_reads.pop_front(),
            _ => self.server.workers[worker].inbox.pop_front(),
        };
        let Some(id) = next else {
            return false;
        };
        let hash = self.requests.get(id).packet.hash;
        let number = self.ingress.queue_number(hash);
        let queue = &self.ingress.queues[number];
        let stamp = self.ingress.stamps.stamp(hash);
        if queue.has_reached(stamp) {
            let sees = self.head_of(id);
            self.start_read(now, worker, (id, sees), false);
            return true;
        }
        if matches!(reads, Reads::Forwarded | Reads::Shared) {
            let mut out = [0; PAYLOAD_BYTES];
            let found = queue.forward(stamp, hash, &hash.to_le_bytes(), &mut out);
            if let Forward::Payload { pos, .. } = found {
                self.outcome.counts.forwarded += 1;
                let is_other_key = out[..8] != hash.to_le_bytes();
                self.audit.wrong.stale_reads += u64::from(is_other_key);
                self.start_read(now, worker, (id, pos + 1), true);
                return true;
            }
        }
        self.outcome.counts.parked += 1;
        let parked = &mut self.server.workers[worker].parked;
        assert!(
            parked.park(number as u16, stamp, RequestId(id)),
            "room was seen"
        );
        false
    }

    fn head_of(&self, id: u32) -> u64 {
        let hash = self.requests.get(id).packet.hash;
        self.ingress.queue(hash).backlog().head
    }

    fn start_read(&mut self, now: u64, worker: usize, (id, sees): (u32, u64), forwarded: bool) {
        let prices = &self.model.prices;
        let own = match forwarded {
            true => prices.forward_ns + prices.work_ns,
            false => f64::from(self.requests.get(id).execution_ns),
        };
        // What an input thread has received is taken like an entry.
        let take = match self.model.system {
            Datapath::IoAck(_) => prices.take_ns,
            _ => prices.receive_ns,
        };
        let end = now as f64 + take + own + prices.reply_ns + self.fetch_worker_ns(false);
        self.start(worker, end, Work::Read(id, sees));
    }

    fn start_turn(&mut self, now: u64, worker: usize, queue: usize) {
        let Some(lease) = self.ingress.queues[queue].take_lease(WorkerId(worker as u16)) else {
            return;
        };
        let mut entries: Vec<QueueEntry<'a>> = Vec::with_capacity(self.model.turn_max);
        while entries.len() < self.model.turn_max
            && let Peek::Entry(entry) = lease.peek(entries.len() as u64)
        {
            entries.push(entry);
        }
        let mut end = now as f64;
        let mut applied = 0;
        let mut owners = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let (id, serial) = queue_memory::owner(entry);
            owners.push((id, serial));
            end += self.model.prices.take_ns;
            if !self.is_under_way(id, serial) {
                self.audit.wrong.executed_twice += 1;
                applied += 1;
                continue;
            }
            let request = *self.requests.get(id);
            end += self.fetch_worker_ns(request.packet.write);
            if is_covered(entry, &entries[index + 1..]) {
                self.outcome.counts.folded += 1;
            } else {
                applied += 1;
                end = self.stored(now, end + f64::from(request.execution_ns), &request);
            }
            if !entry.is_accepted() {
                end += self.model.prices.reply_ns;
            }
        }
        let work = Work::Turn {
            lease,
            queue,
            entries: owners,
            applied,
        };
        self.start(worker, end, work);
    }

    /// The production turn, at the end of the time that it takes.
    fn end_turn(
        &mut self,
        now: u64,
        worker: usize,
        (mut lease, queue): (QueueLease<'a>, usize),
        (entries, expected): (&[(u32, u32)], usize),
    ) {
        let settles = matches!(self.model.system, Datapath::IoAck(_));
        let sessions = settles.then_some(self.ingress.sessions);
        let mut answers = Vec::new();
        let mut applied = 0;
        let turn = &mut self.server.workers[worker].turn;
        let drained = turn.run(&mut lease, entries.len(), sessions, |step| match step {
            TurnStep::Apply(_) => applied += 1,
            TurnStep::Answer(entry) => answers.push(queue_memory::owner(&entry)),
        });
        assert_eq!(
            drained.entries,
            entries.len() as u64,
            "a turn of its own length"
        );
        assert_eq!(applied, expected, "a turn folds what was charged as folded");
        let head = lease.head();
        drop(lease);
        for (id, serial) in entries {
            if self.is_under_way(*id, *serial) {
                self.execute(now, *id);
            }
        }
        for (id, serial) in answers {
            if self.is_under_way(id, serial) {
                let request = *self.requests.get(id);
                if !request.packet.write {
                    self.audit.read(request.needs, head);
                }
                self.answer(now, id, Tells::Done);
            }
        }
        self.wake_reads(now, worker, queue, head);
    }

    /// Reads that waited for this queue go on; `busy` is the worker that looks for work anyway.
    fn wake_reads(&mut self, now: u64, busy: usize, queue: usize, head: u64) {
        for index in 0..self.server.workers.len() {
            let Worker { parked, woken, .. } = &mut self.server.workers[index];
            if parked.is_empty() {
                continue;
            }
            parked.wake(queue as u16, head, |RequestId(id)| woken.push_back(id));
            if index != busy && !woken.is_empty() {
                self.wake(now, index);
            }
        }
    }

    /// It is executed; a write that was answered before is over.
    fn execute(&mut self, now: u64, id: u32) {
        let request = self.requests.get_mut(id);
        self.audit.wrong.executed_twice += u64::from(request.executed);
        request.executed = true;
        let (write, measured, ns) = (request.packet.write, request.measured, now - request.at);
        if write && measured {
            self.outcome.executed.record(ns);
        }
        self.note_done(now);
        self.free_if_over(id);
    }

    /// What a worker spends on a persistent buffer.
    fn fetch_worker_ns(&self, write: bool) -> f64 {
        let costs = self.model.durable_costs();
        let put_ns = if write { costs.put_worker_ns } else { 0.0 };
        costs.fetch_worker_ns + put_ns
    }

    /// When an execution ends that would end then: a write to persistent memory, begun now, may
    /// take longer.
    fn stored(&mut self, now: u64, end: f64, request: &Request) -> f64 {
        match self.model.prices.persistent {
            Some(costs) if request.packet.write => {
                let key_bytes = self.model.workload.key_bytes as f64;
                let bytes = (key_bytes + f64::from(request.value_bytes)) * costs.amplification;
                end.max(self.server.persist(now as f64, bytes, costs.byte_ns))
            }
            _ => end,
        }
    }

    fn start(&mut self, worker: usize, end: f64, work: Work<'a>) {
        self.server.workers[worker].work = work;
        let end = end.round() as u64;
        self.events.plan(end, Event::WorkerDone(worker as u16));
    }
}

/// Whether the next entry of its key is a set, as a turn finds it; asserted against the turn.
fn is_covered(entry: &QueueEntry<'_>, later: &[QueueEntry<'_>]) -> bool {
    let next = later.iter().find(|other| other.same_key(entry));
    entry.kind() == EntryKind::Set && next.is_some_and(|next| next.kind() == EntryKind::Set)
}

/// Reads that a worker has parked at most.
const PARKED_MAX: usize = 4_096;
