//! The event loop of the combined model.

use curtail_dispatch::{
    Access, Answers, CompactionConfig, Compactor, Completion, Deadline, Decision, DispatchConfig,
    Dispatcher, Effect, Input, Output, Overflow, Partition, Policy, Request as Dispatched,
    RequestId, Situation, Worker,
    size_aware::{
        ControlConfig, ControlInput, Route, SizeClasses, SizeControl, SizeHistogram, SizePlan,
    },
};
use curtail_types::Instant;
use curtail_workload::{Kind, Stream, mix};

use crate::{
    combined::{
        Combined, CombinedOutcome,
        buckets::{Buckets, CORES_MAX},
        worker::{Core, Phase, has_write},
    },
    earliest::{Earliest, NO_TIME},
    histogram::Histogram,
    stored::{
        PlanCost, UNDER_WAY_MAX,
        arrivals::Arrivals,
        queues::{Request, Slab},
    },
};

/// Runs one point.
pub(super) fn run(model: &Combined, core_ns: f64) -> CombinedOutcome {
    assert!((2..=CORES_MAX).contains(&model.cores));
    let mut run = Run::new(model, core_ns);
    loop {
        let (at, core) = run.earliest.first();
        let arrival = run.source.next_ns;
        match arrival < at {
            true => run.arrive(arrival),
            false if at < NO_TIME => run.work(at, core),
            false => break,
        }
        if run.requests.used() >= UNDER_WAY_MAX {
            run.outcome.saturated = true;
            return run.end();
        }
    }
    assert_eq!(run.requests.used(), 0, "requests were lost");
    run.end()
}

struct Run<'a> {
    model: &'a Combined,
    source: Arrivals,
    requests: Slab,
    dispatcher: Dispatcher,
    /// Who serves which size; `None` without size awareness.
    plan: Option<Box<SizePlan>>,
    cores: Vec<Core>,
    earliest: Earliest,
    buckets: Buckets,
    /// What the dispatcher has placed in one step.
    placed: Vec<(u32, Worker)>,
    outcome: CombinedOutcome,
}

impl<'a> Run<'a> {
    fn new(model: &'a Combined, core_ns: f64) -> Self {
        let rate_mops = model.load * f64::from(model.cores) * 1e3 / core_ns;
        let plan = model.size_aware.map(|cost| plan(model, cost));
        let small_cores = plan.as_ref().map_or(model.cores, |plan| plan.small);
        let compactor = model
            .compaction
            .map(|closing| Compactor::new(compaction(model, closing, core_ns)));
        let cores = (0..model.cores).map(|core| {
            let small = core < small_cores;
            Core::new(compactor.clone().filter(|_| small))
        });
        Self {
            model,
            source: Arrivals::new(&model.workload, rate_mops, model.requests, model.seed),
            requests: Slab::default(),
            dispatcher: Dispatcher::new(dispatch(model, small_cores), model.seed),
            plan,
            cores: cores.collect(),
            earliest: Earliest::new(usize::from(model.cores)),
            buckets: Buckets::new(),
            placed: Vec::new(),
            outcome: CombinedOutcome {
                all: Histogram::new(),
                writes: Histogram::new(),
                small: Histogram::new(),
                large: Histogram::new(),
                small_cores,
                behind_large: 0,
                small_served: 0,
                write_waits: 0,
                disturbed_reads: 0,
                reads: 0,
                windows: 0,
                window_writes: 0,
                saturated: false,
            },
        }
    }

    fn arrive(&mut self, now: u64) {
        let (request, _) = self.source.request(now);
        let id = self.requests.insert(request);
        if self.source.left == 0 {
            let stable = (self.model.requests / 200).max(2_000) as usize;
            self.outcome.saturated = self.requests.used() > stable;
        }
        match self.owner(&request) {
            // A write says in its header how large it is.
            Some(owner) if request.write => self.deliver(now, id, owner),
            _ => {
                let dispatched = Dispatched {
                    id: RequestId(id),
                    partition: partition(&request),
                    access: access(&request),
                };
                self.dispatch(now, Input::Arrive(dispatched));
            }
        }
    }

    /// The core for requests of this size; `None` if it is small.
    #[inline]
    fn owner(&self, request: &Request) -> Option<Worker> {
        let plan = self.plan.as_ref()?;
        match plan.route(request.value_bytes, request.hash) {
            Route::Here => None,
            Route::Ring(owner) => Some(owner),
        }
    }

