//! One run of the driver against some servers, and what it measured.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::super::report;

/// What one server gave at one load in one round; times in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Its place among the targets.
    pub(super) target: usize,
    /// Requests a second that were to come; 0 in a closed loop.
    pub(super) offered: f64,
    pub(super) round: u64,
    /// Requests answered a second.
    pub(super) rate: f64,
    /// Of writes, from when they were due until they were accepted: p50, p90, p99.
    pub(super) accepted: [Option<f64>; 3],
    /// The same, from when they were first sent.
    pub(super) sent: [Option<f64>; 3],
    /// Of reads: p50, p90, p99.
    pub(super) read: [Option<f64>; 3],
    /// Share of the transmissions that were refused.
    pub(super) refused: f64,
    pub(super) backlog_p50: f64,
    pub(super) backlog_p99: f64,
    /// By how much the driver itself was late: p99.
    pub(super) late_p99: f64,
}

/// Runs the driver and reads its report.
pub(super) fn drive(command: &mut Command, labels: &[String]) -> Result<Vec<Step>> {
    steps(&report(command)?, labels)
}

/// What the server reaches to which `command` sends in a closed loop, in requests a second.
pub(super) fn capacity(command: &mut Command, labels: &[String]) -> Result<f64> {
    command.args(["--repeat", "3", "--warm-up", "0.1", "--duration", "0.4"]);
    let closed = drive(command, labels)?;
    let capacity = closed.iter().map(|step| step.rate).fold(0.0, f64::max);
    if capacity < 1.0 {
        bail!("RawRPC answered nothing");
    }
    Ok(capacity)
}

fn steps(report: &Value, labels: &[String]) -> Result<Vec<Step>> {
    let all = report["steps"]
        .as_array()
        .context("a report without steps")?;
    all.iter().map(|step| one(step, labels)).collect()
}

fn one(step: &Value, labels: &[String]) -> Result<Step> {
    let native = &step["native"];
    let label = step["target"].as_str().context("a step without target")?;
    let target = labels.iter().position(|known| known == label);
    let classes = step["classes"].as_array().map_or(&[][..], Vec::as_slice);
    let accepted = classes
        .iter()
        .find(|class| class["operation"] == "accepted");
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    Ok(Step {
        target: target.with_context(|| format!("{label} was not asked for"))?,
        offered: number(&step["rate_offered"]),
        round: step["round"].as_u64().unwrap_or(0),
        rate: number(&step["rate"]),
        accepted: quantiles(&native["accepted"]),
        sent: accepted.map_or([None; 3], |class| quantiles(&class["service"])),
        read: quantiles(&native["read"]),
        refused: number(&native["nack_share"]),
        backlog_p50: number(&native["backlog_p50"]),
        backlog_p99: number(&native["backlog_p99"]),
        late_p99: number(&step["driver_lateness"]["p99_us"]),
    })
}

fn quantiles(value: &Value) -> [Option<f64>; 3] {
    ["p50_us", "p90_us", "p99_us"].map(|name| value[name].as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the figures of a report are found where the driver writes them.
    #[test]
    fn a_report_is_read() {
        let text = r#"{"steps": [{"target": "xdp", "rate_offered": 1000.0, "round": 2,
            "rate": 990.5, "driver_lateness": {"p99_us": 3.0},
            "classes": [{"operation": "accepted", "service": {"p50_us": 4.0, "p99_us": 9.0}}],
            "native": {"accepted": {"p50_us": 5.0, "p90_us": null, "p99_us": 8.0},
                       "read": {"p50_us": 30.0}, "nack_share": 0.25, "backlog_p99": 7}}]}"#;
        let labels = ["raw".to_owned(), "xdp".to_owned()];
        let read = steps(&serde_json::from_str(text).unwrap(), &labels).unwrap();
        let step = &read[0];
        assert_eq!((step.target, step.round, step.rate), (1, 2, 990.5));
        assert_eq!(step.accepted, [Some(5.0), None, Some(8.0)]);
        assert_eq!(step.sent, [Some(4.0), None, Some(9.0)]);
        assert_eq!((step.refused, step.backlog_p99), (0.25, 7.0));
        let strange = serde_json::from_str(r#"{"steps": [{"target": "else"}]}"#).unwrap();
        assert!(steps(&strange, &labels).is_err());
    }
}
