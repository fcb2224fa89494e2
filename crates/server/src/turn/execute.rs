//! Executes one request and writes its reply into the turn's buffer.

use std::borrow::Cow;

use curtail_codec::memcached::{
    Form, Request, WireKey,
    encode::{self, Refusal},
};
use curtail_store::{COPY_BYTES_MAX, Hint, ItemView};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Direction, Get, KeyHash, Operation,
    Set, SetMode, SetOutcome,
};

use crate::{
    connection::Departure,
    metrics::{counters::Count, prefix_stats::KeyEvent},
    native::Behind,
    request::{
        batch::{Entry, Work},
        reply_buffer::Replies,
    },
    size_aware::prices::{SAMPLED_EVERY, serve_ns},
    store_context::StoreContext,
    turn::{hand_off_large, log_events, note_latency},
    worker::{Worker, context::WorkerContext},
};

/// The item that an operation is about and the form of its reply: borrowed from the batch, because
/// copying requests would cost more than executing them.
#[derive(Clone, Copy)]
pub(crate) struct Item<'b, 'a> {
    pub(crate) slot: usize,
    pub(crate) key: &'b WireKey<'a>,
    pub(crate) hash: KeyHash,
    pub(crate) form: &'b Form<'a>,
    pub(crate) hint: Hint,
}

/// Where a request came from: it decides what may be done about a large value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// A connection of this worker, which may be handed to a large worker.
    Client,
    /// The same, with a disk below memory: what memory does not have may be there.
    Tiered,
    /// Another worker, or a datagram: there is no connection here to be handed on.
    Elsewhere,
}

/// What executes a request. A type, so that each of them has a read of the store compiled into
/// itself: with one copy for all, a read would gather a dozen values for a call.
pub(crate) trait ReadPath {
    const ORIGIN: Origin;
}

/// The loop over the batch.
pub(crate) enum InLoop {}

/// What executes a client's request outside that loop.
pub(crate) enum Apart {}

/// What executes a client's read where memory is a cache of the disk.
pub(crate) enum OverTier {}

/// What executes requests of other workers, and of datagrams.
pub(crate) enum ForOthers {}

impl ReadPath for InLoop {
    const ORIGIN: Origin = Origin::Client;
}

impl ReadPath for Apart {
    const ORIGIN: Origin = Origin::Client;
}

impl ReadPath for OverTier {
    const ORIGIN: Origin = Origin::Tiered;
}

impl ReadPath for ForOthers {
    const ORIGIN: Origin = Origin::Elsewhere;
}

/// What became of a request about one item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a refused request is not answered yet"]
pub(crate) enum Executed {
    /// It was executed and answered.
    Done,
    /// It was not executed: it appends or prepends to a value of so many bytes, which a large
    /// worker does.
    NeedsLargeWorker(usize),
    /// It was not executed: its item is not in memory, and there is a disk to ask.
    Missing,
    /// It is to be answered with an error.
    Refused(Refusal),
}

/// How a read ended.
#[derive(Clone, Copy)]
enum Found {
    /// All of the reply is written.
    Whole,
    /// The value is to be sent from where it lies.
    Leased,
    /// The value is too long to copy, and nothing more may be leased.
    Refused,
    /// The value is large, and no large worker takes another connection.
    Busy,
}

/// Leaves a request, and with it all that follow on its connection, to a later turn: this turn has
/// answered enough there. Its input is kept as if it had not been decoded.
#[cold]
pub(crate) fn put_off(worker: &mut Worker, entry: &Entry<'_>) {
    worker.replies.close_off(entry.slot);
    let Some(connection) = worker.slots.get_mut(entry.slot) else {
        return;
    };
    if connection.put_off {
        return;
    }
    connection.put_off = true;
    connection.decoder = entry.origin.decoder;
    if let Some(held) = connection.held.take() {
        worker.cx.pool.release(held);
    }
    connection.hold(&mut worker.cx.pool, entry.origin.input, true);
    worker.cx.counts.add(Count::ConnYields, 1);
}

/// The same for a request that waits for an accepted write.
pub(crate) fn put_off_behind(worker: &mut Worker, entry: &Entry<'_>, behind: Behind) {
    if let Some(connection) = worker.slots.get_mut(entry.slot)
        && !connection.put_off
    {
        connection.behind = Some(behind);
    }
    put_off(worker, entry);
}

