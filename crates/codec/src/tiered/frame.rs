//! Ethernet frames around the datagrams, for hosts that send and receive whole frames: encoding
//! `mac`, whose destinations no socket can name (SW-87), and the tests of both.
//!
//! IPv4 without options or IPv6 without extension headers, then UDP; nothing else is read.

use super::address::MacAddress;

/// One end of a datagram on the network.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct UdpEnd {
    /// On the link.
    pub mac: MacAddress,
    /// Of the host.
    pub ip: FrameIp,
    /// UDP port.
    pub port: u16,
}

/// An address of either family.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FrameIp {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

/// From where to where.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FrameEnds {
    /// The sender.
    pub from: UdpEnd,
    /// The receiver.
    pub to: UdpEnd,
}

/// A frame taken apart.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TierFrame<'a> {
    /// Its addresses.
    pub ends: FrameEnds,
    /// The datagram.
    pub datagram: &'a [u8],
}

const ETHERNET_BYTES: usize = 14;
const UDP_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const HOPS: u8 = 64;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Don't fragment, and no offset.
const WHOLE: [u8; 2] = [0x40, 0];

impl<'a> TierFrame<'a> {
    /// Longest frame of these headers around `datagram` bytes.
    pub const HEADERS_BYTES_MAX: usize = ETHERNET_BYTES + 40 + UDP_BYTES;

    /// The datagram in a frame, if it is a whole UDP datagram with nothing unusual about it. Its
    /// checksums are not looked at: the datagram has its own seal.
    pub fn decode(frame: &'a [u8]) -> Option<Self> {
        let (to_mac, rest) = frame.split_first_chunk::<6>()?;
        let (from_mac, rest) = rest.split_first_chunk::<6>()?;
        let (kind, rest) = rest.split_first_chunk::<2>()?;
        let (from_ip, to_ip, udp) = match *kind {
            ETHERTYPE_IPV4 => decode_ipv4(rest)?,
            ETHERTYPE_IPV6 => decode_ipv6(rest)?,
            _ => return None,
        };
        let ([a, b, c, d, e, f, _, _], rest) = udp.split_first_chunk::<UDP_BYTES>()?;
        let bytes = usize::from(u16::from_be_bytes([*e, *f])).checked_sub(UDP_BYTES)?;
        let end = |mac: &MacAddress, ip, port| UdpEnd {
            mac: *mac,
            ip,
            port: u16::from_be_bytes(port),
        };
        let ends = FrameEnds {
            from: end(from_mac, from_ip, [*a, *b]),
            to: end(to_mac, to_ip, [*c, *d]),
        };
        let datagram = rest.get(..bytes)?;
        Some(Self { ends, datagram })
    }

    /// Writes the frame; how many bytes it took. `None` if it does not fit, or if the two ends are
    /// of different families.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        self.ends.enclose(out, |room| {
            let bytes = self.datagram.len();
            room.get_mut(..bytes)?.copy_from_slice(self.datagram);
            Some(bytes)
        })
    }
}

impl FrameEnds {
    /// Has `write` fill the datagram of a frame, and writes the headers before it; how many bytes
    /// the frame has. `None` if it does not fit, if `write` says so, or if the two ends are of
    /// different families.
    pub fn enclose(
        &self,
        out: &mut [u8],
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        let headers = match self.to.ip {
            FrameIp::V4(_) => TierFrame::HEADERS_BYTES_MAX - 20,
            FrameIp::V6(_) => TierFrame::HEADERS_BYTES_MAX,
        };
        let (out, room) = out.split_at_mut_checked(headers)?;
        let bytes = write(room)?;
        self.write_headers(out, room.get(..bytes)?)?;
        Some(headers + bytes)
    }

