//! C-4's figures of the whole system: 9 to 13 and Table 2, and how throughput grows with workers.
//!
//! Every figure is drawn with the paper's costs, so that the paper's numbers can stand beside it,
//! and with ours. The paper's network card balances, and costs no core; with our costs a core does
//! ([`C4Model::with_dispatcher`]), and systems compare at the same number of cores. A highest load
//! is found by halving on a grid of hundredths of the capacity.

use curtail_dispatch::Policy;
use curtail_workload::Ranks;

use crate::{
    c4::{
        C4Model, Rules,
        system_costs::{Calibration, FullSystem, Items},
    },
    figures::{
        Choice, Figure, Parameter, c4,
        figure_run::{Case, Found, Request},
        parameters::{and, with},
        shared_rank_tables::Popularities,
    },
    queueing::Outcome,
    rows::Row,
};

pub(super) const FIG9: Figure = Figure {
    name: "c4-fig9",
    title: "C-4, Fig. 9: balanced writes of uniform keys, half of all writes",
    x: MRPS,
    about: "64 workers, items of 16 and 512 bytes. With the paper's costs, Ideal and d-CREW are \
            what the model was set by; the others follow. EREW carries 69 MRPS here and 76 there \
            with the defaults: \
            some workers have more of the keys than others, and how many more depends on the \
            hash. The paper's 95 and 87 are its EREW, 80 % of Ideal, and 4 below CREW. \
            balancer=card is the paper's: its network card balances, which costs no core. \
            balancer=core, the default with our costs, takes one of the cores for it, through \
            which every request goes, but for EREW, which binds by the key, and Ideal, a bound \
            that nothing reaches. RLU (10 MRPS) and MV-RLU (below 4) are other programs and not \
            modelled. shipped is the server's mechanism (c4-fig3), which has no balancer; all \
            others are the paper's. Rows at x = 10 are highest loads, for a limit of ten mean \
            service times.",
    series: SERIES,
    series_default: 6,
    parameters: &with_limit(
        parameters(
            Parameter::each(Choice::Gamma, c4::GAMMAS, &[0.0]).papers(&[0.0]),
            Parameter::each(Choice::Writes, c4::PERCENT, &[50.0]).papers(&[50.0]),
        ),
        &[10.0],
    ),
    run: |request| draw(request, over_load),
};

pub(super) const FIG10: Figure = Figure {
    name: "c4-fig10",
    title: "C-4, Fig. 10: throughput and tail with more and more writes of uniform keys",
    x: "writes, %",
    about: "As c4-fig9. The tail is the p99 at the highest load over that of Ideal at the same \
            load; near saturation it differs by half from seed to seed. `ewt_*_at_90` is the \
            exclusive-writer table at 90 MRPS (section 7.1.1), which is nearer to the model's \
            saturation than to the paper's system's, so that more writes are outstanding. shipped \
            is the server's mechanism, all others are the paper's.",
    series: SERIES,
    series_default: 5,
    parameters: &parameters(
        Parameter::each(Choice::Gamma, c4::GAMMAS, &[0.0]).papers(&[0.0]),
        Parameter::each(Choice::Writes, c4::PERCENT, &FIG10_WRITES).axis(),
    ),
    run: |request| draw(request, over_writes),
};

pub(super) const FIG11: Figure = Figure {
    name: "c4-fig11",
    title: "C-4, Fig. 11: few writes to very popular keys: latency, the hot worker's service time",
    x: MRPS,
    about: "gamma 1.25, 5 % writes. `hot_service_ns` is the time for a request on the worker that \
            the most popular key's writes go to, `other_service_ns` on all others. With the \
            paper's costs the baseline's 76 MRPS are what the cost of a contended line was set \
            by; the rest follows. There the others need 1.5 times as long (paper: 1.6), the hot \
            worker 1.3 times (paper: 2.4), because its readers wait rather than delay it. With \
            compaction the model carries 146 MRPS, the paper's system 125, and 142 under twenty \
            service times. Windows are made for ten under either limit. shipped is the server's \
            mechanism, all others are the paper's. Rows at x = 10 and 20 are highest loads.",
    series: SERIES,
    series_default: 6,
    parameters: &with_limit(POPULAR_READS, &[10.0, 20.0]),
    run: |request| draw(request, over_load),
};

