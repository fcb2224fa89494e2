//! The tracker of one thread: counts requests, averages segments, and detects bursts.

use curtail_types::{Instant, Key, KeyHash, LoadReport};

use crate::{
    Access,
    burst_detector::Bursts,
    load_list::{Loads, Segment},
    parameters::{CheckedParameters, Parameters},
    space_saving::Counter,
};

/// The tracker of one thread.
///
/// Its driver samples (see [`Sampler`](crate::Sampler)) and shows it what was sampled; in the first
/// turn after [`Tracker::deadline`] it ends the segment and reports.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Tracker {
    parameters: Parameters,
    counter: Counter,
    loads: Loads,
    bursts: Bursts,
    /// When the segment began.
    since: Instant,
}

impl Tracker {
    /// A tracker whose first segment begins `now`.
    pub fn new(parameters: CheckedParameters, now: Instant) -> Self {
        let parameters = *parameters.get();
        Self {
            parameters,
            counter: Counter::new(parameters.counted),
            loads: Loads::new(parameters.listed),
            bursts: Bursts::new(&parameters),
            since: now,
        }
    }

    /// What it was made with.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Counts a request that was sampled. How often its key is in the log, if it bursts and nobody
    /// was told yet (see [`Tracker::bursts_mut`]).
    #[inline]
    pub fn see(&mut self, hash: KeyHash, key: Key<'_>, access: Access) -> Option<u32> {
        self.counter.see(hash, key, access);
        self.bursts.see(hash)
    }

    /// To suppress and to release the reports of bursts.
    pub const fn bursts_mut(&mut self) -> &mut Bursts {
        &mut self.bursts
    }

    /// The end of the segment.
    pub const fn deadline(&self) -> Instant {
        Instant {
            ns: self
                .since
                .ns
                .saturating_add(self.parameters.scale.segment_ns),
        }
    }

    /// Ends the segment: its top becomes the load list, and counting begins anew. In a segment that
    /// took longer than its length, requests count accordingly less. Takes time in proportion to
    /// the counted keys: microseconds for a thousand.
    pub fn end_segment(&mut self, now: Instant) {
        let taken_ns = now.ns.saturating_sub(self.since.ns);
        let segment = Segment::new(&self.parameters.scale, taken_ns);
        self.loads.end_segment(&self.counter, segment);
        self.counter.clear();
        self.bursts.expire(now);
        self.since = now;
    }

    /// What is known at the end of the latest segment. Allocates: not for the path of requests.
    pub fn report(&self) -> LoadReport {
        let mut report = LoadReport::empty(self.parameters.scale);
        self.report_into(&mut report);
        report
    }

    /// The same into a report of earlier, whose memory it takes.
    pub fn report_into(&self, report: &mut LoadReport) {
        report.scale = self.parameters.scale;
        self.loads.report(report);
    }
}

#[cfg(test)]
mod tests;
