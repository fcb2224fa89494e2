//! The event loop of Minos's system.
//!
//! There is no heap of events: the next arrival is one number, each direction of the link has one
//! frame under way, and of all cores the earliest is kept by a tournament.

use std::collections::VecDeque;

use curtail_dispatch::{
    Worker,
    pull::{Pull, Source, Take},
};
use curtail_workload::{Chance, Random};

use crate::{
    earliest::{Earliest, NO_TIME},
    histogram::Histogram,
    stored::{
        CoreLoad, LargeReplies, Prices, Stored, StoredOutcome, UNDER_WAY_MAX, Window,
        arrivals::Arrivals,
        deciders::{Deciders, SHARED},
        link::Link,
        queues::{Queues, Request, Slab},
    },
};

/// Runs one point.
pub(super) fn run(model: &Stored) -> StoredOutcome {
    let mut run = Run::new(model);
    let mut last_ns = 0;
    while let Some((now, event)) = run.next() {
        last_ns = now;
        match event {
            Event::Arrival => run.arrive(now),
            Event::Received => run.end_rx_frame(now),
            Event::Core(core) => run.finish(now, core),
            Event::Sent => run.end_tx_frame(now),
        }
        if run.requests.used() >= UNDER_WAY_MAX {
            run.outcome.saturated = true;
            break;
        }
    }
    run.end(last_ns)
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Core(usize),
    Sent,
    Received,
    Arrival,
}

/// What a core is doing until its next event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    Idle,
    /// It serves a request; whether it came from the core's ring.
    Serves {
        id: u32,
        ring: bool,
    },
    /// It hands a request on.
    Gives {
        id: u32,
        to: Source,
    },
}

struct Run<'a> {
    model: &'a Stored,
    source: Arrivals,
    requests: Slab,
    queues: Queues,
    deciders: Deciders,
    work: Vec<Work>,
    /// What each core has taken and not begun, and from whose ring, and what taking cost.
    taken: Vec<VecDeque<u32>>,
    taken_from_ring: Vec<bool>,
    owed_ns: Vec<f64>,
    /// When each core last finished a large request.
    large_until: Vec<u64>,
    idle: usize,
    /// Counts wake-ups, to begin each at another core.
    turn: usize,
    /// Numbers that share no divisor with the number of cores.
    strides: Vec<usize>,
    cores: Earliest,
    rx: Link,
    tx: Link,
    replies: Random,
    replied: Chance,
    window: Option<(u64, Histogram)>,
    answered: u64,
    arrivals_end_ns: u64,
    outcome: StoredOutcome,
}

impl<'a> Run<'a> {
    fn new(model: &'a Stored) -> Self {
        let cores = usize::from(model.cores);
        Self {
            model,
            source: Arrivals::new(&model.workload, model.rate_mops, model.requests, model.seed),
            requests: Slab::default(),
            queues: Queues::new(cores),
            deciders: Deciders::new(model),
            work: vec![Work::Idle; cores],
            taken: vec![VecDeque::new(); cores],
            taken_from_ring: vec![false; cores],
            owed_ns: vec![0.0; cores],
            large_until: vec![0; cores],
            idle: cores,
            turn: 0,
            strides: (1..=cores).filter(|n| coprime(*n, cores)).collect(),
            cores: Earliest::new(cores),
            rx: Link::new(model.prices.link, CLIENTS),
            // A second one for each core, behind the first ones.
            tx: Link::new(model.prices.link, 2 * cores),
            replies: Random::of_stream(model.seed, 4),
            replied: Chance::new(model.replies),
            window: (model.window_ns > 0).then(|| (model.window_ns, Histogram::new())),
            answered: 0,
            arrivals_end_ns: 0,
            outcome: StoredOutcome {
                all: Histogram::new(),
                small: Histogram::new(),
                large: Histogram::new(),
                cores: vec![CoreLoad::default(); cores],
                link_busy: 0.0,
                answered_mops: 0.0,
                plan: None,
                behind_large: 0,
                beside_large: 0,
                small_served: 0,
                windows: Vec::new(),
                saturated: false,
            },
        }
    }

