//! Fig. 1 and Fig. 3: what skew does to servers, and what a small cache does to skew.

use super::{GAMMA, GAMMAS, row};
use crate::{
    cckvs::{Shards, exact_hit_ratio},
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG1: Figure = Figure {
    name: "cckvs-fig1",
    title: "ccKVS, Fig. 1: load of each of 128 servers under a skewed popularity",
    x: "server, the most loaded first",
    about: "250 million keys, of which the 65,536 most popular are placed one by one by a hash of \
            the seed and the others spread evenly. The paper has over 7 times the mean for the \
            first server; how many keys its drawing has, it does not say.",
    series: &["load"],
    series_default: 1,
    parameters: &[
        Parameter::each(Choice::Gamma, GAMMAS, &[GAMMA]).papers(&[GAMMA]),
        Parameter::each(Choice::Nodes, (1.0, 1_000.0), &[128.0])
            .whole()
            .called("servers")
            .papers(&[128.0]),
        Parameter::seed(),
    ],
    run: fig1,
};

pub(in crate::figures) const FIG3: Figure = Figure {
    name: "cckvs-fig3",
    title: "ccKVS, Fig. 3: share of the requests that hit a cache of the most popular keys",
    x: "size of the cache, per cent of the keys",
    about: "Exact, over 250 million keys (Zipf's law, summed). The paper's 46, 65 and 69 % are \
            above what its own setting gives; they fit a popularity over some 10 to 50 million \
            keys.",
    series: &["cache"],
    series_default: 1,
    parameters: &[Parameter::each(Choice::Gamma, GAMMAS, &[0.90, 0.99, 1.01]).any()],
    run: fig3,
};

fn fig1(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for gamma in request.numbers(Choice::Gamma) {
        for servers in request.counts(Choice::Nodes) {
            let params = format!("gamma={gamma};servers={servers}");
            let shards = Shards::draw(gamma, servers, request.seed());
            for (index, share) in shards.shares().iter().enumerate() {
                let over_mean = ("load_over_mean", share * f64::from(servers));
                rows.push(row(
                    request,
                    ("load", &params),
                    (index + 1) as f64,
                    over_mean,
                ));
            }
        }
    }
    rows
}

fn fig3(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for gamma in request.numbers(Choice::Gamma) {
        let params = format!("gamma={gamma}");
        for percent in SIZES {
            let hits = 100.0 * exact_hit_ratio(gamma, percent / 100.0);
            rows.push(row(
                request,
                ("cache", &params),
                percent,
                ("hit_percent", hits),
            ));
        }
    }
    rows
}

const SIZES: [f64; 11] = [
    0.0, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.16, 0.2,
];
