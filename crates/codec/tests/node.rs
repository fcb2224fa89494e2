//! The protocol between nodes, by example and by property.
//!
//! `tests/node/*.txt` are frames and handshake messages as hex, eight bytes a line as in the
//! protocol's drawing; each is encoded from the value that this file gives it and decoded to it
//! again. `BLESS=1 cargo test -p curtail-codec --test node` writes them, to be read before they are
//! committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::too_many_lines,
    reason = "a frame that makes no sense fails the test; lists of frames are long"
)]

use std::sync::OnceLock;

use curtail_codec::node::{
    AnswerStatus, BatchHead, Class, DecodedFrame, Frame, FrameShape, Greeting, HandshakeKind,
    HandshakeProof, HandshakeRefusal, Image, ItemAnswer, ItemRequest, LinkControl, MalformedFrame,
    NodeAnswer, NodeRequest, Part, RefusalReason, ReplicaItem, ReplicaPart, Shows, VERSION_MAX,
    VERSION_MIN, cluster_hash,
};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Direction, Exptime, Failure, Get,
    ItemStatus, Key, NodeId, Operation, Outcome, Set, SetMode, SetOutcome, ViewNumber,
};

mod golden;
#[path = "properties/node.rs"]
mod properties;
mod seeded_inputs;

use golden::{Refused, golden, page, page_of_refused};
use seeded_inputs::{Random, check};

const HEAD: BatchHead = BatchHead {
    number: 0x0102_0304_0506_0708,
    view: ViewNumber(9),
};

const IMAGE: Image<'static> = Image {
    client_flags: 7,
    expiry: 1_800_000_000,
    stale: false,
    won: true,
    value: b"value",
};

