//! Write compaction inside a batch: requests that change one key alike and stand next to each other
//! are carried out as one, and each gets its own answer.
//!
//! C-4 (Sutherland, Falsafi, Daglis, ASPLOS 2023, section 4.2), with a window that closes by
//! itself: it is the batch, so nothing waits for it. Beyond the paper, which knows only `set`, a
//! run may count, append, touch or delete.
//!
//! ```text
//!  batch    incr n | incr n 5 | incr n | get n | set a 1 | set a 2 | get b | set a 3
//!           \________________________/           \_______________/           alone
//!           one look, one write,                 only 2 is stored,
//!           answers 1, 6, 7                      both are answered after it
//! ```
//!
//! Only neighbours make a run: the requests of one connection's pipeline stand side by side, and so
//! do those of several connections if nothing comes between them. To see that, one comparison of
//! hashes per request is enough. A search through the whole batch also finds runs with other keys
//! between them; it cost more than it saved (docs/decisions/policies-on-connections.md).
//!
//! Invariants: the store is changed first and once, under one lock of the key, and answers are
//! written afterwards, so all requests of a run take effect together, in their order, and are
//! concurrent with each other: their clients have not been answered. If the combined operation
//! fails, it has changed nothing, and each request is executed by itself.

use curtail_codec::memcached::{Form, Request, Return, WireKey, encode};
use curtail_store::COPY_BYTES_MAX;
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Exptime, ItemStatus, Now, Operation,
    Set, SetMode, SetOutcome,
};

use crate::{
    connection::slab::ConnectionSlab,
    limits::APPENDED_BYTES_MAX,
    metrics::counters::Count,
    request::{
        batch::{Entry, Work},
        reply_buffer::{Replies, room_for},
    },
    test_faults::Fault,
    turn::{
        execute::{self, Item},
        log_events, send,
    },
    worker::{Worker, context::WorkerContext},
};

/// A run of requests, wherever they are kept.
pub(crate) trait Run {
    fn length(&self) -> usize;

    /// Has `look` look at one of them; `None` if it is not there.
    fn at<T>(
        &self,
        number: usize,
        look: impl FnOnce(&Item<'_, '_>, &Operation, &[u8]) -> T,
    ) -> Option<T>;

    fn operation(&self, number: usize) -> Option<&Operation>;

    /// The number of its connection, for watching clients.
    fn connection(&self, number: usize) -> i32;

    /// Whether the watchers' lines were written where the requests arrived: so it is on a node of a
    /// cluster with requests that other workers delegated.
    fn is_logged(&self) -> bool;
}

/// What the requests of a run have in common.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Writes that store whatever is there: the last one is stored.
    Set,
    /// What they add is added together.
    Append,
    /// The first one deletes.
    Delete,
    /// The last one's end is set.
    Touch,
    /// The result of each follows from the current value.
    Count,
}

/// Neighbours in a batch.
struct BatchRun<'r, 'a> {
    entries: &'r [Entry<'a>],
    slots: &'r ConnectionSlab,
}

impl Kind {
    /// How a request takes part in runs, if it does: it must not ask for anything that differs when
    /// its neighbours are carried out together with it.
    pub(crate) fn of(
        operation: &Operation,
        form: &Form<'_>,
        value_bytes: usize,
        now: Now,
    ) -> Option<Self> {
        match operation {
            _ if shows_version(form) || value_bytes > COPY_BYTES_MAX => None,
            Operation::Set(set) => Self::of_set(set),
            Operation::Delete(delete) => {
                let simple = Delete {
                    new_cas: delete.new_cas,
                    ..Delete::default()
                };
                (*delete == simple).then_some(Self::Delete)
            }
            Operation::Arithmetic(arithmetic) => {
                let counts_only = arithmetic.touch.is_none()
                    && arithmetic.compare.is_none()
                    && arithmetic.new_cas.is_none();
                counts_only.then_some(Self::Count)
            }
            Operation::Get(get) => {
                let ends = |exptime: Exptime| exptime.expiry(now).is_past(now);
                let touches = get.touch.is_some_and(|exptime| !ends(exptime));
                (touches && matches!(form, Form::Line { .. })).then_some(Self::Touch)
            }
        }
    }

