//! The slow log: requests whose time in the server was longer than a threshold, for `stats slow`
//! and `watch slow`.
//!
//! No request reads a clock for it. What is measured is, by the way that a request takes:
//!
//! ```text
//!  in its turn          from the turn's start until its replies are with the kernel; all requests
//!                       of a turn have the same time, since they are received and sent together
//!  at another worker    from the turn that handed it on until the turn that has the answer
//!  at a large worker    from the turn that handed its connection on until that comes back:
//!                       waiting there, receiving or sending the value, waiting for the client
//! ```
//!
//! While the threshold is 0 the log is off, and costs a comparison a turn; else a turn reads the
//! clock once more. Keys are shown to clients that may list keys, and in no metric.

use std::{collections::VecDeque, fmt, io::Write};

use curtail_codec::memcached::{KeyScratch, Request, WireKey};
use curtail_types::{Direction, KeyHash, Now, Operation, SetMode};

use crate::{
    admin::stats::Report,
    connection::Connection,
    memcached::{event_log, key_encoding::push_percent, watch::Interests},
    metrics::counters::Tally,
    request::{
        batch::{Batch, Entry, Work},
        delegated_batch::DelegatedBatch,
    },
    sync::{AtomicU64, Mutex, Relaxed, lock},
    turn::{execute, hand_off},
    worker::{Worker, context::WorkerContext},
};

/// The slow requests of all workers.
#[derive(Debug)]
pub(crate) struct SlowLog {
    /// [`OFF`] for none.
    threshold_ns: AtomicU64,
    /// How many there were, also those that the list has no more or never had.
    count: Tally,
    list: Mutex<VecDeque<Slow>>,
}

/// One slow request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Slow {
    pub(crate) unix_us: u64,
    pub(crate) label: Label,
    pub(crate) us: u64,
    pub(crate) worker: usize,
    /// The descriptor of its connection, as `stats conns` has it.
    pub(crate) connection: i32,
}

/// What a request was about.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Label {
    command: &'static str,
    key: Vec<u8>,
    /// Of the value that it brought; 0 if it brought none.
    value_bytes: u64,
}

/// The threshold when nothing is slow.
pub(crate) const OFF: u64 = u64::MAX;

/// Requests that are kept.
const LIST_MAX: usize = 128;

/// Requests of one turn, or of one delegated batch, that are kept: they all have the same time.
const TURN_MAX: usize = 16;

impl SlowLog {
    /// With a threshold in microseconds; 0 is off.
    pub(crate) fn new(threshold_us: u64) -> Self {
        let log = Self {
            threshold_ns: AtomicU64::new(OFF),
            count: Tally::new(),
            list: Mutex::default(),
        };
        log.set_threshold_us(threshold_us);
        log
    }

    /// From how many microseconds on a request is slow; 0 is off.
    pub(crate) fn set_threshold_us(&self, us: u64) {
        let ns = match us {
            0 => OFF,
            us => us.saturating_mul(1000).min(OFF - 1),
        };
        self.threshold_ns.store(ns, Relaxed);
    }

    #[inline]
    pub(crate) fn threshold_ns(&self) -> u64 {
        self.threshold_ns.load(Relaxed)
    }

    /// How many requests were slow.
    pub(crate) fn count(&self) -> u64 {
        self.count.since_reset()
    }

    /// How many requests were slow since the start.
    pub(crate) fn total(&self) -> u64 {
        self.count.total()
    }

    /// Forgets all.
    pub(crate) fn reset(&self) {
        self.count.reset();
        lock(&self.list).clear();
    }

    fn keep(&self, slow: Slow) {
        let mut list = lock(&self.list);
        if list.len() == LIST_MAX {
            list.pop_front();
        }
        list.push_back(slow);
    }

    /// `stats slow`: the oldest first; without keys if those are not to be listed.
    pub(crate) fn report(&self, shows_keys: bool) -> Vec<u8> {
        let threshold_us = match self.threshold_ns() {
            OFF => 0,
            ns => ns / 1000,
        };
        let mut report = Report::default();
        report.stat("threshold_us", threshold_us);
        report.stat("slow_requests", self.count());
        for (number, slow) in (1..).zip(lock(&self.list).iter()) {
            let shown = Shown { slow, shows_keys };
            report.stat(format_args!("slow:{number}"), shown);
        }
        report.end()
    }
}

/// A slow request as one line shows it.
struct Shown<'a> {
    slow: &'a Slow,
    shows_keys: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.slow.unix_us;
        write!(f, "ts={}.{:06} ", us / 1_000_000, us % 1_000_000)?;
        let mut text = Vec::new();
        self.slow.push_rest(&mut text, self.shows_keys);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl Slow {
    /// All but the time, as `stats slow` and `watch slow` show it.
    fn push_rest(&self, text: &mut Vec<u8>, shows_keys: bool) {
        // Writing to a vector cannot fail.
        let _ = write!(text, "cmd={} key=", self.label.command);
        match shows_keys && !self.label.key.is_empty() {
            true => push_percent(text, &self.label.key),
            false => text.push(b'-'),
        }
        let _ = write!(
            text,
            " size={} us={} worker={} cfd={}",
            self.label.value_bytes, self.us, self.worker, self.connection
        );
    }
}

