//! What one run's outcome looks like, to programs (JSON) and to people (a table).

use std::{fmt::Write, time::Instant};

use curtail_report::Table;
use serde::Serialize;

use crate::{
    drive::{Lost, Pace, Plan, Usage, WATCH_STEP},
    error::LoadError,
    measure::{
        Counts, Judge, Lateness, NativeReport, Operation, QUANTILES, Quantiles, Recorder,
        WindowQuantiles,
    },
};

/// The outcome of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Offered load in requests a second; none in closed loop.
    pub rate_offered: Option<f64>,
    /// Seconds measured; fewer than asked for if the run was ended early.
    pub seconds: f64,
    /// Requests answered a second.
    pub rate: f64,
    /// How requests ended.
    pub counts: Counts,
    /// The server's processor time per request in nanoseconds, if its process was named.
    pub server_ns_per_request: Option<f64>,
    /// Cores that the server used.
    pub server_cores: Option<f64>,
    /// Cores that the driver used.
    pub driver_cores: f64,
    /// Latency of all requests: in open loop from the instant they were meant to be sent.
    pub all: Quantiles,
    /// Latency of reads.
    pub get: Quantiles,
    /// Latency of everything else.
    pub set: Quantiles,
    /// Time from the real sending to the answer, in open loop.
    pub service: Option<Quantiles>,
    /// Latency of each operation and size class.
    pub classes: Vec<ClassReport>,
    /// How late the driver itself was, in open loop.
    pub driver_lateness: Option<Lateness>,
    /// Latency by windows.
    pub windows: WindowQuantiles,
    /// What only the native protocol tells: accepted, result and read apart; refusals and backlog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeReport>,
    /// What casts doubt on the numbers.
    pub warnings: Vec<Warning>,
    /// Why the run ended before its time, if the server or a connection did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    #[serde(skip)]
    recorder: Recorder,
    #[serde(skip)]
    began: Instant,
}

/// A server that answers a smaller share of what is offered does not keep up.
const KEEPS_UP: f64 = 0.98;

/// Something that casts doubt on a run's numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    /// `driver late`, `driver busy`, `overload`, `unanswered`, `wrong replies` or `misses`.
    pub kind: &'static str,
    /// With numbers, for a person.
    pub text: String,
}

