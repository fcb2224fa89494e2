//! The highest load within a limit: figures 6 and 7.

use std::collections::BTreeMap;

use super::{SERIES, Setting, parameters, settings, with};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    queueing::Outcome,
    rows::{Row, words},
};

pub(in crate::figures) const FIG6: Figure = Figure {
    name: "minos-fig6",
    title: "Minos, Fig. 6: throughput under the limit, by the share of large requests",
    x: "large requests, per cent",
    about: "limit=10 and limit=20 are ten and twenty mean service times (50 and 100 us in the \
            paper). At 0.75 % the link carries 2.13 M a second with all headers, the paper's 2.3 M \
            is 8 % above: its data set had smaller large items, or its link less overhead. Minos \
            is above the paper within ten because nothing but queues lengthens its tail here, and \
            HKH+WS below because its card gives every transmit queue a whole frame in turn and its \
            cores never wait for a full one; both raise the ratio, in series minos/hkh-ws.",
    series: SERIES,
    series_default: 6,
    parameters: &with(
        parameters(REQUESTS),
        Parameter::each(
            Choice::LargeFraction,
            (0.0, 100.0),
            &[0.0625, 0.125, 0.25, 0.5, 0.75],
        )
        .axis(),
    ),
    run: fig6,
};

pub(in crate::figures) const FIG7: Figure = Figure {
    name: "minos-fig7",
    title: "Minos, Fig. 7: throughput under the limit, by the size of the largest item",
    x: "largest item, KB",
    about: "As minos-fig6, with 0.125 % large requests; the ratios differ from the paper's for the \
            reasons given there. At 1000 KB the link carries 4.5 M a second with all headers.",
    series: SERIES,
    series_default: 6,
    parameters: &with(
        parameters(REQUESTS),
        Parameter::each(
            Choice::LargeMaxKb,
            (2.0, 100_000.0),
            &[250.0, 500.0, 1_000.0],
        )
        .axis(),
    ),
    run: fig7,
};

/// What a setting can carry, in millions of requests a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Highest {
    /// Within ten times the mean read; `None` if no load is.
    pub(super) ten: Option<f64>,
    /// Within twenty times.
    pub(super) twenty: Option<f64>,
    /// With queues that do not grow.
    pub(super) peak: Option<f64>,
}

impl Highest {
    /// By halving on a logarithmic scale.
    pub(super) fn of(setting: &Setting) -> Self {
        let mut known = BTreeMap::new();
        let limit = setting.limit_ns;
        Self {
            peak: highest(setting, &mut known, |outcome| !outcome.saturated),
            ten: highest(setting, &mut known, |outcome| outcome.meets(limit)),
            twenty: highest(setting, &mut known, |outcome| outcome.meets(2.0 * limit)),
        }
    }

    /// The number of a limit: 10, 20, or 0 for the peak.
    fn within(self, times: f64) -> Option<f64> {
        match times as u64 {
            10 => self.ten,
            20 => self.twenty,
            _ => self.peak,
        }
    }

    /// Rows with the limit as x.
    pub(super) fn rows(
        request: &Request<'_>,
        settings: &[Setting],
        paper: impl Fn(&str, f64) -> Option<f64>,
        ratio: impl Fn(f64) -> Option<f64>,
    ) -> Vec<Row> {
        let all = request.threads.map(request.figure.name, settings, Self::of);
        let mut rows = Vec::new();
        for (setting, highest) in settings.iter().zip(&all) {
            for (times, metric) in LIMITS {
                let paper = paper(setting.series, times);
                rows.push(setting.row(request, times, metric, highest.within(times), paper));
            }
        }
        for (setting, minos, stealing) in pairs(settings, &all) {
            for (times, _) in LIMITS {
                let value = over(minos, stealing, times);
                let row = setting.row(request, times, "ratio", value, ratio(times));
                rows.push(named(row));
            }
        }
        rows
    }
}

