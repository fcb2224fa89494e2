//! Several cache nodes, and a symmetric group of them for the hottest keys.

use super::gamma;
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
    switchkv::TierGroup,
};

pub(in crate::figures) const GROUP: Figure = Figure {
    name: "switchkv-group",
    title: "SwitchKV with several cache nodes: the group for the hottest keys",
    x: "cache nodes",
    about: "Not in the paper, which divides keys among cache nodes (partitioned). In group-16 and \
            group-64 the hottest 16 or 64 of 10,000 cached keys have copies at every cache node, \
            and the switch sends their reads to any. limit_mqps is the rate of all requests at \
            which the most loaded cache node serves 2 MQPS; max_over_mean compares that node with \
            the average; messages_per_write counts those between back end and cache nodes. \
            Machines are the production ones; messages arrive at once. `curtail tier` has no \
            group: there keys are partitioned.",
    series: "partitioned group-16 group-64",
    series_default: 3,
    parameters: &[
        gamma(),
        Parameter::each(Choice::Writes, (0.0, 100.0), &[0.0, 1.0]).any(),
        Parameter::requests(&[1_000_000.0]),
        Parameter::seed(),
    ],
    run,
};

fn run(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[Choice::Writes]));
    let points = super::super::at_loads(&cases, &[1.0, 2.0, 4.0, 8.0, 16.0]);
    request.draw(&points, |(case, caches)| {
        let group_keys = match case.series {
            "group-16" => 16,
            "group-64" => 64,
            _ => 0,
        };
        let model = TierGroup {
            gamma: request.number(Choice::Gamma),
            write_share: case.number(Choice::Writes) / 100.0,
            requests: request.requests(),
            seed: request.seed(),
            ..TierGroup::paper(*caches as u8, group_keys)
        };
        let outcome = model.run();
        let has_hits = outcome.hits > 0;
        let per_write = outcome.messages as f64 / outcome.writes.max(1) as f64;
        let found = [
            (
                *caches,
                "limit_mqps",
                has_hits.then(|| outcome.limit_qps(&model) / 1e6),
            ),
            (
                *caches,
                "max_over_mean",
                has_hits.then(|| outcome.max_over_mean()),
            ),
            (
                *caches,
                "messages_per_write",
                (outcome.writes > 0).then_some(per_write),
            ),
        ];
        request.rows(case, found)
    })
}
