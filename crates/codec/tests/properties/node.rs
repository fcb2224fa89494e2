//! What must hold for every byte that another node could send, as functions of bytes: the fuzzer
//! calls them with what it invents, `tests/node.rs` with a fixed seed.

use curtail_codec::node::{
    AnswerStatus, BATCH_HEAD_BYTES, Body, DecodedFrame, Frame, FrameHeader, FrameShape, Greeting,
    HEADER_BYTES, HandshakeKind, HandshakeProof, HandshakeRefusal, ItemAnswer, ItemRequest,
    LinkControl, Part,
};
use curtail_types::{Key, Outcome};

/// A name, and what must hold.
pub(crate) type Property = (&'static str, fn(&[u8]));

/// Every property.
pub(crate) const REGISTRY: [Property; 6] = [
    ("frames", frames),
    ("cut", cut),
    ("handshake", handshake),
    ("requests", |data| _ = request(data)),
    ("answers", |data| _ = answer(data)),
    ("payloads", payloads),
];

/// Every frame of a stream keeps to the limit and encodes to the same bytes. The first byte chooses
/// the limit.
pub(crate) fn frames(data: &[u8]) {
    let Some((&option, mut stream)) = data.split_first() else {
        return;
    };
    let frame_bytes_max = limit(option);
    while let DecodedFrame::Complete(frame) = Frame::decode(stream, frame_bytes_max) {
        let bytes = frame.header.bytes;
        assert!((HEADER_BYTES..=frame_bytes_max).contains(&bytes));
        let (front, rest) = stream.split_at(bytes);
        assert_eq!(frame.header.sequence == 0, !frame.header.kind.is_numbered());
        assert_eq!(encoded(&frame), front, "canonical");
        stream = rest;
    }
}

/// A frame that has not all arrived is incomplete and says how much it needs, never more than the
/// limit. The first byte chooses the limit.
pub(crate) fn cut(data: &[u8]) {
    let Some((&option, stream)) = data.split_first() else {
        return;
    };
    let frame_bytes_max = limit(option);
    let whole = Frame::decode(stream, frame_bytes_max);
    let DecodedFrame::Complete(frame) = whole else {
        return;
    };
    for length in 0..frame.header.bytes {
        let DecodedFrame::Incomplete(needed) = Frame::decode(&stream[..length], frame_bytes_max)
        else {
            panic!("{length} bytes of {} decide", frame.header.bytes);
        };
        assert!(needed > length && needed <= frame.header.bytes);
        let is_known = FrameHeader::decode(&stream[..length], frame_bytes_max) != Ok(None);
        assert_eq!(is_known, length >= HEADER_BYTES);
    }
}

/// A message of the handshake that is decoded encodes to the same bytes, and its length is known
/// from its beginning.
pub(crate) fn handshake(data: &[u8]) {
    let Ok(Some((kind, bytes))) = HandshakeKind::of(data) else {
        return;
    };
    assert!(bytes <= Greeting::BYTES && bytes == kind.bytes());
    if let Some(greeting) = data.first_chunk().and_then(Greeting::decode) {
        assert_eq!(greeting.kind, kind);
        assert_eq!(data.first_chunk(), Some(&greeting.encode()));
        let version = greeting.version_with(1, 3);
        assert!(version.is_none_or(|version| (1..=3).contains(&version)));
    }
    if let Some(proof) = data.first_chunk().and_then(HandshakeProof::decode) {
        assert_eq!(proof.kind, kind);
        assert_eq!(data.first_chunk(), Some(&proof.encode()));
    }
    if let Some(refusal) = data.first_chunk().and_then(HandshakeRefusal::decode) {
        assert_eq!(kind, HandshakeKind::Refusal);
        assert_eq!(data.first_chunk(), Some(&refusal.encode()));
    }
}

/// A request that is decoded encodes to the same bytes, within its bound, and fits no smaller room.
fn request(data: &[u8]) -> Option<ItemRequest<'_>> {
    let request = ItemRequest::decode(data)?;
    assert!((1..=Key::BYTES_MAX).contains(&request.key.bytes().len()));
    assert!(data.len() <= ItemRequest::HEAD_BYTES_MAX + request.value.len());
    is_written_as(data, |room| request.encode(room));
    Some(request)
}