    fn of_set(set: &Set) -> Option<Self> {
        if set.compare.is_some() || set.invalidate || set.vivify.is_some() || set.new_cas.is_some()
        {
            return None;
        }
        match set.mode {
            SetMode::Set => Some(Self::Set),
            SetMode::Append => Some(Self::Append),
            SetMode::Add | SetMode::Replace | SetMode::Prepend => None,
        }
    }
}

impl Run for BatchRun<'_, '_> {
    fn length(&self) -> usize {
        self.entries.len()
    }

    fn at<T>(
        &self,
        number: usize,
        look: impl FnOnce(&Item<'_, '_>, &Operation, &[u8]) -> T,
    ) -> Option<T> {
        let entry = self.entries.get(number)?;
        let Work::Request(Request::Item {
            key,
            operation,
            value,
            form,
        }) = &entry.work
        else {
            return None;
        };
        let item = Item {
            slot: entry.slot,
            key,
            hash: entry.hash,
            form,
            hint: entry.hint,
        };
        Some(look(&item, operation, value))
    }

    fn operation(&self, number: usize) -> Option<&Operation> {
        match &self.entries.get(number)?.work {
            Work::Request(Request::Item { operation, .. }) => Some(operation),
            _ => None,
        }
    }

    fn connection(&self, number: usize) -> i32 {
        let entry = self.entries.get(number);
        let connection = entry.and_then(|entry| self.slots.get(entry.slot));
        connection.map_or(0, |connection| connection.visible.number)
    }

    fn is_logged(&self) -> bool {
        false
    }
}

