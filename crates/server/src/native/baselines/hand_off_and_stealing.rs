//! How datagrams come to workers when not simply by their own sockets: Minos's baselines (NSDI
//! 2019, section 5.1) on the datagram path. `curtail_dispatch::pull_baselines` decides, here it is
//! done.
//!
//! ```text
//!   hand-off (SHO)      one thread receives --> shared queue --> workers take one at a time
//!   stealing (HKH+WS)   own socket --> own software queue --> own worker, one at a time
//!                       idle: others' software queues, then others' sockets, one at a time
//! ```
//!
//! A request that is taken is executed and answered before the next is taken, so that what waits
//! does so where others can reach it. Who takes it decides speed and never an answer: writes still
//! have their place in an Ordered Queue, and reads look at stamps, whoever runs them (MI-12).

use curtail_codec::native::Request;
use curtail_dispatch::{
    Worker as Id,
    pull_baselines::{Binding, Pull, Puller, Source},
};
use curtail_runtime::Inbox;

use crate::native::{
    Host, Native, NativeConfig, NativeMode, NativePlacement,
    baselines::software_queue::{QueuedWrite, SoftwareQueue},
    counters::NativeCount,
    receiver::{Receiver, ReceiverContext, place_of},
    reply_sender::Sender,
};

/// A worker's part in it.
pub(crate) struct Pulling {
    puller: Puller,
    me: usize,
    queued: Box<QueuedWrite>,
    /// For one datagram of another worker's socket.
    stolen: Inbox,
    /// Sockets, by worker, that had nothing in this turn.
    empty: u64,
}

/// Requests that a worker takes before it looks after its connections again.
const REQUESTS_A_TURN: usize = 64;

/// Workers whose sockets are looked at.
const WORKERS_MAX: usize = 64;

impl Pulling {
    /// For worker `me` of `workers`; `None` where requests come by the workers' own sockets alone.
    pub(crate) fn new(native: &Native, me: usize, workers: usize) -> Option<Self> {
        let binding = match native.config.placement {
            NativePlacement::HandOff => Binding::Late { hand_off: 0 },
            NativePlacement::Stealing if native.mode.workers_receive() => Binding::EarlyStealing,
            _ => return None,
        };
        let narrow = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let cores = narrow(workers.clamp(1, WORKERS_MAX));
        let puller = Puller::new(binding, Id(narrow(me) % cores), cores, BATCH);
        Some(Self {
            puller,
            me,
            queued: Box::new(QueuedWrite::empty()),
            stolen: Inbox::new(1),
            empty: 0,
        })
    }

    /// Takes and runs requests until there are none, or enough for a turn; how many that were.
    pub(crate) fn turn(
        &mut self,
        receiver: &mut Receiver<'_>,
        receiver_cx: &mut ReceiverContext<'_>,
        host: &dyn Host,
    ) -> usize {
        let native = receiver.native;
        let mut taken = 0;
        self.empty = 0;
        while taken < REQUESTS_A_TURN {
            let depth = |source| match source {
                Source::Shared => native.software(0),
                Source::Software(worker) => native.software(worker.index()),
                Source::Rx(worker) => usize::from(self.empty >> (worker.0 % 64) & 1 == 0),
                Source::Ring(_) => 0,
            };
            match self.puller.next(depth) {
                None => break,
                Some(Pull::Move(_, _)) => self.collect(receiver, receiver_cx, host),
                Some(Pull::Run(take)) => {
                    taken += usize::from(self.run(receiver, receiver_cx, take.from))
                }
            }
        }
        receiver.attend(receiver_cx);
        taken
    }

    /// Moves what one's own socket has into one's software queue, and wakes somebody who sleeps if
    /// that is more than one.
    fn collect(
        &mut self,
        receiver: &mut Receiver<'_>,
        receiver_cx: &mut ReceiverContext<'_>,
        host: &dyn Host,
    ) {
        let native = receiver.native;
        let Some(queue) = native.software.get(self.me) else {
            return;
        };
        let count = receiver.receive(receiver_cx, |receiver, receiver_cx, bytes, from| {
            if !queue.push(bytes, from) {
                receiver.run(receiver_cx, bytes, from);
            }
        });
        if count == 0 {
            self.empty |= 1 << (self.me % 64);
        } else if queue.depth() > 1 {
            native.wake(host, self.me + 1, queue.depth() - 1);
        }
    }

