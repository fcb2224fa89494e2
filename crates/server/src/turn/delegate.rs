//! Deciding where a request runs, and handing it to another worker if it runs there.
//!
//! ```text
//!   decide --+-- here ------------------------------------> carry out
//!            +-- here, and the partition is ours meanwhile -> carry out, release
//! +-- at its owner or holder ------------------> delegated batch, sent at the end of the turn
//! ```
//!
//! While a connection's requests are with others, nothing more is read from it, and its replies
//! wait until all are there: so they keep their order, and one send takes them. Requests to a key
//! that was handed on in this turn follow it, so that a client reads what it wrote. What is not
//! about one item waits until everything before it is done.

use std::sync::Arc;

use curtail_codec::memcached::Request;
use curtail_dispatch::{Ticket, Worker as Id};
use curtail_memory::prefetch::prefetch_to_write;
use curtail_types::{KeyHash, Operation};

use crate::{
    completion::{Awaited, Token},
    memcached::event_log,
    metrics::{counters::Count, slow_log},
    request::{
        batch::{Entry, Work},
        delegated_batch::{self, DelegatedBatch, Sealed},
    },
    route::{Writers, partition_of},
    turn::{
        execute::{self, OUTPUT_BYTES_MAX},
        send,
    },
    worker::{Worker, context::WorkerContext, mailbox::Arrival},
};

/// What a worker has handed on.
#[derive(Debug, Default)]
pub(crate) struct Delegation {
    /// A delegated batch for each owner that gets one in this turn.
    gathering: Vec<Option<Box<DelegatedBatch>>>,
    /// The keys in them, and whose they are.
    keys: Vec<(KeyHash, Id)>,
    /// Which connections' requests for which keys they are, for the slow log, while that is on.
    pub(crate) handed_on: Vec<(usize, KeyHash)>,
    /// A bit for each of `keys`: most keys are seen not to be among them at once.
    key_bits: u64,
    /// The last connection that had something handed on in this turn.
    slot: Option<usize>,
    /// Delegated batches that are not back.
    outstanding: Vec<Outstanding>,
    #[expect(clippy::vec_box, reason = "a parcel keeps its place from hand to hand")]
    spare: Vec<Box<DelegatedBatch>>,
    next_number: u64,
}

#[derive(Debug)]
struct Outstanding {
    number: u64,
    sealed: Arc<Sealed>,
    sent_ns: u64,
}

/// Delegated batches that a worker may have out; beyond, requests run where they arrived.
const OUTSTANDING_MAX: usize = 64;

/// Delegated batches that are kept for use again.
const SPARE_MAX: usize = 16;

/// After this long a delegated batch that its owner has not opened is taken back.
const TAKEN_BACK_NS: u64 = 1_000_000;

