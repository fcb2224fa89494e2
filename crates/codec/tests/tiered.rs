//! The datagrams of the tier, by example and by property.
//!
//! `tests/tiered/*.txt` are datagrams as hex, eight bytes a line as in the protocol's drawing; each
//! is encoded from the value that this file gives it and decoded to it again. `BLESS=1 cargo test
//! -p curtail-codec --test tiered` writes them, to be read before they are committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::too_many_lines,
    reason = "a datagram that makes no sense fails the test; lists of datagrams are long"
)]

use curtail_codec::tiered::{
    DATAGRAM_BYTES_MAX, FrameEnds, FrameIp, HEADER_BYTES, HostId, MalformedTiered, TierAddress,
    TierFrame, TieredDatagram, TieredEncodeError, TieredFlags, TieredHead, TieredOpcode,
    TieredStatus, UdpEnd, VALUE_BYTES_MAX,
};
use curtail_types::{BackEndId, Cas, Key, KeyAddress, KeyTag, RouteHash};

mod golden;
#[path = "properties/tiered.rs"]
mod properties;
mod seeded_inputs;

use golden::{Refused, golden, page, page_of_refused};
use properties::SECRET;
use seeded_inputs::{Random, check};

const KEY: KeyAddress = KeyAddress {
    back_end: BackEndId(3),
    tag: KeyTag::of(RouteHash(0x1122_3344_5566_7788)),
};
const CLIENT: HostId = HostId(0x0100);
const CACHE: HostId = HostId(1);

fn request(opcode: TieredOpcode, address: TierAddress) -> TieredHead {
    TieredHead {
        sender: CLIENT.0,
        epoch: 5,
        sequence: 0x0102_0304_0506_0708,
        client_ip: TierAddress::host(CLIENT).to_ipv6(9),
        client_port: 0xabcd,
        client_mac: TierAddress::host(CLIENT).to_mac(),
        ..TieredHead::new(opcode, address)
    }
}

fn between_nodes(opcode: TieredOpcode) -> TieredHead {
    let address = match opcode {
        TieredOpcode::Fetch
        | TieredOpcode::Applied
        | TieredOpcode::Dropped
        | TieredOpcode::Renew
        | TieredOpcode::Status => TierAddress::back_end(KEY),
        _ => TierAddress::host(CACHE),
    };
    TieredHead {
        sender: 3,
        sequence: 77,
        generation: 0x0a0b_0c0d,
        ..TieredHead::new(opcode, address)
    }
}

fn item(head: TieredHead) -> TieredHead {
    TieredHead {
        flags: TieredFlags::EXPIRES,
        item_flags: 7,
        exptime: 1_800_000_000,
        ..head
    }
}

/// A datagram of every kind, by name.
fn datagrams() -> Vec<(&'static str, TieredDatagram<'static>)> {
    use TieredOpcode as O;
    let key = Key::new(b"key").ok();
    let get = request(O::Get, TierAddress::get(KEY));
    let numbered = |opcode| TieredHead {
        number: 12,
        ..between_nodes(opcode)
    };
    let listed = |opcode| TieredHead {
        generation: 0,
        ..numbered(opcode)
    };
    let versioned = |opcode| TieredHead {
        version: Cas(0x0fed_cba9_8765_4321),
        ..numbered(opcode)
    };
    let reply = TieredHead {
        version: Cas(9),
        load: 200,
        ..get.reply(TierAddress::host(CLIENT), TieredStatus::Done)
    };
    let to_back_end = TierAddress::back_end(KEY);
    let heads = [
        ("get", get, true, ""),
        ("get after a miss", get.passed_on(), true, ""),
        (
            "get without rules",
            request(O::Get, TierAddress::host(CACHE)),
            true,
            "",
        ),
        (
            "get again",
            TieredHead {
                flags: TieredFlags::RETRY,
                ..request(O::Get, to_back_end)
            },
            true,
            "",
        ),
        ("put", item(request(O::Put, to_back_end)), true, "value"),
        ("delete", request(O::Delete, to_back_end), true, ""),
        ("change", request(O::Change, to_back_end), true, "request"),
        ("flush", request(O::Flush, to_back_end), true, ""),
        ("reply", item(reply), true, "value"),
        (
            "reply not found",
            get.reply(TierAddress::host(CLIENT), TieredStatus::NotFound),
            true,
            "",
        ),
        (
            "reply not cached",
            TieredHead {
                flags: TieredFlags::FROM_CACHE,
                ..get.reply(TierAddress::host(CLIENT), TieredStatus::NotCached)
            },
            true,
            "",
        ),
        ("fetch", between_nodes(O::Fetch), true, ""),
        ("item", item(versioned(O::Item)), true, "value"),
        ("update", item(versioned(O::Update)), true, "value"),
        (
            "update gone",
            TieredHead {
                flags: TieredFlags::GONE,
                ..numbered(O::Update)
            },
            true,
            "",
        ),
        ("applied", numbered(O::Applied), true, ""),
        ("dropped", numbered(O::Dropped), true, ""),
        ("renew", numbered(O::Renew), false, ""),
        ("lease", versioned(O::Lease), false, ""),
        ("report", numbered(O::Report), false, "keys and loads"),
        (
            "instant report",
            TieredHead {
                epoch: 400,
                ..item(versioned(O::Item))
            },
            true,
            "value",
        ),
        ("revoke", numbered(O::Revoke), true, ""),
        ("rules", numbered(O::Rules), false, "addresses"),
        (
            "rules sharing",
            TieredHead {
                flags: TieredFlags::ALL.with(TieredFlags::SHARES),
                ..numbered(O::Rules)
            },
            false,
            "addresses",
        ),
        ("rules taken", versioned(O::RulesTaken), false, "\x00\x01"),
        (
            "rules refused",
            TieredHead {
                status: TieredStatus::Refused,
                ..versioned(O::RulesTaken)
            },
            false,
            "\x00\x01",
        ),
        ("shared", listed(O::Shared), false, "keys and loads"),
        ("shared hits", listed(O::SharedHits), false, "keys and hits"),
        (
            "status",
            TieredHead {
                client_port: 0xabcd,
                generation: 0,
                ..between_nodes(O::Status)
            },
            false,
            "",
        ),
        (
            "status text",
            TieredHead {
                generation: 0,
                ..between_nodes(O::StatusText)
            },
            false,
            "hits 1",
        ),
    ];
    let whole = heads.into_iter().map(|(name, head, has_key, value)| {
        let key = key.filter(|_| has_key);
        let value = value.as_bytes();
        (name, TieredDatagram { head, key, value })
    });
    whole.collect()
}

