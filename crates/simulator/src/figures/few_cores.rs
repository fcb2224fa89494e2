//! Small requests beside large ones on few cores, as the server serves them over TCP.

use crate::{
    few_cores::{FewCores, Serving},
    figures::{
        Choice, Figure, Parameter,
        figure_run::{Case, Request},
    },
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
    series: "hkh crcw size-aware-d-crew",
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

    /// A case with these large requests.
    fn beside(&self, case: &Case) -> Case {
        let unit = if self.is_share { "%" } else { "/s" };
        let large = format!("{}{unit}", self.amount);
        let case = case.clone().with(Choice::LargeFraction, &*large);
        case.with(Choice::LargeMaxKb, self.kilobytes)
    }

    fn rate(&self, small: f64) -> f64 {
        match self.is_share {
            true => small * self.amount / 100.0,
            false => self.amount,
        }
    }
}

fn beside(request: &Request<'_>) -> Vec<Row> {
    let mut points = Vec::new();
    for case in request.cases(&[Choice::Cores]) {
        for company in companies(request) {
            let cases = request.under_series(&[company.beside(&case)]);
            let cases = request.sweep(cases, &[Choice::Load]).into_iter();
            points.extend(cases.map(|case| (company, case)));
        }
    }
    request.draw(&points, |(company, case)| {
        let load = case.number(Choice::Load);
        let mut model = FewCores {
            serving: serving(case.series),
            cores: case.count(Choice::Cores),
            costs: request.costs().0.clone(),
            batch: request.number(Choice::Batch) as u32,
            rate: 0.0,
            small_bytes: company.small_bytes,
            large_rate: 0.0,
            large_bytes: (company.kilobytes * 1e3) as u32,
            requests: request.requests(),
            seed: request.seed(),
        };
        model.rate = model.peak() * load;
        let beside = FewCores {
            large_rate: company.rate(model.rate),
            ..model.clone()
        };
        let found = measured(&beside.run(), &model.run());
        request.rows(case, found.map(|(metric, value)| (load, metric, value)))
    })
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
    let thousandth = |value: f64| value / 1e3;
    let small = |outcome: &Outcome, share| outcome.stable(&outcome.small, share).map(thousandth);
    let p99_of = |histogram| outcome.stable(histogram, 0.99).map(thousandth);
    let (p99, alone_p99) = (small(outcome, 0.99), small(alone, 0.99));
    let over = p99.zip(alone_p99).map(|(p99, alone)| p99 / alone);
    [
        ("small_p50_us", small(outcome, 0.5)),
        ("small_p99_us", p99),
        ("small_p99_alone_us", alone_p99),
        ("small_p99_over_alone", over),
        ("large_p99_us", p99_of(&outcome.large)),
        ("kilobytes_ahead_p99", p99_of(&outcome.bytes_ahead)),
    ]
}
