//! The worker: one thread, one event loop, its own connections.
//!
//! ```text
//!  wait ---> turn (see pipeline) ---> maintain ---> sweep idle connections ---> wait ...
//! ```
//!
//! A worker waits only when no connection is in line and the store has no work left. Everything in
//! a turn is bounded: requests per connection and in all, bytes received and sent per connection,
//! items that maintenance handles, slots that the sweep looks at.

use std::{io, sync::Arc, time::Duration};

use curtail_dispatch::Doorbell;
use curtail_runtime::{Events, Poller, Readiness, Token};
use curtail_store::Writer;
use curtail_types::Instant;
use tracing::info;

use crate::{
    connection::{Connection, long_running::LongRunning, registry::Visible, slab::ConnectionSlab},
    log::component,
    memcached::{event_log::CloseReason, metadump::BUCKETS_A_TURN},
    metrics::{counters::Count, turn_cpu_time::TurnClock},
    native::{NativeTurns, ReadBarrier},
    node::{self, Links, NodeWorker},
    request::{batch::Batch, delegate::Delegation, receive::AREA_BYTES, reply_buffer::Replies},
    route::Routing,
    size_aware::{
        control_loop::SAMPLED_EVERY, lent_connections::LentConnections, policy_name::Sizes,
    },
    sync::{Relaxed, lock},
    test_faults::Fault,
    worker::{
        busy_poll::{BusyPoll, SPIN_NS_MAX},
        context::WorkerContext,
        mailbox::{Arrival, Newcomer},
        shared::Shared,
    },
};

/// One worker; see the head of this file. The comment of a field names the part of the server that
/// it belongs to, if that is not the event loop.
pub(crate) struct Worker {
    /// Which one.
    pub(crate) index: usize,
    pub(crate) cx: WorkerContext,
    /// Its connections: `connection`.
    pub(crate) slots: ConnectionSlab,
    /// Connections that large workers have: `size_aware`.
    pub(crate) lent: LentConnections,
    /// The requests of a turn: `request::receive`.
    pub(crate) batch: Batch<'static>,
    /// Their replies: `request::execute`.
    pub(crate) replies: Replies,
    /// What routes follow from: `route`.
    pub(crate) routing: Routing,
    /// What other workers execute: `request::delegate`.
    pub(crate) delegation: Delegation,
    /// What keeps requests behind accepted writes, if the native path is on: `native`.
    pub(crate) native: Option<Box<ReadBarrier>>,
    /// What it is in a cluster, if the server is a node of one: `node`.
    pub(crate) node: Option<Box<NodeWorker>>,
    pub(crate) clock: TurnCount,
    pub(crate) poller: Poller,
    wait: WaitState,
    maintenance: Maintenance,
    stop_at: Option<Instant>,
}

/// How many turns there were, and what they took.
#[derive(Debug, Default)]
pub(crate) struct TurnCount {
    pub(crate) turns: u64,
    /// The last epoch of the control that it ended.
    epoch: u64,
    cpu: TurnClock,
}

/// How a worker waits, and for what.
#[derive(Debug)]
struct WaitState {
    events: Events,
    arrivals: Vec<Arrival>,
    busy_poll: BusyPoll,
}

/// Background work that a worker does between turns.
#[derive(Debug, Default)]
struct Maintenance {
    is_under_way: bool,
    /// When the store's background work is looked for again (monotonic, ns).
    due_ns: u64,
    sweep: Sweep,
}

/// The search for idle connections: a few slots a turn, beginning once a second.
#[derive(Debug, Default)]
struct Sweep {
    next_slot: usize,
    begun_seconds: u32,
}

/// The token of the waker; slots have the numbers below.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// Events taken in one wait.
const EVENTS_MAX: usize = 256;

/// Items that maintenance handles in one turn.
const MAINTAIN_ITEMS_MAX: usize = 64;

/// How long maintenance is not looked for after a look that found nothing to do.
const MAINTAIN_REST_NS: u64 = 1_000_000;

/// Slots that the sweep looks at in one turn.
const SWEEP_SLOTS_MAX: usize = 128;

/// How long a worker sleeps at most: the store expires items without being asked.
const TICK: Duration = Duration::from_secs(1);

/// How often to look for delegated batches that their owners do not open.
const LOOK: Duration = Duration::from_millis(1);

/// One turn in so many shows its stages to others.
const SHOWN_EVERY: u64 = 64;

/// How long stopping may take while clients still have requests on the way.
const STOP_NS_MAX: u64 = 2_000_000_000;

