//! The control loop compares counters once a second and logs one line for each kind of frequent
//! failure.
//!
//! So neither a worker nor the acceptor writes a line for a refused request, and a flood makes no
//! more lines than a trickle.

use tracing::{info, warn};

use crate::{
    log::{Limits, component},
    metrics::counters::Count,
    native::NativeCount,
    worker::shared::Shared,
};

/// What was counted at the last look.
#[derive(Debug)]
pub(crate) struct FailureLog {
    looked_at: u64,
    counted: [u64; ALARMS.len()],
}

struct Alarm {
    component: Component,
    count: fn(&Shared) -> u64,
    /// What happened so many times.
    what: &'static str,
    /// What to do.
    remedy: &'static str,
}

/// An event's target is fixed where it is written.
#[derive(Clone, Copy)]
enum Component {
    Connections,
    Memory,
}

const ALARMS: [Alarm; 7] = [
    Alarm {
        component: Component::Connections,
        count: |shared| shared.doors.refused.total(),
        what: "connections were refused: the limit -c is reached",
        remedy: "raise -c (and the limit of open files, if that made the server lower -c), or \
                 close connections that are not used (-o idle_timeout)",
    },
    Alarm {
        component: Component::Connections,
        count: |shared| shared.doors.pauses.total(),
        what: "times the server stopped accepting connections: the limit -c is reached",
        remedy: "raise -c, or close connections that are not used (-o idle_timeout)",
    },
    Alarm {
        component: Component::Connections,
        count: |shared| of(shared, Count::SlowReadersClosed),
        what: "connections were closed because their clients did not read their replies",
        remedy: "look for clients that do not read, or raise -m (values being sent may use a \
                 quarter of it)",
    },
    Alarm {
        component: Component::Memory,
        count: |shared| {
            of(shared, Count::StoreNoMemory) + shared.native_count(NativeCount::NoMemory)
        },
        what: "writes were refused for lack of memory",
        remedy: "raise -m or cache_memlimit, or remove -M if it is given",
    },
    Alarm {
        component: Component::Memory,
        count: |shared| of(shared, Count::ReadNoMemory),
        what: "connections were closed because all memory for connection buffers was in use",
        remedy: "raise -o read_buf_mem_limit, or -m if that option is not set",
    },
    Alarm {
        component: Component::Memory,
        count: |shared| of(shared, Count::ReplyNoMemory),
        what: "reads of values above 1 KiB were refused because too many are being sent",
        remedy: "raise -m, or look for clients that read slowly",
    },
    Alarm {
        component: Component::Memory,
        count: |shared| of(shared, Count::LargeRefused),
        what: "requests for large values were refused because all large workers were busy",
        remedy: "raise -o size_queue, or send fewer large values at a time",
    },
];

fn of(shared: &Shared, count: Count) -> u64 {
    shared.counts_total().get(count)
}

impl FailureLog {
    /// Begins with nothing, since a worker can count before the control loop begins.
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            looked_at: shared.now().unix_seconds().into(),
            counted: [0; ALARMS.len()],
        }
    }

    /// Reports what has grown since the last look, once a second at most.
    pub(crate) fn look(&mut self, shared: &Shared) {
        let seconds = u64::from(shared.now().unix_seconds());
        if seconds != self.looked_at {
            self.report(shared, seconds);
        }
    }

    /// Reports what has grown since then, when the server stops.
    pub(crate) fn end(&mut self, shared: &Shared) {
        self.report(shared, u64::from(shared.now().unix_seconds()) + 1);
    }

    fn report(&mut self, shared: &Shared, seconds: u64) {
        let within_s = seconds.saturating_sub(self.looked_at);
        self.looked_at = seconds;
        for (alarm, counted) in ALARMS.iter().zip(&mut self.counted) {
            let now = (alarm.count)(shared);
            // `stats reset` starts some of them over.
            let more = if now < *counted { now } else { now - *counted };
            *counted = now;
            if more > 0 {
                alarm.report(more, within_s);
            }
        }
        report_suppressed(&shared.limits, seconds);
        let flushes = shared.native.as_deref().map(|native| &native.flushes);
        if let Some(suppressed) = flushes.and_then(|limit| limit.left(seconds)) {
            info!(
                target: component::ADMIN,
                suppressed,
                "{suppressed} more flushes were executed"
            );
        }
    }
}

impl Alarm {
    fn report(&self, count: u64, within_s: u64) {
        let (what, remedy) = (self.what, self.remedy);
        match self.component {
            Component::Connections => {
                warn!(target: component::CONNECTIONS, count, within_s, "{count} {what}; {remedy}");
            }
            Component::Memory => {
                warn!(target: component::MEMORY, count, within_s, "{count} {what}; {remedy}");
            }
        }
    }
}

/// After a flood has ended, the lines that were left out of it are still to be told of.
fn report_suppressed(limits: &Limits, seconds: u64) {
    if let Some(suppressed) = limits.refused_logins.left(seconds) {
        warn!(target: component::AUTH, suppressed, "{suppressed} more logins were refused");
    }
    if let Some(suppressed) = limits.accepted_logins.left(seconds) {
        info!(target: component::AUTH, suppressed, "{suppressed} more logins were accepted");
    }
    if let Some(suppressed) = limits.malformed.left(seconds) {
        info!(
            target: component::CONNECTIONS,
            suppressed,
            "{suppressed} more connections were closed because their clients do not speak the \
             protocol"
        );
    }
    if let Some(suppressed) = limits.admin.left(seconds) {
        info!(
            target: component::ADMIN,
            suppressed,
            "{suppressed} more administrative commands were executed"
        );
    }
    if let Some(suppressed) = limits.accept.left_lasting(seconds) {
        warn!(
            target: component::CONNECTIONS,
            suppressed,
            "{suppressed} more attempts to accept a connection failed"
        );
    }
}
