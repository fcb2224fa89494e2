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
use curtail_links::Links;
use curtail_runtime::Readiness;
use curtail_types::Instant;

use crate::{
    busy_poll::SPIN_NS_MAX,
    config::policy_name::Sizes,
    connection::{close_reason::CloseReason, long_running::LongRunning, slab::ConnectionSlab},
    event_loop,
    gateway::GATEWAY,
    limits::{MAINTAIN_ITEMS_MAX, RECEIVE_AREA_BYTES, STOP_NS_MAX, SWEEP_SLOTS_MAX},
    memcached::metadump::BUCKETS_A_TURN,
    metrics::counters::Count,
    native::NativeTurns,
    pipeline,
    route::{on_disk, on_gateway, on_node},
    size_aware::prices::SAMPLED_EVERY,
    sync::{Relaxed, lock},
    test_faults::Fault,
    turn::{delegate, hand_off_large, lifecycle, log_events, rebalance, send},
    worker::{WAKER, Worker, mailbox::Arrival},
};

/// How long maintenance is not looked for after a look that found nothing to do.
const MAINTAIN_REST_NS: u64 = 1_000_000;

/// How long a worker sleeps at most: the store expires items without being asked.
const TICK: Duration = Duration::from_secs(1);

/// How often to look for delegated batches that their owners do not open.
const LOOK: Duration = Duration::from_millis(1);

/// One turn in so many shows its stages to others.
const SHOWN_EVERY: u64 = 64;

/// While stopping, how long nothing must happen.
const QUIET: Duration = Duration::from_millis(10);

/// Runs until the server stops; then every connection is closed.
pub(crate) fn run(mut worker: Worker) {
    let worker = &mut worker;
    let mut area = vec![0; RECEIVE_AREA_BYTES];
    let shared = Arc::clone(&worker.cx.shared);
    let index = worker.index;
    let native = shared.native.as_deref();
    let mut native = native.map(|native| NativeTurns::new(&*shared, native, index));
    loop {
        let happened = wait(worker);
        pipeline::turn(worker, &mut area);
        send::finish_turn(worker);
        if worker.node.is_some() {
            on_node::work_in_cluster(worker);
        }
        if worker.gateway.is_some() {
            on_gateway::work_in_tier(worker);
        }
        maintain(worker);
        sweep_idle(worker);
        if worker.cx.event_log.on {
            log_events::publish_events(worker);
        }
        end_turn(worker);
        if let (Some(native), Some(barrier)) = (&mut native, &mut worker.native) {
            let is_left = native.turn(barrier, &mut worker.cx.store_cx);
            worker.maintenance.is_under_way |= is_left;
        }
        if worker.cx.shared.stopping.load(Relaxed) {
            let is_busy = native.as_ref().is_some_and(NativeTurns::is_busy);
            if may_stop(worker, happened || is_busy) {
                break;
            }
        }
    }
    if let (Some(native), Some(barrier)) = (native, &mut worker.native) {
        native.finish(barrier, &mut worker.cx.store_cx);
    }
    for slot in 0..worker.slots.end() {
        if let Some(connection) = worker.slots.get_mut(slot) {
            connection.close_reason = CloseReason::Shutdown;
        }
        lifecycle::close(worker, slot);
    }
}