/// One operation and size class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    /// `get hit`, `get miss`, `set`, `delete` and so on.
    pub operation: &'static str,
    /// Lengths of the values; empty where there is no value or one class.
    pub size: String,
    /// Latency.
    pub latency: Quantiles,
    /// Time from the real sending to the answer, in open loop.
    pub service: Option<Quantiles>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, recorder: Recorder, usage: Usage) -> Result<Self, LoadError> {
        let counts = recorder.counts.clone();
        let seconds = usage.wall.min(plan.duration).as_secs_f64().max(1e-9);
        let per_request =
            |time: std::time::Duration| time.as_nanos() as f64 / counts.done.max(1) as f64;
        let rate_offered = plan.pace.rate(plan.warm_up, plan.duration);
        let lateness = recorder.lateness();
        let is_timed = lateness.count > 0;
        let judge = recorder.judge(true);
        let service_judge = recorder.judge(false);
        let classes = recorder.classes().map(|class| ClassReport {
            operation: class.operation.name(),
            size: class.size,
            latency: judge.quantiles(class.response),
            service: class
                .service
                .map(|service| service_judge.quantiles(service)),
        });
        let is_closed = matches!(plan.pace, Pace::Closed { .. });
        let ran = match usage.wall >= plan.duration {
            true => plan.duration,
            // The driver's threads may have ended a step before that was noticed.
            false => usage.wall.saturating_sub(WATCH_STEP),
        };
        let closed_ns = is_closed.then_some(ran.as_nanos() as u64);
        let mut report = Self {
            rate_offered,
            seconds,
            rate: counts.done as f64 / seconds,
            server_ns_per_request: usage.server.map(per_request),
            server_cores: usage
                .server
                .map(|time| time.as_secs_f64() / usage.wall.as_secs_f64()),
            driver_cores: usage.driver.as_secs_f64() / usage.wall.as_secs_f64(),
            counts,
            all: judge.quantiles(&recorder.sum(false, |_| true)?),
            get: judge.quantiles(&recorder.sum(false, Operation::is_read)?),
            set: judge.quantiles(&recorder.sum(false, |operation| !operation.is_read())?),
            service: match is_timed {
                true => Some(service_judge.quantiles(&recorder.sum(true, |_| true)?)),
                false => None,
            },
            classes: classes.collect(),
            driver_lateness: is_timed.then_some(lateness),
            windows: recorder.window_quantiles(closed_ns),
            native: native(&recorder, &judge)?,
            warnings: Vec::new(),
            lost: None,
            began: usage.began,
            recorder,
        };
        report.warnings = report.doubts(plan);
        Ok(report)
    }

    /// Replies that are not what a sound server gives to keys that were preloaded.
    pub fn faults(&self) -> u64 {
        let counts = &self.counts;
        counts.errors + counts.wrong_sizes + counts.torn + counts.foreign + counts.stale
    }

    /// The report as one JSON object on one line.
    pub fn json(&self) -> Result<String, LoadError> {
        json(self)
    }

    /// Everything that was recorded.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// When measuring began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Adds something that casts doubt on the numbers.
    pub(crate) fn doubt(&mut self, kind: &'static str, text: String) {
        self.warnings.push(Warning { kind, text });
    }

    /// The offered load, or the rate that a closed loop reached.
    pub(crate) fn load(&self) -> f64 {
        self.rate_offered.unwrap_or(self.rate)
    }

    fn doubts(&self, plan: &Plan) -> Vec<Warning> {
        let mut doubts = Vec::new();
        let mut doubt = |kind: &'static str, text: String| doubts.push(Warning { kind, text });
        let counts = &self.counts;
        let late = self.driver_lateness.as_ref();
        if let Some(late) = late.filter(|late| late.late_share > 0.01) {
            let text = format!(
                "the driver, which sends the load, was late itself: {:.1} % of the requests by \
                 more than {:.0} us (p99 {:.0}, longest {:.0} us)",
                100.0 * late.late_share,
                late.limit_us,
                late.p99_us,
                late.max_us
            );
            doubt("driver late", text);
        }
        let threads = plan.threads as f64;
        let is_closed = self.rate_offered.is_none() && !plan.spin;
        if is_closed && self.driver_cores > 0.95 * threads {
            let text = format!(
                "the driver used {:.2} of its {threads:.0} cores: it, not the server, may be the \
                 limit",
                self.driver_cores
            );
            doubt("driver busy", text);
        }
        if !self.keeps_up() {
            let (due, answered) = (self.rate_due(), self.rate);
            let text = format!("of {due:.0} requests/s {answered:.0} were answered");
            doubt("overload", text);
        }
        if counts.unfinished > 0 {
            let text = format!("{} requests were never answered", counts.unfinished);
            doubt("unanswered", text);
        }
        for (number, what) in [
            (counts.errors, "replies were errors"),
            (counts.wrong_sizes, "values had a wrong length"),
            (counts.torn, "values were torn"),
            (counts.foreign, "values belonged to another key"),
            (counts.stale, "values were stale"),
        ] {
            if number > 0 {
                doubt("wrong replies", format!("{number} {what}"));
            }
        }
        let reads = (counts.hits + counts.misses).max(1);
        if counts.misses * 2 > reads {
            let percent = 100.0 * counts.misses as f64 / reads as f64;
            let text = format!("{percent:.0} % of the reads missed: were the keys stored?");
            doubt("misses", text);
        }
        doubts
    }

    /// Whether as much was answered as was due. What was due is counted, because a Poisson process
    /// of a rate has more or fewer arrivals than that; what was answered of requests due earlier
    /// stands for what is answered later.
    pub(crate) fn keeps_up(&self) -> bool {
        self.rate_offered.is_none() || self.counts.done as f64 >= KEEPS_UP * self.all.count as f64
    }

    /// Requests a second that were due while measuring.
    pub(crate) fn rate_due(&self) -> f64 {
        self.all.count as f64 / self.seconds
    }

    /// The report as a table of some lines.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let counts = &self.counts;
        writeln!(
            text,
            "{:.0} requests/s over {:.1} s; hits {}, misses {}, stored {}, changed {}, refused {}, \
             errors {}, wrong sizes {}, unfinished {}",
            self.rate,
            self.seconds,
            counts.hits,
            counts.misses,
            counts.stored,
            counts.changed,
            counts.refused,
            counts.errors,
            counts.wrong_sizes,
            counts.unfinished
        )?;
        if counts.verified > 0 {
            writeln!(
                text,
                "{} values verified; torn {}, foreign {}, stale {}",
                counts.verified, counts.torn, counts.foreign, counts.stale
            )?;
        }
        if let (Some(ns), Some(cores)) = (self.server_ns_per_request, self.server_cores) {
            writeln!(
                text,
                "server {ns:.0} ns of CPU per request, {cores:.2} cores"
            )?;
        }
        writeln!(text, "driver {:.2} cores", self.driver_cores)?;
        text.push_str(&self.latencies().text());
        if let Some(native) = &self.native {
            text.push_str(&native.summary());
        }
        self.write_windows(text)?;
        self.write_reasons(text)
    }

    fn latencies(&self) -> Table {
        let header = [
            "latency, us",
            "count",
            "mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
        ];
        let mut table = Table::new(&header, &[0]);
        row(&mut table, "all", &self.all);
        if let Some(service) = &self.service {
            row(&mut table, "  service time", service);
        }
        if self.classes.len() > 1 {
            for class in &self.classes {
                let name = format!("  {} {}", class.operation, class.size);
                row(&mut table, name.trim_end(), &class.latency);
            }
        }
        if let Some(late) = &self.driver_lateness {
            let [p50, p99, p999, max] =
                [late.p50_us, late.p99_us, late.p999_us, late.max_us].map(|us| format!("{us:.1}"));
            let blank = String::new;
            table.row(&[
                "driver late".into(),
                late.count.to_string(),
                blank(),
                p50,
                blank(),
                p99,
                p999,
                max,
            ]);
        }
        if let Some(native) = &self.native {
            row(&mut table, "writes, until accepted", &native.accepted);
            row(&mut table, "writes, until the result", &native.result);
            row(&mut table, "reads", &native.read);
        }
        let w = &self.windows;
        if w.not_measurable.is_none() {
            table.row(&[
                format!("{:.0} ms windows", w.window_ms),
                w.count.to_string(),
                String::new(),
                cell(w.p50_us),
                cell(w.p90_us),
                cell(w.p99_us),
                String::new(),
                format!("{:.1}", w.max_us),
            ]);
        }
        table
    }

    fn write_windows(&self, text: &mut String) -> std::fmt::Result {
        let w = &self.windows;
        if let Some(reason) = &w.not_measurable {
            let name = format!("{:.0} ms windows", w.window_ms);
            return writeln!(text, "{name}: not measurable: {reason}");
        }
        writeln!(
            text,
            "windows' p99: quartiles {} to {} us; {:.1} % of windows stalled above 1 ms",
            cell(w.p99_lower_quartile_us),
            cell(w.p99_upper_quartile_us),
            100.0 * w.stalled
        )
    }

    fn write_reasons(&self, text: &mut String) -> std::fmt::Result {
        for (_, name) in QUANTILES.iter().filter(|(_, name)| *name != "p99.99") {
            if let Some(reason) = self.all.not_measurable.get(name) {
                writeln!(text, "{name} not measurable: {reason}")?;
            }
        }
        for warning in &self.warnings {
            writeln!(text, "warning: {}", warning.text)?;
        }
        Ok(())
    }
}

