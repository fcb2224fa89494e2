//! What each core does, and how roles follow a changing workload: figures 9 and 10.

use curtail_workload::Phases;

use super::{MINOS_FIRST, REQUESTS, Setting, parameters, settings, with, with_load};
use crate::{
    figures::{
        Choice, Figure, Parameter, at_loads,
        figure_run::{Found, Request},
    },
    minos::MinosSystem,
    queueing::{CoreUse, Outcome},
    rows::Row,
};

pub(in crate::figures) const FIG9: Figure = Figure {
    name: "minos-fig9",
    title: "Minos, Fig. 9: requests and packets of each core",
    x: "core",
    about: "At 0.8 of what the node could serve. The paper: packets are about equal, requests are \
            very unequal. The number of small cores is rounded up: at 0.25 % the packets of 2.4 \
            cores are on 2. At 0.0625 % no core is set aside and the last one is the standby. \
            packets_max_over_mean has the number of cores as x.",
    series: MINOS_FIRST,
    series_default: 1,
    parameters: &with_load(
        with(
            parameters(REQUESTS),
            Parameter::each(Choice::LargeFraction, (0.0, 100.0), &[0.0625, 0.25, 0.75]),
        ),
        Parameter::each(Choice::Load, (0.001, 10.0), &[0.8]),
    ),
    run: fig9,
};

pub(in crate::figures) const FIG10: Figure = Figure {
    name: "minos-fig10",
    title: "Minos, Fig. 10: a workload whose share of large requests changes",
    x: "time, seconds",
    about: "p_L goes from 0.125 to 0.75 % and back, a step every 20 s, at 2.25 M requests a \
            second, or 0.98 of what the link carries at 0.75 %, if that is less (2.1 M; the \
            paper's link carried 2.3); with other prices at 0.95 of what is carried there. One \
            window and one epoch are a second. Time is compressed: a run of N requests has 140 \
            windows of N / 140. median_p99_us is over the windows of the phase at 0.75 % (x is \
            the percentage). There HKH+WS is at 0.98 of the link, where its tail is 1 to 9 ms from \
            window to window.",
    series: MINOS_FIRST,
    series_default: 2,
    parameters: &with(
        parameters(&[14_000_000.0]),
        Parameter::each(Choice::LargeFraction, (0.75, 0.75), &[0.75])
            .one_of(&[0.75])
            .any(),
    ),
    run: fig10,
};

fn fig9(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let points = at_loads(&settings, &request.numbers(Choice::Load));
    request.draw(&points, |(setting, load)| {
        let outcome = setting.at(setting.capacity * load).run();
        let case = setting.case.clone().with(Choice::Load, *load);
        request.rows(&case, loads_of_cores(&outcome))
    })
}

fn loads_of_cores(outcome: &Outcome) -> Vec<Found> {
    let sum = |of: fn(&CoreUse) -> u64| outcome.cores.iter().map(of).sum::<u64>();
    let requests = sum(|core| core.requests).max(1) as f64;
    let packets = sum(|core| core.packets).max(1) as f64;
    let mut found = Vec::new();
    for (core, load) in outcome.cores.iter().enumerate() {
        let percent = |part: u64, all: f64| Some(part as f64 / all * 100.0);
        let x = core as f64;
        found.push((x, "requests_percent", percent(load.requests, requests)));
        found.push((x, "packets_percent", percent(load.packets, packets)));
    }
    let cores = outcome.cores.len() as f64;
    let most = outcome.cores.iter().map(|core| core.packets).max();
    let over = most.map(|most| most as f64 * cores / packets);
    found.push((cores, "packets_max_over_mean", over));
    found
}

fn fig10(request: &Request<'_>) -> Vec<Row> {
    request.draw(&settings(request, &[1.0]), |setting| {
        let model = changing(setting);
        let outcome = model.run();
        let mut found = Vec::new();
        for window in &outcome.times {
            let x = window.end_ns as f64 / model.window_ns as f64;
            found.push((x, "p99_us", Some(window.p99_ns as f64 / 1e3)));
            found.push((x, "large_cores", Some(f64::from(window.large_cores))));
        }
        let median = median_at_most(&model, &outcome);
        found.push((0.75, "median_p99_us", median));
        request.rows(&setting.case, found)
    })
}

/// The setting's model with shares that change.
fn changing(setting: &Setting) -> MinosSystem {
    let rate_mops = match setting.is_the_papers() {
        true => f64::min(2.25, 0.98 * setting.capacity),
        false => 0.95 * setting.capacity,
    };
    let mut model = setting.at(rate_mops);
    let phase_ns = (model.requests as f64 * 1e3 / rate_mops / PERCENTS.len() as f64) as u64;
    if let Some(large) = &mut model.workload.large
        && let Some(percents) = Phases::new(PERCENTS.into(), phase_ns.max(1))
    {
        large.percent = percents;
    }
    model.window_ns = (phase_ns / PHASE_WINDOWS).max(1);
    model.epoch_ns = model.window_ns;
    model
}

/// The median of the windows with the largest share, but for the first two, in which the plan
/// follows.
fn median_at_most(model: &MinosSystem, outcome: &Outcome) -> Option<f64> {
    let phase = 3 * PHASE_WINDOWS + 2..4 * PHASE_WINDOWS;
    let inside = |end_ns: u64| phase.contains(&((end_ns - 1) / model.window_ns));
    let windows = outcome.times.iter().filter(|window| inside(window.end_ns));
    let mut p99s: Vec<u64> = windows.map(|window| window.p99_ns).collect();
    p99s.sort_unstable();
    p99s.get(p99s.len() / 2).map(|ns| *ns as f64 / 1e3)
}

/// Of section 6.6.
const PERCENTS: [f64; 7] = [0.125, 0.25, 0.5, 0.75, 0.5, 0.25, 0.125];
/// Seconds of a phase.
const PHASE_WINDOWS: u64 = 20;
