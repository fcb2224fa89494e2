//! Latency over load: Memcached's four clusters (Figs. 7 and 8) and PMemKV (Figs. 9 and 10).

use std::collections::BTreeMap;

use super::{
    CALIBRATIONS, LOADS, Setting, measured, model, outcomes, parameters, prices, system, table,
    with, with_work, workload,
};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    juneberry::{Juneberry, JuneberryOutcome},
    rows::{Row, words},
};

pub(in crate::figures) const FIG7: Figure = Figure {
    name: "juneberry-fig7",
    title: "Juneberry, Figs. 7 and 8: latency under four of Twitter's cache workloads",
    x: "offered load, share of what RawRPC carries",
    about: "16 workers, keys divided among them, 8 machines of 24 threads, Poisson arrivals. ack \
            is a write's acknowledgement, commit what the paper draws (the client has what \
            commits its request, write or read), executed when a write is in the store. oq-paper \
            has reads in the queue, as the paper; oq, and io-ack, serve them outside it by \
            stamps and forward. Below peak are the numbers that the paper states, at the load at \
            which RawRPC's p99 is 16.9 mean service times, as it is at the paper's peak of \
            Cluster-19 (65.8 us). Prices are crates/simulator/juneberry.toml; measured has 10 us \
            of work in each execution (--work-us). Percentiles are empty where queues grow \
            without end.",
    series: SERIES,
    series_default: 6,
    parameters: &with::<3, 10>(
        parameters(&[200_000.0]),
        [
            CALIBRATIONS,
            Parameter::each(Choice::Cluster, (0.0, 0.0), &CLUSTERS)
                .one_of(&CLUSTERS)
                .called("workload")
                .any(),
            LOADS_DRAWN,
        ],
    ),
    run: fig7,
};

pub(in crate::figures) const FIG9: Figure = Figure {
    name: "juneberry-fig9",
    title: "Juneberry, Figs. 9 and 10: latency of a persistent store, buffers persistent as well",
    x: "offered load, share of what RawRPC carries",
    about: "PMemKV, 91-byte objects, Zipf 0.99, 100, 50, 5 and 0 % put; 16 workers in place of \
            18, because queues are a power of two. The buffers of oq and oq-paper are in \
            persistent memory, and a write is acknowledged when it is flushed there. Peak is the \
            load at which RawRPC's p99 is 16.9 mean service times. That persistent buffers cost \
            a read 1.6 us was set by the paper's number; the rest follows.",
    series: SERIES,
    series_default: 6,
    parameters: &with::<2, 9>(
        parameters(&[200_000.0]),
        [
            Parameter::each(Choice::Writes, (0.0, 100.0), &[100.0, 50.0, 5.0, 0.0]).any(),
            LOADS_DRAWN,
        ],
    ),
    run: fig9,
};

fn fig7(request: &Request<'_>) -> Vec<Row> {
    let mut settings = Vec::new();
    let clusters = request.numbers(Choice::Cluster);
    for (name, prices) in prices(request) {
        for (cluster, writes, key_bytes, value_bytes, zipf) in TABLE1 {
            if clusters.contains(&cluster) {
                let text = format!("cluster{cluster}");
                let workload = workload(&text, key_bytes, value_bytes, writes, zipf);
                let head = format!("prices={name};workload={text}");
                settings.extend(super::settings(request, &head, |series| {
                    model(request, series, prices.clone(), workload.clone())
                }));
            }
        }
    }
    draw(request, &settings)
}

fn fig9(request: &Request<'_>) -> Vec<Row> {
    let mut settings = Vec::new();
    let prices = with_work(table(request.options).pmemkv.clone(), request.options);
    for writes in request.numbers(Choice::Writes) {
        let workload = workload("pmemkv", 8, 83, writes, 0.99);
        let head = format!("writes={writes}");
        settings.extend(super::settings(request, &head, |series| Juneberry {
            durable: system(series).reads().is_some() && prices.persistent.is_some(),
            ..model(request, series, prices.clone(), workload.clone())
        }));
    }
    draw(request, &settings)
}