fn encoded(datagram: &TieredDatagram<'_>) -> Vec<u8> {
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let bytes = datagram.encode(&mut out, Some(&SECRET)).unwrap();
    out[..bytes].to_vec()
}

fn encoded_all() -> Vec<(String, Vec<u8>)> {
    let all = datagrams().into_iter();
    all.map(|(name, datagram)| (name.to_string(), encoded(&datagram)))
        .collect()
}

#[test]
fn datagrams_by_example() {
    let all = encoded_all();
    golden("tiered/datagrams.txt", &page("Datagrams of the tier", &all));
    for ((_, bytes), (name, datagram)) in all.iter().zip(datagrams()) {
        let decoded = TieredDatagram::decode(bytes, Some(&SECRET));
        assert_eq!(decoded, Ok(datagram), "{name}");
    }
    let opcodes: Vec<_> = datagrams().iter().map(|(_, d)| d.head.opcode).collect();
    let missing = TieredOpcode::ALL.iter().find(|o| !opcodes.contains(o));
    assert_eq!(missing, None, "every opcode has an example");
}

/// The refused datagrams by example. What is not about the seal is sealed again, so that only one
/// thing is wrong with it.
#[test]
fn refused_by_example() {
    use MalformedTiered as M;
    let good = encoded_all();
    let of = |name: &str| good.iter().find(|(n, _)| n == name).unwrap().1.clone();
    let changed = |name: &'static str, good: &'static str, at: usize, byte: u8, why: M| {
        let mut bytes = of(good);
        bytes[at] = byte;
        Refused {
            name,
            good,
            bytes,
            why,
        }
    };
    let refused = [
        changed("other magic", "get", 0, b'X', M::Magic),
        changed("other version", "get", 2, 2, M::Version),
        changed("unknown opcode", "get", 3, 9, M::Opcode),
        changed("unknown flag", "get", 4, 0x80, M::Flags),
        changed("flagged get to a cache node", "get", 4, 2, M::Address),
        changed("expiry of a delete", "delete", 4, 8, M::Flags),
        changed("unknown status", "reply", 5, 99, M::Status),
        changed("status of a get", "get", 5, 1, M::Field),
        changed("value of a miss", "reply", 5, 1, M::Length),
        changed("no key", "get", 6, 0, M::Length),
        changed("longer key", "get", 6, 4, M::Length),
        changed("load of a get", "get", 7, 1, M::Field),
        changed("unknown class", "get", 15, 3, M::Address),
        changed("put to a cache node", "put", 15, 2, M::Address),
        changed("host among back ends", "get", 15, 0x0a, M::Address),
        changed("damaged seal", "get", 16, 0xee, M::Seal),
        changed("damaged sequence", "get", 32, 0, M::Seal),
        changed("damaged value", "put", HEADER_BYTES + 4, 0, M::Seal),
        changed("forged update", "update", HEADER_BYTES + 3, b'f', M::Seal),
        changed("generation of a get", "get", 48, 1, M::Field),
        changed("client of a fetch", "fetch", 64, 1, M::Field),
        changed("expiry that is not flagged", "get", 96, 1, M::Field),
        changed("spare bytes", "get", 100, 1, M::Field),
    ];
    for packet in &refused {
        let decoded = TieredDatagram::decode(&packet.bytes, Some(&SECRET));
        assert_eq!(decoded, Err(packet.why), "{}", packet.name);
    }
    let text = page_of_refused("Datagrams that are refused", &good, &refused);
    golden("tiered/refused.txt", &text);
    let get = of("get");
    let short = TieredDatagram::decode(&get[..HEADER_BYTES - 1], None);
    assert_eq!(short, Err(M::Short));
}