    /// The next event; at one time cores go first, arrivals last.
    #[inline]
    fn next(&self) -> Option<(u64, Event)> {
        let (mut now, core) = self.cores.first();
        let mut event = Event::Core(core);
        let others = [
            (self.tx.event_ns(), Event::Sent),
            (self.rx.event_ns(), Event::Received),
            (self.source.next_ns, Event::Arrival),
        ];
        for (at, other) in others {
            if at < now {
                (now, event) = (at, other);
            }
        }
        (now < NO_TIME).then_some((now, event))
    }

    fn arrive(&mut self, now: u64) {
        self.end_epoch(now);
        let (mut request, word) = self.source.request(now);
        request.rx = self.deciders.rx(&request, word, self.model.cores);
        let bytes = Prices::message_bytes()
            + if request.write {
                request.value_bytes
            } else {
                0
            };
        let client = (word % CLIENTS as u64) as usize;
        let id = self.requests.insert(request);
        if self.source.left == 0 {
            self.note_end_of_arrivals(now);
        }
        // Over an idle link the time on the wire is added, and the arrivals stay Poisson.
        if let Some(wire) = self.rx.send(now, client, id, bytes) {
            self.requests.get_mut(id).extra += wire as u32;
            self.deliver(now, id);
        }
    }

    fn end_rx_frame(&mut self, now: u64) {
        if let Some(id) = self.rx.end_frame() {
            self.deliver(now, id);
        }
    }

    fn deliver(&mut self, now: u64, id: u32) {
        let request = self.requests.get_mut(id);
        request.delivered = now;
        request.bound = now;
        let to = match request.rx {
            SHARED => Source::Shared,
            core => Source::Rx(Worker(core)),
        };
        self.put(now, to, id);
    }

    /// Puts a request into a queue and wakes who may take it.
    fn put(&mut self, now: u64, to: Source, id: u32) {
        self.queues.push(to, id);
        if self.idle == 0 {
            return;
        }
        let first = match to {
            Source::Rx(core) | Source::Ring(core) | Source::Software(core) => core.index(),
            Source::Shared => (now % self.work.len() as u64) as usize,
        };
        if self.work[first] == Work::Idle {
            self.begin(now, first);
        }
        if self.deciders.others_take(to, &self.queues) {
            self.wake_others(now, first);
        }
    }

    /// Idle cores take what they may, until nobody takes anything.
    fn wake_others(&mut self, now: u64, first: usize) {
        let cores = self.work.len();
        // All of them poll; whose poll comes first is chance. Strides differ too, lest the first
        // core behind a row of busy ones is favoured.
        self.turn += 1;
        let start = first + self.turn / self.strides.len();
        let stride = self.strides[self.turn % self.strides.len()];
        let mut again = true;
        while again && self.idle > 0 && self.queues.waiting() > 0 {
            again = false;
            for step in 0..cores {
                let core = (start + step * stride) % cores;
                if self.work[core] == Work::Idle && self.queues.waiting() > 0 {
                    again |= self.begin(now, core);
                }
            }
        }
    }

    /// An idle core takes its next request, if there is one; whether it took any.
    fn begin(&mut self, now: u64, core: usize) -> bool {
        loop {
            if let Some(id) = self.taken[core].pop_front() {
                self.start(now, core, id);
                return true;
            }
            let pull = self.deciders.next(core, &self.queues);
            match pull {
                None => return false,
                Some(Pull::Run(take)) => {
                    if !self.take(now, core, take) {
                        return false;
                    }
                }
                Some(Pull::Move(take, Source::Shared)) => {
                    // One at a time, so that workers get each as soon as it is there.
                    let Some(id) = self.queues.pop(take.from) else {
                        return false;
                    };
                    let work = Work::Gives {
                        id,
                        to: Source::Shared,
                    };
                    self.set(now, core, work, self.model.prices.give_ns);
                    return true;
                }
                Some(Pull::Move(take, to)) => {
                    for _ in 0..take.max {
                        let Some(id) = self.queues.pop(take.from) else {
                            break;
                        };
                        self.owed_ns[core] += self.model.prices.move_ns;
                        self.queues.push(to, id);
                    }
                }
            }
        }
    }

