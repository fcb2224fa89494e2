//! C-4's figures of the queueing model: 3 and 4, one load-latency curve, and compaction's windows.

use curtail_dispatch::{Closing, Policy};
use curtail_workload::Ranks;

use crate::{
    c4::{Balancer, C4Model, Mechanism, Rules},
    costs::FullCosts,
    figures::{
        Choice, Figure, Parameter,
        figure_run::{Case, Request, first_beyond},
        shared_rank_tables::Popularities,
    },
    queueing::Outcome,
    rows::Row,
};

pub(super) const FIG3: Figure = Figure {
    name: "c4-fig3",
    title: "C-4, Fig. 3: throughput under the limit, and the tail compared with the ideal",
    x: WRITES,
    about: "64 workers, uniform keys, service 400 to 800 ns and 100 ns of network stack. The \
            throughput is the highest of 23 offered loads whose p99 is at most ten service times; \
            the tail is the p99 there, over that of the ideal system at the same load. The paper's \
            numbers are those of its authors' simulator at 5 million requests a point. The network \
            card balances, as in the paper, and costs nothing; with --balancer core a core does. \
            Series shipped is what the server does in place of d-crew: requests come over \
            connections spread over workers, nobody balances, a write whose partition another \
            worker holds goes to it in a batch, and neighbouring writes of a turn are one.",
    series: "erew crew d-crew ideal shipped",
    series_default: 5,
    parameters: &highest_loads(
        Parameter::each(Choice::Gamma, GAMMAS, &[0.0]).papers(&[0.0]),
        &FIG3_WRITES,
    ),
    run: fig3,
};

pub(super) const FIG4: Figure = Figure {
    name: "c4-fig4",
    title: "C-4, Fig. 4: throughput under the limit with skewed keys, without and with compaction",
    x: WRITES,
    about: "As c4-fig3, with Zipf's law: gamma is its exponent. The throughput is over that of the \
            same system without writes. The paper's numbers are those of its authors' simulator at \
            200,000 requests a point; cells that its histogram falsified are left out. crew and \
            comp are the paper's mechanism, shipped is the server's (c4-fig3).",
    series: "crew comp shipped",
    series_default: 3,
    parameters: &highest_loads(
        Parameter::each(Choice::Gamma, GAMMAS, &[0.9, 0.99, 1.0, 1.1, 1.2, 1.3, 1.4]).any(),
        &FIG4_WRITES,
    ),
    run: fig4,
};

pub(super) const FIG13: Figure = Figure {
    name: "c4-windows",
    title: "C-4's compaction window: when it closes, and what that costs at low load (cf. Fig. 13)",
    x: "offered load, share of capacity",
    about: "The queueing model, not the paper's cycle-accurate one, so shapes compare and absolute \
            numbers do not. The paper's window (comp) stays open until shortly before the limit, \
            which lifts the tail as soon as a window opens; the others close it earlier. The \
            network card balances and costs nothing; with --balancer core a core does. shipped is \
            the server's mechanism (c4-fig3), whose windows are the turns; all others are the \
            paper's.",
    series: "crew comp comp-queue-empty comp-no-match comp-adaptive shipped d-crew-comp \
             d-crew-comp-adaptive",
    series_default: 6,
    parameters: &curve(&[0.99], &["paper"]),
    run: curves,
};

pub(super) const CURVE: Figure = Figure {
    name: "c4-curve",
    title: "C-4's model: latency against load",
    x: "offered load, share of capacity",
    about: "One point a load of the model of c4-fig3; every number that the model measures. Loads \
            that the system cannot serve have latencies that grow with the length of the run. \
            shipped is the server's mechanism (c4-fig3), all others are the paper's.",
    series: "erew crew d-crew crcw ideal comp d-crew-comp shipped comp-queue-empty \
             comp-no-match comp-adaptive d-crew-comp-adaptive",
    series_default: 8,
    parameters: &curve(&[0.0], &["reference"]),
    run: curves,
};

/// The policy and the window of a series.
pub(super) fn model(series: &str, rules: Rules) -> C4Model {
    let (policy, closing) = match series {
        "erew" => (Policy::Erew, None),
        "crew" => (Policy::Crew, None),
        "d-crew" => (Policy::DynamicCrew, None),
        "crcw" => (Policy::Crcw, None),
        "comp" => (Policy::Crew, Some(Closing::DeadlineOnly)),
        "comp-queue-empty" => (Policy::Crew, Some(Closing::QueueEmpty)),
        "comp-no-match" => (Policy::Crew, Some(Closing::NoMatch)),
        "comp-adaptive" => (Policy::Crew, Some(Closing::Adaptive)),
        "d-crew-comp" => (Policy::DynamicCrew, Some(Closing::DeadlineOnly)),
        "d-crew-comp-adaptive" => (Policy::DynamicCrew, Some(Closing::Adaptive)),
        "shipped" => (Policy::DynamicCrew, None),
        _ => (Policy::Ideal, None),
    };
    C4Model {
        mechanism: match series {
            "shipped" => Mechanism::Shipped,
            _ => Mechanism::Paper,
        },
        compaction: closing,
        ..C4Model::new(policy, rules)
    }
}

