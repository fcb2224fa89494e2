//! Rings that are gathered: answers are left for a thread, which is woken for several at once.
//!
//! Those that answer take requests from one queue. Each leaves its answer, then [adds](
//! GatheredRings::add) a ring, and looks whether the queue is empty *after that*; if so, it
//! [takes](GatheredRings::take) what others have added. So the last ring is after the last answer:
//! who finds a request in the queue leaves the ring to the one that takes that request, later.

use crate::sync::{AtomicU32, Ordering};

/// The rings for one thread.
#[derive(Debug)]
pub struct GatheredRings {
    count: AtomicU32,
    max: u32,
}

impl GatheredRings {
    /// So many are gathered at most.
    pub fn new(max: u32) -> Self {
        Self {
            count: AtomicU32::new(0),
            max,
        }
    }

    /// One more; true if the thread is to be told now.
    #[must_use = "what was gathered is to be told"]
    pub fn add(&self) -> bool {
        // Acquire and Release pair with those in `take`: who takes a ring sees the answer that was
        // left before it. Others may count beyond the most meanwhile; each of them tells the
        // thread, too.
        let is_enough = self.count.fetch_add(1, Ordering::AcqRel) + 1 >= self.max;
        if is_enough {
            self.count.store(0, Ordering::Relaxed);
        }
        is_enough
    }

    /// No request waits: true if the thread is to be told of what was gathered.
    #[must_use = "what was gathered is to be told"]
    pub fn take(&self) -> bool {
        // Acquire pairs with the Release in `add`; a queue that was found empty orders the two.
        self.count.load(Ordering::Acquire) > 0 && self.count.swap(0, Ordering::AcqRel) > 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn several_are_told_at_once() {
        let rings = GatheredRings::new(3);
        assert!(!rings.take());
        assert_eq!(
            [rings.add(), rings.add(), rings.add()],
            [false, false, true]
        );
        assert!(!rings.take());
        assert!(!rings.add() && rings.take() && !rings.take());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        sync::{
            Arc, Mutex,
            atomic::{AtomicU32 as Count, Ordering as Order},
        },
        thread,
    };

    use super::*;

    /// What the threads share: requests that wait, answers that were left, and how many of them the
    /// receiver was told of.
    struct Desk {
        waiting: Mutex<u32>,
        left: Mutex<u32>,
        told: Count,
        rings: GatheredRings,
    }

    impl Desk {
        fn tell(&self) {
            let left = *self.left.lock().unwrap();
            self.told.fetch_max(left, Order::Relaxed);
        }

        fn answer_all(&self) {
            loop {
                {
                    let mut waiting = self.waiting.lock().unwrap();
                    match waiting.checked_sub(1) {
                        Some(rest) => *waiting = rest,
                        None => return,
                    }
                }
                *self.left.lock().unwrap() += 1;
                if self.rings.add() {
                    self.tell();
                }
                let is_last = *self.waiting.lock().unwrap() == 0;
                if is_last && self.rings.take() {
                    self.tell();
                }
            }
        }
    }

    /// Goal: no answer is left untold. Method: two threads answer two requests; loom tries every
    /// interleaving, with at most two gathered and with more than there are.
    #[test]
    fn loom_every_answer_is_told() {
        for max in [2, 9] {
            loom::model(move || {
                let desk = Arc::new(Desk {
                    waiting: Mutex::new(2),
                    left: Mutex::new(0),
                    told: Count::new(0),
                    rings: GatheredRings::new(max),
                });
                let other = {
                    let desk = desk.clone();
                    thread::spawn(move || desk.answer_all())
                };
                desk.answer_all();
                other.join().unwrap();
                assert_eq!(desk.told.load(Order::Relaxed), 2);
            });
        }
    }
}
