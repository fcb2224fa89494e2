//! Requests on a node of a cluster: which of them run elsewhere, and how their replies return.
//!
//! A request that runs elsewhere leaves a place in its connection's replies, and nothing more is
//! read from that connection until all such places are filled: so replies keep their order, and a
//! client that sends one request after the other finds what it wrote. Hits and misses are counted
//! where an item is; what has to do with a client (`cmd_meta`, `stats detail`, the sizes that are
//! learned) where the client is.

use std::{sync::Arc, time::Duration};

use curtail_codec::{
    memcached::{
        Admin, Form, KeyScratch, Request, SetHeader, WireKey,
        encode::{self, Refusal},
    },
    node::{ItemRequest, Shows},
};
use curtail_store::COPY_BYTES_MAX;
use curtail_types::{Cas, Delete, Instant, Operation, Outcome, RouteHash};

use crate::{
    completion::{Answer, Awaited, Token, shows},
    connection::output::Progress,
    limits::{INLINE_VALUE_BYTES_MAX, OUTPUT_BYTES_MAX},
    metrics::{counters::Count, prefix_stats::KeyEvent},
    node::{Completed, NodeWorker, SeenKey, Way, host::NodeArrival, route_of},
    owned_reply_form::OwnedForm,
    request::{
        batch::{Entry, Work},
        reply_buffer::ROOM_BYTES,
    },
    route::{self, Route, execute_here, run_routes},
    test_faults::Fault,
    turn::{compaction, delegate, execute, large_write, lifecycle, log_events, note_latency, send},
    worker::Worker,
};

/// Pause before each turn, if a test injects one.
const DOZE: Duration = Duration::from_millis(10);

// ---- the turn of a worker ----

/// Looks at what may differ from turn to turn.
pub(crate) fn begin_turn_in_cluster(worker: &mut Worker) {
    let shared = std::sync::Arc::clone(&worker.cx.shared);
    let Some(cluster) = shared.cluster.as_deref() else {
        return;
    };
    if worker.cx.has(Fault::Dozes) && worker.index + 1 == cluster.workers {
        std::thread::sleep(DOZE);
    }
    let last = cluster.marks.last();
    if delegate::passes_mark(worker, last) {
        cluster.marks.pass(worker.index, last);
    }
    if let Some(node) = &mut worker.node {
        node.begin_turn(&mut worker.cx.node_cx());
        worker.routing.under_lease = node.serves;
    }
}

/// The longest sleep that the cluster's timers allow.
pub(crate) fn time_to_cluster(worker: &Worker) -> Duration {
    let due = worker.node.as_ref().and_then(|node| node.due());
    let Some(Instant { ns }) = due else {
        return Duration::MAX;
    };
    let now_ns = worker.cx.shared.clock.now().instant.ns;
    Duration::from_nanos(ns.saturating_sub(now_ns))
}

/// Takes in what another worker received or completed for this one.
pub(crate) fn take_from_cluster(worker: &mut Worker, arrival: NodeArrival) {
    let Some(node) = &mut worker.node else {
        return;
    };
    match arrival {
        NodeArrival::Link(link) => node.links.adopt(&worker.poller, *link),
        arrival => node.take_arrival(arrival),
    }
}

/// The part of a turn that is about other nodes.
pub(crate) fn work_in_cluster(worker: &mut Worker) {
    let Some(mut node) = worker.node.take() else {
        return;
    };
    let mut filled = std::mem::take(&mut node.completed);
    let mut node_cx = worker.cx.node_cx();
    node_cx.barrier = worker.native.as_deref_mut();
    node.work(&mut node_cx, &mut filled);
    if !filled.is_empty() {
        // A client that has seen a reply must find it counted.
        send::publish_counts(worker);
    }
    for completed in filled.drain(..) {
        fill(worker, &completed);
        node.give_back(completed);
    }
    node.completed = filled;
    worker.node = Some(node);
}