/// Hands the requests of a run on; a claim is given back behind the last of them.
pub(crate) fn delegate_run(
    worker: &mut Worker,
    run: &[Entry<'_>],
    owner: Id,
    ticket: Option<Ticket>,
) {
    let mut ticket = ticket;
    for (left, entry) in (0..run.len()).rev().zip(run) {
        let ticket = if left == 0 { ticket.take() } else { None };
        // One before it may have had its connection put off.
        if worker.replies.bytes_for(entry.slot) <= OUTPUT_BYTES_MAX {
            delegate(worker, entry, owner, ticket);
            continue;
        }
        execute::put_off(worker, entry);
        if let Some(ticket) = ticket {
            release(&mut worker.cx, ticket);
        }
    }
}

/// Hands a request on.
#[inline(never)]
pub(crate) fn delegate(worker: &mut Worker, entry: &Entry<'_>, owner: Id, ticket: Option<Ticket>) {
    let full = worker.delegation.outstanding.len() >= OUTSTANDING_MAX
        || execute::joins_something_large(&mut worker.cx, entry);
    let connection = worker.slots.get(entry.slot);
    let from = connection.map(|found| (found.serial, found.visible.number));
    let (Work::Request(request @ Request::Item { form, .. }), Some((serial, connection)), false) =
        (&entry.work, from, full)
    else {
        worker.cx.counts.add(Count::DelegationsRefused, 1);
        execute::carry_out_apart(worker, entry);
        if let Some(ticket) = ticket {
            release(&mut worker.cx, ticket);
        }
        return;
    };
    // A node of a cluster has shown it where it arrived.
    if worker.cx.event_log.on && worker.cx.shared.cluster.is_none() {
        event_log::show(worker, entry);
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
    delegated_batch::run_delegated(&mut worker.cx, &mut delegated);
    send::publish_counts(worker);
    if let Some(handle) = worker.cx.shared.workers.get(delegated.origin) {
        handle.mail.send(Arrival::Answer(delegated));
    }
}

/// The number that the next delegated batch will have.
pub(crate) fn next_delegated(worker: &Worker) -> u64 {
    worker.delegation.next_number
}

/// The oldest delegated batch that is not back yet.
pub(crate) fn oldest_delegated(worker: &Worker) -> Option<u64> {
    worker.delegation.outstanding.first().map(|out| out.number)
}

/// Whether a delegated batch of this worker is not back yet.
pub(crate) fn awaits_delegated(worker: &Worker) -> bool {
    !worker.delegation.outstanding.is_empty()
}

/// Takes back what its owner has not opened for too long, and carries it out here.
pub(crate) fn take_back_delegated(worker: &mut Worker) {
    let now_ns = worker.cx.store_cx.now.instant.ns;
    let mut index = 0;
    while let Some(out) = worker.delegation.outstanding.get(index) {
        let late = now_ns.saturating_sub(out.sent_ns) >= TAKEN_BACK_NS;
        match late.then(|| out.sealed.open()).flatten() {
            None => index += 1,
            Some(mut delegated) => {
                delegated_batch::run_delegated(&mut worker.cx, &mut delegated);
                worker.cx.counts.add(Count::DelegatedBatchesTakenBack, 1);
                send::publish_counts(worker);
                deliver(worker, delegated);
            }
        }
    }
}

/// Puts the answers of a delegated batch where they are awaited.
pub(crate) fn deliver(worker: &mut Worker, mut delegated: Box<DelegatedBatch>) {
    if worker.cx.turn.slow_ns != slow_log::OFF {
        let mut outstanding = worker.delegation.outstanding.iter();
        let sent = outstanding.find(|out| out.number == delegated.number);
        if let Some(sent_ns) = sent.map(|out| out.sent_ns) {
            slow_log::note_slow_delegated(worker, &delegated, sent_ns);
        }
    }
    let outstanding = &mut worker.delegation.outstanding;
    outstanding.retain(|out| out.number != delegated.number);
    let DelegatedBatch { items, replies, .. } = &mut *delegated;
    let (area, pieces) = replies.take();
    let mut pieces = pieces.drain(..).peekable();
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
            while pieces
                .next_if(|piece| numbers.contains(&piece.slot))
                .is_some()
            {}
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
    drop(pieces);
    if worker.delegation.spare.len() < SPARE_MAX {
        delegated.clear();
        worker.delegation.spare.push(delegated);
    }
}

impl Delegation {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            gathering: (0..workers).map(|_| None).collect(),
            ..Self::default()
        }
    }

    /// Whether nothing was handed on in this turn.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.key_bits == 0
    }

    /// Whether the last request that was handed on in this turn is of the connection in `slot`.
    pub(crate) fn has_handed_on(&self, slot: usize) -> bool {
        self.slot == Some(slot)
    }

    /// Who has a request to the same key in this turn.
    #[inline]
    pub(crate) fn follows(&self, hash: KeyHash) -> Option<Id> {
        if self.key_bits & bit_of(hash) == 0 {
            return None;
        }
        let mut keys = self.keys.iter();
        keys.find(|(key, _)| *key == hash).map(|(_, owner)| *owner)
    }

    fn note(&mut self, slot: usize, hash: KeyHash, owner: Id) {
        self.slot = Some(slot);
        if self.follows(hash).is_none() {
            self.key_bits |= bit_of(hash);
            self.keys.push((hash, owner));
        }
    }

    fn delegated_for(&mut self, origin: usize, owner: Id) -> &mut DelegatedBatch {
        let (spare, next_number) = (&mut self.spare, &mut self.next_number);
        if self.gathering.len() <= owner.index() {
            self.gathering.resize_with(owner.index() + 1, || None);
        }
        self.gathering[owner.index()].get_or_insert_with(|| {
            let mut delegated = spare.pop().unwrap_or_else(|| DelegatedBatch::new(origin));
            delegated.owner = owner.0;
            delegated.number = *next_number;
            *next_number += 1;
            delegated
        })
    }
}

/// Asks the memory for the item that a request is about, and notes where that is; with
/// `writers` also for the word that a write will claim, which is another worker's as likely as
/// not.
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

/// Gives a claim back.
#[inline]
pub(crate) fn release(cx: &mut WorkerContext, ticket: Ticket) {
    if cx.shared.writers.release(ticket).is_err() {
        cx.counts.add(Count::LateReleases, 1);
    }
}

#[inline]
fn bit_of(hash: KeyHash) -> u64 {
    1 << (hash.0 & 63)
}
