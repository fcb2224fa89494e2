//! Latency bounds, and whether a run met them.
//!
//! A bound such as p99 < 1 ms says that fewer than 1 % of the requests may take longer. A run
//! counts those that did, and that count has a range:
//!
//! * Latencies count from the intended instant, so they contain whatever the driver was late.
//!   Without it the server's own are shorter, never longer: a bound that holds with it is *met*.
//! * A bound is *missed* if too many requests took longer even when the driver's lateness is taken
//!   off, twice: it may have been as late in receiving as it was in sending.
//! * A few latencies prove little: both take the end of the 95 % interval (Wilson's) of the share.
//!
//! Between the two the run is *undecided*.

use std::str::FromStr;

use curtail_workload::quantity;
use hdrhistogram::Histogram;

use crate::{error::LoadError, measure::QUANTILES, report::Report};

/// Bounds that all have to hold: `p99<1ms,p99.9<5ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo(Vec<Bound>);

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    name: &'static str,
    quantile: f64,
    us_max: f64,
}

/// What a run says about a rate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Every bound held, whatever part the driver has in the latencies.
    Met,
    /// A bound did not hold, whatever part the driver has, or the server did not keep up.
    Missed(String),
    /// The run could not tell.
    Undecided(String),
}

/// What the driver knows of one run.
struct Evidence<'a> {
    latencies: &'a Histogram<u64>,
    late: &'a Histogram<u64>,
    /// Requests without an answer; they count among the latencies with what they have waited.
    unfinished: u64,
}

impl Verdict {
    /// In a word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed(_) => "missed",
            Self::Undecided(_) => "undecided",
        }
    }

    /// Why, unless it was met.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Met => "",
            Self::Missed(reason) | Self::Undecided(reason) => reason,
        }
    }
}

impl Slo {
    /// The bounds by quantile, in microseconds.
    pub(crate) fn bounds(&self) -> Vec<(&'static str, f64)> {
        let bound = |bound: &Bound| (bound.name, bound.us_max);
        self.0.iter().map(bound).collect()
    }

    pub(crate) fn judge(&self, report: &Report) -> Result<Verdict, LoadError> {
        if let Some(lost) = &report.lost {
            return Ok(Verdict::Undecided(lost.reason.clone()));
        }
        if report.faults() > 0 {
            let why = format!("{} wrong replies", report.faults());
            return Ok(Verdict::Missed(why));
        }
        let recorder = report.recorder();
        let evidence = Evidence {
            latencies: &recorder.sum(false, |_| true)?,
            late: recorder.late_histogram(),
            unfinished: report.counts.unfinished,
        };
        let verdicts: Vec<Verdict> = self.0.iter().map(|bound| bound.judge(&evidence)).collect();
        let first = |wanted: fn(&Verdict) -> bool| verdicts.iter().find(|v| wanted(v)).cloned();
        Ok(first(|verdict| matches!(verdict, Verdict::Missed(_)))
            .or_else(|| behind(report))
            .or_else(|| first(|verdict| matches!(verdict, Verdict::Undecided(_))))
            .unwrap_or(Verdict::Met))
    }

    /// Why no run of this driver can tell whether the bounds are kept, as a run without much load
    /// says: it alone is later than a bound allows.
    pub(crate) fn beyond_the_driver(&self, report: &Report) -> Option<String> {
        let late = report.recorder().late_histogram();
        self.0.iter().find_map(|bound| {
            let (lowest, _) = interval(above(late, bound.us_max), late.len())?;
            (lowest > 1.0 - bound.quantile).then(|| {
                let us = late.value_at_quantile(bound.quantile) as f64 / 1000.0;
                format!("the driver itself is {us:.0} us late at {}", bound.name)
            })
        })
    }
}

