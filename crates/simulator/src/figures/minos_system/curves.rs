//! Latency against load: figures 3, 4, 5 and 8.

use super::{
    MINOS_FIRST, REQUESTS, SERIES, Setting, limits::Highest, microseconds, parameters, settings,
    with, with_load,
};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    queueing::Outcome,
    rows::Row,
};

pub(in crate::figures) const FIG3: Figure = Figure {
    name: "minos-fig3",
    title: "Minos, Fig. 3: the 99th percentile with the default workload",
    x: LOAD,
    about: "8 cores, 40 Gb/s, ETC sizes, 95 % reads, 0.125 % of the requests for items of up to \
            500 KB. Beside the curve: the highest load within 10 and 20 mean service times (x is \
            that number; slo_mops) and the highest that queues bear (x = 0; peak_mops). With the \
            paper's prices size-unaware systems lose their tail to the transmit queues more than \
            to the cores: a small reply waits behind the large one that its core sent before. \
            Minos does better than in the paper near the peak, because the model's clients and \
            network add no tail of their own. The paper says of SHO's peak that it is 10 % lower \
            (5.6), and of HKH+WS that Minos's 5.6 are 2.4 times as much (2.3).",
    series: SERIES,
    series_default: 6,
    parameters: &with_load(parameters(REQUESTS), LOADS),
    run: fig3,
};

pub(in crate::figures) const FIG4: Figure = Figure {
    name: "minos-fig4",
    title: "Minos, Fig. 4: the 99th percentile of large requests with the default workload",
    x: LOAD,
    about: "As minos-fig3. The paper says that Minos's is up to twice that of HKH+WS before \
            saturation: over_hkh_ws. With prices that are not the paper's the large cores may be \
            fewer than large requests need, because the cost function counts packets and not time; \
            curtail and curtail-static do as the server: they count time, and their threshold \
            weighs what hand-offs cost.",
    series: SERIES,
    series_default: 7,
    parameters: &with_load(parameters(REQUESTS), LOADS),
    run: fig4,
};

pub(in crate::figures) const FIG5: Figure = Figure {
    name: "minos-fig5",
    title: "Minos, Fig. 5: the 99th percentile with half reads, half writes",
    x: LOAD,
    about: "As minos-fig3, with half of the requests writes. Profiling costs Minos a tenth of the \
            peak (the paper's price of it), a plan that is set by hand does not. The paper says \
            that HKH and HKH+WS carry 10 % more than its 6.3 (7.0).",
    series: SERIES,
    series_default: 6,
    parameters: &with_load(
        with(
            parameters(REQUESTS),
            Parameter::each(Choice::Writes, (0.0, 100.0), &[50.0]).papers(&[50.0]),
        ),
        LOADS,
    ),
    run: fig5,
};

pub(in crate::figures) const FIG8: Figure = Figure {
    name: "minos-fig8",
    title: "Minos, Fig. 8: more bandwidth, by sending only a part of the replies",
    x: LOAD,
    about: "0.75 % large requests; every request is processed, `replies` of the replies are sent. \
            The paper: the link is saturated at 100, 75 and 50 %, at 25 % the cores are \
            (peak_link_busy, at the highest load that queues bear).",
    series: MINOS_FIRST,
    series_default: 1,
    parameters: &with_load(
        with(
            parameters(REQUESTS),
            Parameter::each(Choice::LargeFraction, (0.0, 100.0), &[0.75]).papers(&[0.75]),
        ),
        LOADS,
    ),
    run: fig8,
};

fn fig3(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let mut rows = curves(request, &settings);
    let paper = |series: &str, x: f64| match (series, x as u64) {
        ("minos", 10) => Some(5.6),
        ("hkh-ws", 10) => Some(5.6 / 2.4),
        ("minos" | "hkh" | "hkh-ws", 0) => Some(6.2),
        ("sho", 0) => Some(5.6),
        _ => None,
    };
    let ratio = |x: f64| match x as u64 {
        10 => Some(2.4),
        20 => Some(1.75),
        _ => None,
    };
    rows.extend(Highest::rows(request, &settings, paper, ratio));
    rows
}

