//! Size-aware sharding and d-CREW together, on a load that is mixed, write-heavy and skewed: better
//! than each alone. 120,000 requests a run; the figure `combined` runs in full.

use curtail_dispatch::{Closing, Policy};
use curtail_simulator::{Combined, CombinedPrices, FullCosts, Outcome, PlanCost};
use curtail_workload::{Catalogue, Workload};

/// ETC, half writes, and these differences.
fn etc(differences: &str) -> Workload {
    let text = format!("etc:get=0.5,{differences}");
    let workload = Catalogue::new().workload(&text);
    workload.unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn model(prices: CombinedPrices, cores: u16, differences: &str) -> Combined {
    Combined {
        cores,
        requests: 120_000,
        ..Combined::new(prices, etc(differences))
    }
}

/// What is left if one of the two, or neither, is there: its name, and the model.
fn alone(together: &Combined) -> [(&'static str, Combined); 3] {
    let size_aware = Combined {
        policy: Policy::Crew,
        compaction: None,
        ..together.clone()
    };
    let compacting = Combined {
        size_aware: None,
        ..together.clone()
    };
    let dynamic = Combined {
        compaction: None,
        ..compacting.clone()
    };
    [
        ("size-aware", size_aware),
        ("d-crew", dynamic),
        ("d-crew-comp", compacting),
    ]
}

fn at(model: &Combined, load: f64) -> (Outcome, f64) {
    let core_ns = model.core_ns();
    let model = Combined {
        load,
        ..model.clone()
    };
    (model.run(core_ns), core_ns)
}

fn meets(model: &Combined, load: f64, times: f64) -> bool {
    let (outcome, core_ns) = at(model, load);
    outcome.meets(times * core_ns)
}

fn both_prices() -> [CombinedPrices; 2] {
    let costs = FullCosts::parse(include_str!("prices.toml"));
    let costs = costs.unwrap_or_else(|error| panic!("{error}"));
    [
        CombinedPrices::paper(),
        CombinedPrices::of(&costs, "measured"),
    ]
}

/// Goal: within ten and twenty mean service times the two together carry more than each alone, with
/// both sets of prices. Method: 32 cores, 0.75 % large requests, half writes, Zipf 0.99; at a load
/// of 0.9 all but the two together fail, and the two together carry 0.95.
#[test]
fn together_they_carry_more_than_each_alone() {
    for prices in both_prices() {
        let together = model(prices, 32, "p-large=0.75");
        for times in [10.0, 20.0] {
            assert!(meets(&together, 0.95, times), "{times}");
            for (name, alone) in alone(&together) {
                assert!(!meets(&alone, 0.9, times), "{name} {times}");
            }
        }
    }
}

/// Goal: the same with more skew and fewer cores. Method: 16 cores, Zipf 1.2.
#[test]
fn more_skew_needs_them_more() {
    for prices in both_prices() {
        let together = model(prices, 16, "p-large=0.75,zipf=1.2");
        assert!(meets(&together, 0.9, 10.0));
        for (name, alone) in alone(&together) {
            assert!(!meets(&alone, 0.7, 10.0), "{name}");
        }
    }
}

/// Goal: at a load that each alone can still carry, the tail is the shortest. Method: the 99th
/// percentile at 0.7 with 32 cores and both sets of prices, less than half of the others'.
#[test]
fn together_they_have_the_shortest_tail() {
    for prices in both_prices() {
        let together = model(prices, 32, "p-large=0.75");
        let p99 = |model: &Combined| at(model, 0.7).0.p99_ns().unwrap_or(u64::MAX / 2);
        let own = p99(&together);
        for (name, alone) in alone(&together) {
            let other = p99(&alone);
            assert!(other > 2 * own, "{name}: {other} {own}");
        }
    }
}

/// A plan by packets gives the cores to large requests that they do not need: with Minos's own
/// prices and 8 cores it loses a sixth of the throughput that a plan by time has.
#[test]
fn a_plan_by_time_carries_more_than_one_by_packets() {
    let by_time = model(CombinedPrices::paper(), 8, "p-large=0.75");
    let by_packets = Combined {
        size_aware: Some(PlanCost::Packets),
        ..by_time.clone()
    };
    assert!(meets(&by_time, 0.9, 10.0) && !meets(&by_packets, 0.85, 10.0));
}

/// Goal: a partition has one writer at a time, and no small request is behind a large one. Method:
/// writes that find their bucket being written are counted, under every policy that promises it;
/// CRCW, which does not, must show some. Without size awareness small ones are behind large ones.
#[test]
fn a_partition_has_one_writer_and_small_requests_pass() {
    let together = model(CombinedPrices::paper(), 16, "p-large=0.5,zipf=1.2");
    let policies = [
        (Policy::Crew, None),
        (Policy::DynamicCrew, None),
        (Policy::DynamicCrew, Some(Closing::Adaptive)),
        (Policy::DynamicCrew, Some(Closing::DeadlineOnly)),
    ];
    for (policy, compaction) in policies {
        let (outcome, _) = at(
            &Combined {
                policy,
                compaction,
                ..together.clone()
            },
            0.5,
        );
        assert_eq!(outcome.write_waits, 0, "{policy:?}");
        assert_eq!(outcome.behind_large, 0, "{policy:?}");
        assert!(outcome.small_served > 70_000);
    }
    let crcw = Combined {
        policy: Policy::Crcw,
        compaction: None,
        size_aware: None,
        ..together
    };
    let (outcome, _) = at(&crcw, 0.5);
    assert!(outcome.write_waits > 100, "{}", outcome.write_waits);
    assert!(outcome.behind_large > 100, "{}", outcome.behind_large);
}

/// Compaction folds: windows hold more than one write, and a run is replayed by its seed.
#[test]
fn windows_fold_writes_and_seeds_replay() {
    let model = model(CombinedPrices::paper(), 16, "p-large=0.125,zipf=1.2");
    let (outcome, _) = at(&model, 0.7);
    assert!(outcome.window_writes > 2 * outcome.windows && outcome.windows > 100);
    assert_eq!(at(&model, 0.7).0.all, outcome.all);
    let other = Combined { seed: 2, ..model };
    assert_ne!(at(&other, 0.7).0.all, outcome.all);
}
