//! Fig. 10 and Fig. 11: throughput by share of writes, and what the network then carries.

use super::{Setting, hit_ratios, hits_text, nodes, row};
use crate::{
    cckvs::MessageBytes,
    figures::{Figure, Request, or},
    rows::Row,
};

pub(in crate::figures) const FIG10: Figure = Figure {
    name: "cckvs-fig10",
    title: "ccKVS, Fig. 10: throughput of 9 nodes by share of writes",
    x: "writes, per cent",
    about: "A hot write sends a message of each kind to every other node. Without an ending: the \
            paper's equations (bytes, 21.5 Gb/s); -packets: packets through the switch, which is \
            nearer to what the paper measured.",
    series: &[
        "base-erew",
        "base",
        "uniform",
        "sc",
        "lin",
        "sc-packets",
        "lin-packets",
        "base-packets",
        "uniform-packets",
    ],
    series_default: 7,
    run: fig10,
};

pub(in crate::figures) const FIG11: Figure = Figure {
    name: "cckvs-fig11",
    title: "ccKVS, Fig. 11: what the network's bytes are spent on",
    x: "writes, per cent",
    about: "By the paper's lengths of messages; a credit is a header for 15 updates (SC) or 30 \
            messages of each kind (Lin). The paper prints no numbers: credits are negligible, and \
            what keeps copies equal grows with the writes.",
    series: &["sc", "lin"],
    series_default: 2,
    run: fig11,
};

fn fig10(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    each(request, &WRITES, |series, params, setting| {
        let mrps = ("throughput_mrps", setting.mrps());
        rows.push(row(request, (series, params), setting.writes_percent, mrps));
    });
    rows
}

fn fig11(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    each(request, &[1.0, 5.0], |series, params, setting| {
        let bytes = MessageBytes::paper(setting.value_bytes);
        let shares = setting.load().shares(&bytes, setting.model());
        let percent = |part: f64| 100.0 * part / shares.total();
        let parts = [
            ("misses_percent", percent(shares.misses)),
            ("updates_percent", percent(shares.updates)),
            ("invalidations_percent", percent(shares.invalidations)),
            ("acks_percent", percent(shares.acknowledgements)),
            ("credits_percent", percent(shares.credits)),
        ];
        let at = setting.writes_percent;
        rows.extend(parts.map(|part| row(request, (series, params), at, part)));
    });
    rows
}

/// Every series at every share of writes, with the exact hit ratio and with the paper's.
fn each(request: &Request<'_>, writes: &[f64], mut draw: impl FnMut(&str, &str, &Setting)) {
    let options = request.options;
    for nodes in nodes(request) {
        let gamma = Setting::new("sc", options).gamma;
        for hits in hit_ratios(gamma) {
            let params = format!("nodes={nodes};gamma={gamma};{}", hits_text(hits));
            for series in &request.series {
                for writes_percent in or(&options.writes, writes) {
                    let setting = Setting {
                        hits,
                        nodes,
                        writes_percent,
                        ..Setting::new(series, options)
                    };
                    draw(series, &params, &setting);
                }
            }
        }
    }
}

const WRITES: [f64; 8] = [0.0, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0];
