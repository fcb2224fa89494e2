//! A back end and a cache over a network that loses, doubles and delays, with clocks that differ.

use alloc::{collections::BTreeMap, vec::Vec};

use curtail_types::{Access, Instant, RouteHash};

use super::*;
use crate::replica::Ticket;

const KEY: RouteHash = RouteHash(7);
const BACK_END: BackEndId = BackEndId(3);
const CACHE: CacheId = CacheId(1);
const MS: u64 = 1_000_000;

/// Both, what is on its way, and what came of requests. The value of a key is how often it was
/// written.
struct Pair {
    back_end: TierBackEnd,
    cache: TierCache,
    desk: Desk,
}

/// Whether it goes to the cache, the message, and its image.
type Sent = (bool, TierMessage, Option<u64>);

#[derive(Default)]
struct Desk {
    items: BTreeMap<RouteHash, u64>,
    copies: BTreeMap<RouteHash, u64>,
    sent: Vec<Sent>,
    ran: BTreeMap<Ticket, u64>,
    answers: Vec<(Ticket, Result<u64, TierRefusal>)>,
    back_end_now: u64,
    cache_now: u64,
    incoming: Option<u64>,
    declines: bool,
}

impl BackEndHost for Desk {
    fn run(&mut self, request: &TierRequest) -> bool {
        let value = self.items.entry(request.key).or_default();
        *value += u64::from(request.access != Access::Read);
        self.ran.insert(request.ticket, *value);
        request.access != Access::Read
    }
    fn clear(&mut self, asked: &[Ticket]) {
        self.items.clear();
        self.ran.extend(asked.iter().map(|ticket| (*ticket, 0)));
    }
    fn respond(&mut self, ticket: Ticket) {
        let value = self.ran.remove(&ticket).unwrap();
        self.answers.push((ticket, Ok(value)));
    }
    fn refuse(&mut self, ticket: Ticket, refusal: TierRefusal) {
        self.answers.push((ticket, Err(refusal)));
    }
    fn has(&self, key: RouteHash) -> bool {
        self.items.contains_key(&key)
    }
    fn send(&mut self, _: CacheId, message: &TierMessage) {
        let key = message.carries_image();
        let image = key.and_then(|key| self.items.get(&key).copied());
        self.sent.push((true, *message, image));
    }
    fn now(&self) -> Instant {
        Instant {
            ns: self.back_end_now,
        }
    }
}

impl CacheHost for Desk {
    fn send(&mut self, _: BackEndId, message: &TierMessage) {
        self.sent.push((false, *message, None));
    }
    fn admits(&mut self, _: BackEndId, _: RouteHash) -> bool {
        !self.declines
    }
    fn has_incoming(&self) -> bool {
        self.incoming.is_some()
    }
    fn store(&mut self, _: BackEndId, key: RouteHash) {
        self.copies.insert(key, self.incoming.unwrap());
    }
    fn remove(&mut self, _: BackEndId, key: RouteHash) {
        assert!(self.copies.remove(&key).is_some(), "only what is there");
    }
    fn now(&self) -> Instant {
        Instant { ns: self.cache_now }
    }
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            back_end: TierBackEnd::new(
                BackEndConfig::with_lease(1, 500 * MS),
                Instant::default(),
                false,
            ),
            cache: TierCache::new(CacheConfig::with_lease(1, 500 * MS)),
            desk: Desk::default(),
        };
        pair.desk.items.insert(KEY, 0);
        pair.back_end
            .step(BackEndEvent::Assign(CACHE), &mut pair.desk);
        pair.cache.step(CacheEvent::Join(BACK_END), &mut pair.desk);
        pair
    }

    fn ask(&mut self, ticket: u64, key: RouteHash, access: Access) {
        let ticket = Ticket(ticket);
        let request = TierRequest {
            ticket,
            key,
            access,
        };
        self.back_end
            .step(BackEndEvent::Request(request), &mut self.desk);
    }

    fn deliver(&mut self, (is_to_cache, message, image): Sent) {
        if is_to_cache {
            self.desk.incoming = image;
            let event = CacheEvent::Message(BACK_END, &message);
            self.cache.step(event, &mut self.desk);
        } else {
            let event = BackEndEvent::Message(CACHE, &message);
            self.back_end.step(event, &mut self.desk);
        }
    }

    /// Delivers all, and what comes of it.
    fn settle(&mut self) {
        while !self.desk.sent.is_empty() {
            let one = self.desk.sent.remove(0);
            self.deliver(one);
        }
    }

    fn fetch(&mut self, key: RouteHash) {
        self.cache
            .step(CacheEvent::Fetch(BACK_END, key), &mut self.desk);
    }

    fn cached(&mut self) -> Self {
        self.settle();
        self.fetch(KEY);
        self.settle();
        assert!(self.back_end.is_cached(KEY) && self.desk.copies.contains_key(&KEY));
        core::mem::replace(self, Self::new())
    }

    fn read_copy(&self) -> Option<u64> {
        let session = self.cache.look(BACK_END, KEY)?;
        let now = Instant {
            ns: self.desk.cache_now,
        };
        let value = self.desk.copies.get(&KEY).copied();
        value.filter(|_| self.cache.shows(BACK_END, session, now))
    }

    fn pass(&mut self, ms: u64) {
        self.desk.back_end_now += ms * MS;
        self.desk.cache_now += ms * MS;
    }
}

