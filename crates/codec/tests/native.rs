//! The native protocol, by example and by property.
//!
//! `tests/native/*.txt` are packets as hex, eight bytes a line as in the protocol's drawing; each
//! is encoded from the value that this file gives it and decoded to it again. Other implementations
//! can check themselves by the same files. `BLESS=1 cargo test -p curtail-codec --test native`
//! writes them, to be read before they are committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::too_many_lines,
    reason = "a packet that makes no sense fails the test; lists of packets are long"
)]

use std::fmt::Write as _;

use curtail_codec::native::{
    Ack, CLASS_TABLE, Class, Cookies, DATAGRAM_BYTES_MAX, Echo, ErrorCode, Flags, Grant,
    HEADER_BYTES, Head, MAGIC, Malformed, Nack, NackReason, Opcode, Peer, Place, Promise, QUEUED,
    Reply, ReplyError, Request, SEQUENCE_MAX, SLOTS, Session, Status, VERSION,
};
use curtail_types::{HashSeed, Key};

mod golden;
#[path = "properties/native.rs"]
mod properties;
mod seeded_inputs;

use golden::{Refused, golden, page, page_of_refused};
use seeded_inputs::{Random, check};

const SESSION: Session = Session {
    index: 3,
    generation: 2,
    token: 0x1122_3344_5566_7788,
};

fn head(opcode: Opcode, flags: Flags) -> Head {
    Head {
        slot: 5,
        sequence: 1001,
        stamp: 0xaabb_ccdd,
        ..Head::new(opcode, flags, SESSION)
    }
}

fn with<'a>(head: Head, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request {
        head,
        key: Key::new(key).ok(),
        value,
    }
}

fn requests() -> Vec<(&'static str, Request<'static>)> {
    let nilext = Flags::NILEXT;
    let waived = nilext.with(Flags::WAIVE_RESULT);
    let stranger = |opcode, token| Head {
        argument: 0x0102_0304_0506_0708,
        stamp: 1,
        ..Head::new(
            opcode,
            Flags::NONE,
            Session {
                token,
                ..Session::default()
            },
        )
    };
    let set = Head {
        exptime: 60,
        item_flags: 7,
        ..head(Opcode::Set, nilext)
    };
    let compare = Head {
        argument: 99,
        ..head(Opcode::Set, Flags::COMPARE)
    };
    let delta = Head {
        argument: 10,
        ..head(Opcode::Increment, waived)
    };
    let last = Head {
        sequence: SEQUENCE_MAX,
        slot: SLOTS - 1,
        ..head(Opcode::Delete, waived)
    };
    let touch = Head {
        exptime: 2_592_001,
        ..head(Opcode::GetTouch, Flags::NONE)
    };
    let queue = Head {
        argument: 15,
        ..head(Opcode::Ping, Flags::NONE)
    };
    vec![
        ("hello", with(stranger(Opcode::Hello, 0), b"", b"")),
        (
            "confirm",
            with(stranger(Opcode::Confirm, 0xc00c1e), b"", b""),
        ),
        ("close", with(head(Opcode::Close, Flags::NONE), b"", b"")),
        ("ping", with(queue, b"", b"")),
        ("get", with(head(Opcode::Get, Flags::NONE), b"key", b"")),
        ("get_touch", with(touch, b"key", b"")),
        ("set_nilext", with(set, b"key", b"value")),
        ("set_empty", with(head(Opcode::Set, Flags::NONE), b"k", b"")),
        ("set_compare", with(compare, b"key", b"new")),
        ("add", with(head(Opcode::Add, Flags::NONE), b"key", b"v")),
        (
            "append_waived",
            with(head(Opcode::Append, waived), b"key", b"tail"),
        ),
        ("increment_waived", with(delta, b"counter", b"")),
        ("delete_last_sequence", with(last, b"key", b"")),
        ("flush", with(head(Opcode::Flush, Flags::NONE), b"", b"")),
    ]
}

