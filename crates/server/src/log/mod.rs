//! The log: what the server tells its operator, as lines of text or of JSON on standard error.
//!
//! ```text
//!  any thread: warn!(target: ..) -> formatted -> bounded queue -> thread "log" -> standard error
//!                                                | full
//!                                                +-> counted, and reported with the next line
//! ```
//!
//! Every line has a time (RFC 3339, UTC), a level, a component, a message and fields. A thread that
//! logs never waits for standard error: a line that finds the queue full is dropped and counted
//! (`log_lines_dropped` in `stats curtail`). Requests are not logged one by one; what a peer can
//! cause by the thousand passes a bound (`limit`) or is summed up once a second
//! (`exporter::failure_log`).
//!
//! A process has one log. A program that embeds the server and installs a subscriber of its own
//! receives the same events.

mod limit;
mod record;
mod writer;

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use curtail_types::named_enum;
use tracing::{
    Event, Level, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};

use crate::sync::{AtomicU8, AtomicU64, Relaxed};

pub(crate) use limit::{Limit, Limits, log_flush};

/// The components that log, as targets of events. Events of other crates have other targets and are
/// left out.
pub mod component {
    /// Starting, stopping, signals, files.
    pub const SERVER: &str = "curtail::server";
    /// Administration commands that change the server.
    pub const ADMIN: &str = "curtail::admin";
    /// Logins.
    pub const AUTH: &str = "curtail::auth";
    /// Connections that are refused or closed.
    pub const CONNECTIONS: &str = "curtail::connections";
    /// Memory that runs short.
    pub const MEMORY: &str = "curtail::memory";
    /// The policy and what it learns.
    pub const POLICY: &str = "curtail::policy";
    /// The native protocol.
    pub const NATIVE: &str = "curtail::native";
    /// Membership, and links to other nodes.
    pub const CLUSTER: &str = "curtail::cluster";
    /// The data directory of the disk tier.
    pub const DISK: &str = "curtail::disk";
    /// Connections and commands at `-vv`.
    pub const COMMANDS: &str = "curtail::commands";
    /// The log itself.
    pub(super) const LOG: &str = "log";
}

const PREFIX: &str = "curtail::";

named_enum! {
    /// How lines look.
    #[derive(Default)]
    pub enum LogFormat {
        /// Time, level, component, message, fields as `name=value`.
        #[default]
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

named_enum! {
    /// Which lines are written: those of this level and more important ones.
    #[derive(Default, Ord, PartialOrd)]
    #[repr(u8)]
    pub enum LogLevel {
        /// Something does not work.
        Error = "error",
        /// Something needs attention.
        Warn = "warn",
        /// What an operator did, and what changed.
        #[default]
        Info = "info",
        /// What helps to find a fault.
        Debug = "debug",
    }
}

/// How the log is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions {
    /// How lines look.
    pub format: LogFormat,
    /// Which lines are written at least; `-v` and `verbosity` add to it.
    pub level: LogLevel,
    /// `-v`, as often as it was given.
    pub verbosity: u8,
}

/// Writes what is queued when it is dropped, for two seconds at most.
#[derive(Debug)]
pub struct Log(writer::Writer);

/// The level that was asked for, and the one in force.
static CONFIGURED: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
static IN_FORCE: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Lines that were dropped because the queue was full or standard error failed.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The queue of the process's log.
static QUEUE: OnceLock<writer::Queue> = OnceLock::new();

/// How long the end of the process may wait for standard error.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Starts the process's log. To be called after forking: it starts a thread.
///
/// # Errors
/// When the process has an event log already, or the system refuses the thread.
pub fn install(options: LogOptions) -> Result<Log, String> {
    let writer = writer::Writer::start(Box::new(std::io::stderr()), options.format, &DROPPED)
        .map_err(|error| format!("cannot start the thread of the event log: {error}"))?;
    if QUEUE.set(writer.queue()).is_err() {
        return Err("the process has an event log already".to_owned());
    }
    CONFIGURED.store(options.level as u8, Relaxed);
    set_verbosity(options.verbosity);
    let subscriber = Lines {
        format: options.format,
    };
    tracing::subscriber::set_global_default(subscriber).map_err(|error| error.to_string())?;
    Ok(Log(writer))
}

/// What `-v` and the command `verbosity` ask for, as a level: one is `debug`.
pub(crate) fn set_verbosity(verbosity: u8) {
    let asked = match verbosity {
        0 => 0,
        _ => LogLevel::Debug as u8,
    };
    IN_FORCE.store(CONFIGURED.load(Relaxed).max(asked), Relaxed);
}

/// Lines that were dropped since the process started.
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Relaxed)
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish(FLUSH_MAX);
    }
}

/// Formats events and queues them.
struct Lines {
    format: LogFormat,
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_event() && metadata.target().starts_with(PREFIX) {
            // The level changes while the server runs.
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(PREFIX)
            && level_of(*metadata.level()) <= IN_FORCE.load(Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        let Some(queue) = QUEUE.get() else {
            return;
        };
        let metadata = event.metadata();
        let target = metadata.target();
        let head = record::Head {
            time: SystemTime::now(),
            level: *metadata.level(),
            component: target.strip_prefix(PREFIX).unwrap_or(target),
        };
        let mut fields = record::Fields::default();
        event.record(&mut fields);
        queue.push(record::line(self.format, head, &fields));
    }

    // The server has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn level_of(level: Level) -> u8 {
    let level = match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        Level::TRACE => return u8::MAX,
    };
    level as u8
}
