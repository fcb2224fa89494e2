//! One suite for every kind of switch (SW-89): what rules do to real packets, what a controller
//! finds after a restart of either side, and what neither takes.
//!
//! XDP and Open vSwitch need root and network namespaces: root without them fails, and nobody else
//! is tested, which standard error says (`namespace.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what cannot be set up fails the test"
)]

#[path = "../../runtime/tests/nic/namespace.rs"]
mod namespace;
mod support;

use std::time::Duration;

use curtail_codec::tiered::{
    HostId, MalformedTiered, ReplayWindow, TierAddress, TierSecret, TieredDatagram, TieredHead,
    TieredOpcode,
};
use curtail_routing::{
    Destination, OpenVswitch, OpenVswitchOptions, PortType, XdpTable, XdpTableOptions,
};
use curtail_runtime::{Attach, XdpError};
use curtail_types::{
    BackEndId, CacheId, HashSeed, KeyAddress, Reconciled, Rule, RuleCookie, RuleError, SpreadSlots,
    SwitchEvent,
};

use support::topology::Topology;
use support::{
    BACK_ENDS, CACHES, CLIENT, CLIENT_HOST, IPV6, Kind, MAC, Testbed, destination, encoded, get,
    key, port, put, rule, start_xdp,
};

/// Room for rules in these tests.
const CAPACITY: usize = 40;

#[test]
fn in_memory() {
    run_suite(Kind::Memory);
}

#[test]
fn in_user_space() {
    run_suite(Kind::User);
}

#[test]
fn xdp_with_ipv6_addresses() {
    run_suite(Kind::Xdp(IPV6));
}

#[test]
fn xdp_with_mac_addresses() {
    run_suite(Kind::Xdp(MAC));
}

#[test]
fn xdp_in_the_driver() {
    run_suite(Kind::XdpDriver(IPV6));
}

#[test]
fn open_vswitch_with_ipv6_addresses() {
    run_suite(Kind::OpenVswitch(IPV6));
}

#[test]
fn open_vswitch_with_mac_addresses() {
    run_suite(Kind::OpenVswitch(MAC));
}

