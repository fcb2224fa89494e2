//! Which quantiles a run could measure.
//!
//! A number is refused, with its reason, if the run cannot know it: when too few latencies lie
//! beyond it, when so many requests were never answered that it is only a lower bound, or when the
//! driver itself was late by as much. The driver's lateness is the time between the instant a
//! request was meant to be sent and the instant it was, without the time it waited for a
//! connection with room: that is the server's. Because a latency counts from the intended instant,
//! it contains the lateness; where the lateness' quantile is more than half of the latency's, the
//! larger part of the number may be the driver's own.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies that have to lie beyond a quantile for it to be one.
const BEYOND_MIN: f64 = 10.0;

/// The quantiles that are reported, with their names.
pub(crate) const QUANTILES: [(f64, &str); 6] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.95, "p95"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
];

/// Quantiles of latencies, in microseconds; `None` where the run could not measure one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Quantiles {
    /// Number of latencies.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// 99.99th percentile.
    pub p9999_us: Option<f64>,
    /// The longest that was seen.
    pub max_us: f64,
    /// Why a quantile is missing, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub not_measurable: BTreeMap<&'static str, String>,
}

/// What is known about a run's own faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'a> {
    /// The driver's lateness in nanoseconds; empty in closed loop.
    pub(crate) late: &'a Histogram<u64>,
    /// Share of the requests that were never answered.
    pub(crate) unanswered: f64,
    /// Whether the latencies contain the lateness, as they do from the intended instant on.
    pub(crate) contain_lateness: bool,
}

impl Judge<'_> {
    /// The quantiles of a histogram of nanoseconds.
    pub(crate) fn quantiles(&self, histogram: &Histogram<u64>) -> Quantiles {
        if histogram.is_empty() {
            return Quantiles::default();
        }
        let mut not_measurable = BTreeMap::new();
        let values = QUANTILES.map(|(quantile, name)| {
            let value = self.quantile(histogram, quantile);
            value.map_err(|why| not_measurable.insert(name, why)).ok()
        });
        let [p50_us, p90_us, p95_us, p99_us, p999_us, p9999_us] = values;
        Quantiles {
            count: histogram.len(),
            mean_us: histogram.mean() / 1000.0,
            p50_us,
            p90_us,
            p95_us,
            p99_us,
            p999_us,
            p9999_us,
            max_us: us(histogram.max()),
            not_measurable,
        }
    }

    /// One quantile in microseconds, or why it cannot be told.
    pub(crate) fn quantile(
        &self,
        histogram: &Histogram<u64>,
        quantile: f64,
    ) -> Result<f64, String> {
        let beyond = 1.0 - quantile;
        let needed = (BEYOND_MIN / beyond).round();
        if (histogram.len() as f64) < needed {
            return Err(format!("{} latencies of {needed} needed", histogram.len()));
        }
        if self.unanswered > beyond {
            let percent = 100.0 * self.unanswered;
            return Err(format!("{percent:.2} % of the requests were not answered"));
        }
        let value = us(histogram.value_at_quantile(quantile));
        if self.late.is_empty() {
            return Ok(value);
        }
        let late = us(self.late.value_at_quantile(quantile));
        let bound = if self.contain_lateness {
            value / 2.0
        } else {
            value
        };
        if late > bound {
            return Err(format!(
                "{value:.0} us, of which {late:.0} may be the driver's lateness"
            ));
        }
        Ok(value)
    }
}

impl Quantiles {
    /// One of [`QUANTILES`] by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        match name {
            "p50" => self.p50_us,
            "p90" => self.p90_us,
            "p95" => self.p95_us,
            "p99" => self.p99_us,
            "p99.9" => self.p999_us,
            "p99.99" => self.p9999_us,
            _ => None,
        }
    }
}

pub(crate) fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).unwrap();
        for &(ns, count) in values {
            histogram.record_n(ns, count).unwrap();
        }
        histogram
    }

    fn judged(latencies: &[(u64, u64)], late: &[(u64, u64)], unanswered: f64) -> Quantiles {
        let judge = Judge {
            late: &histogram(late),
            unanswered,
            contain_lateness: true,
        };
        judge.quantiles(&histogram(latencies))
    }

    #[test]
    fn too_few_latencies_give_no_tail() {
        let quantiles = judged(&[(10_000, 999)], &[], 0.0);
        assert!(quantiles.p50_us.is_some() && quantiles.p90_us.is_some());
        assert_eq!(quantiles.p99_us, None);
        assert_eq!(
            quantiles.not_measurable["p99"],
            "999 latencies of 1000 needed"
        );
        assert!(judged(&[(10_000, 1000)], &[], 0.0).p99_us.is_some());
        assert_eq!(judged(&[(10_000, 9_999)], &[], 0.0).p999_us, None);
    }

    /// Goal: a late driver's own stall is not printed as the server's tail, and what it did not
    /// touch is. Method: 2 % of the requests are 5 ms late, and so are their latencies.
    #[test]
    fn a_tail_of_the_drivers_own_is_refused() {
        let latencies = [(50_000, 98_000), (5_050_000, 2_000)];
        let late = [(1_000, 98_000), (5_000_000, 2_000)];
        let quantiles = judged(&latencies, &late, 0.0);
        assert!(quantiles.p50_us.is_some_and(|us| (us - 50.0).abs() < 1.0));
        assert!(quantiles.p90_us.is_some());
        assert_eq!((quantiles.p99_us, quantiles.p999_us), (None, None));
        assert!(quantiles.not_measurable["p99"].contains("the driver's lateness"));
        let on_time = judged(&latencies, &[(1_000, 100_000)], 0.0);
        assert!(on_time.p99_us.is_some_and(|us| us > 5000.0));
    }

    #[test]
    fn a_lower_bound_is_no_quantile() {
        let quantiles = judged(&[(50_000, 100_000)], &[], 0.02);
        assert!(quantiles.p90_us.is_some());
        assert_eq!(quantiles.p99_us, None);
        assert!(quantiles.not_measurable["p99"].contains("not answered"));
    }
}