fn replica(message: &'static [u8], item: Option<(&'static [u8], Image<'static>)>) -> Part<'static> {
    let item = item.map(|(key, image)| ReplicaItem {
        version: Cas(0x00aa_bbcc_ddee_0401),
        key: Key::new(key).unwrap(),
        image,
    });
    Part::Replica(ReplicaPart {
        stage: 0x0203,
        message,
        item,
    })
}

/// Frames of parts, by name.
fn batches() -> Vec<(&'static str, Class, Vec<Part<'static>>)> {
    let request = |number, name: &str| {
        let (options, bytes) = (4, item(name));
        let item = NodeRequest {
            number,
            options,
            bytes,
        };
        Part::Request(HEAD, item)
    };
    let answer = |number, status, bytes| {
        let item = NodeAnswer {
            number,
            status,
            copies: number as u8 * 2,
            bytes,
        };
        Part::Answer(HEAD, item)
    };
    let empty = Image {
        stale: true,
        won: false,
        value: b"",
        ..IMAGE
    };
    vec![
        (
            "requests",
            Class::LargeDemand,
            vec![request(0, "read"), request(1, "write")],
        ),
        (
            "answers",
            Class::LargeAnswer,
            vec![
                answer(0, AnswerStatus::Done, item("missing")),
                answer(1, AnswerStatus::Moved, b""),
                answer(2, AnswerStatus::Failed, &[1]),
                answer(3, AnswerStatus::Refused, &[2]),
            ],
        ),
        (
            "answer that shows a write",
            Class::Answer,
            vec![answer(0, AnswerStatus::Shown, b"versions\x01")],
        ),
        ("report", Class::Answer, vec![Part::Report(b"anything")]),
        ("empty_report", Class::Answer, vec![Part::Report(b"")]),
        (
            "replica",
            Class::LargeDemand,
            vec![
                replica(b"message", Some((b"key", IMAGE))),
                replica(b"m", None),
                replica(&[7; 70], Some((&[b'k'; 250], empty))),
            ],
        ),
    ]
}

/// Requests about items, by name.
fn requests() -> Vec<(String, ItemRequest<'static>)> {
    let time = |seconds| Some(Exptime(seconds));
    let read = Operation::Get(Get::default());
    let all_of_a_read = Operation::Get(Get {
        touch: time(-1),
        vivify: time(2),
        recache: time(3),
        quiet_access: true,
        new_cas: Some(Cas(4)),
        keep_token: true,
    });
    let write = |mode| {
        Operation::Set(Set {
            mode,
            ..Set::default()
        })
    };
    let all_of_a_write = Operation::Set(Set {
        mode: SetMode::Append,
        flags: u32::MAX,
        exptime: Exptime(2_000_000_000),
        compare: Some(Cas(u64::MAX)),
        invalidate: true,
        vivify: time(0),
        new_cas: Some(Cas(0)),
    });
    let all_of_a_removal = Operation::Delete(Delete {
        compare: Some(Cas(1)),
        invalidate: true,
        touch: time(2),
        drop_value: true,
        new_cas: Some(Cas(3)),
    });
    let all_of_counting = Operation::Arithmetic(Arithmetic {
        direction: Direction::Decrement,
        delta: 1,
        vivify: time(2),
        initial: 3,
        touch: time(4),
        compare: Some(Cas(5)),
        new_cas: Some(Cas(6)),
    });
    let counting = Operation::Arithmetic(Arithmetic::default());
    let removal = Operation::Delete(Delete::default());
    let of = |name: &str, operation, shows, value| {
        let key = Key::new(b"key").unwrap();
        let request = ItemRequest {
            key,
            operation,
            shows,
            value,
        };
        (name.to_owned(), request)
    };
    let mut requests = vec![
        of("read", read, Shows::Value, b""),
        of("read of the status", read, Shows::Status, b""),
        of("touch", all_of_a_read, Shows::Nothing, b""),
        of("write", write(SetMode::Set), Shows::Nothing, &b"value"[..]),
        of("all of a write", all_of_a_write, Shows::Nothing, b"v"),
        of("removal", removal, Shows::Nothing, b""),
        of("all of a removal", all_of_a_removal, Shows::Nothing, b""),
        of("counting", counting, Shows::Nothing, b""),
        of("all of counting", all_of_counting, Shows::Nothing, b""),
    ];
    for mode in [SetMode::Add, SetMode::Replace, SetMode::Prepend] {
        let name = format!("{mode:?}").to_lowercase();
        requests.push(of(&name, write(mode), Shows::Nothing, b""));
    }
    requests
}

/// Answers to them, by name.
fn answers() -> Vec<(String, ItemAnswer<'static>)> {
    let status = ItemStatus {
        flags: 7,
        cas: Cas(8),
        value_bytes: 5,
        ttl_seconds: Some(9),
        idle_seconds: 10,
        fetched: true,
        won: false,
        stale: true,
        contended: false,
    };
    let forever = ItemStatus {
        ttl_seconds: None,
        won: true,
        contended: true,
        ..status
    };
    let counted = |created| ArithmeticOutcome::Counted {
        number: u64::MAX,
        status,
        created,
    };
    let mut answers = vec![
        ("found", Outcome::Found(status), &b"value"[..]),
        ("found, its status", Outcome::Found(forever), b""),
        ("missing", Outcome::Missing, b""),
        ("counted", Outcome::Arithmetic(counted(false)), b""),
        ("created", Outcome::Arithmetic(counted(true)), b""),
    ];
    answers.extend(
        [
            ("stored", SetOutcome::Stored(Cas(11))),
            ("not stored", SetOutcome::NotStored),
            ("not written: exists", SetOutcome::Exists),
            ("not written: not found", SetOutcome::NotFound),
            ("not written: too large", SetOutcome::TooLarge),
            ("not written: out of memory", SetOutcome::OutOfMemory),
        ]
        .map(|(name, outcome)| (name, Outcome::Set(outcome), &b""[..])),
    );
    answers.extend(
        [
            ("deleted", DeleteOutcome::Deleted),
            ("not deleted: not found", DeleteOutcome::NotFound),
            ("not deleted: exists", DeleteOutcome::Exists),
            ("not deleted: out of memory", DeleteOutcome::OutOfMemory),
        ]
        .map(|(name, outcome)| (name, Outcome::Delete(outcome), &b""[..])),
    );
    answers.extend(
        [
            ("not counted: not found", ArithmeticOutcome::NotFound),
            ("not counted: exists", ArithmeticOutcome::Exists),
            ("not counted: not a number", ArithmeticOutcome::NotANumber),
            ("not counted: out of memory", ArithmeticOutcome::OutOfMemory),
        ]
        .map(|(name, outcome)| (name, Outcome::Arithmetic(outcome), &b""[..])),
    );
    let named = answers.into_iter().map(|(name, outcome, value)| {
        let answer = ItemAnswer { outcome, value };
        (name.to_owned(), answer)
    });
    named.collect()
}

/// The bytes of all of them.
fn items() -> &'static [(String, Vec<u8>)] {
    static ITEMS: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    ITEMS.get_or_init(encoded_items)
}