/// While stopping, how long nothing must happen.
const QUIET: Duration = Duration::from_millis(10);

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<Shared>, writer: Writer, poller: Poller) -> Self {
        let is_small = index < shared.config.workers;
        let busy_poll = BusyPoll::new(shared.spins && is_small);
        let snapshot = shared.snapshots.current();
        let workers = shared.config.workers;
        let native = shared.native.as_ref().map(|native| {
            let executor = native.executor_of(index, workers);
            Box::new(ReadBarrier::new(Arc::clone(native), executor))
        });
        let node = node::node_worker(&shared, index);
        Self {
            index,
            cx: WorkerContext::new(index, shared, writer),
            slots: ConnectionSlab::default(),
            lent: LentConnections::default(),
            batch: Batch::default(),
            replies: Replies::new(),
            routing: Routing::new(snapshot),
            delegation: Delegation::new(workers),
            native,
            node,
            clock: TurnCount::default(),
            poller,
            wait: WaitState {
                events: Events::with_capacity(EVENTS_MAX),
                arrivals: Vec::new(),
                busy_poll,
            },
            maintenance: Maintenance::default(),
            stop_at: None,
        }
    }

    /// Runs until the server stops; then every connection is closed.
    pub(crate) fn run(mut self) {
        let mut area = vec![0; AREA_BYTES];
        let shared = Arc::clone(&self.cx.shared);
        let mut native = NativeTurns::new(&shared, self.index);
        loop {
            let happened = self.wait();
            self.turn(&mut area);
            self.finish_turn();
            if self.node.is_some() {
                self.work_in_cluster();
            }
            self.maintain();
            self.sweep_idle();
            if self.cx.event_log.on {
                self.publish_events();
            }
            self.end_turn();
            if let Some(native) = &mut native {
                self.maintenance.is_under_way |= native.turn(&mut self);
            }
            if self.cx.shared.stopping.load(Relaxed) {
                let is_busy = native.as_ref().is_some_and(NativeTurns::is_busy);
                if self.may_stop(happened || is_busy) {
                    break;
                }
            }
        }
        if let Some(native) = native {
            native.finish(&mut self);
        }
        for slot in 0..self.slots.end() {
            if let Some(connection) = self.slots.get_mut(slot) {
                connection.close_reason = CloseReason::Shutdown;
            }
            self.close(slot);
        }
    }

    /// Waits for events, if there is nothing else to do, and lines up the connections concerned.
    /// Returns whether anything happened.
    fn wait(&mut self) -> bool {
        let in_cluster = self.node.as_ref().is_some_and(|node| node.wants_turn());
        let busy = self.slots.any_ready() || self.maintenance.is_under_way || in_cluster;
        let timeout = match (busy, self.stop_at) {
            (true, _) => Duration::ZERO,
            (false, _) if self.awaits_delegated() => LOOK,
            (false, Some(_)) => QUIET,
            (false, None) if self.sleeps_long() => Duration::MAX,
            (false, None) => TICK,
        };
        let timeout = timeout.min(self.time_to_cluster());
        let waited = self.sleep(timeout);
        self.begin_turn();
        if waited.is_err() {
            return false;
        }
        let (mut woken, mut happened) = (false, false);
        let (slots, node, away) = (&mut self.slots, &mut self.node, &mut self.lent);
        self.wait.events.for_each(|token, readiness| {
            happened = true;
            if token == WAKER {
                woken = true;
            } else if let Some(node) = node.as_mut().filter(|_| Links::owns(token)) {
                node.links.note_event(token, readiness);
            } else if !note_readiness(slots, token.0, readiness) {
                away.note(token.0, readiness);
            }
        });
        if self.bell().is_some_and(Doorbell::answer) {
            happened = true;
            self.take_arrivals();
        }
        if self.lent.is_wanted() && !self.cx.has(Fault::ForgetsReturns) {
            self.expect_returns();
        }
        if self.awaits_delegated() {
            self.take_back_delegated();
        }
        if woken {
            self.slots.queue_watching();
        }
        happened
    }

    /// Waits for events; before it sleeps it may look again for a while.
    fn sleep(&mut self, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            return self.poller.wait(&mut self.wait.events, Some(timeout));
        }
        if !self.wait.busy_poll.is_allowed() {
            return self.doze(timeout);
        }
        let clock = self.cx.shared.clock;
        let since_ns = clock.now().instant.ns;
        let waited_ns = || clock.now().instant.ns.saturating_sub(since_ns);
        if self.wait.busy_poll.pays() {
            while waited_ns() < SPIN_NS_MAX {
                self.poller
                    .wait(&mut self.wait.events, Some(Duration::ZERO))?;
                if !self.wait.events.is_empty() || self.bell().is_some_and(Doorbell::is_rung) {
                    self.cx.counts.add(Count::SpinsFound, 1);
                    self.wait.busy_poll.spun(true);
                    return Ok(());
                }
            }
            self.cx.counts.add(Count::SpinsInVain, 1);
            self.wait.busy_poll.spun(false);
        }
        self.doze(timeout)?;
        self.wait.busy_poll.slept(waited_ns());
        Ok(())
    }

    /// Waits for events and for the bell; does not if that was rung already.
    fn doze(&mut self, timeout: Duration) -> io::Result<()> {
        let shared = Arc::clone(&self.cx.shared);
        let Some(bell) = shared
            .workers
            .get(self.index)
            .map(|handle| &handle.mail.bell)
        else {
            return Ok(());
        };
        let timeout = if bell.try_sleep() {
            timeout
        } else {
            Duration::ZERO
        };
        let waited = self.poller.wait(&mut self.wait.events, Some(timeout));
        bell.wake();
        waited
    }

    /// For tests: whether nothing but being woken ends its sleep.
    #[inline(always)]
    fn sleeps_long(&self) -> bool {
        self.cx.has(Fault::SleepsLong) || self.cx.has(Fault::ForgetsReturns)
    }

    fn bell(&self) -> Option<&Doorbell> {
        let handle = self.cx.shared.workers.get(self.index)?;
        Some(&handle.mail.bell)
    }

    /// Whether it serves large requests alone.
    pub(crate) fn is_large_worker(&self) -> bool {
        self.index >= self.cx.shared.config.workers
    }

    /// Looks once at everything that may differ from turn to turn.
    fn begin_turn(&mut self) {
        self.clock.cpu.begin();
        let cx = &mut self.cx;
        cx.store_cx.now = cx.shared.now();
        cx.turn.detail = cx.shared.prefixes.is_on();
        cx.turn.slow_ns = cx.shared.slow.threshold_ns();
        cx.turn.dump_buckets = BUCKETS_A_TURN;
        let verbosity = cx.shared.verbosity.load(Relaxed);
        cx.event_log
            .begin_turn(cx.shared.watchers.interests(), verbosity);
        cx.store_cx
            .writer
            .note_evicted(cx.event_log.watches_evictions());
        self.clock.turns += 1;
        if cx.shared.snapshots.generation() != self.routing.snapshot.generation {
            self.routing.snapshot = cx.shared.snapshots.current();
        }
        if cx.shared.control.epoch.load(Relaxed) != self.clock.epoch {
            self.end_epoch();
        }
        self.settle_snapshot();
        if self.cx.shared.cluster.is_some() {
            self.begin_turn_in_cluster();
        }
    }

    /// What follows from the plan snapshot for this turn.
    fn settle_snapshot(&mut self) {
        let workers = self.cx.shared.config.workers;
        let is_large = self.is_large_worker();
        self.routing.settle(workers, is_large);
        let is_apart = self.routing.snapshot.name.is_size_aware() && !is_large;
        self.cx.turn.large_from = match is_apart {
            true => self.routing.snapshot.plan.threshold as usize,
            false => usize::MAX,
        };
        self.cx.turn.large_counts_from = match is_large {
            true => usize::MAX,
            false => self.cx.shared.config.threshold_first() as usize,
        };
        let learns = self.routing.snapshot.name.sizes == Sizes::Learned;
        self.cx.turn.learns = learns;
        self.cx.turn.samples = learns && self.clock.turns.is_multiple_of(SAMPLED_EVERY);
        if is_apart {
            self.look_at_large_queues();
        }
    }

    /// Leaves what was measured to the control.
    #[cold]
    fn end_epoch(&mut self) {
        self.clock.epoch = self.cx.shared.control.epoch.load(Relaxed);
        self.show_hot_keys();
        self.give_connections();
        if self.cx.recorders.sizes.count() == 0 {
            return;
        }
        if let Some(handle) = self.cx.shared.workers.get(self.index) {
            let mut measured = lock(&handle.measured);
            match &mut *measured {
                Some(before) => before.add(&self.cx.recorders.sizes),
                none => *none = Some(self.cx.recorders.sizes.clone()),
            }
        }
        self.cx.recorders.sizes.clear();
    }

    fn show_hot_keys(&mut self) {
        let now = self.cx.store_cx.now.instant;
        if !self.cx.recorders.hot_keys.is_due(now) {
            return;
        }
        if let Some(handle) = self.cx.shared.workers.get(self.index) {
            self.cx
                .recorders
                .hot_keys
                .show(now, &mut lock(&handle.hottest));
        }
    }

    pub(crate) fn take_arrivals(&mut self) {
        let mut arrivals = std::mem::take(&mut self.wait.arrivals);
        if let Some(handle) = self.cx.shared.workers.get(self.index) {
            handle.mail.take(&mut arrivals);
        }
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Newcomer(newcomer) => self.welcome(newcomer),
                Arrival::Borrowed(connection) => self.receive_borrowed(connection),
                Arrival::Moved(connection) => self.receive_moved(connection),
                Arrival::Returned(slot, connection, watched) => {
                    self.receive_returned(slot, connection, watched);
                }
                Arrival::Lost(slot) => self.receive_lost(slot),
                Arrival::DelegatedBatch(sealed) => self.open_delegated(&sealed),
                Arrival::Answer(delegated) => self.deliver(delegated),
                Arrival::Link(link) => self.adopt_link(*link),
                arrival @ (Arrival::Waiter(_)
                | Arrival::MovedKey(_)
                | Arrival::MoveAsked(_)
                | Arrival::Proposal(_)) => {
                    self.take_from_cluster(arrival);
                }
                Arrival::Wake(slice) => self.wake(slice),
                Arrival::Completed(completed) => self.take_completed(*completed),
                Arrival::Relieve => self.cx.measured.lease_refused = true,
            }
        }
        self.wait.arrivals = arrivals;
    }

    fn welcome(&mut self, newcomer: Newcomer) {
        let Newcomer {
            mut stream,
            peer,
            listener,
        } = newcomer;
        let slot = self.slots.next_slot();
        if stream.watch(&self.poller, Token(slot)).is_err() {
            self.cx.shared.doors.unwatched.add(1);
            self.leave();
            return;
        }
        let seconds = self.cx.store_cx.now.unix_seconds();
        let visible = Visible::connection(stream.number(), peer, listener, seconds);
        let visible = Arc::new(visible);
        self.cx.shared.registry.add(&visible);
        let cx = &mut self.cx;
        if cx.event_log.on {
            cx.event_log
                .opened(&cx.shared.watchers, cx.store_cx.now, &visible);
        }
        let authenticate = self.cx.shared.logins().is_some();
        let serial = self.next_serial();
        let connection = Connection::new(stream, authenticate, visible, serial);
        self.cx.store_cx.store.account(CONNECTION_BYTES);
        self.slots.insert(Box::new(connection));
        self.slots.queue(slot);
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.slots.next_serial += 1;
        self.slots.next_serial
    }

    /// Closes the connection in `slot`, if there is one.
    pub(crate) fn close(&mut self, slot: usize) {
        if let Some(connection) = self.slots.remove(slot) {
            self.see_off(slot, &connection);
            // Off the list before the descriptor's number is free for another.
            self.cx.shared.registry.remove(&connection.visible);
            let loan = connection.loan;
            connection.dissolve(&mut self.cx.pool);
            self.cx.store_cx.store.account(-CONNECTION_BYTES);
            match loan {
                None => self.leave(),
                Some(loan) => {
                    self.end_loan();
                    if let Some(home) = self.cx.shared.workers.get(loan.home) {
                        home.mail.send(Arrival::Lost(loan.slot));
                    }
                }
            }
        }
    }

    /// Tells of the end of a connection, and ends its watching.
    fn see_off(&mut self, slot: usize, connection: &Connection) {
        let cx = &mut self.cx;
        if let Some(LongRunning::Watch(watcher)) = connection.long_running.as_deref() {
            cx.shared.watchers.remove(watcher);
            self.slots.watching.retain(|&watching| watching != slot);
        }
        if cx.event_log.on {
            let (watchers, reason) = (&cx.shared.watchers, connection.close_reason);
            cx.event_log
                .closed(watchers, cx.store_cx.now, &connection.visible, reason);
        }
    }

    /// The same as [`Worker::close_after_replies`] for a client that does not speak the protocol.
    pub(crate) fn close_in_error(&mut self, slot: usize) {
        if let Some(connection) = self.slots.get_mut(slot) {
            connection.close_reason = CloseReason::Error;
            let shared = &self.cx.shared;
            if let Some(suppressed) = shared
                .limits
                .malformed
                .pass(self.cx.store_cx.now.unix_seconds().into())
            {
                let peer = connection.visible.address.as_str();
                info!(
                    target: component::CONNECTIONS,
                    peer,
                    suppressed,
                    "a connection is closed because its client does not speak the protocol"
                );
            }
        }
        self.close_after_replies(slot);
    }

    /// Has the connection in `slot` closed when its replies are sent.
    pub(crate) fn close_after_replies(&mut self, slot: usize) {
        if let Some(connection) = self.slots.get_mut(slot) {
            connection.closing = true;
        }
    }

    pub(crate) fn leave(&self) {
        if let Some(handle) = self.cx.shared.workers.get(self.index) {
            handle.connections.fetch_sub(1, Relaxed);
        }
        self.cx.shared.doors.leave();
    }

    /// The store's background work: in every turn while there is some or room is short.
    #[inline]
    fn maintain(&mut self) {
        let now = self.cx.store_cx.now.instant.ns;
        if self.maintenance.is_under_way
            || now >= self.maintenance.due_ns
            || self.cx.store_cx.store.is_short_of_room()
        {
            self.maintenance.due_ns = now + MAINTAIN_REST_NS;
            self.maintain_now();
        }
    }

    fn maintain_now(&mut self) {
        let cx = &mut self.cx;
        let items = cx.store_cx.store.maintain(
            &mut cx.store_cx.writer,
            cx.store_cx.now,
            MAINTAIN_ITEMS_MAX,
        );
        cx.counts.add(Count::MaintainedItems, items as u64);
        self.maintenance.is_under_way = items > 0;
    }

    fn end_turn(&mut self) {
        self.cx.counts.add(Count::Turns, 1);
        if self.cx.store_cx.store.wants_pages() {
            self.cx.shared.pages.wake();
            if self.cx.store_cx.store.lacks_pages() {
                self.cx.shared.pages.hurry();
            }
        }
        if self.clock.turns.is_multiple_of(SHOWN_EVERY) {
            self.show_stages();
        }
        if let Some(handle) = self.cx.shared.workers.get(self.index) {
            self.clock
                .cpu
                .end(&handle.turns, self.maintenance.is_under_way);
        }
    }

    fn show_stages(&mut self) {
        if let Some(handle) = self.cx.shared.workers.get(self.index) {
            handle.stages.publish(&self.cx.recorders.stages);
            handle.latencies.publish(&mut self.cx.recorders.latencies);
        }
    }

    /// Looks at a few connections for one that has been idle for too long.
    fn sweep_idle(&mut self) {
        let limit = self.cx.shared.config.idle_timeout_seconds;
        let seconds = self.cx.store_cx.now.unix_seconds();
        if limit == 0
            || (self.maintenance.sweep.next_slot == 0
                && self.maintenance.sweep.begun_seconds == seconds)
        {
            return;
        }
        if self.maintenance.sweep.next_slot == 0 {
            self.maintenance.sweep.begun_seconds = seconds;
        }
        let from = self.maintenance.sweep.next_slot;
        let end = self.slots.end().min(from + SWEEP_SLOTS_MAX);
        self.maintenance.sweep.next_slot = if end == self.slots.end() { 0 } else { end };
        for slot in from..end {
            let idle = self.slots.get_mut(slot).filter(|connection| {
                // A watcher is not expected to say anything.
                !matches!(
                    connection.long_running.as_deref(),
                    Some(LongRunning::Watch(_))
                ) && seconds.saturating_sub(connection.visible.last_command_seconds()) > limit
            });
            if let Some(connection) = idle {
                connection.close_reason = CloseReason::Idle;
                self.cx.counts.add(Count::IdleKicks, 1);
                self.close(slot);
            }
        }
    }

    /// While stopping: whether nothing is in flight any more, or it has taken too long.
    fn may_stop(&mut self, happened: bool) -> bool {
        let now = self.cx.store_cx.now.instant;
        let Some(stop_at) = self.stop_at else {
            self.stop_at = Some(Instant {
                ns: now.ns + STOP_NS_MAX,
            });
            return false;
        };
        let output = self
            .slots
            .used()
            .any(|(_, connection)| !connection.output.is_empty());
        let waits = happened || output || !self.lent.is_empty() || self.awaits_delegated();
        now >= stop_at || !(waits || self.slots.any_ready())
    }
}

/// What a connection takes beside its buffers: its slot, its state, its entry in the registry.
const CONNECTION_BYTES: isize =
    (size_of::<Connection>() + size_of::<Visible>() + SLOT_BYTES).cast_signed();

/// Places in the lists of a worker and of the registry.
const SLOT_BYTES: usize = 64;

/// False if the connection is not in its slot.
fn note_readiness(slots: &mut ConnectionSlab, slot: usize, readiness: Readiness) -> bool {
    let Some(connection) = slots.get_mut(slot) else {
        return false;
    };
    connection.note(readiness);
    slots.queue(slot);
    true
}
