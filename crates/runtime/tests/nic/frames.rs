//! Frames: Ethernet, IPv4 or IPv6, UDP, written out here once more, by the RFCs and not by the
//! program's way.

/// Who sends to whom.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ends {
    pub(crate) from: Address,
    pub(crate) to: Address,
}

/// An end of a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Address {
    pub(crate) mac: [u8; 6],
    /// Mapped if it is IPv4's.
    pub(crate) ip: [u8; 16],
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn is_v4(&self) -> bool {
        self.ip[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }

    /// A client or server of a number.
    pub(crate) fn v4(number: u8, port: u16) -> Self {
        let mut ip = [0; 16];
        ip[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 7, number]);
        Self {
            mac: [2, 0, 0, 0, 0, number],
            ip,
            port,
        }
    }

    pub(crate) fn v6(number: u8, port: u16) -> Self {
        let mut ip = [0; 16];
        ip[..2].copy_from_slice(&[0xfd, 0x12]);
        ip[15] = number;
        ip[8] = 0x80 | number;
        Self {
            mac: [2, 0, 0, 0, 1, number],
            ip,
            port,
        }
    }
}

/// The frame of a datagram, as a network stack sends it.
pub(crate) fn frame(ends: Ends, datagram: &[u8]) -> Vec<u8> {
    framed(ends, datagram, false)
}

/// The frame of an answer, which carries a UDP checksum only over IPv6.
pub(crate) fn answer_frame(ends: Ends, datagram: &[u8]) -> Vec<u8> {
    framed(ends, datagram, true)
}

fn framed(ends: Ends, datagram: &[u8], is_answer: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(ends.to.mac);
    frame.extend(ends.from.mac);
    let udp_bytes = (8 + datagram.len()) as u16;
    let is_v4 = ends.to.is_v4();
    if is_v4 {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((20 + udp_bytes).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(&ends.from.ip[12..]);
        frame.extend(&ends.to.ip[12..]);
        let sum = ones_complement(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(udp_bytes.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend(ends.from.ip);
        frame.extend(ends.to.ip);
    }
    let udp = frame.len();
    for number in [ends.from.port, ends.to.port, udp_bytes, 0] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(datagram);
    if !is_v4 && is_answer {
        let mut pseudo = Vec::new();
        pseudo.extend(ends.from.ip);
        pseudo.extend(ends.to.ip);
        pseudo.extend(u32::from(udp_bytes).to_be_bytes());
        pseudo.extend([0, 0, 0, 17]);
        pseudo.extend(&frame[udp..]);
        let sum = match ones_complement(&pseudo) {
            0 => 0xffff,
            sum => sum,
        };
        frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// RFC 1071, one 16-bit word at a time.
fn ones_complement(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Writes the checksum that the datagram should carry.
pub(crate) fn seal(datagram: &mut [u8]) {
    let word = |at: usize| u64::from_le_bytes(datagram[at..at + 8].try_into().unwrap());
    let mut checksum = curtail_codec::native::Checksum::new(word(0));
    checksum.update(&datagram[16..]);
    let checksum = checksum.finish();
    datagram[8..16].copy_from_slice(&checksum.to_le_bytes());
}

/// The golden packets of a page: names and bytes. One that is made of another, which stands before
/// it, has that one's lines where it shows none.
pub(crate) fn golden(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut packets: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match (words.next(), packets.last_mut()) {
            (Some("="), _) => {
                let name = words.next().unwrap_or_default().to_string();
                let good = words.nth(1).unwrap_or_default().trim_end_matches(':');
                let good = packets.iter().find(|(name, _)| name == good);
                let bytes = good.map_or_else(Vec::new, |(_, bytes)| bytes.clone());
                packets.push((name, bytes));
            }
            (Some(place), Some((_, bytes))) => {
                let place: usize = place.parse().unwrap();
                let end = bytes.len().min(place + 8);
                let line = words.map(|hex| u8::from_str_radix(hex, 16).unwrap());
                bytes.splice(place..end, line);
            }
            _ => {}
        }
    }
    packets
}