fn encoded_items() -> Vec<(String, Vec<u8>)> {
    let written = |encode: &dyn Fn(&mut [u8]) -> Option<usize>| {
        let mut room = vec![0; 400];
        let length = encode(&mut room).unwrap();
        room.truncate(length);
        room
    };
    let requests = requests().into_iter();
    let requests = requests.map(|(name, item)| (name, written(&|room| item.encode(room))));
    let answers = answers().into_iter();
    requests
        .chain(answers.map(|(name, item)| (name, written(&|room| item.encode(room)))))
        .collect()
}

fn item(name: &str) -> &'static [u8] {
    let (_, bytes) = items().iter().find(|(found, _)| found == name).unwrap();
    bytes
}

fn controls() -> Vec<(&'static str, LinkControl)> {
    vec![
        (
            "resume",
            LinkControl::Resume {
                stream: 0x1111,
                received_stream: 0x2222,
                frame_bytes_max: 1 << 20,
            },
        ),
        (
            "heartbeat",
            LinkControl::Heartbeat {
                view: ViewNumber(9),
                load: 77,
            },
        ),
        ("credit", LinkControl::Credit),
    ]
}

/// Every frame's bytes, by name.
fn frames() -> Vec<(String, Vec<u8>)> {
    let of_parts = batches().into_iter().map(|(name, class, parts)| {
        let mut room = vec![0; 1000];
        let shape = FrameShape::of(class, &parts[0]);
        let mut length = shape.begin(&mut room).unwrap();
        for part in &parts {
            length += part.encode(&mut room[length..]).unwrap();
        }
        room.truncate(length);
        shape.seal(&mut room, 1001, 0x0a0b).unwrap();
        (name.to_owned(), room)
    });
    let about_links = controls().into_iter().map(|(name, control)| {
        let mut room = vec![0; LinkControl::BYTES_MAX];
        let length = control.encode(name == "credit", 0x0a0b, &mut room).unwrap();
        room.truncate(length);
        (name.to_owned(), room)
    });
    of_parts.chain(about_links).collect()
}

fn greeting(kind: HandshakeKind) -> Greeting {
    Greeting {
        kind,
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        large: kind == HandshakeKind::Hello,
        cluster: cluster_hash("curtail"),
        incarnation: 0x0102_0304_0506_0708,
        node: NodeId(1),
        to: NodeId(2),
        pair: 3,
        workers: 4,
        nonce: core::array::from_fn(|i| i as u8),
    }
}

fn handshakes() -> Vec<(String, Vec<u8>)> {
    let proof = |kind| HandshakeProof {
        kind,
        mac: [0xab; 32],
    };
    let refusal = HandshakeRefusal {
        reason: RefusalReason::Secret,
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
    };
    vec![
        (
            "hello".to_owned(),
            greeting(HandshakeKind::Hello).encode().to_vec(),
        ),
        (
            "challenge".to_owned(),
            greeting(HandshakeKind::Challenge).encode().to_vec(),
        ),
        (
            "proof".to_owned(),
            proof(HandshakeKind::Proof).encode().to_vec(),
        ),
        (
            "welcome".to_owned(),
            proof(HandshakeKind::Welcome).encode().to_vec(),
        ),
        ("refusal".to_owned(), refusal.encode().to_vec()),
    ]
}

