//! C-4's figures of the queueing model: 3 and 4, one load-latency curve, and compaction's windows.

use curtail_dispatch::{Closing, Policy};
use curtail_workload::Ranks;

use crate::{
    balanced::{Balanced, BalancedOutcome, Rules},
    figures::{Figure, Request, or, popularities::Popularities},
    rows::Row,
};

pub(super) const FIG3: Figure = Figure {
    name: "c4-fig3",
    title: "C-4, Fig. 3: throughput under the limit, and the tail compared with the ideal",
    x: WRITES,
    about: "64 workers, uniform keys, service 400 to 800 ns and 100 ns of network stack. The \
            throughput is the highest of 23 offered loads whose p99 is at most ten service times; \
            the tail is the p99 there, over that of the ideal system at the same load. The paper's \
            numbers are those of its authors' simulator at 5 million requests a point.",
    series: &["erew", "crew", "d-crew", "ideal"],
    series_default: 4,
    run: fig3,
};

pub(super) const FIG4: Figure = Figure {
    name: "c4-fig4",
    title: "C-4, Fig. 4: throughput under the limit with skewed keys, without and with compaction",
    x: WRITES,
    about: "As c4-fig3, with Zipf's law: gamma is its exponent. The throughput is over that of the \
            same system without writes. The paper's numbers are those of its authors' simulator at \
            200,000 requests a point; cells that its histogram falsified are left out.",
    series: &["crew", "comp"],
    series_default: 2,
    run: fig4,
};

pub(super) const FIG13: Figure = Figure {
    name: "c4-windows",
    title: "C-4's compaction window: when it closes, and what that costs at low load (cf. Fig. 13)",
    x: "offered load, share of capacity",
    about: "The queueing model, not the paper's cycle-accurate one, so shapes compare and absolute \
            numbers do not. The paper's window (comp) stays open until shortly before the limit, \
            which lifts the tail as soon as a window opens; the others close it earlier.",
    series: &[
        "crew",
        "comp",
        "comp-queue-empty",
        "comp-no-match",
        "comp-adaptive",
        "d-crew-comp",
        "d-crew-comp-adaptive",
    ],
    series_default: 5,
    run: windows,
};

pub(super) const CURVE: Figure = Figure {
    name: "c4-curve",
    title: "C-4's model: latency against load",
    x: "offered load, share of capacity",
    about: "One point a load of the model of c4-fig3; every number that the model measures. Loads \
            that the system cannot serve have latencies that grow with the length of the run.",
    series: &[
        "erew",
        "crew",
        "d-crew",
        "crcw",
        "ideal",
        "comp",
        "d-crew-comp",
        "comp-queue-empty",
        "comp-no-match",
        "comp-adaptive",
        "d-crew-comp-adaptive",
    ],
    series_default: 7,
    run: curve,
};

/// One curve of one setting, of which the load is still open.
#[derive(Clone, Debug)]
struct Setting {
    series: &'static str,
    /// Per cent; the ideal's own model has none.
    writes: f64,
    model: Balanced,
}

/// The policy and the window of a series.
pub(super) fn model(series: &str, rules: Rules) -> Balanced {
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
        _ => (Policy::Ideal, None),
    };
    Balanced {
        compaction: closing,
        ..Balanced::new(policy, rules)
    }
}

/// The loads that the authors try, 24 from 0.05 to 1, without the last: no queue is stable at 1,
/// and whether a short run shows it is chance.
pub(super) fn grid() -> Vec<f64> {
    (0..23).map(|n| 0.05 + 0.95 * f64::from(n) / 23.0).collect()
}

