//! Everything that a bench found out, as programs read it.
//!
//! The fields are described in `docs/reference/bench-report.md`; `format` changes when one of them
//! changes its meaning.

use std::{collections::BTreeMap, fs};

use serde::Serialize;

use super::{
    arguments::{Setting, Target},
    search::Found,
    slo::Verdict,
};
use crate::{
    blocking_connection,
    drive::{Plan, epoch_ns},
    error::LoadError,
    measure::rank,
    report::{Report, json},
    request_source::Load,
    text_protocol::Protocol,
};

/// The whole outcome.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Document {
    pub(super) format: u32,
    /// The command line.
    pub(super) command: String,
    /// When it began, in UTC.
    pub(super) started: String,
    pub(super) machine: Machine,
    pub(super) load: LoadText,
    pub(super) targets: Vec<TargetText>,
    pub(super) slo: Option<String>,
    /// Every run in the order in which they were made.
    pub(super) steps: Vec<Step>,
    /// By target, where the highest rate was searched for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) searches: BTreeMap<String, Found>,
    /// Why there are fewer runs than were asked for, or a shorter one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partial: Option<String>,
    /// What casts doubt on the numbers: one of each kind for each target.
    pub(super) warnings: Vec<String>,
    #[serde(skip)]
    pub(super) bounds: Vec<(&'static str, f64)>,
}

/// Where the driver ran.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory_gib: f64,
    pub(super) kernel: String,
    pub(super) version: &'static str,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LoadText {
    pub(super) name: String,
    /// In full.
    pub(super) workload: String,
    pub(super) protocol: Protocol,
    pub(super) keys: u64,
    pub(super) connections: usize,
    pub(super) threads: usize,
    pub(super) pipeline: usize,
    pub(super) seconds: f64,
    pub(super) warm_up_seconds: f64,
    pub(super) seed: u64,
    pub(super) fill: bool,
    pub(super) verify: bool,
    pub(super) spin: bool,
    pub(super) pregenerated: bool,
}

/// Who was asked.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TargetText {
    pub(super) label: String,
    pub(super) address: String,
    /// What the server calls itself.
    pub(super) server: Option<String>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    pub(super) target: String,
    pub(super) round: usize,
    /// `met`, `missed` or `undecided`, where there were bounds.
    pub(super) slo: Option<&'static str>,
    #[serde(skip)]
    pub(super) verdict: Option<Verdict>,
    #[serde(flatten)]
    pub(super) report: Report,
}

/// All runs of one target at one load.
#[derive(Clone, Debug)]
pub(super) struct Point<'a> {
    pub(super) load: f64,
    pub(super) steps: Vec<&'a Step>,
}

impl Document {
    pub(super) fn new(setting: &Setting) -> Result<Self, LoadError> {
        let targets = setting.targets.iter().zip(&setting.plans);
        let text = |(target, plan): (&Target, &Plan)| -> Result<TargetText, LoadError> {
            let Load {
                protocol, login, ..
            } = &plan.load;
            Ok(TargetText {
                label: target.label.clone(),
                address: target.address.clone(),
                server: blocking_connection::server_version(
                    &target.address,
                    *protocol,
                    login.as_ref(),
                )?,
            })
        };
        let targets = targets.map(text).collect::<Result<_, _>>()?;
        Ok(Self::of(setting, targets))
    }

    /// Without any run yet.
    fn of(setting: &Setting, targets: Vec<TargetText>) -> Self {
        // There is one plan at least, and they differ in their target alone.
        let plan = &setting.plans[0];
        Self {
            format: 2,
            command: command_line(),
            started: utc(epoch_ns() / 1_000_000_000),
            machine: Machine::of_this(),
            load: LoadText {
                name: plan.load.name().to_string(),
                workload: plan.load.describe(),
                protocol: plan.load.protocol,
                keys: plan.load.keys(),
                connections: plan.connections,
                threads: plan.threads,
                pipeline: plan.pipeline,
                seconds: plan.duration.as_secs_f64(),
                warm_up_seconds: plan.warm_up.as_secs_f64(),
                seed: plan.seed,
                fill: plan.load.fill,
                verify: plan.load.verify,
                spin: plan.spin,
                pregenerated: plan.pregenerated.is_some(),
            },
            targets,
            slo: setting.slo.as_ref().map(ToString::to_string),
            steps: Vec::new(),
            searches: BTreeMap::new(),
            partial: None,
            warnings: Vec::new(),
            bounds: setting.slo.as_ref().map_or(Vec::new(), |slo| slo.bounds()),
        }
    }

