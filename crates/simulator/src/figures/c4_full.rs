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
        Balancer, C4Model, Rules,
        system_costs::{Calibration, FullSystem, Items},
    },
    costs::FullCosts,
    figures::{
        Choice, Figure, Parameter, Request, c4,
        parameters::{and, with},
        popularities::Popularities,
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
    run: fig9,
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
    run: fig10,
};

pub(super) const FIG11: Figure = Figure {
    name: "c4-fig11",
    title: "C-4, Fig. 11: few writes to very popular keys, latency and the hot worker's service",
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
    run: fig11,
};

pub(super) const FIG12: Figure = Figure {
    name: "c4-fig12",
    title: "C-4, Fig. 12: what each worker carries at the highest load",
    x: "limit, mean service times",
    about: "As c4-fig11, at the highest load within the limit: requests a second and share of busy \
            time of the hot worker, and the mean of the others. shipped is the server's mechanism, \
            in which no worker is hot: any may hold the popular key.",
    series: SERIES,
    series_default: 3,
    parameters: &with_limit(POPULAR_READS, &[10.0]),
    run: fig12,
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
    series: &[
        "crew",
        "comp",
        "comp-adaptive",
        "d-crew-comp-adaptive",
        "shipped",
        "comp-queue-empty",
        "comp-no-match",
        "d-crew",
        "d-crew-comp",
        "ideal",
    ],
    series_default: 5,
    parameters: &with_limit(
        parameters(
            Parameter::each(Choice::Gamma, c4::GAMMAS, &[0.99]).papers(&[0.99]),
            Parameter::each(Choice::Writes, c4::PERCENT, &[50.0]).papers(&[50.0]),
        ),
        &[10.0, 20.0],
    ),
    run: fig13,
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
    run: table2,
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
    series: &[
        "crew",
        "d-crew",
        "comp-adaptive",
        "d-crew-comp-adaptive",
        "shipped",
        "erew",
        "comp",
        "d-crew-comp",
        "ideal",
    ],
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
    run: scaling,
};

/// One curve of one system, of which the load is still open.
#[derive(Clone, Debug)]
struct Setting {
    series: &'static str,
    calibration: Calibration,
    items: Items,
    /// Per cent; the ideal's own model has none.
    writes: f64,
    balancer: Balancer,
    /// What a request takes of a core that balances.
    dispatch_ns: f64,
    model: C4Model,
}

/// The highest load of a setting within a limit, and the run there.
struct Highest {
    mrps: Option<f64>,
    outcome: Outcome,
}

fn fig9(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    curves(request, &settings, |setting, limit| {
        match (setting.series, limit) {
            ("d-crew" | "crew", 10) => Some(91.0),
            ("erew", 10) => Some(76.0),
            ("ideal", 10) => Some(95.0),
            ("comp", 10) => Some(87.0),
            _ => None,
        }
    })
}

fn fig10(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let ranks = popularities(&settings);
    let name = request.figure.name;
    let rows = request.threads.map(name, &settings, |setting| {
        let ranks = ranks.of(&setting.model);
        let highest = setting.highest(10, ranks, &setting.loads(request));
        let over = highest.mrps.map(|mrps| {
            let ideal = setting.ideal().at_mrps(mrps).run(ranks);
            c4::tail_ns(&highest.outcome) as f64 / c4::tail_ns(&ideal).max(1) as f64
        });
        let paper = |metric| match (setting.series, setting.writes, metric) {
            ("crew" | "d-crew", 50.0, "mrps_under_limit") => Some(91.0),
            ("d-crew", 85.0, "mrps_under_limit") => Some(87.0),
            ("crew", 85.0, "mrps_under_limit") => Some(83.0),
            ("crew", 85.0, "p99_over_ideal") => Some(5.0),
            ("d-crew", 50.0, "ewt_mean_at_90") => Some(30.0),
            ("d-crew", 50.0, "ewt_max_at_90") => Some(64.0),
            ("d-crew", 85.0, "ewt_mean_at_90") => Some(52.0),
            ("d-crew", 85.0, "ewt_max_at_90") => Some(90.0),
            _ => None,
        };
        let mut values = vec![("mrps_under_limit", highest.mrps), ("p99_over_ideal", over)];
        if setting.series == "d-crew" && setting.model.capacity() > 90e6 {
            let outcome = Setting::at_mrps(setting, 90.0).run(ranks);
            values.push(("ewt_mean_at_90", outcome.entries_mean()));
            let most = f64::from(outcome.entries_max);
            values.push(("ewt_max_at_90", Some(most)));
        }
        let row =
            |(metric, value)| setting.row(request, setting.writes, (metric, value), paper(metric));
        values.into_iter().map(row).collect::<Vec<Row>>()
    });
    rows.into_iter().flatten().collect()
}

