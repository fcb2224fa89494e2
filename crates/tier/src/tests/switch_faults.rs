//! A switch that forgets, a controller that dies or stands still, rules that outlive their keys.

use curtail_client::tier::TierSession;
use curtail_testing::undisturbed;

use super::{
    eventually, from_cache, long_lease, on_every_switch,
    test_tier::{SwitchKind, TestOptions, TestTier},
};

on_every_switch!(
    a_switch_that_forgets_gets_its_rules_again,
    a_rule_that_outlives_its_key_costs_a_detour,
    rules_of_a_cache_that_died_with_the_controller_are_deleted,
);

const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

fn cached(tier: &TestTier) -> TierSession {
    let mut client = tier.client(1);
    for key in KEYS {
        client.put(key, b"value", 0, None).unwrap();
    }
    eventually("they are cached", || are_cached(&mut client));
    client
}

fn are_cached(client: &mut TierSession) -> bool {
    KEYS.map(|key| from_cache(client, key)) == [true; 3]
}

/// A switch that comes back has no rules, and gets them again from the cache.
fn a_switch_that_forgets_gets_its_rules_again(kind: SwitchKind) {
    // After a pause the controller takes a silent cache node for dead and deletes its rules.
    undisturbed(|| {
        let mut tier = TestTier::start(kind, long_lease());
        let mut client = cached(&tier);
        tier.forget_rules();
        eventually("they are cached again", || are_cached(&mut client));
        eventually("all rules are there", || {
            tier.switch_status().get("rules") == 3
        });
        assert_eq!(tier.cache_status().get("rules_lost_by_switch"), 1);
        assert_eq!(tier.switch_status().get("rules_kept"), 0);
    });
}

/// Goal: while the controller stands still, a key that is gone from the cache costs a detour and
/// never an answer (SW-19, SW-20). Method: a gate before the switch; what the cache passes on.
/// Once more if a report had the key cached again between its write and its read.
fn a_rule_that_outlives_its_key_costs_a_detour(kind: SwitchKind) {
    assert!((0..5).any(|_| costs_a_detour(kind)), "always cached again");
}

/// Whether it could be seen.
fn costs_a_detour(kind: SwitchKind) -> bool {
    let tier = TestTier::start(kind, long_lease());
    let mut client = cached(&tier);
    let mut patient = tier.patient(2);
    tier.gate.close();
    let before = tier.cache_status();
    assert!(client.delete(b"a").unwrap());
    assert_eq!(patient.get(b"a").value, None);
    assert_eq!(
        tier.cache_status().get("passed_on"),
        before.get("passed_on") + 1 + patient.lost
    );
    eventually("its withdrawal waits", || tier.gate.holds());
    patient.put(b"a", b"again");
    let got = patient.get(b"a");
    assert_eq!(got.value, Some(b"again".to_vec()));
    if got.is_from_cache {
        return false;
    }
    assert_eq!(tier.back_ends_count("passed_on_by_cache"), 2 + patient.lost);
    tier.gate.open();
    eventually("it is cached again", || from_cache(&mut client, b"a"));
    assert_eq!(client.get(b"a").unwrap().unwrap().value, b"again");
    true
}

/// Goal: rules that a controller finds and whose cache node has died meanwhile do not stay.
fn rules_of_a_cache_that_died_with_the_controller_are_deleted(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, TestOptions::default());
    let mut client = cached(&tier);
    tier.stop_switch();
    tier.stop_cache();
    tier.start_switch();
    eventually("no rule is left", || {
        let status = tier.switch_status();
        status.get("switch_answers") == 1 && status.get("rules") == 0
    });
    for key in KEYS {
        assert_eq!(client.get(key).unwrap().unwrap().value, b"value");
    }
    tier.start_cache();
    eventually("they are cached again", || are_cached(&mut client));
}

/// Goal: while Open vSwitch has no controller, its rules work on; another controller finds them by
/// their cookies and keeps those that the cache names, and deletes the one that the cache gave up
/// meanwhile (SW-43). Method: what the switch's process has counted.
#[test]
fn another_controller_keeps_the_rules_that_it_finds() {
    let kinds = [SwitchKind::OpenVswitch, SwitchKind::OpenVswitchByMac];
    let here = kinds.into_iter().filter(|kind| !kind.is_skipped());
    here.for_each(|kind| undisturbed(|| keeps_the_rules_that_it_finds(kind)));
}

fn keeps_the_rules_that_it_finds(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, long_lease());
    let mut client = cached(&tier);
    tier.stop_switch();
    for key in KEYS {
        assert!(
            tier.patient(3).get(key).is_from_cache,
            "without a controller"
        );
    }
    assert!(client.delete(b"a").unwrap());
    tier.start_switch();
    eventually("two rules are kept, and one is not", || {
        let status = tier.switch_status();
        let kept = (status.get("rules_kept"), status.get("rules_unnamed"));
        kept == (2, 0) && status.get("rules") == 2
    });
    // The withdrawal came first, or the end of what the cache named.
    let status = tier.switch_status();
    assert_eq!(status.get("installed"), 0);
    assert_eq!(status.get("deleted") + status.get("rules_stale"), 1);
    assert!(from_cache(&mut client, b"b"));
}

/// A cache node whose link is down loses its rules at once (SW-40).
#[test]
fn a_cache_whose_link_is_down_loses_its_rules() {
    for kind in [
        SwitchKind::Xdp,
        SwitchKind::OpenVswitch,
        SwitchKind::XdpByMac,
        SwitchKind::OpenVswitchByMac,
    ] {
        if kind.is_skipped() {
            return;
        }
        let tier = TestTier::start(kind, TestOptions::default());
        let mut client = cached(&tier);
        tier.cut("cache0");
        eventually("its rules are deleted", || {
            tier.switch_status().get("rules") == 0
        });
        for key in KEYS {
            assert_eq!(client.get(key).unwrap().unwrap().value, b"value");
        }
    }
}