/// Puts an answer where a connection waits for it.
fn fill(worker: &mut Worker, completed: &Completed) {
    let Some((token, request, told)) = completed.of_client() else {
        return;
    };
    if let (Some(request), Ok(Some((outcome, value)))) = (&request, &told) {
        note_executed_elsewhere(worker, request, outcome, value.len());
    }
    let slot = token.slot;
    let Some(connection) = worker.slots.get_mut(slot) else {
        return;
    };
    if connection.serial != token.serial {
        return;
    }
    if let (Some(_), Ok(Some((_, value)))) = (&request, &told) {
        note_latency::note_value_sent(&worker.cx, connection, value.len());
    }
    let key = request.as_ref().map(|request| request.key.bytes());
    let answer = Answer::of(told, key, worker.cx.shared.config.cas);
    let output = &mut connection.output;
    output.complete(&mut worker.cx.pool, token.place, answer);
    send_filled(worker, slot);
}

/// Counts what has to do with the client. A large write was counted when room was made for it.
fn note_executed_elsewhere(
    worker: &mut Worker,
    request: &ItemRequest<'_>,
    outcome: &Outcome,
    shown_bytes: usize,
) {
    let is_large_write = request.value.len() > INLINE_VALUE_BYTES_MAX as usize;
    let event = match outcome {
        Outcome::Found(_) => KeyEvent::Get { hit: true },
        Outcome::Missing => KeyEvent::Get { hit: false },
        Outcome::Set(_) if is_large_write => return,
        Outcome::Set(_) => KeyEvent::Set,
        Outcome::Delete(_) => KeyEvent::Delete,
        Outcome::Arithmetic(_) => return,
    };
    if worker.cx.turn.detail {
        worker.cx.shared.prefixes.count(request.key.bytes(), event);
    }
    if (worker.cx.turn.samples || shown_bytes > COPY_BYTES_MAX) && event != KeyEvent::Delete {
        execute::note_size(&mut worker.cx, shown_bytes.max(request.value.len()));
    }
}

/// Sends the replies of a connection at once if none is awaited any more: another turn would
/// cost a look at the poller.
pub(crate) fn send_filled(worker: &mut Worker, slot: usize) {
    let Some(connection) = worker.slots.get_mut(slot) else {
        return;
    };
    let output = &mut connection.output;
    let goes = connection.writable && connection.departs.is_none();
    let is_large = output.value_bytes_max() >= worker.cx.turn.large_from;
    if !goes || output.is_awaiting() || output.is_empty() || is_large {
        return worker.slots.queue(slot);
    }
    let (bytes, progress) = output.send(&mut worker.cx.pool, &mut connection.stream);
    worker.cx.counts.add(Count::Sends, 1);
    worker.cx.counts.add(Count::BytesWritten, bytes as u64);
    match progress {
        Progress::Broken => return lifecycle::close(worker, slot),
        Progress::Full => connection.writable = false,
        Progress::All | Progress::More => {}
    }
    note_latency::note_sent(&mut worker.cx, connection);
    // There may be more to send, or the next requests may be here already.
    worker.slots.queue(slot);
}

// ---- where requests run ----

