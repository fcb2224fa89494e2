//! Figs. 8 to 14: throughput along skew, writes, sizes of values, and nodes.

use super::{
    GAMMAS, NODES_DRAWN, NODES_RANGE, Setting, VALUES, gamma, measured, nodes, points, row, rows,
    simulated, value,
};
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
    series: "base-erew base uniform cckvs base-packets cckvs-packets base-erew-simulated \
             base-simulated uniform-simulated cckvs-simulated uniform-packets",
    series_default: 10,
    parameters: &BY_SKEW,
    run: fig8,
};

pub(in crate::figures) const FIG9: Figure = Figure {
    name: "cckvs-fig9",
    title: "ccKVS, Fig. 9: hits and misses of ccKVS by skew, read only",
    x: "exponent of popularity",
    about: "Misses fill the links, so their throughput is that of Uniform at every exponent; hits \
            come on top.",
    series: "cckvs cckvs-simulated cckvs-packets",
    series_default: 2,
    parameters: &BY_SKEW,
    run: fig9,
};

pub(in crate::figures) const FIG10: Figure = Figure {
    name: "cckvs-fig10",
    title: "ccKVS, Fig. 10: throughput of 9 nodes by share of writes",
    x: "writes, per cent",
    about: "A hot write sends a message of each kind to every other node. Without an ending: the \
            paper's equations (bytes, 21.5 Gb/s); -packets: packets through the switch, which is \
            nearer to what the paper measured; -simulated: whole nodes in virtual time, with the \
            production machines for the hot keys. Their SC is dearer than the paper's, whose \
            writes run anywhere and whose updates have no answer: here a write is sent to its \
            key's primary, and updates are acknowledged. below_read_only_percent is over the same \
            series without writes; the paper says of 0.2 % that SC and Lin are within 3 %.",
    series: "base-erew base uniform sc lin sc-packets lin-packets base-simulated \
             uniform-simulated sc-simulated lin-simulated base-packets uniform-packets \
             base-erew-simulated",
    series_default: 11,
    parameters: &by_writes(&WRITES),
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
            (`invalidations_`) ends a write. Under SC they acknowledge updates, and writes go to \
            their primary (`forwarded_`, with what Lin makes again there after a conflict).",
    series: "sc lin sc-simulated lin-simulated",
    series_default: 4,
    parameters: &by_writes(&[1.0, 5.0]),
    run: fig11,
};

pub(in crate::figures) const FIG12: Figure = Figure {
    name: "cckvs-fig12",
    title: "ccKVS, Fig. 12: throughput of 9 nodes by size of values, 1 % writes and none",
    x: "bytes of a value",
    about: "The switch's packets bound small values, 54 Gb/s large ones. base and cckvs only \
            read, sc and lin write 1 %.",
    series: SERIES_BY_SIZE,
    series_default: 8,
    parameters: &BY_SIZE,
    run: fig12,
};

pub(in crate::figures) const FIG13: Figure = Figure {
    name: "cckvs-fig13",
    title: "ccKVS, Fig. 13a and 13b: several requests in a packet, by size of values",
    x: "bytes of a value",
    about: "Requests to one node, and their replies, share packets; messages about hot writes do \
            not. How many share one is set by two numbers of the paper: 4.4 for Base (950 for 215 \
            MRPS), 2.9 for ccKVS (2000 for 690); the writes' 2.6 and 2 times follow. Utilisation \
            (Fig. 13a) is of the cluster's links in Gb/s for each node. -simulated sets nothing by \
            them: what a turn sends to one node, and what waits for the link, shares packets.",
    series: SERIES_BY_SIZE,
    series_default: 8,
    parameters: &BY_SIZE,
    run: fig13,
};

pub(in crate::figures) const FIG14: Figure = Figure {
    name: "cckvs-fig14",
    title: "ccKVS, Fig. 14: throughput by number of nodes, 1 % writes",
    x: "nodes",
    about: "Without an ending: the paper's equations, to which its 628 and 554 belong (they need \
            66 % of hits); -packets: packets through the switch, beside which stand the paper's \
            measurements (639, 554 and 240); -simulated: whole nodes in virtual time, up to 64, \
            with the production machines for the hot keys, whose SC sends each write to a primary \
            and acknowledges its updates.",
    series: "uniform sc lin uniform-packets sc-packets lin-packets uniform-simulated \
             sc-simulated lin-simulated",
    series_default: 9,
    parameters: &BY_NODES,
    run: fig14,
};

fn fig8(request: &Request<'_>) -> Vec<Row> {
    let points = points(request, Choice::Gamma);
    rows(request, &points, |one| [("throughput_mrps", one.mrps)])
}

fn fig9(request: &Request<'_>) -> Vec<Row> {
    rows(request, &points(request, Choice::Gamma), |one| {
        let misses_mrps = one.mrps - one.hits_mrps;
        [("hits_mrps", one.hits_mrps), ("misses_mrps", misses_mrps)]
    })
}

