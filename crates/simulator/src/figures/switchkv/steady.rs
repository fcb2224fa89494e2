//! Figures 2.9 to 2.14: popularity stands still.

use super::{CAPACITY_QPS, GAMMAS, gamma, requests, scale, steady_mqps, testbed, without_cache};
use crate::{
    figures::{Choice, Figure, Parameter, Request, figure_run::Case},
    rows::Row,
    switchkv::{Architecture, SwitchKv, TierLatency, TierPath},
};

pub(in crate::figures) const FIG9: Figure = Figure {
    name: "switchkv-fig2.9",
    title: "SwitchKV, Fig. 2.9: throughput of each back end without a cache",
    x: "back end, the most loaded first",
    about: "128 back ends of 100 KQPS, 10^10 keys placed by a hash of the seed, read only. The \
            client keeps its loss between 0.5 and 1 %, so that the hottest back end limits all. \
            The paper prints no numbers beside its drawing but the limit, 100 KQPS.",
    series: "no-cache",
    series_default: 1,
    parameters: &[
        Parameter::each(Choice::Gamma, GAMMAS, &[0.0, 0.90, 0.95, 0.99]).any(),
        requests(),
        Parameter::seed(),
    ],
    run: fig9,
};

pub(in crate::figures) const FIG10: Figure = Figure {
    name: "switchkv-fig2.10",
    title: "SwitchKV, Fig. 2.10: throughput with and without a cache of 10,000 items",
    x: "exponent of popularity (0: uniform)",
    about: "As Fig. 2.9. over_no_cache is in the same run; the paper has 7 at 0.99. Which keys \
            share the hottest back end decides what is served without a cache, so the ratio varies \
            between partitions (--seed): it is 8 on average, because keys of the paper's run were \
            divided in one way only.",
    series: "no-cache switchkv",
    series_default: 2,
    parameters: &[
        Parameter::each(Choice::Gamma, GAMMAS, &[0.0, 0.90, 0.95, 0.99]).axis(),
        requests(),
        Parameter::seed(),
    ],
    run: fig10,
};

pub(in crate::figures) const FIG11: Figure = Figure {
    name: "switchkv-fig2.11",
    title: "SwitchKV, Fig. 2.11: throughput by size of the cache",
    x: "items in the cache",
    about: "As Fig. 2.9. least_busy is how much of its rate the least loaded back end serves: the \
            paper's are balanced from about 1,000 items on.",
    series: "switchkv",
    series_default: 1,
    parameters: &[gamma(), requests(), Parameter::seed()],
    run: fig11,
};

pub(in crate::figures) const FIG12: Figure = Figure {
    name: "switchkv-fig2.12",
    title: "SwitchKV, Fig. 2.12: throughput by share of writes",
    x: "writes, per cent",
    about: "Writes go to the back ends; one of a cached key updates the cache and is answered \
            after that, by the production machines. Updates cost the back end and the cache \
            nothing beside the write, as in the paper. It prints no numbers: uniform writes lose \
            the cache's share only, writes by popularity lower the throughput quickly.",
    series: "uniform-writes zipf-writes",
    series_default: 2,
    parameters: &[
        gamma(),
        Parameter::each(
            Choice::Writes,
            (0.0, 100.0),
            &[0.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0],
        )
        .axis(),
        requests(),
        Parameter::seed(),
    ],
    run: fig12,
};

pub(in crate::figures) const FIG13: Figure = Figure {
    name: "switchkv-fig2.13",
    title: "SwitchKV, Fig. 2.13: latency by throughput",
    x: "MQPS sent (0: none)",
    about: "-hits asks for cached keys only, -misses uniformly with an empty cache, -mixed by \
            Zipf with 10,000 items; loads are shares of what SwitchKV bears of each. A machine \
            costs 10 us, which is our assumption, and what waits before a request at 14 MQPS \
            (cache) or 100 KQPS (back end), by arrival at random; the paper's times are of its \
            network and stay unsaid. Compare the order of the curves: hits alike; misses \
            look-aside, look-through, SwitchKV by their transits 3, 2 and 1 (the abstract: up to \
            a third of the latency). Where there is no number the cache is overloaded: the \
            baselines end at 14 MQPS (peak_mqps).",
    series: "switchkv-hits look-aside-hits look-through-hits switchkv-misses look-aside-misses \
             look-through-misses switchkv-mixed look-aside-mixed look-through-mixed",
    series_default: 9,
    parameters: &[
        gamma(),
        Parameter::each(Choice::Load, (0.01, 1.0), &[0.1, 0.3, 0.5, 0.65, 0.8, 0.9]).axis(),
        requests(),
        Parameter::seed(),
    ],
    run: fig13,
};

