//! The arithmetic of plans: smoothing, percentiles, cores, ranges.

use alloc::vec;

use super::*;
use crate::{request::Worker, size_aware::plan::Route};

const SECOND: u64 = 1_000_000_000;

fn control(config: ControlConfig) -> SizeControl {
    SizeControl::new(config, Instant::default())
}

fn small_epochs(cores: u16) -> ControlConfig {
    ControlConfig {
        samples_min: 1,
        ..ControlConfig::new(cores)
    }
}

/// Requests as (bytes, cost, times).
fn histogram(requests: &[(u32, u32, u64)]) -> SizeHistogram {
    let mut histogram = SizeHistogram::new(SizeClasses::LogLinear);
    for (bytes, cost, times) in requests {
        for _ in 0..*times {
            histogram.record(*bytes, *cost);
        }
    }
    histogram
}

fn epoch(control: &mut SizeControl, number: u64, requests: &[(u32, u32, u64)]) -> Option<SizePlan> {
    let now = Instant {
        ns: number * SECOND,
    };
    let measured = histogram(requests);
    control.step(now, ControlInput::Measured(&measured), |_| ());
    let mut plan = None;
    control.step(now, ControlInput::Tick, |new| plan = Some(new.clone()));
    plan
}

/// From 100 before and 0 now comes 10: the weight of 0.9 is the newest epoch's.
#[test]
fn the_newest_epoch_weighs_most() {
    let mut control = control(small_epochs(8));
    epoch(&mut control, 1, &[(64, 1, 100)]);
    let class = SizeClasses::LogLinear.class(64);
    assert_eq!(control.smooth.counts[class], 100 * ONE);
    epoch(&mut control, 2, &[(9, 1, 1)]);
    assert_eq!(control.smooth.counts[class], 10 * ONE);
    assert_eq!(control.smooth.costs[class], 10 * ONE);
}

#[test]
fn the_class_of_the_percentile_is_small() {
    let mut control = control(small_epochs(8));
    let plan = epoch(&mut control, 1, &[(100, 1, 990), (10_000, 7, 10)]).unwrap();
    // 100 lies in 96..104.
    assert_eq!(plan.threshold, 104);
    let plan = epoch(&mut control, 2, &[(100, 1, 9_800), (10_000, 7, 200)]).unwrap();
    assert_eq!(plan.threshold, 10_240);
}

/// Shares of large requests and their greatest sizes for 8 cores and 1,472 bytes a packet, and the
/// small cores that follow; none large means a standby core.
#[test]
fn cores_follow_the_share_of_packets() {
    for (large_milli, kilobytes, small) in [
        (625, 500, 8),
        (1_250, 250, 8),
        (1_250, 500, 7),
        (1_250, 1_000, 6),
        (2_500, 500, 6),
        (5_000, 500, 5),
        (7_500, 500, 4),
    ] {
        let mut control = control(small_epochs(8));
        let largest = kilobytes * 1_000;
        let mut measured = SizeHistogram::new(SizeClasses::LogLinear);
        for part in 0..1_000_u32 {
            // 100 times a request for each thousandth of the large requests' range.
            let bytes = 1_500 + (largest - 1_500) / 1_000 * part;
            let packets = bytes.div_ceil(1_472);
            let class = SizeClasses::LogLinear.class(bytes);
            measured.counts[class] += large_milli;
            measured.costs[class] += large_milli * u64::from(packets);
        }
        let others = 1_000 * (1_000_000 - large_milli);
        let class = SizeClasses::LogLinear.class(700);
        measured.counts[class] += others;
        measured.costs[class] += others;
        let now = Instant { ns: SECOND };
        control.step(now, ControlInput::Measured(&measured), |_| ());
        control.step(now, ControlInput::Tick, |_| ());
        let plan = control.plan();
        assert_eq!(plan.small, small, "{large_milli} {kilobytes}");
        assert_eq!(plan.standby().is_some(), small == 8);
    }
}

