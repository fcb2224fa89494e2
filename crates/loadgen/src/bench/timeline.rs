//! `curtail bench timeline`: one run, and second by second beside its latencies what the server
//! decides by: the threshold between small and large, which workers have which role, queues.
//!
//! Minos' dynamic workload (NSDI 2019, section 6.3) is what it was made for: the share of large
//! requests changes every 20 s, and the question is what the plan does and what small requests
//! notice of it.
//!
//! ```text
//!   driver ---- requests ----> server        latencies by second, small apart from large
//!   watcher --- stats curtail, once a second -->  plan, queues, counters
//! ```
//!
//! The server is asked over a connection of its own, like `curtail top` does. A server without
//! `stats curtail`, such as memcached, gets a timeline of latencies alone.

mod page;

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use curtail_client::memcached::Connection;
use curtail_report::Table;
use curtail_workload::Phases;

use super::{
    arguments::{LoadArgs, SeriesArgs},
    files, run_steps,
};
use crate::{
    blocking_connection,
    drive::{Plan, measure_until_lost},
    error::LoadError,
    report::Report,
    request_source::Source,
    stop::Stop,
    text_protocol::Protocol,
};

/// One second of a run: what is known of it, by columns of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Second {
    pub(super) second: usize,
    numbers: HashMap<&'static str, f64>,
}

/// What the server said, and when.
#[derive(Clone, Debug)]
struct Told {
    at: Instant,
    numbers: HashMap<String, f64>,
}

/// How often the server is asked, and the length of a window.
const SECOND: Duration = Duration::from_secs(1);

/// A server that does not answer in this time is not asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// The columns of the file, behind the second's number.
const COLUMNS: [&str; 14] = [
    "large_percent", // of the requests, as offered
    "threshold_bytes",
    "small_cores",
    "large_cores",
    "standby",           // 1 while a large worker stands by although the plan has none
    "large_connections", // with large workers at the moment
    "requests",
    "hand_offs",
    "busy",
    "small_behind_large",
    "small_p50_us",
    "small_p99_us",
    "large_p50_us",
    "large_p99_us",
];