fn replies() -> Vec<(&'static str, Reply<'static>)> {
    let echo = head(Opcode::Set, Flags::NILEXT).echo();
    let place = Place {
        queue: 15,
        credits: 4000,
        incarnation: 0x1234,
        pos: 70_000,
        durable_pos: 69_000,
    };
    let ack = |promise| {
        Reply::Ack(Ack {
            echo,
            place,
            promise,
        })
    };
    let at_nodes = |promise, nodes| {
        let place = Place {
            queue: Place::NO_QUEUE,
            pos: nodes,
            durable_pos: 0,
            ..place
        };
        Reply::Ack(Ack {
            echo,
            place,
            promise,
        })
    };
    let full = Place {
        credits: 0,
        pos: 0,
        ..place
    };
    let grant = Grant {
        session: SESSION,
        nonce: 0x0102_0304_0506_0708,
        stamp: 1,
        incarnation: 0x1234,
        slots: SLOTS,
        queues: 16,
        credits: 32,
        lease_ms: 60_000,
        datagram_bytes_max: 1472,
    };
    vec![
        (
            "cookie",
            Reply::Cookie {
                nonce: 0x0102_0304_0506_0708,
                cookie: 0xc00c1e,
                stamp: 1,
            },
        ),
        ("grant", Reply::Grant(grant)),
        ("ack_accepted", ack(Promise::Accepted)),
        ("ack_durable", ack(Promise::Durable)),
        ("ack_executed", at_nodes(Promise::Executed, 1)),
        ("ack_replicated", at_nodes(Promise::Replicated, 3)),
        (
            "nack_full",
            Reply::Nack(Nack {
                echo,
                place: full,
                reason: NackReason::Full,
            }),
        ),
        ("pong", Reply::Pong { echo, place }),
        (
            "result_value",
            Reply::Result {
                echo,
                place: Place { pos: 0, ..place },
                status: Status::Value,
                version: 0x7777,
                number: 0,
                item_flags: 7,
                value: b"value",
            },
        ),
        (
            "result_counted",
            Reply::Result {
                echo,
                place,
                status: Status::Done,
                version: 0x7778,
                number: 42,
                item_flags: 0,
                value: b"",
            },
        ),
        (
            "error_session",
            Reply::Error(ReplyError {
                echo,
                code: ErrorCode::Session,
                incarnation: 0x1235,
            }),
        ),
    ]
}

/// Packets that are refused: made from a good one by changing bytes and, where the reason is not
/// the checksum, putting that right.
fn refused() -> Vec<Refused<Malformed>> {
    let named = request_packets();
    let packet = |name: &str| {
        let (_, bytes) = named.iter().find(|(other, _)| other == name).unwrap();
        bytes.clone()
    };
    let changed = |name: &str, changes: &[(usize, u8)]| {
        let mut bytes = packet(name);
        for (place, byte) in changes {
            bytes[*place] = *byte;
        }
        let checksum = Request::checksum(&bytes).unwrap();
        bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    };
    let mut torn = packet("set_nilext");
    torn[70] ^= 0x10;
    let mut long = changed("set_nilext", &[]);
    long.push(0);
    use Malformed as M;
    let damaged: [(_, _, &[_], _); 21] = [
        ("magic", "hello", &[(0, b'X')], M::Magic),
        ("version", "hello", &[(2, 2)], M::Version),
        ("opcode_7", "get", &[(3, 7)], M::Opcode),
        ("opcode_200", "get", &[(3, 200)], M::Opcode),
        ("marked_get", "get", &[(4, 1)], M::NotNilext),
        ("marked_add", "add", &[(4, 1)], M::NotNilext),
        ("waived_get", "get", &[(4, 2)], M::Flags),
        ("unknown_flag", "get", &[(4, 16)], M::Flags),
        ("fragment", "set_nilext", &[(4, 9)], M::Fragment),
        ("no_key", "get", &[(7, 0)], M::Key),
        ("long_key", "get", &[(7, 251)], M::Key),
        ("key_of_flush", "flush", &[(7, 3)], M::Key),
        ("value_of_get", "get", &[(48, 1)], M::Length),
        ("value_missing", "set_nilext", &[(48, 6)], M::Length),
        ("gigabytes", "set_nilext", &[(51, 0x80)], M::TooLarge),
        ("expiry_of_get", "get", &[(44, 1)], M::Field),
        ("argument_of_set", "set_nilext", &[(56, 1)], M::Field),
        ("session_of_hello", "hello", &[(16, 1)], M::Field),
        ("slot_64", "get", &[(6, 64)], M::Sequence),
        ("sequence_0", "get", &[(32, 0), (33, 0)], M::Sequence),
        ("sequence_2_46", "get", &[(37, 0x40)], M::Sequence),
    ];
    let refused = |name, good, bytes, why| Refused {
        name,
        good,
        bytes,
        why,
    };
    let short = packet("hello")[..63].to_vec();
    let mut all = vec![refused("short", "hello", short, M::Short)];
    all.extend(
        damaged.map(|(name, good, changes, why)| refused(name, good, changed(good, changes), why)),
    );
    all.extend([
        refused("byte_too_many", "set_nilext", long, M::Length),
        refused("torn", "set_nilext", torn, M::Checksum),
    ]);
    all
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut room = [0; DATAGRAM_BYTES_MAX];
    let bytes = request.encode(&mut room).unwrap();
    room[..bytes].to_vec()
}

