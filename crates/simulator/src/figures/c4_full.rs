//! C-4's figures of the whole system: 9 to 13 and Table 2, and how throughput grows with workers.
//!
//! Every figure is drawn with the paper's costs, so that the paper's numbers can stand beside it,
//! and with ours. A highest load is found by halving on a grid of hundredths of the capacity.

use curtail_dispatch::Policy;
use curtail_workload::Ranks;

use crate::{
    balanced::{Balanced, BalancedOutcome, Rules},
    costs::FullCosts,
    figures::{Figure, Request, c4, or, popularities::Popularities},
    full::{Calibration, FullSystem, Items},
    rows::Row,
};

pub(super) const FIG9: Figure = Figure {
    name: "c4-fig9",
    title: "C-4, Fig. 9: balanced writes of uniform keys, half of all writes",
    x: MRPS,
    about: "64 workers, items of 16 and 512 bytes. With the paper's costs, Ideal and d-CREW are \
            what the model was set by; the others follow. EREW carries 69 MRPS here and 76 there: \
            some workers have more of the keys than others, and how many more depends on the \
            hash. RLU (10 MRPS) and MV-RLU (below 4) are other programs and not modelled. Rows at \
            x = 10 are highest loads, for a limit of ten mean service times.",
    series: SERIES,
    series_default: 5,
    run: fig9,
};

pub(super) const FIG10: Figure = Figure {
    name: "c4-fig10",
    title: "C-4, Fig. 10: throughput and tail with more and more writes of uniform keys",
    x: "writes, %",
    about: "As c4-fig9. The tail is the p99 at the highest load over that of Ideal at the same \
            load; near saturation it differs by half from seed to seed. `ewt_*_at_90` is the \
            exclusive-writer table at 90 MRPS (section 7.1.1), which is nearer to the model's \
            saturation than to the paper's system's, so that more writes are outstanding.",
    series: SERIES,
    series_default: 4,
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
            service times. Windows are made for ten under either limit. Rows at x = 10 and 20 are \
            highest loads.",
    series: SERIES,
    series_default: 5,
    run: fig11,
};

pub(super) const FIG12: Figure = Figure {
    name: "c4-fig12",
    title: "C-4, Fig. 12: what each worker carries at the highest load",
    x: "limit, mean service times",
    about: "As c4-fig11, at the highest load within the limit: requests a second and share of busy \
            time of the hot worker, and the mean of the others.",
    series: SERIES,
    series_default: 2,
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
            and at 64 outstanding writes of a key everything waits. Rows at x = 10 and 20 are \
            highest loads.",
    series: &[
        "crew",
        "comp",
        "comp-adaptive",
        "d-crew-comp-adaptive",
        "comp-queue-empty",
        "comp-no-match",
        "d-crew",
        "d-crew-comp",
        "ideal",
    ],
    series_default: 4,
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
            million always.",
    series: SERIES,
    series_default: 5,
    run: table2,
};

pub(super) const SCALING: Figure = Figure {
    name: "c4-scaling",
    title: "Write-heavy throughput with 1 to 64 workers: d-CREW, compaction, and both",
    x: "workers",
    about: "Beyond the paper, which evaluates d-CREW and compaction apart. Our own costs, items of \
            16 and 512 bytes, highest loads at ten mean service times; `over_one` is how many \
            times what one worker carries, which within such a limit is less than its share.",
    series: &[
        "crew",
        "d-crew",
        "comp-adaptive",
        "d-crew-comp-adaptive",
        "erew",
        "comp",
        "d-crew-comp",
        "ideal",
    ],
    series_default: 4,
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
    model: Balanced,
}

/// What a figure draws if nothing else is asked for.
#[derive(Clone, Copy)]
struct Defaults<'a> {
    gammas: &'a [f64],
    writes: &'a [f64],
    items: &'a [Items],
    calibrations: &'a [Calibration],
    cores: &'a [u16],
}

