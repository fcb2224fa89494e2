//! Beyond the paper: nodes that share the cores of one machine, and copies for each key.

use curtail_consistency::symmetric::Model;

use super::{NODES_RANGE, gamma, hit_ratios, hits_text, row, value};
use crate::{
    cckvs::{ClusterCosts, HotCopies, MessageBytes, SharedCpu, copies_worth},
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const CORES: Figure = Figure {
    name: "cckvs-cores",
    title: "Symmetric caching when cores, not links, are the limit",
    x: "nodes that share the cores",
    about: "The paper's sums with nanoseconds in place of bytes (crates/simulator/cckvs.toml, or \
            --cluster-costs FILE): 2 cores, or --cores, serve all nodes, so more nodes carry no \
            more, and what they send one another takes from them all. over_uniform is the gain by \
            caching.",
    series: &["uniform", "cckvs", "sc", "lin"],
    series_default: 4,
    parameters: &[
        Parameter::each(Choice::Cores, (1.0, 256.0), &[2.0]).whole(),
        gamma(),
        Parameter::each(Choice::Writes, (0.0, 100.0), &[1.0]),
        Parameter::each(
            Choice::Nodes,
            NODES_RANGE,
            &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        )
        .whole()
        .axis(),
        Parameter::file(Choice::ClusterCosts),
    ],
    run: cores,
};

pub(in crate::figures) const COPIES: Figure = Figure {
    name: "cckvs-copies",
    title: "Copies that a key deserves, by its own share of writes",
    x: "writes of the key, per cent",
    about: "The largest group of nodes whose break-even share of writes is above the key's own; 1 \
            is its home alone. With the lengths of our datagrams; -paper with the paper's.",
    series: &["sc", "lin", "sc-paper", "lin-paper"],
    series_default: 4,
    parameters: &[
        Parameter::each(Choice::Nodes, NODES_RANGE, &[9.0, 40.0]).whole(),
        Parameter::each(Choice::Writes, (0.0, 100.0), &WRITES).axis(),
        value(),
    ],
    run: copies,
};

fn cores(request: &Request<'_>) -> Vec<Row> {
    let options = request.options;
    let given = options.cluster_costs.as_ref();
    let costs = given.map_or_else(|| *ClusterCosts::built_in(), |given| given.costs);
    let gamma = request.number(Choice::Gamma);
    let mut rows = Vec::new();
    for cores in request.counts(Choice::Cores) {
        let cpu = SharedCpu {
            cores: f64::from(cores),
            costs,
        };
        for hit_ratio in hit_ratios(gamma) {
            for percent in request.numbers(Choice::Writes) {
                let hits = hits_text(hit_ratio);
                let params = format!("cores={cores};gamma={gamma};writes={percent};{hits}");
                for series in &request.series {
                    for nodes in request.counts(Choice::Nodes) {
                        let cached = HotCopies {
                            nodes,
                            hit_ratio,
                            write_ratio: percent / 100.0,
                        };
                        let uniform = HotCopies {
                            hit_ratio: 0.0,
                            ..cached
                        };
                        let (load, model) = match *series {
                            "uniform" => (uniform, Model::Sc),
                            "lin" => (cached, Model::Lin),
                            "sc" => (cached, Model::Sc),
                            _ => (read_only(cached), Model::Sc),
                        };
                        let krps = cpu.throughput_krps(&load, model);
                        let over = krps / cpu.throughput_krps(&uniform, model);
                        let (curve, x) = ((*series, params.as_str()), f64::from(nodes));
                        rows.push(row(request, curve, x, ("throughput_krps", krps)));
                        rows.push(row(request, curve, x, ("over_uniform", over)));
                        if matches!(*series, "sc" | "lin") {
                            let percent = 100.0 * costs.break_even(nodes, model);
                            rows.push(row(request, curve, x, ("break_even_percent", percent)));
                        }
                    }
                }
            }
        }
    }
    rows
}

fn read_only(load: HotCopies) -> HotCopies {
    HotCopies {
        write_ratio: 0.0,
        ..load
    }
}

fn copies(request: &Request<'_>) -> Vec<Row> {
    let value_bytes = request.number(Choice::ValueBytes) as u32;
    let mut rows = Vec::new();
    for nodes in request.counts(Choice::Nodes) {
        let params = format!("nodes={nodes};value={value_bytes}");
        for series in &request.series {
            let model = match series.starts_with("lin") {
                true => Model::Lin,
                false => Model::Sc,
            };
            let bytes = match series.ends_with("-paper") {
                true => MessageBytes::paper(value_bytes),
                false => MessageBytes::datagrams(value_bytes),
            };
            for percent in request.numbers(Choice::Writes) {
                let copies = copies_worth(percent / 100.0, nodes, &bytes, model);
                let copies = ("copies", f64::from(copies));
                rows.push(row(request, (series, &params), percent, copies));
            }
        }
    }
    rows
}

const WRITES: [f64; 15] = [
    0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0,
];
