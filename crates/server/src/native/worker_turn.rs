//! What a worker does for the native path in its turn: it executes queues, its own first, and where
//! no thread receives for all it receives too.

use curtail_ordered_queue::{QueueState, TURN_MAX};
use curtail_runtime::monotonic_ns;

#[cfg(feature = "baselines")]
use crate::native::baselines::hand_off_and_stealing::Pulling;
use crate::{
    native::{
        BEAT_NS, Host, Native, NativePlacement, ReadBarrier,
        executor::Executor,
        queue_polling::Rounds,
        receiver::{Receiver, ReceiverContext},
    },
    store_context::StoreContext,
};

/// The native path's part of a worker, for as long as it runs.
pub(crate) struct NativeTurns<'a> {
    /// Which worker it is of.
    index: usize,
    host: &'a dyn Host,
    native: &'a Native,
    receiver: Option<Receiver<'a>>,
    /// How requests come to the receiver, if not simply by its sockets.
    #[cfg(feature = "baselines")]
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
    pub(crate) fn new(host: &'a dyn Host, native: &'a Native, index: usize) -> Self {
        let is_small = index < host.workers();
        let receives = native.config.workers_receive(native.mode) && is_small;
        let workers = host.workers();
        #[cfg(feature = "baselines")]
        let pulling = match is_small {
            true => Pulling::new(native, index, workers),
            false => None,
        };
        let first_socket = match receives {
            true => index * native.addresses.len(),
            false => 0,
        };
        #[cfg(feature = "baselines")]
        let receives = receives || pulling.is_some();
        Self {
            index,
            host,
            native,
            receiver: receives.then(|| Receiver::new(native, first_socket)),
            #[cfg(feature = "baselines")]
            pulling,
            left: 0,
            rounds: Rounds::new(native, index, workers),
            beaten_ns: 0,
        }
    }

    /// Receives if that is this worker's, and executes. Whether there is more to do.
    pub(crate) fn turn(&mut self, barrier: &mut ReadBarrier, store_cx: &mut StoreContext) -> bool {
        let (native, index) = (self.native, self.index);
        let executor = &mut barrier.executor;
        let now_ns = match self.receiver {
            Some(_) => monotonic_ns(),
            None => 0,
        };
        let mut received = 0;
        if let Some(receiver) = &mut self.receiver {
            if now_ns.saturating_sub(self.beaten_ns) >= BEAT_NS {
                native.beat(now_ns);
                self.beaten_ns = now_ns;
            }
            let mut receiver_cx = ReceiverContext {
                executor: &mut *executor,
                store_cx: &mut *store_cx,
                monotonic_ns: now_ns,
                host: self.host,
            };
            #[cfg(not(feature = "baselines"))]
            let taken = receiver.turn(&mut receiver_cx);
            #[cfg(feature = "baselines")]
            let taken = match &mut self.pulling {
                Some(pulling) => pulling.turn(receiver, &mut receiver_cx, self.host),
                None => receiver.turn(&mut receiver_cx),
            };
            received = taken;
            let touched = receiver.take_touched();
            self.left |= touched;
            if native.config.placement == NativePlacement::Owner && self.host.workers() > 1 {
                native.ring(self.host, touched);
            }
        }
        let is_large = index >= self.host.workers();
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
            native.hand_back(self.host, executor);
        }
        let waits = self.receiver.as_ref().is_some_and(Receiver::is_waiting);
        native.publish(index, &executor.state().counts);
        let is_left = by_arrival && self.left != 0;
        received > 0 || entries > 0 || waits || is_left
    }

    /// At the end of a worker: nothing more is admitted, and all that was is executed.
    pub(crate) fn finish(mut self, barrier: &mut ReadBarrier, store_cx: &mut StoreContext) {
        let native = self.native;
        if self.receiver.is_some() {
            native.set_state(QueueState::Closed);
            self.turn(barrier, store_cx);
        }
        let executor = &mut barrier.executor;
        if self.receiver.is_some() {
            native.drain_all(executor, store_cx);
        }
        native.publish(self.index, &executor.state().counts);
    }

    /// Whether something must be executed before the server has stopped.
    pub(crate) fn is_busy(&self) -> bool {
        self.host.is_stopping() && !self.native.is_idle()
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