pub(in crate::figures) const FIG14: Figure = Figure {
    name: "switchkv-fig2.14",
    title: "SwitchKV, Fig. 2.14: throughput by number of back ends",
    x: "back ends",
    about: "50 KQPS a back end, 5 MQPS the cache. The cache of SwitchKV has the number of items, \
            of 10,000, 1,000, 200, 100, 30 and 10, with which the sums give the highest throughput \
            (cached_items); the baselines have 10,000. The paper reads off its drawing that \
            look-aside is saturated at 64 and SwitchKV grows to about 400; its abstract has up to \
            5 times the throughput (over_look_aside).",
    series: "switchkv look-aside look-through",
    series_default: 3,
    parameters: &[
        gamma(),
        Parameter::each(
            Choice::Nodes,
            (2.0, 2_000.0),
            &[64.0, 128.0, 256.0, 400.0, 512.0, 1_000.0],
        )
        .whole()
        .axis(),
        requests(),
        Parameter::seed(),
    ],
    run: fig14,
};

fn fig9(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[Choice::Gamma]));
    request.draw(&cases, |case| {
        let model = SwitchKv {
            gamma: case.number(Choice::Gamma),
            ..without_cache(&testbed(request))
        };
        let outcome = model.run();
        let mut nodes = outcome.nodes;
        nodes.sort_unstable_by(|one, other| other.cmp(one));
        let seconds = model.seconds / 2.0 * scale(request);
        let found = (1..).zip(nodes).map(|(place, served)| {
            let kqps = served as f64 / seconds / 1e3;
            (f64::from(place), "node_kqps", Some(kqps))
        });
        request.rows(case, found)
    })
}

fn fig10(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[Choice::Gamma]));
    request.draw(&cases, |case| {
        let x = case.number(Choice::Gamma);
        let cached = SwitchKv {
            gamma: x,
            ..testbed(request)
        };
        let bare = without_cache(&cached);
        let is_bare = case.series == "no-cache";
        let model = if is_bare { bare } else { cached };
        let (all, hits) = steady_mqps(&model, scale(request));
        let mut found = vec![
            (x, "total_mqps", Some(all)),
            (x, "cache_mqps", Some(hits)),
            (x, "back_ends_mqps", Some(all - hits)),
        ];
        if !is_bare {
            let over = all / steady_mqps(&bare, scale(request)).0;
            found.push((x, "over_no_cache", Some(over)));
        }
        request.rows(case, found)
    })
}

fn fig11(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[]));
    let points = super::super::at_loads(&cases, &[0.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
    request.draw(&points, |(case, cached)| {
        let model = SwitchKv {
            gamma: request.number(Choice::Gamma),
            cached: *cached as usize,
            ..testbed(request)
        };
        let outcome = model.run();
        let intervals = outcome.intervals.len();
        let (all, hits) = outcome.mqps(intervals / 2..intervals);
        let least = outcome.nodes.iter().min().copied().unwrap_or(0) as f64;
        let busy = least / (model.seconds / 2.0) / model.back_end_qps;
        let found = [
            (*cached, "total_mqps", Some(all / scale(request))),
            (*cached, "cache_mqps", Some(hits / scale(request))),
            (*cached, "least_busy", Some(busy)),
        ];
        request.rows(case, found)
    })
}

fn fig12(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[Choice::Writes]));
    request.draw(&cases, |case| {
        let x = case.number(Choice::Writes);
        let model = SwitchKv {
            gamma: request.number(Choice::Gamma),
            write_share: x / 100.0,
            writes_like_reads: case.series == "zipf-writes",
            ..testbed(request)
        };
        let (all, hits) = steady_mqps(&model, scale(request));
        let found = [(x, "total_mqps", Some(all)), (x, "cache_mqps", Some(hits))];
        request.rows(case, found)
    })
}