    fn dispatch(&mut self, now: u64, input: Input) {
        let mut placed = std::mem::take(&mut self.placed);
        self.dispatcher
            .step(Instant { ns: now }, input, |output| match output {
                Output::Run { request, worker } => placed.push((request.id.0, worker)),
                // The central queue holds more than may be under way.
                Output::Refuse { reason, .. } => unreachable!("refused: {reason:?}"),
            });
        for (id, worker) in placed.drain(..) {
            self.deliver(now, id, worker);
        }
        self.placed = placed;
    }

    fn deliver(&mut self, now: u64, id: u32, worker: Worker) {
        self.requests.get_mut(id).bound = now;
        let core = worker.index();
        self.cores[core].queue.push_back(id);
        if self.cores[core].phase == Phase::Idle {
            self.begin(now, core);
        }
    }

    /// A core takes its next request, or has nothing to do.
    fn begin(&mut self, now: u64, core: usize) {
        let Some(id) = self.cores[core].queue.pop_front() else {
            return self.rest(now, core);
        };
        let request = *self.requests.get(id);
        self.note_order(core, &request);
        let prices = &self.model.prices.serve;
        let owner = self.owner(&request);
        match owner {
            Some(owner) if owner.index() == core => {
                let cost = prices.take_ns + prices.serve_ns(request.write, request.value_bytes);
                self.set(core, Phase::ServesLarge { id }, now + cost as u64);
            }
            Some(to) => {
                let cost = prices.lookup_ns + prices.give_ns;
                self.set(core, Phase::Gives { id, to }, now + cost as u64);
            }
            None if !request.write => self.begin_read(now, core, id),
            None => match self.decide_compaction(now, core, id) {
                Decision::Apply => self.begin_write(now, core, id),
                Decision::PutAside => {
                    let at = now + self.model.prices.put_aside_ns as u64;
                    self.set(core, Phase::PutsAside { id }, at);
                }
            },
        }
    }

    #[inline]
    fn note_order(&mut self, core: usize, request: &Request) {
        if request.large || !request.measured {
            return;
        }
        self.outcome.small_served += 1;
        let behind = self.cores[core].large_until > request.bound;
        self.outcome.behind_large += u64::from(behind);
    }

    fn rest(&mut self, now: u64, core: usize) {
        self.cores[core].phase = Phase::Idle;
        self.earliest.clear(core);
        if self.look_at_windows(now, core, Situation::Idle) {
            return self.follow_script(now, core);
        }
        let compactor = self.cores[core].compactor.as_ref();
        if let Some(deadline) = compactor.and_then(Compactor::deadline) {
            self.earliest.set(core, deadline.ns.max(now + 1));
        }
    }

    #[inline]
    fn set(&mut self, core: usize, phase: Phase, at: u64) {
        self.cores[core].phase = phase;
        self.earliest.set(core, at);
    }

    /// A core's event: what it was doing is done.
    fn work(&mut self, now: u64, core: usize) {
        match self.cores[core].phase {
            Phase::Idle => self.rest(now, core),
            Phase::ReadWaits { id } => self.begin_read(now, core, id),
            Phase::Reads { id, from, to } => self.end_read(now, core, id, from..to),
            Phase::WriteWaits { id } => self.begin_write(now, core, id),
            Phase::Writes { id } | Phase::ServesLarge { id } => {
                self.answer(now, core, id);
                self.go_on(now, core, Situation::Finished);
            }
            Phase::Gives { id, to } => {
                self.report(now, core, id, false);
                self.deliver(now, id, to);
                self.go_on(now, core, Situation::Finished);
            }
            Phase::PutsAside { id } => self.end_put_aside(now, core, id),
            Phase::ApplyWaits { id } => self.begin_apply(now, core, id),
            Phase::Applies => self.follow_script(now, core),
            Phase::Answers { id } => {
                self.answer(now, core, id);
                self.follow_script(now, core);
            }
        }
    }

    /// After a request: windows whose time has come are closed, then the next request.
    fn go_on(&mut self, now: u64, core: usize, situation: Situation) {
        if self.look_at_windows(now, core, situation) {
            self.follow_script(now, core);
        } else {
            self.begin(now, core);
        }
    }

    fn begin_read(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        match self.odd_until(now, &request) {
            Some(even) => {
                self.outcome.disturbed_reads += 1;
                self.set(core, Phase::ReadWaits { id }, even);
            }
            None => self.read(now, core, id),
        }
    }

