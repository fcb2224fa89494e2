//! A whole tier, its nodes as threads of this process: the same tests on every kind of switch
//! (SW-89).

mod gate;
mod group;
mod histories;
mod patient_client;
mod rough_network;
mod switch_faults;
mod test_tier;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use curtail_client::tier::{TierSession, TierTarget, bind_towards};
use curtail_testing::undisturbed;

use self::{
    rough_network::Roughness,
    test_tier::{SwitchKind, TestOptions, TestTier},
};
use crate::{TierBaseline, TrialNamespaces, UpdateMode, ask_status, back_end_store::ITEM_BYTES};

/// Makes a test of each function for every kind of switch.
macro_rules! on_every_switch {
    ($($name:ident),* $(,)?) => {
        mod in_user_space {
            $(#[test] fn $name() { super::$name(super::SwitchKind::UserSpace); })*
        }
        mod with_xdp {
            $(#[test] fn $name() {
                let kind = super::SwitchKind::Xdp;
                if !kind.is_skipped() { super::$name(kind); }
            })*
        }
        mod with_open_vswitch {
            $(#[test] fn $name() {
                let kind = super::SwitchKind::OpenVswitch;
                if !kind.is_skipped() { super::$name(kind); }
            })*
        }
        mod with_xdp_by_mac {
            $(#[test] fn $name() {
                let kind = super::SwitchKind::XdpByMac;
                if !kind.is_skipped() { super::$name(kind); }
            })*
        }
        mod with_open_vswitch_by_mac {
            $(#[test] fn $name() {
                let kind = super::SwitchKind::OpenVswitchByMac;
                if !kind.is_skipped() { super::$name(kind); }
            })*
        }
    };
}
use on_every_switch;

on_every_switch!(
    a_hot_key_moves_to_the_cache_and_stays_true,
    requests_see_one_machine,
    baselines_see_one_machine_more,
    a_cache_that_dies_costs_a_lease_at_most,
    a_burst_is_cached_before_the_period_ends,
    what_the_back_ends_send_decides_what_is_cached,
    the_rule_buffer_adds_before_it_evicts,
    strays_and_forgeries_change_nothing,
    limits_are_answered,
    a_back_end_on_disk_serves_more_than_its_memory_and_restarts,
);

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Of a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);

/// A lease that no pause of this machine ends. Back ends wait for as long when they start.
fn long_lease() -> TestOptions {
    TestOptions {
        lease_ms: 4000,
        ..TestOptions::default()
    }
}

fn from_cache(client: &mut TierSession, key: &[u8]) -> bool {
    let found = client.get(key).unwrap();
    found.is_some_and(|found| found.is_from_cache)
}

/// Goal: the whole path of a key that becomes hot: back end, report, copy, rule, hits, updates,
/// deletion. Method: one client; what a reply says of who answered.
fn a_hot_key_moves_to_the_cache_and_stays_true(kind: SwitchKind) {
    let tier = TestTier::start(kind, long_lease());
    let mut client = tier.client(1);
    assert_eq!(client.get(b"hot").unwrap(), None);
    client.put(b"hot", b"first", 7, None).unwrap();
    let found = client.get(b"hot").unwrap().unwrap();
    assert_eq!((&found.value[..], found.flags), (&b"first"[..], 7));
    eventually("the cache node answers", || from_cache(&mut client, b"hot"));
    for round in 0..100_u32 {
        let value = round.to_le_bytes();
        let version = client.put(b"hot", &value, round, None).unwrap();
        let found = client.get(b"hot").unwrap().unwrap();
        assert_eq!((&found.value[..], found.version), (&value[..], version));
        assert_eq!(found.flags, round);
    }
    let mut patient = tier.patient(2);
    let before = tier.cache_status();
    for round in 0..100_u32 {
        let value = round.to_le_bytes();
        patient.put(b"hot", &value);
        let got = patient.get(b"hot");
        assert_eq!(got.value.as_deref(), Some(&value[..]));
        assert!(got.is_from_cache, "its rule is in force");
    }
    let after = tier.cache_status();
    assert!(after.get("hits") - before.get("hits") >= 100);
    assert!(after.get("updates") - before.get("updates") >= 100);
    assert_eq!(after.get("leases"), 2);
    assert!(client.delete(b"hot").unwrap());
    assert_eq!(client.get(b"hot").unwrap(), None);
    eventually("its rule is withdrawn", || {
        tier.switch_status().get("rules") == 0
    });
}