fn draw(request: &Request<'_>, settings: &[Setting]) -> Vec<Row> {
    let loads = request.numbers(Choice::Load);
    let mut rows = Vec::new();
    for (setting, load, outcome) in outcomes(request, settings, &loads) {
        let offered = ("offered_mops", Some(load * setting.capacity));
        let numbers = measured(&outcome).into_iter().chain([offered]);
        rows.extend(numbers.map(|number| setting.row(request, load, number, None)));
    }
    // A single point that was asked for has no peak.
    if request.options.load.is_empty() {
        let workloads: Vec<&[Setting]> = settings.chunks(request.series.len()).collect();
        let name = request.figure.name;
        let peaks = request
            .threads
            .map(name, &workloads, |settings| peak_rows(request, settings));
        rows.extend(peaks.into_iter().flatten());
    }
    rows
}

/// What every series of a workload gives where RawRPC has the paper's p99 at its peak.
fn peak_rows(request: &Request<'_>, settings: &[Setting]) -> Vec<Row> {
    let raw = Setting {
        series: "raw-rpc",
        model: Juneberry {
            system: system("raw-rpc"),
            durable: false,
            loss: 0.0,
            ..settings[0].model.clone()
        },
        ..settings[0].clone()
    };
    let load = peak(&raw);
    let all = settings
        .iter()
        .filter(|setting| setting.series != "raw-rpc");
    let known: BTreeMap<&str, JuneberryOutcome> = std::iter::once(&raw)
        .chain(all)
        .map(|setting| (setting.series, setting.at(load)))
        .collect();
    let mut rows = Vec::new();
    for setting in settings {
        let own = &known[setting.series];
        let is_of = |of: &str| words(of).all(|word| words(&setting.params).any(|own| own == word));
        let us = |histogram, share| own.quantile_us(histogram, share);
        let numbers = [
            ("peak_ack_p50_us", us(&own.ack, 0.5)),
            ("peak_commit_p50_us", us(&own.commit, 0.5)),
            ("peak_commit_p99_us", us(&own.commit, 0.99)),
            ("peak_read_p99_us", us(&own.read, 0.99)),
        ];
        rows.extend(numbers.map(|number| setting.row(request, load, number, None)));
        for (of, series, of_peak, paper) in P99_US {
            if is_of(of) && setting.series == series {
                let at = load * of_peak;
                let outcome = setting.at(at);
                let p99 = outcome.quantile_us(&outcome.commit, 0.99);
                rows.push(setting.row(request, at, ("stated_p99_us", p99), Some(paper)));
            }
        }
        if !setting.series.starts_with("oq") && !setting.series.starts_with("io-ack") {
            continue;
        }
        for (other, share, metric) in COMPARISONS {
            let Some(base) = known.get(other) else {
                continue;
            };
            let below = us(&own.commit, share).zip(base.quantile_us(&base.commit, share));
            let below = below.map(|(own, base)| 100.0 * (1.0 - own / base));
            let stated = |(of, whose, quantile, _): &&(&str, &str, f64, f64)| {
                is_of(of) && (*whose, *quantile) == (other, share) && setting.series == "oq-paper"
            };
            let paper = BELOW.iter().find(stated).map(|(.., percent)| *percent);
            rows.push(setting.row(request, load, (metric, below), paper));
        }
    }
    rows
}