    /// A large item is not copied but sent as it is, so nobody waits for its version.
    fn odd_until(&self, now: u64, request: &Request) -> Option<u64> {
        let even = self.buckets.odd_until(now, partition(request).0);
        even.filter(|_| !request.large)
    }

    fn read(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        let prices = &self.model.prices;
        let travels = self.buckets.read(partition(&request).0, core);
        let line = if travels { prices.read_line_ns } else { 0.0 };
        let whole = prices.serve.serve_ns(false, request.value_bytes) + line;
        let around = prices.serve.request_ns;
        let (from, to) = (now, now + (whole - around).max(1.0) as u64);
        self.set(core, Phase::Reads { id, from, to }, to + around as u64);
    }

    /// The version is looked at again when the item has been copied; what comes after that is
    /// counted already, so reading again adds the copying alone.
    fn end_read(&mut self, now: u64, core: usize, id: u32, read: std::ops::Range<u64>) {
        let request = *self.requests.get(id);
        let bucket = partition(&request).0;
        if !request.large && self.buckets.changed(bucket, read.start, read.end) {
            self.outcome.disturbed_reads += 1;
            let even = self.buckets.odd_until(read.end, bucket);
            return self.read(even.unwrap_or(read.end), core, id);
        }
        self.outcome.reads += 1;
        self.answer(now, core, id);
        self.go_on(now, core, Situation::Finished);
    }

    fn begin_write(&mut self, now: u64, core: usize, id: u32) {
        let around = self.model.prices.serve.request_ns as u64;
        match self.write(now, core, id) {
            Err(even) => self.set(core, Phase::WriteWaits { id }, even),
            Ok(ends) => self.set(core, Phase::Writes { id }, ends + around),
        }
    }

    fn begin_apply(&mut self, now: u64, core: usize, id: u32) {
        match self.write(now, core, id) {
            Err(even) => self.set(core, Phase::ApplyWaits { id }, even),
            Ok(ends) => self.set(core, Phase::Applies, ends),
        }
    }

    /// Begins a write and says when the store has it; `Err`: another has the version odd until
    /// then.
    fn write(&mut self, now: u64, core: usize, id: u32) -> Result<u64, u64> {
        let request = *self.requests.get(id);
        let bucket = partition(&request).0;
        if let Some(even) = self.buckets.odd_until(now, bucket) {
            self.outcome.write_waits += 1;
            return Err(even);
        }
        let prices = &self.model.prices;
        let travels = self.buckets.own(bucket, core);
        let line = if travels { prices.write_line_ns } else { 0.0 };
        let whole = prices.serve.serve_ns(true, request.value_bytes) + line;
        let store = (whole - prices.serve.request_ns).max(1.0) as u64;
        let ends = now + store;
        let odd = store.min(prices.publish_ns as u64);
        self.buckets.write(bucket, ends - odd, ends);
        Ok(ends)
    }

    /// Latency ends here; the dispatcher is told.
    fn answer(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        if request.measured {
            let latency = now - request.at;
            self.outcome.all.record(latency);
            match request.large {
                true => self.outcome.large.record(latency),
                false => self.outcome.small.record(latency),
            }
            if request.write {
                self.outcome.writes.record(latency);
            }
        }
        if request.large {
            self.cores[core].large_until = now;
        }
        self.report(now, core, id, request.extra == DEFERRED);
        self.requests.remove(id);
    }

    /// A core of the dispatcher's is done with a request; those for large ones are not its.
    fn report(&mut self, now: u64, core: usize, id: u32, deferred: bool) {
        if core >= usize::from(self.outcome.small_cores) {
            return;
        }
        let request = self.requests.get(id);
        let completion = Completion {
            worker: Worker(core as u16),
            partition: partition(request),
            access: access(request),
            release: true,
            deferred,
        };
        self.dispatch(now, Input::Complete(completion));
    }

    fn end(mut self) -> CombinedOutcome {
        let compactors = self.cores.iter().filter_map(|core| core.compactor.as_ref());
        for counts in compactors.map(Compactor::counts) {
            self.outcome.windows += counts.windows;
            self.outcome.window_writes += counts.writes;
        }
        self.outcome
    }
}