/// The highest load of a setting within a limit, and the run there.
struct Highest {
    mrps: Option<f64>,
    outcome: BalancedOutcome,
}

fn fig9(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &UNIFORM);
    curves(request, &settings, &[10], |setting, _| {
        match setting.series {
            "d-crew" | "crew" => Some(91.0),
            "erew" => Some(76.0),
            "ideal" => Some(95.0),
            "comp" => Some(87.0),
            _ => None,
        }
    })
}

fn fig10(request: &Request<'_>) -> Vec<Row> {
    let writes: Vec<f64> = (10..=17).map(|n| f64::from(n * 5)).collect();
    let defaults = Defaults {
        writes: &writes,
        ..UNIFORM
    };
    let settings = settings(request, &defaults);
    let ranks = popularities(&settings);
    let name = request.figure.name;
    let rows = request.threads.map(name, &settings, |setting| {
        let ranks = ranks.of(&setting.model);
        let highest = setting.highest(10, ranks, &setting.loads(request));
        let over = highest.mrps.map(|mrps| {
            let ideal = setting.ideal().at_mrps(mrps).run(ranks);
            highest.outcome.p99_ns() as f64 / ideal.p99_ns().max(1) as f64
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
        if setting.series == "d-crew" && setting.is_papers() {
            let outcome = Setting::at_mrps(setting, 90.0).run(ranks);
            values.push(("ewt_mean_at_90", c4::entries_mean(&outcome)));
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
    let settings = settings(request, &POPULAR_READS);
    curves(request, &settings, &[10, 20], |setting, limit| {
        match (setting.series, limit) {
            ("crew", 10) => Some(76.0),
            ("comp", 10) => Some(125.0),
            ("comp", 20) => Some(142.0),
            _ => None,
        }
    })
}

fn fig12(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &POPULAR_READS);
    let ranks = popularities(&settings);
    let limits = or(&request.options.limits, &[10]);
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
                ("hot_mrps", hot.map(|worker| outcome.worker_mrps(worker))),
                ("hot_busy", hot.map(|worker| outcome.utilization(worker))),
                ("others_mrps", others(&|worker| outcome.worker_mrps(worker))),
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
                let paper = setting.papers(paper(metric));
                setting.row(request, f64::from(*limit), (metric, value), paper)
            };
            values.map(row)
        };
        limits.iter().flat_map(one).collect::<Vec<Row>>()
    });
    rows.into_iter().flatten().collect()
}

fn fig13(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &POPULAR_WRITES);
    curves(request, &settings, &[10, 20], |setting, limit| {
        match (setting.series, limit) {
            ("crew", 10) => Some(56.0),
            ("comp", 10) => Some(58.0),
            ("comp", 20) => Some(100.0),
            _ => None,
        }
    })
}

fn table2(request: &Request<'_>) -> Vec<Row> {
    let defaults = Defaults {
        items: &[Items::Tiny, Items::Medium, Items::Large],
        ..POPULAR_READS
    };
    let settings = settings(request, &defaults);
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
            let gain = |worker| outcome.worker_mrps(worker) / base.worker_mrps(worker);
            let of = |outcome: &BalancedOutcome| {
                setting.mean_of_others(&|worker| outcome.worker_mrps(worker))
            };
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
        let row = |(metric, value)| {
            let paper = setting.papers(paper(metric));
            setting.row(request, bytes, (metric, value), paper)
        };
        values.into_iter().map(row).collect::<Vec<Row>>()
    });
    rows.into_iter().flatten().collect()
}

