//! The event loop of C-4's model.
//!
//! There is no heap of events. The next arrival is one number; what travels (to workers, and
//! reports back) travels for a constant time, so its events are in order in a queue; and of all
//! workers the earliest is kept by a tournament. The next event is the least of four numbers.

use std::collections::{HashMap, VecDeque};

use curtail_dispatch::{
    Access, Compactor, Completion, Decision, Dispatcher, Effect, Input, Output, Partition, Request,
    RequestId, Situation, Worker,
};
use curtail_types::Instant;
use curtail_workload::{Chance, Phases, Poisson, Random, Ranks, mix};

use crate::{
    balanced::{
        Balanced, BalancedOutcome, IN_FLIGHT_MAX, Rules, WorkerUse, placement,
        timing::{Timing, Uniform, Whole},
        versions::Versions,
        workers::{Phase, Queue, Slab},
    },
    earliest::{Earliest, NO_TIME},
    histogram::Histogram,
};

/// Runs one point.
pub(super) fn run(model: &Balanced, ranks: &Ranks) -> BalancedOutcome {
    match model.whole {
        None => run_with(model, ranks, Uniform::new(model)),
        Some(system) => run_with(model, ranks, Whole::new(model, system)),
    }
}

fn run_with<T: Timing>(model: &Balanced, ranks: &Ranks, timing: T) -> BalancedOutcome {
    let mut run = Run::new(model, ranks, timing);
    let mut last = 0;
    while let Some((now, event)) = run.next() {
        last = now;
        match event {
            Event::Arrival => run.arrive(now),
            Event::Delivery => run.deliver(now),
            Event::Report => run.take_report(now),
            Event::Worker(worker) => run.work(now, worker),
        }
        if run.requests.used() >= IN_FLIGHT_MAX {
            run.outcome.saturated = true;
            return run.finish(last);
        }
    }
    assert_eq!(run.requests.used(), 0, "requests were lost");
    run.finish(last)
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Worker(usize),
    Report,
    Delivery,
    Arrival,
}

/// What comes back to the balancer.
#[derive(Clone, Copy, Debug)]
enum Report {
    Done(Completion),
    Deferred(Worker),
}

struct Run<'a, T> {
    model: &'a Balanced,
    source: Source<'a>,
    dispatcher: Dispatcher,
    requests: Slab,
    queues: Vec<Queue>,
    phases: Vec<Phase>,
    workers: Earliest,
    deliveries: VecDeque<(u64, u32, Worker)>,
    reports: VecDeque<(u64, Report)>,
    /// When the balancer looks at the next report; `NO_TIME` while it waits for an arrival only.
    next_report: u64,
    versions: Versions,
    timing: T,
    /// Since when each worker has nothing to do, if it is counted.
    idle_since: Vec<Option<u64>>,
    compaction: Option<Compaction>,
    has_conflicts: bool,
    outcome: BalancedOutcome,
}

/// Compaction of all workers.
struct Compaction {
    compactors: Vec<Compactor>,
    /// What closing windows still have to do.
    scripts: Vec<VecDeque<Effect>>,
    /// Queued writes by key, for a search of whole queues: all writes of a key are in one queue.
    queued: HashMap<u32, u32>,
    scan_depth: usize,
    /// Whether a worker takes other work while it has writes put aside.
    defers: bool,
}

/// Where requests come from.
struct Source<'a> {
    arrivals: Poisson,
    ranks: &'a Ranks,
    popular: &'static [u32],
    keys: Random,
    kinds: Random,
    writes: Chance,
    generated: u64,
    requests: u64,
    warm_up: u64,
    /// When the next one was generated.
    next_ns: u64,
    input_ns: u64,
    /// What a request takes of the core that balances, and when it has done all before.
    dispatch_ns: u64,
    dispatched_ns: u64,
}

