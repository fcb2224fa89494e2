//! The event loop of the queueing model.
//!
//! There is no heap of events. The next arrival is one number; what travels between dispatcher and
//! cores travels for a constant time, so its events are in order in a queue; each direction of the
//! link has one frame under way; and of all cores the earliest is kept by a tournament. The next
//! event is the least of these.

mod next_request;
mod reading_writing;

use std::collections::VecDeque;

use curtail_dispatch::{Effect, Partition, RequestId, Situation, Worker, pull_baselines::Source};
use curtail_workload::{Chance, Random};

use crate::{
    c4::dispatcher::{self, Completion, Input},
    histogram::Histogram,
    minos::{LargeReplies, Prices},
    queueing::{
        Outcome, Point, WindowOfTime,
        dispatchers::{Arrival, Deciders, Serving},
        link::Link,
        outstanding_requests::{Queues, Request, Slab, Way},
        times::{Around, Times},
        tournament::{NO_TIME, Tournament},
    },
};

/// Runs one point.
pub(super) fn run<T: Times>(point: Point<'_, T>) -> Outcome {
    let mut run = Run::new(point);
    let mut last_ns = 0;
    while let Some((now, event)) = run.next() {
        last_ns = now;
        match event {
            Event::Core(core) => run.work(now, core),
            Event::Sent => run.end_tx_frame(now),
            Event::Received => run.end_rx_frame(now),
            Event::Report => run.take_report(now),
            Event::Delivery => run.take_delivery(now),
            Event::Arrival => run.arrive(now),
        }
        if run.requests.used() >= run.point.bound.under_way {
            run.outcome.saturated = true;
            return run.end(last_ns);
        }
    }
    assert_eq!(run.requests.used(), 0, "requests were lost");
    run.end(last_ns)
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Core(usize),
    Sent,
    Received,
    Report,
    Delivery,
    Arrival,
}

/// What a core is doing; its next event ends it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Nothing; if there is an event, it is a window's deadline.
    Idle,
    /// A read waits for an odd version to become even.
    ReadWaits { id: u32, disturbed: bool },
    /// A read that looked at the version at `from` and looks again at `to`.
    Reads {
        id: u32,
        from: u64,
        to: u64,
        disturbed: bool,
        last: bool,
    },
    /// A write waits for an odd version.
    WriteWaits { id: u32 },
    /// A write and its answer.
    Writes { id: u32 },
    /// A request is handed to another core.
    Gives { id: u32, to: Source },
    /// A request is gathered for the core that holds its partition.
    Gathers,
    /// A part of a large value is moved.
    Moves { id: u32, bytes: u32 },
    /// A write is put aside.
    PutsAside { id: u32 },
    /// A window's last write waits for an odd version.
    ApplyWaits { id: u32 },
    /// A window's last write is carried out.
    Applies { id: u32 },
    /// A write that was put aside, or carried out elsewhere, is answered.
    Answers { id: u32 },
}

struct Core {
    phase: Phase,
    /// What it has taken and not begun, and whether from its ring.
    taken: VecDeque<u32>,
    from_ring: bool,
    /// What taking cost.
    owed_ns: f64,
    /// What closing windows still have to do.
    script: VecDeque<Effect>,
    /// When it last finished a large request.
    large_until: u64,
    /// Since when it has nothing to do.
    idle_since: Option<u64>,
    /// Bytes of large values that it has moved part by part.
    moved: u64,
}

struct Run<'a, T> {
    point: Point<'a, T>,
    around: Around,
    requests: Slab,
    queues: Queues,
    cores: Vec<Core>,
    idle: usize,
    tournament: Tournament,
    /// Counts wake-ups, to begin each at another core.
    turn: usize,
    /// Numbers that share no divisor with the number of cores.
    strides: Vec<usize>,
    deliveries: VecDeque<(u64, u32)>,
    reports: VecDeque<(u64, Input)>,
    /// When the dispatcher looks at the next report; `NO_TIME` while it waits for an arrival only.
    next_report: u64,
    /// What the dispatcher has placed in one step.
    placed: Vec<(u32, Worker)>,
    links: Option<Links>,
    replies: Random,
    replied: Chance,
    window: Option<(u64, Histogram)>,
    arrivals_end_ns: u64,
    outcome: Outcome,
}

struct Links {
    rx: Link,
    tx: Link,
}

