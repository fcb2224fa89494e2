//! What operators are told of the native path: `stats curtail` and `/metrics`.

use std::fmt::Display;

use super::{
    Native,
    counts::{NATIVE_COUNTS, NativeCount},
};
use crate::sync::Relaxed;

/// The rows of `stats curtail`, each given to `row` with its name.
pub(crate) fn statistics(native: &Native, mut row: impl FnMut(&str, &dyn Display)) {
    row("native:mode", &native.mode.name());
    row("native:incarnation", &native.incarnation);
    let ([accepted, queued, full], depths) = queues(native);
    row("native:accepted", &accepted);
    row("native:queued", &queued);
    row("native:found_full", &full);
    let backlog: u64 = depths.iter().sum();
    row("native:backlog", &backlog);
    row(
        "native:backlog_max",
        &depths.iter().max().copied().unwrap_or(0),
    );
    let counts = native.counts_total();
    for (name, count) in NATIVE_COUNTS {
        row(&format!("native:{name}"), &counts.get(count));
    }
    for (number, depth) in depths.iter().enumerate().filter(|(_, depth)| **depth > 0) {
        row(&format!("native:queue:{number}:depth"), depth);
    }
}

/// What is accepted, queued and refused in all, and how much waits in each queue.
fn queues(native: &Native) -> ([u64; 3], Vec<u64>) {
    let mut sums = [0; 3];
    let mut depths = Vec::with_capacity(native.config.queues);
    for queue in native.all_queues() {
        for (sum, count) in sums.iter_mut().zip(queue.counts()) {
            *sum += count;
        }
        let backlog = queue.backlog();
        depths.push(backlog.tail.saturating_sub(backlog.head));
    }
    (sums, depths)
}

/// A family of `/metrics`: name, kind, help, and rows of labels and values.
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) is_gauge: bool,
    pub(crate) help: &'static str,
    pub(crate) rows: Vec<(String, u64)>,
}

/// The families of the path.
pub(crate) fn metrics(native: &Native) -> Vec<Family> {
    let ([accepted, queued, full], depths) = queues(native);
    let plain = |name: &str, is_gauge, help, value| Family {
        name: format!("curtail_native_{name}"),
        is_gauge,
        help,
        rows: vec![(String::new(), value)],
    };
    let mode = format!("name=\"{}\"", native.mode.name());
    let mut families = vec![
        Family {
            rows: vec![(mode, 1)],
            ..plain("mode", true, "Who acknowledges writes.", 1)
        },
        plain(
            "accepted_total",
            false,
            "Writes acknowledged early.",
            accepted,
        ),
        plain(
            "queued_total",
            false,
            "Writes acknowledged after execution.",
            queued,
        ),
        plain(
            "found_full_total",
            false,
            "Writes that found no slot.",
            full,
        ),
        plain(
            "corrupt",
            true,
            "Damaged writes.",
            native.corrupt.load(Relaxed),
        ),
    ];
    let depth = depths.iter().enumerate();
    families.push(Family {
        name: "curtail_native_queue_depth".to_owned(),
        is_gauge: true,
        help: "Writes that wait in each queue.",
        rows: depth
            .map(|(number, depth)| (format!("queue=\"{number}\""), *depth))
            .collect(),
    });
    let counts = native.counts_total();
    for (name, count) in NATIVE_COUNTS {
        if count != NativeCount::CorruptAfterAck {
            let name = format!("{name}_total");
            families.push(plain(
                &name,
                false,
                "What the native path did.",
                counts.get(count),
            ));
        }
    }
    families
}
