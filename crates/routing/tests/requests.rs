//! Requests through every kind of switch, with real packets: back ends that store, a cache node, a
//! client, and a count of the machines that each request visits.
//!
//! Back ends and cache node are the simplest that speak the protocol: what is shown here is the
//! network's part. XDP and Open vSwitch need root and network namespaces (`namespace.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what cannot be set up fails the test"
)]

#[path = "../../runtime/tests/nic/namespace.rs"]
mod namespace;
#[allow(dead_code, reason = "the suite of rules uses the rest")]
mod support;

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use curtail_codec::tiered::{
    AddressClass, DATAGRAM_BYTES_MAX, HostId, TierAddress, TierSecret, TieredDatagram, TieredFlags,
    TieredHead, TieredOpcode, TieredStatus,
};
use curtail_types::{Cas, HashSeed, Key, KeyAddress};
use curtail_workload::Random;

use support::{
    BACK_ENDS, CACHES, CLIENT, CLIENT_HOST, IPV6, Kind, LAG_MAX, MAC, Testbed, destination, key,
    port, rule,
};

const SECRET: TierSecret = TierSecret(HashSeed([3, 4]));
const EPOCH: u32 = 6;
const CACHE: usize = CACHES[0];

#[test]
fn in_user_space() {
    run(Kind::User);
}

#[test]
fn xdp_with_ipv6_addresses() {
    run(Kind::Xdp(IPV6));
}

#[test]
fn xdp_with_mac_addresses() {
    run(Kind::Xdp(MAC));
}

#[test]
fn open_vswitch_with_ipv6_addresses() {
    run(Kind::OpenVswitch(IPV6));
}

#[test]
fn open_vswitch_with_mac_addresses() {
    run(Kind::OpenVswitch(MAC));
}