/// Waits for events, if there is nothing else to do, and lines up the connections concerned.
/// Returns whether anything happened.
fn wait(worker: &mut Worker) -> bool {
    let in_cluster = worker.node.as_ref().is_some_and(|node| node.wants_turn());
    let busy = worker.slots.any_ready() || worker.maintenance.is_under_way || in_cluster;
    let timeout = match (busy, worker.stop_at) {
        (true, _) => Duration::ZERO,
        (false, _) if delegate::awaits_delegated(worker) => LOOK,
        (false, _) if on_disk::awaits_disk(worker) => LOOK,
        (false, Some(_)) => QUIET,
        (false, None) if sleeps_long(worker) => Duration::MAX,
        (false, None) => TICK,
    };
    let timeout = timeout
        .min(on_node::time_to_cluster(worker))
        .min(on_gateway::time_to_tier(worker));
    let waited = sleep(worker, timeout);
    begin_turn(worker);
    if waited.is_err() {
        return false;
    }
    let (mut woken, mut happened) = (false, false);
    let (slots, node, away) = (&mut worker.slots, &mut worker.node, &mut worker.lent);
    let gateway = &mut worker.gateway;
    worker.wait.events.for_each(|token, readiness| {
        happened = true;
        if token == WAKER {
            woken = true;
        } else if let Some(gateway) = gateway.as_mut().filter(|_| token == GATEWAY) {
            gateway.is_readable = true;
        } else if let Some(node) = node.as_mut().filter(|_| Links::owns(token)) {
            node.links.note_event(token, readiness);
        } else if !note_readiness(slots, token.0, readiness) {
            away.note(token.0, readiness);
        }
    });
    if worker.bell().is_some_and(Doorbell::answer) {
        happened = true;
        take_arrivals(worker);
    }
    if worker.lent.is_wanted() && !worker.cx.has(Fault::ForgetsReturns) {
        expect_returns(worker);
    }
    if delegate::awaits_delegated(worker) {
        delegate::take_back_delegated(worker);
    }
    if woken {
        worker.slots.queue_watching();
    }
    happened
}

/// Waits for events; before it sleeps it may look again for a while.
fn sleep(worker: &mut Worker, timeout: Duration) -> io::Result<()> {
    if timeout.is_zero() {
        return worker.poller.wait(&mut worker.wait.events, Some(timeout));
    }
    if !worker.wait.busy_poll.is_allowed() {
        return doze(worker, timeout);
    }
    let clock = worker.cx.shared.clock;
    let since_ns = clock.now().instant.ns;
    let waited_ns = || clock.now().instant.ns.saturating_sub(since_ns);
    if worker.wait.busy_poll.pays() {
        while waited_ns() < SPIN_NS_MAX {
            worker
                .poller
                .wait(&mut worker.wait.events, Some(Duration::ZERO))?;
            if !worker.wait.events.is_empty() || worker.bell().is_some_and(Doorbell::is_rung) {
                worker.cx.counts.add(Count::SpinsFound, 1);
                worker.wait.busy_poll.spun(true);
                return Ok(());
            }
        }
        worker.cx.counts.add(Count::SpinsInVain, 1);
        worker.wait.busy_poll.spun(false);
    }
    doze(worker, timeout)?;
    worker.wait.busy_poll.slept(waited_ns());
    Ok(())
}

/// Waits for events and for the bell; does not if that was rung already.
fn doze(worker: &mut Worker, timeout: Duration) -> io::Result<()> {
    let shared = Arc::clone(&worker.cx.shared);
    let Some(bell) = shared
        .workers
        .get(worker.index)
        .map(|handle| &handle.mail.bell)
    else {
        return Ok(());
    };
    let timeout = if bell.try_sleep() {
        timeout
    } else {
        Duration::ZERO
    };
    let waited = worker.poller.wait(&mut worker.wait.events, Some(timeout));
    bell.wake();
    waited
}

/// For tests: whether nothing but being woken ends its sleep.
#[inline(always)]
fn sleeps_long(worker: &Worker) -> bool {
    worker.cx.has(Fault::SleepsLong) || worker.cx.has(Fault::ForgetsReturns)
}

/// Looks once at everything that may differ from turn to turn.
fn begin_turn(worker: &mut Worker) {
    worker.clock.cpu.begin();
    let cx = &mut worker.cx;
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
    worker.clock.turns += 1;
    if cx.shared.snapshots.generation() != worker.routing.snapshot.generation {
        worker.routing.snapshot = cx.shared.snapshots.current();
    }
    if cx.shared.control.epoch.load(Relaxed) != worker.clock.epoch {
        end_epoch(worker);
    }
    settle_snapshot(worker);
    if worker.cx.shared.cluster.is_some() {
        on_node::begin_turn_in_cluster(worker);
    }
    if worker.tier.is_some() {
        on_disk::begin_turn(worker);
    }
}