    pub(super) fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Gathers the runs' warnings: those of one kind for each target, of the last run that had any,
    /// and in how many runs there were some.
    pub(super) fn conclude(&mut self) {
        let mut last: BTreeMap<(&str, &'static str), (usize, String)> = BTreeMap::new();
        for step in &self.steps {
            let load = match step.report.rate_offered {
                Some(rate) => format!(" at {rate:.0}/s"),
                None => String::new(),
            };
            // A run may have several of a kind, such as replies that are wrong in two ways.
            let mut own: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
            for warning in &step.report.warnings {
                own.entry(warning.kind).or_default().push(&warning.text);
            }
            for (kind, texts) in own {
                let (count, text) = last.entry((step.target.as_str(), kind)).or_default();
                *count += 1;
                *text = format!("{}{load}: {}", step.target, texts.join("; "));
            }
        }
        let text = |((label, _), (count, text)): ((&str, &str), (usize, String))| {
            let runs = self
                .steps
                .iter()
                .filter(|step| step.target == label)
                .count();
            match count {
                1 => text,
                count => format!("{text} (the last of {count} such runs, of {runs})"),
            }
        };
        self.warnings = last.into_iter().map(text).collect();
    }

    /// The highest load that every target kept up with and whose tail could be measured, and its
    /// last run for a target; where there is none, the lowest load.
    pub(super) fn telling_step(&self, label: &str) -> Option<&Step> {
        let tells = |point: &Point<'_>| {
            point.steps.iter().all(|step| step.report.keeps_up())
                && point.median(|report| report.all.p99_us).is_some()
        };
        let all: Vec<Vec<Point<'_>>> = self
            .targets
            .iter()
            .map(|target| self.points(&target.label))
            .collect();
        let own = self.points(label);
        let common = own.iter().rev().find(|point| {
            let offered = |other: &&Point<'_>| other.offered() == point.offered();
            all.iter()
                .all(|points| points.iter().find(offered).is_some_and(tells))
        });
        let point = common
            .or(own.iter().rev().find(|point| tells(point)))
            .or(own.first())?;
        point.steps.last().copied()
    }

    /// Whether the runs answer what was asked: all were made, and a search found a rate.
    pub(super) fn is_answered(&self) -> bool {
        let has_rate = |found: &Found| found.rate.is_some();
        self.partial.is_none() && self.searches.values().all(has_rate)
    }

    /// Wrong replies in all runs.
    pub(super) fn faults(&self) -> u64 {
        self.steps.iter().map(|step| step.report.faults()).sum()
    }

    pub(super) fn json(&self) -> Result<String, LoadError> {
        json(self)
    }

    /// The highest load of all runs.
    pub(super) fn load_max(&self) -> f64 {
        let loads = self.steps.iter().map(|step| step.report.load());
        loads.fold(0.0, f64::max)
    }

    /// The runs of a target by load, ascending; all runs of a closed loop are one point.
    pub(super) fn points(&self, label: &str) -> Vec<Point<'_>> {
        let mut points: Vec<Point<'_>> = Vec::new();
        for step in self.steps.iter().filter(|step| step.target == label) {
            let offered = step.report.rate_offered;
            let same = |point: &&mut Point<'_>| {
                point
                    .steps
                    .iter()
                    .all(|other| other.report.rate_offered == offered)
            };
            match points.iter_mut().find(same) {
                Some(point) => point.steps.push(step),
                None => points.push(Point {
                    load: 0.0,
                    steps: vec![step],
                }),
            }
        }
        for point in &mut points {
            let loads: Vec<f64> = point.steps.iter().map(|step| step.report.load()).collect();
            point.load = rank(&loads, 0.5);
        }
        points.sort_by(|one, other| one.load.total_cmp(&other.load));
        points
    }
}

impl<'a> Point<'a> {
    /// Whether more than half of the runs met the bounds.
    pub(super) fn met(&self) -> bool {
        let met = self.steps.iter().filter(|step| step.slo == Some("met"));
        2 * met.count() > self.steps.len()
    }