impl<'a, T: Times> Run<'a, T> {
    fn new(point: Point<'a, T>) -> Self {
        let cores = usize::from(point.cores);
        let core = |_| Core {
            phase: Phase::Idle,
            taken: VecDeque::new(),
            from_ring: false,
            owed_ns: 0.0,
            script: VecDeque::new(),
            large_until: 0,
            idle_since: Some(0),
            moved: 0,
        };
        let links = point.network.link.map(|speed| Links {
            rx: Link::new(speed, CLIENTS),
            // A second transmit queue for each core, behind the first ones.
            tx: Link::new(speed, 2 * cores),
        });
        Self {
            around: point.times.around(),
            requests: Slab::default(),
            queues: Queues::new(cores),
            cores: (0..cores).map(core).collect(),
            idle: cores,
            tournament: Tournament::new(cores),
            turn: 0,
            strides: (1..=cores).filter(|n| coprime(*n, cores)).collect(),
            deliveries: VecDeque::new(),
            reports: VecDeque::new(),
            next_report: NO_TIME,
            placed: Vec::new(),
            links,
            replies: Random::of_stream(point.seed, 4),
            replied: Chance::new(point.network.replies),
            window: (point.window_ns > 0).then(|| (point.window_ns, Histogram::new())),
            arrivals_end_ns: 0,
            outcome: Outcome::new(cores),
            point,
        }
    }

    /// The next event; at one time cores go first, arrivals last.
    #[inline]
    fn next(&self) -> Option<(u64, Event)> {
        let (mut now, core) = self.tournament.first();
        let mut event = Event::Core(core);
        let mut sooner = |at, other| {
            if at < now {
                (now, event) = (at, other);
            }
        };
        if let Some(links) = &self.links {
            sooner(links.tx.event_ns(), Event::Sent);
            sooner(links.rx.event_ns(), Event::Received);
        }
        sooner(self.next_report, Event::Report);
        if let Some((at, _)) = self.deliveries.front() {
            sooner(*at, Event::Delivery);
        }
        sooner(self.point.arrivals.next_ns(), Event::Arrival);
        (now < NO_TIME).then_some((now, event))
    }

    fn arrive(&mut self, now: u64) {
        if self.point.deciders.end_epoch(now) {
            // New roles: idle cores look again.
            self.wake_others(now, 0);
        }
        let (mut request, word) = self.point.arrivals.request(now);
        let arrival = self
            .point
            .deciders
            .arrival(&request, word, self.point.cores);
        if let Arrival::Queue(source) = arrival {
            request.to = source;
        }
        let id = self.requests.insert(request);
        if self.point.arrivals.left == 0 {
            self.note_end_of_arrivals(now);
        }
        match arrival {
            Arrival::Dispatcher => self.arrive_at_dispatcher(now, id),
            Arrival::Queue(_) => {
                let value_bytes = if request.write {
                    request.value_bytes
                } else {
                    0
                };
                let bytes = Prices::message_bytes() + value_bytes;
                let client = (word % CLIENTS as u64) as usize;
                let links = self.links.as_mut();
                // Over an idle link the time on the wire is added, and the arrivals stay Poisson.
                let wire = links.map_or(Some(0), |links| links.rx.send(now, client, id, bytes));
                if let Some(wire) = wire {
                    self.requests.get_mut(id).extra += wire as u32;
                    self.deliver(now, id);
                }
            }
        }
    }

    fn end_rx_frame(&mut self, now: u64) {
        let links = self.links.as_mut();
        if let Some(id) = links.and_then(|links| links.rx.end_frame()) {
            self.deliver(now, id);
        }
    }

    fn arrive_at_dispatcher(&mut self, now: u64, id: u32) {
        let request = self.requests.get(id);
        let arrival = dispatcher::Arrival {
            id: RequestId(id),
            partition: Partition(request.partition),
            access: request.access(),
        };
        self.decide(now, Input::Arrive(arrival));
        if self.point.as_authors {
            // Only now does the dispatcher look at what was reported meanwhile.
            while self.reports.front().is_some_and(|(at, _)| *at <= now) {
                self.take_report(now);
            }
            self.watch_reports();
        }
    }