/// Ends a request that is answered in parts: with `line`, or with the error of the first part that
/// failed.
pub(crate) fn end_parts(worker: &mut Worker, slot: usize, line: &'static [u8]) {
    note_failed(worker);
    let Some(connection) = worker.slots.get_mut(slot) else {
        return;
    };
    let failure = connection.output.take_failure();
    let failed = failure.is_some();
    let line = failure.unwrap_or(Cow::Borrowed(line));
    if connection.output.is_awaiting() || worker.replies.awaits(slot) {
        return worker.replies.end_parts(slot, line, failed);
    }
    match line {
        Cow::Borrowed(line) => worker.replies.write(slot, |sink| sink.push(line)),
        Cow::Owned(line) => worker.replies.owned(slot, line),
    }
}

/// Keeps what failed for the lines that end their requests, which may come in later turns.
pub(crate) fn note_failed(worker: &mut Worker) {
    if !worker.replies.has_failed() {
        return;
    }
    for (slot, refusal) in worker.replies.take_failed() {
        if let Some(connection) = worker.slots.get_mut(slot) {
            connection.output.fail_ahead(refusal.reply());
        }
    }
}

/// Leaves an append or prepend to a large value to a large worker, which decodes it again.
#[cold]
pub(crate) fn hand_on(worker: &mut Worker, entry: &Entry<'_>, bytes: usize) {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    depart_to_receive(worker, entry.slot, entry.hash, bytes);
    put_off(worker, entry);
}

/// Has the connection in `slot` handed to the large worker for values of so many bytes, which
/// goes on receiving.
pub(crate) fn depart_to_receive(worker: &mut Worker, slot: usize, hash: KeyHash, bytes: u32) {
    let number = worker
        .routing
        .snapshot
        .plan
        .large_number(bytes, hash.0)
        .unwrap_or(0);
    if let Some(connection) = worker.slots.get_mut(slot) {
        connection.departs = Some(Departure {
            number,
            receives: true,
        });
    }
}

/// Has a large worker, however busy, receive and discard the rest of a refused value, so that no
/// small request waits for it.
#[cold]
pub(crate) fn swallow_apart(worker: &mut Worker, slot: usize, hash: KeyHash, bytes: u32) {
    if hand_off_large::is_large(&worker.cx, bytes as usize) {
        depart_to_receive(worker, slot, hash, bytes);
    }
}

/// Executes a request about one item that did not come from a connection of this worker. Returns
/// the error that answers it, if one does.
#[inline(never)]
pub(crate) fn run_item_apart(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    operation: &Operation,
    value: &[u8],
) -> Option<Refusal> {
    match run_item::<ForOthers>(cx, replies, item, operation, value) {
        Executed::Refused(refusal) => {
            replies.write(item.slot, |sink| encode::refuse(sink, item.form, refusal));
            Some(refusal)
        }
        Executed::Done | Executed::NeedsLargeWorker(_) | Executed::Missing => None,
    }
}

#[inline(always)] // as `carry_out`
pub(crate) fn run_item<P: ReadPath>(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    operation: &Operation,
    value: &[u8],
) -> Executed {
    count_meta(cx, item);
    match operation {
        Operation::Get(get) => {
            if get_plain::<P>(cx, replies, item, get) {
                return Executed::Done;
            }
            return get_any(cx, replies, item, get, P::ORIGIN);
        }
        Operation::Set(set) => return execute_set(cx, replies, item, set, value, P::ORIGIN),
        Operation::Delete(delete) => execute_delete(cx, replies, item, delete),
        Operation::Arithmetic(arithmetic) => execute_arithmetic(cx, replies, item, arithmetic),
    }
    Executed::Done
}

#[inline(always)]
pub(crate) fn count_meta(cx: &mut WorkerContext, item: &Item<'_, '_>) {
    if matches!(item.form, Form::Meta(_) | Form::Debug) {
        cx.counts.add(Count::CmdMeta, 1);
    }
}

