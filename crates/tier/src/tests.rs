//! A whole tier on loopback, its nodes as threads of this process.

mod histories;
mod rough_network;

use std::{
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use curtail_client::tier::{TierSession, TierTarget};
use curtail_consistency::tiered::{BackEndId, CacheId, RuleBudget, TierMutant};

use self::rough_network::{RoughLink, Roughness};
use crate::{
    BackEndNode, BackEndOptions, CacheNode, CacheOptions, NodeStatus, NodeThread, StoreOptions,
    StorePlace, SwitchNode, SwitchOptions, TierFile, TierFileNetwork, ask_status,
};

/// The nodes of a tier.
pub(crate) struct LoopbackTier {
    pub(crate) file: TierFile,
    /// As the switch sees it: a link may be rough.
    switch_file: TierFile,
    switch: Option<NodeThread>,
    caches: Vec<Option<NodeThread>>,
    back_ends: Vec<Option<NodeThread>>,
    /// Directories of back ends on disk.
    disks: Vec<tempfile::TempDir>,
    options: LoopbackOptions,
    _links: Vec<RoughLink>,
}

#[derive(Clone, Debug)]
pub(crate) struct LoopbackOptions {
    pub(crate) back_ends: usize,
    pub(crate) limit_per_s: u64,
    pub(crate) is_on_disk: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) lease_ms: u64,
    pub(crate) period_ms: u64,
    pub(crate) capacity: usize,
    pub(crate) rules: RuleBudget,
    pub(crate) roughness: Option<Roughness>,
    pub(crate) mutant: Option<TierMutant>,
}

impl Default for LoopbackOptions {
    fn default() -> Self {
        Self {
            back_ends: 2,
            limit_per_s: 0,
            is_on_disk: false,
            memory_bytes: 8 << 20,
            lease_ms: 500,
            period_ms: 100,
            capacity: 16,
            rules: RuleBudget {
                per_s: 1000,
                burst: 10,
                queue_max: 1000,
                delay_max_ns: 50_000_000,
            },
            roughness: None,
            mutant: None,
        }
    }
}