    /// Decides when the dispatcher looks at the next report.
    #[inline]
    fn watch_reports(&mut self) {
        let next = self.reports.front().map_or(NO_TIME, |(at, _)| *at);
        let waits = match &self.point.deciders {
            Deciders::Dispatched { dispatcher, .. } if self.point.as_authors => {
                dispatcher.has_room() && dispatcher.waiting() == 0
            }
            _ => false,
        };
        self.next_report = if waits { NO_TIME } else { next };
    }

    fn take_report(&mut self, now: u64) {
        if let Some((_, input)) = self.reports.pop_front() {
            self.decide(now, input);
        }
        self.watch_reports();
    }

    fn decide(&mut self, now: u64, input: Input) {
        let Deciders::Dispatched { dispatcher, .. } = &mut self.point.deciders else {
            return;
        };
        let mut placed = std::mem::take(&mut self.placed);
        dispatcher.step(input, |request, worker| placed.push((request.id.0, worker)));
        let entries = dispatcher.entries();
        self.outcome.placements += placed.len() as u64;
        self.outcome.entries_sum += placed.len() as u64 * u64::from(entries);
        self.outcome.entries_max = self.outcome.entries_max.max(entries);
        for (id, worker) in placed.drain(..) {
            self.requests.get_mut(id).to = Source::Rx(worker);
            match self.point.channel_ns {
                0 => self.deliver(now, id),
                ns => self.deliveries.push_back((now + ns, id)),
            }
        }
        self.placed = placed;
    }

    fn take_delivery(&mut self, now: u64) {
        if let Some((_, id)) = self.deliveries.pop_front() {
            self.deliver(now, id);
        }
    }

    fn deliver(&mut self, now: u64, id: u32) {
        let request = self.requests.get_mut(id);
        request.delivered = now;
        request.bound = now;
        if let Source::Rx(core) = request.to {
            request.moved_before = self.cores[core.index()].moved;
        }
        if let Some(windows) = &mut self.point.windows {
            windows.note_queued(request);
        }
        let to = request.to;
        self.put(now, to, id);
    }

    /// A core's event: what it was doing is done.
    #[inline]
    fn work(&mut self, now: u64, core: usize) {
        match self.cores[core].phase {
            Phase::Idle => self.rest(now, core),
            Phase::ReadWaits { id, disturbed } => self.begin_read(now, core, id, disturbed),
            Phase::Reads { .. } => self.end_read(now, core),
            Phase::WriteWaits { id } => self.begin_write(now, core, id),
            Phase::Writes { id } => self.serve_end(now, core, id),
            Phase::Gives { id, to } => self.end_give(now, core, id, to),
            Phase::Gathers => self.go_on(now, core, Situation::Finished),
            Phase::Moves { id, bytes } => self.end_part(now, core, id, bytes),
            Phase::PutsAside { id } => self.end_put_aside(now, core, id),
            Phase::ApplyWaits { id } => self.begin_apply(now, core, id),
            Phase::Applies { id } => self.end_apply(now, core, id),
            Phase::Answers { id } => {
                self.finish(now, core, id);
                self.follow_script(now, core);
            }
        }
        if self.point.deciders.steals() && self.idle > 0 {
            // What it moved to its software queue, others can take.
            self.wake_others(now, core);
        }
    }

    /// A core is busy with this until then.
    #[inline]
    fn set(&mut self, now: u64, core: usize, phase: Phase, until: u64) {
        self.wake(now, core);
        self.cores[core].phase = phase;
        self.tournament.set(core, until);
    }

    /// Its idleness, if it was idle, is over.
    #[inline]
    fn wake(&mut self, now: u64, core: usize) {
        if let Some(since) = self.cores[core].idle_since.take() {
            self.idle -= 1;
            self.outcome.cores[core].idle_ns += now - since;
        }
    }

    /// There is nothing in its queues.
    fn rest(&mut self, now: u64, core: usize) {
        self.sleep(now, core);
        self.look_at_windows(now, core, Situation::Idle);
        if !self.cores[core].script.is_empty() {
            return self.follow_script(now, core);
        }
        let windows = self.point.windows.as_ref();
        if let Some(deadline) = windows.and_then(|windows| windows.deadline(core)) {
            self.tournament.set(core, deadline.max(now + 1));
        }
    }

    /// It does nothing now.
    fn sleep(&mut self, now: u64, core: usize) {
        self.cores[core].phase = Phase::Idle;
        self.tournament.clear(core);
        if self.cores[core].idle_since.is_none() {
            self.cores[core].idle_since = Some(now);
            self.idle += 1;
        }
    }

