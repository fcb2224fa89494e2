//! The highest load within a limit: figures 6 and 7.

use super::{SERIES, Setting, parameters, settings, with};
use crate::{
    figures::{
        Choice, Figure, Parameter,
        figure_run::{Request, last_within, over_best},
    },
    rows::Row,
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
    run: |request| over(request, Choice::LargeFraction),
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
    run: |request| over(request, Choice::LargeMaxKb),
};

/// What a setting can carry within each of [`LIMITS`], in millions of requests a second, by halving
/// on a logarithmic scale; `None` if no load is.
pub(super) fn highest(setting: &Setting) -> [Option<f64>; 3] {
    let rate = |step: u32| {
        let share = f64::from(step) / f64::from(STEPS);
        setting.capacity * LOWEST * (HIGHEST / LOWEST).powf(share)
    };
    let limits_ns = LIMITS.map(|(times, _)| match times {
        0.0 => f64::INFINITY,
        times => times / 10.0 * setting.limit_ns,
    });
    let found = last_within(limits_ns, 0..STEPS + 1, |step| setting.at(rate(step)).run());
    found.map(|step| step.map(rate))
}

/// Minos's highest loads over HKH+WS's.
pub(super) fn ratios(rows: &[Row]) -> Vec<Row> {
    let minos = rows.iter().filter(|row| row.series == "minos");
    let over = minos.filter_map(|row| {
        Some(Row {
            series: "minos/hkh-ws".into(),
            metric: "ratio",
            value: over_best(row, rows, &["hkh-ws"])?,
            ..row.clone()
        })
    });
    over.collect()
}

/// Highest loads over something of the workload, with the limit among the parameters.
fn over(request: &Request<'_>, axis: Choice) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let name = request.figure.name;
    let all = request.threads.map(name, &settings, highest);
    let mut rows = Vec::new();
    for (index, (times, metric)) in LIMITS.into_iter().enumerate().take(2) {
        let both = settings.iter().zip(&all);
        let highest = both.flat_map(|(setting, highest)| {
            let found = (setting.case.number(axis), metric, highest[index]);
            request.rows(&setting.case, [found])
        });
        let limited = highest.map(|row| Row {
            params: format!("limit={times};{}", row.params),
            ..row
        });
        let limited: Vec<Row> = limited.collect();
        let ratios = ratios(&limited);
        rows.extend(limited);
        rows.extend(ratios);
    }
    rows
}

/// Of every run of a search.
const REQUESTS: &[f64] = &[1_000_000.0];
/// Mean service times, and what is measured; 0 is the peak.
pub(super) const LIMITS: [(f64, &str); 3] =
    [(10.0, "slo_mops"), (20.0, "slo_mops"), (0.0, "peak_mops")];
/// Shares of the capacity between which loads are tried.
const LOWEST: f64 = 0.01;
const HIGHEST: f64 = 1.0;
/// Steps of 0.9 %.
const STEPS: u32 = 510;
