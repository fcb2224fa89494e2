//! Medians, ratios and rows.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};

use super::super::middle;
use super::load::Step;

/// Rows in the simulator's form.
#[derive(Default)]
pub(super) struct Rows {
    text: String,
}

impl Rows {
    /// Adds one number of a figure; nothing where there is none.
    pub(super) fn add(
        &mut self,
        (figure, series, params): (&str, &str, &str),
        x: f64,
        metric: &str,
        value: Option<f64>,
    ) {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = writeln!(
                self.text,
                "{figure},{series},{params},{x:.3},{metric},{value:.4},"
            );
        }
    }

    /// What every point has.
    pub(super) fn add_point(&mut self, of: (&str, &str, &str), x: f64, steps: &[&Step]) {
        let middle = |of: &dyn Fn(&Step) -> Option<f64>| median(steps, of);
        let all = [
            ("ack_p50_us", middle(&|step| step.accepted[0])),
            ("ack_p99_us", middle(&|step| step.accepted[2])),
            ("read_p50_us", middle(&|step| step.read[0])),
            ("read_p99_us", middle(&|step| step.read[2])),
            ("nack_share", middle(&|step| Some(step.refused))),
            ("backlog_p50", middle(&|step| Some(step.backlog_p50))),
            ("backlog_p99", middle(&|step| Some(step.backlog_p99))),
            ("done_mops", middle(&|step| Some(step.rate / 1e6))),
            ("offered_mops", middle(&|step| Some(step.offered / 1e6))),
        ];
        for (metric, value) in all {
            self.add(of, x, metric, value);
        }
    }

    /// Writes all of them to a file, and says where that is.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        fs::write(path, self.csv()).with_context(|| path.display().to_string())?;
        println!("\nrows: {}", path.display());
        Ok(())
    }

    /// All of them, with a head line.
    fn csv(&self) -> String {
        format!("figure,series,params,x,metric,value,paper\n{}", self.text)
    }
}

/// The median of what `of` gives; `None` if it never gives anything.
pub(super) fn median(steps: &[&Step], of: impl Fn(&Step) -> Option<f64>) -> Option<f64> {
    middle(steps.iter().filter_map(|step| of(step)).collect())
}

/// The median of the ratios of what two servers gave in the same round.
pub(super) fn ratio(
    ours: &[&Step],
    others: &[&Step],
    of: impl Fn(&Step) -> Option<f64>,
) -> Option<f64> {
    let paired = ours.iter().filter_map(|one| {
        let other = others.iter().find(|other| other.round == one.round)?;
        Some(of(one)? / of(other)?)
    });
    middle(paired.collect())
}

/// Some numbers of one cell, with a stroke between: `5.1 / 10 / -`.
pub(super) fn cell(values: &[Option<f64>]) -> String {
    let words: Vec<String> = values.iter().map(|value| word(*value)).collect();
    words.join(" / ")
}

fn word(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() < 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(round: u64, p50: f64) -> Step {
        Step {
            target: 0,
            offered: 0.0,
            round,
            rate: 0.0,
            accepted: [Some(p50), None, None],
            sent: [None; 3],
            read: [None; 3],
            refused: 0.0,
            backlog_p50: 0.0,
            backlog_p99: 0.0,
            late_p99: 0.0,
        }
    }

    /// Goal: ratios are taken within a round, and only then is their median.
    #[test]
    fn ratios_are_paired() {
        let ours = [step(0, 10.0), step(1, 20.0), step(2, 90.0)];
        let others = [step(2, 30.0), step(0, 10.0), step(1, 10.0)];
        let [ours, others] = [&ours, &others].map(|steps| steps.iter().collect::<Vec<_>>());
        let p50 = |step: &Step| step.accepted[0];
        assert_eq!(ratio(&ours, &others, p50), Some(2.0));
        assert_eq!(median(&ours, p50), Some(20.0));
        assert_eq!(cell(&[Some(5.14), Some(10.4), None]), "5.1 / 10 / -");
        let mut rows = Rows::default();
        rows.add_point(("f", "s", "a=1"), 0.5, &ours);
        assert!(rows.csv().contains("\nf,s,a=1,0.500,ack_p50_us,20.0000,\n"));
    }
}
