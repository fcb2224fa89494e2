//! Reads and direct writes that wait until a queue has been executed up to their stamp, so that
//! their worker goes on with something else (JB-42).
//!
//! A machine of one worker. It holds handles, in the order in which they came. Invariants: each is
//! woken exactly once, as soon as head has reached its stamp and [`Parked::wake`] is called; no
//! more than `parked_max` wait, the next one is the caller's to wait for or to refuse.

use alloc::vec::Vec;

use curtail_dispatch::RequestId;

/// What a worker has put aside until later.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Parked {
    waiting: Vec<Waiting>,
    parked_max: usize,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Waiting {
    queue: u16,
    stamp: u64,
    request: RequestId,
}

impl Parked {
    /// Room for `parked_max`; all memory is allocated here.
    pub fn new(parked_max: usize) -> Self {
        assert!(parked_max > 0);
        Self {
            waiting: Vec::with_capacity(parked_max),
            parked_max,
        }
    }

    /// `request` waits for `queue` to be executed up to `stamp`; false if there is no room.
    #[must_use = "a request that was not parked is still the caller's"]
    pub fn park(&mut self, queue: u16, stamp: u64, request: RequestId) -> bool {
        let has_room = self.waiting.len() < self.parked_max;
        if has_room {
            self.waiting.push(Waiting {
                queue,
                stamp,
                request,
            });
        }
        has_room
    }

    /// `queue` is executed up to `head`: emits what needs wait no longer, in the order it came.
    pub fn wake(&mut self, queue: u16, head: u64, mut emit: impl FnMut(RequestId)) {
        self.waiting.retain(|waiting| {
            let is_due = waiting.queue == queue && waiting.stamp <= head;
            if is_due {
                emit(waiting.request);
            }
            !is_due
        });
    }

    /// The queue that the oldest waits for, and up to where: what to help with, if nobody has the
    /// queue's lease.
    pub fn oldest(&self) -> Option<(u16, u64)> {
        let first = self.waiting.first()?;
        Some((first.queue, first.stamp))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each is woken once, when its queue has come far enough, in order, and the bound holds.
    #[test]
    fn each_is_woken_once_when_its_time_has_come() {
        let mut parked = Parked::new(4);
        for (number, (queue, stamp)) in (0..).zip([(1, 5), (2, 3), (1, 4), (1, 9)]) {
            assert!(parked.park(queue, stamp, RequestId(number)));
        }
        assert!(!parked.park(1, 1, RequestId(9)), "no room");
        assert_eq!(parked.oldest(), Some((1, 5)));
        let mut woken = Vec::new();
        parked.wake(1, 3, |request| woken.push(request.0));
        assert!(woken.is_empty());
        parked.wake(1, 5, |request| woken.push(request.0));
        assert_eq!(woken, [0, 2]);
        parked.wake(1, 5, |request| woken.push(request.0));
        parked.wake(2, 100, |request| woken.push(request.0));
        assert_eq!((woken.as_slice(), parked.len()), (&[0, 2, 1][..], 1));
        parked.wake(1, 9, |request| woken.push(request.0));
        assert!(parked.is_empty() && parked.oldest().is_none());
    }
}
