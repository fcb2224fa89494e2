//! What must hold for every datagram and frame that the tier's network could bring, as functions of
//! bytes: the fuzzer calls them with what it invents, `tests/tiered.rs` with a fixed seed.

use curtail_codec::tiered::{
    AddressClass, DATAGRAM_BYTES_MAX, HEADER_BYTES, TierAddress, TierFrame, TierSecret,
    TieredDatagram, TieredFlags, TieredOpcode,
};
use curtail_types::HashSeed;

/// A name, and what must hold.
pub(crate) type Property = (&'static str, fn(&[u8]));

/// Every property.
pub(crate) const REGISTRY: [Property; 4] = [
    ("datagrams", datagrams),
    ("seals", seals),
    ("addresses", addresses),
    ("frames", frames),
];

/// The cluster's secret in these tests.
pub(crate) const SECRET: TierSecret = TierSecret(HashSeed([0x0123_4567_89ab_cdef, 42]));

/// What is decoded keeps to the limits, has the address that a forwarder reads, is flagged only
/// where no cache node takes it, and encodes to the same bytes.
pub(crate) fn datagrams(data: &[u8]) {
    let Ok(datagram) = TieredDatagram::decode(data, Some(&SECRET)) else {
        return;
    };
    assert!((HEADER_BYTES..=DATAGRAM_BYTES_MAX).contains(&data.len()));
    let head = &datagram.head;
    assert_eq!(TieredDatagram::address(data), Some(head.address));
    if head.address.class == AddressClass::CachedGet {
        assert_eq!(head.opcode, TieredOpcode::Get);
        assert_eq!(head.flags, TieredFlags::NONE);
    }
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let bytes = datagram.encode(&mut out, Some(&SECRET)).unwrap();
    assert_eq!(&out[..bytes], data, "canonical");
    let short = datagram.encode(&mut out[..bytes - 1], Some(&SECRET));
    assert!(short.is_err(), "no room");
}

/// Without the secret, or with another one, no message between nodes is taken; and what is changed
/// in one bit is refused.
pub(crate) fn seals(data: &[u8]) {
    let Ok(datagram) = TieredDatagram::decode(data, Some(&SECRET)) else {
        return;
    };
    let other = TierSecret(HashSeed([0x0123_4567_89ab_cdef, 43]));
    for secret in [None, Some(&other)] {
        let taken = TieredDatagram::decode(data, secret).is_ok();
        assert_eq!(taken, !datagram.head.opcode.is_between_nodes());
    }
    let mut damaged = data.to_vec();
    let at = data[HEADER_BYTES - 88] as usize * 7 % data.len();
    damaged[at] ^= 1 << (data.len() % 8);
    assert!(TieredDatagram::decode(&damaged, Some(&SECRET)).is_err());
}

/// Every encoding of an address leads back to it, and no other address has the same bytes.
pub(crate) fn addresses(data: &[u8]) {
    let Some((word, rest)) = data.split_first_chunk::<8>() else {
        return;
    };
    let cluster = rest.first_chunk().map_or(7, |c| u32::from_be_bytes(*c));
    if let Some(address) = TierAddress::from_word(u64::from_le_bytes(*word)) {
        assert_eq!(address.to_word(), u64::from_le_bytes(*word));
        let ipv6 = address.to_ipv6(cluster);
        assert_eq!(TierAddress::from_ipv6(ipv6, cluster), Some(address));
        assert_eq!(TierAddress::from_ipv6(ipv6, cluster ^ 1), None);
        let (mac, ip) = (address.to_mac(), address.to_ipv4([10, 7]));
        assert_eq!(mac[0] & 3, 2, "unicast, locally administered");
        let back = TierAddress::from_mac_and_ipv4(mac, ip, [10, 7]);
        assert_eq!(back, Some(address));
    }
    if let Some(ipv6) = data.first_chunk::<16>() {
        let cluster = u32::from_be_bytes([ipv6[2], ipv6[3], ipv6[4], ipv6[5]]);
        if let Some(address) = TierAddress::from_ipv6(*ipv6, cluster) {
            assert_eq!(address.to_ipv6(cluster), *ipv6, "canonical");
        }
    }
}

/// A frame that is taken apart and put together again is the same message; its parts lie in it.
pub(crate) fn frames(data: &[u8]) {
    let Some(frame) = TierFrame::decode(data) else {
        return;
    };
    assert!(frame.datagram.len() <= data.len());
    let mut out = vec![0; frame.datagram.len() + TierFrame::HEADERS_BYTES_MAX];
    let bytes = frame.encode(&mut out).unwrap();
    assert!(bytes <= data.len(), "no longer than it was");
    assert_eq!(TierFrame::decode(&out[..bytes]), Some(frame));
}

/// A promise that is broken on purpose, to see that the harness notices: "nobody is told Busy".
#[allow(
    dead_code,
    reason = "the fuzzer of these properties has a canary of its own"
)]
pub(crate) fn canary(data: &[u8]) {
    if let Ok(datagram) = TieredDatagram::decode(data, Some(&SECRET)) {
        assert_ne!(datagram.head.load, 77, "the canary sang");
    }
}
