//! Decides where a request runs, and delegates it to another worker if it runs there.
//!
//! ```text
//!   decide --+-- here --------------------------> execute
//!            +-- here, with a claim ------------> execute, release the claim
//!            +-- at its owner or holder --------> delegated batch, sent at the end of the turn
//! ```
//!
//! While other workers execute requests of a connection, nothing more is read from it, and its
//! replies wait until all are complete: so they keep their order and leave in one send. Later
//! requests for a key that was delegated in this turn go to the same worker, so that a client reads
//! its own writes. A request that is not about one item waits until every request before it is
//! done.

use std::sync::Arc;

use curtail_codec::memcached::Request;
use curtail_dispatch::{Ticket, Worker as Id};
use curtail_memory::prefetch::prefetch_to_write;
use curtail_types::Operation;

use crate::{
    completion::{Awaited, Token},
    limits::DELEGATED_BATCHES_MAX,
    metrics::{counters::Count, slow_log},
    request::{
        batch::{Entry, Work},
        delegated_batch::{DelegatedBatch, Sealed},
        outstanding_delegations::Outstanding,
        reply_buffer::next_of,
    },
    turn::{execute, log_events, note_slow, run_delegated, send},
    worker::{
        Worker,
        context::WorkerContext,
        mailbox::Arrival,
        routing_inputs::{Writers, partition_of},
    },
};

/// Delegated batches that are kept for use again.
const SPARE_MAX: usize = 16;

/// Age at which a worker reclaims a delegated batch that the other worker has not opened.
const TAKEN_BACK_NS: u64 = 1_000_000;

/// Delegates a request together with its claim; releases the claim if the request has to be
/// executed here.
#[inline(never)]
pub(crate) fn delegate(
    worker: &mut Worker,
    entry: &Entry<'_>,
    owner: Id,
    ticket: Option<Ticket>,
) -> Result<(), Option<Ticket>> {
    let full = worker.delegation.outstanding.len() >= DELEGATED_BATCHES_MAX
        || execute::joins_something_large(&mut worker.cx, entry);
    let connection = worker.slots.get(entry.slot);
    let from = connection.map(|found| (found.serial, found.visible.number));
    let (Work::Request(request @ Request::Item { form, .. }), Some((serial, connection)), false) =
        (&entry.work, from, full)
    else {
        worker.cx.counts.add(Count::DelegationsRefused, 1);
        return Err(ticket);
    };
    // On a node of a cluster, watchers got its line where it arrived.
    if worker.cx.event_log.on && worker.cx.shared.cluster.is_none() {
        log_events::show(worker, entry);
    }
    worker.cx.counts.add(Count::Delegations, 1);
    let place = worker
        .replies
        .await_answer(entry.slot, Awaited::of(form), None);
    let token = Token {
        slot: entry.slot,
        serial,
        place,
    };
    let delegated = worker.delegation.delegated_for(worker.index, owner);
    delegated.push(token, connection, entry.hash, request, ticket);
    worker.routing.note_handed_on();
    worker.delegation.note(entry.slot, entry.hash, owner);
    if worker.cx.turn.slow_ns != slow_log::OFF {
        worker.delegation.handed_on.push((entry.slot, entry.hash));
    }
    Ok(())
}

/// Sends what was gathered in this turn.
pub(crate) fn send_delegated(worker: &mut Worker) {
    let delegation = &mut worker.delegation;
    if delegation.slot.take().is_none() {
        return;
    }
    delegation.keys.clear();
    delegation.key_bits = 0;
    for delegated in delegation.gathering.iter_mut().filter_map(Option::take) {
        let owner = usize::from(delegated.owner);
        let number = delegated.number;
        let sealed = Arc::new(Sealed::new(delegated));
        if let Some(handle) = worker.cx.shared.workers.get(owner) {
            handle
                .mail
                .send(Arrival::DelegatedBatch(Arc::clone(&sealed)));
        }
        worker.cx.counts.add(Count::DelegatedBatchesSent, 1);
        delegation.outstanding.push(Outstanding {
            number,
            sealed,
            sent_ns: worker.cx.store_cx.now.instant.ns,
        });
    }
}

/// Carries out a delegated batch of another worker, if it was not taken back.
pub(crate) fn open_delegated(worker: &mut Worker, sealed: &Sealed) {
    let Some(mut delegated) = sealed.open() else {
        return;
    };
    run_delegated::run_delegated(&mut worker.cx, &mut delegated);
    send::publish_counts(worker);
    if let Some(handle) = worker.cx.shared.workers.get(delegated.origin) {
        handle.mail.send(Arrival::Answer(delegated));
    }
}

