//! Short windows of a run, each with a small histogram of its own.
//!
//! The median over windows of the windows' 99th percentile repeats within a few percent on a
//! machine whose whole-run percentile shows only how often the machine stopped its threads.

use serde::Serialize;

use super::judge::us;

/// Quantiles inside each window, then over windows, in microseconds; `None` where nothing could be
/// measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowQuantiles {
    /// Length of a window in milliseconds.
    pub window_ms: f64,
    /// Windows with at least 100 latencies; others are left out.
    pub count: usize,
    /// Share of the windows that hold a latency above 1 ms.
    pub stalled: f64,
    /// Median over windows of the median.
    pub p50_us: Option<f64>,
    /// Median over windows of the 90th percentile.
    pub p90_us: Option<f64>,
    /// Median over windows of the 99th percentile.
    pub p99_us: Option<f64>,
    /// Lower quartile over windows of the 99th percentile.
    pub p99_lower_quartile_us: Option<f64>,
    /// Upper quartile over windows of the 99th percentile.
    pub p99_upper_quartile_us: Option<f64>,
    /// Median over windows of the longest.
    pub max_us: f64,
    /// Why the quantiles are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measurable: Option<String>,
}

/// Windows with fewer latencies say nothing about a 99th percentile.
pub(crate) const SAMPLES_MIN: u64 = 100;

/// The most windows that a run may have: each costs 8 KiB once it is used.
pub(crate) const WINDOWS_MAX: u64 = 30_000;

/// The windows of a run, by the instant a request was meant to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    window_ns: u64,
    windows: Vec<Option<Box<Window>>>,
}

/// A log-linear histogram: 64 steps an octave, so that a value is off by 1.6 % at most.
#[derive(Clone, Debug)]
struct Window {
    counts: [u32; Window::BUCKETS],
    total: u64,
    max_ns: u64,
}

impl Windows {
    /// Windows of `window_ns` for a run of `span_ns`.
    pub(crate) fn new(window_ns: u64, span_ns: u64) -> Self {
        let count = span_ns.div_ceil(window_ns);
        Self {
            window_ns,
            windows: vec![None; count as usize],
        }
    }

    /// Adds latencies of requests that were meant for `at_ns` of the measured time.
    #[inline]
    pub(crate) fn record(&mut self, at_ns: u64, latency_ns: u64, requests: u64) {
        let index = (at_ns / self.window_ns) as usize;
        if let Some(window) = self.windows.get_mut(index) {
            window
                .get_or_insert_with(Window::empty)
                .record(latency_ns, requests);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => mine.merge(theirs),
                (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => {}
            }
        }
    }

    /// A quantile of every window that holds enough, in microseconds, with the middle of the window
    /// in seconds.
    pub(crate) fn each(&self, quantile: f64) -> Vec<(f64, f64)> {
        self.each_of(quantile, SAMPLES_MIN)
    }

    /// The same of windows with `samples_min` latencies.
    pub(crate) fn each_of(&self, quantile: f64, samples_min: u64) -> Vec<(f64, f64)> {
        let seconds = |index: usize| (index as f64 + 0.5) * self.window_ns as f64 / 1e9;
        let windows = self.windows.iter().enumerate();
        windows
            .filter_map(|(index, window)| Some((index, window.as_deref()?)))
            .filter(|(_, window)| window.total >= samples_min)
            .map(|(index, window)| (seconds(index), us(window.at(quantile))))
            .collect()
    }

    fn values(&self, quantile: f64) -> Vec<f64> {
        self.each(quantile).into_iter().map(|(_, us)| us).collect()
    }

    /// The quantiles over windows, judged by those of the driver's lateness.
    pub(crate) fn quantiles(&self, late: &Self) -> WindowQuantiles {
        let mut result = WindowQuantiles {
            window_ms: self.window_ns as f64 / 1e6,
            ..WindowQuantiles::default()
        };
        let longest = self.values(1.0);
        if longest.is_empty() {
            let reason = format!("no window of {SAMPLES_MIN} latencies: use longer windows");
            result.not_measurable = Some(reason);
            return result;
        }
        let stalled = longest.iter().filter(|&&max_us| max_us > 1000.0).count();
        result.count = longest.len();
        result.stalled = stalled as f64 / longest.len() as f64;
        result.max_us = rank(&longest, 0.5);
        let p99s = self.values(0.99);
        let (p99_us, late_us) = (rank(&p99s, 0.5), rank(&late.values(0.99), 0.5));
        if late_us > p99_us / 2.0 {
            let reason = format!(
                "p99 of {p99_us:.0} us, of which {late_us:.0} may be the driver's lateness"
            );
            result.not_measurable = Some(reason);
            return result;
        }
        result.p50_us = Some(rank(&self.values(0.5), 0.5));
        result.p90_us = Some(rank(&self.values(0.9), 0.5));
        result.p99_us = Some(p99_us);
        result.p99_lower_quartile_us = Some(rank(&p99s, 0.25));
        result.p99_upper_quartile_us = Some(rank(&p99s, 0.75));
        result
    }
}