fn scaling(request: &Request<'_>) -> Vec<Row> {
    let defaults = Defaults {
        gammas: &[0.0, 0.99],
        writes: &[50.0, 95.0],
        calibrations: &[Calibration::Measured],
        cores: &[1, 2, 4, 8, 16, 32, 64],
        ..UNIFORM
    };
    let settings = settings(request, &defaults);
    let ranks = popularities(&settings);
    let name = request.figure.name;
    let highest = request.threads.map(name, &settings, |setting| {
        let (ranks, loads) = (ranks.of(&setting.model), setting.loads(request));
        let one = Setting {
            model: Balanced {
                workers: 1,
                ..setting.model.clone()
            },
            ..setting.clone()
        };
        let many = setting.highest(10, ranks, &loads).mrps;
        (many, one.highest(10, ranks, &loads).mrps)
    });
    let mut rows = Vec::new();
    for (setting, (mrps, one)) in settings.iter().zip(highest) {
        let workers = f64::from(setting.model.workers);
        let over = mrps.zip(one).map(|(mrps, one)| mrps / one);
        for value in [("mrps_under_limit", mrps), ("over_one", over)] {
            rows.push(setting.row(request, workers, value, None));
        }
    }
    rows
}

/// Latencies over load of every setting, and its highest loads.
fn curves(
    request: &Request<'_>,
    settings: &[Setting],
    limits: &[u16],
    paper: impl Fn(&Setting, u16) -> Option<f64> + Sync,
) -> Vec<Row> {
    let ranks = popularities(settings);
    let limits = or(&request.options.limits, limits);
    let name = request.figure.name;
    let rows = request.threads.map(name, settings, |setting| {
        let ranks = ranks.of(&setting.model);
        let mut rows = Vec::new();
        for load in or(&request.options.loads, &curve_loads()) {
            let model = Balanced {
                load,
                ..setting.model.clone()
            };
            let outcome = model.run(ranks);
            // Beyond what the system can carry, latencies say how long the run was.
            let limit = model.limit_ns() * TOO_LONG;
            if request.options.loads.is_empty() && outcome.p99_ns() > limit {
                break;
            }
            let mrps = load * model.capacity() / 1e6;
            rows.extend(setting.curve_rows(request, mrps, &outcome));
        }
        for limit in &limits {
            let highest = setting.highest(*limit, ranks, &setting.loads(request));
            let paper = setting.papers(paper(setting, *limit));
            let value = ("mrps_under_limit", highest.mrps);
            rows.push(setting.row(request, f64::from(*limit), value, paper));
        }
        rows
    });
    rows.into_iter().flatten().collect()
}

