//! The XDP switch against its twin in memory: the same frames get the same fate, leave with the
//! same bytes by the same port, and are counted at the same rules.
//!
//! It needs the privilege to load BPF programs: root without it fails, and nobody else is tested,
//! which standard error says (`namespace.rs`). `CURTAIL_SWITCH_OBJECT` names another object than
//! the one that is kept.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what cannot be set up fails the test"
)]

#[allow(dead_code, reason = "only the skipping is used here")]
#[path = "../../runtime/tests/nic/namespace.rs"]
mod namespace;

use std::collections::BTreeMap;

use curtail_codec::tiered::{
    FrameEnds, FrameIp, HostId, MacAddress, TierAddress, TierFrame, UdpEnd,
};
use curtail_routing::{Destination, Encoding, FrameVerdict, MemoryTable, PortNumber, Switch as _};
use curtail_runtime::{SwitchFate, SwitchNetwork, SwitchProgram, SwitchRule};
use curtail_types::{
    BackEndId, CacheId, KeyAddress, KeyTag, Rule, RuleCookie, RuleTable as _, SpreadSlots,
};
use curtail_workload::Random;

const FRAMES: usize = 40_000;
const CLUSTER: u32 = 0xa1b2_c3d4;
const NETWORK: [u8; 2] = [10, 77];
/// Ports 1 to 4 rewrite the MAC address, port 5 does not.
const PORTS: u32 = 5;

#[test]
fn xdp_and_memory_agree_about_ipv6_addresses() {
    compare(Encoding::Ipv6 { cluster: CLUSTER });
}

#[test]
fn xdp_and_memory_agree_about_mac_addresses() {
    compare(Encoding::Mac { network: NETWORK });
}

fn compare(encoding: Encoding) {
    if namespace::is_skipped() {
        return;
    }
    let mut program = load(encoding);
    let mut twin = MemoryTable::new(100);
    set_up(&mut program, &mut twin);
    let mut random = Random::new(21);
    let mut fates = BTreeMap::new();
    for number in 0..FRAMES {
        let frame = invent(&mut random, encoding);
        let (fate, after, _) = program.run(&frame, 1).unwrap();
        let verdict = twin.forward_frame(encoding, &frame);
        let expected = match verdict {
            FrameVerdict::Forward(port) => (SwitchFate::Forwarded, rewritten(&frame, port)),
            FrameVerdict::Drop => (SwitchFate::Dropped, frame.clone()),
            FrameVerdict::Pass => (SwitchFate::Passed, frame.clone()),
        };
        assert_eq!((fate, after), expected, "frame {number}: {frame:02x?}");
        *fates.entry(format!("{verdict:?}")).or_insert(0) += 1;
    }
    println!("{fates:?}");
    assert!(
        fates.len() == PORTS as usize + 2,
        "all fates occur: {fates:?}"
    );
    assert!(
        fates.values().all(|count| *count > 200),
        "and often: {fates:?}"
    );
    same_counts(&program, &mut twin);
}

/// Every rule and route has counted the same, and what goes nowhere.
fn same_counts(program: &SwitchProgram, twin: &mut MemoryTable) {
    let mut counted: Vec<(u64, u64)> = Vec::new();
    for rule in twin.dump().unwrap() {
        counted.push((TierAddress::get(rule.rule.key).to_word(), rule.packets));
    }
    let counts = twin.counts().unwrap();
    for route in &counts.routes {
        counted.push((word_of(route.destination), route.packets));
    }
    let all = program.rules().unwrap().into_iter();
    let all = all.chain(program.routes().unwrap());
    let mut found: Vec<(u64, u64)> = all.map(|(word, rule)| (word, rule.packets)).collect();
    counted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, counted);
    assert!(counted.iter().filter(|(_, packets)| *packets > 50).count() > 6);
    assert_eq!(program.unknown().unwrap(), counts.unknown);
}

fn load(encoding: Encoding) -> SwitchProgram {
    let network = match encoding {
        Encoding::Ipv6 { cluster } => SwitchNetwork::Ipv6(cluster),
        Encoding::Mac { network } => SwitchNetwork::Mac(network),
    };
    let object = std::env::var_os("CURTAIL_SWITCH_OBJECT");
    let loaded = match object.map(|path| std::fs::read(path).unwrap()) {
        Some(object) => SwitchProgram::load_object(&object, network, 100, None),
        None => SwitchProgram::load(network, 100, None),
    };
    loaded.unwrap_or_else(|error| {
        panic!("{error}; CURTAIL_WITHOUT_XDP=1 skips what needs the program")
    })
}

