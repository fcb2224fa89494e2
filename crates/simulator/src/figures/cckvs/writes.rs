//! Fig. 10 and Fig. 11: throughput by share of writes, and what the network then carries.

use super::{Point, Setting, gamma, hit_ratios, hits_text, nodes, row, rows, simulated, value};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG10: Figure = Figure {
    name: "cckvs-fig10",
    title: "ccKVS, Fig. 10: throughput of 9 nodes by share of writes",
    x: "writes, per cent",
    about: "A hot write sends a message of each kind to every other node. Without an ending: the \
            paper's equations (bytes, 21.5 Gb/s); -packets: packets through the switch, which is \
            nearer to what the paper measured; -simulated: whole nodes in virtual time, with the \
            production machines for the hot keys. below_read_only_percent is over the same series \
            without writes; the paper says of 0.2 % that SC and Lin are within 3 %.",
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
    parameters: &parameters(&WRITES),
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
    parameters: &parameters(&[1.0, 5.0]),
    run: fig11,
};

fn fig10(request: &Request<'_>) -> Vec<Row> {
    let points = points(request);
    let mut rows = rows(request, &points, |one| [("throughput_mrps", one.mrps)]);
    rows.extend(below_read_only(request, &rows));
    rows
}

fn fig11(request: &Request<'_>) -> Vec<Row> {
    let points = points(request);
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

/// By how much each point that writes is below the same without writes.
fn below_read_only(request: &Request<'_>, rows: &[Row]) -> Vec<Row> {
    let mut all = Vec::new();
    for own in rows.iter().filter(|row| row.x > 0.0) {
        let same = |other: &&Row| {
            other.x == 0.0 && (&other.series, &other.params) == (&own.series, &own.params)
        };
        let read_only = rows.iter().find(same).and_then(|row| row.value);
        if let Some((value, read_only)) = own.value.zip(read_only)
            && (own.series.starts_with("sc") || own.series.starts_with("lin"))
        {
            let percent = 100.0 * (1.0 - value / read_only);
            let curve = (own.series.as_str(), own.params.as_str());
            all.push(row(
                request,
                curve,
                own.x,
                ("below_read_only_percent", percent),
            ));
        }
    }
    all
}

/// Every series at every share of writes, with the exact hit ratio and with the paper's.
fn points(request: &Request<'_>) -> Vec<Point> {
    let gamma = request.number(Choice::Gamma);
    let value_bytes = request.number(Choice::ValueBytes) as u32;
    let mut points = Vec::new();
    for nodes in request.counts(Choice::Nodes) {
        for hits in hit_ratios(gamma) {
            for series in request.series.iter().copied() {
                for writes_percent in request.numbers(Choice::Writes) {
                    let setting = Setting {
                        hits,
                        nodes,
                        gamma,
                        value_bytes,
                        writes_percent,
                        ..Setting::new(series, request)
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

const fn parameters(writes: &'static [f64]) -> [Parameter; 7] {
    let [requests, hardware, seed] = simulated();
    let writes = Parameter::each(Choice::Writes, (0.0, 100.0), writes).axis();
    [nodes(), gamma(), writes, value(), requests, hardware, seed]
}

const WRITES: [f64; 8] = [0.0, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0];
