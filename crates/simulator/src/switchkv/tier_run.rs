//! A run: slots of a millisecond, in which the client's requests are routed one by one and every
//! machine does what is due.

use std::collections::{BTreeSet, VecDeque};

use curtail_consistency::replica::Ticket;
use curtail_consistency::tiered::{
    Admission, AdmissionConfig, Admitted, BackEndConfig, BackEndEvent, BackEndId, CacheConfig,
    CacheEvent, CacheId, KeyMessageKind, LoadThreshold, RuleBudget, RuleQueue, TierBackEnd,
    TierCache, TierMessage, TierRequest,
};
use curtail_hotkeys::{Access as Seen, Bursts, Parameters, Tracker};
use curtail_types::{Access, Instant, Key, KeyHash, Load, LoadReport, LoadScale, RouteHash};
use curtail_workload::{HotSet, Pattern, Random, Ranks, mix};

use super::{
    Architecture, INTERVAL_S, LOSS, LOSS_MAX, LOSS_MIN, SwitchKv, TierInterval, TierOutcome,
    hosts::{BackEndDesk, CacheDesk, KeyStates, Parcel},
    limiter::Limiter,
};

/// A run under way.
pub(crate) struct TierRun<'a> {
    model: &'a SwitchKv,
    random: Random,
    ranks: Ranks,
    /// Which key each rank has; `None` as long as nothing changes.
    places: Option<HotSet>,
    nodes: Vec<Node>,
    cache: TierCache,
    cache_limiter: Limiter,
    admission: Admission,
    rules: RuleQueue,
    /// The keys that have rules, by the bits of their hashes that a switch sees, and how many rules
    /// it has room for.
    ruled: BTreeSet<u64>,
    rules_max: usize,
    keys: KeyStates,
    network: VecDeque<Parcel>,
    now: Instant,
    slot: u64,
    /// What the client sends in a slot, and what of it is left for the next.
    sent_per_slot: f64,
    carried: f64,
    interval: TierInterval,
    outcome: TierOutcome,
    report: LoadReport,
}

/// A back end.
struct Node {
    machine: TierBackEnd,
    limiter: Limiter,
    /// What it is asked for in this slot.
    asked: Vec<Asked>,
    /// For the periodic reports, if there are any.
    tracker: Option<Box<Tracker>>,
    /// For the instant ones.
    watch: Option<Box<BurstWatch>>,
    served: u64,
}

#[derive(Clone, Copy)]
struct Asked {
    hash: u64,
    writes: bool,
}

struct BurstWatch {
    bursts: Bursts,
    gate: LoadThreshold,
}

impl<'a> TierRun<'a> {
    pub(crate) fn new(model: &'a SwitchKv) -> Self {
        let now = Instant { ns: 0 };
        let excess_max = model.rules.rule_buffer();
        let admission = AdmissionConfig {
            excess_max,
            delay_max_ns: model.rules.delay_max_ns,
            seed: model.seed,
            ..AdmissionConfig::new(model.cached, SCALE)
        };
        let mut run = Self {
            model,
            random: Random::new(model.seed),
            ranks: model.ranks(),
            places: model
                .change
                .map(|change| HotSet::new(change, model.keys, model.seed)),
            nodes: Vec::new(),
            cache: TierCache::new(CacheConfig::with_lease(1, LEASE_NS)),
            cache_limiter: Limiter::new(model.cache_qps * SLOT_S),
            admission: Admission::new(admission, now),
            rules: RuleQueue::new(AT_ONCE),
            ruled: BTreeSet::new(),
            rules_max: model.cached + excess_max + SPARE_RULES,
            keys: KeyStates::default(),
            network: VecDeque::new(),
            now,
            slot: 0,
            sent_per_slot: model.shares().sent_qps() * SLOT_S,
            carried: 0.0,
            interval: TierInterval::default(),
            outcome: TierOutcome::default(),
            report: LoadReport::empty(SCALE),
        };
        run.begin();
        run
    }

    pub(crate) fn run(mut self) -> TierOutcome {
        let slots = (self.model.seconds / SLOT_S).round() as u64;
        let half = slots / 2;
        for slot in 1..=slots {
            self.slot = slot;
            self.now = Instant { ns: slot * SLOT_NS };
            self.step();
            if slot == half {
                self.nodes.iter_mut().for_each(|node| node.served = 0);
            }
        }
        self.outcome.nodes = self.nodes.iter().map(|node| node.served).collect();
        self.outcome.refused = self.rules.counts().1;
        self.outcome
    }

