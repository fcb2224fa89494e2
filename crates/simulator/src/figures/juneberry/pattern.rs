//! The pattern that the Ordered Queue does not like: a read at once after the writes of its key.

use super::{measured, system, workload};
use crate::{
    figures::{Figure, Request, or},
    juneberry::{ClientLoad, DatagramPrices, DatagramTable, Juneberry},
    rows::Row,
};

pub(in crate::figures) const PATTERN: Figure = Figure {
    name: "juneberry-pattern",
    title: "Juneberry, section 4: set, set, get of one key by one client at once",
    x: "request",
    about: "A round trip of 2 us, 10 us for a set, 5 us for a get, nothing else costs anything; \
            one worker, two for oq-shared and io-ack. With reads in the queue the third request \
            pays for all three; a read that is answered from the queue waits only for the \
            worker, and with another worker for nothing. The last rows are rates of one client \
            that goes on with a random key after every third request.",
    series: &[
        "raw-rpc",
        "deferred-exec",
        "oq-paper",
        "oq-stamps",
        "oq",
        "oq-shared",
        "io-ack",
    ],
    series_default: 7,
    run: pattern,
};

fn pattern(request: &Request<'_>) -> Vec<Row> {
    let rounds = or(&[], &[1_u64, 1_000]);
    let mut points = Vec::new();
    for series in &request.series {
        for rounds in &rounds {
            let model = Juneberry {
                workers: if *series == "oq-shared" { 2 } else { 1 },
                machines: 1,
                threads: 1,
                load: ClientLoad::Script(script(*rounds)),
                requests: 3 * rounds,
                seed: request.options.seed,
                ..Juneberry::new(system(series), bare(), workload("pattern", 8, 8, 66.0, 0.0))
            };
            points.push((*series, *rounds, model));
        }
    }
    let name = request.figure.name;
    let outcomes = request
        .threads
        .map(name, &points, |(.., model)| model.run());
    let mut rows = Vec::new();
    for ((series, rounds, _), outcome) in points.iter().zip(&outcomes) {
        let row = |x: f64, (metric, value), paper| Row {
            figure: request.figure.name,
            series: (*series).into(),
            params: format!("rounds={rounds}"),
            x,
            metric,
            value,
            paper,
        };
        if *rounds == 1 {
            for (index, ns) in outcome.script_ns.iter().enumerate() {
                let us = ("latency_us", Some(*ns as f64 / 1e3));
                rows.push(row(index as f64 + 1.0, us, stated(series, index)));
            }
        } else {
            rows.extend(measured(outcome).into_iter().map(|one| row(0.0, one, None)));
        }
    }
    rows
}

fn script(rounds: u64) -> Vec<(bool, u64)> {
    let round = |key| [(true, key), (true, key), (false, key)];
    (0..rounds).flat_map(round).collect()
}

/// The example's prices.
fn bare() -> DatagramPrices {
    DatagramPrices {
        client_ns: 0.0,
        delegation_ns: 0.0,
        wire_ns: 2_000.0,
        byte_ns: 0.0,
        card_ns: 0.0,
        card_byte_ns: 0.0,
        descriptor_ns: 0.0,
        descriptor_queue_ns: 0.0,
        connection_ns: 0.0,
        receive_ns: 0.0,
        reply_ns: 0.0,
        take_ns: 0.0,
        reserve_ns: 0.0,
        forward_ns: 5_000.0,
        get: vec![(8.0, 5_000.0)],
        set: vec![(8.0, 10_000.0)],
        spread: 0.0,
        ..DatagramTable::built_in().paper.clone()
    }
}

fn stated(series: &str, index: usize) -> Option<f64> {
    match series {
        "raw-rpc" => Some([12.0, 12.0, 7.0][index]),
        "oq-paper" => Some([2.0, 2.0, 23.0][index]),
        _ => None,
    }
}
