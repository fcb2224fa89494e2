//! Hands large requests to large workers, so that no small one waits behind them.
//!
//! Minos (Didona and Zwaenepoel, NSDI 2019), on connections: what moves between cores is not a
//! request but the connection that it stands on.
//!
//! ```text
//!  worker 0..n-1                                  large worker (parked while it has no connection)
//!  GET finds a large item: leases it    --+
//!  SET announces a large value:           +-->    sends, or receives, piece by piece, in turn with
//!    nothing of it is received            |       the other connections that it has
//!  any small request: served here       <-+---    gives the connection back when that is done
//! ```
//!
//! While a reply is sent, the connection stays registered with its own worker's poller, unless the
//! kernel's buffer is full: so the hand-off and the return need no system call, and the return
//! wakes the worker only if the client has sent more.
//!
//! A large worker owns no idle connection and runs no request but the one that a connection came
//! with, so there is nothing that could wait behind it but other large requests. The kernel shares
//! the processors between workers and large workers; a plan's large cores say how many of the
//! latter take part and which sizes each has. When one has a queue already, the one with the
//! shortest takes the connection, within the epoch and without a new plan.
//!
//! Invariants: a connection that awaits other workers' answers is not handed on; its slot stays
//! reserved while it is away.

use std::{thread, time::Duration};

use curtail_runtime::Token;

use crate::{
    config::Niceness,
    connection::{Connection, Departure, Loan, WatchedBy},
    metrics::{counters::Count, stage_histograms::StageName},
    sync::Relaxed,
    test_faults::Fault,
    turn::{lifecycle, note_latency, note_slow},
    worker::{Worker, context::WorkerContext, mailbox::Arrival},
};

/// With so many connections a large worker has a queue, and another one with a shorter one helps.
const QUEUE_DEEP: usize = 3;

/// A worker that rests is woken to free more than this: it counts against no limit any more.
const SPENT_BYTES_MAX: usize = 1 << 20;

/// How long a connection is on its way, if a test wants that.
const LATE_NS: u64 = 300_000_000;

/// Hands the connection in `slot` to a large worker. False if it stays for now.
pub(crate) fn depart(worker: &mut Worker, slot: usize, departure: Departure) -> bool {
    let number = choose_large(worker, departure.number);
    let index = worker.cx.shared.config.workers + number;
    let Some(mut connection) = worker.slots.lend(slot) else {
        return false;
    };
    connection.departs = None;
    // From here on the visit is measured.
    connection.pending = None;
    // A reply usually goes out without waiting; if not, this is made up for there.
    let stays =
        !departure.receives && connection.writable && connection.stream.reports_room_when_asked();
    if !stays {
        connection.stream.unwatch(&worker.poller);
    }
    connection.loan = Some(Loan {
        home: worker.index,
        slot,
        decodes: departure.receives,
        receives: departure.receives,
        watched_by: if stays {
            WatchedBy::Home
        } else {
            WatchedBy::Nobody
        },
        begun_ns: worker.cx.store_cx.now.instant.ns,
        since_ns: worker.cx.store_cx.now.instant.ns,
    });
    worker.cx.pool.export(connection.buffers());
    worker.lent.lend(slot);
    worker.cx.counts.add(Count::HandOffs, 1);
    let Some(handle) = worker.cx.shared.workers.get(index) else {
        return false;
    };
    let ahead = handle.loans.fetch_add(1, Relaxed);
    let stages = &mut worker.cx.recorders.stages;
    stages.record(StageName::LargeQueue, ahead as u64);
    handle.mail.send(Arrival::Borrowed(connection));
    if worker.cx.shared.config.large_nice == Niceness::Idle {
        worker.cx.shared.control.watch();
    }
    true
}

