//! The reports of `stats`.
//!
//! Names, their number and their order in the plain report and in `settings` are memcached's, so
//! that exporters and dashboards work; what only this server knows is under `memory` and
//! `curtail`. Where memcached's number counts something that does not exist here, it is 0.

mod extended;
mod general;
mod settings;
mod size_classes;

use std::fmt::{Display, Write};

use curtail_types::Now;

use crate::{
    metrics::{
        counters::{Count, Counts},
        slow_log::{self, SlowLog},
    },
    worker::shared::Shared,
};

pub(crate) use crate::admin::stats::extended::{curtail, memory};
pub(crate) use crate::admin::stats::general::general;
pub(crate) use crate::admin::stats::settings::settings;
pub(crate) use crate::admin::stats::size_classes::{items, slabs};

/// What `version` and `stats` report: the memcached release whose protocol is spoken, for clients
/// that compare numbers, and who is speaking.
pub(crate) const VERSION: &str = concat!("1.6.18-curtail-", env!("CARGO_PKG_VERSION"));

/// The lines of a report.
#[derive(Debug, Default)]
pub(crate) struct Report(String);

impl Report {
    pub(crate) fn stat(&mut self, name: impl Display, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "STAT {name} {value}\r\n");
    }

    /// Counters under their names.
    fn counts(&mut self, counts: &Counts, shown: &[Count]) {
        for count in shown {
            self.stat(count.name(), counts.get(*count));
        }
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.push_str("END\r\n");
        self.0.into_bytes()
    }
}

/// `stats sizes`: not tracked.
pub(crate) fn sizes() -> Vec<u8> {
    let mut report = Report::default();
    report.stat("sizes_status", "disabled");
    report.end()
}

/// `stats conns`: what is open.
pub(crate) fn connections(shared: &Shared, now: Now) -> Vec<u8> {
    let seconds = now.unix_seconds();
    let mut report = Report::default();
    for entry in shared.registry.snapshot() {
        let number = entry.number;
        report.stat(format_args!("{number}:addr"), &entry.address);
        if let Some(listener) = &entry.listener {
            report.stat(format_args!("{number}:listen_addr"), listener);
        }
        report.stat(format_args!("{number}:state"), entry.state_text());
        let idle = seconds.saturating_sub(entry.last_command_seconds());
        report.stat(format_args!("{number}:secs_since_last_cmd"), idle);
    }
    report.end()
}

/// `stats slow`: the oldest first; without keys if those are not to be listed.
pub(crate) fn slow(log: &SlowLog, shows_keys: bool) -> Vec<u8> {
    let threshold_us = match log.threshold_ns() {
        slow_log::OFF => 0,
        ns => ns / 1000,
    };
    let mut report = Report::default();
    report.stat("threshold_us", threshold_us);
    report.stat("slow_requests", log.count());
    for (number, row) in (1..).zip(log.rows(shows_keys)) {
        report.stat(format_args!("slow:{number}"), row);
    }
    report.end()
}