/// What follows from the plan snapshot for this turn.
fn settle_snapshot(worker: &mut Worker) {
    let workers = worker.cx.shared.config.workers;
    let is_large = worker.is_large_worker();
    worker.routing.settle(workers, is_large);
    let is_apart = worker.routing.snapshot.name.is_size_aware() && !is_large;
    worker.cx.turn.large_from = match is_apart {
        true => worker.routing.snapshot.plan.threshold as usize,
        false => usize::MAX,
    };
    worker.cx.turn.large_counts_from = match is_large {
        true => usize::MAX,
        false => worker.cx.shared.config.threshold_first() as usize,
    };
    let learns = worker.routing.snapshot.name.sizes == Sizes::Learned;
    worker.cx.turn.learns = learns;
    worker.cx.turn.samples = learns && worker.clock.turns.is_multiple_of(SAMPLED_EVERY);
    if is_apart {
        hand_off_large::look_at_large_queues(worker);
    }
}

/// Leaves what was measured to the control thread.
#[cold]
fn end_epoch(worker: &mut Worker) {
    worker.clock.epoch = worker.cx.shared.control.epoch.load(Relaxed);
    show_hot_keys(worker);
    rebalance::give_connections(worker);
    if worker.cx.recorders.sizes.count() == 0 {
        return;
    }
    if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
        let mut measured = lock(&handle.measured);
        match &mut *measured {
            Some(before) => before.add(&worker.cx.recorders.sizes),
            none => *none = Some(worker.cx.recorders.sizes.clone()),
        }
    }
    worker.cx.recorders.sizes.clear();
}

fn show_hot_keys(worker: &mut Worker) {
    let now = worker.cx.store_cx.now.instant;
    if !worker.cx.recorders.hot_keys.is_due(now) {
        return;
    }
    if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
        worker
            .cx
            .recorders
            .hot_keys
            .show(now, &mut lock(&handle.hottest));
    }
}

pub(crate) fn take_arrivals(worker: &mut Worker) {
    let mut arrivals = std::mem::take(&mut worker.wait.arrivals);
    if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
        handle.mail.take(&mut arrivals);
    }
    for arrival in arrivals.drain(..) {
        match arrival {
            Arrival::Newcomer(newcomer) => lifecycle::welcome(worker, newcomer),
            Arrival::Borrowed(connection) => hand_off_large::receive_borrowed(worker, connection),
            Arrival::Moved(connection) => rebalance::receive_moved(worker, connection),
            Arrival::Returned(slot, connection, watched) => {
                hand_off_large::receive_returned(worker, slot, connection, watched);
            }
            Arrival::Lost(slot) => hand_off_large::receive_lost(worker, slot),
            Arrival::DelegatedBatch(sealed) => delegate::open_delegated(worker, &sealed),
            Arrival::Answer(delegated) => delegate::deliver(worker, delegated),
            Arrival::Node(arrival) => on_node::take_from_cluster(worker, arrival),
            Arrival::Disk(answer) => on_disk::take_answer(worker, *answer),
            Arrival::Spent(buffers) => drop(buffers),
            Arrival::Relieve => worker.cx.measured.lease_refused = true,
        }
    }
    worker.wait.arrivals = arrivals;
}

/// The store's background work: in every turn while there is some or room is short.
#[inline]
fn maintain(worker: &mut Worker) {
    let now = worker.cx.store_cx.now.instant.ns;
    if worker.maintenance.is_under_way
        || now >= worker.maintenance.due_ns
        || worker.cx.store_cx.store.is_short_of_room()
    {
        worker.maintenance.due_ns = now + MAINTAIN_REST_NS;
        maintain_now(worker);
    }
}