impl LoopbackTier {
    pub(crate) fn start(options: LoopbackOptions) -> Self {
        let free = |count: usize| -> Vec<SocketAddr> {
            let any = (std::net::Ipv4Addr::LOCALHOST, 0);
            let sockets: Vec<_> = (0..count).map(|_| UdpSocket::bind(any).unwrap()).collect();
            let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap());
            addresses.collect()
        };
        let ports = free(options.back_ends + 3);
        let mut file = TierFile {
            secret: "0123456789abcdeffedcba9876543210".to_string(),
            epoch: 1,
            lease_ms: options.lease_ms,
            period_ms: options.period_ms,
            network: TierFileNetwork::Forwarder(ports[0]),
            control: ports[1],
            caches: vec![ports[2]],
            back_ends: ports[3..].to_vec(),
        };
        let mut switch_file = file.clone();
        let mut links = Vec::new();
        if let Some(roughness) = options.roughness {
            let mut rough = |to: SocketAddr| {
                let seed = links.len() as u64 + 1;
                let link = RoughLink::start(to, roughness, seed);
                let address = link.address();
                links.push(link);
                address
            };
            file.network = TierFileNetwork::Forwarder(rough(ports[0]));
            switch_file
                .caches
                .iter_mut()
                .for_each(|at| *at = rough(*at));
            switch_file
                .back_ends
                .iter_mut()
                .for_each(|at| *at = rough(*at));
        }
        let mut tier = Self {
            switch_file,
            switch: None,
            caches: vec![None],
            back_ends: (0..options.back_ends).map(|_| None).collect(),
            disks: (0..options.back_ends)
                .map(|_| tempfile::tempdir().unwrap())
                .collect(),
            file,
            options,
            _links: links,
        };
        tier.start_switch();
        (0..tier.options.back_ends).for_each(|id| tier.start_back_end(id));
        tier.start_cache();
        tier
    }

    pub(crate) fn start_switch(&mut self) {
        let node = SwitchNode::start(&self.switch_file, &SwitchOptions { capacity: 1000 });
        self.switch = Some(NodeThread::start("switch", node.unwrap()).unwrap());
    }

    pub(crate) fn stop_switch(&mut self) {
        self.switch = None;
    }

    pub(crate) fn start_cache(&mut self) {
        let options = CacheOptions {
            id: CacheId(0),
            capacity: self.options.capacity,
            rules: self.options.rules,
        };
        let mut node = CacheNode::start(&self.file, &options).unwrap();
        if let Some(mutant) = self.options.mutant {
            node = node.with_mutant(mutant);
        }
        self.caches[0] = Some(NodeThread::start("cache", node).unwrap());
    }

    pub(crate) fn stop_cache(&mut self) {
        self.caches[0] = None;
    }

    pub(crate) fn start_back_end(&mut self, id: usize) {
        let place = match self.options.is_on_disk {
            true => StorePlace::Disk {
                directory: self.disks[id].path().join("data"),
                durability: curtail_storage::Durability::Sync,
            },
            false => StorePlace::Memory,
        };
        let options = BackEndOptions {
            id: BackEndId(id as u16),
            store: StoreOptions {
                place,
                memory_bytes: self.options.memory_bytes,
            },
            limit_per_s: self.options.limit_per_s,
            reported: 5,
            sends_bursts: true,
        };
        let mut node = BackEndNode::start(&self.file, &options).unwrap();
        if let Some(mutant) = self.options.mutant {
            node = node.with_mutant(mutant);
        }
        let thread = NodeThread::start(&format!("back-end-{id}"), node).unwrap();
        self.back_ends[id] = Some(thread);
    }

    pub(crate) fn stop_back_end(&mut self, id: usize) {
        self.back_ends[id] = None;
    }

    pub(crate) fn client(&self, number: u32) -> TierSession {
        let target = TierTarget {
            network: self.file.network(),
            map: self.file.map(),
        };
        TierSession::open(target, 256 + number).unwrap()
    }

    pub(crate) fn cache_status(&self) -> NodeStatus {
        ask_status(self.file.caches[0], &self.file.secret()).unwrap()
    }

    pub(crate) fn back_end_status(&self, id: usize) -> NodeStatus {
        ask_status(self.file.back_ends[id], &self.file.secret()).unwrap()
    }

    pub(crate) fn switch_status(&self) -> NodeStatus {
        ask_status(self.file.control, &self.file.secret()).unwrap()
    }
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Goal: the whole path of a key that becomes hot: back end, report, copy, rule, hits, updates,
/// deletion. Method: one client; what a reply says of who answered.
#[test]
fn a_hot_key_moves_to_the_cache_and_stays_true() {
    let tier = LoopbackTier::start(LoopbackOptions::default());
    let mut client = tier.client(1);
    assert_eq!(client.get(b"hot").unwrap(), None);
    client.put(b"hot", b"first", 7, None).unwrap();
    let found = client.get(b"hot").unwrap().unwrap();
    assert_eq!((&found.value[..], found.flags), (&b"first"[..], 7));
    let is_cached = |client: &mut TierSession| {
        let found = client.get(b"hot").unwrap().unwrap();
        found.is_from_cache
    };
    eventually("the cache node answers", || is_cached(&mut client));
    for round in 0..200_u32 {
        let value = round.to_le_bytes();
        let version = client.put(b"hot", &value, round, None).unwrap();
        let found = client.get(b"hot").unwrap().unwrap();
        assert_eq!((&found.value[..], found.version), (&value[..], version));
        assert_eq!(found.flags, round);
    }
    let status = tier.cache_status();
    assert!(status.get("hits") > 100, "{status:?}");
    assert!(status.get("updates") > 100, "{status:?}");
    assert_eq!(status.get("leases"), 2);
    assert!(client.delete(b"hot").unwrap());
    assert_eq!(client.get(b"hot").unwrap(), None);
    assert!(!client.delete(b"hot").unwrap());
    eventually("its rule is withdrawn", || {
        tier.switch_status().get("rules") == 0
    });
}