/// The loads that the authors try, 24 from 0.05 to 1, without the last: no queue is stable at 1,
/// and whether a short run shows it is chance.
pub(super) fn grid() -> Vec<f64> {
    (0..23).map(|n| 0.05 + 0.95 * f64::from(n) / 23.0).collect()
}

/// The highest load whose p99 is within the limit, by halving, and what was measured there. If
/// even the lowest load fails it is taken nevertheless, as the authors do.
pub(super) fn highest(model: &C4Model, ranks: &Ranks, loads: &[f64]) -> Option<(f64, Outcome)> {
    let at = |load: f64| {
        C4Model {
            load,
            ..model.clone()
        }
        .run(ranks)
    };
    let mut best = None;
    first_beyond(0, loads.len() as u32, |index| {
        let load = loads[index as usize];
        let outcome = at(load);
        let meets = outcome.meets(model.limit_ns() as f64);
        if meets {
            best = Some((load, outcome));
        }
        meets
    });
    best.or_else(|| loads.first().map(|load| (*load, at(*load))))
}

/// Every combination of balancer, series, cores, gamma and writes, of which the load is still open.
fn systems(request: &Request<'_>) -> Vec<(Case, C4Model)> {
    let cases = request.cases(&[Choice::Balancer, Choice::Depth, Choice::Rules]);
    let cases = request.under_series(&cases);
    let cases = request.sweep(cases, &[Choice::Cores, Choice::Gamma, Choice::Writes]);
    let system = |case: Case| {
        let base = model(case.series, case.name(Choice::Rules));
        let model = C4Model {
            workers: case.count(Choice::Cores),
            gamma: case.number(Choice::Gamma),
            write_percent: match base.policy {
                Policy::Ideal => 0.0,
                _ => case.number(Choice::Writes),
            },
            depth: case.count(Choice::Depth),
            requests: request.requests(),
            seed: request.seed(),
            ..base
        };
        let model = balanced(model, case.name(Choice::Balancer), FullCosts::measured());
        (case, model)
    };
    cases.into_iter().map(system).collect()
}

/// The model with this balancer, at the same number of cores.
pub(super) fn balanced(model: C4Model, balancer: Balancer, costs: &FullCosts) -> C4Model {
    match balancer {
        Balancer::Card => model,
        Balancer::Core => model.with_dispatcher(costs.dispatch_ns().round().max(1.0) as u64),
    }
}

fn fig3(request: &Request<'_>) -> Vec<Row> {
    let systems = systems(request);
    let (ranks, highest) = highest_of_all(request, systems.iter().map(|(_, model)| model));
    let found = systems.iter().zip(&highest);
    let ideals = found.map(|((_, model), found)| Some(ideal(model, (*found)?.0)));
    let ideals: Vec<Option<C4Model>> = ideals.collect();
    let what = "c4-fig3, the ideal's tails";
    let tails = once(request, what, &ideals, |model| {
        let model = model.as_ref()?;
        Some(tail_ns(&model.run(ranks.of(model))))
    });
    let mut rows = Vec::new();
    for (((case, model), highest), tail) in systems.iter().zip(&highest).zip(tails) {
        let mrps = |load: f64| load * model.capacity() / 1e6;
        let throughput = highest.map(|(load, _)| mrps(load));
        let over = highest
            .zip(tail)
            .map(|((_, p99), tail)| p99 as f64 / tail as f64);
        let x = case.number(Choice::Writes);
        let found = [
            (x, "throughput_mrps", throughput),
            (x, "p99_over_ideal", over),
        ];
        let mut both = request.rows(case, found);
        let known = known_fig3(case.series, x);
        both[0].paper = known.map(|(load, _)| mrps(load));
        both[1].paper = known.map(|(_, over)| over);
        rows.extend(both);
    }
    rows
}

