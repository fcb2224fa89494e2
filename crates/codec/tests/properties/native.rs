//! What must hold for every datagram of the native protocol, request or reply, as functions of
//! bytes: the fuzzer calls them with what it invents, `tests/native.rs` with a fixed seed.

use curtail_codec::native::{
    Class, DATAGRAM_BYTES_MAX, HEADER_BYTES, Head, MAGIC, Malformed, Reply, Request, SEQUENCE_MAX,
    SLOTS,
};
use curtail_types::Key;

/// A name, and what must hold.
pub(crate) type Property = (&'static str, fn(&[u8]));

/// Every property.
pub(crate) const REGISTRY: [Property; 3] =
    [("request", request), ("reply", reply), ("flipped", flipped)];

/// What is decoded obeys the limits and encodes to the same bytes; what is not is answered with no
/// more bytes than it has. The first byte says whether magic and checksum are put right before.
pub(crate) fn request(data: &[u8]) {
    let datagram = sealed(data);
    match Request::decode(&datagram) {
        Ok(request) => obeys(&request, &datagram),
        Err(why) => is_refused_in_size(&datagram, why),
    }
    if let Ok(head) = Head::decode(&datagram) {
        let body = &datagram[HEADER_BYTES..];
        let mut checksum = head.start_checksum();
        body.chunks(7).for_each(|piece| checksum.update(piece));
        let whole = Request::checksum(&datagram);
        assert_eq!(whole, Some(checksum.finish()), "in pieces");
    }
}

/// A reply that is decoded encodes to the same bytes, and only results are longer than 64.
pub(crate) fn reply(data: &[u8]) {
    let datagram = sealed(data);
    let Ok(reply) = Reply::decode(&datagram) else {
        return;
    };
    let mut again = vec![0; datagram.len()];
    assert_eq!(reply.encode(&mut again), Ok(datagram.len()));
    assert_eq!(again, datagram);
    assert_eq!(reply.bytes(), datagram.len());
    let is_result = matches!(reply, Reply::Result { .. });
    assert!(is_result || datagram.len() == HEADER_BYTES);
}

/// A datagram with one bit changed is not taken for another request. The first byte says which bit.
pub(crate) fn flipped(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let mut datagram = sealed(rest);
    if Request::decode(&datagram).is_err() {
        return;
    }
    let bit = usize::from(choice) * 31 % (datagram.len() * 8);
    datagram[bit / 8] ^= 1 << (bit % 8);
    assert!(Request::decode(&datagram).is_err(), "bit {bit}");
}

/// A property that is false, though only for datagrams that are whole and have a value.
pub(crate) fn canary(data: &[u8]) {
    let datagram = sealed(data);
    if let Ok(request) = Request::decode(&datagram) {
        assert!(request.value.len() < 3, "found, as it should be");
    }
}

fn obeys(request: &Request<'_>, datagram: &[u8]) {
    let head = &request.head;
    assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
    assert_ne!(head.class().class(), Class::Rejected);
    assert!(head.slot < SLOTS && head.sequence <= SEQUENCE_MAX);
    assert_eq!(head.body_bytes() + HEADER_BYTES, datagram.len());
    let key_bytes = request.key.map_or(0, |key| key.bytes().len());
    assert!(key_bytes <= Key::BYTES_MAX);
    assert_eq!(request.operation().is_some(), request.key.is_some());
    let mut again = vec![0; datagram.len()];
    assert_eq!(request.encode(&mut again), Ok(datagram.len()));
    assert_eq!(again, datagram);
}

fn is_refused_in_size(datagram: &[u8], why: Malformed) {
    let Some(refusal) = Reply::refuse(datagram, why, 9) else {
        let magic = MAGIC.to_le_bytes();
        assert!(datagram.len() < HEADER_BYTES || !datagram.starts_with(&magic));
        return;
    };
    let mut room = [0; HEADER_BYTES];
    let bytes = refusal.encode(&mut room).expect("an error has 64 bytes");
    assert!(bytes <= datagram.len(), "amplified");
    assert_eq!(Reply::decode(&room[..bytes]), Ok(refusal));
}

/// What follows the first byte; if that is odd, with magic, version, lengths and checksum put
/// right, since nobody invents those.
fn sealed(data: &[u8]) -> Vec<u8> {
    let Some((&option, rest)) = data.split_first() else {
        return Vec::new();
    };
    let mut datagram = rest.to_vec();
    if option & 1 == 0 || datagram.len() < HEADER_BYTES {
        return datagram;
    }
    datagram[..3].copy_from_slice(b"CN\x01");
    if option & 2 != 0 {
        let value_bytes = (datagram.len() - HEADER_BYTES).saturating_sub(usize::from(datagram[7]));
        datagram[48..52].copy_from_slice(&(value_bytes as u32).to_le_bytes());
    }
    if let Some(checksum) = Request::checksum(&datagram) {
        datagram[8..16].copy_from_slice(&checksum.to_le_bytes());
    }
    datagram
}