#[test]
fn every_number_of_cores_has_a_small_one() {
    for cores in [1, 2, 8, 64] {
        for requests in [
            &[(64, 1, 100)][..],
            &[(1_000_000, 680, 100)],
            &[(64, 0, 100)],
            &[(64, 1, 99), (1_000_000, 1_000_000, 1)],
        ] {
            let mut control = control(small_epochs(cores));
            let plan = epoch(&mut control, 1, requests).unwrap();
            assert!((1..=cores).contains(&plan.small), "{plan:?}");
            let Route::Ring(worker) = plan.route(u32::MAX, 77) else {
                panic!("the largest size is large");
            };
            assert!(worker.0 < cores);
            assert_eq!(plan.is_small(worker), plan.standby().is_some());
        }
    }
}

#[test]
fn exact_shares_are_not_rounded_up() {
    assert_eq!(small_cores(8, 1, 2), 4);
    assert_eq!(small_cores(8, 500_000_001, 1_000_000_000), 5);
    assert_eq!(small_cores(8, 0, 7), 1);
    assert_eq!(small_cores(8, 0, 0), 8);
}

#[test]
fn an_epoch_with_too_few_samples_changes_nothing() {
    let mut control = control(ControlConfig::new(8));
    assert_eq!(epoch(&mut control, 1, &[(64, 1, 9_999)]), None);
    assert_eq!(control.plan().threshold, u32::MAX);
    assert_eq!(control.deadline(), Some(Instant { ns: 2 * SECOND }));
    assert!(epoch(&mut control, 2, &[(64, 1, 1)]).is_some());
}

/// Goal: every large core gets an equal cost, also if one size has all of it, and smaller sizes go
/// to lower cores. Method: costs per core over all classes and hashes.
#[test]
fn large_cores_get_ranges_of_equal_cost() {
    let loads: [&[(u32, u32, u64)]; 3] = [
        &[(64, 1, 9_900), (500_000, 300, 100)],
        &[(64, 1, 9_900), (10_000, 30, 50), (500_000, 300, 50)],
        &[
            (64, 1, 9_900),
            (2_000, 20, 40),
            (9_000, 90, 30),
            (90_000, 900, 30),
        ],
    ];
    for requests in loads {
        let mut control = control(small_epochs(8));
        let plan = epoch(&mut control, 1, requests).unwrap();
        let large = plan.large_cores();
        assert!(large > 1, "{plan:?}");
        let mut costs = vec![0.0; usize::from(large)];
        let mut last = 0;
        for (bytes, cost, times) in &requests[1..] {
            for part in 0..1_000_u64 {
                let hash = part * (u64::MAX / 1_000);
                let Route::Ring(worker) = plan.route(*bytes, hash) else {
                    panic!("{bytes} is large");
                };
                assert!(worker.0 >= last, "ranges are in order");
                last = worker.0;
                let share = f64::from(*cost) * *times as f64 / 1_000.0;
                costs[usize::from(worker.0 - plan.small)] += share;
            }
        }
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        assert!(
            costs.iter().all(|cost| (cost / mean - 1.0).abs() < 0.02),
            "{costs:?}"
        );
        assert_eq!(plan.route(64, 0), Route::Here);
    }
}

#[test]
fn unsplit_classes_go_to_one_core_each() {
    let config = ControlConfig {
        split: false,
        ..small_epochs(8)
    };
    let mut control = control(config);
    let plan = epoch(&mut control, 1, &[(64, 1, 9_900), (500_000, 300, 100)]).unwrap();
    let first = plan.route(500_000, 0);
    assert_eq!(plan.route(500_000, u64::MAX), first);
    assert_ne!(first, Route::Here);
}

#[test]
fn a_set_threshold_and_set_cores_are_kept() {
    let config = ControlConfig {
        threshold: ThresholdRule::Set(1_500),
        small: Some(6),
        ..small_epochs(8)
    };
    let mut control = control(config);
    assert_eq!((control.plan().threshold, control.plan().small), (1_500, 6));
    let plan = epoch(&mut control, 1, &[(64, 1, 100)]).unwrap();
    assert_eq!((plan.threshold, plan.small), (1_500, 6));
    assert_eq!(plan.route(1_500, 0), Route::Ring(Worker(6)));
    assert_eq!(plan.route(1_499, 0), Route::Here);
}