fn fig4(request: &Request<'_>) -> Vec<Row> {
    let systems = systems(request);
    // The system without writes is what all are compared with; the authors' ideal is their CRCW.
    let without = systems.iter().map(|(_, model)| C4Model {
        policy: match model.rules {
            Rules::Reference => Policy::Crcw,
            Rules::Paper => Policy::Ideal,
        },
        ..ideal(model, model.load)
    });
    let without: Vec<C4Model> = without.collect();
    let all = systems.iter().map(|(_, model)| model).chain(&without);
    let (_, highest) = highest_of_all(request, all);
    let mut rows = Vec::new();
    for (index, (case, model)) in systems.iter().enumerate() {
        let ideal = systems.len() + index;
        let load = |index: usize| Some((*highest.get(index)?)?.0);
        let capacities = model.capacity() / without[index].capacity();
        let value = load(index)
            .zip(load(ideal))
            .map(|(load, ideal)| load / ideal * capacities);
        let x = case.number(Choice::Writes);
        let mut found = request.rows(case, [(x, "throughput_over_ideal", value)]);
        found[0].paper = known_fig4(case.series, model.gamma, x);
        rows.extend(found);
    }
    rows
}

fn curves(request: &Request<'_>) -> Vec<Row> {
    let mut points = Vec::new();
    for (case, model) in systems(request) {
        for load in request.numbers(Choice::Load) {
            points.push((
                case.clone(),
                C4Model {
                    load,
                    ..model.clone()
                },
            ));
        }
    }
    let ranks = Popularities::of_models(points.iter().map(|(_, model)| model));
    request.draw(&points, |(case, model)| {
        let outcome = model.run(ranks.of(model));
        let entries = (outcome.entries_max > 0).then_some(f64::from(outcome.entries_max));
        let found = [
            ("p50_ns", outcome.stable(&outcome.all, 0.5)),
            ("p99_ns", outcome.stable(&outcome.all, 0.99)),
            ("write_p99_ns", outcome.stable(&outcome.writes, 0.99)),
            ("throughput_mrps", Some(outcome.throughput_mrps())),
            ("ewt_mean", outcome.entries_mean()),
            ("ewt_max", entries),
            ("batch_mean", outcome.batch_mean()),
            ("retry_share", outcome.retry_share()),
        ];
        request.rows(
            case,
            found.map(|(metric, value)| (model.load, metric, value)),
        )
    })
}

/// The 99th percentile; beyond any limit if the run was saturated, for latencies grow then.
pub(super) fn tail_ns(outcome: &Outcome) -> u64 {
    outcome.all.quantile(0.99).unwrap_or(0)
}

/// The highest load within the limit, and the p99 there, of every model, which are simulated once
/// if they are the same; and the popularities that they have.
fn highest_of_all<'a>(
    request: &Request<'_>,
    models: impl Iterator<Item = &'a C4Model>,
) -> (Popularities, Vec<Option<(f64, u64)>>) {
    let models: Vec<C4Model> = models.map(canonical).collect();
    let ranks = Popularities::of_models(models.iter());
    let mut loads = request.numbers(Choice::Load);
    if loads.is_empty() {
        loads = grid();
    }
    loads.sort_by(f64::total_cmp);
    let highest = once(request, request.figure.name, &models, |model| {
        let (load, outcome) = highest(model, ranks.of(model), &loads)?;
        Some((load, tail_ns(&outcome)))
    });
    (ranks, highest)
}

/// What each point gives, of those that are the same only one being simulated.
fn once<P: PartialEq + Sync, A: Copy + Send>(
    request: &Request<'_>,
    what: &str,
    points: &[P],
    run: impl Fn(&P) -> Option<A> + Sync,
) -> Vec<Option<A>> {
    let mut unique: Vec<&P> = Vec::new();
    for point in points {
        if !unique.contains(&point) {
            unique.push(point);
        }
    }
    let found = request.threads.map(what, &unique, |point| run(point));
    let of = |point: &P| {
        let index = unique.iter().position(|other| *other == point)?;
        *found.get(index)?
    };
    points.iter().map(of).collect()
}

/// EREW treats reads and writes alike, so one share of writes stands for all.
fn canonical(model: &C4Model) -> C4Model {
    let mut model = model.clone();
    if model.policy == Policy::Erew {
        model.write_percent = 50.0;
    }
    model
}

/// The ideal system beside a model, with as many requests a second as it has at this load.
fn ideal(model: &C4Model, load: f64) -> C4Model {
    let ideal = C4Model {
        policy: Policy::Ideal,
        mechanism: Mechanism::Paper,
        write_percent: 0.0,
        compaction: None,
        workers: model.cores(),
        dispatch_ns: 0,
        load,
        ..model.clone()
    };
    match model.dispatch_ns {
        0 => ideal,
        _ => C4Model {
            load: load * model.capacity() / ideal.capacity(),
            ..ideal
        },
    }
}