/// The request is counted when it runs again.
#[cold]
fn take_back_meta(cx: &mut WorkerContext, item: &Item<'_, '_>) {
    if matches!(item.form, Form::Meta(_) | Form::Debug) {
        cx.counts.take_back(Count::CmdMeta);
    }
}

/// Executes and answers a read of the most common kind; false if the request is of another kind.
#[inline(always)]
fn get_plain<P: ReadPath>(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    get: &Get,
) -> bool {
    if get.changes() || get.quiet_access {
        return false;
    }
    let key = item.key.resolve(&mut cx.decoding.scratch);
    let bytes = replies.fill(item.slot, |room| {
        let head = |room: &mut [u8], value_bytes: usize| {
            encode::plain_head(room, item.key, item.form, value_bytes)
        };
        let (store, now) = (&cx.store_cx.store, cx.store_cx.now);
        let (written, value_bytes) = store.get_plain(now, key, item.hash, item.hint, room, head)?;
        let end = encode::plain_end(room.get_mut(written..)?, item.form)?;
        Some((written + end, value_bytes))
    });
    let Some(bytes) = bytes else {
        return false;
    };
    count_get(cx, item, get, true);
    if cx.turn.samples {
        note_size(cx, bytes);
    }
    true
}

/// A read of any kind.
#[inline(never)]
fn get_any(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    get: &Get,
    origin: Origin,
) -> Executed {
    let key = item.key.resolve(&mut cx.decoding.scratch);
    // Beside the result: a lease is large, and few reads take one.
    let mut lease = None;
    let (mut bytes, mut shown) = (0, 0);
    let found = replies.write(item.slot, |sink| {
        let view = |view: &ItemView<'_>| {
            sink.truncate(0);
            let mut status = view.status();
            if !cx.shared.config.cas {
                status.cas = Cas(0);
            }
            bytes = view.value_bytes();
            if !encode::hit(sink, item.key, item.form, &status) {
                return Found::Whole;
            }
            shown = bytes;
            if bytes > COPY_BYTES_MAX {
                if cx.turn.large_full && bytes >= cx.turn.large_from {
                    return Found::Busy;
                }
                if bytes >= cx.turn.large_counts_from {
                    cx.measured.larges += 1;
                    cx.measured.larges_left += u64::from(bytes >= cx.turn.large_from);
                }
                lease = view.lease_value();
                return lease.as_ref().map_or(Found::Refused, |_| Found::Leased);
            }
            let room = sink.spare().get_mut(..bytes).unwrap_or_default();
            let copied = view.copy_value(0, room);
            sink.advance(copied);
            encode::value_end(sink, item.form);
            Found::Whole
        };
        let StoreContext { store, writer, now } = &mut cx.store_cx;
        let found = store.get_hinted(writer, *now, key, item.hash, item.hint, get, view);
        if !matches!(found, Some(Found::Whole | Found::Leased)) {
            sink.truncate(0);
        }
        if found.is_none() && origin != Origin::Tiered {
            encode::miss(sink, item.key, item.form);
        }
        found
    });
    if found.is_none() && origin == Origin::Tiered {
        take_back_meta(cx, item);
        return Executed::Missing;
    }
    count_get(cx, item, get, found.is_some());
    if cx.turn.samples || bytes > COPY_BYTES_MAX {
        if shown > COPY_BYTES_MAX && origin != Origin::Elsewhere {
            note_latency::note_answered_bytes(cx, item.slot, shown);
        }
        note_size(cx, bytes);
    }
    match (found, lease) {
        (Some(Found::Leased), Some(lease)) => {
            replies.lease(item.slot, lease);
            replies.write(item.slot, |sink| encode::value_end(sink, item.form));
        }
        (Some(Found::Refused), _) => {
            cx.measured.lease_refused = true;
            return refused(cx, Count::ReplyNoMemory, Refusal::OutOfMemoryGet);
        }
        (Some(Found::Busy), _) => return refused(cx, Count::LargeRefused, Refusal::Busy),
        _ => {}
    }
    Executed::Done
}

#[cold]
fn refused(cx: &mut WorkerContext, count: Count, refusal: Refusal) -> Executed {
    cx.counts.add(count, 1);
    Executed::Refused(refusal)
}