    /// Takes from a queue; `false` if it was empty after all.
    fn take(&mut self, now: u64, core: usize, take: Take) -> bool {
        let prices = &self.model.prices;
        self.owed_ns[core] += match take.from {
            Source::Rx(owner) | Source::Software(owner) if owner.index() != core => prices.steal_ns,
            Source::Ring(_) | Source::Shared => prices.take_ns,
            _ => 0.0,
        };
        self.taken_from_ring[core] = matches!(take.from, Source::Ring(_));
        let early = self.deciders.is_early();
        for _ in 0..take.max {
            let Some(id) = self.queues.pop(take.from) else {
                break;
            };
            if !early {
                self.requests.get_mut(id).bound = now;
            }
            self.taken[core].push_back(id);
        }
        if self.taken_from_ring[core] {
            self.queues.in_service[core] += self.taken[core].len();
        }
        if self.taken[core].is_empty() {
            self.owed_ns[core] = 0.0;
            return false;
        }
        true
    }

    /// Begins to serve a taken request, or to hand it on.
    fn start(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        let prices = &self.model.prices;
        let ring = self.taken_from_ring[core];
        let mut cost = prices.serve_ns(request.write, request.value_bytes);
        let mut work = Work::Serves { id, ring };
        if !ring && let Some(looked) = self.deciders.look(core, &request, prices) {
            if let Some(owner) = looked.owner {
                let lookup = if request.write { 0.0 } else { prices.lookup_ns };
                cost = lookup + prices.give_ns;
                work = Work::Gives {
                    id,
                    to: Source::Ring(owner),
                };
            }
            cost += looked.profile_ns;
            self.deciders.note_small_busy(cost as u64);
        }
        if matches!(work, Work::Serves { .. }) && !request.large && request.measured {
            self.note_order(core, &request);
        }
        self.set(now, core, work, cost);
    }

    /// Whether a small request waited for a large one that this core served.
    #[inline]
    fn note_order(&mut self, core: usize, request: &Request) {
        self.outcome.small_served += 1;
        let large = self.large_until[core];
        self.outcome.behind_large += u64::from(large > request.bound);
        let own = usize::from(request.rx) == core;
        self.outcome.beside_large += u64::from(own && large > request.delivered);
    }

    #[inline]
    fn set(&mut self, now: u64, core: usize, work: Work, cost: f64) {
        let ns = (cost + self.owed_ns[core]) as u64;
        self.owed_ns[core] = 0.0;
        self.work[core] = work;
        self.idle -= 1;
        self.outcome.cores[core].busy_ns += ns;
        self.cores.set(core, now + ns);
    }

    /// A core has done what it was doing.
    fn finish(&mut self, now: u64, core: usize) {
        let work = std::mem::replace(&mut self.work[core], Work::Idle);
        self.idle += 1;
        self.cores.clear(core);
        match work {
            Work::Idle => {}
            Work::Serves { id, ring } => self.reply(now, core, id, ring),
            Work::Gives { id, to } => self.put(now, to, id),
        }
        if self.work[core] == Work::Idle {
            self.begin(now, core);
        }
        if self.deciders.steals() && self.idle > 0 {
            // What it moved to its software queue, others can take.
            self.wake_others(now, core);
        }
    }