/// Highest load and tail over ideal of Fig. 3.
fn known_fig3(series: &str, writes: f64) -> Option<(f64, f64)> {
    let cells = cells(FIG3_DATA).find(|cells| cells[0] == Some(writes));
    match series {
        "ideal" => Some((IDEAL_LOAD, 1.0)),
        // The tail there is 6631 ns, the ideal's 1222.
        "erew" => Some((0.7522, 5.426)),
        "crew" => Some((cells?[1]?, cells?[2]?)),
        "d-crew" => Some((cells?[3]?, 1.0)),
        _ => None,
    }
}

/// Throughput over ideal of Fig. 4.
fn known_fig4(series: &str, gamma: f64, writes: f64) -> Option<f64> {
    let cells = cells(FIG4_DATA).find(|cells| cells[..2] == [Some(gamma), Some(writes)])?;
    let load = match series {
        "crew" => cells[2],
        "comp" => cells[3],
        _ => None,
    };
    load.map(|load| load / IDEAL_LOAD)
}

/// Four numbers a line, after the comments and the head; a cell may be empty.
fn cells(data: &'static str) -> impl Iterator<Item = [Option<f64>; 4]> {
    let lines = data.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines.map(|line| {
        let mut cells = line.split(',').map(|cell| cell.parse().ok());
        [(); 4].map(|()| cells.next().flatten())
    })
}

/// What all of these figures take: the paper has 64 cores, and its network card balances.
const fn parameters(
    gamma: Parameter,
    rules: Parameter,
    writes: Parameter,
    load: Parameter,
) -> [Parameter; 9] {
    [
        gamma,
        Parameter::each(Choice::Cores, CORES, &[64.0])
            .whole()
            .papers(&[64.0]),
        DEPTH,
        rules,
        Parameter::names(Choice::Balancer, &["card"]).papers_named(&["card"]),
        writes,
        load,
        Parameter::requests(&[200_000.0]),
        Parameter::seed(),
    ]
}

/// Over the share of writes: the highest of some loads that keeps the limit.
const fn highest_loads(gamma: Parameter, writes: &'static [f64]) -> [Parameter; 9] {
    let rules = Parameter::name(Choice::Rules, &["reference"]);
    let writes = Parameter::each(Choice::Writes, PERCENT, writes);
    let loads = Parameter::together(Choice::Load, LOADS);
    parameters(
        gamma,
        rules.papers_named(&["reference"]),
        writes.axis(),
        loads,
    )
}

/// Latency against load.
const fn curve(gamma: &'static [f64], rules: &'static [&'static str]) -> [Parameter; 9] {
    parameters(
        Parameter::each(Choice::Gamma, GAMMAS, gamma),
        Parameter::name(Choice::Rules, rules),
        Parameter::each(Choice::Writes, PERCENT, &[50.0]),
        Parameter::each(Choice::Load, LOADS, &CURVE_LOADS).axis(),
    )
}

pub(super) const CORES: (f64, f64) = (1.0, 256.0);
pub(super) const GAMMAS: (f64, f64) = (0.0, 20.0);
pub(super) const PERCENT: (f64, f64) = (0.0, 100.0);
pub(super) const LOADS: (f64, f64) = (0.001, 10.0);
/// What JBSQ counts up to.
pub(super) const DEPTH: Parameter = Parameter::one(
    Choice::Depth,
    (1.0, crate::c4::jbsq::DEPTH_MAX as f64),
    &[2.0],
)
.whole()
.papers(&[2.0]);
const CURVE_LOADS: [f64; 19] = multiples(1, 0.05);
const FIG3_WRITES: [f64; 21] = multiples(0, 5.0);
const FIG4_WRITES: [f64; 17] = multiples(0, 5.0);

/// Multiples of `step`, from `first` of them on.
const fn multiples<const N: usize>(first: usize, step: f64) -> [f64; N] {
    let mut all = [0.0; N];
    let mut index = 0;
    while index < N {
        all[index] = (first + index) as f64 * step;
        index += 1;
    }
    all
}

/// The x axis of the figures that are drawn over the share of writes.
const WRITES: &str = "writes, %";
/// The highest load of the ideal system in all of the authors' figures.
const IDEAL_LOAD: f64 = 0.9587;
const FIG3_DATA: &str = include_str!("../../data/c4-fig3.csv");
const FIG4_DATA: &str = include_str!("../../data/c4-fig4.csv");
