//! Short windows of a run, each with a small histogram of its own.
//!
//! The median over windows of the windows' 99th percentile repeats within a few percent on a
//! machine whose whole-run percentile shows only how often the machine stopped its threads.

use hdrhistogram::{AdditionError, Histogram};
use serde::Serialize;

use super::{join, measurable_quantiles::us};

/// Quantiles inside each window, then over windows, in microseconds; `None` where nothing could be
/// measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowQuantiles {
    /// Length of a window in milliseconds.
    pub window_ms: f64,
    /// Windows with at least 100 latencies; others are left out.
    pub count: usize,
    /// Share of the windows that hold a latency above 1 ms, or, in closed loop, almost none; the
    /// latter are not in `count`, but in the whole here.
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
    /// Median over windows with at least 1,000 latencies of the 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Median over windows of the longest.
    pub max_us: f64,
    /// Why the quantiles are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measurable: Option<String>,
}

/// Windows with fewer latencies say nothing about a 99th percentile.
pub(crate) const SAMPLES_MIN: u64 = 100;

/// Windows with fewer latencies say nothing about a 99.9th percentile.
const SAMPLES_MIN_P999: u64 = 1_000;

/// The most windows that a run may have: each costs about 8 KiB once it is used.
pub(crate) const WINDOWS_MAX: u64 = 30_000;