/// Goal: damping holds a plan for one epoch, and not against a real imbalance. Method: costs that
/// ask for 7 small cores, then hardly for 8, twice; then for 3.
#[test]
fn damped_plans_change_when_asked_twice_or_in_need() {
    let config = ControlConfig {
        damped: true,
        ..small_epochs(8)
    };
    let mut control = control(config);
    let mut small = |number, large_cost| {
        let requests = [(64, 1, 9_900), (500_000, large_cost, 100)];
        epoch(&mut control, number, &requests).unwrap().small
    };
    assert_eq!(small(1, 15), 7);
    assert_eq!(small(2, 13), 7);
    assert_eq!(small(3, 13), 8);
    assert_eq!(small(4, 200), 3);
}

#[test]
fn an_extra_large_core_is_taken_while_small_ones_have_room() {
    let config = ControlConfig {
        extra_large: true,
        ..small_epochs(8)
    };
    let mut control = control(config);
    let mut plan = |number, millicores| {
        let busy = ControlInput::SmallBusy { millicores };
        control.step(Instant::default(), busy, |_| ());
        let requests = [(64, 1, 9_900), (500_000, 99, 100)];
        let plan = epoch(&mut control, number, &requests).unwrap();
        (plan.small, plan.extra_large)
    };
    // Four small cores by cost; three would be 80 % busy at 2,400.
    assert_eq!(plan(1, 2_399), (3, true));
    assert_eq!(plan(2, 2_400), (4, false));
}

/// The rule with the server's shape of prices: 32 KB cost what handing on does, and hand-offs may
/// take a quarter.
fn by_cost() -> ControlConfig {
    let rule = CostRule {
        bytes_min: 32 << 10,
        hand_off: cost_ns(32 << 10),
        share_milli: 250,
    };
    ControlConfig {
        threshold: ThresholdRule::Cost(rule),
        damped: true,
        ..small_epochs(8)
    }
}

/// Two microseconds and a tenth of one for each kilobyte.
fn cost_ns(bytes: u32) -> u32 {
    2_000 + bytes / 1_024 * 100
}

/// Requests for values of these sizes, each in so many thousandths.
fn mixed(sizes: &[(u32, u64)]) -> SizeHistogram {
    let mut histogram = SizeHistogram::new(SizeClasses::LogLinear);
    for (bytes, milli) in sizes {
        let count = milli * 100;
        histogram.record_many(*bytes, u64::from(cost_ns(*bytes)) * count, count);
    }
    histogram
}

fn after(control: &mut SizeControl, number: u64, measured: &SizeHistogram) -> SizePlan {
    let now = Instant {
        ns: number * SECOND,
    };
    control.step(now, ControlInput::Measured(measured), |_| ());
    control.step(now, ControlInput::Tick, |_| ());
    control.plan().clone()
}

/// Goal: a value that is long enough is large however many requests are for such values. Method:
/// 0.1 to 100 % of 2 MB beside short values, by both rules; the percentile, which must lose them
/// above 1 %, shows that the mixes are hard.
#[test]
fn by_cost_what_is_large_does_not_depend_on_how_frequent_it_is() {
    for large in [1, 10, 20, 50, 200, 600, 1_000] {
        let measured = mixed(&[(500, 1_000 - large), (2 << 20, large)]);
        let plan = after(&mut control(by_cost()), 1, &measured);
        assert_eq!(plan.threshold, 32 << 10, "{large}");
        assert_ne!(plan.route(2 << 20, 0), Route::Here, "{large}");
        let percentile = after(&mut control(small_epochs(8)), 1, &measured);
        let is_small = percentile.route(2 << 20, 0) == Route::Here;
        assert_eq!(is_small, large > 10, "{large}");
    }
}