/// The highest load, in steps of a hundredth, at which a setting's p99 is as at the paper's peak.
fn peak(raw: &Setting) -> f64 {
    // The busiest worker sets the capacity: a mean request takes less than that where keys are
    // skewed, so the limit is taken from the service itself.
    let per_worker_us = f64::from(raw.model.workers) / raw.capacity;
    let limit_us = PEAK_SERVICE_TIMES * mean_service_us(&raw.model).min(per_worker_us);
    let (mut low, mut high) = (50, 99);
    while low < high {
        let middle = (low + high + 1) / 2;
        let outcome = raw.at(f64::from(middle) / 100.0);
        let p99 = outcome.quantile_us(&outcome.commit, 0.99);
        match p99.is_some_and(|p99| p99 <= limit_us) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    f64::from(low) / 100.0
}

fn mean_service_us(model: &Juneberry) -> f64 {
    let writes = model.workload.mix.write_share();
    let bytes = model.workload.sizes.table().mean() as u32;
    let of = |write| model.prices.rpc_ns(write, bytes);
    (writes * of(true) + (1.0 - writes) * of(false)) / 1e3
}

/// The paper's Table 1: cluster, per cent of writes, bytes of keys and values, exponent.
const TABLE1: [(f64, f64, usize, u32, f64); 4] = [
    (12.0, 80.0, 44, 1_030, 0.3048),
    (19.0, 25.0, 42, 101, 0.735),
    (27.0, 15.0, 66, 8, 1.065),
    (31.0, 94.0, 41, 15, 0.0),
];

/// With whom series with queues are compared, and at which quantile.
const COMPARISONS: [(&str, f64, &str); 6] = [
    ("raw-rpc", 0.5, "peak_p50_below_raw_rpc_percent"),
    ("raw-rpc", 0.99, "peak_p99_below_raw_rpc_percent"),
    ("deferred-exec", 0.5, "peak_p50_below_deferred_percent"),
    ("deferred-exec", 0.99, "peak_p99_below_deferred_percent"),
    ("erpc", 0.5, "peak_p50_below_erpc_percent"),
    ("erpc", 0.99, "peak_p99_below_erpc_percent"),
];

/// By how many per cent the paper's system is below another at its peak, where the paper says so.
const BELOW: [(&str, &str, f64, f64); 21] = [
    // 3.03 times as high is 67 % lower.
    ("workload=cluster12", "raw-rpc", 0.5, 82.30),
    ("workload=cluster12", "deferred-exec", 0.5, 67.0),
    ("workload=cluster12", "deferred-exec", 0.99, 32.43),
    ("workload=cluster19", "raw-rpc", 0.5, 50.74),
    ("workload=cluster27", "raw-rpc", 0.5, 32.89),
    ("workload=cluster31", "raw-rpc", 0.5, 90.70),
    ("workload=cluster31", "deferred-exec", 0.5, 83.77),
    ("workload=cluster31", "deferred-exec", 0.99, 42.86),
    ("writes=100", "raw-rpc", 0.5, 57.08),
    ("writes=100", "deferred-exec", 0.5, 56.33),
    ("writes=100", "erpc", 0.5, 53.92),
    ("writes=100", "raw-rpc", 0.99, 94.38),
    ("writes=100", "deferred-exec", 0.99, 93.76),
    ("writes=100", "erpc", 0.99, 89.61),
    ("writes=50", "raw-rpc", 0.5, 40.83),
    ("writes=50", "deferred-exec", 0.5, 40.83),
    ("writes=50", "erpc", 0.5, 36.71),
    // 1.19 and 1.2 times as high is 19 and 20 % above.
    ("writes=5", "raw-rpc", 0.5, -19.0),
    ("writes=5", "raw-rpc", 0.99, -28.0),
    ("writes=0", "raw-rpc", 0.5, -20.0),
    ("writes=0", "raw-rpc", 0.99, -49.0),
];

/// 99th percentiles in microseconds that the paper states: whose, at which share of its peak.
const P99_US: [(&str, &str, f64, f64); 4] = [
    (
        "prices=paper;workload=cluster19",
        "raw-rpc",
        0.5 / 4.1,
        10.6,
    ),
    (
        "prices=paper;workload=cluster19",
        "oq-paper",
        0.5 / 4.1,
        7.4,
    ),
    ("prices=paper;workload=cluster19", "raw-rpc", 1.0, 65.8),
    ("prices=paper;workload=cluster19", "oq-paper", 1.0, 61.8),
];

/// 65.8 us at 4.1 million requests a second with 16 workers (section 6.3).
const PEAK_SERVICE_TIMES: f64 = 16.9;
const CLUSTERS: [f64; 4] = [12.0, 19.0, 27.0, 31.0];
/// Where curves are drawn; no peak is sought where loads are asked for.
const LOADS_DRAWN: Parameter = Parameter::each(
    Choice::Load,
    LOADS,
    &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95],
)
.axis();
const SERIES: &[&str] = &[
    "raw-rpc",
    "deferred-exec",
    "erpc",
    "io-ack",
    "oq-paper",
    "oq",
    "oq-stamps",
    "oq-shared",
    "oq-fold",
    "io-ack-paper",
];