/// A part of the suite, and its name.
type Part = (&'static str, fn(&mut Testbed));

/// Everything, one after another, on one network, in a thread whose namespaces it may change.
fn run_suite(kind: Kind) {
    in_a_thread(move || {
        let Some(mut bed) = Testbed::new(kind, CAPACITY) else {
            return;
        };
        let parts: [Part; 11] = [
            ("rules match", rules_match),
            ("spread rules divide", spread_rules_divide),
            ("hosts are reached", hosts_are_reached),
            ("nobody is counted", nobody_is_counted),
            ("cookies", cookies),
            ("replace all", replace_all),
            ("capacity", capacity),
            ("controller", controller_dies),
            ("forgets", switch_forgets),
            ("links", links_go_down),
            ("cached flows", few_decisions_are_cached),
        ];
        for (part, does) in parts {
            let begun = std::time::Instant::now();
            does(&mut bed);
            bed.switch().replace_all(&[]).unwrap();
            println!("{kind:?} {part}: {:?}", begun.elapsed());
        }
        spoofed_messages_are_refused(&mut bed);
    });
}

/// Namespaces are a thread's, and tests may share one.
fn in_a_thread(does: impl FnOnce() + Send + 'static) {
    let name = std::thread::current().name().map(str::to_owned);
    let builder = std::thread::Builder::new().name(name.unwrap_or_default());
    let ended = builder.spawn(does).unwrap().join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// What cannot be is told: a second controller, another size of a table that was found, an
/// interface that there is not. A planned stop leaves nothing.
#[test]
fn xdp_says_what_is_wrong() {
    in_a_thread(|| {
        let Some(topology) = Topology::make(IPV6) else {
            return;
        };
        let options = XdpTableOptions {
            encoding: IPV6,
            capacity: 10,
            ports: topology.ports(),
            attach: Attach::Any,
            pins: Some(topology.pins().join("switch")),
        };
        let first = XdpTable::start(&options).unwrap();
        let second = XdpTable::start(&options).unwrap_err();
        assert!(matches!(second, XdpError::InUse { .. }), "{second}");
        drop(first);
        let larger = XdpTableOptions {
            capacity: 11,
            ..options.clone()
        };
        let error = start_xdp(&larger).unwrap_err();
        assert!(
            matches!(error, XdpError::Shape { found: 10, .. }),
            "{error}"
        );
        let mut nowhere = options.clone();
        nowhere.pins = None;
        nowhere.ports[0].interface = "nowhere".to_string();
        let error = XdpTable::start(&nowhere).unwrap_err();
        assert!(matches!(error, XdpError::NoInterface { .. }), "{error}");
        let last = start_xdp(&options).unwrap();
        last.unpin();
        drop(last);
        assert!(!topology.pins().join("switch").exists());
        start_xdp(&larger).unwrap();
    });
}

/// A port that Open vSwitch cannot attach to is an error with its reason, not a port that loses
/// packets.
#[test]
fn open_vswitch_says_what_is_wrong() {
    in_a_thread(|| {
        let Some(topology) = Topology::make(IPV6) else {
            return;
        };
        let mut ports = topology.ports();
        ports[2].interface = "nowhere".to_string();
        let options = OpenVswitchOptions {
            directory: topology.directory().join("ovs"),
            ports,
            port_type: PortType::System,
            encoding: IPV6,
            datapath: 1,
            calls_controller: false,
            flows_max: None,
            ends_with_thread: false,
        };
        let error = OpenVswitch::start(options).unwrap_err().to_string();
        assert!(error.contains("nowhere as port 3"), "{error}");
    });
}

/// Open vSwitch refuses what its own limit does not leave room for: the caller is told, what fits
/// is there, and the rest goes to back ends.
#[test]
fn open_vswitch_refuses_beyond_its_limit() {
    in_a_thread(|| {
        // In the table of keys: what is addressed to nobody, six routes, five rules.
        let limit = 1 + 6 + 5;
        let Some(mut bed) = Testbed::with_limit(Kind::OpenVswitch(IPV6), 100, Some(limit)) else {
            return;
        };
        let rules: Vec<Rule> = (0..8).map(|n| rule(key(BACK_ENDS[0], n), 0, 1)).collect();
        let full = Err(RuleError::Full { capacity: 100 });
        assert_eq!(bed.switch().install(&rules), full);
        let there = all_rules(&mut bed);
        assert_eq!(there.len(), 5);
        for rule in &rules {
            let expected = if there.contains(rule) {
                CACHES[0]
            } else {
                BACK_ENDS[0]
            };
            bed.expect(&get(rule.key), expected);
        }
    });
}

fn all_rules(bed: &mut Testbed) -> Vec<Rule> {
    let all = bed.switch().dump().unwrap();
    let mut all: Vec<Rule> = all.iter().map(|counted| counted.rule).collect();
    all.sort_unstable();
    all
}

/// A `get` goes to the back end, with a rule to the cache node, without it to the back end again.
/// Everything else of that key, and every other key, goes to its back end all the time. The rule
/// counts what it matched.
fn rules_match(bed: &mut Testbed) {
    let hot = key(BACK_ENDS[1], 1);
    bed.expect(&get(hot), BACK_ENDS[1]);
    bed.switch().install(&[rule(hot, 0, 1)]).unwrap();
    bed.expect(&get(hot), CACHES[0]);
    bed.expect(&put(hot), BACK_ENDS[1]);
    for (at, number) in [(BACK_ENDS[1], 2), (BACK_ENDS[0], 1), (BACK_ENDS[2], 3)] {
        let other = key(at, number);
        if at != BACK_ENDS[0] || bed.encoding() != MAC {
            bed.expect(&get(other), at);
        }
        bed.expect(&put(other), at);
    }
    // The same key after a retry, and after a miss at the cache: past the rule (SW-14, SW-19).
    let passed_on = TieredHead::new(TieredOpcode::Get, TierAddress::get(hot)).passed_on();
    bed.expect_from(CACHES[0], &encoded(passed_on, b"key", None), BACK_ENDS[1]);
    bed.eventually("the rule counts", |bed| {
        bed.switch().dump().unwrap()[0].packets >= 1
    });
    bed.eventually("the route counts", |bed| {
        let counts = bed.switch().counts().unwrap();
        let its =
            |route: &&curtail_routing::CountedRoute| route.destination == destination(BACK_ENDS[1]);
        counts.routes.iter().find(its).unwrap().packets >= 3
    });
    // Another cache node has the key.
    bed.switch().install(&[rule(hot, 1, 1)]).unwrap();
    bed.expect(&get(hot), CACHES[1]);
    assert_eq!(all_rules(bed), [rule(hot, 1, 1)]);
    bed.switch().delete(&[hot, key(BACK_ENDS[1], 9)]).unwrap();
    bed.expect(&get(hot), BACK_ENDS[1]);
    assert_eq!(all_rules(bed), []);
}

/// A rule that is spread leads to one of the cache nodes that share, by the sender's port, and is
/// found again as one (CC-81). Without cache nodes that share it is refused.
fn spread_rules_divide(bed: &mut Testbed) {
    let hot = key(BACK_ENDS[1], 1);
    let plain = rule(hot, 0, 1);
    let cookie = RuleCookie {
        is_spread: true,
        ..plain.cookie
    };
    let spread = Rule { cookie, ..plain };
    let refused = bed.switch().install(&[spread]);
    assert!(matches!(refused, Err(RuleError::Refused(_))), "{refused:?}");
    for caches in [[0, 1], [1, 0]].map(|ids| ids.map(CacheId)) {
        bed.switch().spread(&caches).unwrap();
        bed.switch().install(&[spread]).unwrap();
        let slot = SpreadSlots::of(bed.client_port());
        let owner = SpreadSlots::owner(slot, &caches).unwrap();
        bed.expect(&get(hot), CACHES[usize::from(owner.0)]);
        bed.expect(&put(hot), BACK_ENDS[1]);
        assert_eq!(all_rules(bed), [spread]);
    }
    bed.switch().install(&[plain]).unwrap();
    bed.expect(&get(hot), CACHES[0]);
    assert_eq!(all_rules(bed), [plain]);
    bed.switch().install(&[spread]).unwrap();
    let nobody = bed.switch().spread(&[CacheId(0), CacheId(77)]);
    assert_eq!(nobody, Err(RuleError::NoPort(CacheId(77))));
    bed.switch().delete_cache(CacheId(0)).unwrap();
    bed.expect(&get(hot), BACK_ENDS[1]);
    assert_eq!(all_rules(bed), []);
}

/// Replies reach the client, and messages of back ends the cache nodes.
fn hosts_are_reached(bed: &mut Testbed) {
    let reply = TieredHead::new(TieredOpcode::Reply, TierAddress::host(CLIENT_HOST));
    let reply = encoded(reply, b"key", None);
    bed.expect_from(BACK_ENDS[0], &reply, CLIENT);
    bed.expect_from(CACHES[1], &reply, CLIENT);
    let update = TieredHead::new(TieredOpcode::Update, TierAddress::host(HostId(1)));
    let update = encoded(update, b"key", Some(&SECRET));
    bed.expect_from(BACK_ENDS[2], &update, CACHES[1]);
}

/// What is addressed to a back end or a host that nobody serves is counted and dropped; when the
/// back end comes it is forwarded.
fn nobody_is_counted(bed: &mut Testbed) {
    let nobody = KeyAddress {
        back_end: BackEndId(77),
        ..key(BACK_ENDS[0], 5)
    };
    bed.expect_nobody(&get(nobody));
    bed.expect_nobody(&put(nobody));
    let stranger = TieredHead::new(TieredOpcode::Reply, TierAddress::host(HostId(0x2000)));
    bed.expect_nobody(&encoded(stranger, b"key", None));
    // The second back end serves the third one's keys for a while.
    let moved = destination(BACK_ENDS[2]);
    bed.switch().connect(moved, None).unwrap();
    let asked = put(key(BACK_ENDS[2], 5));
    let lost = |bed: &mut Testbed| {
        bed.send(CLIENT, &asked, Duration::from_millis(50))
            .is_none()
    };
    bed.eventually("the back end is gone", lost);
    bed.expect_nobody(&asked);
    bed.switch()
        .connect(moved, Some(port(BACK_ENDS[2])))
        .unwrap();
    bed.expect(&asked, BACK_ENDS[2]);
    let none = Destination::BackEnd(BackEndId(BackEndId::END));
    let refused = bed.switch().connect(none, Some(port(0)));
    assert!(matches!(refused, Err(RuleError::Refused(_))), "{refused:?}");
}

/// One call deletes all rules of a cache node, of every generation, and no others (SW-43).
fn cookies(bed: &mut Testbed) {
    let of = |cache, generation, numbers: std::ops::Range<u64>| {
        numbers.map(move |number| rule(key(BACK_ENDS[0], number), cache, generation))
    };
    let first: Vec<Rule> = of(0, 7, 0..5).chain(of(0, 8, 5..10)).collect();
    let mut second: Vec<Rule> = of(1, 0xffff_ffff, 10..15).collect();
    second.sort_unstable();
    bed.switch().install(&first).unwrap();
    bed.switch().install(&second).unwrap();
    assert_eq!(all_rules(bed).len(), 15);
    bed.switch().delete_cache(CacheId(0)).unwrap();
    assert_eq!(all_rules(bed), second, "with their cookies");
    bed.expect(&get(first[0].key), BACK_ENDS[0]);
    bed.expect(&get(second[0].key), CACHES[1]);
    // A cache node without a port can have no rules, and loses them with its port.
    let nowhere = rule(key(BACK_ENDS[0], 1), 9, 1);
    assert_eq!(
        bed.switch().install(&[nowhere]),
        Err(RuleError::NoPort(CacheId(9)))
    );
    bed.switch().connect(destination(CACHES[1]), None).unwrap();
    assert_eq!(all_rules(bed), []);
    bed.expect(&get(second[0].key), BACK_ENDS[0]);
    bed.switch()
        .connect(destination(CACHES[1]), Some(port(CACHES[1])))
        .unwrap();
}

/// Only what differs is changed, and a rule that is right keeps its count.
fn replace_all(bed: &mut Testbed) {
    let numbered = |number| key(BACK_ENDS[2], number);
    let before: Vec<Rule> = (0..10).map(|number| rule(numbered(number), 0, 1)).collect();
    bed.switch().install(&before).unwrap();
    bed.expect(&get(numbered(5)), CACHES[0]);
    // 0 to 3 go, 4 and 5 stay, 6 to 9 get another cookie, 10 to 12 come; one is named twice.
    let mut wanted: Vec<Rule> = (4..6).map(|number| rule(numbered(number), 0, 1)).collect();
    wanted.extend((6..13).map(|number| rule(numbered(number), 1, 2)));
    wanted.push(wanted[0]);
    let done = bed.switch().replace_all(&wanted).unwrap();
    let expected = Reconciled {
        installed: 7,
        deleted: 4,
        kept: 2,
    };
    assert_eq!(done, expected);
    wanted.pop();
    wanted.sort_unstable();
    assert_eq!(all_rules(bed), wanted);
    bed.expect(&get(numbered(12)), CACHES[1]);
    bed.expect(&get(numbered(0)), BACK_ENDS[2]);
    bed.eventually("the count is kept", |bed| {
        let all = bed.switch().dump().unwrap();
        let five = all.iter().find(|one| one.rule.key == numbered(5)).unwrap();
        five.packets >= 1
    });
    let again = bed.switch().replace_all(&wanted).unwrap();
    assert_eq!((again.installed, again.deleted), (0, 0));
}

/// A full table takes what fits and says so; the rules that are there go on, and may be replaced.
fn capacity(bed: &mut Testbed) {
    assert_eq!(bed.switch().capacity(), CAPACITY);
    let rules: Vec<Rule> = (0..CAPACITY as u64 + 3)
        .map(|number| rule(key(BACK_ENDS[0], number), 0, 1))
        .collect();
    let full = Err(RuleError::Full { capacity: CAPACITY });
    assert_eq!(bed.switch().install(&rules), full);
    assert_eq!(all_rules(bed).len(), CAPACITY);
    bed.expect(&get(rules[CAPACITY - 1].key), CACHES[0]);
    bed.expect(&get(rules[CAPACITY].key), BACK_ENDS[0]);
    let again = rule(rules[0].key, 1, 2);
    bed.switch().install(&[again]).unwrap();
    bed.expect(&get(again.key), CACHES[1]);
    bed.switch().delete(&[rules[1].key]).unwrap();
    bed.switch().install(&[rules[CAPACITY]]).unwrap();
    assert_eq!(bed.switch().install(&[rules[1]]), full);
    // All others fit, since what is deleted goes first.
    let others: Vec<Rule> = (100..100 + CAPACITY as u64)
        .map(|number| rule(key(BACK_ENDS[1], number), 1, 3))
        .collect();
    let done = bed.switch().replace_all(&others).unwrap();
    assert_eq!((done.installed, done.deleted), (CAPACITY, CAPACITY));
}

/// Without a controller the switch goes on; the next one finds the rules, keeps those that are
/// right, and deletes those of keys that left the cache meanwhile (SW-43).
fn controller_dies(bed: &mut Testbed) {
    let numbered = |number| key(BACK_ENDS[1], number);
    let before: Vec<Rule> = (0..10).map(|number| rule(numbered(number), 0, 1)).collect();
    bed.switch().install(&before).unwrap();
    bed.expect(&get(numbered(3)), CACHES[0]);
    // A back end that the next controller does not know.
    let old = BackEndId(50);
    let served = Destination::BackEnd(old);
    let asked = put(KeyAddress {
        back_end: old,
        ..numbered(1)
    });
    bed.switch().connect(served, Some(port(CACHES[1]))).unwrap();
    bed.expect(&asked, CACHES[1]);
    bed.lose_control();
    if bed.kind == Kind::Memory {
        bed.switch().connect(served, None).unwrap();
    } else {
        bed.expect(&get(numbered(3)), CACHES[0]);
        bed.expect(&get(numbered(30)), BACK_ENDS[1]);
        bed.expect(&asked, CACHES[1]);
        bed.take_control();
    }
    let lost = |bed: &mut Testbed| {
        bed.send(CLIENT, &asked, Duration::from_millis(50))
            .is_none()
    };
    bed.eventually("the old back end is gone", lost);
    bed.expect(&get(numbered(3)), CACHES[0]);
    assert_eq!(all_rules(bed).len(), 10);
    let mut wanted: Vec<Rule> = before[2..].to_vec();
    wanted.push(rule(numbered(30), 1, 1));
    let done = bed.switch().replace_all(&wanted).unwrap();
    let expected = Reconciled {
        installed: 1,
        deleted: 2,
        kept: 8,
    };
    assert_eq!(done, expected);
    bed.expect(&get(numbered(30)), CACHES[1]);
    bed.expect(&get(numbered(0)), BACK_ENDS[1]);
}

/// A switch that comes back without rules is noticed, forwards to back ends meanwhile, and gets all
/// its rules back.
fn switch_forgets(bed: &mut Testbed) {
    let rules: Vec<Rule> = (0..10).map(|n| rule(key(BACK_ENDS[0], n), 0, 4)).collect();
    bed.switch().install(&rules).unwrap();
    bed.expect(&get(rules[0].key), CACHES[0]);
    bed.forget();
    assert_eq!(all_rules(bed), []);
    bed.expect(&get(rules[0].key), BACK_ENDS[0]);
    let done = bed.switch().replace_all(&rules).unwrap();
    assert_eq!((done.installed, done.kept), (10, 0));
    bed.expect(&get(rules[0].key), CACHES[0]);
    assert_eq!(bed.switch().poll(), Ok(None));
}

/// A cache node's link that goes down is told, and its rules can be deleted at once (SW-40).
fn links_go_down(bed: &mut Testbed) {
    if !bed.has_links() {
        return;
    }
    let hot = rule(key(BACK_ENDS[0], 1), 1, 1);
    bed.switch().install(&[hot]).unwrap();
    bed.expect(&get(hot.key), CACHES[1]);
    bed.topology.as_ref().unwrap().set_link(CACHES[1], "down");
    bed.expect_event(SwitchEvent::CacheDown(CacheId(1)));
    bed.switch().delete_cache(CacheId(1)).unwrap();
    bed.expect(&get(hot.key), BACK_ENDS[0]);
    bed.topology.as_ref().unwrap().set_link(CACHES[1], "up");
    bed.expect_event(SwitchEvent::CacheUp(CacheId(1)));
}

/// Open vSwitch caches few decisions about packets that no rule can concern: those for back ends,
/// however many keys, and with encoding `ipv6` `get`s of back ends that have no rules (SW-85).
fn few_decisions_are_cached(bed: &mut Testbed) {
    if bed.daemons.is_none() {
        return;
    }
    let rules: Vec<Rule> = (0..30).map(|n| rule(key(BACK_ENDS[0], n), 0, 1)).collect();
    bed.switch().install(&rules).unwrap();
    let cached = |bed: &Testbed| bed.daemons.as_ref().unwrap().cached_flows().unwrap();
    let before = cached(bed);
    for number in 100..400 {
        bed.expect(&put(key(BACK_ENDS[0], number)), BACK_ENDS[0]);
        if bed.encoding() == IPV6 {
            bed.expect(&get(key(BACK_ENDS[1], number)), BACK_ENDS[1]);
        }
    }
    let after = cached(bed);
    assert!(after < before + 60, "{before} flows became {after}");
}

const SECRET: TierSecret = TierSecret(HashSeed([1, 2]));

/// The network carries what anybody sends; a node takes a message of another node only with the
/// cluster's seal, and only once.
fn spoofed_messages_are_refused(bed: &mut Testbed) {
    let head = |sequence| TieredHead {
        sequence,
        ..TieredHead::new(TieredOpcode::Update, TierAddress::host(HostId(0)))
    };
    let stranger = TierSecret(HashSeed([1, 3]));
    let forged = encoded(head(1), b"key", Some(&stranger));
    let (at, received) = bed.deliver(CLIENT, &forged);
    assert_eq!(at, CACHES[0]);
    let refused = TieredDatagram::decode(&received, Some(&SECRET));
    assert_eq!(refused, Err(MalformedTiered::Seal));
    let mut window = ReplayWindow::default();
    let good = encoded(head(1), b"key", Some(&SECRET));
    for is_new in [true, false] {
        // The second one is a recording that is sent again.
        let from = if is_new { BACK_ENDS[0] } else { CLIENT };
        let (_, received) = bed.deliver(from, &good);
        let taken = TieredDatagram::decode(&received, Some(&SECRET)).unwrap();
        assert_eq!(window.admit(taken.head.sequence), is_new);
    }
}
