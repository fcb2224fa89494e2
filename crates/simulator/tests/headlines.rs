//! The sentences of the papers that the queueing models can check, at a reduced size: 40,000
//! requests a point, so tails are given a tenth and shares of throughput a twentieth. The figures
//! themselves run in full.

use curtail_dispatch::{Closing, Policy, pull::Binding};
use curtail_simulator::{C4Model, MinosModel, Rules, SizeAware, Stealing, System, UNIT};

fn model(policy: Policy, load: f64, write_percent: f64) -> C4Model {
    C4Model {
        load,
        write_percent,
        requests: 40_000,
        ..C4Model::new(policy, Rules::Reference)
    }
}

fn p99(model: &C4Model) -> f64 {
    model
        .run(&C4Model::ranks(model.gamma))
        .all
        .quantile(0.99)
        .unwrap_or(0) as f64
}

fn meets(model: &C4Model) -> bool {
    let ranks = C4Model::ranks(model.gamma);
    model.run(&ranks).meets(model.limit_ns() as f64)
}

/// C-4, section 3.1: "Dynamic" has the ideal's throughput and tail at any share of writes; the
/// paper's Fig. 3b.
#[test]
fn dynamic_ownership_has_the_ideals_tail() {
    for writes in [50.0, 85.0, 100.0] {
        let (ours, ideal) = (
            p99(&model(Policy::DynamicCrew, 0.9, writes)),
            p99(&model(Policy::Ideal, 0.9, 0.0)),
        );
        assert!(
            (ours / ideal - 1.0).abs() < 0.02,
            "{writes} %: {ours} {ideal}"
        );
    }
}

/// C-4, section 3.1: from 50 % writes on, static partitions have 2 to 5.5 times the ideal's tail.
#[test]
fn static_partitions_lengthen_the_tail() {
    for (policy, load, writes, excess) in [
        (Policy::Crew, 0.9587, 50.0, 1.906),
        (Policy::Crew, 0.8761, 85.0, 4.101),
        (Policy::Erew, 0.7522, 50.0, 5.426),
    ] {
        let found = p99(&model(policy, load, writes)) / p99(&model(Policy::Ideal, load, 0.0));
        assert!((found / excess - 1.0).abs() < 0.15, "{policy:?}: {found}");
    }
}

/// C-4, Fig. 3a: EREW carries 75 % of the load whatever the share of writes, CREW the ideal's up to
/// 75 % writes and EREW's when all are writes.
#[test]
fn static_partitions_lose_throughput() {
    assert!(meets(&model(Policy::Erew, 0.71, 50.0)));
    assert!(!meets(&model(Policy::Erew, 0.84, 50.0)));
    assert!(meets(&model(Policy::Crew, 0.94, 70.0)));
    assert!(!meets(&model(Policy::Crew, 0.84, 100.0)));
    assert!(meets(&model(Policy::DynamicCrew, 0.94, 100.0)));
}

/// C-4, section 3.2 and Fig. 4: under skew a hot partition stops CREW far from the ideal, and
/// compaction brings it back.
#[test]
fn compaction_lifts_the_throughput_of_skewed_writes() {
    for (gamma, writes, crew_stops, compaction_carries) in [
        (0.99, 50.0, 0.5, 0.9),
        (1.25, 5.0, 0.87, 0.87),
        (1.4, 25.0, 0.25, 0.5),
    ] {
        let at = |load, compaction| C4Model {
            gamma,
            compaction,
            ..model(Policy::Crew, load, writes)
        };
        assert!(!meets(&at(crew_stops, None)), "gamma {gamma}");
        assert!(
            meets(&at(compaction_carries, Some(Closing::NoMatch))),
            "gamma {gamma}"
        );
    }
}

/// Beyond the paper: with its window (open until the limit is near) the tail jumps as soon as
/// writes meet; a window that closes when it has nothing to wait for has no such step, and d-CREW
/// with it is better still.
#[test]
fn early_closing_removes_the_step_at_low_load() {
    let at = |policy, compaction| C4Model {
        gamma: 0.99,
        rules: Rules::Paper,
        compaction,
        ..model(policy, 0.3, 50.0)
    };
    let plain = p99(&at(Policy::Crew, None));
    let late = p99(&at(Policy::Crew, Some(Closing::DeadlineOnly)));
    let early = p99(&at(Policy::Crew, Some(Closing::Adaptive)));
    let both = p99(&at(Policy::DynamicCrew, Some(Closing::Adaptive)));
    assert!(late > 1.3 * plain, "{late} {plain}");
    assert!(
        early < plain && early < 0.6 * late,
        "{early} {plain} {late}"
    );
    assert!(both < early, "{both} {early}");
}

/// The table of exclusive writers needs two entries a worker at most (C-4, section 5.1), also when
/// everything is a write and nearly nothing is idle.
#[test]
fn two_entries_for_each_worker_suffice() {
    let model = model(Policy::DynamicCrew, 0.95, 100.0);
    let outcome = model.run(&C4Model::ranks(0.0));
    assert!(
        (100..=128).contains(&outcome.entries_max),
        "{}",
        outcome.entries_max
    );
}

fn bound(binding: Binding) -> System {
    System::Bound {
        binding,
        erew: false,
    }
}

fn sized(system: System, k: u32, load: f64) -> f64 {
    let model = MinosModel {
        requests: 150_000,
        ..MinosModel::new(system, k, load)
    };
    model.run().all.quantile(0.99).unwrap_or(0) as f64 / UNIT as f64
}

/// Minos, section 2.2: at K = 1000 and 10 % load early binding is two orders of magnitude above the
/// run without large requests; late binding and stealing hold at low load and lose at high load.
#[test]
fn large_requests_block_small_ones_without_size_awareness() {
    let early = bound(Binding::Early);
    assert!(sized(early, 1000, 0.1) > 100.0 * sized(early, 1, 0.1));
    for binding in [Binding::Late { hand_off: 0 }, Binding::EarlyStealing] {
        let bound = bound(binding);
        assert!(sized(bound, 1000, 0.1) < 1.1);
        assert!(sized(bound, 1000, 0.8) > 30.0 * sized(bound, 1, 0.8));
    }
}

/// Minos's claim, in its own model: small requests keep a short tail whatever the large ones cost;
/// beyond it, stealing among small cores shortens it further.
#[test]
fn size_awareness_keeps_the_tail_short() {
    let aware = |stealing| {
        System::SizeAware(SizeAware {
            stealing,
            ..SizeAware::PAPER
        })
    };
    for k in [100, 1000] {
        let plain = sized(aware(Stealing::Off), k, 0.8);
        let stealing = sized(aware(Stealing::SmallCores), k, 0.8);
        assert!(plain < 10.0, "{k}: {plain}");
        assert!(stealing < plain, "{k}: {stealing} {plain}");
    }
    // A standby core that keeps its queue while it serves a large request undoes it all.
    assert!(sized(aware(Stealing::NaiveStandby), 100, 0.3) > 100.0);
}

/// A seed replays a run to the digit.
#[test]
fn seeds_replay() {
    let model = C4Model {
        requests: 5_000,
        gamma: 1.2,
        ..model(Policy::DynamicCrew, 0.8, 50.0)
    };
    let ranks = C4Model::ranks(1.2);
    assert_eq!(model.run(&ranks).all, model.run(&ranks).all);
    let other = C4Model {
        seed: 2,
        ..model.clone()
    };
    assert_ne!(model.run(&ranks).all, other.run(&ranks).all);
}