impl Label {
    fn of_item(
        (key, operation): (&WireKey<'_>, &Operation),
        value_bytes: usize,
        scratch: &mut KeyScratch,
    ) -> Self {
        Self {
            command: command(operation),
            key: key.resolve(scratch).bytes().to_vec(),
            value_bytes: value_bytes as u64,
        }
    }

    /// What an entry of a batch is about.
    fn of_entry(entry: &Entry<'_>, scratch: &mut KeyScratch) -> Self {
        match &entry.work {
            Work::Request(Request::Item {
                key,
                operation,
                value,
                ..
            }) => Self::of_item((key, operation), value.len(), scratch),
            Work::Request(
                Request::SetHeader {
                    key,
                    set,
                    value_bytes,
                    ..
                }
                | Request::SetTooLarge {
                    key,
                    set,
                    value_bytes,
                    ..
                },
            )
            | Work::LargeSet {
                request:
                    Request::SetHeader {
                        key,
                        set,
                        value_bytes,
                        ..
                    },
                ..
            } => {
                let bytes = *value_bytes as usize;
                Self::of_item((key, &Operation::Set(*set)), bytes, scratch)
            }
            Work::Request(Request::Admin(_)) => Self::named("admin"),
            Work::Login { .. } => Self::named("login"),
            Work::LargeSetEnd { .. } => Self::named("set"),
            _ => Self::named("other"),
        }
    }

    fn named(command: &'static str) -> Self {
        Self {
            command,
            ..Self::default()
        }
    }
}

/// How a request is called in log lines.
const fn command(operation: &Operation) -> &'static str {
    match operation {
        Operation::Get(_) => "get",
        Operation::Set(set) if set.compare.is_some() => "cas",
        Operation::Set(set) => match set.mode {
            SetMode::Set => "set",
            SetMode::Add => "add",
            SetMode::Replace => "replace",
            SetMode::Append => "append",
            SetMode::Prepend => "prepend",
        },
        Operation::Delete(_) => "delete",
        Operation::Arithmetic(arithmetic) => match arithmetic.direction {
            Direction::Increment => "incr",
            Direction::Decrement => "decr",
        },
    }
}

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

fn note_slow_turn(worker: &mut Worker, batch: &Batch<'_>, handed_on: &[(usize, KeyHash)]) {
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
        if requests <= TURN_MAX {
            let number = connection.visible.number;
            let label = Label::of_entry(entry, &mut worker.cx.decoding.scratch);
            keep_slow(&mut worker.cx, worker.index, number, ns, label);
        }
    }
    worker.cx.shared.slow.count.add(requests as u64);
    event_log::publish_events(worker);
}

/// Notes on a connection that a large worker gets for which request it does.
fn label(worker: &mut Worker, entry: &Entry<'_>) {
    let Some(connection) = worker.slots.get_mut(entry.slot) else {
        return;
    };
    let Some(departure) = connection.departs.filter(|_| connection.slow.is_none()) else {
        return;
    };
    let is_for = match &entry.work {
        Work::LargeSet { .. } | Work::Request(Request::SetHeader { .. }) => departure.receives,
        Work::Request(Request::Item { key, operation, .. }) => {
            let is_read = matches!(operation, Operation::Get(_));
            let found = execute::value_bytes_of(&mut worker.cx, key, entry.hash);
            let is_large =
                found.is_some_and(|bytes| hand_off::is_large(&worker.cx, bytes as usize));
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
    for item in delegated.items.iter().take(TURN_MAX) {
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
    event_log::publish_events(worker);
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
        event_log::publish_events(worker);
    }
}

fn keep_slow(cx: &mut WorkerContext, worker: usize, connection: i32, ns: u64, label: Label) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(key: &[u8], us: u64) -> Slow {
        Slow {
            unix_us: 1_700_000_000_000_042,
            label: Label {
                command: "get",
                key: key.to_vec(),
                value_bytes: 0,
            },
            us,
            worker: 3,
            connection: 27,
        }
    }

    /// Goal: the list is bounded, has the newest, and a key cannot forge a row. Method: three times
    /// as many as it keeps, one with a line end in its key.
    #[test]
    fn the_newest_are_kept_and_keys_are_encoded() {
        let log = SlowLog::new(5);
        for us in 0..3 * LIST_MAX as u64 {
            log.keep(slow(b"a b\r\nSTAT", us));
        }
        let text = String::from_utf8(log.report(true)).unwrap();
        assert_eq!(text.lines().count(), LIST_MAX + 3, "{text}");
        assert!(text.starts_with("STAT threshold_us 5\r\n"), "{text}");
        let first = 2 * LIST_MAX;
        let row = format!(
            "STAT slow:1 ts=1700000000.000042 cmd=get key=a%20b%0D%0ASTAT size=0 us={first} \
             worker=3 cfd=27\r\n"
        );
        assert!(text.contains(&row), "{text}");
        let hidden = String::from_utf8(log.report(false)).unwrap();
        assert!(
            hidden.contains(" key=- ") && !hidden.contains("a%20b"),
            "{hidden}"
        );
    }

    #[test]
    fn a_threshold_of_nothing_is_off() {
        let log = SlowLog::new(0);
        assert_eq!(log.threshold_ns(), OFF);
        log.set_threshold_us(7);
        assert_eq!(log.threshold_ns(), 7000);
        log.set_threshold_us(u64::MAX);
        assert!(log.threshold_ns() < OFF, "it is on");
    }
}
