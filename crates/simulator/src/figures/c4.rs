//! C-4's figures of the queueing model: 3 and 4, one load-latency curve, and compaction's windows.

use curtail_dispatch::{Closing, Policy};
use curtail_workload::Ranks;

use crate::{
    c4::{Balancer, C4Model, Mechanism, Rules},
    costs::FullCosts,
    figures::{Choice, Figure, Parameter, Request, popularities::Popularities},
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
    series: &["erew", "crew", "d-crew", "ideal", "shipped"],
    series_default: 5,
    parameters: &[
        cores(),
        Parameter::each(Choice::Gamma, GAMMAS, &[0.0]).papers(&[0.0]),
        Parameter::each(Choice::Writes, PERCENT, &FIG3_WRITES).axis(),
        LOADS_TRIED,
        DEPTH,
        Parameter::name(Choice::Rules, &["reference"]).papers_named(&["reference"]),
        balancer(),
        Parameter::requests(&[200_000.0]),
        Parameter::seed(),
    ],
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
    series: &["crew", "comp", "shipped"],
    series_default: 3,
    parameters: &[
        cores(),
        Parameter::each(Choice::Gamma, GAMMAS, &[0.9, 0.99, 1.0, 1.1, 1.2, 1.3, 1.4]).any(),
        Parameter::each(Choice::Writes, PERCENT, &FIG4_WRITES).axis(),
        LOADS_TRIED,
        DEPTH,
        Parameter::name(Choice::Rules, &["reference"]).papers_named(&["reference"]),
        balancer(),
        Parameter::requests(&[200_000.0]),
        Parameter::seed(),
    ],
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
    series: &[
        "crew",
        "comp",
        "comp-queue-empty",
        "comp-no-match",
        "comp-adaptive",
        "shipped",
        "d-crew-comp",
        "d-crew-comp-adaptive",
    ],
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
    series: &[
        "erew",
        "crew",
        "d-crew",
        "crcw",
        "ideal",
        "comp",
        "d-crew-comp",
        "shipped",
        "comp-queue-empty",
        "comp-no-match",
        "comp-adaptive",
        "d-crew-comp-adaptive",
    ],
    series_default: 8,
    parameters: &curve(&[0.0], &["reference"]),
    run: curves,
};