/// What a run says in which less was answered than was due. A driver that did not send is no fault
/// of the server's.
fn behind(report: &Report) -> Option<Verdict> {
    if report.keeps_up() {
        return None;
    }
    let (answered, due) = (report.rate, report.rate_due());
    let reason = format!("{answered:.0} of {due:.0} requests/s answered");
    let late = report.driver_lateness.as_ref();
    Some(match late.filter(|late| late.late_share > 0.5) {
        Some(late) => Verdict::Undecided(format!(
            "{reason}, and the driver was late itself (p50 {:.0} us)",
            late.p50_us
        )),
        None => Verdict::Missed(reason),
    })
}

impl Bound {
    fn judge(&self, evidence: &Evidence<'_>) -> Verdict {
        let Self {
            name,
            quantile,
            us_max,
        } = self;
        let (latencies, allowed) = (evidence.latencies, 1.0 - quantile);
        let slow = above(latencies, *us_max);
        let most = latencies.len().min(slow + evidence.unfinished);
        let least = evidence.surely_above(*us_max);
        let (Some((_, highest)), Some((lowest, _))) = (
            interval(most, latencies.len()),
            interval(least, latencies.len()),
        ) else {
            return Verdict::Undecided(format!("{name}: nothing was answered"));
        };
        if highest < allowed {
            return Verdict::Met;
        }
        let us = latencies.value_at_quantile(*quantile) as f64 / 1000.0;
        if lowest > allowed {
            return Verdict::Missed(format!("{name} {us:.0} us"));
        }
        let late_us = evidence.late.value_at_quantile(*quantile) as f64 / 1000.0;
        Verdict::Undecided(match interval(slow, latencies.len()) {
            Some((lowest, _)) if lowest > allowed => {
                format!("{name} {us:.0} us, of which {late_us:.0} may be the driver's lateness")
            }
            _ => format!(
                "{name} {us:.0} us is near the bound, and {} latencies are too few",
                latencies.len()
            ),
        })
    }
}

impl Evidence<'_> {
    /// At least so many requests took longer than the bound by the server's doing: with `d` for any
    /// lateness, those that took longer than the bound and twice `d`, less those with which the
    /// driver may have been later than `d` in sending or in receiving.
    fn surely_above(&self, us_max: f64) -> u64 {
        if self.late.is_empty() {
            return above(self.latencies, us_max);
        }
        let beyond = |late_ns: u64| {
            let late_us = late_ns as f64 / 1000.0;
            let slow = above(self.latencies, us_max + 2.0 * late_us);
            slow.saturating_sub(2 * above(self.late, late_us))
        };
        let quantiles = QUANTILES.iter().map(|(quantile, _)| *quantile).chain([1.0]);
        let lates = quantiles.map(|quantile| self.late.value_at_quantile(quantile));
        lates.map(beyond).max().unwrap_or(0)
    }
}

/// How many of a histogram of nanoseconds are longer than so many microseconds.
fn above(histogram: &Histogram<u64>, us: f64) -> u64 {
    histogram.len() - histogram.count_between(0, (us * 1000.0) as u64)
}

/// The 95 % interval of a share (Wilson's) of which a sample had `count` of `all`.
fn interval(count: u64, all: u64) -> Option<(f64, f64)> {
    const Z: f64 = 1.96;
    if all == 0 {
        return None;
    }
    let (n, share) = (all as f64, count as f64 / all as f64);
    let scale = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    Some(((middle - half).max(0.0), (middle + half).min(1.0)))
}

impl std::fmt::Display for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, Bound { name, us_max, .. }) in self.0.iter().enumerate() {
            let between = if index == 0 { "" } else { "," };
            if *us_max >= 1000.0 {
                write!(f, "{between}{name}<{}ms", us_max / 1000.0)?;
            } else {
                write!(f, "{between}{name}<{us_max}us")?;
            }
        }
        Ok(())
    }
}

