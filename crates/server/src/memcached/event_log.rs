//! Reports events: lines for watchers, and connections and commands in the log at `-vv`.
//!
//! Whether anybody looks on is asked once per turn. Only then is each request looked at beside
//! being carried out, with a second look at its item: what it costs is paid while watching. Where
//! and how a request runs does not depend on it: the worker that carries a request out tells of it,
//! in the order in which requests are carried out there, and of each of those that are carried out
//! as one (a compacted run) what would be told of it alone. Only what is shown at `-vv` is shown
//! where it arrived.

use std::io::Write;

use curtail_store::Evicted;
use curtail_types::Now;
use tracing::debug;

use crate::{
    key_encoding::push_percent,
    log::component,
    memcached::watch::{Interests, Journal, Watchers},
};

/// What a worker tells watching clients.
#[derive(Debug)]
pub(crate) struct EventLog {
    /// Whether anybody looks on in this turn.
    pub(crate) on: bool,
    pub(crate) watched: Interests,
    verbose: bool,
    pub(crate) journal: Journal,
    /// The write that is being carried out.
    pub(crate) write: LoggedEvent,
}

/// A write, as far as its line needs it.
#[derive(Debug, Default)]
pub(crate) struct LoggedEvent {
    pub(crate) key: Vec<u8>,
    pub(crate) command: &'static str,
    pub(crate) ttl_seconds: u32,
    pub(crate) value_bytes: usize,
    pub(crate) number: i32,
}

/// The level of `verbosity` from which connections and commands are shown.
const VERBOSE: u8 = 2;

/// The address, port and transport of a client, as lines show them.
pub(crate) type Endpoint<'a> = (&'a str, &'a str, &'static str);

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
    pub(crate) fn opened(
        &mut self,
        watchers: &Watchers,
        now: Now,
        (number, endpoint): (i32, Endpoint<'_>),
    ) {
        self.say(format_args!("<{number} new ascii client connection."));
        self.line(watchers, now, Interests::CONNECTIONS, |text| {
            let (address, port, transport) = endpoint;
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
        (number, endpoint): (i32, Endpoint<'_>),
        reason: &str,
    ) {
        self.say(format_args!("<{number} connection closed."));
        self.line(watchers, now, Interests::CONNECTIONS, |text| {
            let (address, port, transport) = endpoint;
            let _ = writeln!(
                text,
                "type=conn_close rip={address} rport={port} transport={transport} reason={reason} \
                 cfd={number}"
            );
        });
    }

    pub(crate) fn evicted(&mut self, watchers: &Watchers, now: Now, evicted: &Evicted) {
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

    pub(crate) fn say(&self, line: std::fmt::Arguments<'_>) {
        if self.verbose {
            debug!(target: component::COMMANDS, "{line}");
        }
    }
}