pub(super) const FIG12: Figure = Figure {
    name: "c4-fig12",
    title: "C-4, Fig. 12: requests and busy time of each worker at the highest load",
    x: "limit, mean service times",
    about: "As c4-fig11, at the highest load within the limit: requests a second and share of busy \
            time of the hot worker, and the mean of the others. shipped is the server's mechanism, \
            in which no worker is hot: any may hold the popular key.",
    series: SERIES,
    series_default: 3,
    parameters: &with_limit(POPULAR_READS, &[10.0]),
    run: |request| draw(request, of_each_worker),
};

pub(super) const FIG13: Figure = Figure {
    name: "c4-fig13",
    title: "C-4, Fig. 13: many writes to popular keys, and when a window closes",
    x: MRPS,
    about: "gamma 0.99, half writes. The paper's window (comp) stays open until a service time \
            before ten of them, which puts p99 there as soon as one request in a hundred is in a \
            window: the step at low load. Windows that close early have no step. Under a limit of \
            ten service times the highest load of comp is decided by the few hundred nanoseconds \
            between the plateau and the limit: the paper's plateau crosses it at 58 MRPS, the \
            model's at 32; under twenty both carry 100. d-CREW alone carries less than \
            CREW here: while an owner has a long queue, other popular keys come to stay with it, \
            and at 64 outstanding writes of a key everything waits. shipped is the server's \
            mechanism, all others are the paper's. Rows at x = 10 and 20 are highest loads.",
    series: "crew comp comp-adaptive d-crew-comp-adaptive shipped comp-queue-empty \
             comp-no-match d-crew d-crew-comp ideal",
    series_default: 5,
    parameters: &with_limit(
        parameters(
            Parameter::each(Choice::Gamma, c4::GAMMAS, &[0.99]).papers(&[0.99]),
            Parameter::each(Choice::Writes, c4::PERCENT, &[50.0]).papers(&[50.0]),
        ),
        &[10.0, 20.0],
    ),
    run: |request| draw(request, over_load),
};

pub(super) const TABLE2: Figure = Figure {
    name: "c4-table2",
    title: "C-4, Table 2: smaller items",
    x: "value, bytes",
    about: "gamma 1.25, 5 % writes, highest loads at ten mean service times of each size. With the \
            paper's costs, throughput with compaction is what the smaller items' times were set \
            by; without it follows. `hot_gain` and `others_gain` are a worker's throughput over \
            that without compaction; without it, the model's hot worker is less slowed than the \
            paper's (see c4-fig11) and serves reads, too. Tiny items gain nothing in the model: \
            putting a write aside and answering it takes 200 ns, carrying it out 180. In the \
            paper, smaller items have the same bytes in all, hence more keys; here there are 1.6 \
            million always. shipped is the server's mechanism, all others are the paper's.",
    series: SERIES,
    series_default: 6,
    parameters: &with(
        POPULAR_READS,
        Parameter::names(Choice::Items, &["tiny", "medium", "large"]).axis(),
    ),
    run: |request| draw(request, over_sizes),
};

