//! The rows of `stats curtail` about the native path.

use std::fmt::Display;

use crate::native::{Native, NativeCount};

/// The rows of `stats curtail`, each given to `row` with its name.
pub(crate) fn statistics(native: &Native, mut row: impl FnMut(&str, &dyn Display)) {
    row("native:mode", &native.mode.name());
    row("native:incarnation", &native.incarnation);
    let NativeQueues {
        accepted,
        queued,
        found_full,
        depths,
        early,
    } = native.queues();
    row("native:accepted", &accepted);
    row("native:queued", &queued);
    row("native:found_full", &found_full);
    let backlog: u64 = depths.iter().sum();
    row("native:backlog", &backlog);
    row(
        "native:backlog_max",
        &depths.iter().max().copied().unwrap_or(0),
    );
    let times = early.iter().map(|of| of.execution_ns);
    row("native:execution_ns", &times.max().unwrap_or(0));
    let limits = early.iter().map(|of| of.limit);
    row("native:early_limit", &limits.min().unwrap_or(0));
    let counts = native.counts_total();
    for count in NativeCount::ALL {
        row(count.name(), &counts.get(*count));
    }
    for (number, depth) in depths.iter().enumerate().filter(|(_, depth)| **depth > 0) {
        row(&format!("native:queue:{number}:depth"), depth);
    }
    for (number, early) in early.iter().enumerate() {
        if let Some(credits) = early.credits {
            row(&format!("native:queue:{number}:credits"), &credits);
        }
    }
}

/// All queues together.
#[derive(Debug, Default)]
pub(crate) struct NativeQueues {
    /// Writes acknowledged early, acknowledged after execution, and refused for lack of room.
    pub(crate) accepted: u64,
    pub(crate) queued: u64,
    pub(crate) found_full: u64,
    /// How much waits in each.
    pub(crate) depths: Vec<u64>,
    /// What each may acknowledge early.
    pub(crate) early: Vec<QueueEarly>,
}

/// What a queue may acknowledge early, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueEarly {
    /// How long one entry takes to execute.
    pub(crate) execution_ns: u64,
    /// Entries that may wait.
    pub(crate) limit: u64,
    /// Bytes that may still be acknowledged, where they are counted.
    pub(crate) credits: Option<u64>,
}

impl Native {
    pub(crate) fn queues(&self) -> NativeQueues {
        let mut all = NativeQueues::default();
        for (number, queue) in self.all_queues().into_iter().enumerate() {
            let [accepted, queued, found_full] = queue.counts();
            all.accepted += accepted;
            all.queued += queued;
            all.found_full += found_full;
            let backlog = queue.backlog();
            let depth = backlog.tail.saturating_sub(backlog.head);
            all.depths.push(depth);
            all.early.push(QueueEarly {
                execution_ns: self.execution_ns(number),
                limit: queue.backlog_max(),
                credits: queue.credits(),
            });
        }
        all
    }
}
