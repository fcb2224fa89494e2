//! ccKVS's figures 1 (load of servers), 3 (hits of a cache) and 15 (break-even, also simulated).
//! Beyond the paper: nodes that share the cores of one machine, and copies of each key.

use curtail_consistency::replica::Model;

use super::{
    GAMMA, GAMMAS, NODES_DRAWN, NODES_RANGE, Setting, gamma, hit_ratios, hits_text, row, simulated,
    value,
};
use crate::{
    cckvs::{
        CACHED_SHARE, ClusterCosts, HotCopies, MessageBytes, Shards, SharedCpu, break_even,
        copies_worth, exact_hit_ratio,
    },
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG1: Figure = Figure {
    name: "cckvs-fig1",
    title: "ccKVS, Fig. 1: load of each of 128 servers under a skewed popularity",
    x: "server, the most loaded first",
    about: "250 million keys, of which the 65,536 most popular are placed one by one by a hash of \
            the seed and the others spread evenly. The paper has over 7 times the mean for the \
            first server; how many keys its drawing has, it does not say.",
    series: "load",
    series_default: 1,
    parameters: &[
        Parameter::each(Choice::Gamma, GAMMAS, &[GAMMA]).papers(&[GAMMA]),
        Parameter::each(Choice::Nodes, (1.0, 1_000.0), &[128.0])
            .whole()
            .called("servers")
            .papers(&[128.0]),
        Parameter::seed(),
    ],
    run: fig1,
};

pub(in crate::figures) const FIG3: Figure = Figure {
    name: "cckvs-fig3",
    title: "ccKVS, Fig. 3: share of the requests that hit a cache of the most popular keys",
    x: "size of the cache, per cent of the keys",
    about: "Exact, over 250 million keys (Zipf's law, summed). The paper's 46, 65 and 69 % are \
            above what its own setting gives; they fit a popularity over some 10 to 50 million \
            keys.",
    series: "cache",
    series_default: 1,
    parameters: &[Parameter::each(Choice::Gamma, GAMMAS, &[0.90, 0.99, 1.01]).any()],
    run: fig3,
};

pub(in crate::figures) const FIG15: Figure = Figure {
    name: "cckvs-fig15",
    title: "ccKVS, Fig. 15: the share of writes at which caching ceases to pay",
    x: "nodes",
    about: "Closed form: the bytes of a request and its reply over N times those of a hot write. \
            The paper reads 8, 4 and 1.7 % off its drawing, 10 to 18 % above its own equations; \
            -packets counts messages in place of bytes; -datagrams has our lengths (66 bytes \
            around a message, a header of 24). -simulated: whole nodes in virtual time, up to 64, \
            with the exact hits of 0.99, where the throughput with the production machines falls \
            to that of Uniform. For Lin that is near the sums in packets. For SC it is less than \
            half of them: a write goes to its primary, and is acknowledged.",
    series: "sc lin sc-packets lin-packets sc-datagrams lin-datagrams sc-simulated lin-simulated",
    series_default: 8,
    parameters: &BY_NODES,
    run: fig15,
};

pub(in crate::figures) const CORES: Figure = Figure {
    name: "cckvs-cores",
    title: "Symmetric caching when cores, not links, are the limit",
    x: "nodes that share the cores",
    about: "The paper's sums with nanoseconds in place of bytes (crates/simulator/cckvs.toml, or \
            --cluster-costs FILE): 2 cores, or --cores, serve all nodes, so more nodes carry no \
            more, and what they send one another takes from them all. over_uniform is the gain by \
            caching.",
    series: "uniform cckvs sc lin",
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
    series: "sc lin sc-paper lin-paper",
    series_default: 4,
    parameters: &[
        Parameter::each(Choice::Nodes, NODES_RANGE, &[9.0, 40.0]).whole(),
        Parameter::each(Choice::Writes, (0.0, 100.0), &WRITES).axis(),
        value(),
    ],
    run: copies,
};

fn fig1(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for gamma in request.numbers(Choice::Gamma) {
        for servers in request.counts(Choice::Nodes) {
            let params = format!("gamma={gamma};servers={servers}");
            let shards = Shards::draw(gamma, servers, request.seed());
            rows.extend((1..).zip(shards.shares()).map(|(server, share)| {
                let over_mean = ("load_over_mean", share * f64::from(servers));
                row(request, ("load", &params), f64::from(server), over_mean)
            }));
        }
    }
    rows
}

fn fig3(request: &Request<'_>) -> Vec<Row> {
    let of = |gamma| {
        let params = format!("gamma={gamma}");
        CACHES.map(|percent| {
            let hits = 100.0 * exact_hit_ratio(gamma, percent / 100.0);
            row(request, ("cache", &params), percent, ("hit_percent", hits))
        })
    };
    let gammas = request.numbers(Choice::Gamma);
    gammas.into_iter().flat_map(of).collect()
}

fn fig15(request: &Request<'_>) -> Vec<Row> {
    let params = format!("value={}", request.number(Choice::ValueBytes));
    let mut rows = Vec::new();
    let simulated = |series: &&&'static str| series.ends_with("-simulated");
    for series in request.series.iter().filter(|series| !simulated(series)) {
        let (model, bytes) = lengths(request, series);
        for nodes in request.counts(Choice::Nodes) {
            let percent = 100.0 * break_even(nodes, &bytes, model);
            let even = ("break_even_percent", percent);
            rows.push(row(request, (series, &params), f64::from(nodes), even));
        }
    }
    let mut points = Vec::new();
    for series in request.series.iter().filter(simulated) {
        for nodes in request.counts(Choice::Nodes) {
            points.push((*series, nodes));
        }
    }
    let name = request.figure.name;
    let found = request.threads.map(name, &points, |(series, nodes)| {
        simulated_break_even(request, series, *nodes)
    });
    for ((series, nodes), percent) in points.into_iter().zip(found) {
        let even = percent.map(|percent| ("break_even_percent", percent));
        rows.extend(even.map(|even| row(request, (series, &params), f64::from(nodes), even)));
    }
    rows
}

/// The share of writes in per cent at which a simulated cluster is as slow as one without copies:
/// what a request takes grows about evenly with the writes, so a few chords find it. `None` if
/// there are more nodes than can be simulated.
fn simulated_break_even(request: &Request<'_>, series: &str, nodes: u16) -> Option<f64> {
    let setting = |series, writes_percent| Setting {
        nodes,
        hits: exact_hit_ratio(GAMMA, CACHED_SHARE),
        writes_percent,
        value_bytes: request.number(Choice::ValueBytes) as u32,
        ..Setting::new(series, request)
    };
    let each = |series, percent| Some(1.0 / setting(series, percent).whole()?.run().mrps);
    let uniform = each("uniform-simulated", 0.0)?;
    let (mut low, mut high) = ((0.0, each(series, 0.0)?), (0.0, 0.0));
    for _ in 0..CHORDS {
        let percent = match high.1 > uniform {
            true => low.0 + (high.0 - low.0) * (uniform - low.1) / (high.1 - low.1),
            // The sums without what makes ours dearer.
            false if high.0 == 0.0 => {
                let bytes = MessageBytes::paper(setting(series, 0.0).value_bytes);
                100.0 * break_even(nodes, &bytes, model_of(series))
            }
            false => (high.0 * 2.0).min(100.0),
        };
        let found = (percent, each(series, percent)?);
        match found.1 > uniform {
            true => high = found,
            false if high.1 > uniform => low = found,
            false => (low, high) = (found, found),
        }
    }
    let is_between = high.1 > uniform;
    is_between.then(|| low.0 + (high.0 - low.0) * (uniform - low.1) / (high.1 - low.1))
}

fn cores(request: &Request<'_>) -> Vec<Row> {
    let given = request.options.cluster_costs.as_ref();
    let costs = given.map_or_else(|| *ClusterCosts::built_in(), |given| given.costs);
    let gamma = request.number(Choice::Gamma);
    let mut rows = Vec::new();
    for cores in request.numbers(Choice::Cores) {
        for hits in hit_ratios(gamma) {
            for percent in request.numbers(Choice::Writes) {
                let hits_text = hits_text(hits);
                let params = format!("cores={cores};gamma={gamma};writes={percent};{hits_text}");
                let cpu = SharedCpu { cores, costs };
                for series in &request.series {
                    for nodes in request.counts(Choice::Nodes) {
                        let mut add = |number| {
                            let curve = (*series, params.as_str());
                            rows.push(row(request, curve, f64::from(nodes), number));
                        };
                        let krps = |hit_ratio, percent| {
                            let load = HotCopies {
                                nodes,
                                hit_ratio,
                                write_ratio: percent / 100.0,
                            };
                            cpu.throughput_krps(&load, model_of(series))
                        };
                        // Without hits no copy is written, whatever the model.
                        let uniform = krps(0.0, percent);
                        let own = match *series {
                            "uniform" => uniform,
                            "cckvs" => krps(hits, 0.0),
                            _ => krps(hits, percent),
                        };
                        add(("throughput_krps", own));
                        add(("over_uniform", own / uniform));
                        if matches!(*series, "sc" | "lin") {
                            let percent = 100.0 * costs.break_even(nodes, model_of(series));
                            add(("break_even_percent", percent));
                        }
                    }
                }
            }
        }
    }
    rows
}

fn copies(request: &Request<'_>) -> Vec<Row> {
    let value_bytes = request.number(Choice::ValueBytes);
    let mut rows = Vec::new();
    for nodes in request.counts(Choice::Nodes) {
        let params = format!("nodes={nodes};value={value_bytes}");
        for series in &request.series {
            let (model, bytes) = lengths(request, series);
            for percent in request.numbers(Choice::Writes) {
                let copies = copies_worth(percent / 100.0, nodes, &bytes, model);
                let copies = ("copies", f64::from(copies));
                rows.push(row(request, (series, &params), percent, copies));
            }
        }
    }
    rows
}

fn model_of(series: &str) -> Model {
    match series.starts_with("lin") {
        true => Model::Lin,
        false => Model::Sc,
    }
}

/// A series' protocol, and how long its messages are: the paper's, unless its ending or figure says
/// otherwise.
fn lengths(request: &Request<'_>, series: &str) -> (Model, MessageBytes) {
    let value_bytes = request.number(Choice::ValueBytes) as u32;
    let are_ours = request.figure == &COPIES && !series.ends_with("-paper");
    let bytes = match series.split_once('-') {
        Some((_, "packets")) => PACKETS,
        Some((_, "datagrams")) => MessageBytes::datagrams(value_bytes),
        _ if are_ours => MessageBytes::datagrams(value_bytes),
        _ => MessageBytes::paper(value_bytes),
    };
    (model_of(series), bytes)
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

const BY_NODES: [Parameter; 5] = {
    let [_, hardware, seed] = simulated();
    let requests = Parameter::requests(&[50_000.0]).only("-simulated");
    let nodes = Parameter::each(Choice::Nodes, NODES_RANGE, &NODES_DRAWN);
    [nodes.whole().axis(), value(), requests, hardware, seed]
};

/// Runs that look for a break-even.
const CHORDS: u32 = 4;
const CACHES: [f64; 11] = [
    0.0, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.16, 0.2,
];
const WRITES: [f64; 15] = [
    0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0,
];

#[cfg(test)]
mod tests {
    use crate::{
        figures::{Options, figure},
        parallel_points::Threads,
        rows::Row,
    };

    /// Goal: a simulated break-even is that of the messages that our protocol sends: Lin's are the
    /// paper's three; an SC write also goes to its primary, and is acknowledged by every copy. At
    /// such shares of writes some wait for others, so it may be lower, not higher. Method: the
    /// figure for 5 and 9 nodes.
    #[test]
    fn simulated_break_evens_stand_beside_the_sums() {
        let options = Options {
            nodes: vec![5, 9],
            requests: Some(20_000),
            ..Options::default()
        };
        let rows = figure("cckvs-fig15").unwrap();
        let rows = rows.rows(&options, &Threads::new(2)).unwrap();
        let percent = |series: &str, nodes: f64| {
            let is = |row: &&Row| row.series == series && row.x == nodes;
            rows.iter().find(is).and_then(|row| row.value).unwrap()
        };
        for nodes in [5.0, 9.0] {
            for (model, more) in [("sc", 2.0 + 2.0 / nodes), ("lin", 1.0)] {
                let sums = percent(&format!("{model}-packets"), nodes) / more;
                let simulated = percent(&format!("{model}-simulated"), nodes);
                let over = simulated / sums;
                assert!(over > 0.7 && over < 1.03, "{model} {nodes}: {over}");
            }
        }
    }
}