pub(super) const SCALING: Figure = Figure {
    name: "c4-scaling",
    title: "Write-heavy throughput with 1 to 64 cores: d-CREW, compaction, and both",
    x: "cores",
    about: "Beyond the paper, which evaluates d-CREW and compaction apart. Our own costs, items of \
            16 and 512 bytes, highest loads at ten mean service times. From 2 cores on one \
            balances (balancer=core): all requests go through it, and what it carries is the \
            limit from some number of cores on; --balancer card has a network card do it, as in \
            the paper, and costs nothing. `over_one` is how many times what one core carries, \
            which within such a limit is less than its share. shipped is the server's mechanism, \
            which needs no core that balances; all others are the paper's.",
    series: "crew d-crew comp-adaptive d-crew-comp-adaptive shipped erew comp d-crew-comp ideal",
    series_default: 5,
    parameters: &with(
        with(
            parameters(
                Parameter::each(Choice::Gamma, c4::GAMMAS, &[0.0, 0.99]),
                Parameter::each(Choice::Writes, c4::PERCENT, &[50.0, 95.0]),
            ),
            Parameter::names(Choice::Calibration, &["measured"]).called("costs"),
        ),
        Parameter::each(
            Choice::Cores,
            c4::CORES,
            &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0],
        )
        .whole()
        .axis(),
    ),
    run: |request| draw(request, over_cores),
};

/// A system, of which the load is still open.
struct System<'a> {
    request: &'a Request<'a>,
    case: &'a Case,
    model: &'a C4Model,
    ranks: &'a Ranks,
    /// Loads that are asked for.
    loads: Vec<f64>,
}

/// Numbers of every combination of costs, balancer, items, series, cores, gamma and writes.
fn draw(request: &Request<'_>, of: impl Fn(&System<'_>) -> Vec<Found> + Sync) -> Vec<Row> {
    let cases = request.cases(&[
        Choice::Calibration,
        Choice::Items,
        Choice::Cores,
        Choice::Balancer,
        Choice::Gamma,
        Choice::Writes,
    ]);
    let points = request.under_series(&cases).into_iter().map(|case| {
        // The paper's costs have its network card, and ours a core.
        let usual = match case.name(Choice::Calibration) {
            Calibration::Paper => "card",
            Calibration::Measured => "core",
        };
        let case = match case.value(Choice::Balancer) {
            Some(_) => case,
            None => case.with(Choice::Balancer, usual),
        };
        let model = model(request, &case, case.series);
        (case, model)
    });
    let points: Vec<(Case, C4Model)> = points.collect();
    let ranks = Popularities::of_models(points.iter().map(|(_, model)| model));
    request.draw(&points, |(case, model)| {
        let system = System {
            request,
            case,
            model,
            ranks: ranks.of(model),
            loads: request.numbers(Choice::Load),
        };
        request.rows(case, of(&system))
    })
}

/// The system of a case under a series' policy.
fn model(request: &Request<'_>, case: &Case, series: &str) -> C4Model {
    let (costs, _) = request.costs();
    let items: Items = case.name(Choice::Items);
    let system = match case.name(Choice::Calibration) {
        Calibration::Paper => FullSystem::paper(items),
        Calibration::Measured => {
            let batch = request.options.batch.unwrap_or(costs.request.batch);
            FullSystem::measured(costs, items, batch)
        }
    };
    let of_series = c4::model(series, Rules::Paper);
    let model = C4Model {
        policy: of_series.policy,
        mechanism: of_series.mechanism,
        compaction: of_series.compaction,
        write_percent: match of_series.policy {
            Policy::Ideal => 0.0,
            _ => case.number(Choice::Writes),
        },
        workers: case.count(Choice::Cores),
        gamma: case.number(Choice::Gamma),
        depth: request.number(Choice::Depth) as u16,
        requests: request.requests(),
        seed: request.seed(),
        ..C4Model::of_system(of_series.policy, system)
    };
    c4::balanced(model, case.name(Choice::Balancer), costs)
}

/// Over the share of writes: highest loads, their tails, and the exclusive-writer table.
fn over_writes(system: &System<'_>) -> Vec<Found> {
    let x = system.case.number(Choice::Writes);
    let (mrps, outcome) = system.highest(10);
    let ideal = system.at_mrps(&system.like("ideal"), mrps);
    let over = c4::tail_ns(&outcome) as f64 / c4::tail_ns(&ideal).max(1) as f64;
    let mut found = vec![
        (x, "mrps_under_limit", Some(mrps)),
        (x, "p99_over_ideal", Some(over)),
    ];
    if system.case.series == "d-crew" && system.model.capacity() > 90e6 {
        let outcome = system.at_mrps(system.model, 90.0);
        let most = f64::from(outcome.entries_max);
        found.push((x, "ewt_mean_at_90", outcome.entries_mean()));
        found.push((x, "ewt_max_at_90", Some(most)));
    }
    found
}