/// Goal: an uncached request sees its back end and nobody else, a cached one the cache and nobody
/// else. Method: a client that sends everything once; what the nodes and the switch have counted.
fn requests_see_one_machine(kind: SwitchKind) {
    let options = TestOptions {
        capacity: 4,
        ..long_lease()
    };
    let tier = TestTier::start(kind, options);
    let mut client = tier.client(1);
    client.put(b"hot", b"value", 0, None).unwrap();
    eventually("it is cached", || from_cache(&mut client, b"hot"));
    let mut client = tier.patient(2);
    let served = || {
        (
            tier.back_ends_count("gets"),
            tier.cache_status().get("gets"),
        )
    };
    let before = served();
    for number in 0..400_u32 {
        let got = client.get(format!("cold {number}").as_bytes());
        assert_eq!((got.value, got.is_from_cache), (None, false));
    }
    let lost = client.lost;
    let (back_ends, cache) = served();
    assert_eq!(cache, before.1, "no uncached request sees the cache");
    let once = before.0 + 400..=before.0 + 400 + lost;
    assert!(once.contains(&back_ends), "{back_ends}, not {once:?}");
    assert_eq!(tier.back_ends_count("passed_on_by_cache"), 0);
    for _ in 0..100 {
        let got = client.get(b"hot");
        assert_eq!(
            (got.value, got.is_from_cache),
            (Some(b"value".to_vec()), true)
        );
    }
    let after = served();
    assert_eq!(after.0, back_ends, "no cached request sees a back end");
    let once = cache + 100..=cache + 100 + client.lost - lost;
    assert!(once.contains(&after.1), "{} not {once:?}", after.1);
    assert_eq!(tier.cache_status().get("passed_on"), 0);
    eventually("the switch has counted them at the rule", || {
        tier.switch_status().get("by_rules") >= 100
    });
    eventually("the cache has measured the rule's lag", || {
        tier.cache_status().get("rule_lags") >= 1
    });
}

/// Goal: after the cache node is gone, requests go to back ends and writes end; when it is back,
/// it is used again.
fn a_cache_that_dies_costs_a_lease_at_most(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, TestOptions::default());
    let mut client = tier.client(1);
    client.put(b"hot", b"value", 0, None).unwrap();
    eventually("it is cached", || from_cache(&mut client, b"hot"));
    tier.stop_cache();
    let is_hit = from_cache(&mut client, b"hot");
    assert!(!is_hit, "a retry goes past the cache node");
    // A client gives up after two seconds; the lease has half of one.
    client.put(b"hot", b"other", 0, None).unwrap();
    eventually("the rules are deleted", || {
        tier.switch_status().get("rules") == 0
    });
    assert_eq!(client.get(b"hot").unwrap().unwrap().value, b"other");
    tier.start_cache();
    eventually("it is cached again", || from_cache(&mut client, b"hot"));
    assert_eq!(client.get(b"hot").unwrap().unwrap().value, b"other");
}

/// Goal: a key that bursts at a loaded back end is cached at once, and its report is not repeated.
/// Method: a period of reports that is longer than the test.
fn a_burst_is_cached_before_the_period_ends(kind: SwitchKind) {
    let options = TestOptions {
        // Any machine makes a back end of this rate busy.
        limit_per_s: 100,
        period_ms: 600_000,
        ..long_lease()
    };
    let tier = TestTier::start(kind, options);
    let mut client = tier.client(1);
    client.put(b"hot", b"value", 0, None).unwrap();
    eventually("the cache node answers", || match client.get(b"hot") {
        Ok(found) => found.is_some_and(|found| found.is_from_cache),
        Err(curtail_client::tier::TierClientError::Busy) => false,
        Err(error) => panic!("{error}"),
    });
    let status = tier.cache_status();
    assert_eq!((status.get("reports"), status.get("admitted")), (0, 1));
    // A report that was too early, so that its load was too low, has been sent again; one that was
    // taken is not, however often the key is asked for.
    let sent = tier.back_ends_count("bursts_sent");
    let mut patient = tier.patient(2);
    for _ in 0..30 {
        assert!(!patient.get_past_cache(b"hot").is_from_cache);
    }
    assert_eq!(tier.back_ends_count("bursts_sent"), sent);
}

/// Goal: each way of cache update sends what it says, and nothing else (SW-68). Method: keys that
/// are read once, and one that bursts at a loaded back end, while no report is due; then reports
/// are.
fn what_the_back_ends_send_decides_what_is_cached(kind: SwitchKind) {
    use UpdateMode::{Both, Instant, Periodic, Traditional};
    at_once([Both, Periodic, Instant, Traditional], |update| {
        undisturbed(|| only_what_it_says_is_sent(kind, update));
        reports_are_sent_if_it_has_any(kind, update);
    });
}

/// Runs the same for each of these at once: most of it waits.
fn at_once<T: Send>(all: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for one in all {
            let run = &run;
            scope.spawn(move || run(one));
        }
    });
}