#[inline]
pub(crate) fn count_get(cx: &mut WorkerContext, item: &Item<'_, '_>, get: &Get, hit: bool) {
    // `touch` is a read that shows nothing; the other reads that touch count as both.
    let shows = !matches!(item.form, Form::Line { .. });
    cx.counts.add_get(shows, get.touch.is_some(), hit);
    note_key(cx, item, KeyEvent::Get { hit });
}

fn execute_set(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    set: &Set,
    value: &[u8],
    origin: Origin,
) -> Executed {
    if matches!(set.mode, SetMode::Append | SetMode::Prepend)
        && let Some(elsewhere) = joins_elsewhere(cx, item, set, origin)
    {
        return elsewhere;
    }
    note_key(cx, item, KeyEvent::Set);
    let key = item.key.resolve(&mut cx.decoding.scratch);
    let outcome = cx.store_cx.set(key, item.hash, set, value);
    if cx.turn.samples {
        note_size(cx, value.len());
    }
    answer_set(cx, replies, item, set.compare.is_some(), outcome);
    Executed::Done
}

/// The outcome for an append or prepend to a large value, which copies that value and so belongs to
/// a large worker. `None` if it is to be executed here.
#[cold]
fn joins_elsewhere(
    cx: &mut WorkerContext,
    item: &Item<'_, '_>,
    set: &Set,
    origin: Origin,
) -> Option<Executed> {
    let joined = joined_bytes(cx, item, set) as usize;
    if !hand_off_large::is_large(cx, joined) || origin != Origin::Client {
        let slot = match origin {
            Origin::Client | Origin::Tiered => item.slot,
            Origin::Elsewhere => usize::MAX,
        };
        cx.note_large_here(slot, joined);
        return None;
    }
    if cx.turn.large_full {
        return Some(refused(cx, Count::LargeRefused, Refusal::Busy));
    }
    if matches!(item.form, Form::Meta(_)) {
        cx.counts.take_back(Count::CmdMeta);
    }
    Some(Executed::NeedsLargeWorker(joined))
}

/// Whether a request appends or prepends to a large value: then its connection is handed off, which
/// only its own worker can do.
pub(crate) fn joins_something_large(cx: &mut WorkerContext, entry: &Entry<'_>) -> bool {
    let Work::Request(Request::Item {
        key,
        operation: Operation::Set(set),
        form,
        ..
    }) = &entry.work
    else {
        return false;
    };
    let item = Item {
        slot: entry.slot,
        key,
        hash: entry.hash,
        form,
        hint: entry.hint,
    };
    let joined = joined_bytes(cx, &item, set) as usize;
    joined > 0 && hand_off_large::is_large(cx, joined)
}

/// Bytes of the value that a write is joined to.
pub(crate) fn joined_bytes(cx: &mut WorkerContext, item: &Item<'_, '_>, set: &Set) -> u32 {
    if !matches!(set.mode, SetMode::Append | SetMode::Prepend) {
        return 0;
    }
    value_bytes_of(cx, item.key, item.hash).unwrap_or(0)
}