/// Over the limit: what each worker carries.
fn of_each_worker(system: &System<'_>) -> Vec<Found> {
    let one = |limit: u16| {
        let (highest, outcome) = system.highest(limit);
        let hot = system.model.hot_worker();
        let mrps = |worker| outcome.core_mrps(worker);
        let busy = |worker| outcome.utilization(worker);
        let found = [
            ("mrps_under_limit", Some(highest)),
            ("hot_mrps", hot.map(mrps)),
            ("hot_busy", hot.map(busy)),
            ("others_mrps", Some(system.mean_of_others(mrps))),
            ("others_busy", Some(system.mean_of_others(busy))),
        ];
        found.map(|(metric, value)| (f64::from(limit), metric, value))
    };
    let limits = system.request.counts(Choice::Limit).into_iter();
    limits.flat_map(one).collect()
}

/// Over the size of items: highest loads, and what compaction gains.
fn over_sizes(system: &System<'_>) -> Vec<Found> {
    let x = system.case.name::<Items>(Choice::Items).value_bytes() as f64;
    let (mrps, outcome) = system.highest(10);
    let mut found = vec![(x, "mrps_under_limit", Some(mrps))];
    if system.case.series == "comp" {
        let (_, base) = system.highest_of(&system.like("crew"), 10);
        let hot = system.model.hot_worker();
        let gain = |worker| outcome.core_mrps(worker) / base.core_mrps(worker);
        let of = |outcome: &Outcome| system.mean_of_others(|worker| outcome.core_mrps(worker));
        found.push((x, "hot_gain", hot.map(gain)));
        found.push((x, "others_gain", Some(of(&outcome) / of(&base))));
    }
    found
}

/// Over cores: highest loads, and how many times one core's they are.
fn over_cores(system: &System<'_>) -> Vec<Found> {
    let x = f64::from(system.model.cores());
    let one = C4Model {
        workers: 1,
        dispatch_ns: 0,
        ..system.model.clone()
    };
    let (mrps, _) = system.highest(10);
    let (one, _) = system.highest_of(&one, 10);
    vec![
        (x, "mrps_under_limit", Some(mrps)),
        (x, "over_one", Some(mrps / one)),
    ]
}

/// Latencies over load, and highest loads.
fn over_load(system: &System<'_>) -> Vec<Found> {
    let model = system.model;
    let mut found = Vec::new();
    let loads = match &system.loads[..] {
        [] => (1..=32).map(|n| f64::from(n) * 0.03).collect(),
        asked => asked.to_vec(),
    };
    for load in loads {
        let outcome = C4Model {
            load,
            ..model.clone()
        }
        .run(system.ranks);
        // Beyond what the system can carry, latencies say how long the run was.
        let limit = model.limit_ns() * TOO_LONG;
        if system.loads.is_empty() && c4::tail_ns(&outcome) > limit {
            break;
        }
        found.extend(system.latencies(load * model.capacity() / 1e6, &outcome));
    }
    for limit in system.request.counts(Choice::Limit) {
        let (mrps, _) = system.highest(limit);
        found.push((f64::from(limit), "mrps_under_limit", Some(mrps)));
    }
    found
}