    fn end_give(&mut self, now: u64, core: usize, id: u32, to: Source) {
        self.report(now, core, id);
        // It may be the one that takes what it gives.
        self.sleep(now, core);
        let request = self.requests.get_mut(id);
        if matches!(self.point.deciders, Deciders::Dispatched { .. }) {
            request.bound = now;
        }
        self.put(now, to, id);
        if self.cores[core].phase == Phase::Idle {
            self.go_on(now, core, Situation::Finished);
        }
    }

    /// A core has carried a request out: it is answered, or goes on in parts.
    fn serve_end(&mut self, now: u64, core: usize, id: u32) {
        self.point.times.leave(self.requests.get(id));
        let request = self.requests.get_mut(id);
        match &self.point.deciders {
            Deciders::InParts { serving, .. } if request.large && *serving != Serving::Early => {
                request.bytes_left = request.value_bytes.max(1);
                self.leave_parts(now, core, id, true);
            }
            _ => self.finish(now, core, id),
        }
        self.go_on(now, core, Situation::Finished);
    }

    fn end_part(&mut self, now: u64, core: usize, id: u32, bytes: u32) {
        self.cores[core].moved += u64::from(bytes);
        let request = self.requests.get_mut(id);
        request.bytes_left -= bytes;
        match request.bytes_left {
            0 => self.finish(now, core, id),
            _ => self.leave_parts(now, core, id, false),
        }
        self.go_on(now, core, Situation::Finished);
    }

    /// A large value waits for its next part.
    fn leave_parts(&mut self, now: u64, core: usize, id: u32, is_new: bool) {
        let apart = match &self.point.deciders {
            Deciders::InParts { serving, .. } => *serving == Serving::Apart,
            _ => false,
        };
        match (apart, is_new) {
            (false, _) => self.queues.push(Source::Software(Worker(core as u16)), id),
            (true, true) => self.put(now, Source::Shared, id),
            (true, false) => {
                self.queues.push_first(Source::Shared, id);
                self.wake_others(now, core);
            }
        }
    }

    /// A core is done with a request, which is answered if this core is to do it.
    #[inline]
    fn finish(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        if let Deciders::Shipped(shipped) = &mut self.point.deciders
            && let (Way::Delegated, Source::Rx(origin)) = (request.way, request.to)
        {
            self.requests.get_mut(id).way = Way::Returned;
            return shipped.hand_back(Worker(core as u16), origin, id);
        }
        self.note_served(now, core, &request);
        self.report(now, core, id);
        self.reply(now, core, id);
    }

    #[inline]
    fn note_served(&mut self, now: u64, core: usize, request: &Request) {
        let used = &mut self.outcome.cores[core];
        used.answered += 1;
        if request.measured {
            used.requests += 1;
            used.packets += self.point.times.packets(request);
        }
        if request.large {
            self.cores[core].large_until = now;
        }
        if let Deciders::InParts { serving, .. } = &self.point.deciders {
            if !request.large && request.measured {
                let ahead = self.cores[core].moved - request.moved_before;
                self.outcome.bytes_ahead.record(ahead);
            } else if request.large && *serving == Serving::Early {
                self.cores[core].moved += u64::from(request.value_bytes);
            }
        }
    }

    /// The dispatcher is told that one of its cores is done with a request.
    #[inline]
    fn report(&mut self, now: u64, core: usize, id: u32) {
        let Deciders::Dispatched { plan, .. } = &self.point.deciders else {
            return;
        };
        let worker = Worker(core as u16);
        if plan.as_ref().is_some_and(|plan| !plan.is_small(worker)) {
            return;
        }
        let request = self.requests.get(id);
        let completion = Completion {
            worker,
            partition: Partition(request.partition),
            access: request.access(),
            deferred: request.deferred,
        };
        self.tell(now, Input::Complete(completion));
    }

    #[inline]
    fn tell(&mut self, now: u64, input: Input) {
        let ns = self.point.channel_ns;
        if ns == 0 {
            return self.decide(now, input);
        }
        self.reports.push_back((now + ns, input));
        if self.reports.len() == 1 {
            self.watch_reports();
        }
    }

