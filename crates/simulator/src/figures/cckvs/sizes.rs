//! Fig. 12 and Fig. 13: larger values, and several requests in a packet.

use super::{Setting, hit_ratios, hits_text, row};
use crate::{
    cckvs::{Link, MessageBytes},
    figures::{Figure, Request, or},
    rows::Row,
};

pub(in crate::figures) const FIG12: Figure = Figure {
    name: "cckvs-fig12",
    title: "ccKVS, Fig. 12: throughput of 9 nodes by size of values, 1 % writes and none",
    x: "bytes of a value",
    about: "The switch's packets bound small values, 54 Gb/s large ones. base and cckvs only \
            read, sc and lin write 1 %.",
    series: &["base-packets", "cckvs-packets", "sc-packets", "lin-packets"],
    series_default: 4,
    run: fig12,
};

pub(in crate::figures) const FIG13: Figure = Figure {
    name: "cckvs-fig13",
    title: "ccKVS, Fig. 13a and 13b: several requests in a packet, by size of values",
    x: "bytes of a value",
    about: "Requests to one node, and their replies, share packets; messages about hot writes do \
            not. How many share one is set by two numbers of the paper: 4.4 for Base (950 for 215 \
            MRPS), 2.9 for ccKVS (2000 for 690); the writes' 2.6 and 2 times follow. Utilisation \
            (Fig. 13a) is of the cluster's links in Gb/s for each node.",
    series: &["base-packets", "cckvs-packets", "sc-packets", "lin-packets"],
    series_default: 4,
    run: fig13,
};

fn fig12(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    each(request, &SIZES, |params, settings| {
        let base = settings.first().map_or(1.0, |(_, base)| base.mrps());
        for (series, setting) in settings {
            let (x, mrps) = (f64::from(setting.value_bytes), setting.mrps());
            let curve = (*series, params);
            rows.push(row(request, curve, x, ("throughput_mrps", mrps)));
            rows.push(row(request, curve, x, ("over_base", mrps / base)));
        }
    });
    rows
}

fn fig13(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    each(request, &SIZES, |params, settings| {
        for (series, alone) in settings {
            let together = Setting {
                degree: if series.starts_with("base") { 4.4 } else { 2.9 },
                ..*alone
            };
            let (x, curve) = (f64::from(alone.value_bytes), (*series, params));
            let (before, mrps) = (alone.mrps(), together.mrps());
            rows.push(row(request, curve, x, ("throughput_mrps", mrps)));
            rows.push(row(request, curve, x, ("over_alone", mrps / before)));
            let gigabits = ("link_gigabits", gigabits(&together, mrps));
            rows.push(row(request, curve, x, gigabits));
            let alone = ("link_gigabits_alone", self::gigabits(alone, before));
            rows.push(row(request, curve, x, alone));
        }
    });
    rows
}

/// What each node's link carries at this throughput.
fn gigabits(setting: &Setting, mrps: f64) -> f64 {
    let bytes = MessageBytes::paper(setting.value_bytes);
    let load = setting.load();
    let traffic = load.coalesced(&bytes, setting.model(), setting.degree);
    mrps * traffic.bytes * 8.0 / 1e3 / f64::from(setting.nodes)
}

/// Every size with the settings of all series, Base first if it is drawn.
fn each(
    request: &Request<'_>,
    sizes: &[u32],
    mut draw: impl FnMut(&str, &[(&'static str, Setting)]),
) {
    let options = request.options;
    let model = Setting::new("sc", options);
    let writes_percent = options.writes.first().copied().unwrap_or(1.0);
    for hits in hit_ratios(model.gamma) {
        let params = format!(
            "nodes={};writes={writes_percent};{}",
            model.nodes,
            hits_text(hits)
        );
        for value_bytes in or(&options.value_bytes, sizes) {
            let setting = |series: &&'static str| {
                let setting = Setting {
                    hits,
                    value_bytes,
                    writes_percent,
                    link: Link::switched(),
                    ..Setting::new(series, options)
                };
                (*series, setting)
            };
            let settings: Vec<_> = request.series.iter().map(setting).collect();
            draw(&params, &settings);
        }
    }
}

const SIZES: [u32; 6] = [40, 64, 128, 256, 512, 1024];