/// Frames that are refused, and why.
fn refused() -> Vec<Refused<MalformedFrame>> {
    let changed = |name: &str, changes: &[(usize, u8)]| {
        let all = frames();
        let (_, bytes) = all.iter().find(|(found, _)| found == name).unwrap();
        let mut bytes = bytes.clone();
        for (place, byte) in changes {
            bytes[*place] = *byte;
        }
        bytes
    };
    let shorter = |name: &str| {
        let mut bytes = changed(name, &[]);
        bytes.pop();
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    use MalformedFrame as M;
    let damaged: [(_, _, &[_], _); 18] = [
        ("shorter_than_a_header", "credit", &[(0, 23)], M::Length),
        ("gigabytes", "replica", &[(3, 0x40)], M::Length),
        ("kind_0", "replica", &[(4, 0)], M::Kind),
        ("kind_4", "replica", &[(4, 4)], M::Kind),
        ("kind_12", "replica", &[(4, 12)], M::Kind),
        ("class_4", "replica", &[(5, 4)], M::Class),
        ("heartbeat_on_demand", "heartbeat", &[(5, 0)], M::Class),
        ("spare", "replica", &[(6, 1)], M::Spare),
        ("numbered_credit", "credit", &[(8, 1)], M::Sequence),
        ("no_number", "replica", &[(8, 0), (9, 0)], M::Sequence),
        ("unknown_status", "answers", &[(48, 5)], M::Body),
        ("batch_spare", "answers", &[(36, 1)], M::Body),
        ("item_without_key", "replica", &[(27, 0)], M::Body),
        ("key_without_item", "replica", &[(26, 0)], M::Body),
        ("unknown_mark", "replica", &[(26, 9)], M::Body),
        ("no_message", "replica", &[(28, 0)], M::Body),
        ("gigabytes_of_message", "replica", &[(31, 0x40)], M::Body),
        ("gigabytes_of_value", "replica", &[(51, 0x40)], M::Body),
    ];
    let mut all: Vec<_> = damaged
        .map(|(name, good, changes, why)| Refused {
            name,
            good,
            bytes: changed(good, changes),
            why,
        })
        .into();
    let halves = [
        ("half_a_request", "requests"),
        ("half_a_heartbeat", "heartbeat"),
        ("half_a_replica_part", "replica"),
    ];
    all.extend(halves.map(|(name, good)| Refused {
        name,
        good,
        bytes: shorter(good),
        why: M::Body,
    }));
    all
}

/// Goal: frames have the bytes that are written down, and mean what they were made from. Method:
/// each is compared with its page, decoded, and encoded again.
#[test]
fn frames_are_as_written() {
    let frames = frames();
    golden(
        "node/frames.txt",
        &page("Frames; what each says is in tests/node.rs.", &frames),
    );
    for (name, bytes) in &frames {
        let DecodedFrame::Complete(frame) = Frame::decode(bytes, 1000) else {
            panic!("{name} is not decoded");
        };
        assert_eq!(frame.header.acknowledged, 0x0a0b, "{name}");
        assert_eq!(&properties::encoded(&frame), bytes, "{name}");
    }
    for ((name, bytes), (_, class, parts)) in frames.iter().zip(batches()) {
        let DecodedFrame::Complete(frame) = Frame::decode(bytes, bytes.len()) else {
            panic!("{name} is not decoded");
        };
        assert_eq!((frame.header.class, frame.header.sequence), (class, 1001));
        assert_eq!(properties::parts(&frame), parts, "{name}");
    }
}

/// Goal: requests and answers about items have the bytes that are written down, nothing of them is
/// lost on the way, and half of one is none. Method: every field of every operation, every outcome
/// and every failure.
#[test]
fn items_are_as_written() {
    let items = items();
    let title = "Requests about items and their answers; what each says is in tests/node.rs.";
    golden("node/items.txt", &page(title, items));
    let (requests, answers) = (requests(), answers());
    let (of_requests, of_answers) = items.split_at(requests.len());
    for ((name, request), (_, bytes)) in requests.iter().zip(of_requests) {
        assert_eq!(ItemRequest::decode(bytes), Some(*request), "{name}");
    }
    for ((name, answer), (_, bytes)) in answers.iter().zip(of_answers) {
        assert_eq!(ItemAnswer::decode(bytes), Some(*answer), "{name}");
        assert_eq!(ItemAnswer::decode(&[&bytes[..], b"x"].concat()), None);
    }
    for (name, request) in &requests {
        let is_right = |answer: &ItemAnswer<'_>| match (request.operation, answer.outcome) {
            (Operation::Get(_), Outcome::Found(_)) => {
                (request.shows == Shows::Value) != answer.value.is_empty()
            }
            (Operation::Get(_), Outcome::Missing)
            | (Operation::Set(_), Outcome::Set(_))
            | (Operation::Delete(_), Outcome::Delete(_))
            | (Operation::Arithmetic(_), Outcome::Arithmetic(_)) => true,
            _ => false,
        };
        for (answered, answer) in &answers {
            let found = request.is_answered_by(answer);
            assert_eq!(found, is_right(answer), "{name}: {answered}");
        }
    }
    let whole = (&of_requests[4].1, &of_answers[4].1);
    for length in 0..whole.0.len() - 1 {
        assert_eq!(ItemRequest::decode(&whole.0[..length]), None);
    }
    for length in 0..whole.1.len() {
        assert_eq!(ItemAnswer::decode(&whole.1[..length]), None);
    }
    for (number, failure) in Failure::ALL.into_iter().enumerate() {
        assert_eq!(failure as usize, number);
    }
}

