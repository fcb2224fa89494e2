//! Throughput over the size of values: what persistent buffers take of the memory's bandwidth.

use super::{LOADS, model, outcomes, parameters, system, table, with, with_work, workload};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    juneberry::Juneberry,
    rows::Row,
};

pub(in crate::figures) const FIG11: Figure = Figure {
    name: "juneberry-fig11",
    title: "Juneberry, Fig. 11: throughput by size of values, with 50 % writes",
    x: "bytes of a value",
    about: "PMemKV, 8-byte keys, uniform (the paper does not say), 1.5 times what RawRPC's \
            workers carry is offered and what is executed counted; clients give up what would \
            wait behind 64 others. The queue's buffers are persistent and share 6 GB/s of writes \
            with the store. That the store writes 2.38 bytes for one was set by the last point, \
            a worker's part of persistent buffers by the first; the points between follow.",
    series: "raw-rpc oq-paper oq deferred-exec",
    series_default: 3,
    parameters: &with::<3, 10>(
        parameters(&[200_000.0]),
        [
            Parameter::each(Choice::ValueBytes, (1.0, 1e6), &SIZES)
                .whole()
                .axis(),
            Parameter::each(Choice::Writes, (0.0, 100.0), &[50.0]).papers(&[50.0]),
            Parameter::one(Choice::Load, LOADS, &[1.5]).papers(&[1.5]),
        ],
    ),
    run: fig11,
};

fn fig11(request: &Request<'_>) -> Vec<Row> {
    let options = request.options;
    let prices = with_work(table(options).pmemkv.clone(), options);
    let mut settings = Vec::new();
    for writes in request.numbers(Choice::Writes) {
        for bytes in request.numbers(Choice::ValueBytes) {
            let workload = workload("sizes", 8, bytes as u32, writes, 0.0);
            let head = format!("writes={writes}");
            settings.extend(super::settings(request, &head, |series| Juneberry {
                durable: system(series).reads().is_some() && prices.persistent.is_some(),
                patience: 64,
                ..model(request, series, prices.clone(), workload.clone())
            }));
        }
    }
    let mut rows = Vec::new();
    let all = outcomes(request, &settings, &request.numbers(Choice::Load));
    for own in all.chunks(request.series.len()) {
        let raw = own.iter().find(|(setting, ..)| setting.series == "raw-rpc");
        for (setting, _, outcome) in own {
            let bytes = setting.model.workload.sizes.table().mean();
            let row = |value, paper| setting.row(request, bytes, value, paper);
            rows.push(row(("done_mops", Some(outcome.done_mops)), None));
            let raw = raw.filter(|_| setting.series != "raw-rpc");
            if let Some((.., raw)) = raw {
                let over = ("raw_rpc_over", Some(raw.done_mops / outcome.done_mops));
                rows.push(row(over, stated(setting.series, bytes)));
            }
        }
    }
    rows
}

/// 3.0 % less at 100 bytes, 1.42 times at 3200.
fn stated(series: &str, bytes: f64) -> Option<f64> {
    match (series, bytes as u32) {
        ("oq-paper", 100) => Some(1.0 / 0.97),
        ("oq-paper", 3_200) => Some(1.42),
        _ => None,
    }
}

const SIZES: [f64; 7] = [50.0, 100.0, 200.0, 400.0, 800.0, 1_600.0, 3_200.0];
