//! Small requests beside large ones on few cores, as the server serves them over TCP.

use crate::{
    costs::FullCosts,
    few_cores::{FewCores, Serving},
    figures::{Choice, Figure, Parameter, Request},
    histogram::Histogram,
    queueing::Outcome,
    rows::Row,
};

pub(super) const BESIDE: Figure = Figure {
    name: "beside",
    title: "The tail of small requests beside large ones, on as many cores as workers",
    x: "small requests, share of their peak without large ones",
    about: "Unpipelined clients of this server: each connection belongs to a worker, requests come \
            in open loop, 95 % of them reads. hkh serves each large request whole, in line with \
            the others; crcw is the server with sizes together, which moves 64 KB for each large \
            value after the small requests of a turn; size-aware-d-crew has large values moved by \
            other threads, whenever a worker leaves its core idle. 14 to 1400 bytes beside 500 \
            KB, or 1 KB beside 10 MB. Costs are the measured ones. Not in it: the time that the \
            operating system takes to switch between threads, the clients, caches and the memory's \
            bandwidth. small_p99_over_alone is the 99th percentile over that without large \
            requests, kilobytes_ahead_p99 what was moved of large values while a small request \
            waited for its core.",
    series: &["hkh", "crcw", "size-aware-d-crew"],
    series_default: 3,
    parameters: &[
        Parameter::each(Choice::Cores, (1.0, 256.0), &[2.0]).whole(),
        Parameter::each(Choice::LargeFraction, (0.0, 100.0), &[]).follows(),
        Parameter::each(Choice::LargeMaxKb, (2.0, 100_000.0), &[])
            .follows()
            .called("kb"),
        Parameter::each(Choice::Load, (0.001, 10.0), &[0.5, 0.8]).axis(),
        Parameter::one(Choice::Batch, (1.0, 1e6), &[1.0]).whole(),
        Parameter::file(Choice::Costs),
        Parameter::requests(&[2_000_000.0]),
        Parameter::seed(),
    ],
    run: beside,
};

/// What stands beside small requests by default.
const COMPANIES: [Company; 4] = [
    Company::share(0.125, 500.0),
    Company::share(0.5, 500.0),
    Company::every_second(30.0),
    Company::every_second(100.0),
];

/// Large requests, and the small ones that they are beside.
#[derive(Clone, Copy, Debug)]
struct Company {
    /// Per cent of the small requests, or a second.
    amount: f64,
    is_share: bool,
    kilobytes: f64,
    small_bytes: (u32, u32),
}

struct Point {
    series: &'static str,
    params: String,
    load: f64,
    model: FewCores,
}

impl Company {
    /// So many per cent of the requests, beside values of 14 to 1400 bytes (Minos, section 5.3).
    const fn share(percent: f64, kilobytes: f64) -> Self {
        Self {
            amount: percent,
            is_share: true,
            kilobytes,
            small_bytes: (14, 1400),
        }
    }

    /// So many values of 10 MB a second, beside values of 1 KB.
    const fn every_second(rate: f64) -> Self {
        Self {
            amount: rate,
            is_share: false,
            kilobytes: 10_000.0,
            small_bytes: (1000, 1000),
        }
    }

    fn name(&self) -> String {
        let unit = if self.is_share { "%" } else { "/s" };
        format!("large={}{unit};kb={}", self.amount, self.kilobytes)
    }

    fn rate(&self, small: f64) -> f64 {
        match self.is_share {
            true => small * self.amount / 100.0,
            false => self.amount,
        }
    }
}

fn beside(request: &Request<'_>) -> Vec<Row> {
    let points = points(request);
    let outcomes = request.threads.map(request.figure.name, &points, |point| {
        let alone = FewCores {
            large_rate: 0.0,
            ..point.model.clone()
        };
        (point.model.run(), alone.run())
    });
    let mut rows = Vec::new();
    for (point, (outcome, alone)) in points.iter().zip(&outcomes) {
        for (metric, value) in measured(outcome, alone) {
            let of = (point.series, point.params.as_str());
            rows.push(request.row(of, point.load, (metric, value), None));
        }
    }
    rows
}

fn points(request: &Request<'_>) -> Vec<Point> {
    let options = request.options;
    let costs = options.costs.as_ref().map(|given| &given.costs);
    let costs = costs.unwrap_or(FullCosts::measured());
    let mut points = Vec::new();
    for cores in request.counts(Choice::Cores) {
        for company in companies(request) {
            for series in &request.series {
                for load in request.numbers(Choice::Load) {
                    let mut model = FewCores {
                        serving: serving(series),
                        cores,
                        costs: costs.clone(),
                        batch: request.number(Choice::Batch) as u32,
                        rate: 0.0,
                        small_bytes: company.small_bytes,
                        large_rate: 0.0,
                        large_bytes: (company.kilobytes * 1e3) as u32,
                        requests: request.requests(),
                        seed: request.seed(),
                    };
                    model.rate = model.peak() * load;
                    model.large_rate = company.rate(model.rate);
                    points.push(Point {
                        series,
                        params: format!("cores={cores};{}", company.name()),
                        load,
                        model,
                    });
                }
            }
        }
    }
    points
}

/// The default ones, or every combination of what is asked for.
fn companies(request: &Request<'_>) -> Vec<Company> {
    let percents = request.numbers(Choice::LargeFraction);
    let kilobytes = request.numbers(Choice::LargeMaxKb);
    if percents.is_empty() && kilobytes.is_empty() {
        return COMPANIES.to_vec();
    }
    let or = |asked: Vec<f64>, usual| if asked.is_empty() { vec![usual] } else { asked };
    let (percents, kilobytes) = (or(percents, 0.125), or(kilobytes, 500.0));
    let of = |percent: f64| kilobytes.iter().map(move |kb| Company::share(percent, *kb));
    percents.into_iter().flat_map(of).collect()
}

fn serving(series: &str) -> Serving {
    match series {
        "hkh" => Serving::Early,
        "crcw" => Serving::Together,
        _ => Serving::Apart,
    }
}

fn measured(outcome: &Outcome, alone: &Outcome) -> [(&'static str, Option<f64>); 6] {
    let quantile = |outcome: &Outcome, histogram: &Histogram, share| {
        let found = histogram.quantile(share).filter(|_| !outcome.saturated);
        found.map(|value| value as f64 / 1e3)
    };
    let p99 = quantile(outcome, &outcome.small, 0.99);
    let alone_p99 = quantile(alone, &alone.small, 0.99);
    [
        ("small_p50_us", quantile(outcome, &outcome.small, 0.5)),
        ("small_p99_us", p99),
        ("small_p99_alone_us", alone_p99),
        (
            "small_p99_over_alone",
            p99.zip(alone_p99).map(|(p99, alone)| p99 / alone),
        ),
        ("large_p99_us", quantile(outcome, &outcome.large, 0.99)),
        (
            "kilobytes_ahead_p99",
            quantile(outcome, &outcome.bytes_ahead, 0.99),
        ),
    ]
}