    fn write_headers(&self, out: &mut [u8], datagram: &[u8]) -> Option<()> {
        let udp_bytes = u16::try_from(UDP_BYTES + datagram.len()).ok()?;
        let mut room = Room { out, used: 0 };
        room.put(&self.to.mac)?;
        room.put(&self.from.mac)?;
        let pseudo_sum = match (self.from.ip, self.to.ip) {
            (FrameIp::V4(from), FrameIp::V4(to)) => {
                room.put(&ETHERTYPE_IPV4)?;
                room.put(&ipv4_header(from, to, udp_bytes)?)?;
                sum(&from) + sum(&to)
            }
            (FrameIp::V6(from), FrameIp::V6(to)) => {
                room.put(&ETHERTYPE_IPV6)?;
                room.put(&[0x60, 0, 0, 0])?;
                room.put(&udp_bytes.to_be_bytes())?;
                room.put(&[PROTOCOL_UDP, HOPS])?;
                room.put(&from)?;
                room.put(&to)?;
                sum(&from) + sum(&to)
            }
            _ => return None,
        };
        let [a, b] = self.from.port.to_be_bytes();
        let [c, d] = self.to.port.to_be_bytes();
        let [e, f] = udp_bytes.to_be_bytes();
        let head = [a, b, c, d, e, f];
        let total = pseudo_sum
            + u64::from(PROTOCOL_UDP)
            + u64::from(udp_bytes)
            + sum(&head)
            + sum(datagram);
        let checksum = match folded(total) {
            0 => 0xffff, // 0 says that there is none
            checksum => checksum,
        };
        room.put(&head)?;
        room.put(&checksum.to_be_bytes())
    }
}

type Parts<'a> = (FrameIp, FrameIp, &'a [u8]);

fn decode_ipv4(bytes: &[u8]) -> Option<Parts<'_>> {
    let (head, rest) = bytes.split_first_chunk::<20>()?;
    let [
        0x45,
        _,
        _,
        _,
        _,
        _,
        fragment,
        offset,
        _,
        PROTOCOL_UDP,
        _,
        _,
        addresses @ ..,
    ] = *head
    else {
        return None;
    };
    let [a, b, c, d, e, f, g, h] = addresses;
    // All but "don't fragment": a fragment is no whole datagram.
    if fragment & 0xbf != 0 || offset != 0 {
        return None;
    }
    Some((FrameIp::V4([a, b, c, d]), FrameIp::V4([e, f, g, h]), rest))
}

fn decode_ipv6(bytes: &[u8]) -> Option<Parts<'_>> {
    let ([version, _, _, _, _, _, PROTOCOL_UDP, _], rest) = bytes.split_first_chunk::<8>()? else {
        return None;
    };
    if version >> 4 != 6 {
        return None;
    }
    let (from, rest) = rest.split_first_chunk::<16>()?;
    let (to, rest) = rest.split_first_chunk::<16>()?;
    Some((FrameIp::V6(*from), FrameIp::V6(*to), rest))
}

fn ipv4_header(from: [u8; 4], to: [u8; 4], udp_bytes: u16) -> Option<[u8; 20]> {
    let [high, low] = udp_bytes.checked_add(20)?.to_be_bytes();
    let start = [
        0x45,
        0,
        high,
        low,
        0,
        0,
        WHOLE[0],
        WHOLE[1],
        HOPS,
        PROTOCOL_UDP,
    ];
    let [x, y] = folded(sum(&start) + sum(&from) + sum(&to)).to_be_bytes();
    let mut header = [0; 20];
    let source = start.iter().chain([&x, &y]).chain(&from).chain(&to);
    for (byte, from) in header.iter_mut().zip(source) {
        *byte = *from;
    }
    Some(header)
}

/// The ones' complement sum of RFC 1071, not yet folded.
fn sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let whole: u64 = pairs
        .iter()
        .map(|p| u64::from(u16::from_be_bytes(*p)))
        .sum();
    whole + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Bytes that fill up.
struct Room<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl Room<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.used.checked_add(bytes.len())?;
        self.out.get_mut(self.used..end)?.copy_from_slice(bytes);
        self.used = end;
        Some(())
    }
}
