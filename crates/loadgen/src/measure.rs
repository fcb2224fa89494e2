//! What a run measured: counts, whole-run histograms and short windows.
//!
//! Whole-run quantiles come from HDR histograms (three digits, 1 ns to 100 s). Beside them each
//! window of some milliseconds keeps a small histogram of its own; the median over windows of the
//! windows' p99 repeats within a few percent on a machine whose whole-run p99 shows only how often
//! the machine stopped its threads.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{error::LoadError, protocol::Reply, workload::Kind};

/// Quantiles of latencies, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Quantiles {
    /// Number of latencies.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// 99.99th percentile.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Quantiles inside each window, then over windows, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowQuantiles {
    /// Length of a window in milliseconds.
    pub window_ms: f64,
    /// Windows with at least 100 latencies; others are left out.
    pub count: usize,
    /// Share of the windows that hold a latency above 1 ms.
    pub stalled: f64,
    /// Median over windows of the median.
    pub p50_us: f64,
    /// Median over windows of the 90th percentile.
    pub p90_us: f64,
    /// Median over windows of the 99th percentile.
    pub p99_us: f64,
    /// Lower quartile over windows of the 99th percentile.
    pub p99_lower_quartile_us: f64,
    /// Upper quartile over windows of the 99th percentile.
    pub p99_upper_quartile_us: f64,
    /// Median over windows of the longest.
    pub max_us: f64,
    /// Every window's 99th percentile, to pool over runs.
    #[serde(skip)]
    pub p99s_us: Vec<f64>,
}

/// Windows with fewer latencies say nothing about a 99th percentile.
pub(crate) const SAMPLES_MIN: u64 = 100;

/// The most windows that a run may have: each costs 8 KiB once it is used.
pub(crate) const WINDOWS_MAX: u64 = 30_000;

/// Requests that ended in the measured time, by how they ended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests answered while measuring.
    pub done: u64,
    /// Reads that found their key; whole run.
    pub hits: u64,
    /// Reads that did not; whole run.
    pub misses: u64,
    /// Writes that were stored; whole run.
    pub stored: u64,
    /// Replies that were errors; whole run.
    pub errors: u64,
    /// Hits whose value had another length than was written; whole run.
    pub wrong_sizes: u64,
    /// Requests without an answer when the run ended (open loop).
    pub unfinished: u64,
}

/// One thread's measurements. Times are nanoseconds since the run's origin.
#[derive(Debug)]
pub(crate) struct Recorder {
    from_ns: u64,
    to_ns: u64,
    pub(crate) counts: Counts,
    get: Histogram<u64>,
    set: Histogram<u64>,
    lag: Histogram<u64>,
    windows: Windows,
}

#[derive(Debug)]
struct Windows {
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

impl Recorder {
    pub(crate) fn new(from: Duration, to: Duration, window: Duration) -> Result<Self, LoadError> {
        let (from_ns, to_ns) = (from.as_nanos() as u64, to.as_nanos() as u64);
        let window_ns = (window.as_nanos() as u64).max(1);
        let count = (to_ns - from_ns).div_ceil(window_ns);
        if count > WINDOWS_MAX {
            return Err(LoadError::Arguments(format!(
                "{count} windows are more than {WINDOWS_MAX}: use longer windows"
            )));
        }
        Ok(Self {
            from_ns,
            to_ns,
            counts: Counts::default(),
            get: histogram()?,
            set: histogram()?,
            lag: histogram()?,
            windows: Windows {
                window_ns,
                windows: vec![None; count as usize],
            },
        })
    }

    /// `requests` of one kind, meant for `intended_ns`, were answered at `now_ns`.
    pub(crate) fn latency(&mut self, kind: Kind, intended_ns: u64, now_ns: u64, requests: u64) {
        if (self.from_ns..self.to_ns).contains(&now_ns) {
            self.counts.done += requests;
        }
        self.latency_only(kind, intended_ns, now_ns, requests);
    }