impl System<'_> {
    /// The same system under another series' policy.
    fn like(&self, series: &str) -> C4Model {
        model(self.request, self.case, series)
    }

    /// A run at so many million requests a second.
    fn at_mrps(&self, model: &C4Model, mrps: f64) -> Outcome {
        let load = mrps * 1e6 / model.capacity();
        C4Model {
            load,
            ..model.clone()
        }
        .run(self.ranks)
    }

    /// The most that it carries within a limit, and the run there.
    fn highest(&self, limit: u16) -> (f64, Outcome) {
        self.highest_of(self.model, limit)
    }

    fn highest_of(&self, model: &C4Model, limit: u16) -> (f64, Outcome) {
        let model = C4Model {
            limit,
            ..model.clone()
        };
        let mut loads = self.loads.clone();
        if loads.is_empty() {
            loads = (1..100).map(|n| f64::from(n) / 100.0).collect();
        }
        loads.sort_by(f64::total_cmp);
        let found = c4::highest(&model, self.ranks, &loads);
        let (load, outcome) = found.unwrap_or_else(|| unreachable!("there is no load"));
        (load * model.capacity() / 1e6, outcome)
    }

    fn mean_of_others(&self, of: impl Fn(usize) -> f64) -> f64 {
        let hot = self.model.hot_worker();
        let workers = 0..usize::from(self.model.workers);
        let others = workers.filter(|worker| Some(*worker) != hot).map(of);
        let all: Vec<f64> = others.collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }

    fn latencies(&self, mrps: f64, outcome: &Outcome) -> impl Iterator<Item = Found> {
        let service = |worker| outcome.core_service_ns(worker);
        let found = [
            ("p50_ns", outcome.stable(&outcome.all, 0.5)),
            ("p99_ns", outcome.stable(&outcome.all, 0.99)),
            ("write_p99_ns", outcome.stable(&outcome.writes, 0.99)),
            ("hot_service_ns", self.model.hot_worker().map(service)),
            ("other_service_ns", Some(self.mean_of_others(service))),
            ("ewt_mean", outcome.entries_mean()),
            ("batch_mean", outcome.batch_mean()),
        ];
        let known = found.into_iter().filter(|(_, value)| value.is_some());
        known.map(move |(metric, value)| (mrps, metric, value))
    }
}

/// What all of these figures take; the paper's setting is 64 cores and items of 512 bytes.
const fn parameters(gamma: Parameter, writes: Parameter) -> [Parameter; COMMON] {
    [
        Parameter::names(Choice::Calibration, &["paper", "measured"])
            .called("costs")
            .papers_named(&["paper"]),
        Parameter::names(Choice::Balancer, &[])
            .follows()
            .papers_named(&["card"]),
        gamma,
        writes,
        Parameter::names(Choice::Items, &["large"]).papers_named(&["large"]),
        Parameter::each(Choice::Cores, c4::CORES, &[64.0])
            .whole()
            .papers(&[64.0]),
        Parameter::together(Choice::Load, c4::LOADS),
        c4::DEPTH,
        Parameter::one(Choice::Batch, (1.0, 1e6), &[])
            .whole()
            .follows(),
        Parameter::file(Choice::Costs),
        Parameter::requests(&[200_000.0]),
        Parameter::seed(),
    ]
}

/// The same and the limits under which highest loads are sought.
const fn with_limit(all: [Parameter; COMMON], limits: &'static [f64]) -> [Parameter; COMMON + 1] {
    let limit = Parameter::each(Choice::Limit, (2.0, 10_000.0), limits);
    and(all, limit.whole().axis())
}

const COMMON: usize = 12;
/// Section 7.1.2: a few writes to very popular keys.
const POPULAR_READS: [Parameter; COMMON] = parameters(
    Parameter::each(Choice::Gamma, c4::GAMMAS, &[1.25]).papers(&[1.25]),
    Parameter::each(Choice::Writes, c4::PERCENT, &[5.0]).papers(&[5.0]),
);
const FIG10_WRITES: [f64; 8] = [50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0, 85.0];
const MRPS: &str = "offered load, million requests a second";
/// Curves end where p99 is so many limits.
const TOO_LONG: u64 = 3;
const SERIES: &str =
    "crew comp shipped d-crew erew ideal d-crew-comp comp-adaptive d-crew-comp-adaptive";
