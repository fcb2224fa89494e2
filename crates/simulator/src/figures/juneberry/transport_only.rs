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
    series: "base mp mp-delegation srq rq",
    series_default: 5,
    parameters: &[
        Parameter::file(Choice::Prices),
        Parameter::requests(&[200_000.0]),
        Parameter::seed(),
    ],
    run: fig6,
};

fn fig6(request: &Request<'_>) -> Vec<Row> {
    let mut points = Vec::new();
    for series in request.series.iter().copied() {
        let (sizes, durables, machines_max): (&[u32], &[bool], u16) = match series {
            "srq" | "rq" => (&[64], &[false], 1),
            _ => (&[64, 1_024], &[false, true], 8),
        };
        for bytes in sizes.iter().copied() {
            for durable in durables.iter().copied() {
                for machines in 1..=machines_max {
                    let model = of_series(request, series, bytes);
                    let model = Juneberry {
                        durable,
                        machines,
                        ..model
                    };
                    points.push((series, bytes, model));
                }
            }
        }
    }
    let name = request.figure.name;
    let done = request
        .threads
        .map(name, &points, |(.., model)| model.run().done_mops);
    let row = |((series, bytes, model), mops): (&(&'static str, u32, Juneberry), f64)| {
        let Juneberry {
            durable,
            workers,
            machines,
            ..
        } = *model;
        let flag = u8::from(durable);
        let params = format!("bytes={bytes};durable={flag};cores={workers}");
        let number = match bytes {
            64 => ("mops", Some(mops)),
            _ => ("gbps", Some(mops * f64::from(*bytes) * 8.0 / 1e3)),
        };
        let paper = stated(series, *bytes, durable, machines);
        request.row((series, &params), f64::from(machines), number, paper)
    };
    points.iter().zip(done).map(row).collect()
}

fn of_series(request: &Request<'_>, series: &str, bytes: u32) -> Juneberry {
    let prices = &table(request.options).pmemkv;
    let mut prices = DatagramPrices {
        get: vec![(8.0, 0.0)],
        set: vec![(8.0, 0.0)],
        spread: 0.0,
        header_bytes: 0,
        erpc_ns: 0.0,
        // There is no store.
        persistent: prices.persistent.map(|costs| PersistentCosts {
            amplification: 0.0,
            put_worker_ns: 0.0,
            ..costs
        }),
        ..prices.clone()
    };
    // A connection a thread, where none is shared.
    let system = match series {
        "mp-delegation" => Datapath::RawRpc,
        _ => Datapath::Erpc,
    };
    let (outstanding, workers) = match series {
        "srq" | "rq" => (4, 1),
        _ => (1, 18),
    };
    if series == "rq" {
        (prices.descriptor_ns, prices.descriptor_queue_ns) = (0.0, 0.0);
    }
    Juneberry {
        load: ClientLoad::Closed { outstanding },
        workers,
        requests_per_buffer: match series {
            "mp" | "mp-delegation" => f64::from(16_384 / bytes),
            _ => 1.0,
        },
        requests: request.requests(),
        seed: request.seed(),
        ..Juneberry::new(system, prices, workload("echo", 8, bytes - 8, 100.0, 0.0))
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