/// Goal: the threshold rises as far as hand-offs would take more than their share, and no further
/// than the size at which one takes no more than that of its own request, in any mix. Method: mixes
/// of one middle size with short and with long values.
#[test]
fn by_cost_the_threshold_rises_only_for_what_costs_little_itself() {
    let ceiling = (0..u32::MAX)
        .step_by(1 << 10)
        .find(|bytes| cost_ns(*bytes) >= 4 * cost_ns(32 << 10))
        .unwrap();
    let mut highest = 0;
    for middle in [33_000, 40_000, 60_000, 100_000, 150_000, 250_000] {
        for share in [1, 10, 50, 100, 300, 600, 900] {
            for long in [0, 1, 20, 99] {
                let sizes = [
                    (100, 1_000 - share - long),
                    (middle, share),
                    (2 << 20, long),
                ];
                let measured = mixed(&sizes);
                let plan = after(&mut control(by_cost()), 1, &measured);
                let threshold = plan.threshold;
                assert!(threshold <= ceiling + ceiling / 8, "{sizes:?}: {threshold}");
                let counts = measured.counts.iter().enumerate();
                let class = SizeClasses::LogLinear.class(threshold);
                let handed: u64 = counts.filter(|(at, _)| *at >= class).map(|row| row.1).sum();
                let cost: u64 = measured.costs.iter().sum();
                let price = handed * u64::from(cost_ns(32 << 10));
                assert!(price * 4 <= cost, "{sizes:?}: {price} of {cost}");
                let all_larges = 100 * (share + long) * u64::from(cost_ns(32 << 10));
                assert_eq!(threshold == 32 << 10, all_larges * 4 <= cost, "{sizes:?}");
                highest = highest.max(threshold);
            }
        }
    }
    assert!(highest > 100_000, "no mix raised it: {highest}");
}

/// Goal: what a load taught is forgotten when nothing comes any more, and not earlier; a later
/// load is learned as the first was. Method: large values, then silent epochs with the odd request.
#[test]
fn what_was_learned_is_forgotten_in_silence() {
    let config = ControlConfig {
        silent_max: Some(10),
        samples_min: 100,
        ..by_cost()
    };
    let mut control = control(config);
    let first = control.plan().clone();
    let measured = mixed(&[(40_000, 900), (1 << 20, 100)]);
    let learned = after(&mut control, 1, &measured);
    assert!(learned.threshold > first.threshold && learned.small < first.small);
    for number in 2..11 {
        assert_eq!(epoch(&mut control, number, &[(850_000, 1, 1)]), None);
        assert_eq!(control.plan(), &learned);
    }
    assert_eq!(epoch(&mut control, 11, &[]), Some(first.clone()));
    for number in 12..40 {
        epoch(&mut control, number, &[]);
        assert_eq!(control.plan(), &first, "{number}");
    }
    let again = after(&mut control, 40, &measured);
    assert_eq!(
        (again.threshold, again.small),
        (learned.threshold, learned.small)
    );
}

/// Goal: where sizes move and neither threshold nor number of cores does, the ranges follow, and
/// they stay where the load does. Method: 850 KB, then 1,000 KB, with six large cores.
#[test]
fn damped_ranges_follow_the_sizes() {
    let mut control = control(by_cost());
    let load = |bytes| mixed(&[(500, 970), (bytes, 30)]);
    let shares = |plan: &SizePlan, bytes| {
        let mut shares = vec![0_u32; usize::from(plan.large_cores())];
        for part in 0..1_000_u64 {
            let large = plan.large_number(bytes, part * (u64::MAX / 1_000));
            shares[usize::from(large.expect("is large"))] += 1;
        }
        shares
    };
    let first = after(&mut control, 1, &load(850_000));
    assert!(first.large_cores() > 2, "{}", first.large_cores());
    let fair = 1_000 / u32::from(first.large_cores());
    // A tenth of the smoothed cost is still that of the epoch before.
    let is_fair = |shares: &[u32]| shares.iter().all(|share| *share * 100 <= fair * 115);
    assert!(is_fair(&shares(&first, 850_000)));
    assert!(!is_fair(&shares(&first, 1_000_000)), "nothing to be seen");
    assert_eq!(after(&mut control, 2, &load(850_000)), first, "kept");
    let then = after(&mut control, 3, &load(1_000_000));
    assert_eq!((then.threshold, then.small), (first.threshold, first.small));
    assert!(
        is_fair(&shares(&then, 1_000_000)),
        "{:?}",
        shares(&then, 1_000_000)
    );
    assert_ne!(then.epoch, first.epoch);
}