/// Bytes of the value of `key`, if there is one. It counts no read and leaves the right to recache.
pub(crate) fn value_bytes_of(
    cx: &mut WorkerContext,
    key: &WireKey<'_>,
    hash: KeyHash,
) -> Option<u32> {
    let key = key.resolve(&mut cx.decoding.scratch);
    let look = Get {
        quiet_access: true,
        keep_token: true,
        ..Get::default()
    };
    let bytes = cx
        .store_cx
        .get(key, hash, &look, |view| view.value_bytes())?;
    Some(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Counts and answers a write that was carried out together with others.
pub(crate) fn answer_write(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    bytes: usize,
    outcome: SetOutcome,
) {
    count_meta(cx, item);
    note_key(cx, item, KeyEvent::Set);
    if cx.turn.samples {
        note_size(cx, bytes);
    }
    answer_set(cx, replies, item, false, outcome);
}

/// Counts a request for the control thread by the size of its item: every long one, and of short
/// ones a sample that represents the others. Its cost is a time, by its price.
#[cold]
pub(crate) fn note_size(cx: &mut WorkerContext, bytes: usize) {
    if !cx.turn.learns {
        return;
    }
    let stands_for = match bytes > COPY_BYTES_MAX {
        true => 1,
        false => SAMPLED_EVERY,
    };
    let cost_ns = serve_ns(bytes) * stands_for;
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    cx.recorders.sizes.record_many(bytes, cost_ns, stands_for);
}

pub(crate) fn reserve(
    cx: &mut WorkerContext,
    item: &Item<'_, '_>,
    (set, is_ours): (&Set, bool),
    value_bytes: u32,
) -> Result<curtail_store::Reservation, SetOutcome> {
    if matches!(item.form, Form::Meta(_)) {
        cx.counts.add(Count::CmdMeta, 1);
    }
    note_key(cx, item, KeyEvent::Set);
    note_size(cx, value_bytes as usize);
    let key = item.key.resolve(&mut cx.decoding.scratch);
    let bytes = value_bytes as usize;
    // On a node versions are those of its machines and workers.
    let new_cas = set.new_cas.filter(|_| cx.shared.cluster.is_none());
    let set = &Set { new_cas, ..*set };
    match is_ours {
        true => cx.store_cx.reserve(key, item.hash, set, bytes),
        false => cx.store_cx.reserve_only(key, item.hash, set, bytes),
    }
}

pub(crate) fn answer_set(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    compares: bool,
    outcome: SetOutcome,
) {
    cx.counts.add_set(compares, outcome);
    if cx.event_log.on {
        log_events::log_outcome(cx, outcome);
    }
    replies.write(item.slot, |sink| {
        encode::set(sink, item.key, item.form, outcome)
    });
}

/// A write above the limit also removes what is there: the client wanted it gone.
pub(crate) fn refuse_too_large(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    set: &Set,
) {
    // On a node of a cluster the key's holder removes it.
    if set.removes_if_too_large() && cx.shared.cluster.is_none() {
        let key = item.key.resolve(&mut cx.decoding.scratch);
        cx.store_cx.delete(key, item.hash, &Delete::default());
    }
    cx.counts.add(Count::StoreTooLarge, 1);
    let outcome = SetOutcome::TooLarge;
    if cx.event_log.on {
        log_events::log_outcome(cx, outcome);
    }
    replies.write(item.slot, |sink| {
        encode::set(sink, item.key, item.form, outcome)
    });
}

fn execute_delete(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    delete: &Delete,
) {
    let key = item.key.resolve(&mut cx.decoding.scratch);
    let outcome = cx.store_cx.delete(key, item.hash, delete);
    answer_delete(cx, replies, item, outcome);
}

pub(crate) fn answer_delete(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    outcome: DeleteOutcome,
) {
    cx.counts.add_delete(outcome);
    note_key(cx, item, KeyEvent::Delete);
    replies.write(item.slot, |sink| {
        encode::delete(sink, item.key, item.form, outcome)
    });
}

fn execute_arithmetic(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    arithmetic: &Arithmetic,
) {
    let key = item.key.resolve(&mut cx.decoding.scratch);
    let mut outcome = cx.store_cx.arithmetic(key, item.hash, arithmetic);
    if let ArithmeticOutcome::Counted { status, .. } = &mut outcome
        && !cx.shared.config.cas
    {
        status.cas = Cas(0);
    }
    answer_arithmetic(cx, replies, item, arithmetic.direction, &outcome);
}

#[inline]
pub(crate) fn answer_arithmetic(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    item: &Item<'_, '_>,
    direction: Direction,
    outcome: &ArithmeticOutcome,
) {
    cx.counts.add_arithmetic(direction, outcome);
    replies.write(item.slot, |sink| {
        encode::arithmetic(sink, item.key, item.form, outcome);
    });
}

#[inline(always)]
fn note_key(cx: &mut WorkerContext, item: &Item<'_, '_>, event: KeyEvent) {
    if cx.turn.detail {
        note_key_in_detail(cx, item, event);
    }
}

#[cold]
fn note_key_in_detail(cx: &mut WorkerContext, item: &Item<'_, '_>, event: KeyEvent) {
    let key = item.key.resolve(&mut cx.decoding.scratch);
    cx.shared.prefixes.count(key.bytes(), event);
}