/// Goal: an uncached request sees its back end alone; a cached one the cache alone; after the cache
/// is gone, requests go to back ends. Method: what the nodes have counted.
#[test]
fn requests_see_one_machine() {
    let mut tier = LoopbackTier::start(LoopbackOptions {
        capacity: 4,
        ..LoopbackOptions::default()
    });
    let mut client = tier.client(1);
    client.put(b"hot", b"value", 0, None).unwrap();
    let from_cache = |client: &mut TierSession, key: &[u8]| {
        let found = client.get(key).unwrap();
        found.is_some_and(|found| found.is_from_cache)
    };
    eventually("it is cached", || from_cache(&mut client, b"hot"));
    let served = |tier: &LoopbackTier| -> u64 {
        (0..2).map(|id| tier.back_end_status(id).get("gets")).sum()
    };
    // On a busy machine an answer may be late; the request is then sent again, to its back end.
    let (cache, back_ends) = (tier.cache_status(), served(&tier));
    let before = client.repeated();
    for number in 0..400_u32 {
        let key = format!("cold {number}");
        assert_eq!(client.get(key.as_bytes()).unwrap(), None);
    }
    let after = tier.cache_status();
    let (hits, others) = (cache.get("gets"), after.get("gets"));
    assert_eq!(hits, others, "no uncached request sees the cache");
    let once = back_ends + 400..=back_ends + 400 + client.repeated() - before;
    assert!(once.contains(&served(&tier)), "{once:?}");
    let (back_ends, before) = (served(&tier), client.repeated());
    let hits = (0..100).filter(|_| from_cache(&mut client, b"hot")).count() as u64;
    let repeated = client.repeated() - before;
    assert!(hits + repeated >= 100, "{hits} hits, {repeated} repeated");
    let seen = served(&tier) - back_ends;
    assert!(
        seen <= repeated,
        "{seen}: no cached request sees a back end"
    );

    tier.stop_cache();
    assert!(
        !from_cache(&mut client, b"hot"),
        "a retry goes past the cache node"
    );
    let began = Instant::now();
    client.put(b"hot", b"other", 0, None).unwrap();
    let waited = began.elapsed();
    assert!(
        waited < Duration::from_millis(1500),
        "a lease at most: {waited:?}"
    );
    eventually("the rules are deleted", || {
        tier.switch_status().get("rules") == 0
    });
    assert_eq!(client.get(b"hot").unwrap().unwrap().value, b"other");

    tier.start_cache();
    eventually("it is cached again", || from_cache(&mut client, b"hot"));
    assert_eq!(client.get(b"hot").unwrap().unwrap().value, b"other");
}

/// Goal: a key that bursts at a loaded back end is cached at once. Method: a period of reports that
/// is longer than the test.
#[test]
fn a_burst_is_cached_before_the_period_ends() {
    let tier = LoopbackTier::start(LoopbackOptions {
        limit_per_s: 500,
        period_ms: 600_000,
        ..LoopbackOptions::default()
    });
    let mut client = tier.client(1);
    client.put(b"hot", b"value", 0, None).unwrap();
    eventually("the cache node answers", || {
        let found = client.get(b"hot").unwrap();
        found.is_some_and(|found| found.is_from_cache)
    });
    assert_eq!(tier.cache_status().get("reports"), 0);
    let sent = (0..2).map(|id| tier.back_end_status(id).get("bursts_sent"));
    let sent = sent.sum::<u64>();
    assert!((1..4).contains(&sent), "{sent}: one burst is one report");
}

/// A switch that comes back has no rules, and gets them again from the cache.
#[test]
fn a_switch_that_restarts_gets_its_rules_again() {
    let mut tier = LoopbackTier::start(LoopbackOptions::default());
    let mut client = tier.client(1);
    for key in [b"a", b"b", b"c"] {
        client.put(key, b"value", 0, None).unwrap();
    }
    let mut all_cached = || {
        let cached = [b"a", b"b", b"c"].map(|key| client.get(key).unwrap().unwrap().is_from_cache);
        cached == [true; 3]
    };
    eventually("they are cached", &mut all_cached);
    tier.stop_switch();
    tier.start_switch();
    eventually("they are cached again", &mut all_cached);
    eventually("all rules are there", || {
        tier.switch_status().get("rules") == 3
    });
    assert_eq!(tier.cache_status().get("rules_lost_by_switch"), 1);
}

/// Bad input is counted and answered as it should be, and changes nothing.
#[test]
fn strays_and_forgeries_change_nothing() {
    use curtail_codec::tiered::*;
    use curtail_types::{HashSeed, Key};
    let tier = LoopbackTier::start(LoopbackOptions::default());
    let mut client = tier.client(1);
    client.put(b"key", b"value", 0, None).unwrap();
    let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let key = Key::new(b"key").ok();
    let address = tier.file.map().address(PartitionMap::route(key.unwrap()));
    let owner = usize::from(address.back_end.0);
    let send = |head: TieredHead, secret: TierSecret, to: SocketAddr| {
        let mut out = [0; DATAGRAM_BYTES_MAX];
        let has_key = !matches!(head.opcode, TieredOpcode::Renew | TieredOpcode::Status);
        let datagram = TieredDatagram {
            head,
            key: key.filter(|_| has_key),
            value: &[],
        };
        let bytes = datagram.encode(&mut out, Some(&secret)).unwrap();
        socket.send_to(&out[..bytes], to).unwrap();
    };
    let back_end = tier.file.back_ends[owner];
    let count = |name: &str| tier.back_end_status(owner).get(name);
    // Forged: another secret.
    let forged = TierSecret(HashSeed([1, 2]));
    let mut dropped = TieredHead::new(TieredOpcode::Dropped, TierAddress::back_end(address));
    (dropped.sequence, dropped.generation, dropped.number) = (u64::MAX, 1, u64::MAX);
    send(dropped, forged, back_end);
    eventually("the forgery is counted", || count("malformed") == 1);
    // A client whose address is not of a closed network gets nothing.
    let mut get = TieredHead::new(TieredOpcode::Get, TierAddress::get(address));
    get.sender = 999;
    get.client_ip = std::net::Ipv4Addr::new(8, 8, 8, 8)
        .to_ipv6_mapped()
        .octets();
    get.client_port = 53;
    send(get, forged, back_end);
    eventually("it is counted", || count("malformed") == 2);
    // A request to a back end that does not have the key.
    let own = socket.local_addr().unwrap();
    get.client_ip = crate::status::mapped(own);
    get.client_port = own.port();
    send(get, forged, tier.file.back_ends[1 - owner]);
    let mut room = [0; 2048];
    let bytes = socket.recv(&mut room).unwrap();
    let reply = TieredDatagram::decode(&room[..bytes], None).unwrap();
    assert_eq!(reply.head.status, TieredStatus::WrongPartition);
    assert_eq!(reply.head.epoch, 1);
    // What was passed on does not circulate: a cache node drops it.
    let mut passed = get.passed_on();
    passed.sender = 999;
    send(passed, forged, tier.file.caches[0]);
    eventually("the cache drops it", || {
        tier.cache_status().get("strays") == 1
    });
    assert!(
        ask_status(back_end, &forged).is_err(),
        "no counters without the secret"
    );
    assert_eq!(client.get(b"key").unwrap().unwrap().value, b"value");
}