    /// Takes one request and runs it; false if somebody else was quicker.
    fn run(
        &mut self,
        receiver: &mut Receiver<'_>,
        receiver_cx: &mut ReceiverContext<'_>,
        from: Source,
    ) -> bool {
        let native = receiver.native;
        let worker = match from {
            Source::Rx(worker) => return self.steal(receiver, receiver_cx, worker.index()),
            Source::Software(worker) => worker.index(),
            Source::Shared | Source::Ring(_) => 0,
        };
        let queue = native.software.get(worker);
        let is_taken = queue.is_some_and(|queue| queue.pop(&mut self.queued));
        if is_taken {
            let stolen = worker != self.me && matches!(from, Source::Software(_));
            let counts = &mut receiver_cx.executor.state().counts;
            counts.add(NativeCount::Stolen, u64::from(stolen));
            receiver.run(receiver_cx, self.queued.bytes(), self.queued.from());
        }
        is_taken
    }

    /// Takes one datagram of another worker's sockets.
    fn steal(
        &mut self,
        receiver: &mut Receiver<'_>,
        receiver_cx: &mut ReceiverContext<'_>,
        worker: usize,
    ) -> bool {
        let native = receiver.native;
        let addresses = native.addresses.len();
        for number in 0..addresses {
            let socket = native.sockets.get(worker * addresses + number);
            let count = socket.map_or(0, |socket| self.stolen.receive(socket));
            if let (1, Some((bytes, address))) = (count, self.stolen.get(0)) {
                let counts = &mut receiver_cx.executor.state().counts;
                counts.add(NativeCount::Received, 1);
                counts.add(NativeCount::Receives, 1);
                counts.add(NativeCount::Stolen, 1);
                let socket = number as u8;
                let local = self.stolen.local(0);
                let from = Sender {
                    socket,
                    address,
                    local,
                };
                receiver.run(receiver_cx, bytes, from);
                return true;
            }
        }
        self.empty |= 1 << (worker % 64);
        false
    }
}

/// What the one thread that receives leaves to the workers.
pub(crate) struct HandOff {
    which: Which,
    /// Requests left to them since workers were last woken for them.
    handed: usize,
    /// The worker that is woken first.
    next: usize,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Which {
    Nothing,
    Reads,
    All,
}

impl HandOff {
    /// For a worker that receives: nothing.
    pub(crate) const fn nothing() -> Self {
        Self::of(Which::Nothing)
    }

    /// For the one thread that receives: what the placement says.
    pub(crate) fn of_receiver(native: &Native) -> Self {
        Self::of(match native.config.placement {
            NativePlacement::HandOff if native.mode.workers_receive() => Which::All,
            NativePlacement::HandOff => Which::Reads,
            _ => Which::Nothing,
        })
    }

    const fn of(which: Which) -> Self {
        Self {
            which,
            handed: 0,
            next: 0,
        }
    }

    /// Whether a request is left to the workers.
    #[inline]
    pub(crate) const fn takes(&self, is_write: bool) -> bool {
        match self.which {
            Which::Nothing => false,
            Which::Reads => !is_write,
            Which::All => true,
        }
    }
}

impl Receiver<'_> {
    /// Wakes workers for the requests that were left to them since the last call.
    pub(crate) fn wake_for_handed(&mut self, host: &dyn Host) {
        let handed = std::mem::take(&mut self.hand_off.handed);
        if handed > 0 {
            self.native.wake(host, self.hand_off.next, handed);
            self.hand_off.next = self.hand_off.next.wrapping_add(1);
        }
    }

    /// Leaves a request to the workers, or says that too many wait.
    pub(crate) fn hand_off(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        bytes: &[u8],
        from: Sender,
    ) {
        let queue = self.native.software.first();
        if queue.is_some_and(|queue| queue.push(bytes, from)) {
            self.hand_off.handed += 1;
            return;
        }
        let place = place_of(self, 0, 0);
        self.refuse_busy(receiver_cx, request.head.echo(), place, from);
    }
}

impl Native {
    /// How many datagrams wait in a software queue.
    #[inline]
    fn software(&self, number: usize) -> usize {
        self.software.get(number).map_or(0, |queue| queue.depth())
    }

    /// Wakes up to `count` workers that sleep, beginning with worker `first`.
    fn wake(&self, host: &dyn Host, first: usize, count: usize) {
        let workers = host.workers();
        let mut left = count.min(workers);
        for number in 0..workers {
            if left == 0 {
                return;
            }
            left -= usize::from(host.wake_worker((first + number) % workers));
        }
    }
}

/// Datagrams that a socket gives at a time.
const BATCH: u16 = 64;

/// The queues between receiving and running that a placement has: one for each worker, or one.
pub(crate) fn software_queues(
    config: &NativeConfig,
    mode: NativeMode,
    workers: usize,
) -> Vec<SoftwareQueue> {
    let count = match config.placement {
        NativePlacement::HandOff => 1,
        NativePlacement::Stealing if mode.workers_receive() => workers,
        _ => 0,
    };
    (0..count).map(|_| SoftwareQueue::new()).collect()
}