/// Compaction.
impl Run<'_> {
    fn decide_compaction(&mut self, now: u64, core: usize, id: u32) -> Decision {
        let requests = &self.requests;
        let request = requests.get(id);
        let Core {
            compactor, queue, ..
        } = &mut self.cores[core];
        let Some(compactor) = compactor else {
            return Decision::Apply;
        };
        compactor.write(
            Instant { ns: now },
            request.hash,
            RequestId(id),
            Instant { ns: request.at },
            || has_write(queue, requests, request.hash),
        )
    }

    fn end_put_aside(&mut self, now: u64, core: usize, id: u32) {
        let key = self.requests.get(id).hash;
        if self.model.policy == Policy::DynamicCrew {
            // The core takes other work meanwhile; the partition stays its own.
            self.requests.get_mut(id).extra = DEFERRED;
            self.dispatch(now, Input::Defer(Worker(core as u16)));
        }
        self.go_on(now, core, Situation::PutAside(key));
    }

    fn look_at_windows(&mut self, now: u64, core: usize, situation: Situation) -> bool {
        self.cores[core].look_at_windows(now, situation, &self.requests)
    }

    fn follow_script(&mut self, now: u64, core: usize) {
        match self.cores[core].script.pop_front() {
            Some(Effect::Apply(id)) => self.begin_apply(now, core, id.0),
            Some(Effect::Answer(id)) => {
                let at = now + self.model.prices.answer_ns as u64;
                self.set(core, Phase::Answers { id: id.0 }, at);
            }
            None => self.begin(now, core),
        }
    }
}

fn dispatch(model: &Combined, workers: u16) -> DispatchConfig {
    DispatchConfig {
        depth: Some(model.depth),
        overflow: Overflow::Wait,
        waiting_max: UNDER_WAY_MAX,
        // Writes that were put aside keep their entries and not their credits.
        entries_max: 64 * u32::from(workers),
        ..DispatchConfig::new(model.policy, workers)
    }
}

fn compaction(
    model: &Combined,
    closing: curtail_dispatch::Closing,
    core_ns: f64,
) -> CompactionConfig {
    CompactionConfig {
        closing,
        deadline: Deadline::BeforeLimit {
            limit_ns: (10.0 * core_ns) as u64,
            apply_ns: model.prices.serve.serve_ns(true, 0) as u64,
            answer_ns: model.prices.answer_ns as u64,
        },
        answers: Answers::AfterApply,
        windows_max: 4,
        writes_max: 62,
    }
}

/// The plan that the control loop makes of this workload. Where it asks for no large core the model
/// sets one aside: its dispatcher has no standby.
fn plan(model: &Combined, cost: PlanCost) -> Box<SizePlan> {
    let config = ControlConfig {
        samples_min: 1,
        ..ControlConfig::new(model.cores)
    };
    let plan = planned(model, cost, config);
    if plan.small < model.cores {
        return plan;
    }
    let small = Some(model.cores - 1);
    planned(model, cost, ControlConfig { small, ..config })
}

fn planned(model: &Combined, cost: PlanCost, config: ControlConfig) -> Box<SizePlan> {
    let mut histogram = SizeHistogram::new(SizeClasses::LogLinear);
    let mut generator = model
        .workload
        .generator(mix(model.seed ^ TRACE), Stream::ONLY);
    for _ in 0..model.requests.min(TRACE_REQUESTS) {
        let request = generator.draw(0);
        let bytes = request.item.value_bytes;
        let write = request.kind != Kind::Get;
        histogram.record(bytes, model.prices.serve.plan_cost(cost, write, bytes));
    }
    let mut control = SizeControl::new(config, Instant::default());
    let end = Instant {
        ns: config.epoch_ns,
    };
    control.step(end, ControlInput::Measured(&histogram), |_| ());
    control.step(end, ControlInput::Tick, |_| ());
    Box::new(control.plan().clone())
}

/// A fixed slice of the keys' hashes.
#[inline]
fn partition(request: &Request) -> Partition {
    Partition((request.hash >> (64 - PARTITION_BITS)) as u32)
}

#[inline]
fn access(request: &Request) -> Access {
    match request.write {
        true => Access::Write,
        false => Access::Read,
    }
}

/// 2^20 partitions, as in the server.
const PARTITION_BITS: u32 = 20;
/// In place of a time on the wire, which this model has not: the write was put aside.
const DEFERRED: u32 = 1;
const TRACE: u64 = 0x0074_7261_6365;
const TRACE_REQUESTS: u64 = 1_000_000;
