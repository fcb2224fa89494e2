//! The thread that receives datagrams and does nothing else but admit, acknowledge and read: mode
//! `io-ack`, and behind the XDP program whatever that leaves to the server.
//!
//! ```text
//!   wait --> receive a batch --> ring the workers whose queues took something --> beat --> wait
//! ```
//!
//! It executes only where it has to wait for a queue that nobody executes. Its heartbeat is what
//! the XDP program goes by (JB-48 a). When the server stops, it stops acknowledging
//! early, waits until the queues are empty, closes them, and executes what is left itself: no
//! acknowledged write is left behind (JB-50).

use std::time::Duration;

use curtail_ordered_queue::{QueueState, TURN_MAX, before_looking_again};
use curtail_runtime::{Events, Poller, Token, monotonic_ns};

use crate::{
    busy_poll::BusyPoll,
    completion::AskingThread,
    native::{
        BEAT_NS, Host, Native,
        executor::Executor,
        receiver::{Receiver, ReceiverContext},
    },
    store_context::StoreContext,
};

/// How long it sleeps at most: well within the heartbeat's age.
const SLEEP: Duration = Duration::from_millis(20);

/// The XDP program cannot wake a thread, so this one polls for its entries: this soon after it
/// found some, then in pauses that double up to the longest. That bounds how long an acknowledged
/// write waits to be executed; a read of it does not wait for that.
const LOOK_MIN: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_millis(4);

/// How long it looks again before it sleeps.
const SPIN_NS_MAX: u64 = 50_000;

/// How long it goes on admitting when the server stops.
const STOP_NS_MAX: u64 = 1_000_000_000;

/// The token of answers of the node.
const WAKER: Token = Token(0);

/// Events taken in one wait; there is a handful of sockets.
const EVENTS_MAX: usize = 16;

/// Runs until the server stops.
pub(crate) fn run(
    (host, native): (&dyn Host, &Native),
    poller: Poller,
    store_cx: StoreContext,
    thread: usize,
) {
    let mut io = IoThread {
        host,
        native,
        poller,
        store_cx,
        thread,
        executor: Executor::new(thread, native.addresses.len(), 0),
        events: Events::with_capacity(EVENTS_MAX),
        busy_poll: BusyPoll::new(host.polls()),
        beaten_ns: 0,
        look: LOOK_MIN,
    };
    let mut receiver = Receiver::of_receiver(native);
    if native.is_on_node
        && let Ok(waker) = io.poller.waker(WAKER)
    {
        host.wake_with(AskingThread::Native, waker);
    }
    let mut stops_at = None;
    loop {
        let now_ns = monotonic_ns();
        let received = io.turn(&mut receiver, now_ns);
        if host.is_stopping() {
            let end = *stops_at.get_or_insert(now_ns + STOP_NS_MAX);
            let is_idle = native.is_idle() && !receiver.is_asking();
            if now_ns > end || is_idle && received == 0 {
                break;
            }
        }
        if received == 0 {
            io.wait(&receiver, stops_at.is_some());
        }
    }
    io.finish(&mut receiver);
}

struct IoThread<'a> {
    host: &'a dyn Host,
    native: &'a Native,
    poller: Poller,
    store_cx: StoreContext,
    thread: usize,
    executor: Executor,
    events: Events,
    busy_poll: BusyPoll,
    beaten_ns: u64,
    /// How long to sleep before it looks what the XDP program has queued.
    look: Duration,
}

