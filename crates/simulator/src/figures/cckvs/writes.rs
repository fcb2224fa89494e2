//! Fig. 10 and Fig. 11: throughput by share of writes, and what the network then carries.

use super::{Point, Setting, hit_ratios, hits_text, nodes, rows};
use crate::{
    figures::{Figure, Request, or},
    rows::Row,
};

pub(in crate::figures) const FIG10: Figure = Figure {
    name: "cckvs-fig10",
    title: "ccKVS, Fig. 10: throughput of 9 nodes by share of writes",
    x: "writes, per cent",
    about: "A hot write sends a message of each kind to every other node. Without an ending: the \
            paper's equations (bytes, 21.5 Gb/s); -packets: packets through the switch, which is \
            nearer to what the paper measured; -simulated: whole nodes in virtual time, with the \
            production machines for the hot keys.",
    series: &[
        "base-erew",
        "base",
        "uniform",
        "sc",
        "lin",
        "sc-packets",
        "lin-packets",
        "base-simulated",
        "uniform-simulated",
        "sc-simulated",
        "lin-simulated",
        "base-packets",
        "uniform-packets",
        "base-erew-simulated",
    ],
    series_default: 11,
    run: fig10,
};

pub(in crate::figures) const FIG11: Figure = Figure {
    name: "cckvs-fig11",
    title: "ccKVS, Fig. 11: what the network's bytes are spent on",
    x: "writes, per cent",
    about: "By the paper's lengths of messages; a credit is a header for 15 updates (SC) or 30 \
            messages of each kind (Lin). The paper prints no numbers: credits are negligible, and \
            what keeps copies equal grows with the writes. -simulated counts what the production \
            machines send; their value travels with the invalidation, and what has none \
            (`invalidations_`) ends a write.",
    series: &["sc", "lin", "sc-simulated", "lin-simulated"],
    series_default: 4,
    run: fig11,
};

fn fig10(request: &Request<'_>) -> Vec<Row> {
    let points = points(request, &WRITES);
    rows(request, &points, |one| [("throughput_mrps", one.mrps)])
}

fn fig11(request: &Request<'_>) -> Vec<Row> {
    let points = points(request, &[1.0, 5.0]);
    rows(request, &points, |one| {
        let shares = one.shares;
        let percent = |part: f64| 100.0 * part / shares.total();
        [
            ("misses_percent", percent(shares.misses)),
            ("updates_percent", percent(shares.updates)),
            ("invalidations_percent", percent(shares.invalidations)),
            ("acks_percent", percent(shares.acknowledgements)),
            ("credits_percent", percent(shares.credits)),
        ]
    })
}

/// Every series at every share of writes, with the exact hit ratio and with the paper's.
fn points(request: &Request<'_>, writes: &[f64]) -> Vec<Point> {
    let options = request.options;
    let mut points = Vec::new();
    for nodes in nodes(request) {
        let gamma = Setting::new("sc", options).gamma;
        for hits in hit_ratios(gamma) {
            for series in request.series.iter().copied() {
                for writes_percent in or(&options.writes, writes) {
                    let setting = Setting {
                        hits,
                        nodes,
                        writes_percent,
                        ..Setting::new(series, options)
                    };
                    points.push(Point {
                        series,
                        params: format!("nodes={nodes};gamma={gamma};{}", hits_text(hits)),
                        x: writes_percent,
                        setting,
                    });
                }
            }
        }
    }
    points
}

const WRITES: [f64; 8] = [0.0, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0];
