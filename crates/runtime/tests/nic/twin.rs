//! The twin: what the program must do with a frame, by the codec and the admission of
//! `ordered_queue`.

use curtail_codec::native::{Ack, Echo, Nack, NackReason, Place, Promise, Reply, Request};
use curtail_ordered_queue::{Ingress, Peer, SessionLimits, Verdict};
use curtail_types::HashSeed;

use super::arrival::arrival;
use super::frames::{Address, Ends, answer_frame};

/// What a server is like that a frame comes to.
pub(crate) struct Twin<'a> {
    pub(crate) ingress: Ingress<'a>,
    pub(crate) seed: HashSeed,
    pub(crate) port: u16,
    pub(crate) lease_ns: u64,
    pub(crate) datagram_bytes_max: usize,
    pub(crate) value_bytes_max: usize,
    pub(crate) incarnation: u64,
}

/// When it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) monotonic_ns: u64,
    pub(crate) unix_ns: u64,
}

/// What has to become of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Expected {
    Passed,
    Dropped,
    Answered(Vec<u8>),
}

impl Twin<'_> {
    /// Does what is to be done with a frame.
    pub(crate) fn receive(&self, frame: &[u8], moment: Moment) -> Expected {
        let (ends, datagram) = match parse(frame, self.port) {
            Parsed::Datagram(ends, datagram) => (ends, datagram),
            Parsed::Fragment => return Expected::Dropped,
            Parsed::Other => return Expected::Passed,
        };
        let Ok(request) = Request::decode(datagram) else {
            return Expected::Passed;
        };
        let is_ours = request.head.class().is_queued()
            && datagram.len() <= self.datagram_bytes_max
            && request.value.len() <= self.value_bytes_max;
        match is_ours {
            true => self.admit(&request, datagram, ends, moment),
            false => Expected::Passed,
        }
    }

    fn admit(
        &self,
        request: &Request<'_>,
        datagram: &[u8],
        ends: Ends,
        moment: Moment,
    ) -> Expected {
        let from = peer(ends.from);
        let arrival = arrival(request, datagram, from, self.seed, moment.unix_ns);
        let number = self.ingress.queue_number(arrival.key_hash);
        let queue = self.ingress.queue(arrival.key_hash);
        let verdict = self.ingress.admit(&arrival, moment.monotonic_ns);
        let is_admitted = !matches!(
            verdict,
            Verdict::NoSession | Verdict::Absent | Verdict::NotReady
        );
        if is_admitted {
            let limits = SessionLimits {
                now_ns: moment.monotonic_ns,
                lease_ns: self.lease_ns,
                per_address: 1,
            };
            self.ingress.sessions.renew(arrival.session, limits);
        }
        let echo = request.head.echo();
        let free = match verdict {
            Verdict::Accepted(_) => queue.free_seen(),
            _ => queue.backlog().free,
        };
        let place = |pos| Place {
            queue: number as u16,
            credits: free as u32,
            incarnation: self.incarnation,
            pos,
            durable_pos: queue.durable_pos(),
        };
        match verdict {
            Verdict::Accepted(pos) | Verdict::Repeated(pos) => ack(ends, echo, place(pos)),
            Verdict::Full => nack(ends, echo, place(0), NackReason::Full),
            Verdict::NotReady => nack(ends, echo, place(0), NackReason::NotReady),
            Verdict::Queued(_) | Verdict::Dropped | Verdict::Absent => Expected::Dropped,
            Verdict::Replay(_) | Verdict::NoSession | Verdict::TooLarge => Expected::Passed,
        }
    }
}

/// A sender as sessions know it.
pub(crate) fn peer(address: Address) -> Peer {
    let (words, _) = address.ip.as_chunks::<8>();
    Peer {
        address: [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])],
        port: address.port,
    }
}

fn ack(ends: Ends, echo: Echo, place: Place) -> Expected {
    let promise = Promise::Accepted;
    let ack = Ack {
        echo,
        place,
        promise,
    };
    answered(ends, &Reply::Ack(ack))
}

fn nack(ends: Ends, echo: Echo, place: Place, reason: NackReason) -> Expected {
    let nack = Nack {
        echo,
        place,
        reason,
    };
    answered(ends, &Reply::Nack(nack))
}

fn answered(ends: Ends, reply: &Reply<'_>) -> Expected {
    let mut datagram = [0; 64];
    assert_eq!(reply.encode(&mut datagram), Ok(64));
    let back = Ends {
        from: ends.to,
        to: ends.from,
    };
    Expected::Answered(answer_frame(back, &datagram))
}

enum Parsed<'a> {
    Datagram(Ends, &'a [u8]),
    Fragment,
    Other,
}

fn parse(frame: &[u8], our_port: u16) -> Parsed<'_> {
    parsed(frame, our_port).unwrap_or(Parsed::Other)
}

fn parsed(frame: &[u8], our_port: u16) -> Option<Parsed<'_>> {
    let to_mac: [u8; 6] = frame.get(..6)?.try_into().ok()?;
    let from_mac: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
    if to_mac[0] & 1 == 1 {
        return None;
    }
    let number = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let (udp, ip_bytes, from, to) = match number(12)? {
        0x0800 if frame.get(14) == Some(&0x45) && frame.get(23) == Some(&17) => {
            let fragment = number(20)?;
            let port = number(36)?;
            frame.get(34..42)?;
            if fragment & 0x1fff != 0 || port != our_port {
                return None;
            }
            if fragment & 0x2000 != 0 {
                return Some(Parsed::Fragment);
            }
            let ip = |at: usize| {
                let mut ip = [0; 16];
                ip[10..12].fill(0xff);
                ip[12..].copy_from_slice(&frame[at..at + 4]);
                ip
            };
            (34, number(16)?.wrapping_sub(20), ip(26), ip(30))
        }
        0x86dd if frame.get(14)? >> 4 == 6 => {
            frame.get(54..62)?;
            match frame[20] {
                44 => {
                    let is_first = frame[54] == 17 && number(56)? & 0xfff8 == 0;
                    let is_ours = number(64)? == our_port;
                    frame.get(62..70)?;
                    return (is_first && is_ours).then_some(Parsed::Fragment);
                }
                17 if number(56)? == our_port => {}
                _ => return None,
            }
            let ip = |at: usize| frame[at..at + 16].try_into().unwrap();
            (54, number(18)?, ip(22), ip(38))
        }
        _ => return None,
    };
    let bytes = usize::from(number(udp + 4)?);
    if bytes != usize::from(ip_bytes) || bytes < 8 {
        return None;
    }
    let datagram = frame.get(udp + 8..udp + bytes)?;
    let end = |mac, ip, port| Address { mac, ip, port };
    let ends = Ends {
        from: end(from_mac, from, number(udp)?),
        to: end(to_mac, to, number(udp + 2)?),
    };
    Some(Parsed::Datagram(ends, datagram))
}
