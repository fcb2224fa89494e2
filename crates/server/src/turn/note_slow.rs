//! Records slow requests while the slow log is on.

use curtail_codec::memcached::Request;
use curtail_types::{KeyHash, Now, Operation};

use crate::{
    connection::Connection,
    limits::SLOW_REQUESTS_PER_TURN_MAX,
    memcached::watch::Interests,
    metrics::slow_log::{Label, Slow},
    request::{
        batch::{Batch, Entry, Work},
        delegated_batch::DelegatedBatch,
    },
    turn::{execute, hand_off_large, log_events},
    worker::{Worker, context::WorkerContext},
};

/// After the replies of a turn have left, while the slow log is on: whether that took too long,
/// and which requests go on at a large worker.
#[cold]
pub(crate) fn note_slow(worker: &mut Worker, batch: &Batch<'_>) {
    batch
        .entries()
        .iter()
        .for_each(|entry| label(worker, entry));
    let handed_on = std::mem::take(&mut worker.delegation.handed_on);
    note_slow_turn(worker, batch, &handed_on);
    worker.delegation.handed_on = handed_on;
    worker.delegation.handed_on.clear();
}

pub(crate) fn note_slow_turn(
    worker: &mut Worker,
    batch: &Batch<'_>,
    handed_on: &[(usize, KeyHash)],
) {
    if worker.is_large_worker() {
        return;
    }
    let now_ns = worker.cx.shared.clock.now().instant.ns;
    let ns = now_ns.saturating_sub(worker.cx.store_cx.now.instant.ns);
    if ns < worker.cx.turn.slow_ns {
        return;
    }
    let mut requests = 0;
    for entry in batch.entries() {
        let Some(connection) = worker.slots.get_mut(entry.slot) else {
            continue;
        };
        // What was put off, or goes on at another worker, is timed there; the end of a `get` of
        // many keys is no request.
        let is_later = connection.put_off
            || connection.departs.is_some()
            || handed_on.contains(&(entry.slot, entry.hash));
        if is_later || matches!(entry.work, Work::Request(Request::EndOfKeys { .. })) {
            continue;
        }
        requests += 1;
        if requests <= SLOW_REQUESTS_PER_TURN_MAX {
            let number = connection.visible.number;
            let label = Label::of_entry(entry, &mut worker.cx.decoding.scratch);
            keep_slow(&mut worker.cx, worker.index, number, ns, label);
        }
    }
    worker.cx.shared.slow.count.add(requests as u64);
    log_events::publish_events(worker);
}

/// Notes on a connection that a large worker gets for which request it does.
pub(crate) fn label(worker: &mut Worker, entry: &Entry<'_>) {
    let Some(connection) = worker.slots.get_mut(entry.slot) else {
        return;
    };
    let Some(departure) = connection.departs.filter(|_| connection.slow.is_none()) else {
        return;
    };
    let is_for = match &entry.work {
        Work::LargeSet { .. } | Work::Request(Request::SetHeader(_)) => departure.receives,
        Work::Request(Request::Item { key, operation, .. }) => {
            let is_read = matches!(operation, Operation::Get(_));
            let found = execute::value_bytes_of(&mut worker.cx, key, entry.hash);
            let is_large =
                found.is_some_and(|bytes| hand_off_large::is_large(&worker.cx, bytes as usize));
            is_read != departure.receives && is_large
        }
        _ => false,
    };
    if is_for {
        connection.slow = Some(Box::new(Label::of_entry(
            entry,
            &mut worker.cx.decoding.scratch,
        )));
    }
}

/// A delegated batch is back: whether its requests, handed on at `sent_ns`, waited too long.
#[cold]
pub(crate) fn note_slow_delegated(worker: &mut Worker, delegated: &DelegatedBatch, sent_ns: u64) {
    let ns = worker.cx.store_cx.now.instant.ns.saturating_sub(sent_ns);
    if ns < worker.cx.turn.slow_ns {
        return;
    }
    let requests = delegated.items.len() as u64;
    worker.cx.shared.slow.count.add(requests);
    for item in delegated.items.iter().take(SLOW_REQUESTS_PER_TURN_MAX) {
        let number = item.connection;
        let Some((key, operation, value_bytes)) = delegated.about(item) else {
            continue;
        };
        let label = Label::of_item(
            (&key, operation),
            value_bytes,
            &mut worker.cx.decoding.scratch,
        );
        keep_slow(&mut worker.cx, worker.index, number, ns, label);
    }
    log_events::publish_events(worker);
}

/// A large worker is done with a connection that was handed on at `begun_ns`.
#[cold]
pub(crate) fn note_slow_loan(worker: &mut Worker, connection: &mut Connection, begun_ns: u64) {
    let Some(label) = connection.slow.take() else {
        return;
    };
    let now_ns = worker.cx.shared.clock.now().instant.ns;
    let ns = now_ns.saturating_sub(begun_ns);
    if ns >= worker.cx.turn.slow_ns {
        worker.cx.shared.slow.count.add(1);
        let number = connection.visible.number;
        keep_slow(&mut worker.cx, worker.index, number, ns, *label);
        log_events::publish_events(worker);
    }
}

pub(crate) fn keep_slow(
    cx: &mut WorkerContext,
    worker: usize,
    connection: i32,
    ns: u64,
    label: Label,
) {
    let slow = Slow {
        unix_us: cx.store_cx.now.unix_ns / 1000,
        label,
        us: ns / 1000,
        worker,
        connection,
    };
    let shows_keys = cx.shared.config.dump_allowed;
    let (watchers, now): (_, Now) = (&cx.shared.watchers, cx.store_cx.now);
    cx.event_log.line(watchers, now, Interests::SLOW, |text| {
        text.extend_from_slice(b"type=slow ");
        slow.push_rest(text, shows_keys);
        text.push(b'\n');
    });
    cx.shared.slow.keep(slow);
}
