//! Telling those who look on what happens: lines for watchers, and connections and commands in the
//! log at `-vv`.
//!
//! Whether anybody looks on is asked once per turn. Only then is each request looked at beside
//! being carried out, with a second look at its item: what it costs is paid while watching. Where
//! and how a request runs does not depend on it: whoever carries a request out tells of it, in the
//! order in which requests are carried out there, and of each of those that are carried out as one
//! ([`crate::turn::compaction`]) what would be told of it alone. Only what is shown at `-vv` is
//! shown where it arrived.

use std::io::Write;

use curtail_codec::memcached::{Request, WireKey};
use curtail_store::Evicted;
use curtail_types::{KeyHash, Now, Operation, Set, SetMode, SetOutcome};

use tracing::debug;

use crate::{
    connection::{Body, registry::Visible},
    log::component,
    memcached::{
        key_encoding::push_percent,
        watch::{Interests, Journal, Watchers},
    },
    request::batch::{Entry, Work},
    turn::execute,
    worker::{Worker, context::WorkerContext},
};

/// What a worker tells those who look on.
#[derive(Debug)]
pub(crate) struct EventLog {
    /// Whether anybody looks on in this turn.
    pub(crate) on: bool,
    watched: Interests,
    verbose: bool,
    journal: Journal,
    /// The write that is being carried out.
    write: LoggedEvent,
}

/// A write, as far as its line needs it.
#[derive(Debug, Default)]
struct LoggedEvent {
    key: Vec<u8>,
    command: &'static str,
    ttl_seconds: u32,
    value_bytes: usize,
    number: i32,
}

/// Why a connection was closed, as memcached calls it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum CloseReason {
    /// The client left.
    #[default]
    Normal,
    /// It said something that is no protocol.
    Error,
    /// Nothing came from it for too long.
    Idle,
    /// The server stops.
    Shutdown,
}

/// The level of `verbosity` from which connections and commands are shown.
const VERBOSE: u8 = 2;

/// Bytes of a command that are shown.
const SHOWN_BYTES_MAX: usize = 1024;

impl EventLog {
    /// With room for `journal_bytes_max` bytes of lines in a turn.
    pub(crate) fn new(journal_bytes_max: usize) -> Self {
        Self {
            on: false,
            watched: Interests::default(),
            verbose: false,
            journal: Journal::new(journal_bytes_max),
            write: LoggedEvent::default(),
        }
    }

    /// Asks who looks on in this turn.
    pub(crate) fn begin_turn(&mut self, watched: Interests, verbosity: u8) {
        self.watched = watched;
        self.verbose = verbosity >= VERBOSE;
        self.on = self.verbose || watched.any_of_requests();
    }

    /// Whether evictions are to be told.
    pub(crate) fn watches_evictions(&self) -> bool {
        self.watched.contain(Interests::EVICTIONS)
    }

    /// A connection was opened.
    pub(crate) fn opened(&mut self, watchers: &Watchers, now: Now, visible: &Visible) {
        let number = visible.number;
        self.say(format_args!("<{number} new ascii client connection."));
        self.line(watchers, now, Interests::CONNECTIONS, |text| {
            let (address, port, transport) = visible.endpoint();
            let _ = writeln!(
                text,
                "type=conn_new rip={address} rport={port} transport={transport} cfd={number}"
            );
        });
    }

    /// A connection was closed.
    pub(crate) fn closed(
        &mut self,
        watchers: &Watchers,
        now: Now,
        visible: &Visible,
        reason: CloseReason,
    ) {
        let number = visible.number;
        self.say(format_args!("<{number} connection closed."));
        self.line(watchers, now, Interests::CONNECTIONS, |text| {
            let (address, port, transport) = visible.endpoint();
            let _ = writeln!(
                text,
                "type=conn_close rip={address} rport={port} transport={transport} reason={} \
                 cfd={number}",
                reason.word()
            );
        });
    }

    fn evicted(&mut self, watchers: &Watchers, now: Now, evicted: &Evicted) {
        self.line(watchers, now, Interests::EVICTIONS, |text| {
            text.extend_from_slice(b"type=eviction key=");
            push_percent(text, &evicted.key);
            let status = &evicted.status;
            let _ = writeln!(
                text,
                " fetch={} ttl={} la={} clsid=1 size={}",
                if status.fetched { "yes" } else { "no" },
                status.ttl_seconds.map_or(-1, i64::from),
                status.idle_seconds,
                status.value_bytes
            );
        });
    }

    /// Has `write` append the rest of a line, with its end, if anybody wants its kind.
    pub(crate) fn line(
        &mut self,
        watchers: &Watchers,
        now: Now,
        kind: Interests,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.watched.contain(kind) {
            let us = now.unix_ns / 1000;
            self.journal.add(kind, |text| {
                // Writing to a vector cannot fail, here and everywhere else in this file.
                let _ = write!(
                    text,
                    "ts={}.{} gid={} ",
                    us / 1_000_000,
                    us % 1_000_000,
                    watchers.next_id()
                );
                write(text);
            });
        }
    }

    fn say(&self, line: std::fmt::Arguments<'_>) {
        if self.verbose {
            debug!(target: component::COMMANDS, "{line}");
        }
    }
}

impl CloseReason {
    const fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error => "error",
            Self::Idle => "idle_timeout",
            Self::Shutdown => "shutdown",
        }
    }
}

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
        Work::Request(Request::SetTooLarge { key, set, .. }) => {
            log_write(cx, key, set, 0);
        }
        Work::LargeSet {
            request:
                Request::SetHeader {
                    key,
                    set,
                    value_bytes,
                    ..
                },
            ..
        } => {
            log_write(cx, key, set, *value_bytes as usize);
            log_fetch(cx, key, entry.hash);
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
fn show_line(cx: &mut WorkerContext, number: i32, input: &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n');
    let line = input.get(..end.unwrap_or(input.len())).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let shown = line.get(..SHOWN_BYTES_MAX).unwrap_or(line);
    let shown = shown.escape_ascii();
    cx.event_log.say(format_args!("<{number} {shown}"));
}

/// Notes what a write is about, for its line when its outcome is known.
fn log_write(cx: &mut WorkerContext, key: &WireKey<'_>, set: &Set, value_bytes: usize) {
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

const fn command(set: &Set) -> &'static str {
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

const fn word(outcome: SetOutcome) -> &'static str {
    match outcome {
        SetOutcome::Stored(_) => "stored",
        SetOutcome::NotStored => "not_stored",
        SetOutcome::Exists => "exists",
        SetOutcome::NotFound => "not_found",
        SetOutcome::TooLarge => "too_large",
        SetOutcome::OutOfMemory => "no_memory",
    }
}
