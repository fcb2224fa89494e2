//! What must hold for every byte that a switch or a controller could send, as functions of bytes:
//! the fuzzer calls them with what it invents, `tests/openflow.rs` with a fixed seed.

use curtail_codec::openflow::{
    DecodedOpenFlow, HEADER_BYTES, MESSAGE_BYTES_MAX, OpenFlowMessage, encode,
};

/// A name, and what must hold.
pub(crate) type Property = (&'static str, fn(&[u8]));

/// Every property.
pub(crate) const REGISTRY: [Property; 2] = [("streams", streams), ("again", again)];

/// Messages of a stream come one after another, each as long as it says; one that has not all
/// arrived says how much it needs.
pub(crate) fn streams(data: &[u8]) {
    let mut rest = data;
    loop {
        match DecodedOpenFlow::of(rest) {
            DecodedOpenFlow::Complete { message, bytes, .. } => {
                assert!((HEADER_BYTES..=rest.len()).contains(&bytes));
                walk(&message);
                for length in 0..bytes {
                    let cut = DecodedOpenFlow::of(&rest[..length]);
                    let DecodedOpenFlow::Incomplete(needed) = cut else {
                        panic!("{length} bytes of {bytes} decide: {cut:?}");
                    };
                    assert!(needed > length && needed <= bytes.max(HEADER_BYTES));
                }
                rest = &rest[bytes..];
            }
            DecodedOpenFlow::Incomplete(needed) => {
                assert!(needed > rest.len() && needed <= MESSAGE_BYTES_MAX);
                return;
            }
            DecodedOpenFlow::Malformed => return,
        }
    }
}

/// What was decoded and is encoded again is decoded to the same.
pub(crate) fn again(data: &[u8]) {
    let DecodedOpenFlow::Complete {
        message,
        transaction,
        bytes,
    } = DecodedOpenFlow::of(data)
    else {
        return;
    };
    // What is not read here cannot be told again.
    if matches!(message, OpenFlowMessage::Other(_)) {
        return;
    }
    let mut out = vec![0; bytes + 64];
    let Some(length) = encode(&message, transaction, &mut out) else {
        panic!("{message:?} of {bytes} bytes has no room in {}", out.len());
    };
    // A hello lists versions in its own words.
    let is_hello = matches!(message, OpenFlowMessage::Hello { .. });
    assert!(
        length <= bytes || is_hello,
        "no longer than it was: {message:?}"
    );
    let short = encode(&message, transaction, &mut out[..length - 1]);
    assert_eq!(short, None, "no room");
    let mut out = vec![0; length];
    encode(&message, transaction, &mut out);
    let DecodedOpenFlow::Complete {
        message: second,
        transaction: same,
        bytes: all,
    } = DecodedOpenFlow::of(&out)
    else {
        panic!("{message:?} is not decoded again");
    };
    assert_eq!((same, all), (transaction, length));
    assert_eq!(told(&second), told(&message));
}

/// In words; flows and ports one by one, since where they lie is not what they say. What a flow
/// matches that is not read here is not encoded.
fn told(message: &OpenFlowMessage<'_>) -> String {
    match message {
        OpenFlowMessage::FlowStatsReply { flows, more } => {
            let known = flows.map(|mut flow| {
                flow.matching = Some(flow.matching.unwrap_or_default());
                flow
            });
            format!("{more} {:?}", known.collect::<Vec<_>>())
        }
        OpenFlowMessage::PortsReply { ports, more } => {
            format!("{more} {:?}", ports.collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}

/// Every list can be walked to its end.
fn walk(message: &OpenFlowMessage<'_>) {
    match message {
        OpenFlowMessage::FlowStatsReply { flows, .. } => assert!(flows.count() <= 2000),
        OpenFlowMessage::PortsReply { ports, .. } => assert!(ports.count() <= 1024),
        _ => {}
    }
}

/// A promise that is broken on purpose, to see that the harness notices: "no flow has priority 7".
#[allow(
    dead_code,
    reason = "the fuzzer of these properties has a canary of its own"
)]
pub(crate) fn canary(data: &[u8]) {
    if let DecodedOpenFlow::Complete { message, .. } = DecodedOpenFlow::of(data)
        && let OpenFlowMessage::FlowMod(change) = message
    {
        assert_ne!(change.priority, 7, "the canary sang");
    }
}
