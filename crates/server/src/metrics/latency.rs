//! Server time of requests by command and size class, for `/metrics`.
//!
//! ```text
//!   receive | decode | other requests of the batch | this one | replies | handed to the kernel
//!   |<------------------------------ measured ---------------------------------------------->|
//! ```
//!
//! The requests of one turn in 64 are measured, whose clock is read anyway
//! ([`crate::metrics::stage_histograms`]), and all that a large worker serves. A reply that its
//! turn could not send (another worker or node answers, or the kernel took no more) is measured
//! when it has left; a large write that takes several turns, when its value is stored. What is
//! large is fixed at the start, not by the plan in force, so that the classes mean the same for as
//! long as the server runs.

use crate::sync::{AtomicU64, Relaxed};

/// What a request asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum Command {
    Get,
    Set,
    Delete,
    Arithmetic,
    Touch,
    Other,
}

/// How large its value is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum Size {
    Small,
    Large,
}

/// A histogram of durations: class c has what took less than 2^c microseconds and is in no class
/// below; the last has everything else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Durations {
    pub(crate) classes: [u64; CLASSES],
    pub(crate) sum_ns: u64,
    /// There are some that others were not shown.
    is_new: bool,
}

/// Those of one worker, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies([[Durations; SIZES.len()]; COMMANDS.len()]);

/// Those of one worker as others may read them.
#[derive(Debug, Default)]
pub(crate) struct PublishedLatencies([[PublishedDurations; SIZES.len()]; COMMANDS.len()]);

#[derive(Debug, Default)]
struct PublishedDurations {
    classes: [AtomicU64; CLASSES],
    sum_ns: AtomicU64,
}

/// A request whose reply has not left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Pending {
    pub(crate) since_ns: u64,
    pub(crate) command: Command,
    pub(crate) size: Size,
}

/// The last class begins at 4.2 s.
const CLASSES: usize = 24;

/// In the order of [`Command`] and [`Size`].
const COMMANDS: [&str; 6] = ["get", "set", "delete", "arithmetic", "touch", "other"];
const SIZES: [&str; 2] = ["small", "large"];

/// The upper bound of a class in nanoseconds; `None` for the last.
pub(crate) fn bound_ns(class: usize) -> Option<u64> {
    (class + 1 < CLASSES).then(|| 1000 << class)
}

impl Durations {
    fn record(&mut self, ns: u64) {
        let us = ns / 1000;
        let class = (u64::BITS - us.leading_zeros()) as usize;
        if let Some(class) = self.classes.get_mut(class.min(CLASSES - 1)) {
            *class += 1;
        }
        self.sum_ns += ns;
        self.is_new = true;
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, command: Command, size: Size, ns: u64) {
        let sizes = self.0.get_mut(command as usize);
        if let Some(durations) = sizes.and_then(|sizes| sizes.get_mut(size as usize)) {
            durations.record(ns);
        }
    }

    /// All of them with their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, &Durations)> {
        COMMANDS.iter().zip(&self.0).flat_map(|(command, sizes)| {
            let sizes = SIZES.iter().zip(sizes);
            sizes.map(|(size, durations)| (*command, *size, durations))
        })
    }
}

impl PublishedLatencies {
    /// Shows what is new in `latencies` to the others; only their worker calls this, now and then.
    pub(crate) fn publish(&self, latencies: &mut Latencies) {
        let all = self.0.iter().flatten();
        for (shown, own) in all.zip(latencies.0.iter_mut().flatten()) {
            if !std::mem::take(&mut own.is_new) {
                continue;
            }
            for (shown, number) in shown.classes.iter().zip(own.classes) {
                shown.store(number, Relaxed);
            }
            shown.sum_ns.store(own.sum_ns, Relaxed);
        }
    }

    /// Adds what was shown.
    pub(crate) fn add_to(&self, sum: &mut Latencies) {
        let sums = sum.0.iter_mut().flatten();
        for (sum, shown) in sums.zip(self.0.iter().flatten()) {
            for (number, shown) in sum.classes.iter_mut().zip(&shown.classes) {
                *number += shown.load(Relaxed);
            }
            sum.sum_ns += shown.sum_ns.load(Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_below_the_bound_of_its_class() {
        for (ns, class) in [
            (0, 0),
            (999, 0),
            (1000, 1),
            (1999, 1),
            (2000, 2),
            (4_000_000, 12),
        ] {
            let mut durations = Durations::default();
            durations.record(ns);
            assert_eq!(durations.classes[class], 1, "{ns}");
            assert!(bound_ns(class).unwrap() > ns, "{ns}");
        }
        let mut durations = Durations::default();
        durations.record(u64::MAX / 2);
        assert_eq!(durations.classes[CLASSES - 1], 1);
        assert_eq!(bound_ns(CLASSES - 1), None);
    }

    #[test]
    fn what_is_published_is_added_under_its_name() {
        let mut own = Latencies::default();
        own.record(Command::Touch, Size::Large, 3000);
        let published = PublishedLatencies::default();
        published.publish(&mut own);
        published.publish(&mut own);
        let mut sum = own.clone();
        published.add_to(&mut sum);
        for (command, size, durations) in sum.all() {
            let expected = match (command, size) {
                ("touch", "large") => (2, 6000),
                _ => (0, 0),
            };
            let count: u64 = durations.classes.iter().sum();
            assert_eq!((count, durations.sum_ns), expected, "{command} {size}");
        }
    }
}
