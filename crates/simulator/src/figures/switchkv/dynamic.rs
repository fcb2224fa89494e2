//! Figures 2.15 to 2.19: popularity changes, and the cache follows.

use curtail_consistency::tiered::RuleBudget;
use curtail_workload::{Change, Pattern, Period};

use super::{gamma, requests, scale, steady_mqps, testbed, without_cache};
use crate::{
    figures::{
        Choice, Figure, Parameter, Request,
        figure_run::{Case, Found},
    },
    rows::Row,
    switchkv::{CLIENT_STEP, CacheUpdate, INTERVAL_S, SwitchKv, TierOutcome},
};

pub(in crate::figures) const FIG15: Figure = Figure {
    name: "switchkv-fig2.15",
    title: "SwitchKV, Fig. 2.15: 200 cold keys become the hottest every 10 s",
    x: "seconds (0: of the whole run)",
    about: "128 back ends of 100 KQPS, a cache of 10,000 items that has the hottest at first, 400 \
            rules a second, evictions that wait for 2 s at most. A back end reports its 5 hottest \
            keys every second, and a key with more than 8 of the latest 200 requests at once. The \
            run begins 7 s after a change and ends before the change after the next. \
            least_percent is the lowest tenth of a second after a change, of the throughput \
            before; recovery_s is until 90 % of that. The paper: traditional is very poor; \
            periodic falls to less than half and takes 1 to 2 s; both falls less and recovers much \
            faster. The paper does not say how fast its client is. Ours changes its rate by \
            --client-step per cent in 10 ms at most; 1 is fitted to what the paper says of \
            periodic. The paper's traditional cache turns over by every miss; ours may only change \
            what the rules follow, so it keeps what is hot while popularity stands still.",
    series: "traditional periodic both instant",
    series_default: 3,
    parameters: &PARAMETERS,
    run: |request| over_time(request, hot_in(200, 10), (13.0, 25)),
};

pub(in crate::figures) const FIG16: Figure = Figure {
    name: "switchkv-fig2.16",
    title: "SwitchKV, Fig. 2.16: the 200 hottest keys go cold every second",
    x: "seconds (0: of the whole run)",
    about: "As Fig. 2.15. After 50 s none of the keys is left that the cache had at first. \
            mean_percent and last_percent (the last 10 s) are of what the sums give without \
            changes, low_percent is the share of tenths of a second below 90 % of that. The paper: \
            both keeps the full throughput; instant alone stays below, clearly so after 50 s, \
            because the circular log finds the hottest keys only.",
    series: "instant both periodic",
    series_default: 2,
    parameters: &PARAMETERS,
    run: |request| over_time(request, hot_out(200), (60.0, 100)),
};

pub(in crate::figures) const FIG17: Figure = Figure {
    name: "switchkv-fig2.17",
    title: "SwitchKV, Fig. 2.17: 200 of the 10,000 hottest keys are replaced every second",
    x: "seconds (0: of the whole run)",
    about: "As Fig. 2.16. The paper: both is near the maximum, with rare short drops when one of \
            the hottest keys is replaced; either report alone serves less.",
    series: "periodic instant both",
    series_default: 3,
    parameters: &PARAMETERS,
    run: |request| over_time(request, replaced(200), (12.0, 25)),
};

pub(in crate::figures) const FIG18: Figure = Figure {
    name: "switchkv-fig2.18",
    title: "SwitchKV, Fig. 2.18: 600 cold keys become the hottest, with and without a rule buffer",
    x: "seconds (0: of the whole run)",
    about: "As Fig. 2.15 with both kinds of reports. `buffered` lets evictions wait for 2 s, so \
            the switch installs 400 rules a second in that time; `unbuffered` withdraws a rule \
            before each that it installs. installed_s is when nine tenths of the 600 keys have a \
            rule: those that are reported late come with a later report, whatever the rules. The \
            paper has 1.5 s, and twice that without the buffer.",
    series: "buffered unbuffered",
    series_default: 2,
    parameters: &PARAMETERS,
    run: |request| over_time(request, hot_in(600, 10), (10.0, 20)),
};

pub(in crate::figures) const FIG19: Figure = Figure {
    name: "switchkv-fig2.19",
    title: "SwitchKV, Fig. 2.19: throughput by keys that change in a second",
    x: "keys that change in a second",
    about: "As Fig. 2.15 with both kinds of reports; the mean of 4 s, after 4 to 10 s. The paper: \
            random and hot-out are near the maximum up to 200 keys a second, hot-in falls faster; \
            from 10,000 on all are alike, with 3 times what is served without a cache \
            (over_no_cache).",
    series: "hot-in hot-out random",
    series_default: 3,
    parameters: &PARAMETERS,
    run: fig19,
};

fn fig19(request: &Request<'_>) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[]));
    let points = super::super::at_loads(&cases, &CHANGES);
    request.draw(&points, |(case, changes)| {
        let keys = *changes as u64;
        let change = match case.series {
            "hot-in" => hot_in(keys, 1),
            "hot-out" => hot_out(keys),
            _ => replaced(keys),
        };
        let settled_s = match *changes > RULED_PER_S {
            true => (SwitchKv::paper().cached as f64 / changes).clamp(4.0, 10.0),
            false => 4.0,
        };
        let model = model(request, case, change, settled_s + 4.0);
        let outcome = model.run();
        let intervals = outcome.intervals.len();
        let all = outcome.mqps(intervals - 400..intervals).0 / scale(request);
        let short = SwitchKv {
            seconds: 0.2,
            ..without_cache(&model)
        };
        let bare = steady_mqps(&short, scale(request)).0;
        let found = [
            (*changes, "total_mqps", Some(all)),
            (*changes, "over_no_cache", Some(all / bare)),
        ];
        request.rows(case, found)
    })
}

