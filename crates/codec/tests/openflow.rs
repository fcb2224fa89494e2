//! OpenFlow, by example and by property.
//!
//! `tests/openflow/messages.txt` are messages as hex, eight bytes a line; each is encoded from the
//! value that this file gives it and decoded to it again. `BLESS=1 cargo test -p curtail-codec
//! --test openflow` writes them, to be read before they are committed. That a real switch takes
//! them is what the tests of `curtail-routing` show.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::too_many_lines,
    reason = "a message that makes no sense fails the test; lists of messages are long"
)]

use curtail_codec::openflow::{
    DecodedOpenFlow, FlowAction, FlowCommand, FlowMatch, FlowMod, FlowSelection, FlowStat,
    OpenFlowError, OpenFlowMessage, PortChange, PortDescription, TABLES_ALL, encode,
};

#[allow(dead_code, reason = "what is refused is made here, not kept")]
mod golden;
#[path = "properties/openflow.rs"]
mod properties;
mod seeded_inputs;

use golden::{golden, page};
use seeded_inputs::{Random, check};

fn key_flow() -> FlowMod {
    FlowMod {
        command: FlowCommand::Add,
        table: 0,
        priority: 300,
        cookie: 0xc200_0003_0000_0001,
        cookie_mask: 0,
        matching: FlowMatch {
            eth_type: Some(0x86dd),
            ipv6_dst: Some(([0xfd; 16], [0xff; 16])),
            ..FlowMatch::ALL
        },
        action: FlowAction::Output {
            port: 2,
            eth_dst: Some([2, 0, 0, 0, 0, 1]),
        },
    }
}

/// Messages of both sides, by name.
fn messages() -> Vec<(&'static str, OpenFlowMessage<'static>)> {
    use OpenFlowMessage as M;
    let class = FlowMod {
        matching: FlowMatch {
            eth_dst: Some(([2, 0, 0, 0, 0, 0], [0xff, 0, 0, 0, 0, 0])),
            eth_type: Some(0x0800),
            ipv4_dst: Some(([10, 77, 0, 0], [0xff, 0xff, 0, 0])),
            ..FlowMatch::ALL
        },
        action: FlowAction::Table(1),
        ..key_flow()
    };
    let delete = FlowMod {
        command: FlowCommand::Delete,
        table: TABLES_ALL,
        cookie_mask: 0xffff << 48,
        matching: FlowMatch::ALL,
        action: FlowAction::Drop,
        ..key_flow()
    };
    let strict = FlowMod {
        command: FlowCommand::DeleteStrict,
        action: FlowAction::Drop,
        ..key_flow()
    };
    let stat = FlowStat {
        table: 0,
        priority: 300,
        cookie: key_flow().cookie,
        packets: 12345,
        matching: Some(FlowMatch::mac([2, 3, 4, 5, 6, 7])),
    };
    let port = PortDescription {
        port: 2,
        is_down: true,
    };
    let selection = FlowSelection {
        table: TABLES_ALL,
        cookie: 0xc2 << 56,
        cookie_mask: 0xff << 56,
    };
    vec![
        (
            "hello",
            M::Hello {
                is_compatible: true,
            },
        ),
        ("error", M::Error(OpenFlowError::TABLE_FULL)),
        ("echo request", M::EchoRequest(b"are you there")),
        ("echo reply", M::EchoReply(b"are you there")),
        ("features request", M::FeaturesRequest),
        (
            "features reply",
            M::FeaturesReply {
                datapath: 0x00c0_ffee,
                tables: 254,
            },
        ),
        ("set config", M::SetConfig { miss_bytes: 128 }),
        ("port status", M::PortStatus(PortChange::Modified, port)),
        ("flow of a key", M::FlowMod(key_flow())),
        ("flow of a class", M::FlowMod(class)),
        ("delete by cookie", M::FlowMod(delete)),
        ("delete strictly", M::FlowMod(strict)),
        ("flows request", M::FlowStatsRequest(selection)),
        (
            "flows reply",
            M::OneFlow {
                flow: stat,
                more: true,
            },
        ),
        ("ports request", M::PortsRequest),
        ("barrier request", M::BarrierRequest),
        ("barrier reply", M::BarrierReply),
        ("something else", M::Other(26)),
    ]
}

