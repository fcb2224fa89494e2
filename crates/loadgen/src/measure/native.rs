//! Figures that only sessions of the native protocol have: refusals, retransmissions, and the
//! length of the server's queues.
//!
//! A write that is acknowledged before it is executed can look fast while the queue behind it
//! grows, so refusals and backlog stand beside every latency. The backlog is told by the credits of
//! each acknowledgement: the most that were ever told are taken for an empty queue.

use std::fmt::Write;

use curtail_client::{ClientError, Counts};
use hdrhistogram::{AdditionError, Histogram};
use serde::Serialize;

use super::{Quantiles, histogram};
use crate::error::LoadError;

/// One thread's sessions.
#[derive(Clone, Debug)]
pub(crate) struct NativeRecord {
    counts: Counts,
    indeterminate: u64,
    /// Requests that waited in the driver for a window or a slot, at most.
    waited_max: u64,
    /// Credits of acknowledgements within the measured time.
    credits: Histogram<u64>,
}

/// What a run's sessions told.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NativeReport {
    /// Latency of writes that end when they are accepted.
    pub accepted: Quantiles,
    /// Latency of writes that end when they were executed.
    pub result: Quantiles,
    /// Latency of reads.
    pub read: Quantiles,
    /// Refusals because a queue was full, in the whole run.
    pub nacks_full: u64,
    /// Refusals for other reasons.
    pub nacks_other: u64,
    /// Share of the transmissions that were refused.
    pub nack_share: f64,
    /// Transmissions because no answer came in time.
    pub resent: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Writes of which nobody knows whether they were executed.
    pub indeterminate: u64,
    /// Sessions that were granted; more than the driver has means that some were lost.
    pub sessions: u64,
    /// Entries in a queue of the server: median over the acknowledgements.
    pub backlog_p50: u64,
    /// 99th percentile.
    pub backlog_p99: u64,
    /// The most.
    pub backlog_max: u64,
    /// Requests that waited in a driver thread for a window or a slot, at most.
    pub waited_max: u64,
}

impl NativeRecord {
    pub(crate) fn new() -> Result<Self, LoadError> {
        Ok(Self {
            counts: Counts::default(),
            indeterminate: 0,
            waited_max: 0,
            credits: histogram()?,
        })
    }

    /// An acknowledgement told this many free places.
    #[inline]
    pub(crate) fn credits(&mut self, credits: u32) {
        self.credits.saturating_record(u64::from(credits));
    }

    /// A request failed.
    pub(crate) fn failed(&mut self, error: &ClientError) {
        self.indeterminate += u64::from(error.may_have_happened());
    }

    /// So many requests wait in the driver.
    #[inline]
    pub(crate) fn waits(&mut self, count: usize) {
        self.waited_max = self.waited_max.max(count as u64);
    }

    /// A session ended with these counts.
    pub(crate) fn session(&mut self, counts: Counts) {
        let sum = &mut self.counts;
        sum.assigned += counts.assigned;
        sum.accepted += counts.accepted;
        sum.answered += counts.answered;
        sum.failed += counts.failed;
        sum.resent += counts.resent;
        sum.full += counts.full;
        sum.refused += counts.refused;
        sum.strays += counts.strays;
        sum.sessions += counts.sessions;
    }

    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), AdditionError> {
        self.session(other.counts);
        self.indeterminate += other.indeterminate;
        self.waited_max = self.waited_max.max(other.waited_max);
        self.credits.add(&other.credits)
    }

    /// Everything but the latencies, which the recorder has.
    pub(crate) fn report(&self) -> NativeReport {
        let counts = &self.counts;
        let refusals = counts.full + counts.refused;
        let transmissions = counts.assigned + counts.resent + refusals;
        let empty = self.credits.max();
        let backlog = |quantile| empty.saturating_sub(self.credits.value_at_quantile(quantile));
        NativeReport {
            nacks_full: counts.full,
            nacks_other: counts.refused,
            nack_share: refusals as f64 / transmissions.max(1) as f64,
            resent: counts.resent,
            failed: counts.failed,
            indeterminate: self.indeterminate,
            sessions: counts.sessions,
            backlog_p50: backlog(0.5),
            backlog_p99: backlog(0.01),
            backlog_max: empty.saturating_sub(self.credits.min()),
            waited_max: self.waited_max,
            ..NativeReport::default()
        }
    }
}

impl NativeReport {
    /// In two lines, for a person.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "refused: full {}, otherwise {} ({:.2} % of what was sent); sent again {}, failed {}, \
             of which indeterminate {}; sessions {}",
            self.nacks_full,
            self.nacks_other,
            100.0 * self.nack_share,
            self.resent,
            self.failed,
            self.indeterminate,
            self.sessions
        );
        let _ = writeln!(
            text,
            "backlog of the server's queues: p50 {}, p99 {}, max {}; requests that waited in the \
             driver: max {}",
            self.backlog_p50, self.backlog_p99, self.backlog_max, self.waited_max
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: credits become a backlog, and refusals a share of what was sent.
    #[test]
    fn credits_become_a_backlog() {
        let mut one = NativeRecord::new().unwrap();
        (0..98).for_each(|_| one.credits(1000));
        let mut other = NativeRecord::new().unwrap();
        (0..100).for_each(|_| other.credits(990));
        (0..2).for_each(|_| other.credits(100));
        other.waits(7);
        other.session(Counts {
            assigned: 95,
            full: 5,
            ..Counts::default()
        });
        one.merge(&other).unwrap();
        let report = one.report();
        assert_eq!(
            (report.backlog_p50, report.backlog_p99, report.backlog_max),
            (10, 900, 900)
        );
        assert!((report.nack_share - 0.05).abs() < 1e-9);
        assert_eq!(report.waited_max, 7);
        assert!(report.summary().contains("full 5, otherwise 0 (5.00 %"));
    }
}
