//! The testbed against its sums, and against the paper's words.

use curtail_workload::{Pattern, Period};

use super::*;

fn mqps(model: &SwitchKv) -> f64 {
    model.shares().served_qps() / 1e6
}

fn is_near(value: f64, reference: f64, tolerance: f64) -> bool {
    (value / reference - 1.0).abs() <= tolerance
}

/// A tenth of the paper's rates, with rules to match: the windows of reports last longer.
fn tenth(update: CacheUpdate) -> SwitchKv {
    SwitchKv {
        update,
        back_end_qps: 10_000.0,
        cache_qps: CACHE_QPS / 10.0,
        ..SwitchKv::paper()
    }
}

/// Goal: request by request the system serves what the sums say, all back ends are full, and the
/// client keeps its loss. Method: half a second at a tenth of the paper's rates.
#[test]
fn single_requests_agree_with_the_sums() {
    let model = SwitchKv {
        seconds: 1.0,
        ..tenth(CacheUpdate::NONE)
    };
    let outcome = model.run();
    let (all, hits) = outcome.mqps(50..100);
    assert!(is_near(all, mqps(&model), 0.03), "{all} {}", mqps(&model));
    assert!(is_near(hits / all, 0.386, 0.03), "{}", hits / all);
    let (least, most) = (outcome.nodes.iter().min(), outcome.nodes.iter().max());
    let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
    assert!(least as f64 > 0.9 * most as f64, "{least} {most}");
    let sent: u64 = outcome.intervals[50..].iter().map(|one| one.sent).sum();
    let lost: u64 = outcome.intervals[50..].iter().map(|one| one.lost).sum();
    let loss = lost as f64 / sent as f64;
    assert!((0.002..0.013).contains(&loss), "{loss}");
}

/// Goal: a change that brings cold keys to the top is followed within a second, and instant reports
/// make the loss smaller. Method: 200 keys come to the top after two seconds, with instant reports
/// and without.
#[test]
fn keys_that_become_hot_are_cached() {
    let run = |update| {
        let model = SwitchKv {
            change: Some(Change {
                pattern: Pattern::HotIn { keys: 200 },
                period: Period::Time { ns: 2_000_000_000 },
            }),
            seconds: 3.9,
            ..tenth(update)
        };
        let outcome = model.run();
        let before = outcome.mqps(100..200).0;
        let just_after = outcome.mqps(205..255).0 / before;
        let later = outcome.mqps(350..390).0 / before;
        println!(
            "{update:?}: {just_after:.2} {later:.2}, {} installs",
            outcome.installs
        );
        (just_after, later)
    };
    let (none, periodic, both) = (
        run(CacheUpdate::NONE),
        run(CacheUpdate::PERIODIC),
        run(CacheUpdate::BOTH),
    );
    assert!(none.1 < 0.6, "{none:?}");
    assert!(both.0 > periodic.0, "{both:?} {periodic:?}");
    assert!(both.1 > 0.85, "{both:?}");
}

/// Goal: writes of cached keys update the cache, and only those of other keys pass it by.
#[test]
fn writes_of_cached_keys_update_the_cache() {
    let model = SwitchKv {
        write_share: 0.1,
        writes_like_reads: true,
        seconds: 0.2,
        ..tenth(CacheUpdate::NONE)
    };
    let outcome = model.run();
    let served: u64 = outcome.intervals.iter().map(|one| one.served).sum();
    assert!(
        outcome.updates > 1_000 && outcome.updates < served,
        "{}",
        outcome.updates
    );
    let spread = SwitchKv {
        writes_like_reads: false,
        ..model
    };
    assert!(spread.run().updates < 10);
}

/// Goal: an uncached key passes one machine with SwitchKV, two with look-through, three with
/// look-aside (SW-67), their latencies have that ratio, and baselines stop at the cache's rate.
#[test]
fn transits_are_the_papers() {
    for (architecture, transits) in [
        (Architecture::SwitchKv, 1),
        (Architecture::LookThrough, 2),
        (Architecture::LookAside, 3),
    ] {
        let model = SwitchKv {
            architecture,
            ..SwitchKv::paper()
        };
        let misses = TierLatency::run(&model, TierPath::Misses, 5e6, 10_000).unwrap();
        assert_eq!(misses.transits, transits * misses.requests);
        // Nearly idle, a request takes as long as its transits.
        let idle = TierLatency::run(&model, TierPath::Misses, 1e6, 10_000).unwrap();
        let mean_us = idle.sum_ns / idle.requests as f64 / 1e3;
        assert!(is_near(mean_us, 10.0 * transits as f64, 0.06), "{mean_us}");
        let hits = TierLatency::run(&model, TierPath::Hits, 5e6, 10_000).unwrap();
        assert_eq!(hits.transits, hits.requests);
        let many = TierLatency::run(&model, TierPath::Mixed, 15e6, 1_000);
        assert_eq!(many.is_some(), architecture == Architecture::SwitchKv);
    }
}