impl<'a, T: Timing> Run<'a, T> {
    fn new(model: &'a Balanced, ranks: &'a Ranks, timing: T) -> Self {
        let workers = usize::from(model.workers);
        Self {
            model,
            source: Source::new(model, ranks),
            dispatcher: Dispatcher::new(model.dispatch(), model.seed),
            requests: Slab::new(),
            queues: vec![Queue::EMPTY; workers],
            phases: vec![Phase::Idle; workers],
            workers: Earliest::new(workers),
            deliveries: VecDeque::with_capacity(1 << 10),
            reports: VecDeque::with_capacity(1 << 10),
            next_report: NO_TIME,
            versions: Versions::new(model.remembered_ns()),
            timing,
            idle_since: vec![Some(0); if T::COUNTS { workers } else { 0 }],
            compaction: model.compaction.map(|closing| Compaction {
                compactors: vec![Compactor::new(model.compactor(closing)); workers],
                scripts: vec![VecDeque::new(); workers],
                queued: HashMap::new(),
                scan_depth: model.scan_depth(),
                defers: model.rules == Rules::Paper
                    && model.policy == curtail_dispatch::Policy::DynamicCrew,
            }),
            has_conflicts: model.has_conflicts(),
            outcome: BalancedOutcome {
                all: Histogram::new(),
                writes: Histogram::new(),
                answered: 0,
                elapsed_ns: 0,
                reads: 0,
                disturbed_reads: 0,
                entries_sum: 0,
                placements: 0,
                entries_max: 0,
                windows: 0,
                window_writes: 0,
                window_writes_max: 0,
                saturated: false,
                ended_ns: 0,
                used: vec![WorkerUse::default(); if T::COUNTS { workers } else { 0 }],
            },
        }
    }

    /// The next event; at one time workers go first, arrivals last.
    #[inline]
    fn next(&self) -> Option<(u64, Event)> {
        let (mut now, worker) = self.workers.first();
        let mut event = Event::Worker(worker);
        if self.next_report < now {
            (now, event) = (self.next_report, Event::Report);
        }
        if let Some((at, ..)) = self.deliveries.front()
            && *at < now
        {
            (now, event) = (*at, Event::Delivery);
        }
        let arrival = self.source.at_balancer();
        if arrival < now {
            (now, event) = (arrival, Event::Arrival);
        }
        (now < NO_TIME).then_some((now, event))
    }

    fn arrive(&mut self, now: u64) {
        let (id, request) = self.source.request(&mut self.requests);
        debug_assert_eq!(id, request.id.0);
        self.decide(now, Input::Arrive(request));
        if self.model.rules == Rules::Reference {
            // Only now does the balancer look at what was reported meanwhile.
            while self.reports.front().is_some_and(|(at, _)| *at <= now) {
                self.take_report(now);
            }
            self.watch_reports();
        }
    }

    /// Decides when the balancer looks at the next report.
    #[inline]
    fn watch_reports(&mut self) {
        let next = self.reports.front().map_or(NO_TIME, |(at, _)| *at);
        let waits = self.model.rules == Rules::Reference
            && self.dispatcher.has_room()
            && self.dispatcher.waiting() == 0;
        self.next_report = if waits { NO_TIME } else { next };
    }

    fn take_report(&mut self, now: u64) {
        if let Some((_, report)) = self.reports.pop_front() {
            let input = match report {
                Report::Done(completion) => Input::Complete(completion),
                Report::Deferred(worker) => Input::Defer(worker),
            };
            self.decide(now, input);
        }
        self.watch_reports();
    }

    #[inline]
    fn decide(&mut self, now: u64, input: Input) {
        let at = now + self.model.costs.channel;
        let deliveries = &mut self.deliveries;
        let mut placed = 0;
        self.dispatcher
            .step(Instant { ns: now }, input, |output| match output {
                Output::Run { request, worker } => {
                    deliveries.push_back((at, request.id.0, worker));
                    placed += 1;
                }
                // The central queue holds more than may be under way.
                Output::Refuse { reason, .. } => unreachable!("refused: {reason:?}"),
            });
        let entries = self.dispatcher.entries();
        self.outcome.placements += placed;
        self.outcome.entries_sum += placed * u64::from(entries);
        self.outcome.entries_max = self.outcome.entries_max.max(entries);
    }

    fn deliver(&mut self, now: u64) {
        let Some((_, id, worker)) = self.deliveries.pop_front() else {
            return;
        };
        let slot = *self.requests.get(id);
        if let Some(compaction) = &mut self.compaction
            && slot.write
            && compaction.scan_depth == usize::MAX
        {
            *compaction.queued.entry(slot.rank).or_insert(0) += 1;
        }
        self.queues[worker.index()].push(&mut self.requests, id);
        if self.phases[worker.index()] == Phase::Idle {
            self.wake(now, worker.index());
            self.start_next(now, worker.index());
        }
    }

