//! Fig. 8 and Fig. 9: read-only throughput by skew, and what of it are hits.

use super::{Setting, hit_ratios, nodes, row};
use crate::{
    figures::{Figure, Request, or},
    rows::Row,
};

pub(in crate::figures) const FIG8: Figure = Figure {
    name: "cckvs-fig8",
    title: "ccKVS, Fig. 8: read-only throughput of 9 nodes by skew",
    x: "exponent of popularity",
    about: "Base is bound by the link of the server with the hottest keys, Uniform by all links \
            alike, ccKVS by its misses. What a core of Base-EREW carries is set by its 95 MRPS at \
            0.99. Without an ending: 21.5 Gb/s of bytes, the paper's model; -packets: as many \
            packets as these bytes are.",
    series: &[
        "base-erew",
        "base",
        "uniform",
        "cckvs",
        "base-packets",
        "cckvs-packets",
        "uniform-packets",
    ],
    series_default: 6,
    run: fig8,
};

pub(in crate::figures) const FIG9: Figure = Figure {
    name: "cckvs-fig9",
    title: "ccKVS, Fig. 9: hits and misses of ccKVS by skew, read only",
    x: "exponent of popularity",
    about: "Misses fill the links, so their throughput is that of Uniform at every exponent; hits \
            come on top.",
    series: &["cckvs", "cckvs-packets"],
    series_default: 1,
    run: fig9,
};

fn fig8(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    each(request, |series, params, setting| {
        let mrps = ("throughput_mrps", setting.mrps());
        rows.push(row(request, (series, params), setting.gamma, mrps));
    });
    rows
}

fn fig9(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    each(request, |series, params, setting| {
        let mrps = setting.mrps();
        let parts = [
            ("hits_mrps", mrps * setting.hits),
            ("misses_mrps", mrps * (1.0 - setting.hits)),
        ];
        rows.extend(parts.map(|part| row(request, (series, params), setting.gamma, part)));
    });
    rows
}

/// Every series at every exponent, with the exact hit ratio and with the paper's.
fn each(request: &Request<'_>, mut draw: impl FnMut(&str, &str, &Setting)) {
    let options = request.options;
    for nodes in nodes(request) {
        for (index, kind) in ["exact", "stated"].into_iter().enumerate() {
            for series in &request.series {
                for gamma in or(&options.gammas, &[0.90, 0.99, 1.01]) {
                    let Some(hits) = hit_ratios(gamma).get(index).copied() else {
                        continue;
                    };
                    let setting = Setting {
                        gamma,
                        hits,
                        nodes,
                        ..Setting::new(series, options)
                    };
                    draw(series, &format!("nodes={nodes};hits={kind}"), &setting);
                }
            }
        }
    }
}
