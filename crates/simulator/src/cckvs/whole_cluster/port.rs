//! What travels, and a node's two ports: one packet after the other.

use std::collections::VecDeque;

use curtail_consistency::replica::{CopyKind, CopyMessage};

use super::{Count, WholeCluster, hot_keys::Answer, thread::Place};
use crate::cckvs::{MessageBytes, TrafficShares};

/// Something that one thread tells another.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) load: Load,
}

#[derive(Clone, Debug)]
pub(super) enum Load {
    /// Of these sessions, to a store thread.
    Requests(Vec<u32>),
    /// To these sessions.
    Replies(Vec<u32>),
    /// About the hot key of this rank.
    Hot(u64, CopyMessage),
    /// A session's write of the hot key of this rank, to its primary.
    Forward(u64, u32),
    /// The primary's answer.
    Answer(u32, Answer),
    /// Room for so many messages of a class.
    Credits(usize, u16),
}

impl Load {
    /// The flow that it belongs to: requests, forwarded writes among them, or a class of messages.
    pub(super) fn lane(&self) -> usize {
        match self {
            Self::Hot(_, message) => 1 + class(message.kind),
            _ => REQUESTS,
        }
    }
}

/// The flow of requests.
pub(super) const REQUESTS: usize = 0;
/// Classes of messages that have credits of their own, and flows: the one that is by 1 higher.
pub(super) const CLASSES: usize = 3;

/// The class of a message about a hot write.
pub(super) fn class(kind: CopyKind) -> usize {
    match kind {
        CopyKind::Ack | CopyKind::Reject => 1,
        CopyKind::Validate => 2,
        _ => 0,
    }
}

impl Packet {
    /// Takes what `other` has, if both go the same way and there is room; else gives it back.
    pub(super) fn join(&mut self, other: Self, most: usize) -> Option<Self> {
        if (self.from, self.to) != (other.from, other.to) {
            return Some(other);
        }
        match (&mut self.load, &other.load) {
            (Load::Requests(own), Load::Requests(more))
            | (Load::Replies(own), Load::Replies(more))
                if own.len() + more.len() <= most =>
            {
                own.extend_from_slice(more);
                None
            }
            _ => Some(other),
        }
    }

    /// Its bytes, counted where they belong.
    pub(super) fn count(&self, bytes: &MessageBytes, sent: &mut TrafficShares<Count>) -> f64 {
        let several = |count: usize, each: f64| bytes.header + count as f64 * (each - bytes.header);
        let (count, length) = match &self.load {
            Load::Requests(sessions) => (&mut sent.misses, several(sessions.len(), bytes.request)),
            Load::Replies(sessions) => (&mut sent.misses, several(sessions.len(), bytes.reply)),
            Load::Hot(_, message) => match class(message.kind) {
                1 => (&mut sent.acknowledgements, bytes.acknowledgement),
                2 => (&mut sent.invalidations, bytes.invalidation),
                _ => (&mut sent.updates, bytes.update),
            },
            // The value goes with the request here, and not with the answer.
            Load::Forward(..) => (&mut sent.forwarded, bytes.reply),
            Load::Answer(..) => (&mut sent.forwarded, bytes.request),
            Load::Credits(..) => (&mut sent.credits, bytes.header),
        };
        count.packets += 1;
        count.bytes += length;
        length
    }
}

/// Packets that wait for a port, and the one that it passes. Those about hot writes have queue
/// pairs of their own (section 6.3) and do not stand behind requests; here they go first.
#[derive(Debug, Default)]
pub(super) struct Port {
    copies: Lane,
    misses: Lane,
    passing: Option<Packet>,
}

/// Packets in their order.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Packet>,
    /// For each way a packet can go, the last one that waits: its number, counted from 1.
    last: Vec<u64>,
    /// Packets that waited and do not any more.
    gone: u64,
}

impl Port {
    /// One that lets requests join each other; `ways` of them differ.
    pub(super) fn joining(ways: usize) -> Self {
        let last = vec![0; ways];
        let misses = Lane {
            last,
            ..Lane::default()
        };
        Self {
            misses,
            ..Self::default()
        }
    }

    /// A packet comes; `way` is its way. It joins one that waits, or waits.
    pub(super) fn put(&mut self, packet: Packet, way: usize, most: usize) {
        let is_miss = matches!(packet.load, Load::Requests(_) | Load::Replies(_));
        match is_miss {
            true => self.misses.put(packet, way, most),
            false => self.copies.put(packet, usize::MAX, most),
        }
    }

    /// The next packet, if none is being passed.
    pub(super) fn begin(&mut self) -> Option<&Packet> {
        if self.passing.is_some() {
            return None;
        }
        self.passing = self.copies.take().or_else(|| self.misses.take());
        self.passing.as_ref()
    }

    /// The one that has passed.
    pub(super) fn end(&mut self) -> Option<Packet> {
        self.passing.take()
    }
}

impl Lane {
    fn put(&mut self, packet: Packet, way: usize, most: usize) {
        let mut packet = Some(packet);
        let last = self.last.get(way).copied().unwrap_or(0);
        if let Some(before) = last.checked_sub(self.gone + 1)
            && let Some(waiting) = self.waiting.get_mut(before as usize)
        {
            packet = packet.and_then(|packet| waiting.join(packet, most));
        }
        if let Some(packet) = packet {
            self.waiting.push_back(packet);
            if let Some(last) = self.last.get_mut(way) {
                *last = self.gone + self.waiting.len() as u64;
            }
        }
    }

    fn take(&mut self) -> Option<Packet> {
        let packet = self.waiting.pop_front()?;
        self.gone += 1;
        Some(packet)
    }
}

/// How long a port needs for a packet, in picoseconds.
pub(super) fn pass_ps(cluster: &WholeCluster, bytes: f64) -> u64 {
    let hardware = &cluster.hardware;
    let seconds = (1.0 / hardware.packets_per_second).max(bytes / hardware.bytes_per_second);
    (seconds * 1e12) as u64
}