/// `p99<1ms`, `p50<200us,p99.9<5ms`.
impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bound = |part: &str| -> Result<Bound, String> {
            let form = || format!("{part:?} is not a bound such as p99<1ms");
            let (name, time) = part.split_once('<').ok_or_else(form)?;
            let known = QUANTILES.iter().find(|(_, known)| *known == name.trim());
            let (quantile, name) = *known.ok_or_else(|| {
                let names: Vec<&str> = QUANTILES.iter().map(|(_, name)| *name).collect();
                format!("{name:?} is not one of {}", names.join(", "))
            })?;
            let us_max = quantity::ns(time.trim())
                .ok()
                .filter(|ns| *ns > 0)
                .map(|ns| ns as f64 / 1e3)
                .ok_or_else(form)?;
            Ok(Bound {
                name,
                quantile,
                us_max,
            })
        };
        text.split(',')
            .map(bound)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).unwrap();
        for &(us, count) in values {
            histogram.record_n(us * 1000, count).unwrap();
        }
        histogram
    }

    /// What p99 < 1 ms says of latencies, the driver's lateness, and requests without an answer.
    fn judged(latencies: &[(u64, u64)], late: &[(u64, u64)], unfinished: u64) -> Verdict {
        let slo: Slo = "p99<1ms".parse().unwrap();
        slo.0[0].judge(&Evidence {
            latencies: &histogram(latencies),
            late: &histogram(late),
            unfinished,
        })
    }

    /// Goal: latencies that are under the bound with all of the driver's lateness in them meet it.
    /// Method: all of 400 us, of which the driver was late by 390.
    #[test]
    fn an_upper_bound_under_the_limit_proves_that_it_is_met() {
        assert_eq!(judged(&[(400, 10_000)], &[(390, 10_000)], 0), Verdict::Met);
    }

    /// Goal: a tail that may be the driver's accuses nobody, one that cannot be accuses the server.
    #[test]
    fn only_what_the_driver_cannot_have_caused_is_missed() {
        let slow = [(100, 9_700), (3_000, 300)];
        let driver = [(1, 9_700), (2_900, 300)];
        let verdict = judged(&slow, &driver, 0);
        assert!(verdict.reason().contains("driver"), "{verdict:?}");
        assert_eq!(verdict.name(), "undecided");
        assert_eq!(judged(&slow, &[(1, 10_000)], 0).name(), "missed");
        // A driver that is a little late all the time does not hide a server that is much too slow.
        assert_eq!(judged(&[(9_000, 10_000)], &driver, 0).name(), "missed");
        assert_eq!(judged(&slow, &[], 0).name(), "missed", "closed loop");
    }

    /// Goal: shares near the allowed one are not decided by few latencies, and are by many.
    #[test]
    fn few_latencies_prove_little() {
        assert_eq!(
            judged(&[(100, 993), (3_000, 7)], &[], 0).name(),
            "undecided"
        );
        assert_eq!(judged(&[(100, 200)], &[], 0).name(), "undecided");
        assert_eq!(judged(&[(100, 99_300), (3_000, 700)], &[], 0), Verdict::Met);
        assert_eq!(
            judged(&[(100, 98_700), (3_000, 1_300)], &[], 0).name(),
            "missed"
        );
        assert_eq!(judged(&[], &[], 0).name(), "undecided");
    }

    #[test]
    fn what_was_not_answered_is_not_met() {
        assert_eq!(judged(&[(100, 10_000)], &[], 0), Verdict::Met);
        assert_eq!(judged(&[(100, 10_000)], &[], 200).name(), "undecided");
    }

    #[test]
    fn bounds_are_read_and_printed() {
        let slo: Slo = "p99<1ms,p99.9<1.5ms,p50<200us".parse().unwrap();
        assert_eq!(slo.to_string(), "p99<1ms,p99.9<1.5ms,p50<200us");
        for wrong in ["", "p99", "p99<", "p98<1ms", "p99<1", "p99<-1ms", "p99<xms"] {
            assert!(wrong.parse::<Slo>().is_err(), "{wrong:?}");
        }
    }
}
