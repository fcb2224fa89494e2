//! Fig. 12 and Fig. 13: larger values, and several requests in a packet.

use super::{
    Measured, Point, Setting, VALUES, gamma, hit_ratios, hits_text, measured, nodes, row, simulated,
};
use crate::{
    cckvs::Link,
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG12: Figure = Figure {
    name: "cckvs-fig12",
    title: "ccKVS, Fig. 12: throughput of 9 nodes by size of values, 1 % writes and none",
    x: "bytes of a value",
    about: "The switch's packets bound small values, 54 Gb/s large ones. base and cckvs only \
            read, sc and lin write 1 %.",
    series: &[
        "base-packets",
        "cckvs-packets",
        "sc-packets",
        "lin-packets",
        "base-simulated",
        "cckvs-simulated",
        "sc-simulated",
        "lin-simulated",
    ],
    series_default: 8,
    parameters: &PARAMETERS,
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
    series: &[
        "base-packets",
        "cckvs-packets",
        "sc-packets",
        "lin-packets",
        "base-simulated",
        "cckvs-simulated",
        "sc-simulated",
        "lin-simulated",
    ],
    series_default: 8,
    parameters: &PARAMETERS,
    run: fig13,
};

fn fig12(request: &Request<'_>) -> Vec<Row> {
    let points = points(request);
    let settings: Vec<Setting> = points.iter().map(|point| point.setting).collect();
    let all = measured(request, &settings);
    let mut rows = Vec::new();
    for (point, own) in points.iter().zip(&all) {
        let is_base = |other: &(&Point, &Option<Measured>)| {
            let other = other.0;
            other.series.starts_with("base")
                && other.setting.simulated == point.setting.simulated
                && (&other.params, other.x) == (&point.params, point.x)
        };
        let Some(mrps) = own.map(|own| own.mrps) else {
            continue;
        };
        let (x, curve) = (point.x, (point.series, point.params.as_str()));
        rows.push(row(request, curve, x, ("throughput_mrps", mrps)));
        let base = points.iter().zip(&all).find(is_base);
        if let Some(base) = base.and_then(|(_, base)| *base) {
            rows.push(row(request, curve, x, ("over_base", mrps / base.mrps)));
        }
    }
    rows
}

fn fig13(request: &Request<'_>) -> Vec<Row> {
    let points = points(request);
    let alone: Vec<Setting> = points.iter().map(|point| point.setting).collect();
    let together = points.iter().map(|point| Setting {
        degree: if point.series.starts_with("base") {
            4.4
        } else {
            2.9
        },
        ..point.setting
    });
    let both: Vec<Setting> = alone.into_iter().chain(together).collect();
    let both = measured(request, &both);
    let (alone, together) = both.split_at(points.len());
    let mut rows = Vec::new();
    for ((point, alone), together) in points.iter().zip(alone).zip(together) {
        let (Some(alone), Some(together)) = (alone, together) else {
            continue;
        };
        let (x, curve) = (point.x, (point.series, point.params.as_str()));
        let numbers = [
            ("throughput_mrps", together.mrps),
            ("over_alone", together.mrps / alone.mrps),
            ("link_gigabits", together.gigabits),
            ("link_gigabits_alone", alone.gigabits),
        ];
        rows.extend(numbers.map(|number| row(request, curve, x, number)));
    }
    rows
}

/// Every size of values with all series, with the exact hit ratio and with the paper's.
fn points(request: &Request<'_>) -> Vec<Point> {
    let gamma = request.number(Choice::Gamma);
    let writes_percent = request.number(Choice::Writes);
    let mut points = Vec::new();
    for nodes in request.counts(Choice::Nodes) {
        for hits in hit_ratios(gamma) {
            let hits_text = hits_text(hits);
            for value_bytes in request.numbers(Choice::ValueBytes) {
                for series in request.series.iter().copied() {
                    let setting = Setting {
                        hits,
                        nodes,
                        gamma,
                        value_bytes: value_bytes as u32,
                        writes_percent,
                        link: Link::switched(),
                        ..Setting::new(series, request)
                    };
                    points.push(Point {
                        series,
                        params: format!(
                            "nodes={nodes};gamma={gamma};writes={writes_percent};{hits_text}"
                        ),
                        x: value_bytes,
                        setting,
                    });
                }
            }
        }
    }
    points
}

const PARAMETERS: [Parameter; 7] = {
    let [requests, hardware, seed] = simulated();
    let writes = Parameter::one(Choice::Writes, (0.0, 100.0), &[1.0]).papers(&[1.0]);
    let sizes = Parameter::each(Choice::ValueBytes, VALUES, &SIZES)
        .whole()
        .axis();
    [nodes(), gamma(), writes, sizes, requests, hardware, seed]
};
const SIZES: [f64; 6] = [40.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