/// Runs the first rate against the first target and writes the timeline.
pub(super) fn run(args: &LoadArgs, stop: &Stop) -> Result<ExitCode, LoadError> {
    let setting = args.setting(&SeriesArgs::default(), stop)?;
    let ([plan], [pace]) = (&*setting.plans, &*setting.paces) else {
        let why = "a timeline has one --target and at most one --rate".into();
        return Err(LoadError::Arguments(why));
    };
    if args.preload {
        run_steps::preload(&setting, false)?;
    }
    let plan = Plan {
        pace: pace.clone(),
        window: SECOND,
        ..plan.clone()
    };
    let over = AtomicBool::new(false);
    let (report, told) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&plan, &over));
        let report = measure_until_lost(&plan, &setting.sessions[0]);
        over.store(true, Ordering::Relaxed);
        (report, watcher.join().unwrap_or_default())
    });
    let report = report?;
    let rows = rows(&plan, &report, &told);
    print!("{}", table(&rows).text());
    if let Some(folder) = &args.report {
        let page = page::page(&plan, &setting.targets[0].label, &rows);
        files::save(folder, "timeline.csv", csv(&rows).as_bytes())?;
        files::save(folder, "timeline.html", page.as_bytes())?;
        println!("report: {}", folder.join("timeline.html").display());
    }
    if let Some(lost) = &report.lost {
        let (seconds, reason) = (lost.seconds, &lost.reason);
        eprintln!("PARTIAL: the server was lost {seconds:.1} s into the run: {reason}");
    }
    Ok(match report.faults() {
        _ if stop.is_asked() => ExitCode::from(super::INTERRUPTED),
        0 if report.lost.is_none() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Asks once a second until it is over; ends early with a server that does not tell.
fn watch(plan: &Plan, over: &AtomicBool) -> Vec<Told> {
    let mut told = Vec::new();
    if plan.load.protocol == Protocol::Resp {
        return told;
    }
    let Ok(mut connection) = blocking_connection::connect(&plan.target, plan.load.login.as_ref())
    else {
        return told;
    };
    if connection
        .stream()
        .set_read_timeout(Some(PATIENCE))
        .is_err()
    {
        return told;
    }
    let started = Instant::now();
    while !over.load(Ordering::Relaxed) {
        match ask(&mut connection) {
            Some(numbers) if !numbers.is_empty() => told.push(Told {
                at: Instant::now(),
                numbers,
            }),
            _ => return told,
        }
        let next = started + SECOND * told.len() as u32;
        while !over.load(Ordering::Relaxed) && Instant::now() < next {
            let left = next.saturating_duration_since(Instant::now());
            thread::sleep(left.min(SECOND / 20));
        }
    }
    told.extend(ask(&mut connection).map(|numbers| Told {
        at: Instant::now(),
        numbers,
    }));
    told
}

/// The numbers of `stats curtail`.
fn ask(connection: &mut Connection) -> Option<HashMap<String, f64>> {
    let rows = connection.stats("curtail").ok()?;
    let number = |(name, value): (String, String)| Some((name, value.parse().ok()?));
    Some(rows.into_iter().filter_map(number).collect())
}

/// Brings both together.
fn rows(plan: &Plan, report: &Report, told: &[Told]) -> Vec<Second> {
    let seconds = report.seconds.ceil() as usize;
    let recorder = report.recorder();
    let [small_p50, large_p50] = recorder.window_each_by_size(0.5);
    let [small_p99, large_p99] = recorder.window_each_by_size(0.99);
    let percent = match &plan.load.source {
        Source::Drawn(workload) => workload.large.as_ref().map(|large| large.percent.clone()),
        Source::Recorded(_) => None,
    };
    (0..seconds)
        .map(|second| {
            let us = |windows: &[(f64, f64)]| {
                let mut windows = windows.iter();
                windows.find(|at| at.0 as usize == second).map(|at| at.1)
            };
            let mut row = Second::new(second);
            let percent = percent.as_ref().map(|phases| at(phases, plan, second));
            row.set("large_percent", percent);
            row.set("small_p50_us", us(&small_p50));
            row.set("small_p99_us", us(&small_p99));
            row.set("large_p50_us", us(&large_p50));
            row.set("large_p99_us", us(&large_p99));
            row.fill(report.began(), told);
            row
        })
        .collect()
}

/// The value in the middle of a measured second.
fn at(phases: &Phases, plan: &Plan, second: usize) -> f64 {
    let time = plan.warm_up + SECOND * second as u32 + SECOND / 2;
    phases.at(time.as_nanos() as u64)
}

impl Second {
    fn new(second: usize) -> Self {
        Self {
            second,
            ..Self::default()
        }
    }

    pub(super) fn get(&self, column: &str) -> Option<f64> {
        debug_assert!(COLUMNS.contains(&column), "{column}");
        self.numbers.get(column).copied()
    }

    fn set(&mut self, column: &'static str, number: Option<f64>) {
        debug_assert!(COLUMNS.contains(&column), "{column}");
        self.numbers.extend(number.map(|number| (column, number)));
    }

    /// Adds what the server said at the end of this second, and how it differs from the beginning.
    fn fill(&mut self, begin: Instant, told: &[Told]) {
        let near = |time: Instant| {
            let distance = |told: &&Told| {
                let (early, late) = (told.at.min(time), told.at.max(time));
                late - early
            };
            told.iter().min_by_key(distance)
        };
        let from = near(begin + SECOND * self.second as u32);
        let Some(to) = near(begin + SECOND * (self.second as u32 + 1)) else {
            return;
        };
        let number = |name: &str| to.numbers.get(name).copied();
        self.set("threshold_bytes", number("threshold"));
        for name in ["small_cores", "large_cores", "standby"] {
            self.set(name, number(name));
        }
        let connections = (0..).map_while(|large| number(&format!("large:{large}:connections")));
        self.set(
            "large_connections",
            connections.reduce(|sum, more| sum + more),
        );
        let Some(from) = from.filter(|from| from.at < to.at) else {
            return;
        };
        let seconds = (to.at - from.at).as_secs_f64();
        let rate = |name: &str| Some((number(name)? - from.numbers.get(name)?) / seconds);
        for name in ["requests", "hand_offs", "small_behind_large"] {
            self.set(name, rate(name));
        }
        self.set("busy", rate("large_refused"));
    }
}

/// A number as it is written: whole where it nearly is.
fn spelt(number: Option<f64>) -> String {
    match number {
        None => String::new(),
        Some(number) if number.fract().abs() < 1e-9 => format!("{number:.0}"),
        Some(number) if number < 10.0 => format!("{number:.3}"),
        Some(number) => format!("{number:.1}"),
    }
}

fn csv(rows: &[Second]) -> String {
    let mut text = format!("second,{}\n", COLUMNS.join(","));
    for row in rows {
        let cells = COLUMNS.map(|column| spelt(row.get(column)));
        text += &format!("{},{}\n", row.second, cells.join(","));
    }
    text
}

fn table(rows: &[Second]) -> Table {
    let whole = |column| move |row: &&Second| cell(row.get(column).map(f64::round));
    let cores = |row: &&Second| match (row.get("small_cores"), row.get("large_cores")) {
        (Some(small), Some(large)) => format!("{small:.0}+{large:.0}"),
        _ => "-".into(),
    };
    let table = Table::of(
        rows,
        &[
            ("s", &|row| row.second.to_string()),
            ("large %", &|row| cell(row.get("large_percent"))),
            ("threshold", &whole("threshold_bytes")),
            ("cores", &cores),
            ("large conns", &whole("large_connections")),
            ("hand-offs/s", &whole("hand_offs")),
            ("busy", &whole("busy")),
            ("behind", &whole("small_behind_large")),
            ("small p50 us", &whole("small_p50_us")),
            ("p99", &whole("small_p99_us")),
            ("large p50", &whole("large_p50_us")),
            ("p99", &whole("large_p99_us")),
        ],
    );
    table.left(&[])
}

fn cell(number: Option<f64>) -> String {
    match number {
        Some(number) if number < 10.0 && number.fract() != 0.0 => format!("{number:.3}"),
        Some(number) => format!("{number:.0}"),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(begin: Instant, ms: u64, numbers: &[(&str, f64)]) -> Told {
        let own = |(name, value): &(&str, f64)| ((*name).to_owned(), *value);
        Told {
            at: begin + Duration::from_millis(ms),
            numbers: numbers.iter().map(own).collect(),
        }
    }

    /// Goal: a second shows the plan at its end and the growth of counters in it. Method: answers
    /// half a second apart from the run's seconds at most.
    #[test]
    fn a_second_has_what_the_server_said_at_its_end() {
        let begin = Instant::now();
        let answers = [
            told(begin, 10, &[("requests", 100.0), ("threshold", 5.0)]),
            told(begin, 1010, &[("requests", 300.0), ("threshold", 6.0)]),
            told(
                begin,
                2010,
                &[
                    ("requests", 900.0),
                    ("threshold", 7.0),
                    ("large:0:connections", 2.0),
                    ("large:1:connections", 3.0),
                ],
            ),
        ];
        let mut row = Second::new(1);
        row.fill(begin, &answers);
        let text = csv(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("second,large_percent,threshold_bytes,"));
        assert_eq!(lines[1], "1,,7,,,,5,600,,,,,,,");
    }
}