/// Every request's bytes, by name.
fn request_packets() -> Vec<(String, Vec<u8>)> {
    let requests = requests().into_iter();
    requests
        .map(|(name, request)| (name.to_owned(), encoded(&request)))
        .collect()
}

#[test]
fn requests_are_as_written() {
    let packets = request_packets();
    let title = "Requests; what each says is in tests/native.rs.";
    golden("native/requests.txt", &page(title, &packets));
    for ((name, request), (_, bytes)) in requests().iter().zip(&packets) {
        let found = Request::decode(bytes).unwrap();
        let expected = Head {
            checksum: found.head.checksum,
            key_bytes: found.head.key_bytes,
            value_bytes: found.head.value_bytes,
            ..request.head
        };
        assert_eq!(found.head, expected, "{name}");
        assert_eq!(
            (found.key, found.value),
            (request.key, request.value),
            "{name}"
        );
    }
}

#[test]
fn replies_are_as_written() {
    let packets: Vec<_> = replies()
        .iter()
        .map(|(name, reply)| {
            let mut room = [0; 200];
            let bytes = reply.encode(&mut room).unwrap();
            ((*name).to_owned(), room[..bytes].to_vec())
        })
        .collect();
    let title = "Replies; what each says is in tests/native.rs.";
    golden("native/replies.txt", &page(title, &packets));
    for ((name, reply), (_, bytes)) in replies().iter().zip(&packets) {
        assert_eq!(Reply::decode(bytes), Ok(*reply), "{name}");
    }
}

#[test]
fn refused_packets_are_as_written() {
    let refused = refused();
    let title = "Packets that are refused, made from those of requests.txt, and why.";
    golden(
        "native/refused.txt",
        &page_of_refused(title, &request_packets(), &refused),
    );
    for packet in refused {
        let found = Request::decode(&packet.bytes);
        assert_eq!(found, Err(packet.why), "{}", packet.name);
    }
}

/// Goal: a stranger never receives more bytes than it sent, and gets nothing stored. Method: the
/// handshake with every byte counted, and every refusal.
#[test]
fn a_stranger_receives_at_most_what_it_sent() {
    let cookies = Cookies::new(HashSeed([4, 5]));
    let peer = Peer::default();
    let mut room = [0; 128];
    for (_, request) in requests() {
        let sent = encoded(&request).len();
        let nonce = request.head.argument;
        let answer = match request.head.opcode {
            Opcode::Hello => Reply::Cookie {
                nonce,
                cookie: cookies.cookie(peer, nonce, 100),
                stamp: request.head.stamp,
            },
            _ => Reply::Error(ReplyError {
                echo: request.head.echo(),
                code: ErrorCode::Session,
                incarnation: 1,
            }),
        };
        assert!(answer.encode(&mut room).unwrap() <= sent);
    }
    for packet in refused() {
        let answer = Reply::refuse(&packet.bytes, packet.why, 1);
        let received = answer.map_or(0, |answer| answer.encode(&mut room).unwrap());
        assert!(received <= packet.bytes.len(), "{}", packet.name);
    }
    assert_eq!(Echo::of(&[0; 64]), None, "not this protocol");
}