impl IoThread<'_> {
    /// One batch from each socket.
    fn turn(&mut self, receiver: &mut Receiver<'_>, now_ns: u64) -> usize {
        if now_ns.saturating_sub(self.beaten_ns) >= BEAT_NS {
            let lasts_ns = self.host.accepts_ns_left();
            self.native.beat_for(now_ns, lasts_ns, self.host.now());
            self.beaten_ns = now_ns;
        }
        self.store_cx.now = self.host.now();
        let mut receiver_cx = ReceiverContext {
            executor: &mut self.executor,
            store_cx: &mut self.store_cx,
            monotonic_ns: now_ns,
            host: self.host,
        };
        let received = receiver.turn(&mut receiver_cx);
        let mut touched = receiver.take_touched();
        if self.native.memory.acknowledges() {
            touched |= self.native.backlogged();
            if touched != 0 {
                self.look = LOOK_MIN;
            }
        }
        self.native.ring(self.host, touched);
        self.native.hand_back(self.host, &mut self.executor);
        #[cfg(feature = "baselines")]
        receiver.wake_for_handed(self.host);
        self.native
            .publish(self.thread, &self.executor.state().counts);
        received
    }

    /// Waits for datagrams. What waits for queues is looked at again soon.
    fn wait(&mut self, receiver: &Receiver<'_>, is_stopping: bool) {
        if receiver.is_waiting() || is_stopping {
            return std::thread::yield_now();
        }
        let clock = self.host.clock();
        let since_ns = clock.now().instant.ns;
        let waited_ns = || clock.now().instant.ns.saturating_sub(since_ns);
        if self.busy_poll.pays() {
            while waited_ns() < SPIN_NS_MAX {
                let _ = self.poller.wait(&mut self.events, Some(Duration::ZERO));
                if !self.events.is_empty() {
                    return self.busy_poll.spun(true);
                }
            }
            self.busy_poll.spun(false);
        }
        // An error is a wait that ends at once; the sockets are looked at either way.
        if self.native.memory.acknowledges() {
            let _ = self.poller.wait_briefly(&mut self.events, self.look);
            self.look = (self.look * 2).min(LOOK_MAX);
        } else {
            let _ = self.poller.wait(&mut self.events, Some(SLEEP));
        }
        self.busy_poll.slept(waited_ns());
    }

    /// Closes the queues, executes what is left, and says so to the memory.
    fn finish(mut self, receiver: &mut Receiver<'_>) {
        self.native.set_state(QueueState::Closed);
        self.native.memory.quiesce();
        // What was admitted meanwhile, and those who are told that nothing more is.
        self.turn(receiver, monotonic_ns());
        self.store_cx.now = self.host.now();
        self.native
            .drain_all(&mut self.executor, &mut self.store_cx);
        self.native
            .publish(self.thread, &self.executor.state().counts);
        self.native.memory.stop();
    }
}

impl Native {
    /// Executes everything that is in the queues, which take nothing more.
    pub(super) fn drain_all(&self, executor: &mut Executor, store_cx: &mut StoreContext) {
        for number in 0..self.config.queues {
            while self.has_backlog(number) {
                if executor.drain(self, store_cx, number, TURN_MAX).is_none() {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// The queues in which something waits, as bits.
    fn backlogged(&self) -> u64 {
        let numbers = 0..self.config.queues.min(64);
        numbers.fold(0, |bits, number| {
            bits | u64::from(self.has_backlog(number)) << number
        })
    }

    /// After a thread has helped to execute other owners' queues: an owner that found the lease
    /// held left the queue to the helper, so this has it checked again where something waits.
    pub(crate) fn hand_back(&self, host: &dyn Host, executor: &mut Executor) {
        let helped = executor.take_helped();
        if helped != 0 {
            before_looking_again();
            self.ring(host, helped & self.backlogged());
        }
    }

    /// Wakes the workers that the queues in `touched` belong to; where one has much to do already,
    /// another one too.
    pub(super) fn ring(&self, host: &dyn Host, mut touched: u64) {
        let workers = host.workers();
        let mut rung = [0_u64; WORKERS_MAX / 64];
        while touched != 0 {
            let number = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            let owner = number % workers.max(1);
            ring_once(host, owner, &mut rung);
            let is_deep = self.queue(number).is_some_and(|queue| {
                let backlog = queue.backlog();
                backlog.tail.wrapping_sub(backlog.head) > DEEP
            });
            if is_deep && workers > 1 {
                ring_once(host, (owner + 1) % workers, &mut rung);
            }
        }
    }
}

fn ring_once(host: &dyn Host, worker: usize, rung: &mut [u64; WORKERS_MAX / 64]) {
    let Some(bits) = rung.get_mut(worker / 64) else {
        return;
    };
    if *bits >> (worker % 64) & 1 == 0 {
        *bits |= 1 << (worker % 64);
        host.wake_worker(worker);
    }
}

/// Workers that can be rung; `-t` is at most as many.
const WORKERS_MAX: usize = curtail_dispatch::WORKERS_MAX;

/// From so many entries on a second worker is woken for a queue.
const DEEP: u64 = 32;