    // ---- beginning ----

    /// Back ends report to the cache, which has the hottest keys, with their rules.
    fn begin(&mut self) {
        for index in 0..self.model.back_ends {
            let node = self.node();
            self.nodes.push(node);
            self.at_back_end(index.into(), BackEndEvent::Assign(CACHE), None);
            self.at_cache(CacheEvent::Join(BackEndId(index)), None);
        }
        self.drain();
        if self.model.architecture == Architecture::NoCache {
            return;
        }
        for rank in 0..self.model.cached as u64 {
            let hash = self.hash_of(rank);
            let load = self.load_of(rank);
            if self.admission.wants(RouteHash(hash), load) {
                self.fetch(RouteHash(hash));
            }
        }
        // These rules are there from the start: they cost no time of the switch.
        while let Some((key, is_install)) = self.rules.take(self.now) {
            assert!(is_install, "nothing is withdrawn yet");
            self.hand_over(key, true);
        }
        self.rules = RuleQueue::new(self.model.rules);
        self.outcome = TierOutcome::default();
    }

    fn node(&mut self) -> Node {
        let model = self.model;
        let update = model.update;
        // Segments of different back ends end at different times.
        let began = Instant {
            ns: self.random.below(SCALE.segment_ns),
        };
        let tracker = || match tracker(model.back_end_qps).check() {
            Ok(parameters) => Box::new(Tracker::new(parameters, began)),
            Err(error) => unreachable!("{error}"),
        };
        let watch = || {
            Box::new(BurstWatch {
                bursts: Bursts::new(&Parameters::switchkv()),
                gate: LoadThreshold::new(model.back_end_qps as u64),
            })
        };
        Node {
            machine: TierBackEnd::new(BACK_END, self.now, false),
            limiter: Limiter::new(model.back_end_qps * SLOT_S),
            asked: Vec::new(),
            tracker: update.periodic.then(tracker),
            watch: update.instant.then(watch),
            served: 0,
        }
    }

    /// The load that a rank's key has, as a back end that is full would report it.
    fn load_of(&self, rank: u64) -> Load {
        let whole = curtail_workload::zipf_sums::harmonic(self.model.keys, self.model.gamma);
        let share = ((rank + 1) as f64).powf(-self.model.gamma) / whole;
        let sampled = share * self.sent_per_slot / SLOT_S / f64::from(SCALE.sampled_every);
        Load((sampled * Load::ONE.0 as f64) as u64)
    }

    // ---- a slot ----

    fn step(&mut self) {
        if let Some(places) = &mut self.places {
            places.advance(self.now.ns + self.model.since_change_ns, 0);
        }
        self.carried += self.sent_per_slot;
        let sent = self.carried as u64;
        self.carried -= sent as f64;
        self.interval.sent += sent;
        for _ in 0..sent {
            self.request();
        }
        // The first key takes what the rules have room for, so another one each time.
        let (count, first) = (self.nodes.len(), mix(self.slot) as usize);
        for turn in 0..count {
            self.serve_slot(first.wrapping_add(turn) % count);
        }
        self.change_rules();
        if self.slot.is_multiple_of(REPORT_SLOTS) {
            self.take_reports();
        }
        if self.slot.is_multiple_of(TICK_SLOTS) {
            self.tick();
        }
        if self.slot.is_multiple_of(INTERVAL_SLOTS) {
            self.end_interval();
        }
    }

    fn hash_of(&self, rank: u64) -> u64 {
        let places = self.places.as_ref();
        let key = places.map_or(rank, |places| places.place(rank));
        self.model.hash(key)
    }

    fn request(&mut self) {
        let model = self.model;
        let writes = model.write_share > 0.0 && self.random.unit() < model.write_share;
        let rank = match writes && !model.writes_like_reads {
            true => self.random.below(model.keys),
            false => self.ranks.rank(&mut self.random),
        };
        let hash = self.hash_of(rank);
        if writes || model.architecture == Architecture::NoCache {
            return self.ask_back_end(hash, writes);
        }
        let state = self.keys.get(&hash).copied().unwrap_or_default();
        let is_switched = model.architecture == Architecture::SwitchKv;
        if is_switched && !state.has_rule {
            return self.ask_back_end(hash, false);
        }
        if !self.cache_limiter.accepts(self.slot) {
            self.interval.lost += 1;
            return;
        }
        let from = BackEndId(model.owner(hash) as u16);
        match state.copy {
            Some((at, session)) if self.cache.shows(from, session, self.now) => {
                self.interval.hits += 1;
                if is_sampled(&mut self.random) {
                    self.admission.hit(at);
                }
            }
            _ => {
                self.interval.detours += u64::from(is_switched);
                self.ask_back_end(hash, false);
            }
        }
    }