/// Every combination of costs, items, series, cores, gamma and writes.
fn settings(request: &Request<'_>, defaults: &Defaults<'_>) -> Vec<Setting> {
    let options = request.options;
    let costs = options.costs.as_ref().unwrap_or(FullCosts::measured());
    let mut settings = Vec::new();
    for calibration in or(&options.calibrations, defaults.calibrations) {
        for items in or(&options.items, defaults.items) {
            let system = match calibration {
                Calibration::Paper => FullSystem::paper(items),
                Calibration::Measured => {
                    let batch = options.batch.unwrap_or(costs.request.batch);
                    FullSystem::measured(costs, items, batch)
                }
            };
            for workers in or(&options.cores, defaults.cores) {
                for gamma in or(&options.gammas, defaults.gammas) {
                    for writes in or(&options.writes, defaults.writes) {
                        for series in &request.series {
                            let open = Setting {
                                series,
                                calibration,
                                items,
                                writes,
                                model: Balanced {
                                    workers,
                                    gamma,
                                    depth: options.depth.unwrap_or(2),
                                    requests: options.requests.unwrap_or(200_000),
                                    seed: options.seed,
                                    ..Balanced::of_system(Policy::Ideal, system)
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

fn popularities(settings: &[Setting]) -> Popularities {
    Popularities::of_models(settings.iter().map(|setting| &setting.model))
}

impl Setting {
    /// The same system under another series' policy.
    fn like(&self, series: &'static str) -> Self {
        let of_series = c4::model(series, Rules::Paper);
        Self {
            series,
            model: Balanced {
                policy: of_series.policy,
                compaction: of_series.compaction,
                write_percent: match of_series.policy {
                    Policy::Ideal => 0.0,
                    _ => self.writes,
                },
                ..self.model.clone()
            },
            ..self.clone()
        }
    }

    fn ideal(&self) -> Self {
        self.like("ideal")
    }

    /// At so many million requests a second.
    fn at_mrps(&self, mrps: f64) -> Balanced {
        Balanced {
            load: mrps * 1e6 / self.model.capacity(),
            ..self.model.clone()
        }
    }

    /// The loads among which the highest is sought.
    fn loads(&self, request: &Request<'_>) -> Vec<f64> {
        let grid: Vec<f64> = (1..100).map(|n| f64::from(n) / 100.0).collect();
        let mut loads = or(&request.options.loads, &grid);
        loads.sort_by(f64::total_cmp);
        loads
    }

    fn highest(&self, limit: u16, ranks: &Ranks, loads: &[f64]) -> Highest {
        let model = Balanced {
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

    /// Whether the paper has numbers for it.
    fn is_papers(&self) -> bool {
        let model = &self.model;
        self.calibration == Calibration::Paper && model.workers == 64 && model.depth == 2
    }

    fn papers(&self, known: Option<f64>) -> Option<f64> {
        known.filter(|_| self.is_papers())
    }

    fn curve_rows(&self, request: &Request<'_>, mrps: f64, outcome: &BalancedOutcome) -> Vec<Row> {
        let tail = |ns: Option<u64>| ns.filter(|_| !outcome.saturated).map(|ns| ns as f64);
        let hot = self.model.hot_worker();
        let hot_ns = hot.map(|worker| outcome.worker_service_ns(worker));
        let others = self.mean_of_others(&|worker| outcome.worker_service_ns(worker));
        let windows = outcome.windows.max(1) as f64;
        let batch = (outcome.windows > 0).then_some(outcome.window_writes as f64 / windows);
        let values = [
            ("p50_ns", tail(outcome.all.quantile(0.5))),
            ("p99_ns", tail(outcome.all.quantile(0.99))),
            ("write_p99_ns", tail(outcome.writes.quantile(0.99))),
            ("hot_service_ns", hot_ns),
            ("other_service_ns", Some(others)),
            ("ewt_mean", c4::entries_mean(outcome)),
            ("batch_mean", batch),
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
        let mut params = format!("costs={};gamma={}", self.calibration.name(), model.gamma);
        let is_x = |axis: &Figure| axis.name == figure.name;
        if !is_x(&FIG10) {
            params += &format!(";writes={}", self.writes);
        }
        if !is_x(&TABLE2) {
            params += &format!(";items={}", self.items.name());
        }
        if !is_x(&SCALING) {
            params += &format!(";cores={}", model.workers);
        }
        Row {
            figure: figure.name,
            series: self.series.into(),
            params,
            x,
            metric,
            value,
            paper: paper.filter(|_| self.is_papers()),
        }
    }
}

/// Shares of the capacity at which latencies are drawn.
fn curve_loads() -> Vec<f64> {
    (1..=32).map(|n| f64::from(n) * 0.03).collect()
}

/// Section 7.1.1.
const UNIFORM: Defaults<'static> = Defaults {
    gammas: &[0.0],
    writes: &[50.0],
    items: &[Items::Large],
    calibrations: &[Calibration::Paper, Calibration::Measured],
    cores: &[64],
};
/// Section 7.1.2: a few writes to very popular keys.
const POPULAR_READS: Defaults<'static> = Defaults {
    gammas: &[1.25],
    writes: &[5.0],
    ..UNIFORM
};
/// Section 7.1.3: many writes to popular keys.
const POPULAR_WRITES: Defaults<'static> = Defaults {
    gammas: &[0.99],
    ..UNIFORM
};
const MRPS: &str = "offered load, million requests a second";
/// Curves end where p99 is so many limits.
const TOO_LONG: u64 = 3;
const SERIES: &[&str] = &[
    "crew",
    "comp",
    "d-crew",
    "erew",
    "ideal",
    "d-crew-comp",
    "comp-adaptive",
    "d-crew-comp-adaptive",
];
