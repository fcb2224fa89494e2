//! A network link that several queues share frame by frame, in turn, as a network card serves its
//! transmit queues.
//!
//! A long message does not hold up the messages of other queues by more than a frame, but it holds
//! up what is behind it in its own queue: a small reply that a core puts after a large one leaves
//! after it, however idle the core is.
//!
//! ```text
//! queue 0  [...large...][small]   \
//! queue 1  [small]                 >-- one frame of each in turn --> link
//! queue 2                         /
//! ```

use std::collections::VecDeque;

/// How fast a link is, and what a frame carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpeed {
    /// Bits a nanosecond: 40 is the paper's 40 Gb/s.
    pub gigabits: f64,
    /// Bytes of a message that fit a frame.
    pub payload_bytes: u32,
}

/// A link and the queues before it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    byte_ps: u64,
    payload: u32,
    queues: Vec<VecDeque<Message>>,
    /// Messages in queues.
    waiting: usize,
    /// The queue whose frame is on the link, if it is one that somebody waits for.
    sending: Option<usize>,
    /// The queue served last; the turn goes on behind it.
    last: usize,
    /// When the frame on the link has left.
    free_ps: u64,
    /// Time that frames were on the link.
    busy_ps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    id: u32,
    bytes: u32,
}

impl LinkSpeed {
    /// Frames for a message of so many bytes; at least one.
    #[inline]
    pub fn frames(self, bytes: u32) -> u32 {
        bytes.div_ceil(self.payload_bytes).max(1)
    }

    /// Bytes on the wire for a message of so many bytes.
    pub fn wire_bytes(self, bytes: u32) -> u32 {
        let frames = self.frames(bytes);
        match frames {
            1 => (bytes + FRAME_OVERHEAD).max(FRAME_MIN),
            _ => bytes + frames * FRAME_OVERHEAD,
        }
    }

    /// Nanoseconds that a message is on the wire.
    pub fn wire_ns(self, bytes: u32) -> f64 {
        f64::from(self.wire_bytes(bytes)) * 8.0 / self.gigabits
    }
}

impl Link {
    pub(crate) fn new(speed: LinkSpeed, queues: usize) -> Self {
        assert!(speed.gigabits > 0.0 && speed.payload_bytes > 0);
        Self {
            byte_ps: (8_000.0 / speed.gigabits).round().max(1.0) as u64,
            payload: speed.payload_bytes,
            queues: vec![VecDeque::new(); queues],
            waiting: 0,
            sending: None,
            last: 0,
            free_ps: 0,
            busy_ps: 0,
        }
    }

    /// Puts a message on the link at `now`: `Some` of the nanoseconds it takes if it leaves at
    /// once, else it waits, and [`Link::end_frame`] gives it back.
    #[inline]
    pub(crate) fn send(&mut self, now: u64, queue: usize, id: u32, bytes: u32) -> Option<u64> {
        let now_ps = now * 1_000;
        let idle = self.waiting == 0 && self.free_ps <= now_ps;
        if idle && bytes <= self.payload {
            self.start(now_ps, bytes);
            return Some((self.free_ps - now_ps).div_ceil(1_000));
        }
        self.queues[queue].push_back(Message { id, bytes });
        self.waiting += 1;
        if idle {
            self.next_frame(now_ps);
        }
        None
    }

    /// When to call [`Link::end_frame`]; `u64::MAX` while nothing waits.
    #[inline]
    pub(crate) fn event_ns(&self) -> u64 {
        match self.waiting {
            0 => u64::MAX,
            _ => self.free_ps.div_ceil(1_000),
        }
    }

    /// The frame on the link has left; the message whose last it was.
    pub(crate) fn end_frame(&mut self) -> Option<u32> {
        let mut ended = None;
        if let Some(queue) = self.sending.take()
            && let Some(message) = self.queues[queue].front_mut()
        {
            message.bytes = message.bytes.saturating_sub(self.payload);
            if message.bytes == 0 {
                ended = Some(message.id);
                self.queues[queue].pop_front();
                self.waiting -= 1;
            }
        }
        if self.waiting > 0 {
            self.next_frame(self.free_ps);
        }
        ended
    }

    /// Nanoseconds that frames were on the link.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ps / 1_000
    }

    fn next_frame(&mut self, now_ps: u64) {
        let count = self.queues.len();
        for turn in 1..=count {
            let queue = (self.last + turn) % count;
            if let Some(message) = self.queues[queue].front() {
                let bytes = message.bytes.min(self.payload);
                self.last = queue;
                self.sending = Some(queue);
                self.start(now_ps, bytes);
                return;
            }
        }
    }

    #[inline]
    fn start(&mut self, now_ps: u64, bytes: u32) {
        let wire = (bytes + FRAME_OVERHEAD).max(FRAME_MIN);
        let ps = u64::from(wire) * self.byte_ps;
        self.free_ps = now_ps + ps;
        self.busy_ps += ps;
    }
}

/// What surrounds a frame's payload on the wire: preamble 8, Ethernet 14, IP 20, UDP 8, check
/// sequence 4, gap 12.
const FRAME_OVERHEAD: u32 = 66;
/// The shortest frame on the wire, with preamble and gap.
const FRAME_MIN: u32 = 84;

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: LinkSpeed = LinkSpeed {
        gigabits: 40.0,
        payload_bytes: 1_472,
    };

    /// Goal: queues share the link frame by frame, and a queue keeps its order. Method: a message
    /// of 100 frames, one frame behind it, and one in another queue.
    #[test]
    fn queues_take_turns_and_keep_their_order() {
        let mut link = Link::new(SPEED, 2);
        assert_eq!(link.send(0, 0, 1, 100 * 1_472), None);
        assert_eq!(link.send(0, 0, 2, 10), None);
        assert_eq!(link.send(0, 1, 3, 1_472), None);
        let mut ended = Vec::new();
        while link.event_ns() < u64::MAX {
            let now = link.event_ns();
            ended.extend(link.end_frame().map(|id| (id, now)));
        }
        // A full frame is 1538 bytes of 200 ps.
        let frame = 307.6;
        assert_eq!(ended[0], (3, (2.0_f64 * frame).ceil() as u64));
        assert_eq!(ended[1], (1, (101.0 * frame).ceil() as u64));
        assert_eq!(ended[2].0, 2);
        assert_eq!(link.busy_ns(), (101.0 * frame + 16.8) as u64);
    }

    #[test]
    fn an_idle_link_takes_a_frame_at_once_and_is_busy_meanwhile() {
        let mut link = Link::new(SPEED, 2);
        assert_eq!(link.send(0, 0, 1, 1_472), Some(308));
        assert_eq!(link.event_ns(), u64::MAX);
        // The next one waits for the frame that nobody waits for.
        assert_eq!(link.send(100, 1, 2, 10), None);
        assert_eq!(link.event_ns(), 308);
        assert_eq!(link.end_frame(), None);
        assert_eq!((link.event_ns(), link.end_frame()), (325, Some(2)));
        assert_eq!(link.send(1_000, 0, 3, 0), Some(17));
    }

    #[test]
    fn frames_and_wire_bytes() {
        assert_eq!([0, 1_472, 1_473].map(|b| SPEED.frames(b)), [1, 1, 2]);
        assert_eq!([0, 18, 100].map(|b| SPEED.wire_bytes(b)), [84, 84, 166]);
        assert_eq!(SPEED.wire_bytes(2_000), 2_000 + 132);
    }
}