/// Throughput of every series over time, in steps of so many intervals, and what the changes do to
/// it.
fn over_time(request: &Request<'_>, change: Change, (seconds, step): (f64, usize)) -> Vec<Row> {
    let cases = request.under_series(&request.cases(&[]));
    request.draw(&cases, |case| {
        let model = model(request, case, change, seconds);
        let outcome = model.run();
        let scale = scale(request);
        let mut found = Vec::new();
        for from in (0..outcome.intervals.len()).step_by(step) {
            let (all, hits) = outcome.mqps(from..from + step);
            let x = (from + step) as f64 * INTERVAL_S;
            found.push((x, "total_mqps", Some(all / scale)));
            found.push((x, "cache_mqps", Some(hits / scale)));
        }
        let whole = outcome.mqps(0..outcome.intervals.len()).0 / scale;
        found.push((0.0, "mean_mqps", Some(whole)));
        match (change.pattern, change.period) {
            (Pattern::HotIn { keys }, Period::Time { ns }) => {
                let at = ((ns - model.since_change_ns) as f64 / 1e9 / INTERVAL_S) as usize;
                found.extend(after_change(&outcome, at, keys));
            }
            _ => found.extend(of_most(&outcome, model.shares().served_qps() / 1e6)),
        }
        request.rows(case, found)
    })
}

/// What is left of the most that is served.
fn of_most(outcome: &TierOutcome, most: f64) -> [Found; 3] {
    let intervals = outcome.intervals.len();
    let tenths = intervals / 10;
    let is_low = |tenth: &usize| outcome.mqps(10 * tenth..10 * tenth + 10).0 < 0.9 * most;
    let low = (0..tenths).filter(is_low).count() as f64 / tenths as f64;
    let percent = |part: std::ops::Range<usize>| Some(100.0 * outcome.mqps(part).0 / most);
    [
        (0.0, "mean_percent", percent(0..intervals)),
        (0.0, "last_percent", percent(intervals - 1000..intervals)),
        (0.0, "low_percent", Some(100.0 * low)),
    ]
}

/// What becomes of the throughput after the first change.
fn after_change(outcome: &TierOutcome, at: usize, keys: u64) -> [Found; 3] {
    let before = outcome.mqps(at.saturating_sub(100)..at).0;
    let after = at..outcome.intervals.len().saturating_sub(10);
    let tenths = || {
        after
            .clone()
            .map(|from| (from, outcome.mqps(from..from + 10).0))
    };
    let least = tenths().map(|(_, mqps)| mqps).min_by(f64::total_cmp);
    let deepest = tenths().min_by(|one, other| one.1.total_cmp(&other.1));
    let deepest = deepest.map_or(at, |(from, _)| from);
    let recovers = |(from, mqps): &(usize, f64)| *from >= deepest && *mqps >= 0.9 * before;
    let since = |from: usize| (from - at) as f64 * INTERVAL_S;
    let ruled = |from: &usize| {
        let ruled = outcome.intervals[*from].new_keys_ruled;
        ruled as f64 >= 0.9 * keys as f64
    };
    [
        (
            0.0,
            "least_percent",
            least.map(|least| 100.0 * least / before),
        ),
        (
            0.0,
            "recovery_s",
            tenths().find(recovers).map(|(from, _)| since(from + 10)),
        ),
        (0.0, "installed_s", after.clone().find(ruled).map(since)),
    ]
}

fn model(request: &Request<'_>, case: &Case, change: Change, seconds: f64) -> SwitchKv {
    let testbed = testbed(request);
    SwitchKv {
        gamma: request.number(Choice::Gamma),
        change: Some(change),
        since_change_ns: match change.period {
            Period::Time { ns } if ns > SECOND_NS => ns - STILL_NS,
            _ => 0,
        },
        client_step: request.number(Choice::ClientStep) / 100.0,
        seconds,
        update: match case.series {
            "traditional" => CacheUpdate::TRADITIONAL,
            "periodic" => CacheUpdate::PERIODIC,
            "instant" => CacheUpdate::INSTANT,
            _ => CacheUpdate::BOTH,
        },
        rules: match case.series {
            "unbuffered" => RuleBudget {
                delay_max_ns: 0,
                ..testbed.rules
            },
            _ => testbed.rules,
        },
        ..testbed
    }
}

const fn hot_in(keys: u64, seconds: u64) -> Change {
    Change {
        pattern: Pattern::HotIn { keys },
        period: Period::Time {
            ns: seconds * SECOND_NS,
        },
    }
}

const fn hot_out(keys: u64) -> Change {
    Change {
        pattern: Pattern::HotOut { keys },
        period: Period::Time { ns: SECOND_NS },
    }
}

const fn replaced(keys: u64) -> Change {
    Change {
        pattern: Pattern::Random { keys, top: 10_000 },
        period: Period::Time { ns: SECOND_NS },
    }
}

const PARAMETERS: [Parameter; 4] = [
    gamma(),
    Parameter::one(Choice::ClientStep, (0.1, 50.0), &[100.0 * CLIENT_STEP]).papers(&[1.0]),
    requests(),
    Parameter::seed(),
];
const CHANGES: [f64; 5] = [50.0, 200.0, 500.0, 2_000.0, 10_000.0];
/// Keys a second that the rules follow: each takes an install and a withdrawal.
const RULED_PER_S: f64 = 200.0;
const SECOND_NS: u64 = 1_000_000_000;
/// What a run with rare changes shows before the first one.
const STILL_NS: u64 = 3 * SECOND_NS;