fn only_what_it_says_is_sent(kind: SwitchKind, update: UpdateMode) {
    const LONG: u64 = 600_000;
    let tier = tier_that_updates(kind, update, LONG);
    let sent = || tier.back_ends_count("items_sent");
    let mut client = tier.patient(1);
    // Fewer than a key must have in the log of requests to burst.
    let cold: Vec<String> = (0..8).map(|key| format!("cold {key}")).collect();
    for key in &cold {
        client.put(key.as_bytes(), b"value");
        client.get(key.as_bytes());
    }
    let of_cold = sent();
    let is_traditional = update == UpdateMode::Traditional;
    assert_eq!(of_cold >= 8, is_traditional, "{update:?}: {of_cold}");
    assert!(is_traditional || of_cold == 0, "{update:?}: {of_cold}");
    client.put(b"hot", b"value");
    (0..40).for_each(|_| _ = client.get_past_cache(b"hot"));
    assert_eq!(
        sent() > of_cold,
        update != UpdateMode::Periodic,
        "{update:?}"
    );
    let bursts = tier.back_ends_count("bursts_sent") > 0;
    let may_burst = matches!(update, UpdateMode::Both | UpdateMode::Instant);
    assert_eq!(bursts, may_burst, "{update:?}");
    let expected = match update {
        UpdateMode::Traditional => 9,
        UpdateMode::Periodic => 0,
        UpdateMode::Both | UpdateMode::Instant => 1,
    };
    eventually("the keys that were sent are cached", || {
        let copies = tier.cache_status().get("copies");
        assert!(copies <= expected, "{update:?}: {copies}");
        // What a switch has lost is sent when it is read again.
        let keys = cold.iter().filter(|_| is_traditional && copies < 9);
        keys.for_each(|key| _ = client.get_past_cache(key.as_bytes()));
        copies == expected
    });
}

fn reports_are_sent_if_it_has_any(kind: SwitchKind, update: UpdateMode) {
    let tier = tier_that_updates(kind, update, 50);
    let mut client = tier.client(1);
    let mut reported = || {
        let _ = client.get(b"key");
        tier.cache_status().get("reports") > 0
    };
    if matches!(update, UpdateMode::Both | UpdateMode::Periodic) {
        eventually("a report", reported);
    } else {
        std::thread::sleep(Duration::from_millis(500));
        assert!(!reported(), "{update:?}");
    }
}

fn tier_that_updates(kind: SwitchKind, update: UpdateMode, period_ms: u64) -> TestTier {
    let options = TestOptions {
        back_ends: 1,
        // Any machine makes a back end of this rate busy.
        limit_per_s: 100,
        period_ms,
        lease_ms: 1000,
        update,
        ..TestOptions::default()
    };
    TestTier::start(kind, options)
}

/// Goal: with the rule buffer the cache node adds keys before it evicts others, without it never
/// holds more than its capacity (SW-61, SW-62, SW-68). Method: more keys than capacity at once, and
/// so few changes of rules that installs wait all the time.
fn the_rule_buffer_adds_before_it_evicts(kind: SwitchKind) {
    at_once([false, true], |has_buffer| {
        let mut options = TestOptions {
            capacity: 4,
            update: UpdateMode::Traditional,
            ..long_lease()
        };
        (options.rules.per_s, options.rules.burst) = (1, 1);
        options.rules.delay_max_ns = if has_buffer { 60_000_000_000 } else { 0 };
        let tier = TestTier::start(kind, options);
        let mut client = tier.patient(1);
        let keys: Vec<String> = (0..16).map(|key| format!("key {key}")).collect();
        keys.iter()
            .for_each(|key| client.put(key.as_bytes(), b"value"));
        let mut copies = || {
            for key in &keys {
                client.get_past_cache(key.as_bytes());
            }
            tier.cache_status().get("copies")
        };
        match has_buffer {
            true => eventually("all keys are held", || copies() == 16),
            false => eventually("keys are evicted", || {
                assert!(copies() <= 4);
                tier.cache_status().get("evicted") > 0
            }),
        }
    });
}