    /// A worker takes its next request, or has nothing to do.
    #[inline]
    fn start_next(&mut self, now: u64, worker: usize) {
        let Some(id) = self.queues[worker].pop(&self.requests) else {
            return self.rest(now, worker);
        };
        let slot = *self.requests.get(id);
        if !slot.write {
            self.come(id);
            return self.begin_read(now, worker, id, false);
        }
        match self.decide_compaction(now, worker, id) {
            Decision::Apply => {
                self.come(id);
                self.begin_write(now, worker, id);
            }
            Decision::PutAside => {
                let at = now + self.model.costs.put_aside;
                self.set(worker, Phase::PutsAside { id }, at);
            }
        }
    }

    fn rest(&mut self, now: u64, worker: usize) {
        self.phases[worker] = Phase::Idle;
        self.workers.clear(worker);
        if self.look_at_windows(now, worker, Situation::Idle) {
            self.wake(now, worker);
            return self.follow_script(now, worker);
        }
        if T::COUNTS {
            self.idle_since[worker].get_or_insert(now);
        }
        let compactor = self.compaction.as_ref().map(|all| &all.compactors[worker]);
        if let Some(deadline) = compactor.and_then(Compactor::deadline) {
            self.workers.set(worker, deadline.ns.max(now + 1));
        }
    }

    /// The item of a request, if it matters which.
    #[inline]
    fn rank(&self, id: u32) -> u32 {
        match T::COUNTS {
            true => self.requests.get(id).rank,
            false => 0,
        }
    }

    #[inline]
    fn come(&mut self, id: u32) {
        self.timing.come(self.rank(id));
    }

    #[inline]
    fn leave(&mut self, id: u32) {
        self.timing.leave(self.rank(id));
    }

    /// A worker's idleness, if it was idle, is over.
    #[inline]
    fn wake(&mut self, now: u64, worker: usize) {
        if T::COUNTS
            && let Some(since) = self.idle_since[worker].take()
        {
            self.outcome.used[worker].idle_ns += now - since;
        }
    }

    #[inline]
    fn set(&mut self, worker: usize, phase: Phase, at: u64) {
        self.phases[worker] = phase;
        self.workers.set(worker, at);
    }

    /// A worker's event: what it was doing is done.
    #[inline]
    fn work(&mut self, now: u64, worker: usize) {
        match self.phases[worker] {
            Phase::Idle => self.rest(now, worker),
            Phase::ReadWaits { id, disturbed } => self.begin_read(now, worker, id, disturbed),
            Phase::Reads { .. } => self.end_read(now, worker),
            Phase::WriteWaits { id } => self.begin_write(now, worker, id),
            Phase::Writes { id } => {
                self.leave(id);
                self.answer(now, worker, id);
                self.go_on(now, worker, Situation::Finished);
            }
            Phase::PutsAside { id } => self.end_put_aside(now, worker, id),
            Phase::ApplyWaits { id } => self.begin_apply(now, worker, id),
            Phase::Applies { id } => {
                self.leave(id);
                self.follow_script(now, worker);
            }
            Phase::Answers { id } => {
                self.answer(now, worker, id);
                self.follow_script(now, worker);
            }
        }
    }

    /// After a request: windows whose time has come are closed, then the next request.
    #[inline]
    fn go_on(&mut self, now: u64, worker: usize, situation: Situation) {
        if self.look_at_windows(now, worker, situation) {
            self.follow_script(now, worker);
        } else {
            self.start_next(now, worker);
        }
    }

    fn begin_read(&mut self, now: u64, worker: usize, id: u32, disturbed: bool) {
        let bucket = self.requests.get(id).bucket;
        if self.has_conflicts
            && let Some(even) = self.versions.odd_until(now, bucket)
        {
            let phase = Phase::ReadWaits {
                id,
                disturbed: true,
            };
            return self.set(worker, phase, even);
        }
        self.read(worker, id, now, disturbed, false);
    }

    fn read(&mut self, worker: usize, id: u32, from: u64, disturbed: bool, last: bool) {
        let to = from + self.timing.read_ns(worker, self.rank(id));
        let phase = Phase::Reads {
            id,
            from,
            to,
            disturbed,
            last,
        };
        self.set(worker, phase, to + self.model.costs.fixed);
    }

    /// The version is looked at again when the service ends; the fixed time after it is counted
    /// already, so a retry goes back by it.
    fn end_read(&mut self, now: u64, worker: usize) {
        let Phase::Reads {
            id,
            from,
            to,
            disturbed,
            last,
        } = self.phases[worker]
        else {
            return;
        };
        let bucket = self.requests.get(id).bucket;
        if self.has_conflicts && !last && self.versions.changed(bucket, from, to) {
            let reference = self.model.rules == Rules::Reference;
            let even = self.versions.odd_until(to, bucket);
            let again = even.filter(|_| !reference).unwrap_or(to);
            return self.read(worker, id, again, true, reference);
        }
        self.leave(id);
        self.outcome.reads += 1;
        self.outcome.disturbed_reads += u64::from(disturbed);
        self.answer(now, worker, id);
        self.go_on(now, worker, Situation::Finished);
    }