/// Goal: what the XDP program is compiled from is what is decoded here. Method: the C
/// header is printed from the same constants.
#[test]
fn the_c_header_is_printed_from_the_constants() {
    let mut text = String::from(
        "/* SPDX-License-Identifier: MIT OR Apache-2.0 */\n\
         /* Printed from crates/codec/src/native by its test `native`; not to be edited. */\n\
         #ifndef CURTAIL_NATIVE_H\n#define CURTAIL_NATIVE_H\n\n",
    );
    let numbers = [
        ("MAGIC", u64::from(MAGIC)),
        ("VERSION", u64::from(VERSION)),
        ("HEADER_BYTES", HEADER_BYTES as u64),
        ("DATAGRAM_BYTES_MAX", DATAGRAM_BYTES_MAX as u64),
        ("KEY_BYTES_MAX", Key::BYTES_MAX as u64),
        ("SLOTS", u64::from(SLOTS)),
        ("SEQUENCE_MAX", SEQUENCE_MAX),
        ("FLAG_FRAGMENT", u64::from(Flags::FRAGMENT.0)),
        ("CLASS_REJECTED", Class::Rejected as u64),
        ("CLASS_NILEXT", Class::Nilext as u64),
        (
            "CLASS_NILEXT_NONIDEMPOTENT",
            Class::NilextNonidempotent as u64,
        ),
        ("CLASS_EXTERNALISING", Class::Externalising as u64),
        ("CLASS_BARRIER", Class::Barrier as u64),
        ("CLASS_LOCAL", Class::Local as u64),
        ("CLASS_QUEUED", u64::from(QUEUED)),
    ];
    for (name, number) in numbers {
        writeln!(text, "#define CURTAIL_{name} {number:#x}ULL").unwrap();
    }
    text.push_str("\n/* index: opcode << 3 | flags & 7 */\n");
    text.push_str("static const unsigned char curtail_class[256] = {\n");
    for row in CLASS_TABLE.chunks(8) {
        let row: Vec<String> = row.iter().map(|byte| format!("{byte:#04x}")).collect();
        writeln!(text, "\t{},", row.join(", ")).unwrap();
    }
    text.push_str("};\n\n#endif\n");
    golden("native/abi.h", &text);
}

/// Inputs per property.
const ROUNDS: usize = 20_000;

#[test]
fn properties_hold() {
    check(&properties::REGISTRY, properties::canary, ROUNDS, invented);
}

/// A packet of the files, often damaged, behind two bytes that the properties take for options.
fn invented(random: &mut Random) -> Vec<u8> {
    let mut packet = match random.below(3) {
        0 => {
            let mut room = [0; 200];
            let all = replies();
            let bytes = all[random.below(all.len())].1.encode(&mut room).unwrap();
            room[..bytes].to_vec()
        }
        _ => {
            let all = requests();
            encoded(&all[random.below(all.len())].1)
        }
    };
    for _ in 0..random.below(4) {
        let place = random.below(packet.len());
        match random.below(5) {
            0 => packet.truncate(place),
            1 => packet.push(random.next() as u8),
            2 => packet[place] = random.next() as u8,
            _ => packet[place] ^= 1 << random.below(8),
        }
        if packet.is_empty() {
            break;
        }
    }
    let options = [random.next() as u8, random.next() as u8];
    [&options[random.below(2)..], &packet].concat()
}
