//! Sizes, writes and skew at once: what size-aware sharding and d-CREW do alone and together.

use curtail_dispatch::{Closing, Policy};

use crate::{
    c4::{Mechanism, system_costs::Calibration},
    combined::{Combined, CombinedPrices},
    figures::{
        Choice, Figure, Parameter, at_loads,
        figure_run::{Case, Found, Request, last_within, over_best},
        minos_system::workload,
    },
    minos::PlanCost,
    queueing::Outcome,
    rows::Row,
};

pub(super) const COMBINED: Figure = Figure {
    name: "combined",
    title: "Size-aware sharding and d-CREW, alone and together, on mixed, write-heavy, skewed load",
    x: "offered load, share of capacity",
    about: "Minos's items (ETC, up to 500 KB), half writes, Zipf 0.99. size-aware is Minos's \
            plan with static owners of writes below, d-crew is C-4 without sizes, \
            size-aware-d-crew-comp is both; all have the same dispatcher, JBSQ(2), which is a \
            network card's and costs nothing with both sets of prices, the same store and no \
            limit of the network's. Cores are divided between small and large requests by \
            the time these take; by packets, as in Minos, in the series that ends so. slo_load is \
            the highest load whose p99 is within 10 and 20 mean service times (x is that number), \
            over_best_alone that of size-aware-d-crew-comp over the best of size-aware, d-crew \
            and d-crew-comp. With few cores and few large requests the whole core that is set \
            aside is more than they need, and the gain is small or none. These are the papers' \
            mechanisms. shipped is the server's: no dispatcher, writes handed to the holder of \
            their partition in batches, neighbouring writes of a turn as one, and a threshold that \
            weighs what hand-offs cost.",
    series: "crew d-crew d-crew-comp size-aware size-aware-d-crew size-aware-d-crew-comp \
             size-aware-d-crew-comp-packets shipped",
    series_default: 8,
    parameters: &[
        Parameter::names(Choice::Calibration, &["paper", "measured"]),
        Parameter::each(Choice::Cores, (2.0, 64.0), &[8.0, 32.0]).whole(),
        Parameter::each(Choice::Gamma, (0.0, 20.0), &[0.99]),
        Parameter::each(Choice::Writes, (0.0, 100.0), &[50.0]),
        Parameter::each(Choice::LargeFraction, (0.0, 100.0), &[0.125, 0.75]),
        Parameter::each(Choice::LargeMaxKb, (2.0, 100_000.0), &[500.0]),
        Parameter::each(Choice::Load, (0.001, 10.0), &LOADS).axis(),
        Parameter::one(
            Choice::Depth,
            (1.0, crate::c4::jbsq::DEPTH_MAX as f64),
            &[2.0],
        )
        .whole(),
        Parameter::file(Choice::Costs),
        Parameter::requests(&[300_000.0]),
        Parameter::seed(),
    ],
    run: combined,
};

#[derive(Clone, Debug)]
struct Setting {
    case: Case,
    core_ns: f64,
    model: Combined,
}

/// A series' part of the model.
fn of_series(series: &str, model: Combined) -> Combined {
    if series == "shipped" {
        return Combined {
            mechanism: Mechanism::Shipped,
            compaction: None,
            ..model
        };
    }
    let dynamic = series.contains("d-crew");
    let cost = match series.ends_with("-packets") {
        true => PlanCost::Packets,
        false => PlanCost::Time,
    };
    Combined {
        policy: if dynamic {
            Policy::DynamicCrew
        } else {
            Policy::Crew
        },
        compaction: series.contains("-comp").then_some(Closing::Adaptive),
        size_aware: series.starts_with("size-aware").then_some(cost),
        ..model
    }
}

fn settings(request: &Request<'_>) -> Vec<Setting> {
    let cases = request.cases(&[
        Choice::Calibration,
        Choice::Cores,
        Choice::Gamma,
        Choice::Writes,
        Choice::LargeFraction,
        Choice::LargeMaxKb,
    ]);
    let open = cases.into_iter().map(|case| {
        let prices = match case.name(Choice::Calibration) {
            Calibration::Paper => CombinedPrices::paper(),
            Calibration::Measured => {
                let (costs, name) = request.costs();
                CombinedPrices::of(costs, name)
            }
        };
        let case = case.with(Choice::Calibration, prices.serve.name);
        let model = Combined {
            cores: case.count(Choice::Cores),
            depth: request.number(Choice::Depth) as u16,
            requests: request.requests(),
            seed: request.seed(),
            ..Combined::new(prices, workload(&case))
        };
        (case, model)
    });
    let open: Vec<(Case, Combined)> = open.collect();
    let threads = request.threads;
    let core_ns = threads.map("workloads", &open, |(_, model)| model.core_ns());
    let of_series = |((case, model), core_ns): (&(Case, Combined), f64)| {
        let of = |series: &&'static str| Setting {
            case: case.under(series),
            core_ns,
            model: of_series(series, model.clone()),
        };
        request.series.iter().map(of).collect::<Vec<_>>()
    };
    open.iter().zip(core_ns).flat_map(of_series).collect()
}

impl Setting {
    fn at(&self, load: f64) -> Outcome {
        let model = Combined {
            load,
            ..self.model.clone()
        };
        model.run(self.core_ns)
    }

    /// The highest loads within ten and twenty mean service times, by halving.
    fn highest(&self) -> [Found; 2] {
        let load = |step: u32| f64::from(step) / f64::from(STEPS);
        let limits_ns = LIMITS.map(|times| times * self.core_ns);
        let found = last_within(limits_ns, 1..STEPS, |step| self.at(load(step)));
        [0, 1].map(|index| (LIMITS[index], "slo_load", found[index].map(load)))
    }
}

fn combined(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let points = at_loads(&settings, &request.numbers(Choice::Load));
    let mut rows = request.draw(&points, |(setting, load)| {
        let found = measured(&setting.at(*load));
        request.rows(
            &setting.case,
            found.map(|(metric, value)| (*load, metric, value)),
        )
    });
    let highest = request.draw(&settings, |setting| {
        request.rows(&setting.case, setting.highest())
    });
    let together = highest
        .iter()
        .filter(|row| row.series == "size-aware-d-crew-comp");
    let over = together.filter_map(|row| {
        Some(Row {
            metric: "over_best_alone",
            value: over_best(row, &highest, &["size-aware", "d-crew", "d-crew-comp"])?,
            ..row.clone()
        })
    });
    let over: Vec<Row> = over.collect();
    rows.extend(highest);
    rows.extend(over);
    rows
}

fn measured(outcome: &Outcome) -> [(&'static str, Option<f64>); 7] {
    let p99 = |histogram| outcome.stable(histogram, 0.99).map(|ns| ns / 1e3);
    let behind = outcome.behind_large as f64 / outcome.small_served as f64;
    [
        ("p99_us", p99(&outcome.all)),
        ("small_p99_us", p99(&outcome.small)),
        ("write_p99_us", p99(&outcome.writes)),
        ("large_p99_us", p99(&outcome.large)),
        ("behind_large", Some(behind)),
        ("batch_mean", outcome.batch_mean()),
        ("retry_share", outcome.retry_share()),
    ]
}

const LIMITS: [f64; 2] = [10.0, 20.0];
const LOADS: [f64; 11] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
/// Steps of the search, of the capacity.
const STEPS: u32 = 200;
