//! Datagrams that were received and not begun, where any worker may take them: a worker's own, that
//! others steal from, or the one that a thread fills for all workers (Minos, NSDI 2019, section
//! 5.1: HKH+WS and SHO).
//!
//! A ring of slots under a lock that is held for a copy. The memory is there from the start; what
//! finds no room is for whoever received it to answer.

use std::net::{IpAddr, SocketAddr};

use curtail_runtime::DATAGRAM_SLOT_BYTES;

use crate::{
    native::{receiver::NOWHERE, reply_sender::Sender},
    sync::{AtomicUsize, Mutex, Relaxed, lock},
};

/// A bounded queue of datagrams.
pub(crate) struct SoftwareQueue {
    /// As of the last change: who looks and finds 0 may be a moment late.
    depth: AtomicUsize,
    ring: Mutex<Ring>,
}

struct Ring {
    slots: Box<[QueuedWrite]>,
    first: usize,
    count: usize,
}

/// A datagram and where it came from.
#[derive(Clone)]
pub(crate) struct QueuedWrite {
    socket: u8,
    address: SocketAddr,
    local: Option<IpAddr>,
    length: usize,
    bytes: [u8; DATAGRAM_SLOT_BYTES],
}

/// Datagrams that a queue holds.
const SLOTS: usize = 256;

impl SoftwareQueue {
    pub(crate) fn new() -> Self {
        Self {
            depth: AtomicUsize::new(0),
            ring: Mutex::new(Ring {
                slots: vec![QueuedWrite::empty(); SLOTS].into_boxed_slice(),
                first: 0,
                count: 0,
            }),
        }
    }

    /// Bytes that it takes.
    pub(crate) const fn bytes() -> usize {
        SLOTS * size_of::<QueuedWrite>()
    }

    /// How many wait.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Relaxed)
    }

    /// Puts a datagram at the end; false if there is no room.
    pub(crate) fn push(&self, bytes: &[u8], from: Sender) -> bool {
        let mut ring = lock(&self.ring);
        if ring.count == SLOTS {
            return false;
        }
        let place = (ring.first + ring.count) % SLOTS;
        let is_taken = ring
            .slots
            .get_mut(place)
            .is_some_and(|slot| slot.fill(bytes, from));
        ring.count += usize::from(is_taken);
        self.depth.store(ring.count, Relaxed);
        is_taken
    }

    /// Moves the oldest datagram into `queued`; false if there is none.
    pub(crate) fn pop(&self, queued: &mut QueuedWrite) -> bool {
        let mut ring = lock(&self.ring);
        if ring.count == 0 {
            return false;
        }
        if let Some(slot) = ring.slots.get(ring.first) {
            queued.fill(slot.bytes(), slot.from());
        }
        ring.first = (ring.first + 1) % SLOTS;
        ring.count -= 1;
        self.depth.store(ring.count, Relaxed);
        true
    }
}

impl QueuedWrite {
    pub(crate) const fn empty() -> Self {
        Self {
            socket: 0,
            address: NOWHERE,
            local: None,
            length: 0,
            bytes: [0; DATAGRAM_SLOT_BYTES],
        }
    }

    /// The datagram.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Where it came from.
    pub(crate) const fn from(&self) -> Sender {
        Sender {
            socket: self.socket,
            address: self.address,
            local: self.local,
        }
    }

    fn fill(&mut self, bytes: &[u8], from: Sender) -> bool {
        let Some(room) = self.bytes.get_mut(..bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        self.length = bytes.len();
        self.socket = from.socket;
        self.address = from.address;
        self.local = from.local;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what goes in comes out once, in order and whole, however many threads take it, and
    /// what has no room is refused. Method: more than the ring holds, then two takers.
    #[test]
    fn datagrams_are_taken_once_and_in_order() {
        let queue = SoftwareQueue::new();
        let from = Sender {
            socket: 3,
            address: NOWHERE,
            local: Some(NOWHERE.ip()),
        };
        for number in 0..SLOTS {
            assert!(queue.push(&number.to_le_bytes(), from));
        }
        assert!(!queue.push(b"one more", from));
        assert_eq!(queue.depth(), SLOTS);
        let take = || {
            let mut queued = QueuedWrite::empty();
            let mut taken = Vec::new();
            while queue.pop(&mut queued) {
                assert_eq!(queued.from(), from);
                taken.push(usize::from_le_bytes(queued.bytes().try_into().unwrap()));
            }
            taken
        };
        let (mut all, other) = std::thread::scope(|scope| {
            let other = scope.spawn(take);
            (take(), other.join().unwrap())
        });
        assert!(all.is_sorted() && other.is_sorted());
        all.extend(other);
        all.sort_unstable();
        assert_eq!(all, (0..SLOTS).collect::<Vec<_>>());
        assert!(queue.push(b"room again", from));
        assert!(!queue.push(&[0; DATAGRAM_SLOT_BYTES + 1], from));
    }
}
