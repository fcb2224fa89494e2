//! Whole clusters in virtual time, each configuration with several seeds; a failure prints the line
//! that repeats it. The ignored test is the long one.

use curtail_consistency::replica::Model;
use curtail_simulator::{ClusterOutcome, ClusterRun, Fault, Faults};

/// What goes wrong on the way and not with nodes.
const NETWORK: Faults = Faults::NONE
    .with(Fault::Loss)
    .with(Fault::Duplicate)
    .with(Fault::Reorder)
    .with(Fault::Slow)
    .with(Fault::Drift)
    .with(Fault::Churn)
    .with(Fault::Flush)
    .with(Fault::Room);

fn run(nodes: u8, replicas: usize, model: Model, seed: u64) -> ClusterRun {
    ClusterRun {
        nodes,
        replicas,
        ..ClusterRun::new(seed, model)
    }
}

/// Runs it; it must end well.
fn passes(run: &ClusterRun) -> ClusterOutcome {
    let outcome = run.run();
    if let Some(failure) = &outcome.failure {
        panic!("{failure}\n{run} --runs 1");
    }
    outcome
}

/// Goal: copies agree over a network that loses, doubles, overtakes and is slow, with clocks that
/// differ, hot keys that change, flushes and full stores; nothing is lost.
#[test]
fn copies_agree_over_a_bad_network() {
    for (nodes, replicas, model) in configurations() {
        for seed in 1..=SEEDS {
            let outcome = passes(&ClusterRun {
                faults: NETWORK,
                ..run(nodes, replicas, model, seed)
            });
            assert!(outcome.answered > 1_000 && outcome.lost == 0, "{outcome:?}");
        }
    }
}

/// Goal: the same when nodes stop, come back empty, pause, are cut off, leave and join. Method: the
/// judge of every run says so; the test checks that each of this happened.
#[test]
fn nodes_come_and_go() {
    let mut all = ClusterOutcome::default();
    for (nodes, replicas, model) in configurations() {
        for seed in 1..=SEEDS {
            let outcome = passes(&run(nodes, replicas, model, seed));
            all.crashes += outcome.crashes;
            all.departures += outcome.departures;
            all.evictions += outcome.evictions;
            all.no_room += outcome.no_room;
            all.lost += outcome.lost;
            all.waits += outcome.waits;
        }
    }
    assert!(
        all.crashes > 0 && all.departures > 0 && all.evictions > 0,
        "{all:?}"
    );
    assert!(all.no_room > 0 && all.lost > 0 && all.waits > 0, "{all:?}");
}

/// Goal: a line repeats a run.
#[test]
fn a_seed_replays() {
    let one = run(4, 2, Model::Lin, 5);
    assert_eq!(one.run(), one.run());
    assert_ne!(one.run(), run(4, 2, Model::Lin, 6).run());
}

/// Two thousand runs of each cell; minutes in an optimised build.
#[test]
#[ignore = "takes minutes; run optimised"]
fn a_campaign_of_every_cell() {
    for nodes in 3..=6 {
        for replicas in 1..=3 {
            for model in [Model::Lin, Model::Sc] {
                for seed in 1..=2_000 {
                    passes(&run(nodes, replicas, model, seed));
                }
            }
        }
    }
}

fn configurations() -> impl Iterator<Item = (u8, usize, Model)> {
    let models = [Model::Lin, Model::Sc];
    let of = move |replicas| models.map(|model| (2 + replicas as u8, replicas, model));
    (1..=3).flat_map(of)
}

const SEEDS: u64 = 8;
