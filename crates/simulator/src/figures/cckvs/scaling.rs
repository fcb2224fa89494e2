//! Fig. 14 and Fig. 15: the model at sizes that the paper could not run.

use curtail_consistency::symmetric::Model;

use super::{NODES_RANGE, Setting, gamma, hit_ratios, hits_text, row, value};
use crate::{
    cckvs::{MessageBytes, break_even},
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG14: Figure = Figure {
    name: "cckvs-fig14",
    title: "ccKVS, Fig. 14: throughput by number of nodes, 1 % writes",
    x: "nodes",
    about: "Without an ending: the paper's equations, to which its 628 and 554 belong (they need \
            66 % of hits); -packets: packets through the switch, beside which stand the paper's \
            measurements (639, 554 and 240).",
    series: &[
        "uniform",
        "sc",
        "lin",
        "uniform-packets",
        "sc-packets",
        "lin-packets",
    ],
    series_default: 6,
    parameters: &[
        Parameter::each(Choice::Nodes, NODES_RANGE, &NODES)
            .whole()
            .axis(),
        gamma(),
        Parameter::one(Choice::Writes, (0.0, 100.0), &[1.0]).papers(&[1.0]),
        value(),
        Parameter::seed(),
    ],
    run: fig14,
};

pub(in crate::figures) const FIG15: Figure = Figure {
    name: "cckvs-fig15",
    title: "ccKVS, Fig. 15: the share of writes at which caching ceases to pay",
    x: "nodes",
    about: "Closed form: the bytes of a request and its reply over N times those of a hot write. \
            The paper reads 8, 4 and 1.7 % off its drawing, 10 to 18 % above its own equations; \
            -packets counts messages in place of bytes; -datagrams has our lengths (66 bytes \
            around a message, a header of 24).",
    series: &[
        "sc",
        "lin",
        "sc-packets",
        "lin-packets",
        "sc-datagrams",
        "lin-datagrams",
    ],
    series_default: 6,
    parameters: &[
        Parameter::each(Choice::Nodes, NODES_RANGE, &NODES)
            .whole()
            .axis(),
        value(),
    ],
    run: fig15,
};

fn fig14(request: &Request<'_>) -> Vec<Row> {
    let gamma = request.number(Choice::Gamma);
    let writes_percent = request.number(Choice::Writes);
    let value_bytes = request.number(Choice::ValueBytes) as u32;
    let mut rows = Vec::new();
    for hits in hit_ratios(gamma).into_iter().chain([0.66]) {
        let params = format!("gamma={gamma};writes={writes_percent};{}", hits_text(hits));
        for series in &request.series {
            for nodes in request.counts(Choice::Nodes) {
                let setting = Setting {
                    hits,
                    nodes,
                    gamma,
                    value_bytes,
                    writes_percent,
                    ..Setting::new(series, request)
                };
                let mrps = ("throughput_mrps", setting.mrps());
                rows.push(row(request, (series, &params), f64::from(nodes), mrps));
            }
        }
    }
    rows
}

fn fig15(request: &Request<'_>) -> Vec<Row> {
    let value_bytes = request.number(Choice::ValueBytes) as u32;
    let params = format!("value={value_bytes}");
    let mut rows = Vec::new();
    for series in &request.series {
        let (model, rest) = match series.strip_prefix("lin") {
            Some(rest) => (Model::Lin, rest),
            None => (Model::Sc, series.trim_start_matches("sc")),
        };
        let bytes = match rest {
            "-packets" => PACKETS,
            "-datagrams" => MessageBytes::datagrams(value_bytes),
            _ => MessageBytes::paper(value_bytes),
        };
        for nodes in request.counts(Choice::Nodes) {
            let percent = 100.0 * break_even(nodes, &bytes, model);
            let even = ("break_even_percent", percent);
            rows.push(row(request, (series, &params), f64::from(nodes), even));
        }
    }
    rows
}

/// Where a packet is what counts, every message is one.
const PACKETS: MessageBytes = MessageBytes {
    header: 1.0,
    request: 1.0,
    reply: 1.0,
    update: 1.0,
    invalidation: 1.0,
    acknowledgement: 1.0,
};

const NODES: [f64; 9] = [5.0, 7.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0];