/// Bad input is counted and answered as it should be, and changes nothing.
fn strays_and_forgeries_change_nothing(kind: SwitchKind) {
    use curtail_codec::tiered::*;
    use curtail_types::{HashSeed, Key};
    let tier = TestTier::start(kind, TestOptions::default());
    let mut client = tier.client(1);
    client.put(b"key", b"value", 0, None).unwrap();
    let target = tier.target();
    let socket = tier.at(TrialNamespaces::CLIENTS, || bind_towards(&target).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
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
    let asks = || ask_status(back_end, &forged).is_err();
    let is_refused = tier.at(TrialNamespaces::CLIENTS, asks);
    assert!(is_refused, "no counters without the secret");
    assert_eq!(client.get(b"key").unwrap().unwrap().value, b"value");
}

/// Goal: in the baselines every read is at the cache node, and one that is not cached at its back
/// end as well; look-aside takes a transit more, by the client (SW-67). Answers are the same.
fn baselines_see_one_machine_more(kind: SwitchKind) {
    let baselines = [TierBaseline::LookThrough, TierBaseline::LookAside];
    at_once(baselines, |baseline| {
        let options = TestOptions {
            baseline: Some(baseline),
            ..long_lease()
        };
        let tier = TestTier::start(kind, options);
        let mut client = tier.client(1);
        client.put(b"hot", b"value", 0, None).unwrap();
        eventually("it is cached", || from_cache(&mut client, b"hot"));
        let mut client = tier.patient(2);
        let seen = || {
            let cache = tier.cache_status();
            let counts = ["gets", "hits", "passed_on", "not_cached"];
            (
                counts.map(|name| cache.get(name)),
                tier.back_ends_count("gets"),
            )
        };
        let before = seen();
        for number in 0..200_u32 {
            let got = client.get(format!("cold {number}").as_bytes());
            assert_eq!((got.value, got.is_from_cache), (None, false));
            assert!(client.get(b"hot").is_from_cache);
        }
        let (after, lost) = (seen(), client.lost);
        let near = |count: u64, expected: u64| {
            assert!(
                (expected..=expected + lost).contains(&count),
                "{before:?} {after:?} {lost}"
            );
        };
        let grown: [u64; 4] = std::array::from_fn(|n| after.0[n] - before.0[n]);
        near(grown[0], 400);
        near(grown[1], 200);
        near(grown[2] + grown[3], 200);
        let is_aside = baseline == TierBaseline::LookAside;
        assert_eq!(grown[if is_aside { 2 } else { 3 }], 0, "{grown:?}");
        near(after.1 - before.1, 200);
        assert_eq!(
            tier.switch_status().get("installed"),
            0,
            "there are no rules"
        );
        client.put(b"hot", b"other");
        let got = client.get(b"hot");
        assert_eq!(
            got.value.as_deref(),
            Some(&b"other"[..]),
            "an update is applied"
        );
    });
}

/// A back end that is limited says so; a full memory refuses writes and goes on reading.
fn limits_are_answered(kind: SwitchKind) {
    use curtail_codec::tiered::PartitionMap;
    use curtail_types::Key;
    let options = TestOptions {
        memory_bytes: 4000,
        ..TestOptions::default()
    };
    let tier = TestTier::start(kind, options);
    let mut client = tier.client(1);
    let TierTarget { map, .. } = tier.target();
    let (mut refused, mut stored) = (0, [0; 2]);
    for number in 0..60_u32 {
        let key = number.to_le_bytes();
        match client.put(&key, &[7; 100], 0, None) {
            Ok(_) => {
                let route = PartitionMap::route(Key::new(&key).unwrap());
                stored[usize::from(map.owner(route).0)] += 1;
                assert!(client.get(&key).unwrap().is_some());
            }
            Err(curtail_client::tier::TierClientError::Refused) => {
                refused += 1;
                assert_eq!(client.get(&key).unwrap(), None);
            }
            Err(other) => panic!("{other}"),
        }
    }
    let room = 4000 / (4 + 100 + ITEM_BYTES);
    assert_eq!((stored, refused), ([room; 2], 60 - 2 * room));
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
fn a_back_end_on_disk_serves_more_than_its_memory_and_restarts(kind: SwitchKind) {
    const ON_DISK: &str =
        "a write is on a disk that others keep busy for longer than a client waits";
    let options = TestOptions {
        is_on_disk: true,
        memory_bytes: 20_000,
        // What a cache may have stays in memory: it has nothing.
        reported: 0,
        update: UpdateMode::Periodic,
        ..TestOptions::default()
    };
    let mut tier = TestTier::start(kind, options);
    let mut client = tier.client(1);
    let value = |number: u32, round: u8| {
        let mut value = vec![round; 300];
        value[..4].copy_from_slice(&number.to_le_bytes());
        value
    };
    for (round, step) in [(1, 1), (2, 3)] {
        for number in (0..600_u32).step_by(step) {
            let (key, value) = (format!("key {number}"), value(number, round));
            let writes = || client.put(key.as_bytes(), &value, number, None).is_ok();
            eventually(ON_DISK, writes);
        }
    }
    for number in (0..600_u32).step_by(7) {
        let (key, mut is_again) = (format!("key {number}"), false);
        eventually(ON_DISK, || {
            let deleted = client.delete(key.as_bytes());
            assert!(is_again || !matches!(deleted, Ok(false)));
            is_again = deleted.is_err();
            !is_again
        });
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
        // All of its items have 130,000; what is not on disk yet stays in memory.
        eventually("memory is within its bound", || {
            tier.back_end_status(id).get("bytes_in_memory") <= 20_000
        });
        tier.stop_back_end(id);
        tier.start_back_end(id);
    }
    check(&mut client);
    assert!(!client.delete(b"key 0").unwrap(), "it was deleted");
}