/// The highest load whose p99 is within the limit, by halving, and what was measured there. If
/// even the lowest load fails it is taken nevertheless, as the authors do.
pub(super) fn highest(
    model: &Balanced,
    ranks: &Ranks,
    loads: &[f64],
) -> Option<(f64, BalancedOutcome)> {
    let at = |load: f64| Balanced {
        load,
        ..model.clone()
    };
    let (mut low, mut high) = (0, loads.len());
    let mut best = None;
    while low < high {
        let middle = (low + high) / 2;
        let load = *loads.get(middle)?;
        let outcome = at(load).run(ranks);
        if outcome.meets(model.limit_ns()) {
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

/// Every combination of series, cores, gamma and writes.
fn settings(
    request: &Request<'_>,
    requests: u64,
    rules: Rules,
    gammas: &[f64],
    writes: &[f64],
) -> Vec<Setting> {
    let options = request.options;
    let mut settings = Vec::new();
    for series in &request.series {
        for workers in or(&options.cores, &[64]) {
            for gamma in or(&options.gammas, gammas) {
                for writes in or(&options.writes, writes) {
                    let base = model(series, options.rules.unwrap_or(rules));
                    let model = Balanced {
                        workers,
                        gamma,
                        write_percent: match base.policy {
                            Policy::Ideal => 0.0,
                            _ => writes,
                        },
                        depth: options.depth.unwrap_or(2),
                        requests: options.requests.unwrap_or(requests),
                        seed: options.seed,
                        ..base
                    };
                    settings.push(Setting {
                        series,
                        writes,
                        model,
                    });
                }
            }
        }
    }
    settings
}

fn popularities(settings: &[Setting]) -> Popularities {
    Popularities::of_models(settings.iter().map(|setting| &setting.model))
}

fn fig3(request: &Request<'_>) -> Vec<Row> {
    let writes: Vec<f64> = (0..=20).map(|n| f64::from(n * 5)).collect();
    let settings = settings(request, 200_000, Rules::Reference, &[0.0], &writes);
    let popularities = popularities(&settings);
    let loads = sorted(or(&request.options.loads, &grid()));
    let highest = highest_of_all(request, &settings, &popularities, &loads);
    let ideals: Vec<Balanced> = settings
        .iter()
        .zip(&highest)
        .filter_map(|(setting, (load, _))| load.map(|load| ideal(&setting.model, load)))
        .collect();
    let ideals = unique(&ideals);
    let tails = request
        .threads
        .map("c4-fig3, the ideal's tails", &ideals, |model| {
            model.run(popularities.of(model)).p99_ns()
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
    let writes: Vec<f64> = (0..=16).map(|n| f64::from(n * 5)).collect();
    let gammas = [0.9, 0.99, 1.0, 1.1, 1.2, 1.3, 1.4];
    let mut settings = settings(request, 200_000, Rules::Reference, &gammas, &writes);
    let shown = settings.len();
    // The system without writes is what all are compared with; the authors' ideal is their CRCW.
    for index in 0..shown {
        let mut ideal = settings[index].clone();
        ideal.model.policy = match ideal.model.rules {
            Rules::Reference => Policy::Crcw,
            Rules::Paper => Policy::Ideal,
        };
        ideal.model.write_percent = 0.0;
        ideal.model.compaction = None;
        settings.push(ideal);
    }
    let popularities = popularities(&settings);
    let loads = sorted(or(&request.options.loads, &grid()));
    let highest = highest_of_all(request, &settings, &popularities, &loads);
    let mut rows = Vec::new();
    for (index, setting) in settings.iter().take(shown).enumerate() {
        let ideal = highest[shown + index].0;
        let value = match (highest[index].0, ideal) {
            (Some(load), Some(ideal)) => Some(load / ideal),
            _ => None,
        };
        let paper = known_fig4(setting);
        let metric = "throughput_over_ideal";
        rows.push(row(request, setting, setting.writes, metric, value, paper));
    }
    rows
}

fn curve(request: &Request<'_>) -> Vec<Row> {
    let loads: Vec<f64> = (1..=19).map(|n| f64::from(n) * 0.05).collect();
    curves(request, Rules::Reference, (0.0, 50.0), &loads)
}

fn windows(request: &Request<'_>) -> Vec<Row> {
    let loads: Vec<f64> = (1..=19).map(|n| f64::from(n) * 0.05).collect();
    curves(request, Rules::Paper, (0.99, 50.0), &loads)
}

fn curves(
    request: &Request<'_>,
    rules: Rules,
    (gamma, writes): (f64, f64),
    loads: &[f64],
) -> Vec<Row> {
    let settings = settings(request, 200_000, rules, &[gamma], &[writes]);
    let popularities = popularities(&settings);
    let mut points = Vec::new();
    for setting in &settings {
        for load in or(&request.options.loads, loads) {
            let model = Balanced {
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
fn metrics(outcome: &BalancedOutcome) -> [(&'static str, Option<f64>); 8] {
    let tail = |nanoseconds: Option<u64>| {
        let known = nanoseconds.filter(|_| !outcome.saturated);
        known.map(|nanoseconds| nanoseconds as f64)
    };
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let entries = (outcome.entries_max > 0).then_some(f64::from(outcome.entries_max));
    [
        ("p50_ns", tail(outcome.all.quantile(0.5))),
        ("p99_ns", tail(outcome.all.quantile(0.99))),
        ("write_p99_ns", tail(outcome.writes.quantile(0.99))),
        ("throughput_mrps", Some(outcome.throughput_mrps())),
        ("ewt_mean", entries_mean(outcome)),
        ("ewt_max", entries),
        ("batch_mean", share(outcome.window_writes, outcome.windows)),
        ("retry_share", share(outcome.disturbed_reads, outcome.reads)),
    ]
}

/// Entries of the exclusive-writer table, the mean at placements; `None` if there is no table.
pub(super) fn entries_mean(outcome: &BalancedOutcome) -> Option<f64> {
    let known = outcome.entries_max > 0 && outcome.placements > 0;
    known.then(|| outcome.entries_sum as f64 / outcome.placements as f64)
}

/// The highest load within the limit, and the p99 there, of every setting. Settings whose models
/// are the same are simulated once.
fn highest_of_all(
    request: &Request<'_>,
    settings: &[Setting],
    popularities: &Popularities,
    loads: &[f64],
) -> Vec<(Option<f64>, u64)> {
    let models: Vec<Balanced> = settings.iter().map(|one| canonical(&one.model)).collect();
    let once = unique(&models);
    let name = request.figure.name;
    let found = request.threads.map(name, &once, |model| {
        let found = highest(model, popularities.of(model), loads);
        found.map(|(load, outcome)| (load, outcome.p99_ns()))
    });
    let of = |model: &Balanced| {
        let index = once.iter().position(|other| other == model);
        let found = index.and_then(|index| *found.get(index)?);
        found.map_or((None, 0), |(load, p99)| (Some(load), p99))
    };
    models.iter().map(of).collect()
}

/// EREW treats reads and writes alike, so one share of writes stands for all.
fn canonical(model: &Balanced) -> Balanced {
    let mut model = model.clone();
    if model.policy == Policy::Erew {
        model.write_percent = 50.0;
    }
    model
}

fn sorted(mut loads: Vec<f64>) -> Vec<f64> {
    loads.sort_by(f64::total_cmp);
    loads
}

fn unique(models: &[Balanced]) -> Vec<Balanced> {
    let mut once: Vec<Balanced> = Vec::new();
    for model in models {
        if !once.contains(model) {
            once.push(model.clone());
        }
    }
    once
}

/// The ideal system beside a model, at a load.
fn ideal(model: &Balanced, load: f64) -> Balanced {
    Balanced {
        policy: Policy::Ideal,
        write_percent: 0.0,
        compaction: None,
        load,
        ..model.clone()
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
    let Balanced {
        workers,
        gamma,
        depth,
        rules,
        ..
    } = setting.model;
    let rules = match rules {
        Rules::Reference => "reference",
        Rules::Paper => "paper",
    };
    let mut params = format!("gamma={gamma};cores={workers};depth={depth};rules={rules}");
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

/// Whether the paper's setting is what was simulated.
fn is_papers(model: &Balanced) -> bool {
    model.workers == 64 && model.depth == 2
}

/// Throughput and tail over ideal of Fig. 3.
fn known_fig3(setting: &Setting) -> Option<(f64, f64)> {
    let model = &setting.model;
    if !is_papers(model) || model.gamma != 0.0 {
        return None;
    }
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
    if !is_papers(model) {
        return None;
    }
    let wanted = [Some(model.gamma), Some(setting.writes)];
    let cells = cells(FIG4_DATA).find(|cells| cells[..2] == wanted)?;
    let load = match setting.series {
        "crew" => cells[2],
        _ => cells[3],
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

/// The x axis of the figures that are drawn over the share of writes.
const WRITES: &str = "writes, %";
/// The highest load of the ideal system in all of the authors' figures.
const IDEAL_LOAD: f64 = 0.9587;
const FIG3_DATA: &str = include_str!("../../data/c4-fig3.csv");
const FIG4_DATA: &str = include_str!("../../data/c4-fig4.csv");