    /// Why a run did not meet the bounds, of the last that did not.
    pub(super) fn why_not_met(&self) -> Option<&'a Verdict> {
        let verdicts = self.steps.iter().filter_map(|step| step.verdict.as_ref());
        verdicts.rev().find(|verdict| **verdict != Verdict::Met)
    }

    /// Offered requests a second; `None` in closed loop.
    pub(super) fn offered(&self) -> Option<f64> {
        self.steps.first().and_then(|step| step.report.rate_offered)
    }

    /// The median over runs of what could be measured in at least half of them; the reason
    /// otherwise.
    pub(super) fn median(&self, value: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self
            .steps
            .iter()
            .filter_map(|step| value(&step.report))
            .collect();
        (!values.is_empty() && 2 * values.len() >= self.steps.len()).then(|| rank(&values, 0.5))
    }

    /// Why a quantile of all requests is missing.
    pub(super) fn reason(&self, quantile: &str) -> String {
        let reason = |step: &&Step| step.report.all.not_measurable.get(quantile).cloned();
        self.steps.iter().rev().find_map(reason).unwrap_or_default()
    }
}

/// The highest load that was met, as was every lower one: a load above one that was not met proves
/// nothing.
pub(super) fn highest_kept<'a, 'b>(points: &'b [Point<'a>]) -> Option<&'b Point<'a>> {
    points.iter().take_while(|point| point.met()).last()
}

impl LoadText {
    /// The name that was asked for; in full where there was none.
    pub(super) fn name_or_workload(&self) -> &str {
        match self.name.as_str() {
            "" => &self.workload,
            name => name,
        }
    }
}

impl Machine {
    fn of_this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or(String::new(), |(_, value)| value.trim().to_string())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib = memory
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<f64>().ok());
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib.unwrap_or(0.0) / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The command line as a shell would take it.
fn command_line() -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_string();
    let all: Vec<String> = std::iter::once(program).chain(words).map(quoted).collect();
    all.join(" ")
}

/// Seconds since 1970 as a date and a time.
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = curtail_types::date(days);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use clap::Parser;

    use super::*;
    use crate::{
        bench::arguments::{LoadArgs, SeriesArgs},
        drive::{Pace, Usage},
        stop::Stop,
    };

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: LoadArgs,
        #[command(flatten)]
        series: SeriesArgs,
    }

    fn setting(words: &[&str]) -> Setting {
        let words = ["bench"].iter().chain(words);
        let Command { args, series } = Command::try_parse_from(words).unwrap();
        args.setting(&series, &Stop::new()).unwrap()
    }

    /// A run of nothing at this rate that ended like this.
    fn step(rate: f64, verdict: Verdict) -> Step {
        let plan = setting(&[]).plans[0].clone();
        let plan = Plan {
            pace: Pace::poisson(rate),
            ..plan
        };
        let usage = Usage {
            server: None,
            driver: Duration::ZERO,
            wall: plan.duration,
            began: Instant::now(),
        };
        Step {
            target: "one".into(),
            round: 0,
            slo: Some(verdict.name()),
            verdict: Some(verdict),
            report: Report::new(&plan, plan.recorder().unwrap(), usage).unwrap(),
        }
    }

    /// Goal: no headline names a load above one that missed. Method: 140,000/s met after 80,000/s
    /// missed, as on a machine that stalls now and then.
    #[test]
    fn a_load_above_one_that_missed_is_not_kept() {
        let setting = setting(&["--slo", "p99<1ms", "--target", "one=h:1"]);
        let mut document = Document {
            targets: Vec::new(),
            ..Document::of(&setting, Vec::new())
        };
        let missed = || Verdict::Missed("p99 3000 us".into());
        for (rate, verdict) in [
            (2e4, Verdict::Met),
            (5e4, Verdict::Met),
            (8e4, missed()),
            (1.4e5, Verdict::Met),
        ] {
            document.add(step(rate, verdict));
        }
        let points = document.points("one");
        assert_eq!(highest_kept(&points).map(|point| point.load), Some(5e4));
        assert_eq!(points[2].why_not_met(), Some(&missed()));
        document.steps.remove(0);
        document.steps.remove(0);
        assert!(highest_kept(&document.points("one")).is_none());
    }

    /// Goal: no warning of a run hides another of its kind, and runs are counted once. Method: one
    /// of two runs has two kinds of wrong replies.
    #[test]
    fn two_warnings_of_one_kind_are_of_one_run() {
        let setting = setting(&["--target", "one=h:1"]);
        let mut document = Document::of(&setting, Vec::new());
        document.add(step(2e4, Verdict::Met));
        let mut wrong = step(5e4, Verdict::Met);
        wrong
            .report
            .doubt("wrong replies", "3 replies were errors".into());
        wrong
            .report
            .doubt("wrong replies", "5 values were torn".into());
        document.add(wrong);
        document.conclude();
        let expected = "one at 50000/s: 3 replies were errors; 5 values were torn";
        assert_eq!(document.warnings, [expected]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_600), "2026-01-01 00:00:00 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
