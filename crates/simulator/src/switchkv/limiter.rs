//! A node's limiter: it serves at a fixed rate, and has a queue of fixed length.

/// The queue of a node, as a fluid that drains at a fixed rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limiter {
    per_slot: f64,
    queue_max: f64,
    queued: f64,
    slot: u64,
}

impl Limiter {
    /// A node that serves so many requests in a slot of time.
    pub(super) fn new(per_slot: f64) -> Self {
        Self {
            per_slot,
            queue_max: (QUEUE_SLOTS * per_slot).max(QUEUE_MIN) + per_slot.max(1.0),
            queued: 0.0,
            slot: 0,
        }
    }

    /// A request arrives in this slot; whether it is served and not lost.
    #[inline]
    pub(super) fn accepts(&mut self, slot: u64) -> bool {
        if slot != self.slot {
            let drained = self.per_slot * (slot - self.slot) as f64;
            self.queued = (self.queued - drained).max(0.0);
            self.slot = slot;
        }
        let is_room = self.queued + 1.0 <= self.queue_max;
        self.queued += f64::from(u8::from(is_room));
        is_room
    }
}

/// What waits at a node at most: at the paper's rate 512 requests, as in a network card's ring.
const QUEUE_SLOTS: f64 = 5.12;
const QUEUE_MIN: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_serves_its_rate_and_loses_the_rest() {
        let mut limiter = Limiter::new(100.0);
        let mut served = 0;
        for slot in 1..=1000 {
            served += (0..150).filter(|_| limiter.accepts(slot)).count();
        }
        assert!((100_000..100_700).contains(&served), "{served}");
        let mut idle = Limiter::new(100.0);
        assert!((1..=1000).all(|slot| (0..95).all(|_| idle.accepts(slot))));
    }
}