fn fig13(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[]));
    let mut rows = request.draw(&cases, |case| peaks(request, case));
    let cases = request.under_series(&request.cases(&[Choice::Load]));
    rows.extend(request.draw(&cases, |case| latencies(request, case)));
    rows
}

/// What a series asks, of whom, and what SwitchKV bears of that.
fn asked(request: &Request<'_>, case: &Case) -> (SwitchKv, TierPath, f64) {
    let (architecture, path) = case.series.rsplit_once('-').unwrap_or((case.series, ""));
    let model = SwitchKv {
        architecture: match architecture {
            "look-aside" => Architecture::LookAside,
            "look-through" => Architecture::LookThrough,
            _ => Architecture::SwitchKv,
        },
        gamma: request.number(Choice::Gamma),
        seed: request.seed(),
        ..SwitchKv::paper()
    };
    let switched = SwitchKv {
        architecture: Architecture::SwitchKv,
        ..model
    };
    match path {
        "hits" => (model, TierPath::Hits, model.cache_qps),
        "misses" => (model, TierPath::Misses, CAPACITY_QPS),
        _ => (model, TierPath::Mixed, switched.shares().sent_qps()),
    }
}

fn peaks(request: &Request<'_>, case: &Case) -> Vec<Row> {
    let (model, path, _) = asked(request, case);
    let shares = model.shares();
    let peak = (0.0, "peak_mqps", Some(shares.served_qps() / 1e6));
    let hits = (0.0, "hits_percent", Some(100.0 * shares.hits));
    match path {
        TierPath::Mixed => request.rows(case, [peak, hits]),
        _ => Vec::new(),
    }
}

fn latencies(request: &Request<'_>, case: &Case) -> Vec<Row> {
    let (model, path, most_qps) = asked(request, case);
    let qps = case.number(Choice::Load) * most_qps;
    // A twentieth of what is served in a second.
    let requests = (request.requests() / 20).max(100);
    let ran = TierLatency::run(&model, path, qps, requests);
    let of = |of: fn(&TierLatency) -> f64| ran.as_ref().map(of);
    let x = qps / 1e6;
    let p99 = ran.as_ref().and_then(|ran| ran.latency.quantile(0.99));
    let found = [
        (
            x,
            "mean_us",
            of(|ran| ran.sum_ns / ran.requests as f64 / 1e3),
        ),
        (x, "p99_us", p99.map(|p99| p99 as f64 / 1e3)),
        (
            x,
            "transits",
            of(|ran| ran.transits as f64 / ran.requests as f64),
        ),
    ];
    request.rows(case, found)
}

fn fig14(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[Choice::Nodes]));
    request.draw(&cases, |case| {
        let scale = scale(request);
        let x = case.number(Choice::Nodes);
        let model = SwitchKv {
            architecture: match case.series {
                "look-aside" => Architecture::LookAside,
                "look-through" => Architecture::LookThrough,
                _ => Architecture::SwitchKv,
            },
            gamma: request.number(Choice::Gamma),
            back_ends: case.count(Choice::Nodes),
            back_end_qps: 50_000.0 * scale,
            cache_qps: 5e6 * scale,
            ..testbed(request)
        };
        let model = match model.architecture {
            Architecture::SwitchKv => best(&model),
            _ => model,
        };
        let all = steady_mqps(&model, scale).0;
        let mut found = vec![
            (x, "total_mqps", Some(all)),
            (x, "cached_items", Some(model.cached as f64)),
        ];
        if model.architecture == Architecture::SwitchKv {
            let aside = SwitchKv {
                architecture: Architecture::LookAside,
                cached: 10_000,
                ..model
            };
            let over = all / steady_mqps(&aside, scale).0;
            found.push((x, "over_look_aside", Some(over)));
        }
        request.rows(case, found)
    })
}

/// The same with the number of items that serves most.
fn best(model: &SwitchKv) -> SwitchKv {
    let all = [10_000, 1_000, 200, 100, 30, 10].map(|cached| SwitchKv { cached, ..*model });
    let served = |model: &SwitchKv| model.shares().served_qps();
    let best = all
        .into_iter()
        .max_by(|one, other| served(one).total_cmp(&served(other)));
    best.unwrap_or(*model)
}