fn fig11(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    curves(request, &settings, |setting, limit| {
        match (setting.series, limit) {
            ("crew", 10) => Some(76.0),
            ("comp", 10) => Some(125.0),
            ("comp", 20) => Some(142.0),
            _ => None,
        }
    })
}

fn fig12(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let ranks = popularities(&settings);
    let limits = request.counts(Choice::Limit);
    let name = request.figure.name;
    let rows = request.threads.map(name, &settings, |setting| {
        let one = |limit: &u16| {
            let loads = setting.loads(request);
            let highest = setting.highest(*limit, ranks.of(&setting.model), &loads);
            let outcome = &highest.outcome;
            let hot = setting.model.hot_worker();
            let others = |of: &dyn Fn(usize) -> f64| Some(setting.mean_of_others(of));
            let values = [
                ("mrps_under_limit", highest.mrps),
                ("hot_mrps", hot.map(|worker| outcome.core_mrps(worker))),
                ("hot_busy", hot.map(|worker| outcome.utilization(worker))),
                ("others_mrps", others(&|worker| outcome.core_mrps(worker))),
                ("others_busy", others(&|worker| outcome.utilization(worker))),
            ];
            let paper = |metric| match (setting.series, metric, *limit) {
                ("crew", "hot_mrps", 10) => Some(0.92),
                ("crew", "others_mrps", 10) => Some(1.28),
                ("comp", "hot_mrps", 10) => Some(1.66),
                ("comp", "hot_busy", 10) => Some(0.47),
                ("comp", "others_mrps", 10) => Some(2.3),
                _ => None,
            };
            let row = |(metric, value)| {
                setting.row(request, f64::from(*limit), (metric, value), paper(metric))
            };
            values.map(row)
        };
        limits.iter().flat_map(one).collect::<Vec<Row>>()
    });
    rows.into_iter().flatten().collect()
}

fn fig13(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    curves(request, &settings, |setting, limit| {
        match (setting.series, limit) {
            ("crew", 10) => Some(56.0),
            ("comp", 10) => Some(58.0),
            ("comp", 20) => Some(100.0),
            _ => None,
        }
    })
}

fn table2(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let ranks = popularities(&settings);
    let name = request.figure.name;
    let rows = request.threads.map(name, &settings, |setting| {
        let (ranks, loads) = (ranks.of(&setting.model), setting.loads(request));
        let highest = setting.highest(10, ranks, &loads);
        let outcome = &highest.outcome;
        let mut values = vec![("mrps_under_limit", highest.mrps)];
        if setting.series == "comp" {
            let base = setting.like("crew").highest(10, ranks, &loads).outcome;
            let hot = setting.model.hot_worker();
            let gain = |worker| outcome.core_mrps(worker) / base.core_mrps(worker);
            let of =
                |outcome: &Outcome| setting.mean_of_others(&|worker| outcome.core_mrps(worker));
            values.push(("hot_gain", hot.map(gain)));
            values.push(("others_gain", Some(of(outcome) / of(&base))));
        }
        let paper = |metric| match (setting.items, setting.series, metric) {
            (Items::Tiny, "crew", "mrps_under_limit") => Some(266.0),
            (Items::Medium, "crew", "mrps_under_limit") => Some(142.0),
            (Items::Large, "crew", "mrps_under_limit") => Some(76.0),
            (Items::Tiny, "comp", "mrps_under_limit") => Some(363.0),
            (Items::Medium, "comp", "mrps_under_limit") => Some(190.0),
            (Items::Large, "comp", "mrps_under_limit") => Some(125.0),
            (Items::Tiny, _, "hot_gain") => Some(1.1),
            (Items::Medium, _, "hot_gain" | "others_gain") => Some(1.3),
            (Items::Tiny, _, "others_gain") => Some(1.3),
            (Items::Large, _, "hot_gain" | "others_gain") => Some(1.6),
            _ => None,
        };
        let bytes = setting.items.value_bytes() as f64;
        let row = |(metric, value)| setting.row(request, bytes, (metric, value), paper(metric));
        values.into_iter().map(row).collect::<Vec<Row>>()
    });
    rows.into_iter().flatten().collect()
}