/// The large worker that the plan names, or the one with the shortest queue if that one has a
/// queue already.
fn choose_large(worker: &mut Worker, planned: u16) -> usize {
    let config = &worker.cx.shared.config;
    let larges = worker.cx.shared.workers.iter().skip(config.workers);
    let depths = larges.map(|handle| handle.loans.load(Relaxed)).enumerate();
    let count = worker.cx.shared.workers.len() - config.workers;
    let planned = usize::from(planned).min(count - 1);
    let mut shortest = (planned, usize::MAX);
    let mut planned_depth = 0;
    for (number, depth) in depths {
        if number == planned {
            planned_depth = depth;
        }
        if depth < shortest.1 {
            shortest = (number, depth);
        }
    }
    let deep = QUEUE_DEEP.min(config.large_connections_max);
    if planned_depth < deep || shortest.1 >= planned_depth {
        return planned;
    }
    worker.cx.counts.add(Count::HandOffsRelieved, 1);
    shortest.0
}

/// A connection has come with its large request.
pub(crate) fn receive_borrowed(worker: &mut Worker, mut connection: Box<Connection>) {
    if worker.cx.has(Fault::LendsLate) && is_early(worker, &connection) {
        thread::sleep(Duration::from_millis(1));
        if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
            return handle.mail.send(Arrival::Borrowed(connection));
        }
    }
    worker.cx.pool.import(connection.buffers());
    note_loan(worker, &mut connection, |_| StageName::QueueLarge);
    let slot = worker.slots.reserve();
    if !connection.is_watched_by(WatchedBy::Home) {
        // Whatever changed while nobody watched is found out by trying.
        connection.readable = true;
        connection.writable = true;
    }
    worker.slots.restore(slot, connection);
    worker.slots.queue(slot);
}

/// For tests: whether the connection is to come later.
fn is_early(worker: &Worker, connection: &Connection) -> bool {
    let now_ns = worker.cx.shared.clock.now().instant.ns;
    let begun_ns = connection.loan.map_or(0, |loan| loan.begun_ns);
    now_ns.saturating_sub(begun_ns) < LATE_NS
}

/// After its turn: a borrowed connection that has to wait for its socket is watched from here.
#[cold]
pub(crate) fn host(worker: &mut Worker, slot: usize) {
    let Some(connection) = worker.slots.get_mut(slot) else {
        return;
    };
    let wants_turn = connection.wants_turn();
    let Some(loan) = &mut connection.loan else {
        return;
    };
    if wants_turn || loan.watched_by == WatchedBy::Host {
        return;
    }
    if loan.watched_by == WatchedBy::Home
        && let Some(home) = worker.cx.shared.workers.get(loan.home)
    {
        connection.stream.unwatch_at(&home.registrar);
    }
    loan.watched_by = WatchedBy::Host;
    if connection
        .stream
        .watch(&worker.poller, Token(slot))
        .is_err()
    {
        lifecycle::close(worker, slot);
    }
}

/// A connection is back; it was watched here all the time, or is again from now on.
pub(crate) fn receive_returned(
    worker: &mut Worker,
    slot: usize,
    mut connection: Box<Connection>,
    watched: bool,
) {
    let missed = worker.lent.take(slot);
    worker.cx.pool.import(connection.buffers());
    if watched {
        connection.note(missed);
        worker.slots.restore(slot, connection);
    } else {
        seat(worker, slot, connection);
    }
    worker.slots.queue(slot);
}

pub(crate) fn seat(worker: &mut Worker, slot: usize, mut connection: Box<Connection>) {
    // Whatever changed while nobody watched is found out by trying.
    connection.readable = true;
    connection.writable = true;
    if connection
        .stream
        .watch(&worker.poller, Token(slot))
        .is_err()
    {
        connection.closing = true;
    }
    worker.slots.restore(slot, connection);
}

/// A connection that was lent is closed.
pub(crate) fn receive_lost(worker: &mut Worker, slot: usize) {
    worker.lent.take(slot);
    worker.slots.watching.retain(|&watching| watching != slot);
    worker.slots.free(slot);
    worker.leave();
}