    fn begin_write(&mut self, now: u64, worker: usize, id: u32) {
        match self.write_version::<false>(now, worker, id) {
            Err(even) => self.set(worker, Phase::WriteWaits { id }, even),
            Ok(ends) => {
                let at = ends + self.model.costs.fixed;
                self.set(worker, Phase::Writes { id }, at);
            }
        }
    }

    fn begin_apply(&mut self, now: u64, worker: usize, id: u32) {
        match self.write_version::<true>(now, worker, id) {
            Err(even) => self.set(worker, Phase::ApplyWaits { id }, even),
            Ok(ends) => self.set(worker, Phase::Applies { id }, ends),
        }
    }

    /// Begins a write and says when its service ends; `Err`: another has the version odd until
    /// then.
    #[inline]
    fn write_version<const APPLIES: bool>(
        &mut self,
        now: u64,
        worker: usize,
        id: u32,
    ) -> Result<u64, u64> {
        if !self.has_conflicts {
            return Ok(now + self.write_ns::<APPLIES>(worker, id));
        }
        let bucket = self.requests.get(id).bucket;
        if let Some(even) = self.versions.odd_until(now, bucket) {
            return Err(even);
        }
        let ends = now + self.write_ns::<APPLIES>(worker, id);
        let lag = self.model.costs.version_lag;
        self.versions.write(now, bucket, now + lag, ends + lag);
        Ok(ends)
    }

    #[inline]
    fn write_ns<const APPLIES: bool>(&mut self, worker: usize, id: u32) -> u64 {
        let rank = self.rank(id);
        match APPLIES {
            true => self.timing.apply_ns(worker, rank),
            false => self.timing.write_ns(worker, rank),
        }
    }

    /// Latency ends here; the balancer is told.
    #[inline]
    fn answer(&mut self, now: u64, worker: usize, id: u32) {
        let slot = self.requests.remove(id);
        if slot.measured {
            let latency = now - slot.generated_ns;
            self.outcome.all.record(latency);
            if slot.write {
                self.outcome.writes.record(latency);
            }
        }
        if T::COUNTS {
            self.outcome.used[worker].answered += 1;
        }
        if self.source.generated < self.source.requests {
            self.outcome.answered += 1;
            self.outcome.elapsed_ns = now;
        }
        let completion = Completion {
            worker: Worker(worker as u16),
            partition: Partition(slot.bucket),
            access: access(slot.write),
            release: true,
            deferred: slot.deferred,
        };
        self.report(now, Report::Done(completion));
    }

    #[inline]
    fn report(&mut self, now: u64, report: Report) {
        let at = now + self.model.costs.channel;
        self.reports.push_back((at, report));
        if self.reports.len() == 1 {
            self.watch_reports();
        }
    }

    fn finish(mut self, now: u64) -> BalancedOutcome {
        self.outcome.ended_ns = now;
        if T::COUNTS {
            (0..self.phases.len()).for_each(|worker| self.wake(now, worker));
        }
        let compactors = self.compaction.iter().flat_map(|all| &all.compactors);
        for counts in compactors.map(Compactor::counts) {
            self.outcome.windows += counts.windows;
            self.outcome.window_writes += counts.writes;
            self.outcome.window_writes_max = self.outcome.window_writes_max.max(counts.writes_max);
        }
        self.outcome
    }
}