fn bytes_of(message: &OpenFlowMessage<'_>, transaction: u32) -> Vec<u8> {
    let mut out = [0; 512];
    let bytes = encode(message, transaction, &mut out).unwrap();
    out[..bytes].to_vec()
}

#[test]
fn messages_by_example() {
    let all = messages().into_iter();
    let all: Vec<(String, Vec<u8>)> = all
        .map(|(name, message)| (name.to_string(), bytes_of(&message, 0x0102_0304)))
        .collect();
    golden("openflow/messages.txt", &page("OpenFlow 1.3", &all));
    for ((_, bytes), (name, message)) in all.iter().zip(messages()) {
        let DecodedOpenFlow::Complete {
            message: decoded, ..
        } = DecodedOpenFlow::of(bytes)
        else {
            panic!("{name} is not decoded");
        };
        match (message, decoded) {
            (
                OpenFlowMessage::OneFlow { flow, more },
                OpenFlowMessage::FlowStatsReply {
                    mut flows,
                    more: same,
                },
            ) => {
                assert_eq!((flows.next(), flows.next(), same), (Some(flow), None, more));
            }
            _ => assert_eq!(format!("{decoded:?}"), format!("{message:?}"), "{name}"),
        }
    }
}

/// Lengths within messages that reach beyond them, other versions, and nonsense in lists.
#[test]
fn malformed_messages_are_refused() {
    let stat = messages()
        .into_iter()
        .find(|(name, _)| *name == "flows reply");
    let good = bytes_of(&stat.unwrap().1, 1);
    let of = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        matches!(DecodedOpenFlow::of(&bytes), DecodedOpenFlow::Malformed)
    };
    assert!(of(0, 1), "version 1.0");
    assert!(of(3, 7), "shorter than a header");
    assert!(of(17, 0xff), "a flow beyond the message");
    assert!(of(17, 1), "a flow shorter than its length");
    assert!(of(67, 0xff), "a match beyond the flow");
    assert!(of(71, 0xff), "a field beyond the match");
    assert!(!of(12, 1), "padding is anything");
    let foreign = {
        let mut bytes = good;
        bytes[70] = 5 << 1; // ETH_TYPE with six bytes: not what is read here
        let DecodedOpenFlow::Complete { message, .. } = DecodedOpenFlow::of(&bytes) else {
            panic!("another's flow is no error");
        };
        let OpenFlowMessage::FlowStatsReply { mut flows, .. } = message else {
            panic!("{message:?}");
        };
        flows.next().unwrap()
    };
    assert_eq!(foreign.matching, None);
}

/// A switch that speaks later versions too is compatible if it lists ours, or lists none.
#[test]
fn versions_of_a_hello() {
    let hello = |bytes: &[u8]| match DecodedOpenFlow::of(bytes) {
        DecodedOpenFlow::Complete {
            message: OpenFlowMessage::Hello { is_compatible },
            ..
        } => is_compatible,
        other => panic!("{other:?}"),
    };
    assert!(hello(&[6, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x72]));
    assert!(!hello(&[
        6, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x62
    ]));
    assert!(hello(&[4, 0, 0, 8, 0, 0, 0, 1]));
    assert!(!hello(&[1, 0, 0, 8, 0, 0, 0, 1]));
    assert!(
        !hello(&[4, 0, 0, 12, 0, 0, 0, 1, 0, 1, 0, 99]),
        "a broken list"
    );
}

#[test]
fn properties_hold() {
    check(&properties::REGISTRY, properties::canary, 20_000, invent);
}

/// A few messages one after another, often damaged.
fn invent(random: &mut Random) -> Vec<u8> {
    let all = messages();
    let mut stream = Vec::new();
    for _ in 0..=random.below(3) {
        let (_, mut message) = all[random.below(all.len())];
        if let OpenFlowMessage::FlowMod(change) = &mut message {
            change.priority = random.below(20) as u16;
            change.table = random.next() as u8;
            change.cookie = random.next();
        }
        stream.extend(bytes_of(&message, random.next() as u32));
    }
    for _ in 0..random.below(3) {
        let at = random.below(stream.len());
        match random.below(4) {
            0 => stream.truncate(at.max(1)),
            1 => stream.insert(at, random.next() as u8),
            _ => stream[at] = [0, 1, 4, 8, 0xff, random.next() as u8][random.below(6)],
        }
    }
    stream
}
