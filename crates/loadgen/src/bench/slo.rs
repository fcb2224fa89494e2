//! What a server is asked to keep, and whether a run kept it.

use std::str::FromStr;

use crate::{measure::QUANTILES, report::Report};

/// Bounds that all have to hold: `p99<1ms,p99.9<5ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo(Vec<Bound>);

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    name: &'static str,
    us_max: f64,
}

/// What a run says about a rate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Every bound held.
    Met,
    /// A bound did not hold, or the server did not keep up.
    Missed(String),
    /// The run could not tell.
    NotMeasurable(String),
}

impl Verdict {
    /// In two words at most.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed(_) => "missed",
            Self::NotMeasurable(_) => "not measurable",
        }
    }

    /// Why, unless it was met.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Met => "",
            Self::Missed(reason) | Self::NotMeasurable(reason) => reason,
        }
    }
}

impl Slo {
    /// The bounds by quantile, in microseconds.
    pub(crate) fn bounds(&self) -> Vec<(&'static str, f64)> {
        let bound = |bound: &Bound| (bound.name, bound.us_max);
        self.0.iter().map(bound).collect()
    }

    pub(crate) fn judge(&self, report: &Report) -> Verdict {
        if !report.keeps_up() || report.counts.unfinished > 0 {
            // A driver that did not send is no fault of the server's.
            let late = report.driver_lateness.as_ref();
            let (answered, due) = (report.rate, report.rate_due());
            let reason = format!("{answered:.0} of {due:.0} requests/s answered");
            return match late.filter(|late| late.late_share > 0.5) {
                Some(late) => Verdict::NotMeasurable(format!(
                    "{reason}, and the driver was late itself (p50 {:.0} us)",
                    late.p50_us
                )),
                None => Verdict::Missed(reason),
            };
        }
        if report.faults() > 0 {
            return Verdict::Missed(format!("{} wrong replies", report.faults()));
        }
        let verdicts: Vec<Verdict> = self.0.iter().map(|bound| bound.judge(report)).collect();
        let worst = |wanted: fn(&Verdict) -> bool| verdicts.iter().find(|v| wanted(v)).cloned();
        worst(|verdict| matches!(verdict, Verdict::Missed(_)))
            .or_else(|| worst(|verdict| matches!(verdict, Verdict::NotMeasurable(_))))
            .unwrap_or(Verdict::Met)
    }
}

impl Bound {
    fn judge(&self, report: &Report) -> Verdict {
        let Self { name, us_max } = self;
        match report.all.get(name) {
            Some(us) if us < *us_max => Verdict::Met,
            Some(us) => Verdict::Missed(format!("{name} {us:.0} us")),
            None => {
                let reason = report.all.not_measurable.get(name);
                let reason = reason.map_or("nothing was answered", String::as_str);
                Verdict::NotMeasurable(format!("{name}: {reason}"))
            }
        }
    }
}

impl std::fmt::Display for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, Bound { name, us_max }) in self.0.iter().enumerate() {
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
            let (_, name) = known.ok_or_else(|| {
                let names: Vec<&str> = QUANTILES.iter().map(|(_, name)| *name).collect();
                format!("{name:?} is not one of {}", names.join(", "))
            })?;
            let us_max = super::quantity::time_us(time.trim()).ok_or_else(form)?;
            Ok(Bound { name, us_max })
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

    #[test]
    fn bounds_are_read_and_printed() {
        let slo: Slo = "p99<1ms,p99.9<1.5ms,p50<200us".parse().unwrap();
        assert_eq!(slo.to_string(), "p99<1ms,p99.9<1.5ms,p50<200us");
        for wrong in ["", "p99", "p99<", "p98<1ms", "p99<1", "p99<-1ms", "p99<xms"] {
            assert!(wrong.parse::<Slo>().is_err(), "{wrong:?}");
        }
    }
}