fn maintain_now(worker: &mut Worker) {
    let cx = &mut worker.cx;
    let items =
        cx.store_cx
            .store
            .maintain(&mut cx.store_cx.writer, cx.store_cx.now, MAINTAIN_ITEMS_MAX);
    cx.counts.add(Count::MaintainedItems, items as u64);
    worker.maintenance.is_under_way = items > 0;
}

fn end_turn(worker: &mut Worker) {
    worker.cx.counts.add(Count::Turns, 1);
    if worker.is_large_worker() {
        hand_off_large::give_memory_back(worker);
    }
    if worker.cx.store_cx.store.wants_pages() {
        worker.cx.shared.pages.wake();
        if worker.cx.store_cx.store.lacks_pages() {
            worker.cx.shared.pages.hurry();
        }
    }
    if worker.clock.turns.is_multiple_of(SHOWN_EVERY) {
        show_stages(worker);
    }
    if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
        worker
            .clock
            .cpu
            .end(&handle.turns, worker.maintenance.is_under_way);
    }
}

fn show_stages(worker: &mut Worker) {
    if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
        handle.stages.publish(&worker.cx.recorders.stages);
        handle.latencies.publish(&mut worker.cx.recorders.latencies);
    }
}

/// Looks at a few connections for one that has been idle for too long.
fn sweep_idle(worker: &mut Worker) {
    let limit = worker.cx.shared.config.idle_timeout_seconds;
    let seconds = worker.cx.store_cx.now.unix_seconds();
    if limit == 0
        || (worker.maintenance.sweep.next_slot == 0
            && worker.maintenance.sweep.begun_seconds == seconds)
    {
        return;
    }
    if worker.maintenance.sweep.next_slot == 0 {
        worker.maintenance.sweep.begun_seconds = seconds;
    }
    let from = worker.maintenance.sweep.next_slot;
    let end = worker.slots.end().min(from + SWEEP_SLOTS_MAX);
    worker.maintenance.sweep.next_slot = if end == worker.slots.end() { 0 } else { end };
    for slot in from..end {
        let idle = worker.slots.get_mut(slot).filter(|connection| {
            // A watcher is not expected to say anything.
            !matches!(
                connection.long_running.as_deref(),
                Some(LongRunning::Watch(_))
            ) && seconds.saturating_sub(connection.visible.last_command_seconds()) > limit
        });
        if let Some(connection) = idle {
            connection.close_reason = CloseReason::Idle;
            worker.cx.counts.add(Count::IdleKicks, 1);
            lifecycle::close(worker, slot);
        }
    }
}

/// While stopping: whether nothing is in flight any more, or it has taken too long.
fn may_stop(worker: &mut Worker, happened: bool) -> bool {
    let now = worker.cx.store_cx.now.instant;
    let Some(stop_at) = worker.stop_at else {
        worker.stop_at = Some(Instant {
            ns: now.ns + STOP_NS_MAX,
        });
        return false;
    };
    let output = worker
        .slots
        .used()
        .any(|(_, connection)| !connection.output.is_empty());
    let waits = happened || output || !worker.lent.is_empty() || delegate::awaits_delegated(worker);
    now >= stop_at || !(waits || worker.slots.any_ready())
}

/// False if the connection is not in its slot.
fn note_readiness(slots: &mut ConnectionSlab, slot: usize, readiness: Readiness) -> bool {
    let Some(connection) = slots.get_mut(slot) else {
        return false;
    };
    connection.note(readiness);
    slots.queue(slot);
    true
}

/// Connections that were asked for something while they were away are wanted back at once.
#[cold]
pub(crate) fn expect_returns(worker: &mut Worker) {
    let shared = Arc::clone(&worker.cx.shared);
    let Some(handle) = shared.workers.get(worker.index) else {
        return;
    };
    while worker.lent.is_wanted() {
        if handle.mail.expect() {
            event_loop::take_arrivals(worker);
        } else {
            worker.lent.told();
        }
    }
}