fn scaling(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let ranks = popularities(&settings);
    let name = request.figure.name;
    let highest = request.threads.map(name, &settings, |setting| {
        let (ranks, loads) = (ranks.of(&setting.model), setting.loads(request));
        let one = Setting {
            model: C4Model {
                workers: 1,
                dispatch_ns: 0,
                ..setting.model.clone()
            },
            ..setting.clone()
        };
        let many = setting.highest(10, ranks, &loads).mrps;
        (many, one.highest(10, ranks, &loads).mrps)
    });
    let mut rows = Vec::new();
    for (setting, (mrps, one)) in settings.iter().zip(highest) {
        let cores = f64::from(setting.model.cores());
        let over = mrps.zip(one).map(|(mrps, one)| mrps / one);
        for value in [("mrps_under_limit", mrps), ("over_one", over)] {
            rows.push(setting.row(request, cores, value, None));
        }
    }
    rows
}

/// Latencies over load of every setting, and its highest loads.
fn curves(
    request: &Request<'_>,
    settings: &[Setting],
    paper: impl Fn(&Setting, u16) -> Option<f64> + Sync,
) -> Vec<Row> {
    let ranks = popularities(settings);
    let limits = request.counts(Choice::Limit);
    let asked = request.numbers(Choice::Load);
    let name = request.figure.name;
    let rows = request.threads.map(name, settings, |setting| {
        let ranks = ranks.of(&setting.model);
        let mut rows = Vec::new();
        let loads = if asked.is_empty() {
            curve_loads()
        } else {
            asked.clone()
        };
        for load in loads {
            let model = C4Model {
                load,
                ..setting.model.clone()
            };
            let outcome = model.run(ranks);
            // Beyond what the system can carry, latencies say how long the run was.
            let limit = model.limit_ns() * TOO_LONG;
            if asked.is_empty() && c4::tail_ns(&outcome) > limit {
                break;
            }
            let mrps = load * model.capacity() / 1e6;
            rows.extend(setting.curve_rows(request, mrps, &outcome));
        }
        for limit in &limits {
            let highest = setting.highest(*limit, ranks, &setting.loads(request));
            let paper = paper(setting, *limit);
            let value = ("mrps_under_limit", highest.mrps);
            rows.push(setting.row(request, f64::from(*limit), value, paper));
        }
        rows
    });
    rows.into_iter().flatten().collect()
}

/// Every combination of costs, balancer, items, series, cores, gamma and writes.
fn settings(request: &Request<'_>) -> Vec<Setting> {
    let options = request.options;
    let costs = options.costs.as_ref().map(|given| &given.costs);
    let costs = costs.unwrap_or(FullCosts::measured());
    let mut settings = Vec::new();
    for calibration in request.calibrations() {
        for items in items(request) {
            let system = match calibration {
                Calibration::Paper => FullSystem::paper(items),
                Calibration::Measured => {
                    let batch = options.batch.unwrap_or(costs.request.batch);
                    FullSystem::measured(costs, items, batch)
                }
            };
            for (cores, balancer) in cores(request, calibration) {
                for gamma in request.numbers(Choice::Gamma) {
                    for writes in request.numbers(Choice::Writes) {
                        for series in &request.series {
                            let open = Setting {
                                series,
                                calibration,
                                items,
                                writes,
                                balancer,
                                dispatch_ns: costs.dispatch_ns(),
                                model: C4Model {
                                    workers: cores,
                                    gamma,
                                    depth: request.number(Choice::Depth) as u16,
                                    requests: request.requests(),
                                    seed: request.seed(),
                                    ..C4Model::of_system(Policy::Ideal, system)
                                },
                            };
                            settings.push(open.like(series));
                        }
                    }
                }
            }
        }
    }
    settings
}

fn items(request: &Request<'_>) -> Vec<Items> {
    let names = request.names(Choice::Items);
    let named = |items: &Items| names.iter().any(|name| name == items.name());
    let all = [Items::Tiny, Items::Medium, Items::Large];
    all.into_iter().filter(named).collect()
}

/// Numbers of cores with each balancer: as asked for; else the paper's costs have its network card
/// and ours a core.
fn cores(request: &Request<'_>, calibration: Calibration) -> Vec<(u16, Balancer)> {
    let balancers = match (c4::balancers(request), calibration) {
        (asked, _) if !asked.is_empty() => asked,
        (_, Calibration::Paper) => vec![Balancer::Card],
        (_, Calibration::Measured) => vec![Balancer::Core],
    };
    let with = |cores| balancers.iter().map(move |balancer| (cores, *balancer));
    let all = request.counts(Choice::Cores).into_iter();
    all.flat_map(with).collect()
}

