//! Points whose values are known from elsewhere, each with its tolerance: does the simulator still
//! tell the truth?
//!
//! Those of C-4 (G1 to G10) are what its authors' simulator gives, published or run by us with
//! independent service times; those of Minos (M) come from another simulation of its section 2.2.
//! Tests run them with fewer requests and the same tolerances. Those of ccKVS are its text's,
//! beside its figures; those of SwitchKV come from a static simulation of its testbed (SW-80).

use crate::{
    c4::{C4Model, Rules},
    figures::{Choice, Figure, Parameter, Request, c4, cckvs, minos_system::system, switchkv},
    minos::{MinosModel, UNIT},
    queueing::Outcome,
    rows::Row,
};

pub(super) const POINTS: Figure = Figure {
    name: "reference-points",
    title: "Points whose values are known from elsewhere",
    x: "offered load, share of capacity",
    about: "Every point is simulated with as many requests as the value it is compared with, \
            unless --requests sets another number, which the tolerances are not made for. \
            `within` is 1 if a number is within its tolerance. Runs of 200,000 requests near \
            saturation differ by a third from seed to seed: ours is the median of five. The values \
            of G10 are of one run of 30,000 requests; those of d-CREW and Ideal are above what any \
            of our seeds gives, and above what queueing theory has for a central queue (2570 ns).",
    series: "c4 minos cckvs switchkv",
    series_default: 4,
    parameters: &[
        Parameter::one(Choice::Requests, (1.0, 1e12), &[])
            .whole()
            .follows()
            .any(),
        Parameter::seed(),
    ],
    run: points,
};

/// A known value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    point: Point,
    /// Whether the value comes from workers with one stream of service times.
    same_services: bool,
    /// Requests behind the value.
    pub(crate) requests: u64,
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
    /// Relative; for the highest load, in steps of the grid.
    pub(crate) tolerance: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Series, workers, gamma, writes, load.
    C4(&'static str, u16, f64, f64, f64),
    /// Series, k, load.
    Minos(&'static str, u32, f64),
}

impl Known {
    /// What we measure at this point, with this many requests and this seed.
    pub(crate) fn measure(&self, requests: u64, seed: u64) -> Option<f64> {
        match self.point {
            Point::C4(series, workers, gamma, write_percent, load) => {
                let model = C4Model {
                    workers,
                    gamma,
                    write_percent,
                    load,
                    requests,
                    seed,
                    same_services: self.same_services,
                    ..c4::model(series, Rules::Reference)
                };
                let ranks = C4Model::ranks(gamma);
                if self.metric == "max_load" {
                    return c4::highest(&model, &ranks, &c4::grid()).map(|(load, _)| load);
                }
                metric(&model.run(&ranks), self.metric)
            }
            Point::Minos(series, k, load) => {
                let model = MinosModel {
                    requests,
                    seed,
                    ..MinosModel::new(system(series, || 0), k, load)
                };
                let outcome = model.run();
                let histogram = match self.metric {
                    "large_p99" => &outcome.large,
                    _ => &outcome.all,
                };
                histogram.quantile(0.99).map(|p99| p99 as f64 / UNIT as f64)
            }
        }
    }

    /// The median of several seeds for short runs near saturation, whose tails differ by a third
    /// from seed to seed; else what one seed gives.
    fn median(&self, requests: u64, seed: u64) -> Option<f64> {
        let seeds = if self.same_services { SEEDS } else { 1 };
        let measured = (0..seeds).filter_map(|offset| self.measure(requests, seed + offset));
        let mut measured: Vec<f64> = measured.collect();
        measured.sort_by(f64::total_cmp);
        measured.get(measured.len() / 2).copied()
    }

    /// Whether a measured value is near enough.
    pub(crate) fn accepts(&self, measured: f64) -> bool {
        let allowed = match self.metric {
            "max_load" => self.tolerance * GRID_STEP + 1e-4,
            _ => self.tolerance * self.value,
        };
        (measured - self.value).abs() <= allowed
    }

    pub(crate) fn is_minos(&self) -> bool {
        matches!(self.point, Point::Minos(..))
    }

    fn load(&self) -> f64 {
        match self.point {
            Point::C4(.., load) | Point::Minos(.., load) => load,
        }
    }

    fn params(&self) -> String {
        match self.point {
            Point::C4(series, cores, gamma, writes, _) => {
                format!("series={series};cores={cores};gamma={gamma};writes={writes}")
            }
            Point::Minos(series, k, _) => format!("series={series};k={k}"),
        }
    }
}

fn metric(outcome: &Outcome, name: &str) -> Option<f64> {
    match name {
        "p50_ns" => outcome.all.quantile(0.5).map(|p50| p50 as f64),
        "p99_ns" => outcome.all.quantile(0.99).map(|p99| p99 as f64),
        "ewt_mean" => outcome.entries_mean(),
        "ewt_max" => Some(f64::from(outcome.entries_max)),
        "retry_share" => outcome.retry_share(),
        "batch_mean" => outcome.batch_mean(),
        _ => None,
    }
}

fn points(request: &Request<'_>) -> Vec<Row> {
    let wanted = |known: &&Known| {
        let series = if known.is_minos() { "minos" } else { "c4" };
        request.series.contains(&series)
    };
    let knowns: Vec<Known> = all().iter().filter(wanted).copied().collect();
    let options = request.options;
    let measured = request.threads.map(request.figure.name, &knowns, |known| {
        let requests = options.requests.unwrap_or(known.requests);
        known.median(requests, request.seed())
    });
    let mut rows = Vec::new();
    for (known, value) in knowns.iter().zip(measured) {
        let within = value.map(|value| f64::from(u8::from(known.accepts(value))));
        let one = |metric, value, paper| Row {
            figure: request.figure.name,
            series: known.name.into(),
            params: known.params(),
            x: known.load(),
            metric,
            value,
            paper,
        };
        rows.push(one(known.metric, value, Some(known.value)));
        rows.push(one("within", within, Some(1.0)));
    }
    if request.series.contains(&"cckvs") {
        rows.extend(cckvs::paper_text_numbers::points(request));
    }
    if request.series.contains(&"switchkv") {
        rows.extend(switchkv::points(request));
    }
    rows
}

/// All known values.
pub(crate) fn all() -> &'static [Known] {
    ALL
}