    fn ask_back_end(&mut self, hash: u64, writes: bool) {
        let owner = self.model.owner(hash);
        if let Some(node) = self.nodes.get_mut(owner) {
            node.asked.push(Asked { hash, writes });
        }
    }

    /// What a back end is asked for in a slot, one request after the other: its counters stay in
    /// the processor's cache meanwhile. The order within a slot changes nothing but who finds room
    /// in the queue of rules first, because rules change between slots.
    fn serve_slot(&mut self, owner: usize) {
        let mut asked = match self.nodes.get_mut(owner) {
            Some(node) => std::mem::take(&mut node.asked),
            None => return,
        };
        for one in asked.drain(..) {
            self.serve(owner, one);
        }
        if let Some(node) = self.nodes.get_mut(owner) {
            node.asked = asked;
        }
    }

    fn serve(&mut self, owner: usize, Asked { hash, writes }: Asked) {
        let Some(node) = self.nodes.get_mut(owner) else {
            return;
        };
        if !node.limiter.accepts(self.slot) {
            self.interval.lost += 1;
            return;
        }
        node.served += 1;
        self.interval.served += 1;
        if let Some(tracker) = &mut node.tracker
            && is_sampled(&mut self.random)
            && let Ok(key) = Key::new(&hash.to_be_bytes())
        {
            tracker.see(KeyHash(hash), key, Seen::Read);
        }
        let watch = node.watch.as_mut();
        let burst = watch.and_then(|watch| watch.see(hash, self.now));
        let request = TierRequest {
            ticket: Ticket(0),
            key: RouteHash(hash),
            access: if writes {
                Access::Replace
            } else {
                Access::Read
            },
        };
        self.at_back_end(owner, BackEndEvent::Request(request), None);
        if writes {
            self.drain();
        }
        if let Some(count) = burst {
            self.report_burst(owner, hash, count);
        }
        if self.model.update.traditional && !self.rules.is_full() {
            self.at_back_end(
                owner,
                BackEndEvent::Report(RouteHash(hash)),
                Some(Load::ONE),
            );
            self.drain();
        }
    }

    /// The load of a key that bursts is what it is among the latest requests.
    fn report_burst(&mut self, owner: usize, hash: u64, count: u32) {
        let logged = f64::from(Parameters::switchkv().logged);
        let sampled = self.model.back_end_qps / f64::from(SCALE.sampled_every);
        let load = f64::from(count) / logged * sampled;
        let load = Load((load * Load::ONE.0 as f64) as u64);
        self.at_back_end(owner, BackEndEvent::Report(RouteHash(hash)), Some(load));
        self.drain();
    }

    // ---- cache update ----

    /// Fetches the hottest of what was reported, as many as rules can follow.
    fn take_reports(&mut self) {
        for tracker in self.nodes.iter_mut().flat_map(|node| &mut node.tracker) {
            if self.now < tracker.deadline() {
                continue;
            }
            tracker.end_segment(self.now);
            tracker.report_into(&mut self.report);
            for key in self.report.keys.iter().take(REPORTED) {
                if let Ok(bytes) = key.key.bytes().try_into() {
                    let key_hash = RouteHash(u64::from_be_bytes(bytes));
                    self.admission.offer(key_hash, key.load);
                }
            }
        }
        if !self.model.update.periodic {
            return;
        }
        for key in self.admission.chosen(self.fetch_budget()) {
            self.fetch(key);
        }
    }

    /// What the switch can do in a period, less what waits already; half of the room beyond the
    /// capacity is kept for keys that burst.
    fn fetch_budget(&self) -> usize {
        let budget = self.rules.budget();
        let (installs, withdrawals) = self.rules.lengths();
        let buffer = budget.rule_buffer();
        // Without a buffer each admission takes a withdrawal too.
        let changes = if buffer > 0 { 1 } else { 2 };
        let per_period = budget.per_s as usize / changes;
        let room = match buffer {
            0 => usize::MAX,
            _ => self.admission.room().saturating_sub(buffer / 2),
        };
        per_period.saturating_sub(installs + withdrawals).min(room)
    }