/// Whether every batch delegated before mark `last` was set has returned; true once for each mark.
/// A large worker passes marks, too.
pub(crate) fn passes_mark(worker: &mut Worker, last: u64) -> bool {
    let delegation = &mut worker.delegation;
    if last != delegation.mark_seen.0 {
        delegation.mark_seen = (last, Some(delegation.next_number));
    }
    let oldest = delegation.outstanding.first().map(|out| out.number);
    let passed = delegation
        .mark_seen
        .1
        .is_some_and(|next| oldest.is_none_or(|oldest| oldest >= next));
    if passed {
        delegation.mark_seen.1 = None;
    }
    passed
}

/// Whether a delegated batch of this worker is not back yet.
pub(crate) fn awaits_delegated(worker: &Worker) -> bool {
    !worker.delegation.outstanding.is_empty()
}

/// Reclaims delegated batches that their owners have not opened for too long, and executes them
/// here.
pub(crate) fn take_back_delegated(worker: &mut Worker) {
    let now_ns = worker.cx.store_cx.now.instant.ns;
    let mut index = 0;
    while let Some(out) = worker.delegation.outstanding.get(index) {
        let late = now_ns.saturating_sub(out.sent_ns) >= TAKEN_BACK_NS;
        match late.then(|| out.sealed.open()).flatten() {
            None => index += 1,
            Some(mut delegated) => {
                run_delegated::run_delegated(&mut worker.cx, &mut delegated);
                worker.cx.counts.add(Count::DelegatedBatchesTakenBack, 1);
                send::publish_counts(worker);
                deliver(worker, delegated);
            }
        }
    }
}

/// Moves the replies of a delegated batch to the connections that await them.
pub(crate) fn deliver(worker: &mut Worker, mut delegated: Box<DelegatedBatch>) {
    if worker.cx.turn.slow_ns != slow_log::OFF {
        let mut outstanding = worker.delegation.outstanding.iter();
        let sent = outstanding.find(|out| out.number == delegated.number);
        if let Some(sent_ns) = sent.map(|out| out.sent_ns) {
            note_slow::note_slow_delegated(worker, &delegated, sent_ns);
        }
    }
    let outstanding = &mut worker.delegation.outstanding;
    outstanding.retain(|out| out.number != delegated.number);
    let DelegatedBatch { items, replies, .. } = &mut *delegated;
    let (area, pieces) = replies.take();
    let mut pieces = pieces.iter_mut();
    let mut number = 0;
    for group in items.chunk_by(|a, b| (a.slot, a.serial) == (b.slot, b.serial)) {
        let numbers = number..number + group.len();
        number = numbers.end;
        let found = group.first().and_then(|item| {
            let connection = worker.slots.get_mut(item.slot)?;
            (connection.serial == item.serial).then_some((item.slot, connection))
        });
        let Some((slot, connection)) = found else {
            // Its client has left.
            while next_of(&mut pieces, numbers.clone()).is_some() {}
            continue;
        };
        let places = group.iter().map(|item| (item.place, item.refused));
        connection.output.fill(
            &mut worker.cx.pool,
            area,
            numbers.start,
            places,
            &mut pieces,
        );
        let value_bytes = connection.output.value_bytes_max();
        if value_bytes >= worker.cx.turn.large_from {
            connection.departs_with(&worker.routing.snapshot, value_bytes);
        }
        worker.slots.queue(slot);
    }
    if worker.delegation.spare.len() < SPARE_MAX {
        delegated.clear();
        worker.delegation.spare.push(delegated);
    }
}

/// Prefetches the item that a request is about, and notes where it is; with `writers` also the word
/// that a write will claim, which is often in another worker's cache.
#[inline(always)]
pub(crate) fn prefetch(cx: &WorkerContext, entry: &mut Entry<'_>, writers: Option<&Writers>) {
    let Work::Request(Request::Item { operation, .. }) = &entry.work else {
        return;
    };
    // Reads that claim are few, and to look closer costs more.
    if let (Some(writers), false) = (writers, matches!(operation, Operation::Get(_))) {
        prefetch_to_write(writers.address(partition_of(entry.hash)));
    }
    entry.hint = cx.store_cx.store.prefetch_item(entry.hash);
}

/// Releases a claim.
#[inline]
pub(crate) fn release(cx: &mut WorkerContext, ticket: Ticket) {
    if cx.shared.writers.release(ticket).is_err() {
        cx.counts.add(Count::LateReleases, 1);
    }
}