    /// A request that was not answered when the run ended: its latency is at least this.
    pub(crate) fn unfinished(&mut self, kind: Kind, intended_ns: u64, now_ns: u64) {
        self.counts.unfinished += 1;
        self.latency_only(kind, intended_ns, now_ns, 1);
    }

    fn latency_only(&mut self, kind: Kind, intended_ns: u64, now_ns: u64, requests: u64) {
        if requests == 0 || !(self.from_ns..self.to_ns).contains(&intended_ns) {
            return;
        }
        let latency_ns = now_ns.saturating_sub(intended_ns);
        let histogram = match kind {
            Kind::Get => &mut self.get,
            Kind::Set => &mut self.set,
        };
        histogram.saturating_record_n(latency_ns, requests);
        let index = (intended_ns - self.from_ns) / self.windows.window_ns;
        self.windows.record(index as usize, latency_ns, requests);
    }

    /// The driver itself was this late with a request.
    pub(crate) fn lag(&mut self, intended_ns: u64, sent_ns: u64) {
        self.lag
            .saturating_record(sent_ns.saturating_sub(intended_ns));
    }

    /// What a reply's first line said, against the length that was written.
    pub(crate) fn reply(&mut self, reply: Reply, value_bytes_written: u32) {
        match reply {
            Reply::Hit { value_bytes } => {
                self.counts.hits += 1;
                if value_bytes != value_bytes_written as usize {
                    self.counts.wrong_sizes += 1;
                }
            }
            Reply::Miss => self.counts.misses += 1,
            Reply::Stored => self.counts.stored += 1,
            Reply::Error => self.counts.errors += 1,
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), LoadError> {
        let odd = |_| LoadError::Arguments("histograms of different shape".into());
        self.get.add(&other.get).map_err(odd)?;
        self.set.add(&other.set).map_err(odd)?;
        self.lag.add(&other.lag).map_err(odd)?;
        self.windows.merge(&other.windows);
        let (counts, more) = (&mut self.counts, &other.counts);
        counts.done += more.done;
        counts.hits += more.hits;
        counts.misses += more.misses;
        counts.stored += more.stored;
        counts.errors += more.errors;
        counts.wrong_sizes += more.wrong_sizes;
        counts.unfinished += more.unfinished;
        Ok(())
    }

    /// Quantiles of all requests, reads, writes, and of the driver's own lateness.
    pub(crate) fn quantiles(&self) -> [Quantiles; 4] {
        let mut all = self.get.clone();
        // Both were made by `histogram`, so that they fit.
        let _ = all.add(&self.set);
        [&all, &self.get, &self.set, &self.lag].map(quantiles)
    }

    pub(crate) fn window_quantiles(&self) -> WindowQuantiles {
        self.windows.quantiles()
    }
}

fn histogram() -> Result<Histogram<u64>, LoadError> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3)
        .map_err(|error| LoadError::Arguments(error.to_string()))
}