/// One curve of one setting, of which the load is still open.
#[derive(Clone, Debug)]
struct Setting {
    series: &'static str,
    /// Per cent; the ideal's own model has none.
    writes: f64,
    balancer: Balancer,
    model: C4Model,
}

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
    let at = |load: f64| C4Model {
        load,
        ..model.clone()
    };
    let (mut low, mut high) = (0, loads.len());
    let mut best = None;
    while low < high {
        let middle = (low + high) / 2;
        let load = *loads.get(middle)?;
        let outcome = at(load).run(ranks);
        if outcome.meets(model.limit_ns() as f64) {
            best = Some((load, outcome));
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    match (best, loads.first()) {
        (None, Some(load)) => Some((*load, at(*load).run(ranks))),
        (best, _) => best,
    }
}

/// Every combination of balancer, series, cores, gamma and writes.
fn settings(request: &Request<'_>) -> Vec<Setting> {
    let rules = match request
        .names(Choice::Rules)
        .iter()
        .any(|name| name == "paper")
    {
        true => Rules::Paper,
        false => Rules::Reference,
    };
    let mut settings = Vec::new();
    for balancer in balancers(request) {
        for series in &request.series {
            for cores in request.counts(Choice::Cores) {
                for gamma in request.numbers(Choice::Gamma) {
                    for writes in request.numbers(Choice::Writes) {
                        let base = model(series, rules);
                        let model = C4Model {
                            workers: cores,
                            gamma,
                            write_percent: match base.policy {
                                Policy::Ideal => 0.0,
                                _ => writes,
                            },
                            depth: request.number(Choice::Depth) as u16,
                            requests: request.requests(),
                            seed: request.seed(),
                            ..base
                        };
                        let dispatch_ns = FullCosts::measured().dispatch_ns();
                        settings.push(Setting {
                            series,
                            writes,
                            balancer,
                            model: balanced(model, balancer, dispatch_ns),
                        });
                    }
                }
            }
        }
    }
    settings
}

/// Who balances; none, if it is not asked for and the figure has no default.
pub(super) fn balancers(request: &Request<'_>) -> Vec<Balancer> {
    let names = request.names(Choice::Balancer);
    let named = |balancer: &Balancer| names.iter().any(|name| name == balancer.name());
    let all = [Balancer::Card, Balancer::Core];
    all.into_iter().filter(named).collect()
}

/// The model with this balancer, at the same number of cores.
pub(super) fn balanced(model: C4Model, balancer: Balancer, dispatch_ns: f64) -> C4Model {
    match balancer {
        Balancer::Card => model,
        Balancer::Core => model.with_dispatcher(dispatch_ns.round().max(1.0) as u64),
    }
}

fn popularities(settings: &[Setting]) -> Popularities {
    Popularities::of_models(settings.iter().map(|setting| &setting.model))
}

fn fig3(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let popularities = popularities(&settings);
    let loads = loads_tried(request);
    let highest = highest_of_all(request, &settings, &popularities, &loads);
    let ideals: Vec<C4Model> = settings
        .iter()
        .zip(&highest)
        .filter_map(|(setting, (load, _))| load.map(|load| ideal(&setting.model, load)))
        .collect();
    let ideals = unique(&ideals);
    let tails = request
        .threads
        .map("c4-fig3, the ideal's tails", &ideals, |model| {
            tail_ns(&model.run(popularities.of(model)))
        });
    let mut rows = Vec::new();
    for (setting, (load, p99)) in settings.iter().zip(&highest) {
        let known = known_fig3(setting);
        let over = load.and_then(|load| {
            let ideal = ideal(&setting.model, load);
            let index = ideals.iter().position(|other| *other == ideal)?;
            Some(*p99 as f64 / *tails.get(index)? as f64)
        });
        let throughput = load.map(|load| load * setting.model.capacity() / 1e6);
        let all = [
            ("throughput_mrps", throughput, known.map(|known| known.0)),
            ("p99_over_ideal", over, known.map(|known| known.1)),
        ];
        for (metric, value, paper) in all {
            rows.push(row(request, setting, setting.writes, metric, value, paper));
        }
    }
    rows
}

fn fig4(request: &Request<'_>) -> Vec<Row> {
    let mut settings = settings(request);
    let shown = settings.len();
    // The system without writes is what all are compared with; the authors' ideal is their CRCW.
    for index in 0..shown {
        let mut ideal = settings[index].clone();
        ideal.model.policy = match ideal.model.rules {
            Rules::Reference => Policy::Crcw,
            Rules::Paper => Policy::Ideal,
        };
        ideal.model.mechanism = Mechanism::Paper;
        ideal.model.write_percent = 0.0;
        ideal.model.compaction = None;
        ideal.model.workers = ideal.model.cores();
        ideal.model.dispatch_ns = 0;
        settings.push(ideal);
    }
    let popularities = popularities(&settings);
    let loads = loads_tried(request);
    let highest = highest_of_all(request, &settings, &popularities, &loads);
    let mut rows = Vec::new();
    for (index, setting) in settings.iter().take(shown).enumerate() {
        let ideal = highest[shown + index].0;
        let capacities = setting.model.capacity() / settings[shown + index].model.capacity();
        let value = match (highest[index].0, ideal) {
            (Some(load), Some(ideal)) => Some(load / ideal * capacities),
            _ => None,
        };
        let paper = known_fig4(setting);
        let metric = "throughput_over_ideal";
        rows.push(row(request, setting, setting.writes, metric, value, paper));
    }
    rows
}

/// The loads among which the highest is sought.
fn loads_tried(request: &Request<'_>) -> Vec<f64> {
    let mut loads = request.numbers(Choice::Load);
    if loads.is_empty() {
        loads = grid();
    }
    loads.sort_by(f64::total_cmp);
    loads
}

fn curves(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let popularities = popularities(&settings);
    let mut points = Vec::new();
    for setting in &settings {
        for load in request.numbers(Choice::Load) {
            let model = C4Model {
                load,
                ..setting.model.clone()
            };
            points.push((setting, model));
        }
    }
    let name = request.figure.name;
    let outcomes = request.threads.map(name, &points, |(_, model)| {
        model.run(popularities.of(model))
    });
    let mut rows = Vec::new();
    for ((setting, model), outcome) in points.iter().zip(&outcomes) {
        for (metric, value) in metrics(outcome) {
            rows.push(row(request, setting, model.load, metric, value, None));
        }
    }
    rows
}

/// All that is measured in one run; a saturated run has no tail that means anything.
fn metrics(outcome: &Outcome) -> [(&'static str, Option<f64>); 8] {
    let tail = |nanoseconds: Option<u64>| {
        let known = nanoseconds.filter(|_| !outcome.saturated);
        known.map(|nanoseconds| nanoseconds as f64)
    };
    let entries = (outcome.entries_max > 0).then_some(f64::from(outcome.entries_max));
    [
        ("p50_ns", tail(outcome.all.quantile(0.5))),
        ("p99_ns", tail(outcome.all.quantile(0.99))),
        ("write_p99_ns", tail(outcome.writes.quantile(0.99))),
        ("throughput_mrps", Some(outcome.throughput_mrps())),
        ("ewt_mean", outcome.entries_mean()),
        ("ewt_max", entries),
        ("batch_mean", outcome.batch_mean()),
        ("retry_share", outcome.retry_share()),
    ]
}

/// The 99th percentile; beyond any limit if the run was saturated, for latencies grow then.
pub(super) fn tail_ns(outcome: &Outcome) -> u64 {
    outcome.all.quantile(0.99).unwrap_or(0)
}

/// The highest load within the limit, and the p99 there, of every setting. Settings whose models
/// are the same are simulated once.
fn highest_of_all(
    request: &Request<'_>,
    settings: &[Setting],
    popularities: &Popularities,
    loads: &[f64],
) -> Vec<(Option<f64>, u64)> {
    let models: Vec<C4Model> = settings.iter().map(|one| canonical(&one.model)).collect();
    let once = unique(&models);
    let name = request.figure.name;
    let found = request.threads.map(name, &once, |model| {
        let found = highest(model, popularities.of(model), loads);
        found.map(|(load, outcome)| (load, tail_ns(&outcome)))
    });
    let of = |model: &C4Model| {
        let index = once.iter().position(|other| other == model);
        let found = index.and_then(|index| *found.get(index)?);
        found.map_or((None, 0), |(load, p99)| (Some(load), p99))
    };
    models.iter().map(of).collect()
}

/// EREW treats reads and writes alike, so one share of writes stands for all.
fn canonical(model: &C4Model) -> C4Model {
    let mut model = model.clone();
    if model.policy == Policy::Erew {
        model.write_percent = 50.0;
    }
    model
}

fn unique(models: &[C4Model]) -> Vec<C4Model> {
    let mut once: Vec<C4Model> = Vec::new();
    for model in models {
        if !once.contains(model) {
            once.push(model.clone());
        }
    }
    once
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

fn row(
    request: &Request<'_>,
    setting: &Setting,
    x: f64,
    metric: &'static str,
    value: Option<f64>,
    paper: Option<f64>,
) -> Row {
    let C4Model {
        gamma,
        depth,
        rules,
        ..
    } = setting.model;
    let (cores, rules) = (setting.model.cores(), rules.name());
    let balancer = setting.balancer.name();
    let mut params =
        format!("gamma={gamma};cores={cores};depth={depth};rules={rules};balancer={balancer}");
    if request.figure.x != WRITES {
        params = format!("{params};writes={}", setting.writes);
    }
    Row {
        figure: request.figure.name,
        series: setting.series.into(),
        params,
        x,
        metric,
        value,
        paper,
    }
}

/// Throughput and tail over ideal of Fig. 3.
fn known_fig3(setting: &Setting) -> Option<(f64, f64)> {
    let model = &setting.model;
    let mrps = |load: f64| load * model.capacity() / 1e6;
    match setting.series {
        "ideal" => return Some((mrps(IDEAL_LOAD), 1.0)),
        // The tail there is 6631 ns, the ideal's 1222.
        "erew" => return Some((mrps(0.7522), 5.426)),
        _ => {}
    }
    let cells = cells(FIG3_DATA).find(|cells| cells[0] == Some(setting.writes))?;
    match setting.series {
        "crew" => Some((mrps(cells[1]?), cells[2]?)),
        "d-crew" => Some((mrps(cells[3]?), 1.0)),
        _ => None,
    }
}

/// Throughput over ideal of Fig. 4.
fn known_fig4(setting: &Setting) -> Option<f64> {
    let model = &setting.model;
    let wanted = [Some(model.gamma), Some(setting.writes)];
    let cells = cells(FIG4_DATA).find(|cells| cells[..2] == wanted)?;
    let load = match setting.series {
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

/// Cores that the model is right for; the paper has 64.
const fn cores() -> Parameter {
    let cores = Parameter::each(Choice::Cores, CORES, &[64.0]);
    cores.whole().papers(&[64.0])
}

/// What the figures of latency against load take.
const fn curve(gamma: &'static [f64], rules: &'static [&'static str]) -> [Parameter; 9] {
    [
        cores(),
        Parameter::each(Choice::Gamma, GAMMAS, gamma),
        Parameter::each(Choice::Writes, PERCENT, &[50.0]),
        Parameter::each(Choice::Load, LOADS, &CURVE_LOADS).axis(),
        DEPTH,
        Parameter::name(Choice::Rules, rules),
        balancer(),
        Parameter::requests(&[200_000.0]),
        Parameter::seed(),
    ]
}

/// Who balances: the paper's network card.
const fn balancer() -> Parameter {
    Parameter::names(Choice::Balancer, &["card"]).papers_named(&["card"])
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
/// Loads of which the highest that keeps the limit is sought.
const LOADS_TRIED: Parameter = Parameter::together(Choice::Load, LOADS);
const CURVE_LOADS: [f64; 19] = steps(0.05);
const FIG3_WRITES: [f64; 21] = fives();
const FIG4_WRITES: [f64; 17] = fives();

/// 0, 5, 10 and so on.
const fn fives<const N: usize>() -> [f64; N] {
    let mut all = [0.0; N];
    let mut index = 0;
    while index < N {
        all[index] = (index * 5) as f64;
        index += 1;
    }
    all
}

/// Multiples of `step` from itself on.
const fn steps<const N: usize>(step: f64) -> [f64; N] {
    let mut all = [0.0; N];
    let mut index = 0;
    while index < N {
        all[index] = (index + 1) as f64 * step;
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