fn fig5(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let mut rows = curves(request, &settings);
    let paper = |series: &str, x: f64| match (series, x as u64) {
        ("minos", 0) => Some(6.3),
        ("hkh" | "hkh-ws", 0) => Some(7.0),
        _ => None,
    };
    rows.extend(Highest::rows(request, &settings, paper, |_| None));
    rows
}

fn fig4(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let points = points(request, &settings);
    let outcomes = run(request, &points);
    let large = |outcome: &Outcome| {
        let p99 = outcome.large.quantile(0.99);
        p99.filter(|_| !outcome.saturated)
    };
    let mut rows = Vec::new();
    for ((setting, rate), outcome) in points.iter().zip(&outcomes) {
        let p99 = large(outcome);
        rows.push(setting.row(request, *rate, "large_p99_us", microseconds(p99), None));
        let stealing = points.iter().zip(&outcomes).find(|((other, at), _)| {
            other.series == "hkh-ws" && other.params == setting.params && at == rate
        });
        if let Some((_, stealing)) = stealing
            && let (Some(own), Some(stealing)) = (p99, large(stealing))
            && setting.series != "hkh-ws"
        {
            let over = own as f64 / stealing as f64;
            rows.push(setting.row(request, *rate, "over_hkh_ws", Some(over), None));
        }
    }
    rows
}

fn fig8(request: &Request<'_>) -> Vec<Row> {
    let mut settings = settings(request, &[1.0, 0.75, 0.5, 0.25]);
    for setting in &mut settings {
        setting.params += &format!(";replies={}", setting.model.replies);
    }
    let mut rows = curves(request, &settings);
    let highest = request
        .threads
        .map(request.figure.name, &settings, Highest::of);
    for (setting, highest) in settings.iter().zip(highest) {
        let peak = highest.peak;
        rows.push(setting.row(request, 0.0, "peak_mops", peak, None));
        let busy = peak.map(|peak| setting.at(peak).run().link_busy);
        // Saturated, or "almost".
        let paper = (setting.model.replies >= 0.5).then_some(1.0);
        rows.push(setting.row(request, 0.0, "peak_link_busy", busy, paper));
    }
    rows
}

/// Every setting at every load.
fn points<'a>(request: &Request<'_>, settings: &'a [Setting]) -> Vec<(&'a Setting, f64)> {
    let loads = request.numbers(Choice::Load);
    let at = |setting: &'a Setting| {
        let capacity = setting.capacity;
        let rates: Vec<f64> = loads.iter().map(|load| load * capacity).collect();
        rates.into_iter().map(move |rate| (setting, rate))
    };
    settings.iter().flat_map(at).collect()
}

fn run(request: &Request<'_>, points: &[(&Setting, f64)]) -> Vec<Outcome> {
    let name = request.figure.name;
    request
        .threads
        .map(name, points, |(setting, rate)| setting.at(*rate).run())
}

fn curves(request: &Request<'_>, settings: &[Setting]) -> Vec<Row> {
    let points = points(request, settings);
    let outcomes = run(request, &points);
    let mut rows = Vec::new();
    for ((setting, rate), outcome) in points.iter().zip(outcomes) {
        let stable = |value: Option<u64>| value.filter(|_| !outcome.saturated);
        let beside = outcome.beside_large as f64 / outcome.small_served.max(1) as f64;
        let all = [
            ("p99_us", microseconds(outcome.p99_ns())),
            ("p50_us", microseconds(stable(outcome.all.quantile(0.5)))),
            (
                "large_p99_us",
                microseconds(stable(outcome.large.quantile(0.99))),
            ),
            ("answered_mops", Some(outcome.throughput_mrps())),
            ("link_busy", Some(outcome.link_busy)),
            ("beside_large", Some(beside)),
        ];
        for (metric, value) in all {
            rows.push(setting.row(request, *rate, metric, value, None));
        }
    }
    rows
}

const LOAD: &str = "offered load, millions of requests a second";
/// Shares of what the node could serve.
const LOADS: Parameter = Parameter::each(
    Choice::Load,
    (0.001, 10.0),
    &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97],
)
.axis();
