//! Fig. 8 and Fig. 9: read-only throughput by skew, and what of it are hits.

use super::{GAMMAS, Point, Setting, hit_ratios, nodes, rows, simulated, value};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG8: Figure = Figure {
    name: "cckvs-fig8",
    title: "ccKVS, Fig. 8: read-only throughput of 9 nodes by skew",
    x: "exponent of popularity",
    about: "Base is bound by the link of the server with the hottest keys, Uniform by all links \
            alike, ccKVS by its misses. What a core of Base-EREW carries is set by its 95 MRPS at \
            0.99. Without an ending: 21.5 Gb/s of bytes, the paper's model; -packets: as many \
            packets as these bytes are; -simulated: whole nodes in virtual time \
            (crates/simulator/cckvs-paper.toml, or --cluster-hardware FILE).",
    series: &[
        "base-erew",
        "base",
        "uniform",
        "cckvs",
        "base-packets",
        "cckvs-packets",
        "base-erew-simulated",
        "base-simulated",
        "uniform-simulated",
        "cckvs-simulated",
        "uniform-packets",
    ],
    series_default: 10,
    parameters: &PARAMETERS,
    run: fig8,
};

pub(in crate::figures) const FIG9: Figure = Figure {
    name: "cckvs-fig9",
    title: "ccKVS, Fig. 9: hits and misses of ccKVS by skew, read only",
    x: "exponent of popularity",
    about: "Misses fill the links, so their throughput is that of Uniform at every exponent; hits \
            come on top.",
    series: &["cckvs", "cckvs-simulated", "cckvs-packets"],
    series_default: 2,
    parameters: &PARAMETERS,
    run: fig9,
};

fn fig8(request: &Request<'_>) -> Vec<Row> {
    let points = points(request);
    rows(request, &points, |one| [("throughput_mrps", one.mrps)])
}

fn fig9(request: &Request<'_>) -> Vec<Row> {
    let points = points(request);
    rows(request, &points, |one| {
        let misses_mrps = one.mrps - one.hits_mrps;
        [("hits_mrps", one.hits_mrps), ("misses_mrps", misses_mrps)]
    })
}

/// Every series at every exponent, with the exact hit ratio and with the paper's.
fn points(request: &Request<'_>) -> Vec<Point> {
    let value_bytes = request.number(Choice::ValueBytes) as u32;
    let mut points = Vec::new();
    for nodes in request.counts(Choice::Nodes) {
        for (index, kind) in ["exact", "stated"].into_iter().enumerate() {
            for series in request.series.iter().copied() {
                for gamma in request.numbers(Choice::Gamma) {
                    let Some(hits) = hit_ratios(gamma).get(index).copied() else {
                        continue;
                    };
                    let setting = Setting {
                        gamma,
                        hits,
                        nodes,
                        value_bytes,
                        ..Setting::new(series, request)
                    };
                    points.push(Point {
                        series,
                        params: format!("nodes={nodes};hits={kind}"),
                        x: gamma,
                        setting,
                    });
                }
            }
        }
    }
    points
}

const PARAMETERS: [Parameter; 6] = {
    let [requests, hardware, seed] = simulated();
    let gamma = Parameter::each(Choice::Gamma, GAMMAS, &[0.90, 0.99, 1.01]).axis();
    [nodes(), gamma, value(), requests, hardware, seed]
};