/// The value at a share of the sorted values, between two neighbours in proportion; 0 when there is
/// none.
pub(crate) fn rank(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let position = last as f64 * share.clamp(0.0, 1.0);
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

impl Window {
    const STEP_BITS: u32 = 6;
    const BUCKETS: usize = 32 << Self::STEP_BITS;

    fn empty() -> Box<Self> {
        Box::new(Self {
            counts: [0; Self::BUCKETS],
            total: 0,
            max_ns: 0,
        })
    }

    fn record(&mut self, latency_ns: u64, requests: u64) {
        self.counts[Self::bucket(latency_ns)] += requests as u32;
        self.total += requests;
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Below two octaves of steps the value itself; above, octave and leading bits.
    fn bucket(latency_ns: u64) -> usize {
        let octave = (latency_ns | 1).ilog2().saturating_sub(Self::STEP_BITS);
        let bucket = ((octave as u64) << Self::STEP_BITS) + (latency_ns >> octave);
        (bucket as usize).min(Self::BUCKETS - 1)
    }

    /// The greatest value of a bucket.
    fn bucket_end_ns(bucket: usize) -> u64 {
        let steps = 1_u64 << Self::STEP_BITS;
        let octave = (bucket as u64 >> Self::STEP_BITS).saturating_sub(1);
        let lead = bucket as u64 - (octave << Self::STEP_BITS);
        debug_assert!(lead < 2 * steps);
        ((lead + 1) << octave) - 1
    }

    fn at(&self, quantile: f64) -> u64 {
        let wanted = (quantile * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= wanted.max(1) {
                return Self::bucket_end_ns(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Goal: a value read back from a window is at most one step off. Method: values over many
    /// octaves, alone in a window.
    #[test]
    fn a_window_is_off_by_one_step_at_most() {
        for shift in 0..34 {
            for value in [
                (1_u64 << shift) - 1,
                1 << shift,
                (1 << shift) + (1 << shift) / 3,
            ] {
                let end = Window::bucket_end_ns(Window::bucket(value));
                assert!(end >= value && end - value <= value / 64, "{value} {end}");
            }
        }
    }

    /// Five windows of 20 ms: four with latencies of 10 us and one where every request took 5 ms.
    fn one_stalled() -> Windows {
        let mut windows = Windows::new(20 * MS, 100 * MS);
        for window in 0..5 {
            for request in 0..1000 {
                let latency = if window == 3 { 5 * MS } else { 10_000 };
                windows.record(window * 20 * MS + request, latency, 1);
            }
        }
        windows
    }

    /// Goal: the windows' median ignores one bad window that ruins the whole run's p99.
    #[test]
    fn one_stalled_window_does_not_move_the_windows_median() {
        let quantiles = one_stalled().quantiles(&Windows::new(20 * MS, 100 * MS));
        assert_eq!((quantiles.count, quantiles.stalled), (5, 0.2));
        assert!(
            quantiles.p99_us.is_some_and(|us| (us - 10.0).abs() < 0.2),
            "{quantiles:?}"
        );
    }

    #[test]
    fn windows_that_the_driver_spoilt_are_refused() {
        let windows = one_stalled();
        let mut late = Windows::new(20 * MS, 100 * MS);
        for window in 0..5 {
            late.record(window * 20 * MS, 6_000, 500);
        }
        let quantiles = windows.quantiles(&late);
        assert!(quantiles.p99_us.is_none() && quantiles.not_measurable.is_some());
    }

    #[test]
    fn ranks_lie_between_their_neighbours() {
        assert_eq!(rank(&[], 0.5), 0.0);
        assert_eq!(rank(&[3.0, 1.0], 0.5), 2.0);
        assert_eq!(rank(&[5.0, 1.0, 3.0], 0.25), 2.0);
        assert_eq!(rank(&[5.0, 1.0, 3.0], 1.0), 5.0);
    }

    #[test]
    fn windows_without_enough_say_nothing() {
        let mut windows = Windows::new(20 * MS, 100 * MS);
        windows.record(0, 1000, SAMPLES_MIN - 1);
        let quantiles = windows.quantiles(&Windows::new(20 * MS, 100 * MS));
        assert!(quantiles.p99_us.is_none() && quantiles.not_measurable.is_some());
    }
}