    fn fetch(&mut self, key: RouteHash) {
        let from = BackEndId(self.model.owner(key.0) as u16);
        self.at_cache(CacheEvent::Fetch(from, key), None);
        self.drain();
    }

    /// Evicts what is due, and hands over the changes for which there is a token.
    fn change_rules(&mut self) {
        while let Some((key, since)) = self.admission.victim(self.rules.is_idle(), self.now) {
            self.evict(key, since);
        }
        while let Some((key, is_install)) = self.rules.take(self.now) {
            self.hand_over(key, is_install);
        }
    }

    fn evict(&mut self, key: RouteHash, since: Instant) {
        let from = BackEndId(self.model.owner(key.0) as u16);
        self.at_cache(CacheEvent::Evict(from, key), None);
        self.rules.withdraw(key, since);
        self.drain();
    }

    fn hand_over(&mut self, key: RouteHash, is_install: bool) {
        if is_install {
            self.outcome.installs += 1;
            self.ruled.insert(seen_by_switch(key));
            let is_full = self.ruled.len() > self.rules_max;
            assert!(!is_full, "the table holds capacity and buffer");
        } else {
            self.outcome.withdrawals += 1;
            self.ruled.remove(&seen_by_switch(key));
        }
        // Packets are matched by what they carry of the hash; here all of it is at hand.
        self.keys.entry(key.0).or_default().has_rule |= is_install;
        if !is_install {
            self.forget_rule(key.0);
        }
    }

    fn forget_rule(&mut self, hash: u64) {
        let Some(state) = self.keys.get_mut(&hash) else {
            return;
        };
        state.has_rule = false;
        if state.copy.is_none() {
            self.keys.remove(&hash);
        }
    }

    // ---- time ----

    fn tick(&mut self) {
        if self.cache.deadline().is_some_and(|at| self.now >= at) {
            self.at_cache(CacheEvent::Tick, None);
        }
        self.drain();
        let now = self.now;
        for watch in self.nodes.iter_mut().flat_map(|node| &mut node.watch) {
            watch.bursts.expire(now);
        }
        if self.now >= self.admission.deadline() {
            self.admission.end_period(self.now);
        }
    }

    /// The client adapts its rate to what was lost.
    fn end_interval(&mut self) {
        if let Some(Pattern::HotIn { keys }) = self.model.change.map(|change| change.pattern) {
            let has_rule = |rank: &u64| {
                let state = self.keys.get(&self.hash_of(*rank));
                state.is_some_and(|state| state.has_rule)
            };
            self.interval.new_keys_ruled = (0..keys).filter(has_rule).count() as u64;
        }
        let interval = std::mem::take(&mut self.interval);
        let loss = interval.lost as f64 / interval.sent.max(1) as f64;
        let step = self.model.client_step;
        if loss > LOSS_MAX {
            self.sent_per_slot *= 1.0 - loss.min(step);
        } else if loss < LOSS_MIN {
            self.sent_per_slot *= 1.0 + (4.0 * (LOSS - loss)).min(step);
        }
        self.sent_per_slot = self.sent_per_slot.max(1e-3);
        self.outcome.intervals.push(interval);
    }

    // ---- machines ----