fn popularities(settings: &[Setting]) -> Popularities {
    Popularities::of_models(settings.iter().map(|setting| &setting.model))
}

impl Setting {
    /// The same system under another series' policy.
    fn like(&self, series: &'static str) -> Self {
        let of_series = c4::model(series, Rules::Paper);
        let model = C4Model {
            policy: of_series.policy,
            mechanism: of_series.mechanism,
            compaction: of_series.compaction,
            write_percent: match of_series.policy {
                Policy::Ideal => 0.0,
                _ => self.writes,
            },
            workers: self.model.cores(),
            dispatch_ns: 0,
            ..self.model.clone()
        };
        Self {
            series,
            model: c4::balanced(model, self.balancer, self.dispatch_ns),
            ..self.clone()
        }
    }

    fn ideal(&self) -> Self {
        self.like("ideal")
    }

    /// At so many million requests a second.
    fn at_mrps(&self, mrps: f64) -> C4Model {
        C4Model {
            load: mrps * 1e6 / self.model.capacity(),
            ..self.model.clone()
        }
    }

    /// The loads among which the highest is sought.
    fn loads(&self, request: &Request<'_>) -> Vec<f64> {
        let grid: Vec<f64> = (1..100).map(|n| f64::from(n) / 100.0).collect();
        let asked = request.numbers(Choice::Load);
        let mut loads = if asked.is_empty() { grid } else { asked };
        loads.sort_by(f64::total_cmp);
        loads
    }

    fn highest(&self, limit: u16, ranks: &Ranks, loads: &[f64]) -> Highest {
        let model = C4Model {
            limit,
            ..self.model.clone()
        };
        match c4::highest(&model, ranks, loads) {
            Some((load, outcome)) => Highest {
                mrps: Some(load * model.capacity() / 1e6),
                outcome,
            },
            None => Highest {
                mrps: None,
                outcome: model.run(ranks),
            },
        }
    }

    fn mean_of_others(&self, of: &dyn Fn(usize) -> f64) -> f64 {
        let hot = self.model.hot_worker();
        let workers = 0..usize::from(self.model.workers);
        let others = workers.filter(|worker| Some(*worker) != hot).map(of);
        let all: Vec<f64> = others.collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }

    fn curve_rows(&self, request: &Request<'_>, mrps: f64, outcome: &Outcome) -> Vec<Row> {
        let tail = |ns: Option<u64>| ns.filter(|_| !outcome.saturated).map(|ns| ns as f64);
        let hot = self.model.hot_worker();
        let hot_ns = hot.map(|worker| outcome.core_service_ns(worker));
        let others = self.mean_of_others(&|worker| outcome.core_service_ns(worker));
        let values = [
            ("p50_ns", tail(outcome.all.quantile(0.5))),
            ("p99_ns", tail(outcome.all.quantile(0.99))),
            ("write_p99_ns", tail(outcome.writes.quantile(0.99))),
            ("hot_service_ns", hot_ns),
            ("other_service_ns", Some(others)),
            ("ewt_mean", outcome.entries_mean()),
            ("batch_mean", outcome.batch_mean()),
        ];
        let known = values.into_iter().filter(|(_, value)| value.is_some());
        known
            .map(|value| self.row(request, mrps, value, None))
            .collect()
    }

    fn row(
        &self,
        request: &Request<'_>,
        x: f64,
        (metric, value): (&'static str, Option<f64>),
        paper: Option<f64>,
    ) -> Row {
        let model = &self.model;
        let figure = request.figure;
        let (costs, balancer) = (self.calibration.name(), self.balancer.name());
        let mut params = format!("costs={costs};balancer={balancer};gamma={}", model.gamma);
        let is_x = |axis: &Figure| axis.name == figure.name;
        if !is_x(&FIG10) {
            params += &format!(";writes={}", self.writes);
        }
        if !is_x(&TABLE2) {
            params += &format!(";items={}", self.items.name());
        }
        if !is_x(&SCALING) {
            params += &format!(";cores={}", model.cores());
        }
        Row {
            figure: figure.name,
            series: self.series.into(),
            params,
            x,
            metric,
            value,
            paper,
        }
    }
}

/// Shares of the capacity at which latencies are drawn.
fn curve_loads() -> Vec<f64> {
    (1..=32).map(|n| f64::from(n) * 0.03).collect()
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
const SERIES: &[&str] = &[
    "crew",
    "comp",
    "shipped",
    "d-crew",
    "erew",
    "ideal",
    "d-crew-comp",
    "comp-adaptive",
    "d-crew-comp-adaptive",
];
