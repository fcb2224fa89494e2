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

use curtail_dispatch::{Doorbell, Policy};
use curtail_runtime::{Events, Poller, Readiness, Token};
use curtail_store::Writer;
use curtail_types::Instant;
use tracing::info;

use crate::{
    connection::{Connection, long_running::Errand, registry::Visible, slab::Slots},
    log::component,
    memcached::{event_log::CloseReason, metadump::BUCKETS_A_TURN},
    metrics::{counters::Count, turn_cpu_time::TurnClock},
    native::{Executor, NativeTurns},
    node::{self, Completed, Links, NodeWorker},
    request::{batch::Batch, delegate::Delegation, receive::AREA_BYTES, reply_buffer::Replies},
    size_aware::{
        control_loop::SAMPLED_EVERY, lent_connections::Away, plan_snapshot::Regime,
        policy_name::Sizes,
    },
    sync::{Relaxed, lock},
    test_faults::Fault,
    worker::{
        busy_poll::{SPIN_NS_MAX, Spin},
        context::Kit,
        mailbox::{Arrival, Newcomer},
        shared::Shared,
    },
};

/// One worker; see the head of this file.
pub(crate) struct Worker {
    /// Which one.
    pub(crate) index: usize,
    pub(crate) kit: Kit,
    pub(crate) slots: Slots,
    pub(crate) batch: Batch<'static>,
    pub(crate) replies: Replies,
    /// Slots that had their turn.
    pub(crate) served: Vec<usize>,
    /// Slots whose sockets broke while replying.
    pub(crate) broken: Vec<usize>,
    /// What it decides by.
    pub(crate) regime: Arc<Regime>,
    /// Whether requests may have to run elsewhere in this turn.
    pub(crate) decides: bool,
    /// Whether nothing but a write has to ask where it runs, and it asks for its partition; until
    /// something is handed on in this turn.
    pub(crate) claims: bool,
    /// Whether reads run where they arrive.
    pub(crate) reads_here: bool,
    pub(crate) delegation: Delegation,
    /// What executes accepted writes, if the native path is on.
    pub(crate) native: Option<Box<Executor>>,
    /// What it is in a cluster, if the server is a node of one.
    pub(crate) node: Option<Box<NodeWorker>>,
    pub(crate) filled: Vec<Completed>,
    /// What is answered in this batch may be shown only as long as the node's lease holds.
    pub(crate) under_lease: bool,
    /// The last mark that it saw, and the parcel that it must have back to have passed it.
    pub(crate) mark_seen: (u64, Option<u64>),
    /// Connections that large workers have.
    pub(crate) away: Away,
    /// Whether it has noted what its connections did, and from which slot on.
    pub(crate) marked: bool,
    pub(crate) mark_from: usize,
    arrivals: Vec<Arrival>,
    next_serial: u64,
    epoch: u64,
    pub(crate) turns: u64,
    /// Slots of connections that watch.
    pub(crate) watching: Vec<usize>,
    pub(crate) poller: Poller,
    events: Events,
    turn_clock: TurnClock,
    maintaining: bool,
    /// When the store's background work is looked for again (monotonic, ns).
    maintain_at: u64,
    spin: Spin,
    sweep: Sweep,
    stop_at: Option<Instant>,
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

/// How often to look for parcels that their owners do not open.
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
        let spin = Spin::new(shared.spins && is_small);
        let regime = shared.regimes.current();
        let workers = shared.config.workers;
        let native = shared.native.as_deref();
        let executor = native.map(|native| native.executor_of(index, workers));
        let node = node::node_worker(&shared, index);
        Self {
            index,
            kit: Kit::new(index, shared, writer),
            slots: Slots::default(),
            batch: Batch::default(),
            replies: Replies::new(),
            served: Vec::new(),
            broken: Vec::new(),
            regime,
            decides: false,
            claims: false,
            reads_here: true,
            delegation: Delegation::new(workers),
            native: executor,
            node,
            filled: Vec::new(),
            under_lease: false,
            mark_seen: (0, None),
            away: Away::default(),
            marked: false,
            mark_from: 0,
            arrivals: Vec::new(),
            next_serial: 0,
            epoch: 0,
            turns: 0,
            watching: Vec::new(),
            poller,
            events: Events::with_capacity(EVENTS_MAX),
            turn_clock: TurnClock::default(),
            maintaining: false,
            maintain_at: 0,
            spin,
            sweep: Sweep::default(),
            stop_at: None,
        }
    }

    /// Runs until the server stops; then every connection is closed.
    pub(crate) fn run(mut self) {
        let mut area = vec![0; AREA_BYTES];
        let shared = Arc::clone(&self.kit.shared);
        let mut native = NativeTurns::new(&shared, self.index);
        loop {
            let happened = self.wait();
            self.turn(&mut area);
            self.maintain();
            self.sweep_idle();
            if self.kit.notice.on {
                self.publish_notices();
            }
            self.end_turn();
            if let Some(native) = &mut native {
                self.maintaining |= native.turn(&mut self);
            }
            if self.kit.shared.stopping.load(Relaxed) {
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
        let busy = self.slots.any_ready() || self.maintaining || in_cluster;
        let timeout = match (busy, self.stop_at) {
            (true, _) => Duration::ZERO,
            (false, _) if self.awaits_parcels() => LOOK,
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
        let (slots, node, away) = (&mut self.slots, &mut self.node, &mut self.away);
        self.events.for_each(|token, readiness| {
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
        if self.away.is_wanted() && !self.kit.has(Fault::ForgetsReturns) {
            self.expect_returns();
        }
        if self.awaits_parcels() {
            self.take_back_parcels();
        }
        if woken {
            for &slot in &self.watching {
                self.slots.queue(slot);
            }
        }
        happened
    }

    /// Waits for events; before it sleeps it may look again for a while.
    fn sleep(&mut self, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            return self.poller.wait(&mut self.events, Some(timeout));
        }
        if !self.spin.is_allowed() {
            return self.doze(timeout);
        }
        let clock = self.kit.shared.clock;
        let since_ns = clock.now().instant.ns;
        let waited_ns = || clock.now().instant.ns.saturating_sub(since_ns);
        if self.spin.pays() {
            while waited_ns() < SPIN_NS_MAX {
                self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
                if !self.events.is_empty() || self.bell().is_some_and(Doorbell::is_rung) {
                    self.kit.counts.add(Count::SpinsFound, 1);
                    self.spin.spun(true);
                    return Ok(());
                }
            }
            self.kit.counts.add(Count::SpinsInVain, 1);
            self.spin.spun(false);
        }
        self.doze(timeout)?;
        self.spin.slept(waited_ns());
        Ok(())
    }

    /// Waits for events and for the bell; does not if that was rung already.
    fn doze(&mut self, timeout: Duration) -> io::Result<()> {
        let shared = Arc::clone(&self.kit.shared);
        let Some(bell) = shared.workers.get(self.index).map(|face| &face.mail.bell) else {
            return Ok(());
        };
        let timeout = if bell.try_sleep() {
            timeout
        } else {
            Duration::ZERO
        };
        let waited = self.poller.wait(&mut self.events, Some(timeout));
        bell.wake();
        waited
    }

    /// For tests: whether nothing but being woken ends its sleep.
    #[inline(always)]
    fn sleeps_long(&self) -> bool {
        self.kit.has(Fault::SleepsLong) || self.kit.has(Fault::ForgetsReturns)
    }

    fn bell(&self) -> Option<&Doorbell> {
        let face = self.kit.shared.workers.get(self.index)?;
        Some(&face.mail.bell)
    }

    /// Whether it serves large requests alone.
    pub(crate) fn is_large_worker(&self) -> bool {
        self.index >= self.kit.shared.config.workers
    }

    /// Looks once at everything that may differ from turn to turn.
    fn begin_turn(&mut self) {
        self.turn_clock.begin();
        let kit = &mut self.kit;
        kit.now = kit.shared.now();
        kit.detail = kit.shared.prefixes.is_on();
        kit.slow_ns = kit.shared.slow.threshold_ns();
        kit.dump_buckets = BUCKETS_A_TURN;
        let verbosity = kit.shared.verbosity.load(Relaxed);
        kit.notice
            .begin_turn(kit.shared.watchers.interests(), verbosity);
        kit.writer.note_evicted(kit.notice.watches_evictions());
        self.turns += 1;
        if kit.shared.regimes.generation() != self.regime.generation {
            self.regime = kit.shared.regimes.current();
        }
        if kit.shared.control.epoch.load(Relaxed) != self.epoch {
            self.end_epoch();
        }
        self.settle_regime();
        if self.kit.shared.cluster.is_some() {
            self.begin_turn_in_cluster();
        }
    }

    /// What follows from the regime for this turn.
    fn settle_regime(&mut self) {
        let (policy, workers) = (self.regime.name.policy, self.kit.shared.config.workers);
        let is_large = self.is_large_worker();
        self.decides = workers > 1 && policy != Policy::Crcw && !is_large;
        self.claims = self.decides && policy == Policy::DynamicCrew;
        self.reads_here = policy != Policy::Erew;
        let is_apart = self.regime.name.is_size_aware() && !is_large;
        self.kit.large_from = match is_apart {
            true => self.regime.plan.threshold as usize,
            false => usize::MAX,
        };
        self.kit.large_counts_from = match is_large {
            true => usize::MAX,
            false => self.kit.shared.config.threshold_first() as usize,
        };
        let learns = self.regime.name.sizes == Sizes::Learned;
        self.kit.learns = learns;
        self.kit.samples = learns && self.turns.is_multiple_of(SAMPLED_EVERY);
        if is_apart {
            self.look_at_large_queues();
        }
    }

    /// Leaves what was measured to the control.
    #[cold]
    fn end_epoch(&mut self) {
        self.epoch = self.kit.shared.control.epoch.load(Relaxed);
        self.show_hot_keys();
        self.give_connections();
        if self.kit.sizes.count() == 0 {
            return;
        }
        if let Some(face) = self.kit.shared.workers.get(self.index) {
            let mut measured = lock(&face.measured);
            match &mut *measured {
                Some(before) => before.add(&self.kit.sizes),
                none => *none = Some(self.kit.sizes.clone()),
            }
        }
        self.kit.sizes.clear();
    }

    fn show_hot_keys(&mut self) {
        let now = self.kit.now.instant;
        if !self.kit.hot_keys.is_due(now) {
            return;
        }
        if let Some(face) = self.kit.shared.workers.get(self.index) {
            self.kit.hot_keys.show(now, &mut lock(&face.hottest));
        }
    }

    pub(crate) fn take_arrivals(&mut self) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        if let Some(face) = self.kit.shared.workers.get(self.index) {
            face.mail.take(&mut arrivals);
        }
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Newcomer(newcomer) => self.welcome(newcomer),
                Arrival::Visitor(connection) => self.receive_visitor(connection),
                Arrival::Moved(connection) => self.receive_moved(connection),
                Arrival::Returned(slot, connection, watched) => {
                    self.receive_returned(slot, connection, watched);
                }
                Arrival::Lost(slot) => self.receive_lost(slot),
                Arrival::Parcel(sealed) => self.open_parcel(&sealed),
                Arrival::Answer(parcel) => self.deliver(parcel),
                Arrival::Link(link) => self.adopt_link(*link),
                arrival @ (Arrival::Waiter(_)
                | Arrival::MovedKey(_)
                | Arrival::MoveAsked(_)
                | Arrival::Proposal(_)) => {
                    self.take_from_cluster(arrival);
                }
                Arrival::Stir(slice) => self.stir(slice),
                Arrival::Completed(completed) => self.take_completed(*completed),
                Arrival::Relieve => self.kit.lease_refused = true,
            }
        }
        self.arrivals = arrivals;
    }

    fn welcome(&mut self, newcomer: Newcomer) {
        let Newcomer {
            mut stream,
            peer,
            listener,
        } = newcomer;
        let slot = self.slots.next_slot();
        if stream.watch(&self.poller, Token(slot)).is_err() {
            self.kit.shared.doors.unwatched.add(1);
            self.leave();
            return;
        }
        let seconds = self.kit.now.unix_seconds();
        let visible = Visible::connection(stream.number(), peer, listener, seconds);
        let visible = Arc::new(visible);
        self.kit.shared.registry.add(&visible);
        let kit = &mut self.kit;
        if kit.notice.on {
            kit.notice.opened(&kit.shared.watchers, kit.now, &visible);
        }
        let authenticate = self.kit.shared.logins().is_some();
        let serial = self.next_serial();
        let connection = Connection::new(stream, authenticate, visible, serial);
        self.kit.store.account(CONNECTION_BYTES);
        self.slots.insert(Box::new(connection));
        self.slots.queue(slot);
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Closes the connection in `slot`, if there is one.
    pub(crate) fn close(&mut self, slot: usize) {
        if let Some(connection) = self.slots.remove(slot) {
            self.see_off(slot, &connection);
            // Off the list before the descriptor's number is free for another.
            self.kit.shared.registry.remove(&connection.visible);
            let visit = connection.visit;
            connection.dissolve(&mut self.kit.pool);
            self.kit.store.account(-CONNECTION_BYTES);
            match visit {
                None => self.leave(),
                Some(visit) => {
                    self.end_visit();
                    if let Some(home) = self.kit.shared.workers.get(visit.home) {
                        home.mail.send(Arrival::Lost(visit.slot));
                    }
                }
            }
        }
    }

    /// Tells of the end of a connection, and ends its watching.
    fn see_off(&mut self, slot: usize, connection: &Connection) {
        let kit = &mut self.kit;
        if let Some(Errand::Watch(watcher)) = connection.errand.as_deref() {
            kit.shared.watchers.remove(watcher);
            self.watching.retain(|&watching| watching != slot);
        }
        if kit.notice.on {
            let (watchers, reason) = (&kit.shared.watchers, connection.close_reason);
            kit.notice
                .closed(watchers, kit.now, &connection.visible, reason);
        }
    }

    /// The same as [`Worker::close_after_replies`] for a client that does not speak the protocol.
    pub(crate) fn close_in_error(&mut self, slot: usize) {
        if let Some(connection) = self.slots.get_mut(slot) {
            connection.close_reason = CloseReason::Error;
            let shared = &self.kit.shared;
            if let Some(suppressed) = shared
                .limits
                .malformed
                .pass(self.kit.now.unix_seconds().into())
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
        if let Some(face) = self.kit.shared.workers.get(self.index) {
            face.connections.fetch_sub(1, Relaxed);
        }
        self.kit.shared.doors.leave();
    }

    /// The store's background work: in every turn while there is some or room is short.
    #[inline]
    fn maintain(&mut self) {
        let now = self.kit.now.instant.ns;
        if self.maintaining || now >= self.maintain_at || self.kit.store.is_short_of_room() {
            self.maintain_at = now + MAINTAIN_REST_NS;
            self.maintain_now();
        }
    }

    fn maintain_now(&mut self) {
        let kit = &mut self.kit;
        let items = kit
            .store
            .maintain(&mut kit.writer, kit.now, MAINTAIN_ITEMS_MAX);
        kit.counts.add(Count::MaintainedItems, items as u64);
        self.maintaining = items > 0;
    }

    fn end_turn(&mut self) {
        self.kit.counts.add(Count::Turns, 1);
        if self.kit.store.wants_pages() {
            self.kit.shared.pages.wake();
            if self.kit.store.lacks_pages() {
                self.kit.shared.pages.hurry();
            }
        }
        if self.turns.is_multiple_of(SHOWN_EVERY) {
            self.show_stages();
        }
        if let Some(face) = self.kit.shared.workers.get(self.index) {
            self.turn_clock.end(&face.turns, self.maintaining);
        }
    }

    fn show_stages(&mut self) {
        if let Some(face) = self.kit.shared.workers.get(self.index) {
            face.stages.publish(&self.kit.stages);
            face.latencies.publish(&mut self.kit.latencies);
        }
    }

    /// Looks at a few connections for one that has been idle for too long.
    fn sweep_idle(&mut self) {
        let limit = self.kit.shared.config.idle_timeout_seconds;
        let seconds = self.kit.now.unix_seconds();
        if limit == 0 || (self.sweep.next_slot == 0 && self.sweep.begun_seconds == seconds) {
            return;
        }
        if self.sweep.next_slot == 0 {
            self.sweep.begun_seconds = seconds;
        }
        let from = self.sweep.next_slot;
        let end = self.slots.end().min(from + SWEEP_SLOTS_MAX);
        self.sweep.next_slot = if end == self.slots.end() { 0 } else { end };
        for slot in from..end {
            let idle = self.slots.get_mut(slot).filter(|connection| {
                // A watcher is not expected to say anything.
                !matches!(connection.errand.as_deref(), Some(Errand::Watch(_)))
                    && seconds.saturating_sub(connection.visible.last_command_seconds()) > limit
            });
            if let Some(connection) = idle {
                connection.close_reason = CloseReason::Idle;
                self.kit.counts.add(Count::IdleKicks, 1);
                self.close(slot);
            }
        }
    }

    /// While stopping: whether nothing is in flight any more, or it has taken too long.
    fn may_stop(&mut self, happened: bool) -> bool {
        let now = self.kit.now.instant;
        let Some(stop_at) = self.stop_at else {
            self.stop_at = Some(Instant {
                ns: now.ns + STOP_NS_MAX,
            });
            return false;
        };
        let unsent = self
            .slots
            .used()
            .any(|(_, connection)| !connection.unsent.is_empty());
        let waits = happened || unsent || !self.away.is_empty() || self.awaits_parcels();
        now >= stop_at || !(waits || self.slots.any_ready())
    }
}

/// What a connection takes beside its buffers: its slot, its state, its entry in the registry.
const CONNECTION_BYTES: isize =
    (size_of::<Connection>() + size_of::<Visible>() + SLOT_BYTES).cast_signed();

/// Places in the lists of a worker and of the registry.
const SLOT_BYTES: usize = 64;

/// False if the connection is not in its slot.
fn note_readiness(slots: &mut Slots, slot: usize, readiness: Readiness) -> bool {
    let Some(connection) = slots.get_mut(slot) else {
        return false;
    };
    connection.note(readiness);
    slots.queue(slot);
    true
}
