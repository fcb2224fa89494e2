//! Sizes, writes and skew at once: what size-aware sharding and d-CREW do alone and together.

use std::collections::BTreeMap;

use curtail_dispatch::{Closing, Policy};

use crate::{
    c4::{Mechanism, system_costs::Calibration},
    combined::{Combined, CombinedPrices},
    costs::FullCosts,
    figures::{Choice, Figure, Parameter, Request, at_loads, minos_system::workload},
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
    series: &[
        "crew",
        "d-crew",
        "d-crew-comp",
        "size-aware",
        "size-aware-d-crew",
        "size-aware-d-crew-comp",
        "size-aware-d-crew-comp-packets",
        "shipped",
    ],
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
    series: &'static str,
    params: String,
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
    let options = request.options;
    let measured = match &options.costs {
        Some(given) => CombinedPrices::of(&given.costs, "given"),
        None => CombinedPrices::of(FullCosts::measured(), "measured"),
    };
    let of = |calibration: Calibration| match calibration {
        Calibration::Paper => CombinedPrices::paper(),
        Calibration::Measured => measured.clone(),
    };
    let prices = request.calibrations().into_iter().map(of);
    let mut settings = Vec::new();
    for prices in prices {
        for cores in request.counts(Choice::Cores) {
            for gamma in request.numbers(Choice::Gamma) {
                for writes in request.numbers(Choice::Writes) {
                    for percent in request.numbers(Choice::LargeFraction) {
                        for kilobytes in request.numbers(Choice::LargeMaxKb) {
                            let name = prices.serve.name;
                            let workload = workload(percent, kilobytes, writes, gamma);
                            let params = format!(
                                "prices={name};cores={cores};gamma={gamma};writes={writes};\
                                 large={percent};max_kb={kilobytes}"
                            );
                            let model = Combined {
                                cores,
                                depth: request.number(Choice::Depth) as u16,
                                requests: request.requests(),
                                seed: request.seed(),
                                ..Combined::new(prices.clone(), workload)
                            };
                            settings.push(Setting {
                                series: "",
                                params,
                                core_ns: 0.0,
                                model,
                            });
                        }
                    }
                }
            }
        }
    }
    let core_ns = request
        .threads
        .map("workloads", &settings, |setting| setting.model.core_ns());
    for (setting, core_ns) in settings.iter_mut().zip(core_ns) {
        setting.core_ns = core_ns;
    }
    let with_series = |setting: &Setting| {
        let of = |series: &&'static str| Setting {
            series,
            model: of_series(series, setting.model.clone()),
            ..setting.clone()
        };
        request.series.iter().map(of).collect::<Vec<_>>()
    };
    settings.iter().flat_map(with_series).collect()
}

impl Setting {
    fn at(&self, load: f64) -> Outcome {
        let model = Combined {
            load,
            ..self.model.clone()
        };
        model.run(self.core_ns)
    }

    fn row(&self, request: &Request<'_>, x: f64, metric: &'static str, value: Option<f64>) -> Row {
        request.row((self.series, &self.params), x, (metric, value), None)
    }

    /// The highest loads within ten and twenty mean service times, by halving.
    fn highest(&self) -> [Option<f64>; 2] {
        let mut known = BTreeMap::new();
        LIMITS.map(|times| {
            let (mut low, mut high) = (1, STEPS);
            while low < high {
                let middle = (low + high) / 2;
                let load = f64::from(middle) / f64::from(STEPS);
                let p99 = known
                    .entry(middle)
                    .or_insert_with(|| self.at(load).p99_ns());
                match p99.is_some_and(|p99| p99 as f64 <= times * self.core_ns) {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            (low > 1).then(|| f64::from(low - 1) / f64::from(STEPS))
        })
    }
}

fn combined(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request);
    let points = at_loads(&settings, &request.numbers(Choice::Load));
    let name = request.figure.name;
    let outcomes = request
        .threads
        .map(name, &points, |(setting, load)| setting.at(*load));
    let mut rows = Vec::new();
    for ((setting, load), outcome) in points.iter().zip(&outcomes) {
        for (metric, value) in measured(outcome) {
            rows.push(setting.row(request, *load, metric, value));
        }
    }
    let highest = request.threads.map(name, &settings, Setting::highest);
    for (setting, highest) in settings.iter().zip(&highest) {
        for (times, load) in LIMITS.into_iter().zip(highest) {
            rows.push(setting.row(request, times, "slo_load", *load));
        }
    }
    rows.extend(over_best_alone(request, &settings, &highest));
    rows
}

fn measured(outcome: &Outcome) -> [(&'static str, Option<f64>); 7] {
    let p99 = |histogram: &crate::histogram::Histogram| {
        let p99 = histogram.quantile(0.99).filter(|_| !outcome.saturated);
        p99.map(|ns| ns as f64 / 1e3)
    };
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    [
        ("p99_us", p99(&outcome.all)),
        ("small_p99_us", p99(&outcome.small)),
        ("write_p99_us", p99(&outcome.writes)),
        ("large_p99_us", p99(&outcome.large)),
        (
            "behind_large",
            share(outcome.behind_large, outcome.small_served),
        ),
        ("batch_mean", outcome.batch_mean()),
        ("retry_share", outcome.retry_share()),
    ]
}

fn over_best_alone(
    request: &Request<'_>,
    settings: &[Setting],
    highest: &[[Option<f64>; 2]],
) -> Vec<Row> {
    let both = settings.iter().zip(highest);
    let defaults = both
        .clone()
        .filter(|(setting, _)| setting.series == "size-aware-d-crew-comp");
    let mut rows = Vec::new();
    for (setting, together) in defaults {
        let alone = both.clone().filter(|(other, _)| {
            let alone = ["size-aware", "d-crew", "d-crew-comp"].contains(&other.series);
            alone && other.params == setting.params
        });
        let alone: Vec<&[Option<f64>; 2]> = alone.map(|(_, highest)| highest).collect();
        for (limit, times) in LIMITS.into_iter().enumerate() {
            let best = alone.iter().filter_map(|highest| highest[limit]);
            let best = best.max_by(f64::total_cmp);
            let over = together[limit].zip(best).map(|(own, best)| own / best);
            rows.push(setting.row(request, times, "over_best_alone", over));
        }
    }
    rows
}

const LIMITS: [f64; 2] = [10.0, 20.0];
const LOADS: [f64; 11] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
/// Steps of the search, of the capacity.
const STEPS: u32 = 200;