/// Has a run of requests executed where the placement among the nodes says.
#[inline(never)]
pub(crate) fn run_on_node(worker: &mut Worker, run: &[Entry<'_>]) {
    let Some(mut node) = worker.node.take() else {
        return;
    };
    if run.len() > 1 && run_together(worker, &mut node, run) {
        worker.node = Some(node);
        return;
    }
    for entry in run {
        if worker.cx.event_log.on {
            log_events::event_log(worker, entry);
        }
        run_where_placed(worker, &mut node, entry);
    }
    worker.node = Some(node);
}

/// Executes a run as one, if its key is here and this worker may; else each request goes its way.
fn run_together(worker: &mut Worker, node: &mut NodeWorker, run: &[Entry<'_>]) -> bool {
    let Some(first) = run.first() else {
        return true;
    };
    let Work::Request(Request::Item { key, operation, .. }) = &first.work else {
        return false;
    };
    let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
    let waits = node.is_under_way(first.slot, route) || node.is_flushing(first.slot);
    if waits || operation.new_cas().is_some() {
        return false;
    }
    let way = node.way(route, operation.access());
    if !matches!(way, Some(Way::Here)) {
        return false;
    }
    let ticket = match route::route_among_workers(worker, first) {
        Route::Here => None,
        Route::Claimed(ticket) => Some(ticket),
        Route::Worker(_, ticket) => {
            ticket
                .into_iter()
                .for_each(|ticket| delegate::release(&mut worker.cx, ticket));
            return false;
        }
        _ => return false,
    };
    let folded = compaction::run_folded(worker, run);
    if let Some(ticket) = ticket {
        delegate::release(&mut worker.cx, ticket);
    }
    folded
}

fn run_where_placed(worker: &mut Worker, node: &mut NodeWorker, entry: &Entry<'_>) {
    let Work::Request(Request::Item {
        key,
        operation,
        value,
        form,
    }) = &entry.work
    else {
        return run_other_on_node(worker, node, entry);
    };
    if worker.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX {
        return execute::put_off(worker, entry);
    }
    let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
    if node.is_under_way(entry.slot, route) || node.is_flushing(entry.slot) {
        return execute::put_off(worker, entry);
    }
    let Some(mut way) = node.way(route, operation.access()) else {
        return worker
            .replies
            .refuse(entry.slot, form, Refusal::OutOfService);
    };
    let mut was_tried = false;
    match way {
        Way::Looked(seen) => {
            if run_looked(worker, node, entry, route, &seen) {
                let is_hot = u64::from(seen.is_hot());
                return worker.cx.counts.add(Count::ClusterHot, is_hot);
            }
            (way, was_tried) = (Way::Machine, true);
        }
        Way::Copy => match show_copy(worker, node, entry, route) {
            true => return worker.cx.counts.add(Count::ClusterHot, 1),
            false => way = Way::Machine,
        },
        // On a node versions are those of its machines.
        Way::Here if operation.new_cas().is_some() => way = Way::Machine,
        Way::Here => return run_here(worker, entry),
        Way::Machine | Way::At(_) => {}
    }
    // What was tried here was counted.
    let is_meta = matches!(form, Form::Meta(_) | Form::Debug) && !was_tried;
    worker.cx.counts.add(Count::CmdMeta, u64::from(is_meta));
    let mut scratch = KeyScratch::default();
    let request = ItemRequest {
        key: key.resolve(&mut scratch),
        operation: *operation,
        shows: shows(operation, form),
        value,
    };
    let form = (Awaited::of(form), Some(OwnedForm::new(key, form)));
    ask(worker, node, entry.slot, (way, route), &request, form);
}

/// Shows a value that was read, if the key's state has not changed meanwhile; whether it did.
fn run_looked(
    worker: &mut Worker,
    node: &NodeWorker,
    entry: &Entry<'_>,
    route: RouteHash,
    seen: &SeenKey,
) -> bool {
    if worker.replies.remaining() < ROOM_BYTES {
        send::reply_early(worker);
    }
    let mark = worker.replies.mark();
    execute_here::carry_out_apart(worker, entry);
    let is_shown = node.cluster.is_as(route, seen);
    if !is_shown {
        worker.replies.roll_back(mark);
    }
    is_shown
}

/// Shows the copy of a hot key, if it may be shown; whether it did.
fn show_copy(worker: &mut Worker, node: &NodeWorker, entry: &Entry<'_>, route: RouteHash) -> bool {
    let Work::Request(Request::Item {
        key,
        operation: Operation::Get(get),
        form,
        ..
    }) = &entry.work
    else {
        return false;
    };
    if worker.replies.remaining() < ROOM_BYTES {
        send::reply_early(worker);
    }
    let item = execute::Item {
        slot: entry.slot,
        key,
        hash: entry.hash,
        form,
        hint: entry.hint,
    };
    let now = worker.cx.store_cx.now;
    let (cx, replies) = (&mut worker.cx, &mut worker.replies);
    let read = node.cluster.read_copy(now, route, |outcome, value| {
        // What is longer goes the way of answers that come later.
        let is_short = value.len() <= COPY_BYTES_MAX;
        // Which reader is to store a stale item again, its primary says.
        let may_be_won =
            matches!(outcome, Outcome::Found(found) if found.stale && !found.contended);
        (is_short && !may_be_won).then(|| {
            replies.write(item.slot, |sink| {
                let Outcome::Found(mut status) = outcome else {
                    encode::miss(sink, item.key, item.form);
                    return false;
                };
                if !cx.shared.config.cas {
                    status.cas = Cas(0);
                }
                if encode::hit(sink, item.key, item.form, &status) {
                    sink.push(value);
                    encode::value_end(sink, item.form);
                }
                true
            })
        })
    });
    let read = read.flatten();
    if let Some(hit) = read {
        execute::count_meta(cx, &item);
        execute::count_get(cx, &item, get, hit);
    }
    read.is_some()
}

/// Has a request executed elsewhere; its answer finds the place that it gets now.
fn ask(
    worker: &mut Worker,
    node: &mut NodeWorker,
    slot: usize,
    (way, route): (Way, RouteHash),
    request: &ItemRequest<'_>,
    (what, form): (Awaited, Option<OwnedForm>),
) {
    if let Some(token) = await_answer(worker, slot, what, form) {
        let bytes = node.written(request);
        let access = request.operation.access();
        node.send_off_for(&mut worker.cx.node_cx(), way, (token, route, access), bytes);
    }
}

/// A place in the replies of a connection.
pub(super) fn await_answer(
    worker: &mut Worker,
    slot: usize,
    what: Awaited,
    form: Option<OwnedForm>,
) -> Option<Token> {
    let serial = worker.slots.get_mut(slot)?.serial;
    let place = worker.replies.await_answer(slot, what, form);
    Some(Token {
        slot,
        serial,
        place,
    })
}

/// What is not about one small item.
fn run_other_on_node(worker: &mut Worker, node: &mut NodeWorker, entry: &Entry<'_>) {
    let slot = entry.slot;
    // A request must not be sent to other nodes twice.
    let is_off = worker.replies.bytes_for(slot) > OUTPUT_BYTES_MAX
        || node.is_flushing(slot)
        || follows_under_way(worker, node, entry);
    if is_off || matches!(route::route_among_workers(worker, entry), Route::Later) {
        return execute::put_off(worker, entry);
    }
    match &entry.work {
        Work::Request(Request::Admin(Admin::FlushAll { delay, noreply }))
            if worker.cx.shared.config.flush_allowed =>
        {
            let what = match noreply {
                true => Awaited::Silent,
                false => Awaited::Part,
            };
            if let Some(token) = await_answer(worker, slot, what, None) {
                node.order_flush_of(&mut worker.cx.node_cx(), token, *delay);
            }
        }
        Work::Request(Request::SetTooLarge(header)) if header.set.removes_if_too_large() => {
            remove(worker, node, slot, header.key);
        }
        Work::LargeSetEnd { right: true } if pass_large(worker, node, slot) => return,
        Work::LargeSet { header, rest } => {
            let key = header.key.resolve(&mut worker.cx.decoding.scratch);
            let way = node.way(route_of(key.bytes()), Operation::Set(header.set).access());
            if !matches!(way, Some(Way::Here)) {
                return receive_large(worker, node, entry, (header, rest));
            }
        }
        _ => {}
    }
    run_here(worker, entry);
}

/// Whether a large write has to wait for an earlier request of its connection for its key, or a
/// flush for any: on its way to another node it could overtake that one.
fn follows_under_way(worker: &mut Worker, node: &NodeWorker, entry: &Entry<'_>) -> bool {
    let key = match &entry.work {
        Work::LargeSet { header, .. } | Work::Request(Request::SetTooLarge(header)) => header.key,
        // It empties what earlier requests have written.
        Work::Request(Request::Admin(Admin::FlushAll { .. })) => {
            return node.is_any_under_way(entry.slot);
        }
        _ => return false,
    };
    let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
    node.is_under_way(entry.slot, route)
}

/// Begins a large write that is received here for another node, or for its machine.
fn receive_large(
    worker: &mut Worker,
    node: &mut NodeWorker,
    entry: &Entry<'_>,
    (header, rest): (&SetHeader<'_>, &[u8]),
) {
    let reserved = large_write::reserve_for_other(worker, entry, header);
    if reserved.is_err() && header.set.removes_if_too_large() {
        // As everywhere, nobody reads the older value after this.
        remove(worker, node, entry.slot, header.key);
    }
    let ended = large_write::receive_large_set(worker, entry, header, rest, reserved);
    if ended == Some(true) && pass_large(worker, node, entry.slot) {
        return;
    }
    if let Some(right) = ended {
        large_write::end_large_set(worker, entry.slot, right);
    }
}

/// Removes an item at its holder before any later request is answered; sends no reply.
fn remove(worker: &mut Worker, node: &mut NodeWorker, slot: usize, key: WireKey<'_>) {
    let mut scratch = KeyScratch::default();
    let request = ItemRequest {
        key: key.resolve(&mut scratch),
        operation: Operation::Delete(Delete::default()),
        shows: Shows::Nothing,
        value: &[],
    };
    let bytes = request.key.bytes();
    let route = route_of(bytes);
    match node.way(route, request.operation.access()) {
        None => {}
        Some(Way::Here) => {
            let hash = worker.cx.store_cx.store.hash(bytes);
            worker.cx.store_cx.remove(request.key, hash);
        }
        Some(way) => ask(
            worker,
            node,
            slot,
            (way, route),
            &request,
            (Awaited::Silent, None),
        ),
    }
}

// ---- large writes ----

/// Whether a large worker has to leave a request to the worker that its connection belongs to,
/// because its key has moved or become hot since the connection was handed on. A large worker has
/// no part in the cluster. It passes marks in each of its turns, so this holds until the request
/// has run.
#[cold]
pub(crate) fn has_moved(worker: &mut Worker, entry: &Entry<'_>) -> bool {
    let (key, operation) = match &entry.work {
        Work::Request(Request::Item { key, operation, .. }) => (key, *operation),
        Work::LargeSet { header, .. } => (&header.key, Operation::Set(header.set)),
        _ => return false,
    };
    let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
    let now = worker.cx.store_cx.now.instant;
    let cluster = worker.cx.shared.cluster.as_deref();
    cluster.is_some_and(|cluster| !cluster.runs_here(now, route, operation.access()))
}

/// The same for a write that a large worker has received.
pub(crate) fn end_large_elsewhere(worker: &mut Worker, slot: usize) -> bool {
    let Some(mut node) = worker.node.take() else {
        return leave_large_elsewhere(worker, slot);
    };
    let passed = pass_large(worker, &mut node, slot);
    worker.node = Some(node);
    passed
}

fn leave_large_elsewhere(worker: &mut Worker, slot: usize) -> bool {
    let shared = Arc::clone(&worker.cx.shared);
    let Some(connection) = worker.slots.get_mut(slot) else {
        return false;
    };
    let write = connection.body.as_ref().and_then(|body| body.write());
    let (Some(cluster), Some((key, set, _))) = (&shared.cluster, write) else {
        return false;
    };
    let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
    let access = Operation::Set(set).access();
    let is_here = cluster.runs_here(worker.cx.store_cx.now.instant, route, access);
    if let Some(body) = &mut connection.body {
        body.is_whole = !is_here;
    }
    !is_here
}

/// Has a large write that was received here executed where its key is; false if that is here
/// after all.
fn pass_large(worker: &mut Worker, node: &mut NodeWorker, slot: usize) -> bool {
    let Some(connection) = worker.slots.get_mut(slot) else {
        return false;
    };
    let write = connection.body.as_ref().and_then(|body| body.write());
    let Some((key, set, _)) = write else {
        return false;
    };
    let operation = Operation::Set(set);
    let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
    let way = node.way(route, operation.access());
    if matches!(way, Some(Way::Here)) {
        return false;
    }
    let Some(body) = connection.body.take() else {
        return false;
    };
    let replies = &mut worker.replies;
    let kept = body.finish(&mut worker.cx.pool, |reservation, key, form, _| {
        if way.is_none() {
            replies.refuse(slot, &form, Refusal::OutOfService);
        }
        let mut scratch = KeyScratch::default();
        let mut bytes = node.written(&ItemRequest {
            key: key.resolve(&mut scratch),
            operation,
            shows: Shows::Nothing,
            value: &[],
        });
        // The value is what follows the rest.
        reservation.read(&mut bytes);
        (bytes, Awaited::of(&form), OwnedForm::new(&key, &form))
    });
    if let (Some(way), Some((bytes, what, form))) = (way, kept)
        && let Some(token) = await_answer(worker, slot, what, Some(form))
    {
        let access = operation.access();
        node.send_off_for(&mut worker.cx.node_cx(), way, (token, route, access), bytes);
    }
    true
}

/// Runs a request as on a server that is alone.
fn run_here(worker: &mut Worker, entry: &Entry<'_>) {
    let route = route::route_among_workers(worker, entry);
    run_routes::execute_run(worker, std::slice::from_ref(entry), route);
}