    fn reply(&mut self, now: u64, core: usize, id: u32, ring: bool) {
        let request = *self.requests.get(id);
        if request.measured {
            let load = &mut self.outcome.cores[core];
            load.requests += 1;
            load.packets += u64::from(self.model.prices.packets(request.value_bytes));
        }
        if request.large {
            self.large_until[core] = now;
        }
        if ring {
            self.queues.in_service[core] -= 1;
        }
        if self.model.replies < 1.0 && !self.replies.chance(self.replied) {
            self.requests.remove(id);
            self.answered += 1;
            return;
        }
        let bytes = Prices::message_bytes()
            + if request.write {
                0
            } else {
                request.value_bytes
            };
        let leaves = match ring {
            true => self.deciders.large_replies(),
            false => LargeReplies::InLine,
        };
        let queue = match leaves {
            LargeReplies::Apart => usize::from(self.model.cores) + core,
            LargeReplies::Drained | LargeReplies::InLine => core,
        };
        match self.tx.send(now, queue, id, bytes) {
            Some(wire) => self.answer(now + wire, id),
            None if leaves == LargeReplies::Drained => {
                self.queues.in_service[core] += 1;
                self.requests.get_mut(id).bound = DRAINS | core as u64;
            }
            None => {}
        }
    }

    fn end_tx_frame(&mut self, now: u64) {
        let Some(id) = self.tx.end_frame() else {
            return;
        };
        let bound = self.requests.get(id).bound;
        self.answer(now, id);
        if bound & DRAINS != 0 {
            let core = (bound & !DRAINS) as usize;
            self.queues.in_service[core] -= 1;
            if self.work[core] == Work::Idle {
                self.begin(now, core);
            }
        }
    }

    /// The last frame of a reply has left.
    #[inline]
    fn answer(&mut self, now: u64, id: u32) {
        let request = self.requests.remove(id);
        let latency = now - request.at + u64::from(request.extra) + self.model.prices.wire_ns;
        self.answered += 1;
        if request.measured {
            self.outcome.all.record(latency);
            match request.large {
                true => self.outcome.large.record(latency),
                false => self.outcome.small.record(latency),
            }
        }
        if let Some((end, histogram)) = &mut self.window {
            if now >= *end {
                self.outcome.windows.push(Window {
                    end_ns: *end,
                    p99_ns: histogram.quantile(0.99).unwrap_or(0),
                    large_cores: self
                        .deciders
                        .plan()
                        .map_or(0, |plan| plan.cores - plan.small),
                });
                *end += self.model.window_ns * ((now - *end) / self.model.window_ns + 1);
                *histogram = Histogram::new();
            }
            histogram.record(latency);
        }
    }

    fn end_epoch(&mut self, now: u64) {
        if self.deciders.end_epoch(now) {
            // New roles: whoever is idle looks again.
            self.wake_others(now, 0);
        }
    }

    fn note_end_of_arrivals(&mut self, now: u64) {
        let under_way = self.requests.used();
        let stable = (self.model.requests / 200).max(2_000);
        self.outcome.saturated = under_way as u64 > stable;
        self.arrivals_end_ns = now;
        self.outcome.link_busy = self.tx.busy_ns() as f64 / now.max(1) as f64;
        self.outcome.answered_mops = self.answered as f64 * 1e3 / now.max(1) as f64;
    }

    /// A few large replies can be most of the work that is left, so the time counts that it takes.
    fn end(mut self, last_ns: u64) -> StoredOutcome {
        let left_ns = last_ns - self.arrivals_end_ns;
        self.outcome.saturated |= left_ns > (self.model.run_ns() / 100).max(LEFT_NS);
        if self.requests.used() < UNDER_WAY_MAX {
            assert_eq!(self.requests.used(), 0, "requests were lost");
        }
        self.outcome.plan = self.deciders.plan().cloned().map(Box::new);
        self.outcome
    }
}

fn coprime(one: usize, other: usize) -> bool {
    match other {
        0 => one == 1,
        _ => coprime(other, one % other),
    }
}

/// Client threads of the paper, each with a transmit queue of its own: 8 on each of 7 machines.
const CLIENTS: usize = 56;
/// Work that may be left when the last request comes, or a hundredth of the run if that is more.
const LEFT_NS: u64 = 5_000_000;
/// Marks a reply whose core counts as large until it has left.
const DRAINS: u64 = 1 << 63;