/// Compaction.
impl<T: Timing> Run<'_, T> {
    #[inline]
    fn decide_compaction(&mut self, now: u64, worker: usize, id: u32) -> Decision {
        let Some(compaction) = &mut self.compaction else {
            return Decision::Apply;
        };
        let slot = *self.requests.get(id);
        if compaction.scan_depth == usize::MAX
            && let Some(queued) = compaction.queued.get_mut(&slot.rank)
        {
            *queued -= 1;
            if *queued == 0 {
                compaction.queued.remove(&slot.rank);
            }
        }
        let (queue, requests) = (&self.queues[worker], &self.requests);
        let (queued, depth) = (&compaction.queued, compaction.scan_depth);
        compaction.compactors[worker].write(
            Instant { ns: now },
            u64::from(slot.rank),
            RequestId(id),
            Instant {
                ns: slot.generated_ns,
            },
            || is_queued(queue, requests, queued, depth, slot.rank),
        )
    }

    fn end_put_aside(&mut self, now: u64, worker: usize, id: u32) {
        let slot = self.requests.get_mut(id);
        let rank = slot.rank;
        if self.compaction.as_ref().is_some_and(|all| all.defers) {
            slot.deferred = true;
            self.report(now, Report::Deferred(Worker(worker as u16)));
        }
        self.go_on(now, worker, Situation::PutAside(u64::from(rank)));
    }

    /// Closes windows whose time has come; whether there are any.
    #[inline]
    fn look_at_windows(&mut self, now: u64, worker: usize, situation: Situation) -> bool {
        let Some(compaction) = &mut self.compaction else {
            return false;
        };
        let compactor = &mut compaction.compactors[worker];
        if compactor.windows() == 0 {
            return false;
        }
        let (queue, requests) = (&self.queues[worker], &self.requests);
        let (queued, depth) = (&compaction.queued, compaction.scan_depth);
        let situation = match situation {
            Situation::Finished if queue.is_empty() => Situation::Idle,
            other => other,
        };
        let script = &mut compaction.scripts[worker];
        compactor.step(
            Instant { ns: now },
            situation,
            |rank| is_queued(queue, requests, queued, depth, rank as u32),
            |effect| script.push_back(effect),
        );
        !script.is_empty()
    }

    fn follow_script(&mut self, now: u64, worker: usize) {
        let scripts = self.compaction.as_mut().map(|all| &mut all.scripts[worker]);
        match scripts.and_then(VecDeque::pop_front) {
            Some(Effect::Apply(id)) => {
                self.come(id.0);
                self.begin_apply(now, worker, id.0);
            }
            Some(Effect::Answer(id)) => {
                let at = now + self.model.costs.fixed;
                self.set(worker, Phase::Answers { id: id.0 }, at);
            }
            None => self.start_next(now, worker),
        }
    }
}

#[inline(always)]
fn is_queued(
    queue: &Queue,
    requests: &Slab,
    queued: &HashMap<u32, u32>,
    depth: usize,
    rank: u32,
) -> bool {
    match depth {
        usize::MAX => queued.contains_key(&rank),
        depth => queue.has_write(requests, rank, depth),
    }
}

impl<'a> Source<'a> {
    fn new(model: &Balanced, ranks: &'a Ranks) -> Self {
        let rate = Phases::fixed(model.load * model.capacity());
        let mut arrivals = Poisson::new(rate, mix(model.seed));
        let next_ns = arrivals.next().unwrap_or(NO_TIME);
        Self {
            arrivals,
            ranks,
            popular: placement::popular(),
            keys: Random::of_stream(model.seed, 1),
            kinds: Random::of_stream(model.seed, 2),
            writes: Chance::new(model.write_percent / 100.0),
            generated: 0,
            requests: model.requests,
            warm_up: model.warm_up(),
            next_ns: if model.requests == 0 {
                NO_TIME
            } else {
                next_ns
            },
            input_ns: model.costs.input,
            dispatch_ns: model.dispatch_ns,
            dispatched_ns: 0,
        }
    }

    /// When the balancer decides about the next request.
    #[inline]
    fn at_balancer(&self) -> u64 {
        let comes = self.next_ns.saturating_add(self.input_ns);
        comes
            .max(self.dispatched_ns)
            .saturating_add(self.dispatch_ns)
    }

    // Both kinds of runs call it; alone it costs a thirtieth of a request.
    #[inline(always)]
    fn request(&mut self, requests: &mut Slab) -> (u32, Request) {
        self.dispatched_ns = self.at_balancer();
        let rank = self.ranks.rank(&mut self.keys);
        let write = self.kinds.chance(self.writes);
        let bucket = placement::bucket(self.popular, rank);
        let id = requests.insert(self.next_ns, rank as u32, bucket, write);
        requests.get_mut(id).measured = self.generated >= self.warm_up;
        self.generated += 1;
        self.next_ns = match self.generated < self.requests {
            true => self.arrivals.next().unwrap_or(NO_TIME),
            false => NO_TIME,
        };
        let request = Request {
            id: RequestId(id),
            partition: Partition(bucket),
            access: access(write),
        };
        (id, request)
    }
}

fn access(write: bool) -> Access {
    match write {
        true => Access::Write,
        false => Access::Read,
    }
}