/// The same for an answer; and its value is there whole or not at all.
fn answer(data: &[u8]) -> Option<ItemAnswer<'_>> {
    let answer = ItemAnswer::decode(data)?;
    assert!(data.len() <= ItemAnswer::HEAD_BYTES_MAX + answer.value.len());
    match answer.outcome {
        Outcome::Found(status) if !answer.value.is_empty() => {
            assert_eq!(answer.value.len(), status.value_bytes as usize);
        }
        _ => assert_eq!(answer.value, b""),
    }
    is_written_as(data, |room| answer.encode(room));
    Some(answer)
}

fn is_written_as(data: &[u8], encode: impl Fn(&mut [u8]) -> Option<usize>) {
    let mut room = vec![0xee; data.len() + 3];
    assert_eq!(encode(&mut room), Some(data.len()));
    assert_eq!(room.get(..data.len()), Some(data), "canonical");
    room.truncate(data.len() - 1);
    assert_eq!(encode(&mut room), None);
}

/// What stands in requests and answers of frames keeps to the same. The first byte chooses the
/// limit.
fn payloads(data: &[u8]) {
    let Some((&option, stream)) = data.split_first() else {
        return;
    };
    let DecodedFrame::Complete(frame) = Frame::decode(stream, limit(option)) else {
        return;
    };
    for part in parts(&frame) {
        match part {
            Part::Request(_, item) => _ = request(item.bytes),
            Part::Answer(_, item)
                if !matches!(item.status, AnswerStatus::Failed | AnswerStatus::Refused) =>
            {
                answer(item.bytes);
            }
            _ => {}
        }
    }
}

/// A property that is false, though only for frames with two items.
pub(crate) fn canary(data: &[u8]) {
    if let DecodedFrame::Complete(frame) = Frame::decode(data.get(1..).unwrap_or_default(), 1000) {
        assert!(parts(&frame).len() < 2, "found, as it should be");
    }
}

fn limit(option: u8) -> usize {
    [1 << 20, 1000, 100, HEADER_BYTES][usize::from(option & 3)]
}

/// The frame's bytes, written anew.
pub(crate) fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let header = frame.header;
    let mut room = vec![0xee; header.bytes];
    let control = match frame.body {
        Body::Resume {
            stream,
            received_stream,
            frame_bytes_max,
        } => LinkControl::Resume {
            stream,
            received_stream,
            frame_bytes_max,
        },
        Body::Heartbeat { view, load } => LinkControl::Heartbeat { view, load },
        Body::Credit => LinkControl::Credit,
        _ => return batch(&header, &parts(frame), room),
    };
    let large = header.class.is_large();
    let bytes = control.encode(large, header.acknowledged, &mut room);
    assert_eq!(bytes, Some(header.bytes));
    room
}

fn batch(header: &FrameHeader, parts: &[Part<'_>], mut room: Vec<u8>) -> Vec<u8> {
    let shape = FrameShape::of(header.class, &parts[0]);
    let mut length = shape.begin(&mut room).expect("a frame has room for itself");
    assert!(length <= HEADER_BYTES + BATCH_HEAD_BYTES);
    for part in parts {
        assert_eq!(
            FrameShape::of(header.class, part),
            shape,
            "one frame, one shape"
        );
        let bytes = part.encode(&mut room[length..]);
        assert_eq!(bytes, Some(part.bytes()));
        length += part.bytes();
    }
    assert_eq!(length, room.len());
    shape.seal(&mut room, header.sequence, header.acknowledged);
    room
}

pub(crate) fn parts<'a>(frame: &Frame<'a>) -> Vec<Part<'a>> {
    let parts: Vec<Part<'a>> = match frame.body {
        Body::Requests(head, items) => items.map(|item| Part::Request(head, item)).collect(),
        Body::Answers(head, items) => items.map(|item| Part::Answer(head, item)).collect(),
        Body::Report(bytes) => vec![Part::Report(bytes)],
        Body::Replica(items) => items.map(Part::Replica).collect(),
        Body::Resume { .. } | Body::Heartbeat { .. } | Body::Credit => Vec::new(),
    };
    for part in &parts {
        if let Part::Replica(replica) = part {
            assert!(!replica.message.is_empty());
            let key = replica.item.map(|item| item.key.bytes().len());
            assert!(key.is_none_or(|bytes| (1..=Key::BYTES_MAX).contains(&bytes)));
        }
    }
    parts
}