fn fig10(request: &Request<'_>) -> Vec<Row> {
    let points = points(request, Choice::Writes);
    let drawn = rows(request, &points, |one| [("throughput_mrps", one.mrps)]);
    let writes = |row: &Row| row.series.starts_with("sc") || row.series.starts_with("lin");
    let read_only = |row: &Row| (row.x > 0.0 && writes(row)).then(|| (row.series.clone(), 0.0));
    let below = drawn.iter().filter_map(|own| {
        let percent = 100.0 * (1.0 - over(own, &drawn, read_only(own)?)?);
        Some(beside(request, own, ("below_read_only_percent", percent)))
    });
    drawn.iter().cloned().chain(below).collect()
}

fn fig11(request: &Request<'_>) -> Vec<Row> {
    rows(request, &points(request, Choice::Writes), |one| {
        let shares = one.shares;
        let percent = |part: f64| 100.0 * part / shares.total();
        [
            ("misses_percent", percent(shares.misses)),
            ("forwarded_percent", percent(shares.forwarded)),
            ("updates_percent", percent(shares.updates)),
            ("invalidations_percent", percent(shares.invalidations)),
            ("acks_percent", percent(shares.acknowledgements)),
            ("credits_percent", percent(shares.credits)),
        ]
    })
}

fn fig12(request: &Request<'_>) -> Vec<Row> {
    let points = points(request, Choice::ValueBytes);
    let drawn = rows(request, &points, |one| [("throughput_mrps", one.mrps)]);
    let base = |row: &Row| {
        let (_, ending) = row.series.split_once('-')?;
        Some((format!("base-{ending}"), row.x))
    };
    let with_over = |own: &Row| {
        let over = base(own).and_then(|base| over(own, &drawn, base));
        let over = over.map(|over| beside(request, own, ("over_base", over)));
        std::iter::once(own.clone()).chain(over)
    };
    drawn.iter().flat_map(with_over).collect()
}

fn fig13(request: &Request<'_>) -> Vec<Row> {
    let points = points(request, Choice::ValueBytes);
    let alone = points.iter().map(|point| point.setting);
    let together = points.iter().map(|point| Setting {
        degree: match point.series.starts_with("base") {
            true => 4.4,
            false => 2.9,
        },
        ..point.setting
    });
    let both = measured(request, &alone.chain(together).collect::<Vec<Setting>>());
    let (alone, together) = both.split_at(points.len());
    let mut rows = Vec::new();
    for ((point, alone), together) in points.iter().zip(alone).zip(together) {
        let (Some(alone), Some(together)) = (alone, together) else {
            continue;
        };
        let numbers = [
            ("throughput_mrps", together.mrps),
            ("over_alone", together.mrps / alone.mrps),
            ("link_gigabits", together.gigabits),
            ("link_gigabits_alone", alone.gigabits),
        ];
        rows.extend(numbers.map(|number| row(request, point.curve(), point.x, number)));
    }
    rows
}

fn fig14(request: &Request<'_>) -> Vec<Row> {
    let points = points(request, Choice::Nodes);
    rows(request, &points, |one| [("throughput_mrps", one.mrps)])
}

/// A row's number over that of the row with the same parameters in this series and place.
fn over(own: &Row, rows: &[Row], (series, x): (String, f64)) -> Option<f64> {
    let is_other = |row: &&Row| (&row.series, &row.params, row.x) == (&series, &own.params, x);
    Some(own.value? / rows.iter().find(is_other)?.value?)
}

/// Another number in a row's place.
fn beside(request: &Request<'_>, own: &Row, number: (&'static str, f64)) -> Row {
    row(request, (&own.series, &own.params), own.x, number)
}

const BY_SKEW: [Parameter; 6] = {
    let [requests, hardware, seed] = simulated();
    let gamma = Parameter::each(Choice::Gamma, GAMMAS, &[0.90, 0.99, 1.01]).axis();
    [nodes(), gamma, value(), requests, hardware, seed]
};

const fn by_writes(writes: &'static [f64]) -> [Parameter; 7] {
    let [requests, hardware, seed] = simulated();
    let writes = Parameter::each(Choice::Writes, (0.0, 100.0), writes).axis();
    [nodes(), gamma(), writes, value(), requests, hardware, seed]
}

const BY_NODES: [Parameter; 7] = {
    let [requests, hardware, seed] = simulated();
    let writes = Parameter::one(Choice::Writes, (0.0, 100.0), &[1.0]).papers(&[1.0]);
    let nodes = Parameter::each(Choice::Nodes, NODES_RANGE, &NODES_DRAWN);
    let nodes = nodes.whole().axis();
    [nodes, gamma(), writes, value(), requests, hardware, seed]
};

const BY_SIZE: [Parameter; 7] = {
    let [requests, hardware, seed] = simulated();
    let writes = Parameter::one(Choice::Writes, (0.0, 100.0), &[1.0]).papers(&[1.0]);
    let sizes = Parameter::each(Choice::ValueBytes, VALUES, &SIZES)
        .whole()
        .axis();
    [nodes(), gamma(), writes, sizes, requests, hardware, seed]
};

const WRITES: [f64; 8] = [0.0, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0];
const SIZES: [f64; 6] = [40.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
const SERIES_BY_SIZE: &str = "base-packets cckvs-packets sc-packets lin-packets base-simulated \
                              cckvs-simulated sc-simulated lin-simulated";