fn mac(port: u32) -> Option<MacAddress> {
    (port < PORTS).then_some([2, 0xaa, 0xbb, 0xcc, 0, port as u8])
}

fn rewritten(frame: &[u8], port: PortNumber) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some(mac) = mac(port.0) {
        frame[..6].copy_from_slice(&mac);
    }
    frame
}

fn key(back_end: u16, number: u64) -> KeyAddress {
    let tag = KeyTag::from_bits(number * 0x12_3456_789b);
    KeyAddress {
        back_end: BackEndId(back_end),
        tag,
    }
}

fn word_of(destination: Destination) -> u64 {
    match destination {
        Destination::Host(host) => TierAddress::host(host).to_word(),
        Destination::BackEnd(id) => TierAddress::back_end(key(id.0, 0)).to_word(),
    }
}

/// Back ends 0, 1 and 0xfffd, cache nodes 0 and 1, a client, and rules for some keys.
fn set_up(program: &mut SwitchProgram, twin: &mut MemoryTable) {
    for port in 1..=PORTS {
        program.point_port(port, "lo", mac(port)).unwrap();
    }
    for (destination, port) in [
        (Destination::BackEnd(BackEndId(0)), 1),
        (Destination::BackEnd(BackEndId(1)), 2),
        (Destination::BackEnd(BackEndId(0xfffd)), 5),
        (Destination::Host(HostId(0)), 3),
        (Destination::Host(HostId(1)), 4),
        (Destination::Host(HostId(0xffff_ffff)), 2),
    ] {
        twin.connect(destination, Some(PortNumber(port))).unwrap();
        let rule = SwitchRule {
            port,
            ..SwitchRule::default()
        };
        program.set_route(word_of(destination), rule).unwrap();
    }
    let sharing = [1, 0].map(CacheId);
    twin.spread(&sharing).unwrap();
    let slots = (0..SpreadSlots::COUNT).map(|slot| SpreadSlots::owner(slot, &sharing).unwrap());
    program
        .set_slots(slots.map(|id| 3 + u32::from(id.0)))
        .unwrap();
    for back_end in [0, 1, 0xfffd] {
        for number in 0..4 {
            let (key, cache) = (key(back_end, number), (number % 2) as u8);
            let is_spread = number == 3;
            let cookie = RuleCookie {
                cache: CacheId(cache),
                generation: 1,
                is_spread,
            };
            twin.install(&[Rule { key, cookie }]).unwrap();
            let rule = SwitchRule {
                cookie: 1,
                port: 3 + u32::from(cache) + if is_spread { SwitchProgram::SPREAD } else { 0 },
                packets: 0,
            };
            let word = TierAddress::get(key).to_word();
            assert!(program.install(&[(word, rule)]).unwrap());
        }
    }
}

/// Mostly frames to keys and hosts, known or not; some damaged, cut short, or of other protocols.
fn invent(random: &mut Random, encoding: Encoding) -> Vec<u8> {
    let back_end = [0, 1, 0xfffd, 2, 0xfffc][random.below(5) as usize];
    let key = key(back_end, random.below(7));
    let address = match random.below(4) {
        0 => TierAddress::back_end(key),
        1 => TierAddress::host(HostId([0, 1, 2, u32::MAX][random.below(4) as usize])),
        _ => TierAddress::get(key),
    };
    let (from_ip, to_ip) = match encoding {
        Encoding::Ipv6 { cluster } => (FrameIp::V6([1; 16]), FrameIp::V6(address.to_ipv6(cluster))),
        Encoding::Mac { network } => (FrameIp::V4([1; 4]), FrameIp::V4(address.to_ipv4(network))),
    };
    let port = random.next() as u16;
    let end = |mac, ip| UdpEnd { mac, ip, port };
    let ends = FrameEnds {
        from: end([2; 6], from_ip),
        to: end(address.to_mac(), to_ip),
    };
    let mut frame = vec![0; 200];
    let datagram = &b"datagram"[..random.below(9) as usize];
    let bytes = TierFrame { ends, datagram }.encode(&mut frame).unwrap();
    frame.truncate(bytes);
    match random.below(8) {
        0 => frame.truncate(14 + random.below(bytes as u64 - 13) as usize),
        1 | 2 => {
            // Addresses and types: what the program looks at.
            for _ in 0..=random.below(2) {
                let at = random.below(54.min(bytes as u64)) as usize;
                frame[at] = match random.below(3) {
                    0 => [0x02, 0x06, 0x0a, 0xff, 0xfe, 0x00][random.below(6) as usize],
                    _ => random.next() as u8,
                };
            }
        }
        _ => {}
    }
    frame
}
