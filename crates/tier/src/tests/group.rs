//! Several cache nodes with copies of the hottest keys (CC-81).

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use super::{
    eventually, on_every_switch,
    test_tier::{SwitchKind, TestOptions, TestTier},
};

on_every_switch!(
    a_hot_key_is_read_at_every_cache,
    a_cache_of_the_group_dies_and_begins_again,
    a_full_table_is_told_to_every_cache,
);

fn group_options() -> TestOptions {
    TestOptions {
        caches: 3,
        lease_ms: 4000,
        ..TestOptions::default()
    }
}

/// Clients read a key, each from several ports in turn, while `does` runs. They see that no value
/// is older than one that was written before they asked.
fn while_read(tier: &mut TestTier, written: &AtomicU64, does: impl FnOnce(&mut TestTier)) {
    let of_reader = |reader| {
        let numbers = 10 + PORTS * reader..10 + PORTS * (reader + 1);
        numbers.map(|number| tier.client(number)).collect()
    };
    let clients: Vec<Vec<_>> = (0..READERS).map(of_reader).collect();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut clients in clients {
            let ends = &ends;
            scope.spawn(move || {
                for turn in 0.. {
                    if ends.load(Relaxed) {
                        return;
                    }
                    let client = &mut clients[turn % PORTS as usize];
                    let least = written.load(Relaxed);
                    // A cache node that died answers nothing.
                    let Ok(found) = client.get(b"hot") else {
                        continue;
                    };
                    let value = found.unwrap().value[..].try_into().unwrap();
                    assert!(u64::from_le_bytes(value) >= least);
                }
            });
        }
        scopeguard::defer! { ends.store(true, Relaxed) }
        does(tier);
    });
}

fn write(tier: &TestTier, written: &AtomicU64, value: u64) {
    let mut client = tier.client(1);
    eventually("it is written", || {
        client.put(b"hot", &value.to_le_bytes(), 0, None).is_ok()
    });
    written.store(value, Relaxed);
}

/// The cache node to which the back end of the key reports.
fn home(tier: &TestTier) -> usize {
    let route =
        curtail_codec::tiered::PartitionMap::route(curtail_types::Key::new(b"hot").unwrap());
    let owner = tier.file.map().owner(route);
    usize::from(tier.file.cache_of(owner).unwrap().0)
}

fn wait_until_spread(tier: &TestTier) {
    eventually("its rule is spread", || {
        tier.switch_status().get("rules_spread") == 1
    });
}

/// Goal: a key that is very hot is read at every cache node, and a write is seen at all of them.
/// Method: clients of many ports; what nodes count.
fn a_hot_key_is_read_at_every_cache(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, group_options());
    let written = AtomicU64::new(0);
    write(&tier, &written, 1);
    while_read(&mut tier, &written, |tier| {
        wait_until_spread(tier);
        assert_eq!(tier.switch_status().get("caches_sharing"), 3);
        let home = home(tier);
        // In a period in which no reader got a processor the key is not hot.
        eventually("the home names the key", || {
            tier.status_of_cache(home).get("group_key:hot") > 0
        });
        let hits = |tier: &TestTier| [0, 1, 2].map(|id| tier.status_of_cache(id).get("hits"));
        let before = hits(tier);
        eventually("every cache node answers", || {
            let now = hits(tier);
            now.iter()
                .zip(before)
                .all(|(now, before)| *now > before + 50)
        });
        for value in 2..20 {
            write(tier, &written, value);
        }
        eventually("the home hears of the others' hits", || {
            tier.status_of_cache(home).get("group_hits_elsewhere") > 100
        });
        wait_until_spread(tier);
    });
    eventually("what is read no more is no group's key", || {
        tier.switch_status().get("rules_spread") == 0
    });
    eventually("its copies are dropped", || {
        tier.caches_count("guest_copies") == 0
    });
}

/// Goal: a cache node that dies is read no more, and one that begins again is read when it has the
/// copies. Method: readers that go on while each of two cache nodes restarts, the home among them.
fn a_cache_of_the_group_dies_and_begins_again(kind: SwitchKind) {
    let options = TestOptions {
        lease_ms: 500,
        ..group_options()
    };
    let mut tier = TestTier::start(kind, options);
    let written = AtomicU64::new(0);
    write(&tier, &written, 1);
    while_read(&mut tier, &written, |tier| {
        let home = home(tier);
        let mut value = 2;
        for victim in [(home + 1) % 3, home] {
            wait_until_spread(tier);
            tier.stop_cache_of(victim);
            write(tier, &written, value);
            eventually("it is taken out", || {
                tier.switch_status().get("caches_sharing") == 2
            });
            tier.start_cache_of(victim);
            write(tier, &written, value + 1);
            value += 2;
            eventually("it shares again", || {
                tier.switch_status().get("caches_sharing") == 3
            });
            wait_until_spread(tier);
            eventually("it answers", || {
                tier.status_of_cache(victim).get("hits") > 50
            });
        }
    });
}

/// Goal: cache nodes learn that the switch's table is full, and go on. Method: more keys than rules
/// at two cache nodes, which share; in the end the caches have copies of all, reads are right, and
/// no change waits for an answer.
fn a_full_table_is_told_to_every_cache(kind: SwitchKind) {
    let tier = TestTier::start(
        kind,
        TestOptions {
            caches: 2,
            rules_max: 2,
            update: crate::UpdateMode::Traditional,
            ..group_options()
        },
    );
    let keys: Vec<String> = (0..16).map(|key| format!("key {key}")).collect();
    let mut client = tier.patient(1);
    for key in &keys {
        client.put(key.as_bytes(), key.as_bytes());
    }
    let refused = |id| tier.status_of_cache(id).get("rules_refused_full");
    eventually("both are told that the table is full", || {
        for key in &keys {
            client.get_past_cache(key.as_bytes());
        }
        refused(0) > 0 && refused(1) > 0
    });
    assert!(tier.switch_status().get("rules") <= 2);
    eventually("no change waits", || {
        let waits = |id| tier.status_of_cache(id).get("rule_installs_waiting");
        waits(0) == 0 && waits(1) == 0
    });
    for key in &keys {
        assert_eq!(client.get(key.as_bytes()).value.unwrap(), key.as_bytes());
    }
}

/// Without the group each key is at one cache node.
#[test]
fn without_a_group_a_key_is_at_one_cache() {
    let options = TestOptions {
        group_keys: 0,
        ..group_options()
    };
    let mut tier = TestTier::start(SwitchKind::UserSpace, options);
    let written = AtomicU64::new(0);
    write(&tier, &written, 1);
    while_read(&mut tier, &written, |tier| {
        let home = home(tier);
        eventually("it is cached", || {
            tier.status_of_cache(home).get("hits") > 2000
        });
        let others = [(home + 1) % 3, (home + 2) % 3];
        let gets = others.map(|id| tier.status_of_cache(id).get("gets"));
        assert_eq!(gets, [0, 0]);
        assert_eq!(tier.switch_status().get("caches_sharing"), 0);
    });
}

const READERS: u32 = 12;

/// The system chooses them: with so few as 12 in all, one run in 40 would leave one of three cache
/// nodes without reads.
const PORTS: u32 = 5;