/// Goal: imbalance is measured as requests are routed. Method: for many histograms and plans, the
/// greatest share by routing against what is said.
#[test]
fn balance_is_that_of_the_routes() {
    let sizes = [40_000, 90_000, 300_000, 850_000, 1_000_000, 2_000_000];
    for split in [true, false] {
        for seed in 0..200_u64 {
            let weight = |at: usize, salt: u64| (seed * 31 + salt).pow(2) * (at as u64 + 3) % 40;
            let load = |salt| {
                let shares = sizes.iter().enumerate();
                let shares = shares.map(|(at, bytes)| (*bytes, weight(at, salt)));
                mixed(&shares.chain([(100, 1)]).collect::<alloc::vec::Vec<_>>())
            };
            let (before, now) = (load(1), load(2));
            let plan = SizePlan::new(1, 32 << 10, (9, 4), &before, split);
            let mut costs = vec![0.0; 5];
            for (at, bytes) in sizes.iter().enumerate() {
                let cost = f64::from(cost_ns(*bytes)) * weight(at, 2) as f64;
                for part in 0..1_000_u64 {
                    let large = plan.large_number(*bytes, part * (u64::MAX / 1_000));
                    costs[usize::from(large.unwrap())] += cost / 1_000.0;
                }
            }
            let total: f64 = costs.iter().sum();
            let most = costs.iter().copied().fold(0.0, f64::max) * 5.0 / total.max(1.0);
            if (most - 1.1).abs() > 0.01 {
                assert_eq!(
                    plan.is_balanced(&now),
                    most < 1.1,
                    "{split} {seed}: {costs:?}"
                );
            }
        }
    }
}

/// Goal: each large core's range begins with the smallest size that is sent to it. Method: costs of
/// a few classes, so that cuts fall on the edges of classes too; every class at both ends of the
/// hashes.
#[test]
fn ranges_begin_where_sizes_are_sent() {
    let classes = SizeClasses::LogLinear;
    let mut on_an_edge = 0;
    for large in 1..5_u16 {
        for mask in 1..64_u32 {
            for split in [true, false] {
                let mut measured = SizeHistogram::new(classes);
                let threshold = 1_024;
                let first = classes.class(threshold);
                for part in (0..6).filter(|part| mask >> part & 1 == 1) {
                    measured.counts[first + part] = 1;
                    measured.costs[first + part] = 120 * (1 + part as u64 % 2);
                }
                let plan = SizePlan::new(1, threshold, (8, 8 - large), &measured, split);
                let sizes = first..first + 6;
                let sent = |core: u16| {
                    let mut to_it = sizes.clone().filter(|class| {
                        let bytes = classes.upper_edge(class - 1);
                        let ends = [0, u64::MAX].map(|hash| plan.large_number(bytes, hash));
                        let holds_costs = measured.costs[*class] > 0;
                        holds_costs && ends[0] <= Some(core) && ends[1] >= Some(core)
                    });
                    to_it.next().map(|class| classes.upper_edge(class - 1))
                };
                for (core, from) in (0..large).zip(plan.ranges()) {
                    let Some(expected) = sent(core) else {
                        continue;
                    };
                    // Sizes of which nothing was measured may go to the core before or after.
                    let unmeasured = classes.class(from)..classes.class(expected);
                    assert!(
                        from <= expected && unmeasured.clone().all(|c| measured.costs[c] == 0),
                        "core {core} of {large}, {mask:b}, split {split}: {from} not {expected}"
                    );
                    on_an_edge += u32::from(from == expected);
                }
            }
        }
    }
    assert!(on_an_edge > 100, "{on_an_edge}");
}
