//! Fig. 13c: latency by load, where requests share packets.

use super::{Setting, gamma, hit_ratios, hits_text, measured, row, simulated, value};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG13C: Figure = Figure {
    name: "cckvs-fig13c",
    title: "ccKVS, Fig. 13c: latency of 9 nodes by load, several requests in a packet",
    x: "requests under way of a thread's clients",
    about: "Whole nodes in virtual time, with the production machines for the hot keys; clients \
            are a closed loop and cost nothing, so their network is not in the latency. cckvs \
            only reads, sc and lin write 1 %. The paper prints no numbers. That the 95th \
            percentile at high loads is about an order of magnitude below 1 ms holds here. That \
            it is near the mean for reads and SC, and only for Lin clearly above, does not: here \
            hits take a fraction of what misses take, so it is 2 to 3 times the mean for all \
            three, and SC writes have a way to their primary and back.",
    series: "cckvs-simulated sc-simulated lin-simulated",
    series_default: 3,
    parameters: &BY_LOAD,
    run: fig13c,
};

const BY_LOAD: [Parameter; 7] = {
    let [requests, hardware, seed] = simulated();
    let writes = Parameter::one(Choice::Writes, (0.0, 100.0), &[1.0]).papers(&[1.0]);
    // Whole nodes only: each takes its time.
    let nodes = Parameter::each(Choice::Nodes, (2.0, 16.0), &[9.0]);
    let nodes = nodes.whole().papers(&[9.0]);
    [nodes, gamma(), writes, value(), requests, hardware, seed]
};

fn fig13c(request: &Request<'_>) -> Vec<Row> {
    let (gamma, writes) = (
        request.number(Choice::Gamma),
        request.number(Choice::Writes),
    );
    let mut points = Vec::new();
    for count in request.numbers(Choice::Nodes) {
        for hits in hit_ratios(gamma) {
            let hits_text = hits_text(hits);
            let params = format!("nodes={count};gamma={gamma};writes={writes};{hits_text}");
            for series in &request.series {
                for sessions in SESSIONS {
                    let setting = Setting {
                        nodes: count as u16,
                        gamma,
                        hits,
                        writes_percent: writes,
                        value_bytes: request.number(Choice::ValueBytes) as u32,
                        degree: COALESCED,
                        sessions: Some(sessions),
                        ..Setting::new(series, request)
                    };
                    points.push((*series, params.clone(), f64::from(sessions), setting));
                }
            }
        }
    }
    let settings: Vec<Setting> = points.iter().map(|point| point.3).collect();
    let mut rows = Vec::new();
    for ((series, params, x, _), measured) in points.iter().zip(measured(request, &settings)) {
        let numbers = measured.into_iter().flat_map(|one| {
            let [mean, p95] = one.latency_us;
            [
                ("throughput_mrps", one.mrps),
                ("mean_us", mean),
                ("p95_us", p95),
                ("p95_over_mean", p95 / mean),
            ]
        });
        rows.extend(numbers.map(|number| row(request, (series, params), *x, number)));
    }
    rows
}

const SESSIONS: [u32; 6] = [2, 8, 24, 48, 96, 128];
/// More than one: what a turn sends to a node shares packets. How many do, comes out.
const COALESCED: f64 = 2.9;