/// Whether a large worker is done with this connection.
pub(crate) fn is_done(connection: &Connection) -> bool {
    let decodes = connection.loan.is_some_and(|loan| loan.decodes);
    let receives = connection.body.as_ref().is_some_and(|body| !body.is_whole);
    connection.loan.is_some()
        && connection.output.is_empty()
        && !receives
        && connection.decoder.swallowing() == 0
        && !decodes
}

/// Gives the connection in `slot` back to the worker it belongs to.
pub(crate) fn give_back(worker: &mut Worker, slot: usize) {
    let Some(mut connection) = worker.slots.remove(slot) else {
        return;
    };
    note_loan(worker, &mut connection, |loan| match loan.receives {
        true => StageName::ExecuteLarge,
        false => StageName::ReplyLarge,
    });
    let Some(loan) = connection.loan.take() else {
        return;
    };
    note_latency::note_large_latency(&mut worker.cx, &loan, loan.since_ns);
    if connection.slow.is_some() {
        note_slow::note_slow_loan(worker, &mut connection, loan.begun_ns);
    }
    if loan.watched_by == WatchedBy::Host {
        connection.stream.unwatch(&worker.poller);
    }
    worker.cx.pool.export(connection.buffers());
    end_loan(worker);
    let Some(home) = worker.cx.shared.workers.get(loan.home) else {
        return;
    };
    let watched = loan.watched_by == WatchedBy::Home;
    let rests = watched && !connection.wants_turn();
    let returned = Arrival::Returned(loan.slot, connection, watched);
    match rests {
        true => home.mail.send_resting(returned),
        false => home.mail.send(returned),
    }
}

/// Ends a stage of a large request. It is rare and takes long, so it has a clock of its own.
fn note_loan(
    worker: &mut Worker,
    connection: &mut Connection,
    stage: impl FnOnce(&Loan) -> StageName,
) {
    let now_ns = worker.cx.shared.clock.now().instant.ns;
    if let Some(loan) = &mut connection.loan {
        let us = now_ns.saturating_sub(loan.since_ns) / 1000;
        loan.since_ns = now_ns;
        worker.cx.recorders.stages.record(stage(loan), us);
    }
}

pub(crate) fn end_loan(worker: &Worker) {
    if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
        handle.loans.fetch_sub(1, Relaxed);
    }
}

/// Has a worker free what this large worker does not keep. It had been allocated by a worker, and
/// the allocator takes that thread's lock to free it: a large worker that loses its processor then
/// held up worker 0 of a node, which sends the heartbeats, for 0.1 to 0.8 s.
pub(crate) fn give_memory_back(worker: &mut Worker) {
    let spent = worker.cx.pool.take_spent();
    let workers = worker.cx.shared.config.workers;
    let home = worker.index % workers.max(1);
    if !spent.is_empty()
        && let Some(handle) = worker.cx.shared.workers.get(home)
    {
        let bytes: usize = spent.iter().map(|buffer| buffer.len()).sum();
        match bytes > SPENT_BYTES_MAX {
            true => handle.mail.send(Arrival::Spent(spent)),
            false => handle.mail.send_resting(Arrival::Spent(spent)),
        }
    }
}

/// Asks the workers to close a client that holds leases and does not read.
pub(crate) fn ask_for_relief(worker: &Worker) {
    for (index, handle) in worker.cx.shared.workers.iter().enumerate() {
        if index != worker.index && index >= worker.cx.shared.config.workers {
            handle.mail.send(Arrival::Relieve);
        }
    }
}

/// Looks once a turn whether large requests can still be taken on.
pub(crate) fn look_at_large_queues(worker: &mut Worker) {
    let shared = &worker.cx.shared;
    let mut larges = shared.workers.iter().skip(shared.config.workers);
    let full = |loans: usize| loans >= shared.config.large_connections_max;
    worker.cx.turn.large_full = larges.all(|handle| full(handle.loans.load(Relaxed)));
}

/// Whether another worker serves values of `bytes`.
#[inline]
pub(crate) fn is_large(cx: &WorkerContext, bytes: usize) -> bool {
    bytes >= cx.turn.large_from
}