#[test]
fn handshakes_are_as_written() {
    let messages = handshakes();
    let title = "Handshake messages; what each says is in tests/node.rs.";
    golden("node/handshakes.txt", &page(title, &messages));
    for (name, bytes) in &messages {
        let (kind, length) = HandshakeKind::of(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len(), "{name}");
        if matches!(kind, HandshakeKind::Hello | HandshakeKind::Challenge) {
            let found = Greeting::decode(bytes.first_chunk().unwrap());
            assert_eq!(found, Some(greeting(kind)), "{name}");
        }
    }
}

#[test]
fn refused_frames_are_as_written() {
    let refused = refused();
    let title = "Frames that are refused, made from those of frames.txt, and why.";
    golden(
        "node/refused.txt",
        &page_of_refused(title, &frames(), &refused),
    );
    for frame in refused {
        let found = Frame::decode(&frame.bytes, 1000);
        assert_eq!(found, DecodedFrame::Malformed(frame.why), "{}", frame.name);
    }
}

/// Goal: both sides of a rolling upgrade find the newest version that both speak, or none. Method:
/// ranges beside, within and apart from each other.
#[test]
fn versions_are_negotiated() {
    let mut peer = greeting(HandshakeKind::Hello);
    for ((min, max), expected) in [
        ((1, 1), Some(1)),
        ((1, 2), Some(2)),
        ((2, 5), Some(3)),
        ((3, 9), Some(3)),
        ((4, 9), None),
        ((0, 0), None),
    ] {
        (peer.version_min, peer.version_max) = (min, max);
        assert_eq!(peer.version_with(1, 3), expected, "{min} to {max}");
    }
}

/// Goal: a part that does not fit writes nothing behind its room, and a payload can be written in
/// place. Method: every room that is too small, and one that is filled afterwards.
#[test]
fn parts_keep_to_their_room() {
    let part = replica(b"message", Some((b"key", IMAGE)));
    for length in 0..part.bytes() {
        assert_eq!(part.encode(&mut vec![0; length]), None, "{length} bytes");
    }
    let (mut whole, mut filled) = ([0; 100], [0; 100]);
    let bytes = part.encode(&mut whole).unwrap();
    let without = Image {
        value: b"",
        ..IMAGE
    };
    let hollow = replica(b"message", Some((b"key", without)));
    assert_eq!(hollow.bytes_with(5), bytes);
    let place = hollow.lay_out(&mut filled, 5).unwrap();
    place.copy_from_slice(b"value");
    assert_eq!(whole, filled);
    let tombstone = replica(b"message", None);
    assert_eq!(tombstone.lay_out(&mut filled, 5), None);
}

/// Inputs per property.
const ROUNDS: usize = 20_000;

#[test]
fn properties_hold() {
    check(&properties::REGISTRY, properties::canary, ROUNDS, invented);
}

/// A few of the files' packets, often damaged, behind a byte that chooses the limit; at times
/// without it, and at times only noise.
fn invented(random: &mut Random) -> Vec<u8> {
    let mut stream = Vec::new();
    match random.below(4) {
        0 => some_of(&handshakes(), 3, &mut stream, random),
        1 => some_of(items(), 1, &mut stream, random),
        _ => {
            stream.push(random.next() as u8);
            some_of(&frames(), 3, &mut stream, random);
        }
    }
    if random.below(50) == 0 {
        stream
            .iter_mut()
            .for_each(|byte| *byte = random.next() as u8);
    }
    for _ in 0..random.below(4) {
        let place = random.below(stream.len());
        match random.below(5) {
            0 => stream.truncate(place),
            1 => stream.insert(place, random.next() as u8),
            2 => stream[place] = random.next() as u8,
            _ => stream[place] ^= 1 << random.below(8),
        }
        if stream.is_empty() {
            break;
        }
    }
    stream
}

fn some_of(packets: &[(String, Vec<u8>)], most: usize, stream: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(most) {
        stream.extend(&packets[random.below(packets.len())].1);
    }
}
