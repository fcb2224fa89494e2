//! The pattern that the Ordered Queue does not like: a read at once after the writes of its key.

use super::{measured, system, workload};
use crate::{
    figures::{Figure, Parameter, Request},
    juneberry::{ClientLoad, DatagramPrices, Juneberry},
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
    series: "raw-rpc deferred-exec oq-paper oq-stamps oq oq-shared io-ack",
    series_default: 7,
    parameters: &[Parameter::seed()],
    run: pattern,
};

fn pattern(request: &Request<'_>) -> Vec<Row> {
    let workload = workload("pattern", 8, 8, 66.0, 0.0);
    let bare = DatagramPrices::bare(2_000.0, 5_000.0, 10_000.0);
    let mut rows = Vec::new();
    for series in &request.series {
        for rounds in [1, 1_000] {
            let round = |key| [(true, key), (true, key), (false, key)];
            let model = Juneberry {
                workers: if *series == "oq-shared" { 2 } else { 1 },
                machines: 1,
                threads: 1,
                load: ClientLoad::Script((0..rounds).flat_map(round).collect()),
                requests: 3 * rounds,
                seed: request.seed(),
                ..Juneberry::new(system(series), bare.clone(), workload.clone())
            };
            let outcome = model.run();
            let params = format!("rounds={rounds}");
            let row = |x, value, paper| request.row((series, &params), x, value, paper);
            if rounds == 1 {
                for (index, ns) in outcome.script_ns.iter().enumerate() {
                    let us = ("latency_us", Some(*ns as f64 / 1e3));
                    rows.push(row(index as f64 + 1.0, us, stated(series, index)));
                }
            } else {
                rows.extend(
                    measured(&outcome)
                        .into_iter()
                        .map(|one| row(0.0, one, None)),
                );
            }
        }
    }
    rows
}

fn stated(series: &str, index: usize) -> Option<f64> {
    match series {
        "raw-rpc" => Some([12.0, 12.0, 7.0][index]),
        "oq-paper" => Some([2.0, 2.0, 23.0][index]),
        _ => None,
    }
}
