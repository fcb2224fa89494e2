//! A worker's rounds of the queues: its own first, then, unless each queue is its owner's alone,
//! the others', where something waits that nobody has taken.
//!
//! ```text
//!   every turn     each queue's bell -- heard, and nothing was there? next -- its slot at head
//!   nothing done   fence, each queue once more, late bells not believed -- nothing: it may sleep
//! ```
//!
//! It listens to the bells, since the slot at head is being filled by a producer while a worker
//! that has something to do in other queues comes by. Who publishes a write after the second look
//! wakes the worker: the thread that received it or, where the XDP program did, the
//! thread that looks after that.

use curtail_ordered_queue::{BellListener, TURN_MAX, before_looking_again};

use crate::{
    native::{Native, NativePlacement, executor::Executor},
    store_context::StoreContext,
};

/// What a worker has heard of each queue, and which of them are its own.
pub(super) struct Rounds {
    listeners: Vec<BellListener>,
    worker: usize,
    workers: usize,
    takes_all: bool,
}

/// Entries that a worker executes before it looks after its connections again.
const ENTRIES_A_TURN: u64 = 4 * TURN_MAX as u64;

/// How a round looks at queues.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Look {
    Patient,
    AfterAll,
}

impl Rounds {
    /// Of worker `worker` of so many.
    pub(super) fn new(native: &Native, worker: usize, workers: usize) -> Self {
        let (queues, placement) = (native.config.queues, native.config.placement);
        Self {
            listeners: vec![BellListener::new(); queues],
            worker,
            workers: workers.max(1),
            takes_all: placement != NativePlacement::Owner && workers > 1,
        }
    }

    /// Executes what waits, enough for a turn at most; how many entries that were. After none the
    /// worker may sleep.
    pub(super) fn run(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
    ) -> u64 {
        let executed = self.once(native, executor, store_cx, Look::Patient);
        if executed > 0 {
            return executed;
        }
        before_looking_again();
        self.once(native, executor, store_cx, Look::AfterAll)
    }

    fn once(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
        look: Look,
    ) -> u64 {
        let mut executed = 0;
        for number in numbers(
            self.listeners.len(),
            self.worker,
            self.workers,
            self.takes_all,
        ) {
            let Some((queue, listener)) = native.queue(number).zip(self.listeners.get_mut(number))
            else {
                continue;
            };
            let is_there = match look {
                Look::Patient => queue.has_news(listener),
                Look::AfterAll => queue.has_news_after_all(listener),
            };
            if is_there {
                // The slot behind what was rung for is its producer's.
                let entries_max = queue.rung_for().min(TURN_MAX);
                let drained = executor.drain(native, store_cx, number, entries_max);
                executed += drained.map_or(0, |drained| drained.entries);
            }
            if executed >= ENTRIES_A_TURN {
                break;
            }
        }
        executed
    }
}

/// The queues that a worker looks at, in this order.
fn numbers(
    queues: usize,
    worker: usize,
    workers: usize,
    takes_all: bool,
) -> impl Iterator<Item = usize> {
    let own = (worker..queues).step_by(workers);
    let others = (0..queues).filter(move |number| takes_all && number % workers != worker);
    own.chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each queue is looked at once by some worker where they are owned, and by every worker
    /// where they are not, its own first.
    #[test]
    fn every_queue_is_looked_at() {
        let order = |worker, takes_all| numbers(5, worker, 2, takes_all).collect::<Vec<_>>();
        assert_eq!(order(0, false), [0, 2, 4]);
        assert_eq!(order(1, false), [1, 3]);
        assert_eq!(order(1, true), [1, 3, 0, 2, 4]);
        assert_eq!(numbers(1, 3, 4, true).collect::<Vec<_>>(), [0]);
        assert_eq!(numbers(3, 0, 1, false).count(), 3);
    }
}