/// A back end that is limited says so; a full memory refuses writes and goes on reading.
#[test]
fn limits_are_answered() {
    let tier = LoopbackTier::start(LoopbackOptions {
        memory_bytes: 4000,
        ..LoopbackOptions::default()
    });
    let mut client = tier.client(1);
    let mut refused = 0;
    for number in 0..60_u32 {
        let key = number.to_le_bytes();
        match client.put(&key, &[7; 100], 0, None) {
            Ok(_) => assert!(client.get(&key).unwrap().is_some()),
            Err(curtail_client::tier::TierClientError::Refused) => {
                refused += 1;
                assert_eq!(client.get(&key).unwrap(), None);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!((20..50).contains(&refused), "{refused}");
    let past = client.put(&[0; 4], &[7; 100], 0, Some(1));
    assert!(past.is_ok(), "what is there is replaced");
    assert_eq!(client.get(&[0; 4]).unwrap(), None, "it ended long ago");
    let long = client.put(&[1; 251], b"", 0, None);
    assert!(matches!(
        long,
        Err(curtail_client::tier::TierClientError::TooLong)
    ));
    let large = client.put(b"key", &[0; 1400], 0, None);
    assert!(matches!(
        large,
        Err(curtail_client::tier::TierClientError::TooLong)
    ));
}

/// Goal: data larger than memory is served from disk, and is there after a restart. Method: items
/// of many times the memory, with overwrites and deletions.
#[test]
fn a_back_end_on_disk_serves_more_than_its_memory_and_restarts() {
    let mut tier = LoopbackTier::start(LoopbackOptions {
        is_on_disk: true,
        memory_bytes: 20_000,
        ..LoopbackOptions::default()
    });
    let mut client = tier.client(1);
    let value = |number: u32, round: u8| {
        let mut value = vec![round; 300];
        value[..4].copy_from_slice(&number.to_le_bytes());
        value
    };
    for number in 0..600_u32 {
        let key = format!("key {number}");
        client
            .put(key.as_bytes(), &value(number, 1), number, None)
            .unwrap();
    }
    for number in (0..600_u32).step_by(3) {
        let key = format!("key {number}");
        client
            .put(key.as_bytes(), &value(number, 2), number, None)
            .unwrap();
    }
    for number in (0..600_u32).step_by(7) {
        assert!(client.delete(format!("key {number}").as_bytes()).unwrap());
    }
    let check = |client: &mut TierSession| {
        for number in 0..600_u32 {
            let found = client.get(format!("key {number}").as_bytes()).unwrap();
            let round = if number % 3 == 0 { 2 } else { 1 };
            let expected = (number % 7 != 0).then(|| value(number, round));
            assert_eq!(found.map(|found| found.value), expected, "{number}");
        }
    };
    check(&mut client);
    for id in 0..2 {
        let bytes = tier.back_end_status(id).get("bytes_in_memory");
        // All of its items have 130,000; those that the cache may have are kept in memory.
        assert!(bytes <= 60_000, "{bytes}");
        tier.stop_back_end(id);
        tier.start_back_end(id);
    }
    check(&mut client);
    assert!(!client.delete(b"key 0").unwrap(), "it was deleted");
}
