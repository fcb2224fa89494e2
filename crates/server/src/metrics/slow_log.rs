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
use curtail_types::{Direction, Operation, SetMode};

use crate::{
    key_encoding::push_percent,
    limits::SLOW_REQUESTS_MAX,
    metrics::counters::Tally,
    request::batch::{Entry, Work},
    sync::{AtomicU64, Mutex, Relaxed, lock},
};

/// The slow requests of all workers.
#[derive(Debug)]
pub(crate) struct SlowLog {
    /// [`OFF`] for none.
    threshold_ns: AtomicU64,
    /// How many there were, also those that the list has no more or never had.
    pub(crate) count: Tally,
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

    pub(crate) fn keep(&self, slow: Slow) {
        let mut list = lock(&self.list);
        if list.len() == SLOW_REQUESTS_MAX {
            list.pop_front();
        }
        list.push_back(slow);
    }

    /// The slow requests that are kept, the oldest first; without keys if those are not to be
    /// listed.
    pub(crate) fn rows(&self, shows_keys: bool) -> Vec<String> {
        let row = |slow: &Slow| Shown { slow, shows_keys }.to_string();
        lock(&self.list).iter().map(row).collect()
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
    pub(crate) fn push_rest(&self, text: &mut Vec<u8>, shows_keys: bool) {
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
    pub(crate) fn of_item(
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
    pub(crate) fn of_entry(entry: &Entry<'_>, scratch: &mut KeyScratch) -> Self {
        match &entry.work {
            Work::Request(Request::Item {
                key,
                operation,
                value,
                ..
            }) => Self::of_item((key, operation), value.len(), scratch),
            Work::Request(Request::SetHeader(header) | Request::SetTooLarge(header))
            | Work::LargeSet { header, .. } => {
                let bytes = header.value_bytes as usize;
                Self::of_item((&header.key, &Operation::Set(header.set)), bytes, scratch)
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
        for us in 0..3 * SLOW_REQUESTS_MAX as u64 {
            log.keep(slow(b"a b\r\nSTAT", us));
        }
        let text = String::from_utf8(crate::admin::stats::slow(&log, true)).unwrap();
        assert_eq!(text.lines().count(), SLOW_REQUESTS_MAX + 3, "{text}");
        assert!(text.starts_with("STAT threshold_us 5\r\n"), "{text}");
        let first = 2 * SLOW_REQUESTS_MAX;
        let row = format!(
            "STAT slow:1 ts=1700000000.000042 cmd=get key=a%20b%0D%0ASTAT size=0 us={first} \
             worker=3 cfd=27\r\n"
        );
        assert!(text.contains(&row), "{text}");
        let hidden = String::from_utf8(crate::admin::stats::slow(&log, false)).unwrap();
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