    fn reply(&mut self, now: u64, core: usize, id: u32) {
        let ring = self.cores[core].from_ring;
        let counts = matches!(self.point.deciders, Deciders::SizeAware { .. });
        if ring && counts {
            self.queues.in_service[core] -= 1;
        }
        let Some(links) = &mut self.links else {
            return self.answer(now, id);
        };
        if self.point.network.replies < 1.0 && !self.replies.chance(self.replied) {
            self.requests.remove(id);
            self.note_answer(now);
            return;
        }
        let request = self.requests.get(id);
        let value_bytes = if request.write {
            0
        } else {
            request.value_bytes
        };
        let leaves = match ring {
            true => self.point.deciders.large_replies(),
            false => LargeReplies::InLine,
        };
        let queue = match leaves {
            LargeReplies::Apart => self.cores.len() + core,
            LargeReplies::Drained | LargeReplies::InLine => core,
        };
        let bytes = Prices::message_bytes() + value_bytes;
        match links.tx.send(now, queue, id, bytes) {
            Some(wire) => self.answer(now + wire, id),
            None if leaves == LargeReplies::Drained => {
                self.queues.in_service[core] += 1;
                self.requests.get_mut(id).bound = DRAINS | core as u64;
            }
            None => {}
        }
    }

    fn end_tx_frame(&mut self, now: u64) {
        let links = self.links.as_mut();
        let Some(id) = links.and_then(|links| links.tx.end_frame()) else {
            return;
        };
        let bound = self.requests.get(id).bound;
        self.answer(now, id);
        if bound & DRAINS != 0 {
            let core = (bound & !DRAINS) as usize;
            self.queues.in_service[core] -= 1;
            if self.cores[core].phase == Phase::Idle {
                self.begin(now, core);
            }
        }
    }

    /// Latency ends here: the last frame of a reply has left.
    #[inline]
    fn answer(&mut self, now: u64, id: u32) {
        let request = self.requests.remove(id);
        let latency = now - request.at + u64::from(request.extra) + self.point.network.wire_ns;
        self.note_answer(now);
        if request.measured {
            self.outcome.all.record(latency);
            match request.large {
                true => self.outcome.large.record(latency),
                false => self.outcome.small.record(latency),
            }
            if request.write {
                self.outcome.writes.record(latency);
            }
        }
        if let Some((end, histogram)) = &mut self.window {
            if now >= *end {
                let plan = self.point.deciders.plan();
                self.outcome.times.push(WindowOfTime {
                    end_ns: *end,
                    p99_ns: histogram.quantile(0.99).unwrap_or(0),
                    large_cores: plan.map_or(0, |plan| plan.cores - plan.small),
                });
                let window_ns = self.point.window_ns;
                *end += window_ns * ((now - *end) / window_ns + 1);
                *histogram = Histogram::new();
            }
            histogram.record(latency);
        }
    }

    #[inline]
    fn note_answer(&mut self, now: u64) {
        if self.point.arrivals.left > 0 {
            self.outcome.answered += 1;
            self.outcome.elapsed_ns = now;
        }
    }

    fn note_end_of_arrivals(&mut self, now: u64) {
        self.outcome.saturated = self.requests.used() > self.point.bound.at_end;
        self.arrivals_end_ns = now;
        if let Some(links) = &self.links {
            self.outcome.link_busy = links.tx.busy_ns() as f64 / now.max(1) as f64;
        }
    }

    /// A few large replies can be most of the work that is left, so the time counts that it takes.
    fn end(mut self, last_ns: u64) -> Outcome {
        let left_ns = last_ns - self.arrivals_end_ns;
        self.outcome.saturated |= left_ns > self.point.bound.left_ns;
        self.outcome.ended_ns = last_ns;
        (0..self.cores.len()).for_each(|core| self.wake(last_ns, core));
        if let Some(windows) = &self.point.windows {
            let (count, writes, most) = windows.counts();
            self.outcome.windows = count;
            self.outcome.window_writes = writes;
            self.outcome.window_writes_max = most;
        }
        self.outcome.plan = self.point.deciders.plan().cloned().map(Box::new);
        self.outcome
    }
}

fn coprime(one: usize, other: usize) -> bool {
    match other {
        0 => one == 1,
        _ => coprime(other, one % other),
    }
}

/// Client threads of Minos's paper, each with a transmit queue of its own: 8 on each of 7 machines.
const CLIENTS: usize = 56;
/// Marks a reply whose core counts as large until it has left.
const DRAINS: u64 = 1 << 63;
