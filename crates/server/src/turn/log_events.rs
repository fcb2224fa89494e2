//! Reports executed requests to watchers, and to the log at `-vv`.

use std::io::Write;

use curtail_codec::memcached::{Request, WireKey};
use curtail_types::{KeyHash, Operation, Set, SetMode, SetOutcome};

use crate::{
    connection::Body,
    key_encoding::push_percent,
    memcached::watch::Interests,
    request::batch::{Entry, Work},
    turn::execute,
    worker::{Worker, context::WorkerContext},
};

/// Looks at a request that is about to be carried out here. A node of a cluster has looked at
/// it where it arrived.
#[cold]
pub(crate) fn log_here(worker: &mut Worker, entry: &Entry<'_>) {
    if worker.cx.shared.cluster.is_none() || worker.is_large_worker() {
        event_log(worker, entry);
    }
}

/// Shows the command of a request at `-vv`.
#[cold]
pub(crate) fn show(worker: &mut Worker, entry: &Entry<'_>) {
    let (cx, Some(connection)) = (&mut worker.cx, worker.slots.get(entry.slot)) else {
        return;
    };
    if entry.origin.decoder.is_between_commands() {
        show_line(cx, connection.visible.number, entry.origin.input);
    }
}

/// Looks at a request.
#[cold]
pub(crate) fn event_log(worker: &mut Worker, entry: &Entry<'_>) {
    show(worker, entry);
    let (cx, Some(connection)) = (&mut worker.cx, worker.slots.get_mut(entry.slot)) else {
        return;
    };
    let number = connection.visible.number;
    cx.event_log.write.number = number;
    match &entry.work {
        Work::Request(Request::Item {
            key,
            operation,
            value,
            ..
        }) => {
            log_request(cx, number, key, operation, value.len());
            log_fetch(cx, key, entry.hash);
        }
        Work::Request(Request::SetTooLarge(header)) => {
            log_write(cx, &header.key, &header.set, 0);
        }
        Work::LargeSet { header, .. } => {
            log_write(cx, &header.key, &header.set, header.value_bytes as usize);
            log_fetch(cx, &header.key, entry.hash);
        }
        Work::LargeSetEnd { .. } => {
            if let Some((key, set, value_bytes)) = connection.body.as_deref().and_then(Body::write)
            {
                log_write(cx, &key, &set, value_bytes);
            }
        }
        _ => {}
    }
}

/// Hands on what was noticed in this turn.
pub(crate) fn publish_events(worker: &mut Worker) {
    let WorkerContext {
        event_log,
        shared,
        store_cx,
        ..
    } = &mut worker.cx;
    let (writer, now) = (&mut store_cx.writer, &store_cx.now);
    let watchers = &shared.watchers;
    if event_log.watches_evictions() {
        let each = |evicted| event_log.evicted(watchers, *now, &evicted);
        let left_out = writer.drain_evicted(each);
        event_log.journal.drop_lines(left_out);
    }
    if !event_log.journal.is_empty() {
        let wake = |worker: usize| {
            if let Some(handle) = shared.workers.get(worker) {
                handle.mail.wake();
            }
        };
        watchers.publish(&mut event_log.journal, wake);
    }
}

/// Shows the first line of `input`.
pub(crate) fn show_line(cx: &mut WorkerContext, number: i32, input: &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n');
    let line = input.get(..end.unwrap_or(input.len())).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let shown = line.get(..SHOWN_BYTES_MAX).unwrap_or(line);
    let shown = shown.escape_ascii();
    cx.event_log.say(format_args!("<{number} {shown}"));
}

/// Notes what a write is about, for its line when its outcome is known.
pub(crate) fn log_write(cx: &mut WorkerContext, key: &WireKey<'_>, set: &Set, value_bytes: usize) {
    let write = &mut cx.event_log.write;
    let key = key.resolve(&mut cx.decoding.scratch);
    write.key.clear();
    write.key.extend_from_slice(key.bytes());
    write.command = command(set);
    let remaining = set
        .exptime
        .expiry(cx.store_cx.now)
        .remaining_seconds(cx.store_cx.now);
    write.ttl_seconds = remaining.unwrap_or(0);
    write.value_bytes = value_bytes;
}

/// Notes a request of a connection about one item that is about to be carried out.
#[cold]
pub(crate) fn log_request(
    cx: &mut WorkerContext,
    connection: i32,
    key: &WireKey<'_>,
    operation: &Operation,
    value_bytes: usize,
) {
    cx.event_log.write.number = connection;
    if let Operation::Set(set) = operation {
        log_write(cx, key, set, value_bytes);
    }
}

/// Tells that an item is looked up, for whatever purpose.
#[cold]
pub(crate) fn log_fetch(cx: &mut WorkerContext, key: &WireKey<'_>, hash: KeyHash) {
    if cx.event_log.watched.contain(Interests::FETCHERS) {
        let found = execute::value_bytes_of(cx, key, hash);
        log_found(cx, key, found);
    }
}

/// The same where the length of its value is known, if there is one.
pub(crate) fn log_found(cx: &mut WorkerContext, key: &WireKey<'_>, found: Option<u32>) {
    let key = key.resolve(&mut cx.decoding.scratch);
    let number = cx.event_log.write.number;
    let (watchers, now) = (&cx.shared.watchers, cx.store_cx.now);
    cx.event_log
        .line(watchers, now, Interests::FETCHERS, |text| {
            text.extend_from_slice(b"type=item_get key=");
            push_percent(text, key.bytes());
            let (status, class) = match found {
                Some(_) => ("found", 1),
                None => ("not_found", 0),
            };
            let _ = writeln!(
                text,
                " status={status} clsid={class} cfd={number} size={}",
                found.unwrap_or(0)
            );
        });
}

/// Tells how the write that was noticed last ended.
#[cold]
pub(crate) fn log_outcome(cx: &mut WorkerContext, outcome: SetOutcome) {
    let write = std::mem::take(&mut cx.event_log.write);
    let (watchers, now) = (&cx.shared.watchers, cx.store_cx.now);
    cx.event_log
        .line(watchers, now, Interests::MUTATIONS, |text| {
            text.extend_from_slice(b"type=item_store key=");
            push_percent(text, &write.key);
            let _ = writeln!(
                text,
                " status={} cmd={} ttl={} clsid=1 cfd={} size={}",
                word(outcome),
                write.command,
                write.ttl_seconds,
                write.number,
                write.value_bytes
            );
        });
    cx.event_log.write = write;
}

/// Bytes of a command that are shown.
pub(crate) const SHOWN_BYTES_MAX: usize = 1024;

pub(crate) const fn command(set: &Set) -> &'static str {
    if set.compare.is_some() {
        return "cas";
    }
    match set.mode {
        SetMode::Set => "set",
        SetMode::Add => "add",
        SetMode::Replace => "replace",
        SetMode::Append => "append",
        SetMode::Prepend => "prepend",
    }
}

pub(crate) const fn word(outcome: SetOutcome) -> &'static str {
    match outcome {
        SetOutcome::Stored(_) => "stored",
        SetOutcome::NotStored => "not_stored",
        SetOutcome::Exists => "exists",
        SetOutcome::NotFound => "not_found",
        SetOutcome::TooLarge => "too_large",
        SetOutcome::OutOfMemory => "no_memory",
    }
}
