//! The transport alone: several requests to a receive buffer, connections shared by a machine's
//! threads, and shared receive queues against private ones.

use super::{table, workload};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    juneberry::{ClientLoad, DatagramPrices, Datapath, Juneberry, PersistentCosts},
    rows::Row,
};

pub(in crate::figures) const FIG6: Figure = Figure {
    name: "juneberry-fig6",
    title: "Juneberry, Fig. 6: requests of 64 bytes and 1 KB that are answered at once",
    x: "client machines of 24 threads, one request outstanding each",
    about: "18 workers echo. base has a receive buffer for each request and a connection from \
            each thread to each worker; mp has buffers of 16 KB; mp-delegation shares a \
            machine's connections. durable adds the read that flushes, and buffers in persistent \
            memory, which take 6 GB/s. The card's times were set by the five numbers marked in \
            juneberry.toml, so that base, mp and mp-delegation with 64 bytes are no \
            confirmation; base with 1 KB, everything durable but one point, and fewer machines \
            follow. srq and rq are one worker, a machine and four requests outstanding each.",
    series: &["base", "mp", "mp-delegation", "srq", "rq"],
    series_default: 5,
    parameters: &[
        Parameter::file(Choice::Prices),
        Parameter::requests(&[200_000.0]),
        Parameter::seed(),
    ],
    run: fig6,
};

struct Point {
    series: &'static str,
    bytes: u32,
    durable: bool,
    model: Juneberry,
}

fn fig6(request: &Request<'_>) -> Vec<Row> {
    let mut points = Vec::new();
    for series in request.series.iter().copied() {
        let is_queue = matches!(series, "srq" | "rq");
        let sizes: &[u32] = if is_queue { &[64] } else { &[64, 1_024] };
        let durables: &[bool] = if is_queue { &[false] } else { &[false, true] };
        let machines = if is_queue { 1..=1 } else { 1..=8 };
        for bytes in sizes.iter().copied() {
            for durable in durables.iter().copied() {
                for machines in machines.clone() {
                    let model = of_series(request, series, (bytes, durable), machines);
                    points.push(Point {
                        series,
                        bytes,
                        durable,
                        model,
                    });
                }
            }
        }
    }
    let name = request.figure.name;
    let done = request
        .threads
        .map(name, &points, |point| point.model.run().done_mops);
    let mut rows = Vec::new();
    for (point, mops) in points.iter().zip(done) {
        let Point {
            series,
            bytes,
            durable,
            model,
        } = point;
        let machines = f64::from(model.machines);
        let params = format!(
            "bytes={bytes};durable={};cores={}",
            u8::from(*durable),
            model.workers
        );
        let row = |metric, value, paper| {
            request.row((series, &params), machines, (metric, Some(value)), paper)
        };
        let paper = stated(series, *bytes, *durable, model.machines);
        match bytes {
            64 => rows.push(row("mops", mops, paper)),
            _ => rows.push(row("gbps", mops * f64::from(*bytes) * 8.0 / 1e3, paper)),
        }
    }
    rows
}

fn of_series(
    request: &Request<'_>,
    series: &str,
    (bytes, durable): (u32, bool),
    machines: u16,
) -> Juneberry {
    let options = request.options;
    let prices = &table(options).pmemkv;
    let prices = DatagramPrices {
        get: vec![(8.0, 0.0)],
        set: vec![(8.0, 0.0)],
        spread: 0.0,
        header_bytes: 0,
        delegation_ns: match series {
            "mp-delegation" => prices.delegation_ns,
            _ => 0.0,
        },
        descriptor_ns: if series == "rq" {
            0.0
        } else {
            prices.descriptor_ns
        },
        descriptor_queue_ns: match series {
            "rq" => 0.0,
            _ => prices.descriptor_queue_ns,
        },
        erpc_ns: 0.0,
        // There is no store.
        persistent: prices.persistent.map(|costs| PersistentCosts {
            amplification: 0.0,
            put_worker_ns: 0.0,
            ..costs
        }),
        ..prices.clone()
    };
    let buffers = match series {
        "mp" | "mp-delegation" => f64::from(16_384 / bytes),
        _ => 1.0,
    };
    let is_queue = matches!(series, "srq" | "rq");
    let shares = series == "mp-delegation";
    Juneberry {
        load: ClientLoad::Closed {
            outstanding: if is_queue { 4 } else { 1 },
        },
        workers: if is_queue { 1 } else { 18 },
        machines,
        durable,
        requests_per_buffer: buffers,
        requests: request.requests(),
        seed: request.seed(),
        // A connection a thread, where none is shared.
        ..Juneberry::new(
            if shares {
                Datapath::RawRpc
            } else {
                Datapath::Erpc
            },
            prices,
            workload("echo", 8, bytes - 8, 100.0, 0.0),
        )
    }
}

fn stated(series: &str, bytes: u32, durable: bool, machines: u16) -> Option<f64> {
    let at_eight = machines == 8;
    match (series, bytes, durable) {
        ("srq", ..) => Some(2.24),
        ("rq", ..) => Some(2.91),
        ("base", 64, false) if at_eight => Some(16.45),
        ("mp", 64, false) if at_eight => Some(24.86),
        ("mp-delegation", 64, false) if at_eight => Some(31.07),
        ("base", 64, true) if at_eight => Some(9.66),
        ("mp", 64, true) if at_eight => Some(13.92),
        ("mp-delegation", 64, true) if at_eight => Some(19.76),
        ("base", 1_024, false) if at_eight => Some(71.0),
        ("mp", 1_024, false) if at_eight => Some(85.0),
        _ => None,
    }
}