fn row(table: &mut Table, name: &str, q: &Quantiles) {
    if q.count > 0 {
        table.row(&[
            name.to_owned(),
            q.count.to_string(),
            format!("{:.1}", q.mean_us),
            cell(q.p50_us),
            cell(q.p90_us),
            cell(q.p99_us),
            cell(q.p999_us),
            format!("{:.1}", q.max_us),
        ]);
    }
}

/// Latencies by what a request waited for, and what the sessions counted.
fn native(recorder: &Recorder, judge: &Judge<'_>) -> Result<Option<NativeReport>, LoadError> {
    let Some(record) = &recorder.native else {
        return Ok(None);
    };
    let is_accepted = |operation| operation == Operation::Accepted;
    let latency = |choose: &dyn Fn(Operation) -> bool| -> Result<Quantiles, LoadError> {
        Ok(judge.quantiles(&recorder.sum(false, choose)?))
    };
    let mut report = record.report();
    report.accepted = latency(&is_accepted)?;
    report.read = latency(&Operation::is_read)?;
    report.result = latency(&|operation| !is_accepted(operation) && !operation.is_read())?;
    Ok(Some(report))
}

/// A value as one JSON object on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<String, LoadError> {
    serde_json::to_string(value).map_err(|error| LoadError::Arguments(error.to_string()))
}

/// A number, or a mark that it could not be measured.
pub(crate) fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.1}"))
}