#[test]
fn a_write_is_answered_when_the_cache_shows_it() {
    let mut pair = Pair::new().cached();
    pair.ask(1, KEY, Access::Replace);
    pair.ask(2, KEY, Access::Read);
    pair.ask(3, KEY, Access::Update);
    pair.ask(4, KEY, Access::Update);
    pair.ask(5, KEY, Access::Read);
    pair.ask(6, RouteHash(8), Access::Replace);
    assert_eq!(pair.desk.answers, [(Ticket(6), Ok(1))]);
    assert_eq!(pair.back_end.waiting(), (5, 1));
    pair.settle();
    let answers: Vec<_> = pair
        .desk
        .answers
        .drain(1..)
        .map(|(ticket, said)| (ticket.0, said))
        .collect();
    let expected = [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)];
    assert_eq!(answers, expected.map(|(ticket, value)| (ticket, Ok(value))));
    assert_eq!(
        (pair.read_copy(), pair.back_end.waiting()),
        (Some(3), (0, 0))
    );
}

/// Goal: a cache that does not apply an update loses its lease, so that a write ends. Method: all
/// updates are lost, and nothing else is.
#[test]
fn a_cache_that_misses_updates_loses_its_lease() {
    let mut pair = Pair::new().cached();
    pair.ask(1, KEY, Access::Replace);
    for ms in 0..2_000 {
        pair.pass(1);
        pair.cache.step(CacheEvent::Tick, &mut pair.desk);
        pair.back_end.step(BackEndEvent::Tick, &mut pair.desk);
        let sent = core::mem::take(&mut pair.desk.sent);
        let is_update = |message: &TierMessage| message.key_of(KeyMessageKind::Update).is_some();
        let heard = sent.into_iter().filter(|one| !is_update(&one.1));
        heard.for_each(|one| pair.deliver(one));
        if !pair.desk.answers.is_empty() {
            assert!((640..760).contains(&ms), "{ms}");
            assert_eq!(pair.read_copy(), None);
            return;
        }
    }
    panic!("never answered");
}

#[test]
fn a_full_set_revokes_the_oldest_key_and_takes_the_next_one_then() {
    let mut pair = Pair::new().cached();
    let config = BackEndConfig {
        entries_max: 1,
        incarnation: 2,
        ..BackEndConfig::with_lease(2, 500 * MS)
    };
    pair.back_end = TierBackEnd::new(config, Instant::default(), false);
    pair.back_end
        .step(BackEndEvent::Assign(CACHE), &mut pair.desk);
    pair.desk.items.insert(RouteHash(8), 5);
    pair.pass(100);
    pair.cache.step(CacheEvent::Tick, &mut pair.desk);
    pair.settle();
    assert!(pair.desk.copies.is_empty(), "another generation");
    pair.fetch(KEY);
    pair.settle();
    pair.fetch(RouteHash(8));
    pair.settle();
    assert_eq!((pair.back_end.cached(), pair.desk.copies.len()), (0, 0));
    pair.fetch(RouteHash(8));
    pair.settle();
    assert_eq!(pair.desk.copies, BTreeMap::from([(RouteHash(8), 5)]));
}

#[test]
fn a_declined_item_leaves_the_set_and_too_many_waiting_requests_are_refused() {
    let mut pair = Pair::new();
    pair.settle();
    pair.desk.declines = true;
    pair.back_end
        .step(BackEndEvent::Report(KEY), &mut pair.desk);
    assert!(pair.back_end.is_cached(KEY));
    pair.settle();
    assert!(!pair.back_end.is_cached(KEY));
    pair.desk.declines = false;
    let mut pair = pair.cached();
    for ticket in 0..=1024 {
        pair.ask(ticket, KEY, Access::Replace);
    }
    assert_eq!(pair.desk.answers, [(Ticket(1024), Err(TierRefusal::Busy))]);
    pair.settle();
    assert_eq!(pair.desk.answers.len(), 1025);
}

#[test]
fn a_restarted_back_end_refuses_until_its_leases_have_ended() {
    let mut pair = Pair::new();
    let config = BackEndConfig::with_lease(2, 500 * MS);
    pair.back_end = TierBackEnd::new(config, Instant::default(), true);
    pair.ask(1, KEY, Access::Read);
    pair.pass(514);
    pair.ask(2, KEY, Access::Replace);
    pair.pass(1);
    pair.ask(3, KEY, Access::Replace);
    let refused = Err(TierRefusal::Restarted);
    let expected = [(1, refused), (2, refused), (3, Ok(1))];
    assert_eq!(
        pair.desk.answers,
        expected.map(|(ticket, said)| (Ticket(ticket), said))
    );
}

/// A network with chance in it.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        ((u128::from(self.0 >> 16) * u128::from(bound)) >> 48) as u64
    }
}