fn highest(
    setting: &Setting,
    known: &mut BTreeMap<u32, Outcome>,
    meets: impl Fn(&Outcome) -> bool,
) -> Option<f64> {
    let rate = |step: u32| {
        let share = f64::from(step) / f64::from(STEPS);
        setting.capacity * LOWEST * (HIGHEST / LOWEST).powf(share)
    };
    let (mut low, mut high) = (0, STEPS + 1);
    // All below `low` meet, `high` does not.
    while low < high {
        let middle = (low + high) / 2;
        let outcome = known
            .entry(middle)
            .or_insert_with(|| setting.at(rate(middle)).run());
        match meets(outcome) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low.checked_sub(1).map(rate)
}

fn fig6(request: &Request<'_>) -> Vec<Row> {
    let paper = |series: &str, x: f64, times: f64| match (series, x, times as u64) {
        ("minos", 0.0625, 10) => Some(6.2),
        ("minos", 0.0625, 20) => Some(6.9),
        ("minos", 0.125, 10) => Some(5.6),
        ("minos", 0.75, 10) => Some(1.7),
        ("minos", 0.75, 20) => Some(2.3),
        ("ratio", 0.125, 10) => Some(2.4),
        ("ratio", 0.125, 20) => Some(1.75),
        ("ratio", 0.75, 10) => Some(7.4),
        ("ratio", 0.75, 20) => Some(3.9),
        _ => None,
    };
    by(request, "large", |setting| setting.percent, paper)
}

fn fig7(request: &Request<'_>) -> Vec<Row> {
    let paper = |series: &str, x: f64, times: f64| match (series, x as u64, times as u64) {
        ("minos", 250, 10) => Some(6.2),
        ("minos", 250, 20) => Some(6.9),
        ("minos", 500, 10) => Some(5.6),
        ("minos", 1_000, _) => Some(4.7),
        ("ratio", 500, 10) => Some(2.4),
        ("ratio", 500, 20) => Some(1.75),
        ("ratio", 250, 20) => Some(1.34),
        _ => None,
    };
    by(request, "max_kb", |setting| setting.kilobytes, paper)
}

/// Rows with something of the workload as x, and the limit among the parameters.
fn by(
    request: &Request<'_>,
    axis: &str,
    x: impl Fn(&Setting) -> f64,
    paper: impl Fn(&str, f64, f64) -> Option<f64>,
) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let all = request
        .threads
        .map(request.figure.name, &settings, Highest::of);
    let limited = |row: Row, times: f64| {
        let is_axis = |word: &&str| word.split('=').next() == Some(axis);
        let others: Vec<&str> = words(&row.params).filter(|word| !is_axis(word)).collect();
        Row {
            params: format!("limit={times};{}", others.join(";")),
            ..row
        }
    };
    let mut rows = Vec::new();
    for (times, metric) in LIMITS.into_iter().filter(|(times, _)| *times > 0.0) {
        for (setting, highest) in settings.iter().zip(&all) {
            let x = x(setting);
            let paper = paper(setting.series, x, times);
            let row = setting.row(request, x, metric, highest.within(times), paper);
            rows.push(limited(row, times));
        }
        for (setting, minos, stealing) in pairs(&settings, &all) {
            let x = x(setting);
            let value = over(minos, stealing, times);
            let row = setting.row(request, x, "ratio", value, paper("ratio", x, times));
            rows.push(limited(named(row), times));
        }
    }
    rows
}

/// Minos and HKH+WS of every setting that has both.
fn pairs<'a>(
    settings: &'a [Setting],
    all: &'a [Highest],
) -> impl Iterator<Item = (&'a Setting, Highest, Highest)> {
    let minos = move |(setting, _): &(&Setting, &Highest)| setting.series == "minos";
    let both = move |(setting, highest): (&'a Setting, &'a Highest)| {
        let same = |other: &Setting| {
            other.series == "hkh-ws"
                && other.params == setting.params
                && other.percent == setting.percent
                && other.kilobytes == setting.kilobytes
        };
        let found = settings.iter().zip(all).find(|(other, _)| same(other));
        found.map(|(_, stealing)| (setting, *highest, *stealing))
    };
    settings.iter().zip(all).filter(minos).filter_map(both)
}

fn over(minos: Highest, stealing: Highest, times: f64) -> Option<f64> {
    Some(minos.within(times)? / stealing.within(times)?)
}

fn named(row: Row) -> Row {
    Row {
        series: "minos/hkh-ws".into(),
        ..row
    }
}

/// Of every run of a search.
const REQUESTS: &[f64] = &[1_000_000.0];
/// Mean service times, and what is measured; 0 is the peak.
const LIMITS: [(f64, &str); 3] = [(10.0, "slo_mops"), (20.0, "slo_mops"), (0.0, "peak_mops")];
/// Shares of the capacity between which loads are tried.
const LOWEST: f64 = 0.01;
const HIGHEST: f64 = 1.0;
/// Steps of 0.9 %.
const STEPS: u32 = 510;