    fn at_back_end(&mut self, index: usize, event: BackEndEvent<'_>, load: Option<Load>) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let mut desk = BackEndDesk {
            me: BackEndId(index as u16),
            network: &mut self.network,
            now: self.now,
            load,
        };
        node.machine.step(event, &mut desk);
    }

    fn at_cache(&mut self, event: CacheEvent<'_>, load: Option<Load>) -> Option<Admitted> {
        let mut desk = CacheDesk {
            network: &mut self.network,
            admission: &mut self.admission,
            rules: &mut self.rules,
            keys: &mut self.keys,
            now: self.now,
            load,
            admitted: None,
            updates: 0,
        };
        self.cache.step(event, &mut desk);
        self.outcome.updates += desk.updates;
        desk.admitted
    }

    /// Delivers all that is on its way.
    fn drain(&mut self) {
        while let Some(parcel) = self.network.pop_front() {
            match parcel {
                Parcel::ToBackEnd(to, message) => {
                    let event = BackEndEvent::Message(CACHE, &message);
                    self.at_back_end(to.0.into(), event, None);
                }
                Parcel::ToCache(from, message, load) => self.deliver(from, &message, load),
            }
        }
    }

    fn deliver(&mut self, from: BackEndId, message: &TierMessage, load: Option<Load>) {
        let item_of = message.key_of(KeyMessageKind::Item);
        if let Some(key) = item_of {
            self.make_room(key, load);
        }
        let admitted = self.at_cache(CacheEvent::Message(from, message), load);
        let Some(key) = item_of else {
            return;
        };
        if let Some(at) = admitted
            && let Some(session) = self.cache.look(from, key)
        {
            self.keys.entry(key.0).or_default().copy = Some((at, session));
        }
        if load.is_some() {
            let for_ns = match self.admission.holds(key) {
                true => SCALE.segment_ns,
                false => DECLINED_NS,
            };
            self.suppress(from, key, for_ns);
        }
    }

    /// Where nothing may be added before another key goes, one goes now.
    fn make_room(&mut self, key: RouteHash, load: Option<Load>) {
        let is_wanted = load.is_some() || self.admission.is_wanted(key);
        if !is_wanted || self.admission.holds(key) || self.rules.is_full() {
            return;
        }
        if self.rules.budget().rule_buffer() == 0
            && let Some(victim) = self.admission.replaced()
        {
            self.evict(victim, self.now);
        }
    }

    /// One burst is one report (SW-59).
    fn suppress(&mut self, from: BackEndId, key: RouteHash, for_ns: u64) {
        let until = self.now.later(for_ns);
        let node = self.nodes.get_mut(usize::from(from.0));
        if let Some(watch) = node.and_then(|node| node.watch.as_mut()) {
            watch.bursts.suppress(KeyHash(key.0), until);
        }
    }
}

impl BurstWatch {
    /// Counts a request; how often its key is in the log if it bursts at a loaded back end.
    #[inline]
    fn see(&mut self, hash: u64, now: Instant) -> Option<u32> {
        self.gate.serve(now, 1);
        let burst = self.bursts.see(KeyHash(hash));
        burst.filter(|_| self.gate.is_loaded())
    }
}

#[inline]
/// A rule names the 40 highest bits of a hash (SW-10).
const fn seen_by_switch(key: RouteHash) -> u64 {
    key.0 >> 24
}

fn is_sampled(random: &mut Random) -> bool {
    random.below(u64::from(SCALE.sampled_every)) == 0
}

const CACHE: CacheId = CacheId(0);
const BACK_END: BackEndConfig = BackEndConfig::with_lease(1, LEASE_NS);

const SLOT_NS: u64 = 1_000_000;
const SLOT_S: f64 = 1e-3;
const INTERVAL_SLOTS: u64 = 10;
const _: () = assert!(INTERVAL_SLOTS as f64 * SLOT_S == INTERVAL_S);
/// The cache looks at reports that often, and at its timers.
const REPORT_SLOTS: u64 = 20;
const TICK_SLOTS: u64 = 20;
const LEASE_NS: u64 = 500_000_000;
/// For how long a key that was declined is not reported again.
const DECLINED_NS: u64 = 50_000_000;
/// What is cached from the start is ruled at once.
const AT_ONCE: RuleBudget = RuleBudget {
    per_s: 0,
    burst: 0,
    queue_max: usize::MAX,
    delay_max_ns: 0,
};
/// Rules of nodes, and of keys whose withdrawal waits a moment longer than it may.
const SPARE_RULES: usize = 8192;
/// Keys that a back end reports in a period (SW-46).
const REPORTED: usize = 5;

/// The same at back ends and cache: one request in four is counted (SW-52).
const SCALE: LoadScale = LoadScale {
    segment_ns: 1_000_000_000,
    alpha: LoadScale::ALPHA_ONE / 2,
    sampled_every: 4,
};

/// What a back end of this rate counts; the paper's log is beside it, because it sees every
/// request.
fn tracker(qps: f64) -> Parameters {
    // The same share of its requests at every scale.
    let counted = (qps / 100_000.0 * 4096.0) as u32;
    Parameters {
        scale: SCALE,
        counted: counted.clamp(64, 4096),
        listed: 10,
        logged: 0,
        burst_above: 8,
    }
}