fn quantiles(histogram: &Histogram<u64>) -> Quantiles {
    if histogram.is_empty() {
        return Quantiles::default();
    }
    let at = |quantile| us(histogram.value_at_quantile(quantile));
    Quantiles {
        count: histogram.len(),
        mean_us: histogram.mean() / 1000.0,
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        p9999_us: at(0.9999),
        max_us: us(histogram.max()),
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl Windows {
    fn record(&mut self, index: usize, latency_ns: u64, requests: u64) {
        if let Some(window) = self.windows.get_mut(index) {
            window
                .get_or_insert_with(Window::empty)
                .record(latency_ns, requests);
        }
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => mine.merge(theirs),
                (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => {}
            }
        }
    }

    fn quantiles(&self) -> WindowQuantiles {
        let mut result = WindowQuantiles {
            window_ms: self.window_ns as f64 / 1e6,
            ..WindowQuantiles::default()
        };
        let used = |window: &&Window| window.total >= SAMPLES_MIN;
        let windows: Vec<_> = self
            .windows
            .iter()
            .flatten()
            .map(Box::as_ref)
            .filter(used)
            .collect();
        let each = |quantile: f64| -> Vec<f64> {
            let at = |window: &&Window| us(window.at(quantile));
            windows.iter().map(at).collect()
        };
        if windows.is_empty() {
            return result;
        }
        let longest: Vec<f64> = windows.iter().map(|window| us(window.max_ns)).collect();
        let stalled = longest.iter().filter(|&&max_us| max_us > 1000.0).count();
        result.count = windows.len();
        result.stalled = stalled as f64 / windows.len() as f64;
        result.p50_us = rank(&each(0.5), 0.5);
        result.p90_us = rank(&each(0.9), 0.5);
        result.p99s_us = each(0.99);
        result.p99_us = rank(&result.p99s_us, 0.5);
        result.p99_lower_quartile_us = rank(&result.p99s_us, 0.25);
        result.p99_upper_quartile_us = rank(&result.p99s_us, 0.75);
        result.max_us = rank(&longest, 0.5);
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

    fn recorder() -> Recorder {
        let ms = Duration::from_millis;
        Recorder::new(ms(100), ms(200), ms(20)).unwrap()
    }

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

    /// Goal: the windows' median ignores one bad window that ruins the whole run's p99. Method:
    /// four windows of 10 us and one where every request took 5 ms.
    #[test]
    fn one_stalled_window_does_not_move_the_windows_median() {
        let mut recorder = recorder();
        for window in 0..5 {
            for request in 0..1000 {
                let intended = 100 * MS + window * 20 * MS + request;
                let latency = if window == 3 { 5 * MS } else { 10_000 };
                recorder.latency(Kind::Get, intended, intended + latency, 1);
            }
        }
        let windows = recorder.window_quantiles();
        assert_eq!((windows.count, windows.stalled), (5, 0.2));
        assert!((windows.p99_us - 10.0).abs() < 0.2, "{windows:?}");
        assert!(recorder.quantiles()[0].p99_us > 4900.0);
    }

    #[test]
    fn only_what_falls_into_the_measured_time_counts() {
        let mut recorder = recorder();
        recorder.latency(Kind::Get, 99 * MS, 101 * MS, 1); // meant before, done within
        recorder.latency(Kind::Get, 150 * MS, 150 * MS + 5000, 3);
        recorder.latency(Kind::Set, 199 * MS, 201 * MS, 1); // meant within, done after
        recorder.unfinished(Kind::Get, 180 * MS, 280 * MS);
        let [all, get, set, _] = recorder.quantiles();
        assert_eq!(recorder.counts.done, 4);
        assert_eq!((all.count, get.count, set.count), (5, 4, 1));
        assert_eq!(recorder.counts.unfinished, 1);
        assert!(all.max_us > 99_000.0);
    }

    #[test]
    fn ranks_lie_between_their_neighbours() {
        assert_eq!(rank(&[], 0.5), 0.0);
        assert_eq!(rank(&[3.0, 1.0], 0.5), 2.0);
        assert_eq!(rank(&[5.0, 1.0, 3.0], 0.25), 2.0);
        assert_eq!(rank(&[5.0, 1.0, 3.0], 1.0), 5.0);
    }

    #[test]
    fn threads_add_up() {
        let (mut one, mut two) = (recorder(), recorder());
        one.latency(Kind::Get, 110 * MS, 111 * MS, 60);
        two.latency(Kind::Get, 112 * MS, 114 * MS, 60);
        two.latency(Kind::Get, 170 * MS, 171 * MS, 200);
        two.reply(Reply::Hit { value_bytes: 3 }, 4);
        one.merge(&two).unwrap();
        assert_eq!(one.quantiles()[0].count, 320);
        assert_eq!(one.window_quantiles().count, 2);
        assert_eq!((one.counts.hits, one.counts.wrong_sizes), (1, 1));
    }

    #[test]
    fn too_many_windows_are_refused() {
        let seconds = Duration::from_secs;
        let window = Duration::from_millis(20);
        assert!(Recorder::new(seconds(0), seconds(10_000), window).is_err());
    }
}