/// Odd, so that there is a median.
const SEEDS: u64 = 5;
const GRID_STEP: f64 = 0.95 / 23.0;
const M: u64 = 1_000_000;

const fn c4_point(
    name: &'static str,
    point: (&'static str, f64, f64, f64),
    requests: u64,
    (metric, value, tolerance): (&'static str, f64, f64),
) -> Known {
    let (series, gamma, writes, load) = point;
    Known {
        name,
        point: Point::C4(series, 64, gamma, writes, load),
        // The authors' own short runs, in which it shows.
        same_services: requests == 200_000,
        requests,
        metric,
        value,
        tolerance,
    }
}

const fn four_workers(series: &'static str, value: f64) -> Known {
    Known {
        name: "G10",
        point: Point::C4(series, 4, 0.0, 50.0, 0.8),
        same_services: false,
        requests: M,
        metric: "p99_ns",
        value,
        tolerance: 0.06,
    }
}

const fn minos_point(series: &'static str, k: u32, load: f64, value: f64, tolerance: f64) -> Known {
    Known {
        name: "M",
        point: Point::Minos(series, k, load),
        same_services: false,
        requests: 6 * M,
        metric: "p99",
        value,
        tolerance,
    }
}

#[rustfmt::skip]
const ALL: &[Known] = &[
    c4_point("G1", ("ideal", 0.0, 0.0, 0.9587), 5 * M, ("p99_ns", 1781.0, 0.03)),
    c4_point("G2", ("d-crew", 0.0, 50.0, 0.9587), 5 * M, ("p99_ns", 1782.0, 0.03)),
    c4_point("G2", ("d-crew", 0.0, 100.0, 0.9587), 5 * M, ("p99_ns", 1783.0, 0.03)),
    c4_point("G3", ("crew", 0.0, 50.0, 0.9587), 5 * M, ("p99_ns", 3395.0, 0.04)),
    c4_point("G4", ("crew", 0.0, 85.0, 0.8761), 5 * M, ("p99_ns", 6435.0, 0.05)),
    c4_point("G4", ("crew", 0.0, 85.0, 0.8761), 5 * M, ("max_load", 0.8761, 0.0)),
    c4_point("G5", ("erew", 0.0, 50.0, 0.7522), 5 * M, ("p99_ns", 6631.0, 0.05)),
    c4_point("G5", ("erew", 0.0, 50.0, 0.7522), 5 * M, ("max_load", 0.7522, 0.0)),
    c4_point("G6", ("crew", 1.0, 35.0, 0.5457), 200_000, ("max_load", 0.5457, 1.0)),
    c4_point("G6", ("crew", 1.0, 35.0, 0.5457), 200_000, ("p99_ns", 4531.0, 0.25)),
    c4_point("G6", ("comp", 1.0, 35.0, 0.9587), 200_000, ("max_load", 0.9587, 1.0)),
    c4_point("G6", ("comp", 1.0, 35.0, 0.9587), 200_000, ("p99_ns", 4251.0, 0.25)),
    c4_point("G7", ("crew", 1.4, 5.0, 0.7109), 200_000, ("max_load", 0.7109, 1.0)),
    c4_point("G7", ("crew", 1.4, 5.0, 0.7109), 200_000, ("p99_ns", 4375.0, 0.25)),
    c4_point("G7", ("comp", 1.4, 5.0, 0.8348), 200_000, ("max_load", 0.8348, 1.0)),
    c4_point("G7", ("comp", 1.4, 5.0, 0.8348), 200_000, ("p99_ns", 4639.0, 0.25)),
    c4_point("G8", ("d-crew", 0.0, 50.0, 0.5), M, ("p50_ns", 732.0, 0.02)),
    c4_point("G8", ("d-crew", 0.0, 50.0, 0.5), M, ("p99_ns", 927.0, 0.02)),
    c4_point("G8", ("d-crew", 0.0, 50.0, 0.9), M, ("p99_ns", 1600.0, 0.03)),
    c4_point("G8", ("d-crew", 0.0, 50.0, 0.9), M, ("ewt_mean", 37.7, 0.05)),
    c4_point("G8", ("d-crew", 0.0, 50.0, 0.9), M, ("ewt_max", 78.0, 0.1)),
    c4_point("G9", ("crew", 1.25, 5.0, 0.7935), 200_000, ("p99_ns", 3266.0, 0.1)),
    c4_point("G9", ("crew", 1.25, 5.0, 0.7935), 200_000, ("retry_share", 0.216, 0.1)),
    c4_point("G9", ("comp", 1.25, 5.0, 0.8761), 200_000, ("p99_ns", 3396.0, 0.1)),
    c4_point("G9", ("comp", 1.25, 5.0, 0.8761), 200_000, ("batch_mean", 2.5, 0.1)),
    four_workers("erew", 8126.0),
    four_workers("crew", 3343.0),
    four_workers("d-crew", 2817.0),
    four_workers("ideal", 2817.0),
    minos_point("early", 1, 0.1, 2.0, 0.15),
    minos_point("early", 1, 0.5, 4.3, 0.15),
    minos_point("early", 1, 0.9, 22.0, 0.25),
    minos_point("late", 1, 0.8, 2.2, 0.15),
    minos_point("steal", 1, 0.8, 2.5, 0.15),
    minos_point("early", 10, 0.7, 10.4, 0.15),
    minos_point("late", 10, 0.9, 4.0, 0.25),
    minos_point("steal", 10, 0.9, 5.5, 0.25),
    minos_point("early", 100, 0.1, 27.0, 0.5),
    minos_point("early", 100, 0.5, 98.0, 0.15),
    minos_point("early", 100, 0.9, 350.0, 0.25),
    minos_point("late", 100, 0.7, 4.2, 0.15),
    minos_point("late", 100, 0.9, 39.0, 0.25),
    minos_point("steal", 100, 0.9, 72.0, 0.25),
    minos_point("early", 1000, 0.1, 883.0, 0.15),
    minos_point("early", 1000, 0.5, 2216.0, 0.15),
    minos_point("early", 1000, 0.9, 13010.0, 0.25),
    minos_point("late", 1000, 0.7, 394.0, 0.15),
    minos_point("steal", 1000, 0.7, 557.0, 0.25),
    minos_point("minos", 100, 0.1, 1.9, 0.15),
    minos_point("minos", 100, 0.3, 2.8, 0.15),
    minos_point("minos", 100, 0.5, 3.9, 0.15),
    minos_point("minos", 100, 0.7, 6.1, 0.15),
    minos_point("minos", 100, 0.8, 8.3, 0.15),
    minos_point("minos", 100, 0.9, 15.0, 0.25),
    minos_point("minos-steal", 100, 0.1, 1.0, 0.15),
    minos_point("minos-steal", 100, 0.5, 1.3, 0.15),
    minos_point("minos-steal", 100, 0.7, 1.9, 0.15),
    minos_point("minos-steal", 100, 0.8, 2.8, 0.15),
    minos_point("minos-steal", 100, 0.9, 6.1, 0.25),
    minos_point("minos-naive", 100, 0.1, 32.0, 0.25),
    minos_point("minos-naive", 100, 0.3, 153.0, 0.15),
    minos_point("minos", 1000, 0.1, 1.8, 0.15),
    minos_point("minos", 1000, 0.3, 2.1, 0.15),
    minos_point("minos", 1000, 0.5, 2.7, 0.15),
    minos_point("minos", 1000, 0.7, 3.8, 0.15),
    minos_point("minos", 1000, 0.8, 4.8, 0.15),
    minos_point("minos", 1000, 0.9, 6.8, 0.25),
    minos_point("minos-steal", 1000, 0.3, 1.3, 0.15),
    minos_point("minos-steal", 1000, 0.5, 1.7, 0.15),
    minos_point("minos-steal", 1000, 0.7, 2.5, 0.15),
    minos_point("minos-steal", 1000, 0.8, 3.3, 0.15),
    minos_point("minos-steal", 1000, 0.9, 4.9, 0.25),
    minos_point("minos-extra", 1000, 0.5, 1.7, 0.15),
    minos_point("minos-extra", 1000, 0.7, 4.5, 0.25),
];

#[cfg(test)]
mod tests;
