//! Latency against load: figures 3, 4, 5 and 8.

use super::{
    MINOS_FIRST, REQUESTS, SERIES, Setting,
    limits::{LIMITS, highest, ratios},
    parameters, settings, with, with_load,
};
use crate::{
    figures::{
        Choice, Figure, Parameter, at_loads,
        figure_run::{Request, over_best},
    },
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
    run: with_highest,
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
    run: with_highest,
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

/// Latencies over load, then the highest loads within limits, and Minos's over HKH+WS's.
fn with_highest(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let mut rows = curves(request, &settings);
    let highest = request.draw(&settings, |setting| {
        let found = LIMITS.into_iter().zip(highest(setting));
        let found = found.map(|((times, metric), highest)| (times, metric, highest));
        request.rows(&setting.case, found)
    });
    let ratios = ratios(&highest);
    rows.extend(highest);
    rows.extend(ratios);
    rows
}

fn fig4(request: &Request<'_>) -> Vec<Row> {
    let settings = settings(request, &[1.0]);
    let large = request.draw(&points(request, &settings), |(setting, rate)| {
        let outcome = setting.at(*rate).run();
        let p99 = outcome.stable(&outcome.large, 0.99);
        request.rows(
            &setting.case,
            [(*rate, "large_p99_us", p99.map(|ns| ns / 1e3))],
        )
    });
    let with_ratio = |row: &Row| {
        let over = over_best(row, &large, &["hkh-ws"]).flatten();
        let over = over.filter(|_| row.series != "hkh-ws").map(|over| Row {
            metric: "over_hkh_ws",
            value: Some(over),
            ..row.clone()
        });
        [Some(row.clone()), over].into_iter().flatten()
    };
    large.iter().flat_map(with_ratio).collect()
}

fn fig8(request: &Request<'_>) -> Vec<Row> {
    let mut settings = settings(request, &[1.0, 0.75, 0.5, 0.25]);
    for setting in &mut settings {
        setting.case.more = format!(";replies={}", setting.model.replies);
    }
    let mut rows = curves(request, &settings);
    rows.extend(request.draw(&settings, |setting| {
        let [.., peak] = highest(setting);
        let busy = peak.map(|peak| setting.at(peak).run().link_busy);
        let found = [(0.0, "peak_mops", peak), (0.0, "peak_link_busy", busy)];
        request.rows(&setting.case, found)
    }));
    rows
}

/// Every setting at every load.
fn points<'a>(request: &Request<'_>, settings: &'a [Setting]) -> Vec<(&'a Setting, f64)> {
    let points = at_loads(settings, &request.numbers(Choice::Load)).into_iter();
    points
        .map(|(setting, load)| (setting, load * setting.capacity))
        .collect()
}

fn curves(request: &Request<'_>, settings: &[Setting]) -> Vec<Row> {
    request.draw(&points(request, settings), |(setting, rate)| {
        let outcome = setting.at(*rate).run();
        let us = |histogram, share| outcome.stable(histogram, share).map(|ns| ns / 1e3);
        let beside = outcome.beside_large as f64 / outcome.small_served.max(1) as f64;
        let found = [
            ("p99_us", us(&outcome.all, 0.99)),
            ("p50_us", us(&outcome.all, 0.5)),
            ("large_p99_us", us(&outcome.large, 0.99)),
            ("answered_mops", Some(outcome.throughput_mrps())),
            ("link_busy", Some(outcome.link_busy)),
            ("beside_large", Some(beside)),
        ];
        request.rows(
            &setting.case,
            found.map(|(metric, value)| (*rate, metric, value)),
        )
    })
}

const LOAD: &str = "offered load, millions of requests a second";
/// Shares of what the node could serve.
const LOADS: Parameter = Parameter::each(
    Choice::Load,
    (0.001, 10.0),
    &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97],
)
.axis();