/// The windows of a run, by the instant a request was meant to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    window_ns: u64,
    /// Two digits, as long as the longest latency needs; none where nothing was recorded.
    windows: Vec<Option<Histogram<u32>>>,
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
        let Some(window) = self.windows.get_mut(index) else {
            return;
        };
        if window.is_none() {
            *window = Histogram::new(2).ok();
        }
        if let Some(window) = window {
            // It grows as it needs to.
            let _ = window.record_n(latency_ns, requests as u32);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), AdditionError> {
        let mut pairs = self.windows.iter_mut().zip(&other.windows);
        pairs.try_for_each(|(mine, theirs)| join(mine, theirs, |mine, theirs| mine.add(theirs)))
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
            .filter_map(|(index, window)| Some((index, window.as_ref()?)))
            .filter(|(_, window)| window.len() >= samples_min)
            .map(|(index, window)| (seconds(index), us(window.value_at_quantile(quantile))))
            .collect()
    }

    fn values(&self, quantile: f64) -> Vec<f64> {
        self.each(quantile).into_iter().map(|(_, us)| us).collect()
    }

    /// The median over windows of the 99.9th percentile, unless half of it may be the driver's
    /// lateness.
    fn p999_us(&self, late: &Self) -> Option<f64> {
        let middle = |windows: &Self| {
            let p999s = windows.each_of(0.999, SAMPLES_MIN_P999);
            let p999s: Vec<f64> = p999s.into_iter().map(|(_, us)| us).collect();
            (!p999s.is_empty()).then(|| rank(&p999s, 0.5))
        };
        middle(self).filter(|p999_us| middle(late).unwrap_or(0.0) <= p999_us / 2.0)
    }

    /// Windows of the first `closed_ns`, of a closed loop, that hold so few latencies that the
    /// server must have answered nothing for most of their time: fewer than a quantile needs, and
    /// fewer than half as many as a window has in the median. A closed loop sends nothing while it
    /// waits, so a long stall leaves one long latency and then such windows.
    fn starved(&self, closed_ns: u64) -> usize {
        let counts = || {
            let windows = self.windows.iter();
            windows.map(|window| window.as_ref().map_or(0, Histogram::len))
        };
        let usual = counts().filter(|count| *count >= SAMPLES_MIN);
        let usual = rank(&usual.map(|count| count as f64).collect::<Vec<_>>(), 0.5);
        let whole = (closed_ns / self.window_ns) as usize;
        let is_starved = |count: &u64| *count < SAMPLES_MIN && (*count as f64) < usual / 2.0;
        counts().take(whole).filter(is_starved).count()
    }

    /// The quantiles over windows, judged by those of the driver's lateness; `closed_ns` is how
    /// long a closed loop ran, `None` in open loop.
    pub(crate) fn quantiles(&self, late: &Self, closed_ns: Option<u64>) -> WindowQuantiles {
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
        let starved = closed_ns.map_or(0, |closed_ns| self.starved(closed_ns));
        result.stalled = (stalled + starved) as f64 / (longest.len() + starved) as f64;
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
        result.p999_us = self.p999_us(late);
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

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
        let quantiles = one_stalled().quantiles(&Windows::new(20 * MS, 100 * MS), None);
        assert_eq!((quantiles.count, quantiles.stalled), (5, 0.2));
        assert!(
            quantiles.p99_us.is_some_and(|us| (us - 10.0).abs() < 0.2),
            "{quantiles:?}"
        );
    }

    /// Goal: a closed loop's stall counts as long as it lasts. Method: ten windows; in the third a
    /// request waits until the seventh, so those between hold nothing, and the seventh little.
    #[test]
    fn windows_without_latencies_are_stalled_in_closed_loop() {
        let late = Windows::new(20 * MS, 205 * MS);
        let mut windows = Windows::new(20 * MS, 205 * MS);
        for window in [0, 1, 2, 7, 8, 9] {
            windows.record(window * 20 * MS, 10_000, 1000);
        }
        windows.record(2 * 20 * MS + 1, 85 * MS, 1);
        windows.record(6 * 20 * MS, 10_000, 99);
        let stalled = |closed_ns| windows.quantiles(&late, closed_ns).stalled;
        assert_eq!(stalled(Some(205 * MS)), 0.5, "the last, of 5 ms, is none");
        assert_eq!(stalled(Some(95 * MS)), 2.0 / 7.0, "it ended early");
        assert_eq!(stalled(None), 1.0 / 6.0, "open loop");
        let quantiles = windows.quantiles(&late, Some(205 * MS));
        assert_eq!(quantiles.count, 6);
    }

    /// Goal: a low rate is no stall. Method: windows of 90 to 130 latencies.
    #[test]
    fn windows_of_a_slow_closed_loop_are_not_stalled() {
        let late = Windows::new(20 * MS, 100 * MS);
        let mut windows = Windows::new(20 * MS, 100 * MS);
        for (window, requests) in [90, 130, 100, 95, 110].into_iter().enumerate() {
            windows.record(window as u64 * 20 * MS, 10_000, requests);
        }
        let quantiles = windows.quantiles(&late, Some(100 * MS));
        assert_eq!((quantiles.count, quantiles.stalled), (3, 0.0));
    }

    #[test]
    fn windows_that_the_driver_spoilt_are_refused() {
        let windows = one_stalled();
        let mut late = Windows::new(20 * MS, 100 * MS);
        for window in 0..5 {
            late.record(window * 20 * MS, 6_000, 500);
        }
        let quantiles = windows.quantiles(&late, None);
        assert!(quantiles.p99_us.is_none() && quantiles.not_measurable.is_some());
    }

    /// Goal: a window says nothing about a quantile beyond which it has next to nothing. Method:
    /// windows of 999 and of 1,000 latencies.
    #[test]
    fn small_windows_have_no_p999() {
        let p999_us = |count: u64| {
            let mut windows = Windows::new(20 * MS, 20 * MS);
            windows.record(0, 10_000, count - 2);
            windows.record(0, 3 * MS, 2);
            let late = Windows::new(20 * MS, 20 * MS);
            windows.quantiles(&late, None).p999_us
        };
        assert_eq!(p999_us(999), None);
        assert!(p999_us(1_000).is_some_and(|us| us > 2_900.0));
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
        let quantiles = windows.quantiles(&Windows::new(20 * MS, 100 * MS), None);
        assert!(quantiles.p99_us.is_none() && quantiles.not_measurable.is_some());
    }
}