fn run(kind: Kind) {
    let name = thread::current().name().map(str::to_owned);
    let does = move || {
        let Some(bed) = Testbed::new(kind, 100) else {
            return;
        };
        let mut tier = Tier::new(bed);
        cached_and_uncached(&mut tier);
        stale_and_colliding(&mut tier);
        strays(&mut tier);
        many_requests(&mut tier);
        assert!(tier.losses <= LOSSES_MAX, "{} losses", tier.losses);
    };
    let builder = thread::Builder::new().name(name.unwrap_or_default());
    let ended = builder.spawn(does).unwrap().join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// An uncached `get` visits its back end and nobody else; a cached one the cache node and nobody
/// else; a retry bypasses the cache node, and a `put` goes to the back end.
fn cached_and_uncached(tier: &mut Tier) {
    let item = Item::new(BACK_ENDS[0], 1);
    let stored = tier.ask(tier.put(&item, b"first"));
    assert_eq!(
        (stored.status, stored.visited),
        (TieredStatus::Done, vec![BACK_ENDS[0]])
    );
    let uncached = tier.ask(tier.get(&item));
    assert_eq!(
        (&uncached.value[..], uncached.visited),
        (&b"first"[..], vec![BACK_ENDS[0]])
    );
    assert!(!uncached.from_cache);
    tier.fetch(&item);
    tier.install(&item);
    let cached = tier.ask_until(|tier| tier.get(&item), &[CACHE]);
    assert_eq!(
        (&cached.value[..], cached.from_cache),
        (&b"first"[..], true)
    );
    let retry = tier.ask(tier.retry(&item));
    assert_eq!(
        (retry.visited, retry.from_cache),
        (vec![BACK_ENDS[0]], false)
    );
    let put = tier.ask(tier.put(&item, b"second"));
    assert_eq!(put.visited, [BACK_ENDS[0]]);
    // This back end tells no cache; the real one updates it.
    tier.fetch(&item);
    assert_eq!(tier.ask(tier.get(&item)).value, b"second");
    let unknown = tier.ask(tier.get(&Item::new(BACK_ENDS[2], 77)));
    assert_eq!(
        (unknown.status, unknown.visited),
        (TieredStatus::NotFound, vec![BACK_ENDS[2]])
    );
}

/// A rule that outlives its key, and a key whose tag another, cached key has: one visit more, and
/// the right answer (SW-11, SW-19).
fn stale_and_colliding(tier: &mut Tier) {
    let item = Item::new(BACK_ENDS[1], 2);
    tier.ask(tier.put(&item, b"value"));
    tier.fetch(&item);
    tier.install(&item);
    tier.ask_until(|tier| tier.get(&item), &[CACHE]);
    let twin = Item {
        name: "the same tag".to_string(),
        ..item.clone()
    };
    tier.ask(tier.put(&twin, b"another"));
    let colliding = tier.ask(tier.get(&twin));
    assert_eq!(colliding.visited, [CACHE, BACK_ENDS[1]]);
    assert_eq!(
        (&colliding.value[..], colliding.from_cache),
        (&b"another"[..], false)
    );
    tier.cache.clear();
    let stale = tier.ask(tier.get(&item));
    assert_eq!(stale.visited, [CACHE, BACK_ENDS[1]]);
    assert_eq!(stale.value, b"value");
    tier.bed.switch().delete(&[item.address]).unwrap();
    tier.ask_until(|tier| tier.get(&item), &[BACK_ENDS[1]]);
}

/// A back end that does not own a key says so with its epoch (SW-13). A cache node that gets what
/// is not for it, because the switch is told nonsense, drops and counts it: nothing circulates.
fn strays(tier: &mut Tier) {
    let item = Item::new(BACK_ENDS[2], 3);
    tier.moved.insert(item.address);
    let wrong = tier.ask(tier.get(&item));
    assert_eq!(
        (wrong.status, wrong.epoch),
        (TieredStatus::WrongPartition, EPOCH + 1)
    );
    tier.moved.clear();
    let route = destination(BACK_ENDS[2]);
    tier.bed.switch().connect(route, Some(port(CACHE))).unwrap();
    let deadline = Instant::now() + LAG_MAX;
    while tier.dropped == 0 {
        assert!(Instant::now() < deadline, "nothing was dropped");
        let flagged = tier.retry(&item);
        tier.try_ask(&flagged, Duration::from_millis(100));
    }
    tier.bed
        .switch()
        .connect(route, Some(port(BACK_ENDS[2])))
        .unwrap();
    tier.ask_until(|tier| tier.retry(&item), &[BACK_ENDS[2]]);
}

/// Many requests, some keys cached: every answer is right and from the right machine, and no
/// uncached request sees a machine in between.
fn many_requests(tier: &mut Tier) {
    let items: Vec<Item> = (0..30)
        .map(|n| Item::new(BACK_ENDS[n % 3], 100 + n as u64))
        .collect();
    for item in &items {
        tier.ask(tier.put(item, item.name.as_bytes()));
    }
    for item in &items[..10] {
        tier.fetch(item);
        tier.install(item);
        tier.ask_until(|tier| tier.get(item), &[CACHE]);
    }
    let mut random = Random::new(9);
    let mut answered = [0; 2];
    for _ in 0..600 {
        let at = random.below(30) as usize;
        let (item, is_cached) = (&items[at], at < 10);
        let answer = tier.ask(tier.get(item));
        let expected = if is_cached { CACHE } else { item.back_end };
        assert_eq!(answer.visited, [expected], "{}", item.name);
        assert_eq!(answer.value, item.name.as_bytes());
        assert_eq!(answer.from_cache, is_cached);
        answered[usize::from(is_cached)] += 1;
    }
    assert!(answered.iter().all(|count| *count > 100), "{answered:?}");
    // The switch has counted them at the rules.
    let keys: Vec<KeyAddress> = items[..10].iter().map(|item| item.address).collect();
    tier.bed
        .eventually("all cached requests are counted", |bed| {
            let all = bed.switch().dump().unwrap();
            let its = all.iter().filter(|one| keys.contains(&one.rule.key));
            its.map(|one| one.packets).sum::<u64>() >= answered[1]
        });
}

#[derive(Clone, Debug)]
struct Item {
    name: String,
    address: KeyAddress,
    back_end: usize,
}

impl Item {
    fn new(back_end: usize, number: u64) -> Self {
        Self {
            name: format!("key {number}"),
            address: key(back_end, number),
            back_end,
        }
    }
}

/// What a client was told, and which machines its request visited on the way.
#[derive(Debug)]
struct Answer {
    visited: Vec<usize>,
    status: TieredStatus,
    epoch: u32,
    from_cache: bool,
    value: Vec<u8>,
}

/// The machines on their network.
struct Tier {
    bed: Testbed,
    stores: HashMap<usize, HashMap<Vec<u8>, Vec<u8>>>,
    cache: HashMap<Vec<u8>, Vec<u8>>,
    /// Keys that have another back end since the client learned its map.
    moved: HashSet<KeyAddress>,
    /// What the cache node got and was not for it.
    dropped: u64,
    sequence: std::cell::Cell<u64>,
    /// Requests that had to be sent again.
    losses: u64,
}

/// Packets that may be lost in one run, and in a row.
const LOSSES_MAX: u64 = 5;

impl Tier {
    fn new(bed: Testbed) -> Self {
        Self {
            bed,
            stores: BACK_ENDS.iter().map(|at| (*at, HashMap::new())).collect(),
            cache: HashMap::new(),
            moved: HashSet::new(),
            dropped: 0,
            sequence: std::cell::Cell::new(1),
            losses: 0,
        }
    }

    fn get(&self, item: &Item) -> Vec<u8> {
        let address = TierAddress::get(item.address);
        self.request(TieredHead::new(TieredOpcode::Get, address), item, b"")
    }

    fn retry(&self, item: &Item) -> Vec<u8> {
        let address = TierAddress::back_end(item.address);
        let mut head = TieredHead::new(TieredOpcode::Get, address);
        head.flags = TieredFlags::RETRY;
        self.request(head, item, b"")
    }

    fn put(&self, item: &Item, value: &[u8]) -> Vec<u8> {
        let address = TierAddress::back_end(item.address);
        self.request(TieredHead::new(TieredOpcode::Put, address), item, value)
    }

    fn request(&self, mut head: TieredHead, item: &Item, value: &[u8]) -> Vec<u8> {
        head.sequence = self.sequence.get();
        head.sender = CLIENT_HOST.0;
        head.epoch = EPOCH;
        self.sequence.set(head.sequence + 1);
        bytes_of(head, item.name.as_bytes(), value)
    }

    fn install(&mut self, item: &Item) {
        self.bed
            .switch()
            .install(&[rule(item.address, 0, 1)])
            .unwrap();
    }

    /// The cache node asks the back end for a copy, and gets it.
    fn fetch(&mut self, item: &Item) {
        self.cache.remove(item.name.as_bytes());
        let head = TieredHead {
            generation: 1,
            sequence: self.sequence.get(),
            ..TieredHead::new(TieredOpcode::Fetch, TierAddress::back_end(item.address))
        };
        let fetch = bytes_of(head, item.name.as_bytes(), b"");
        for _ in 0..LOSSES_MAX {
            let deadline = Instant::now() + Duration::from_secs(2);
            self.bed.machines[CACHE].send(head.address, &fetch);
            while Instant::now() < deadline {
                self.step();
                if self.cache.contains_key(item.name.as_bytes()) {
                    return;
                }
            }
            self.losses += 1;
        }
        panic!("no item in {LOSSES_MAX} attempts");
    }

    /// Sends a request, and runs the machines until its answer is there. Open vSwitch drops a
    /// packet now and then while it revalidates; a client sends it again, under another number.
    fn ask(&mut self, mut request: Vec<u8>) -> Answer {
        for _ in 0..LOSSES_MAX {
            if let Some(answer) = self.try_ask(&request, Duration::from_secs(2)) {
                return answer;
            }
            self.losses += 1;
            let asked = TieredDatagram::decode(&request, None).unwrap();
            let head = TieredHead {
                sequence: self.sequence.get(),
                ..asked.head
            };
            self.sequence.set(head.sequence + 1);
            request = bytes_of(head, asked.key.unwrap().bytes(), asked.value);
        }
        panic!("no answer in {LOSSES_MAX} attempts");
    }

    /// Asks again until the request visits these machines: switches may lag behind what they were
    /// told.
    fn ask_until(&mut self, request: impl Fn(&Self) -> Vec<u8>, visited: &[usize]) -> Answer {
        let deadline = Instant::now() + LAG_MAX;
        loop {
            let asked = request(self);
            let answer = self.try_ask(&asked, Duration::from_millis(200));
            match answer {
                Some(answer) if answer.visited == visited => return answer,
                other => assert!(Instant::now() < deadline, "{other:?}, not by {visited:?}"),
            }
        }
    }

    fn try_ask(&mut self, request: &[u8], patience: Duration) -> Option<Answer> {
        let asked = TieredDatagram::decode(request, None).unwrap().head;
        self.bed.machines[CLIENT].send(asked.address, request);
        let deadline = Instant::now() + patience;
        let mut visited = Vec::new();
        while Instant::now() < deadline {
            let Some((at, datagram)) = self.step() else {
                continue;
            };
            let received = TieredDatagram::decode(&datagram, Some(&SECRET)).unwrap();
            if received.head.sequence != asked.sequence {
                continue;
            }
            if at != CLIENT {
                visited.push(at);
                continue;
            }
            assert_eq!(received.head.opcode, TieredOpcode::Reply);
            return Some(Answer {
                visited,
                status: received.head.status,
                epoch: received.head.epoch,
                from_cache: received.head.flags.has(TieredFlags::FROM_CACHE),
                value: received.value.to_vec(),
            });
        }
        None
    }

    /// One datagram at one machine, which does with it what such a machine does.
    fn step(&mut self) -> Option<(usize, Vec<u8>)> {
        let Some((at, datagram)) = self.bed.receive() else {
            thread::sleep(Duration::from_micros(100));
            return None;
        };
        let received = TieredDatagram::decode(&datagram, Some(&SECRET)).unwrap();
        let out = match at {
            CLIENT => None,
            at if BACK_ENDS.contains(&at) => self.at_back_end(at, &received),
            _ => self.at_cache(&received),
        };
        if let Some((to, out)) = out {
            self.bed.machines[at].send(to, &out);
        }
        Some((at, datagram))
    }

    fn at_back_end(
        &mut self,
        at: usize,
        received: &TieredDatagram<'_>,
    ) -> Option<(TierAddress, Vec<u8>)> {
        let (head, key) = (received.head, received.key.unwrap().bytes());
        let store = self.stores.get_mut(&at).unwrap();
        let client = TierAddress::host(HostId(head.sender));
        if self.moved.contains(&head.address.key) {
            let mut reply = head.reply(client, TieredStatus::WrongPartition);
            reply.epoch = EPOCH + 1;
            return Some((client, bytes_of(reply, key, b"")));
        }
        match head.opcode {
            TieredOpcode::Get => Some((client, answer(&head, client, key, store.get(key)))),
            TieredOpcode::Put => {
                store.insert(key.to_vec(), received.value.to_vec());
                let reply = head.reply(client, TieredStatus::Done);
                Some((client, bytes_of(reply, key, b"")))
            }
            TieredOpcode::Fetch => {
                let to = TierAddress::host(HostId(0));
                let head = TieredHead {
                    generation: head.generation,
                    number: 1,
                    version: Cas(1),
                    sequence: head.sequence,
                    ..TieredHead::new(TieredOpcode::Item, to)
                };
                Some((to, bytes_of(head, key, &store[key])))
            }
            other => panic!("{other:?} at a back end"),
        }
    }

    fn at_cache(&mut self, received: &TieredDatagram<'_>) -> Option<(TierAddress, Vec<u8>)> {
        let (head, key) = (received.head, received.key.unwrap().bytes());
        match head.opcode {
            TieredOpcode::Get if head.address.class == AddressClass::CachedGet => {
                let client = TierAddress::host(HostId(head.sender));
                if let Some(value) = self.cache.get(key) {
                    let mut reply = head.reply(client, TieredStatus::Done);
                    reply.flags = TieredFlags::FROM_CACHE;
                    return Some((client, bytes_of(reply, key, value)));
                }
                let head = head.passed_on();
                Some((head.address, bytes_of(head, key, b"")))
            }
            TieredOpcode::Item => {
                self.cache.insert(key.to_vec(), received.value.to_vec());
                None
            }
            _ => {
                self.dropped += 1;
                None
            }
        }
    }
}

fn answer(head: &TieredHead, to: TierAddress, key: &[u8], value: Option<&Vec<u8>>) -> Vec<u8> {
    match value {
        Some(value) => bytes_of(head.reply(to, TieredStatus::Done), key, value),
        None => bytes_of(head.reply(to, TieredStatus::NotFound), key, b""),
    }
}

fn bytes_of(head: TieredHead, key: &[u8], value: &[u8]) -> Vec<u8> {
    let key = Key::new(key).ok();
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let datagram = TieredDatagram { head, key, value };
    let bytes = datagram.encode(&mut out, Some(&SECRET)).unwrap();
    out[..bytes].to_vec()
}