/// How many of `entries` make a run, from the first on.
#[inline]
pub(crate) fn run_length(worker: &Worker, entries: &[Entry<'_>]) -> usize {
    let [first, second, ..] = entries else {
        return 1;
    };
    match first.hash == second.hash && !has_waited(worker, first) {
        true => run_length_of_key(worker, entries),
        false => 1,
    }
}

/// Whether a request has waited for accepted native writes since an earlier turn. Those after it
/// may have been sent when more was accepted: they wait for that too, and not for the same.
fn has_waited(worker: &Worker, entry: &Entry<'_>) -> bool {
    let connection = worker.slots.get(entry.slot);
    connection.is_some_and(|connection| connection.behind.is_some())
}

fn run_length_of_key(worker: &Worker, entries: &[Entry<'_>]) -> usize {
    let now = worker.cx.store_cx.now;
    let Some((first, kind)) = entries.first().and_then(|first| member(first, now)) else {
        return 1;
    };
    let belongs = |entry: &&Entry<'_>| {
        let found = member(entry, now);
        found.is_some_and(|(key, other)| other == kind && is_same(first, key))
    };
    entries.iter().take_while(belongs).count()
}

/// Executes a run as one; false if each request has to be executed by itself.
pub(crate) fn run_folded(worker: &mut Worker, run: &[Entry<'_>]) -> bool {
    if worker.replies.remaining() < room_for(run.len()) {
        send::reply_early(worker);
    }
    let (entries, slots) = (run, &worker.slots);
    let run = BatchRun { entries, slots };
    let folded = fold(&mut worker.cx, &mut worker.replies, &run);
    if folded && worker.cx.event_log.on {
        entries
            .iter()
            .for_each(|entry| log_events::show(worker, entry));
    }
    folded
}

/// For tests: whether a write was answered and not carried out because another one follows,
/// though a read lies between.
#[inline(always)]
pub(crate) fn skips_across(worker: &mut Worker, entries: &[Entry<'_>]) -> bool {
    worker.cx.has(Fault::FoldsAcross) && skip_across(worker, entries)
}

#[cold]
fn skip_across(worker: &mut Worker, entries: &[Entry<'_>]) -> bool {
    let [write, between, next, ..] = entries else {
        return false;
    };
    let now = worker.cx.store_cx.now;
    let is_set = |entry| matches!(member(entry, now), Some((_, Kind::Set)));
    let skips = is_set(write) && is_set(next);
    if !skips || between.hash != write.hash || next.hash != write.hash {
        return false;
    }
    let slots = &worker.slots;
    let run = BatchRun { entries, slots };
    let (cx, replies) = (&mut worker.cx, &mut worker.replies);
    let stored = SetOutcome::Stored(Cas(0));
    run.at(0, |item, _, value| {
        execute::answer_write(cx, replies, item, value.len(), stored)
    });
    true
}

/// Executes a run as one operation. False if that is impossible: then no request is answered, and
/// the item has changed at most as executing the requests one by one would change it.
pub(crate) fn fold(cx: &mut WorkerContext, replies: &mut Replies, run: &impl Run) -> bool {
    let kind = run.at(0, |item, operation, value| {
        Kind::of(operation, item.form, value.len(), cx.store_cx.now)
    });
    let found = cx.event_log.on.then(|| found_for_event_log(cx, run));
    let found = found.flatten();
    let folded = match kind.flatten() {
        Some(Kind::Set) => fold_sets(cx, replies, run, found),
        Some(Kind::Append) => fold_appends(cx, replies, run, found),
        Some(Kind::Delete) => fold_deletes(cx, replies, run, found),
        Some(Kind::Touch) => fold_touches(cx, replies, run, found),
        Some(Kind::Count) => fold_counts(cx, replies, run, found),
        None => None,
    };
    if folded.is_some() {
        let others = run.length().saturating_sub(1);
        cx.counts.add(Count::Compacted, others as u64);
    }
    folded.is_some()
}

/// The length of the value that a run finds, for watchers.
#[cold]
fn found_for_event_log(cx: &mut WorkerContext, run: &impl Run) -> Option<u32> {
    run.at(0, |item, _, _| {
        execute::value_bytes_of(cx, item.key, item.hash)
    })?
}

fn fold_sets(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    run: &impl Run,
    mut found: Option<u32>,
) -> Option<()> {
    let last = run.length().checked_sub(1)?;
    let outcome = run.at(last, |item, operation, value| {
        store_set(cx, item, operation, value)
    })??;
    if !matches!(outcome, SetOutcome::Stored(_)) {
        return None;
    }
    cx.store_cx.writer.count_stored(last as u64);
    for number in 0..=last {
        run.at(number, |item, operation, value| {
            log_folded(cx, run, number, item, operation, value, found);
            found = u32::try_from(value.len()).ok();
            execute::answer_write(cx, replies, item, value.len(), outcome);
        })?;
    }
    Some(())
}

fn fold_appends(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    run: &impl Run,
    mut found: Option<u32>,
) -> Option<()> {
    let mut appended = std::mem::take(&mut cx.appended);
    appended.clear();
    let fits = (0..run.length()).all(|number| {
        let added = run.at(number, |_, _, value| {
            let fits = appended.len() + value.len() <= APPENDED_BYTES_MAX;
            fits.then(|| appended.extend_from_slice(value))
        });
        added.flatten().is_some()
    });
    let outcome = run.at(0, |item, operation, _| {
        let (Operation::Set(set), true) = (operation, fits) else {
            return None;
        };
        // Large workers serve large values, and each value that is too long gets its own error.
        let joined = execute::joined_bytes(cx, item, set) as usize + appended.len();
        let fits = joined < cx.turn.large_counts_from.min(cx.turn.large_from)
            && joined <= cx.shared.config.item_bytes_max;
        fits.then(|| store_set(cx, item, operation, &appended))?
    });
    cx.appended = appended;
    let outcome = outcome??;
    match outcome {
        SetOutcome::Stored(_) => cx.store_cx.writer.count_stored(run.length() as u64 - 1),
        SetOutcome::NotStored => {}
        _ => return None,
    }
    for number in 0..run.length() {
        run.at(number, |item, operation, value| {
            log_folded(cx, run, number, item, operation, value, found);
            found = found.map(|bytes| bytes.saturating_add(value.len() as u32));
            execute::answer_write(cx, replies, item, value.len(), outcome);
        })?;
    }
    Some(())
}

fn fold_deletes(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    run: &impl Run,
    mut found: Option<u32>,
) -> Option<()> {
    let mut outcome = run.at(0, |item, _, _| {
        let key = item.key.resolve(&mut cx.decoding.scratch);
        cx.store_cx.delete(key, item.hash, &Delete::default())
    })?;
    for number in 0..run.length() {
        run.at(number, |item, operation, value| {
            log_folded(cx, run, number, item, operation, value, found.take());
            execute::count_meta(cx, item);
            execute::answer_delete(cx, replies, item, outcome);
        })?;
        outcome = DeleteOutcome::NotFound;
    }
    Some(())
}

fn fold_touches(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    run: &impl Run,
    found: Option<u32>,
) -> Option<()> {
    let last = run.length().checked_sub(1)?;
    let is_there = run.at(last, |item, operation, _| {
        let Operation::Get(get) = operation else {
            return None;
        };
        let key = item.key.resolve(&mut cx.decoding.scratch);
        let touched = cx.store_cx.get(key, item.hash, get, |_| ());
        Some(touched.is_some())
    })??;
    for number in 0..=last {
        run.at(number, |item, operation, value| {
            log_folded(cx, run, number, item, operation, value, found);
            let Operation::Get(get) = operation else {
                return;
            };
            execute::count_get(cx, item, get, is_there);
            replies.write(item.slot, |sink| match is_there {
                true => _ = encode::hit(sink, item.key, item.form, &ItemStatus::default()),
                false => encode::miss(sink, item.key, item.form),
            });
        })?;
    }
    Some(())
}

fn fold_counts(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    run: &impl Run,
    mut found: Option<u32>,
) -> Option<()> {
    let step_at = |number| match run.operation(number) {
        Some(Operation::Arithmetic(arithmetic)) => Some(arithmetic),
        _ => None,
    };
    let numbers = 0..run.length();
    let (mut number, mut status) = run.at(0, |item, _, _| {
        let key = item.key.resolve(&mut cx.decoding.scratch);
        let (writer, now) = (&mut cx.store_cx.writer, cx.store_cx.now);
        let steps = numbers.clone().filter_map(step_at);
        cx.store_cx
            .store
            .arithmetic_run(writer, now, key, item.hash, steps)
    })??;
    if !cx.shared.config.cas {
        status.cas = Cas(0);
    }
    let answers_last = cx.has(Fault::AnswersLast);
    let end = |number| -> u64 {
        let steps = numbers.clone().filter_map(step_at);
        steps.fold(number, |number, step: &Arithmetic| step.next(number))
    };
    let last = answers_last.then(|| end(number));
    for position in numbers.clone() {
        let step = step_at(position)?;
        number = step.next(number);
        run.at(position, |item, operation, value| {
            log_folded(cx, run, position, item, operation, value, found);
            found = found.map(|bytes| bytes.max(number.checked_ilog10().unwrap_or(0) + 1));
            execute::count_meta(cx, item);
            let outcome = ArithmeticOutcome::Counted {
                number: last.unwrap_or(number),
                status,
                created: false,
            };
            execute::answer_arithmetic(cx, replies, item, step.direction, &outcome);
        })?;
    }
    Some(())
}

/// A write of one of the two kinds that folds as far as the store is concerned.
fn store_set(
    cx: &mut WorkerContext,
    item: &Item<'_, '_>,
    operation: &Operation,
    value: &[u8],
) -> Option<SetOutcome> {
    let Operation::Set(set) = operation else {
        return None;
    };
    let key = item.key.resolve(&mut cx.decoding.scratch);
    Some(cx.store_cx.set(key, item.hash, set, value))
}

/// Writes the watchers' line of one request of a run, as if it had run alone; `found` is the length
/// of the value that it would find.
#[inline]
fn log_folded(
    cx: &mut WorkerContext,
    run: &impl Run,
    number: usize,
    item: &Item<'_, '_>,
    operation: &Operation,
    value: &[u8],
    found: Option<u32>,
) {
    if cx.event_log.on {
        let connection = run.connection(number);
        log_events::log_request(cx, connection, item.key, operation, value.len());
        if !run.is_logged() {
            log_events::log_found(cx, item.key, found);
        }
    }
}

/// The key of a request that may be one of a run, and how.
fn member<'b, 'a>(entry: &'b Entry<'a>, now: Now) -> Option<(&'b WireKey<'a>, Kind)> {
    let Work::Request(Request::Item {
        key,
        operation,
        value,
        form,
    }) = &entry.work
    else {
        return None;
    };
    let kind = Kind::of(operation, form, value.len(), now)?;
    Some((key, kind))
}

/// Whether two keys are equal and have the same encoding.
pub(crate) fn is_same(one: &WireKey<'_>, other: &WireKey<'_>) -> bool {
    one.text() == other.text() && one.is_base64() == other.is_base64()
}

/// Whether the answer names the version that the item has then.
fn shows_version(form: &Form<'_>) -> bool {
    match form {
        Form::Meta(meta) => meta.returns.into_iter().any(|what| what == Return::Cas),
        Form::Line { .. } | Form::Value { .. } | Form::Debug => false,
    }
}