/// The greatest value beside the greatest key fits, one byte more does not, and what only nodes say
/// cannot be written without the secret.
#[test]
fn limits_of_encoding() {
    let head = request(TieredOpcode::Put, TierAddress::back_end(KEY));
    let value = vec![1; VALUE_BYTES_MAX + 1];
    let long = [b'k'; Key::BYTES_MAX];
    let mut datagram = TieredDatagram {
        head,
        key: Key::new(&long).ok(),
        value: &value[1..],
    };
    assert_eq!(encoded(&datagram).len(), DATAGRAM_BYTES_MAX);
    let mut out = [0; 2000];
    datagram.value = &value;
    let error = TieredEncodeError::Malformed(MalformedTiered::Length);
    assert_eq!(datagram.encode(&mut out, None), Err(error));
    let (_, update) = datagrams()
        .into_iter()
        .find(|(n, _)| *n == "update")
        .unwrap();
    let unsealed = update.encode(&mut out, None);
    assert_eq!(unsealed, Err(TieredEncodeError::NoSecret));
}

/// A frame of each family by example, with the checksums that other implementations compute.
#[test]
fn frames_have_right_checksums() {
    let end = |mac, ip, port| UdpEnd { mac, ip, port };
    let get = TierAddress::get(KEY);
    let host = TierAddress::host(CLIENT);
    for (from, to) in [
        (
            FrameIp::V4([10, 7, 255, 255]),
            FrameIp::V4(get.to_ipv4([10, 7])),
        ),
        (FrameIp::V6(host.to_ipv6(9)), FrameIp::V6(get.to_ipv6(9))),
    ] {
        for datagram in [&b"even"[..], b"odd"] {
            let frame = TierFrame {
                ends: FrameEnds {
                    from: end(host.to_mac(), from, 1234),
                    to: end(get.to_mac(), to, 11411),
                },
                datagram,
            };
            let mut out = [0; 100];
            let bytes = frame.encode(&mut out).unwrap();
            assert_eq!(TierFrame::decode(&out[..bytes]), Some(frame));
            assert_eq!(frame.encode(&mut out[..bytes - 1]), None, "no room");
            assert_eq!(sum_of_udp(&out[..bytes]), 0xffff);
        }
    }
}

/// The ones' complement sum over pseudo header and UDP, which is all ones if the checksum is right.
fn sum_of_udp(frame: &[u8]) -> u32 {
    let (addresses, udp) = match frame[12] {
        0x08 => (&frame[26..34], &frame[34..]),
        _ => (&frame[22..54], &frame[54..]),
    };
    let odd = udp.len() % 2 == 1;
    let padded = [addresses, udp, if odd { &[0][..] } else { &[] }].concat();
    let words = padded
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let mut sum = words.sum::<u32>() + 17 + udp.len() as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[test]
fn properties_hold() {
    check(&properties::REGISTRY, properties::canary, 20_000, invent);
}

/// Mostly good datagrams with other numbers, some damaged, some in frames, some noise.
fn invent(random: &mut Random) -> Vec<u8> {
    let all = datagrams();
    let (_, mut datagram) = all[random.below(all.len())];
    datagram.head.sequence = random.next();
    if datagram.head.opcode == TieredOpcode::Reply {
        datagram.head.load = random.next() as u8;
    }
    let mut bytes = encoded(&datagram);
    match random.below(6) {
        0 => {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
        }
        1 => bytes.truncate(random.below(bytes.len())),
        2 => bytes = framed(random, &bytes),
        3 => bytes = (0..random.below(40)).map(|_| random.next() as u8).collect(),
        4 => {
            bytes = datagram.head.address.to_ipv6(random.next() as u32).to_vec();
            if random.below(2) == 0 {
                bytes = datagram.head.address.to_word().to_le_bytes().to_vec();
            }
        }
        _ => {}
    }
    bytes
}

fn framed(random: &mut Random, datagram: &[u8]) -> Vec<u8> {
    let ip = |random: &mut Random, is_v6| match is_v6 {
        true => FrameIp::V6(std::array::from_fn(|_| random.next() as u8)),
        false => FrameIp::V4(std::array::from_fn(|_| random.next() as u8)),
    };
    let is_v6 = random.below(2) == 0;
    let mut end = || UdpEnd {
        mac: std::array::from_fn(|_| random.next() as u8),
        ip: ip(random, is_v6),
        port: random.next() as u16,
    };
    let (from, to) = (end(), end());
    let ends = FrameEnds { from, to };
    let mut out = vec![0; datagram.len() + TierFrame::HEADERS_BYTES_MAX];
    let bytes = TierFrame { ends, datagram }.encode(&mut out).unwrap();
    out.truncate(bytes);
    if random.below(3) == 0 {
        let at = random.below(bytes);
        out[at] = random.next() as u8;
    }
    out
}
