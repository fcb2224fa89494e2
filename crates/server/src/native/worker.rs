//! What a worker does for the native path in its turn: it executes queues, its own first, and where
//! no thread receives for all it receives too.

use std::sync::Arc;

use curtail_dispatch::ordered_queue::{QueueState, TURN_MAX};
use curtail_runtime::monotonic_ns;

use crate::{
    native::{
        BEAT_NS, Native, NativePlacement,
        baselines::pull::Pulling,
        executor::Executor,
        queue_scan::Rounds,
        receiver::{Receiver, ReceiverContext},
    },
    store_context::StoreContext,
    sync::Relaxed,
    worker::{Worker, shared::Shared},
};

/// The native path's part of a worker, for as long as it runs.
pub(crate) struct NativeTurns<'a> {
    shared: &'a Shared,
    native: &'a Native,
    receiver: Option<Receiver<'a>>,
    /// How requests come to the receiver, if not simply by its sockets.
    pulling: Option<Pulling>,
    /// Of placement by arrival: a bit for each queue that has entries of ours, perhaps.
    left: u64,
    rounds: Rounds,
    beaten_ns: u64,
}

impl Native {
    /// The executor of a worker.
    pub(crate) fn executor_of(&self, worker: usize, workers: usize) -> Executor {
        let receives = self.config.workers_receive(self.mode) && worker < workers;
        let first_socket = if receives {
            worker * self.addresses.len()
        } else {
            0
        };
        Executor::new(worker, self.addresses.len(), first_socket)
    }
}

impl<'a> NativeTurns<'a> {
    /// For worker `index`; `None` if it has no part in the path.
    pub(crate) fn new(shared: &'a Arc<Shared>, index: usize) -> Option<Self> {
        let native = shared.native.as_deref()?;
        let is_small = index < shared.config.workers;
        let receives = native.config.workers_receive(native.mode) && is_small;
        let workers = shared.config.workers;
        let pulling = is_small.then(|| Pulling::new(native, index, workers));
        let pulling = pulling.flatten();
        let first_socket = match receives {
            true => index * native.addresses.len(),
            false => 0,
        };
        let has_acceptor = receives || pulling.is_some();
        Some(Self {
            shared,
            native,
            receiver: has_acceptor.then(|| Receiver::new(native, first_socket)),
            pulling,
            left: 0,
            rounds: Rounds::new(native, index, workers),
            beaten_ns: 0,
        })
    }

    /// Receives if that is this worker's, and executes. Whether there is more to do.
    pub(crate) fn turn(&mut self, worker: &mut Worker) -> bool {
        let native = self.native;
        let index = worker.index;
        let Some(barrier) = worker.native.as_deref_mut() else {
            return false;
        };
        let executor = &mut barrier.executor;
        let cx = &mut worker.cx;
        let now_ns = match self.receiver {
            Some(_) => monotonic_ns(),
            None => 0,
        };
        let mut received = 0;
        let store_cx = &mut cx.store_cx;
        if let Some(receiver) = &mut self.receiver {
            if now_ns.saturating_sub(self.beaten_ns) >= BEAT_NS {
                native.beat(now_ns);
                self.beaten_ns = now_ns;
            }
            let mut receiver_cx = ReceiverContext {
                executor: &mut *executor,
                store_cx: &mut *store_cx,
                monotonic_ns: now_ns,
            };
            received = match &mut self.pulling {
                None => receiver.turn(&mut receiver_cx),
                Some(pulling) => {
                    let taken = pulling.turn(receiver, &mut receiver_cx, self.shared);
                    receiver.attend(&mut receiver_cx);
                    taken
                }
            };
            let touched = receiver.take_touched();
            self.left |= touched;
            if native.config.placement == NativePlacement::Owner && self.shared.config.workers > 1 {
                native.ring(self.shared, touched);
            }
        }
        let is_large = index >= self.shared.config.workers;
        let by_arrival = native.config.placement == NativePlacement::Arrival;
        let entries = match is_large {
            true => 0,
            false if by_arrival && self.receiver.is_some() => {
                native.execute_left(executor, store_cx, &mut self.left)
            }
            false => self.rounds.run(native, executor, store_cx),
        };
        // Others than these look at all queues again before they sleep.
        if is_large || native.config.placement == NativePlacement::Owner {
            native.hand_back(self.shared, executor);
        }
        let waits = self.receiver.as_ref().is_some_and(Receiver::is_waiting);
        native.publish(index, &executor.state().counts);
        let is_left = by_arrival && self.left != 0;
        received > 0 || entries > 0 || waits || is_left
    }

    /// At the end of a worker: nothing more is admitted, and all that was is executed.
    pub(crate) fn finish(mut self, worker: &mut Worker) {
        let native = self.native;
        if self.receiver.is_some() {
            native.set_state(QueueState::Closed);
            self.turn(worker);
        }
        let Some(barrier) = worker.native.as_deref_mut() else {
            return;
        };
        let executor = &mut barrier.executor;
        let cx = &mut worker.cx;
        let store_cx = &mut cx.store_cx;
        if self.receiver.is_some() {
            native.drain_all(executor, store_cx);
        }
        native.publish(worker.index, &executor.state().counts);
    }

    /// Whether something must be executed before the server has stopped.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.stopping.load(Relaxed) && !self.native.is_idle()
    }
}

impl Native {
    /// Executes the queues in `left`, and forgets those in which nothing waits any more.
    fn execute_left(
        &self,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
        left: &mut u64,
    ) -> u64 {
        let mut executed = 0;
        let mut queues = *left;
        while queues != 0 {
            let number = queues.trailing_zeros() as usize;
            queues &= queues - 1;
            if self.queue(number).is_some_and(|queue| queue.has_entry()) {
                let drained = executor.drain(self, store_cx, number, TURN_MAX);
                executed += drained.map_or(0, |drained| drained.entries);
            }
            if !self.has_backlog(number) {
                *left &= !(1 << number);
            }
        }
        executed
    }
}
