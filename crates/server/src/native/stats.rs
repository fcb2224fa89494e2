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
    let counts = native.counts_total();
    for count in NativeCount::ALL {
        row(count.name(), &counts.get(*count));
    }
    for (number, depth) in depths.iter().enumerate().filter(|(_, depth)| **depth > 0) {
        row(&format!("native:queue:{number}:depth"), depth);
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
}

impl Native {
    pub(crate) fn queues(&self) -> NativeQueues {
        let mut all = NativeQueues::default();
        for queue in self.all_queues() {
            let [accepted, queued, found_full] = queue.counts();
            all.accepted += accepted;
            all.queued += queued;
            all.found_full += found_full;
            let backlog = queue.backlog();
            let depth = backlog.tail.saturating_sub(backlog.head);
            all.depths.push(depth);
        }
        all
    }
}