/// A random run, and what it saw.
struct Walk {
    pair: Pair,
    chance: Chance,
    seed: u64,
    /// Of the two clocks, in thousandths.
    rates: [u64; 2],
    real_ns: u64,
    /// What is on its way, and when it arrives.
    underway: Vec<(u64, Sent)>,
    /// No older value may be shown to a request that arrives now.
    least: u64,
    /// What each request at the back end must at least show.
    asked: BTreeMap<Ticket, u64>,
    /// A reader at the cache: what it looked at, and must at least show.
    looked: Option<(CacheSession, u64, u64)>,
    hits: u64,
    expiries: u64,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let rates = [990, 995, 1000, 1005, 1010];
        Self {
            pair: Pair::new().cached(),
            rates: [0, 1].map(|_| rates[chance.below(5) as usize]),
            chance,
            seed,
            real_ns: 0,
            underway: Vec::new(),
            least: 0,
            asked: BTreeMap::new(),
            looked: None,
            hits: 0,
            expiries: 0,
        }
    }

    fn step(&mut self, ticket: u64) {
        let stands_still = self.chance.below(200) == 0;
        let step_ns = if stands_still {
            300 * MS
        } else {
            self.chance.below(4 * MS)
        };
        self.real_ns += step_ns;
        let desk = &mut self.pair.desk;
        desk.back_end_now += step_ns * self.rates[0] / 1000;
        desk.cache_now += step_ns * self.rates[1] / 1000;
        self.act(Ticket(ticket));
        self.tick();
        self.transmit();
        self.judge_answers();
        self.judge_reader();
    }

    fn act(&mut self, ticket: Ticket) {
        let pair = &mut self.pair;
        match self.chance.below(12) {
            0 => pair.fetch(KEY),
            1 if self.chance.below(4) == 0 => {
                pair.cache
                    .step(CacheEvent::Evict(BACK_END, KEY), &mut pair.desk);
            }
            2 | 3 => {
                self.asked.insert(ticket, self.least);
                let access = match self.chance.below(3) {
                    0 => Access::Replace,
                    _ => Access::Read,
                };
                pair.ask(ticket.0, KEY, access);
            }
            4 | 5 => {
                let session = pair.cache.look(BACK_END, KEY);
                let value = pair.desk.copies.get(&KEY).copied();
                let looked = session.zip(value);
                self.looked = looked.map(|(session, value)| (session, value, self.least));
            }
            _ => {}
        }
    }

    fn tick(&mut self) {
        let pair = &mut self.pair;
        let cache_now = pair.desk.cache_now;
        if pair.cache.deadline().is_some_and(|at| at.ns <= cache_now) {
            pair.cache.step(CacheEvent::Tick, &mut pair.desk);
        }
        let had_lease = pair.back_end.lease_end().is_some();
        pair.back_end.step(BackEndEvent::Tick, &mut pair.desk);
        let is_over = had_lease && pair.back_end.lease_end().is_none();
        self.expiries += u64::from(is_over);
    }

    fn transmit(&mut self) {
        for one in core::mem::take(&mut self.pair.desk.sent) {
            let copies = [1, 1, 1, 1, 1, 1, 0, 2][self.chance.below(8) as usize];
            for _ in 0..copies {
                let is_long = self.chance.below(50) == 0;
                let delay_ns = self.chance.below(if is_long { 700 * MS } else { 3 * MS });
                self.underway.push((self.real_ns + delay_ns, one));
            }
        }
        self.underway.sort_by_key(|one| one.0);
        while self
            .underway
            .first()
            .is_some_and(|one| one.0 <= self.real_ns)
        {
            let (_, one) = self.underway.remove(0);
            self.pair.deliver(one);
        }
    }

    fn judge_answers(&mut self) {
        for (ticket, said) in core::mem::take(&mut self.pair.desk.answers) {
            let (least, value) = (self.asked.remove(&ticket).unwrap(), said.unwrap());
            assert!(value >= least, "seed {}: {value} after {least}", self.seed);
            self.least = self.least.max(value);
        }
    }

    fn judge_reader(&mut self) {
        if self.chance.below(2) == 0 {
            return;
        }
        let Some((session, value, least)) = self.looked.take() else {
            return;
        };
        let now = Instant {
            ns: self.pair.desk.cache_now,
        };
        if self.pair.cache.shows(BACK_END, session, now) {
            assert!(
                value >= least,
                "seed {}: {value} after {least}, cached",
                self.seed
            );
            self.least = self.least.max(value);
            self.hits += 1;
        }
    }
}

/// Goal: nobody reads what is older than a write that was complete, or a value that was read,
/// before the read began, whatever the clocks' rates within 1 %, delays, losses and pauses. Method:
/// the back end orders all writes of a counter, so one number says how old a value may be.
#[test]
fn clocks_delays_and_losses_never_show_an_older_value() {
    let (mut hits, mut expiries) = (0, 0);
    for seed in 0..200 {
        let mut walk = Walk::new(seed);
        (0..3_000).for_each(|ticket| walk.step(ticket));
        (hits, expiries) = (hits + walk.hits, expiries + walk.expiries);
    }
    assert!(hits > 10_000 && expiries > 200, "{hits} {expiries}");
}
