//! Whole clusters in virtual time, each configuration with several seeds; a failure prints the line
//! that repeats it. The ignored tests are the long ones.

use curtail_consistency::symmetric::Model;
use curtail_simulator::{ClusterOutcome, ClusterRun, Fault, Faults, Mutant};

/// What goes wrong on the way and not with nodes.
const NETWORK: Faults = Faults::NONE
    .with(Fault::Loss)
    .with(Fault::Duplicate)
    .with(Fault::Reorder)
    .with(Fault::Slow)
    .with(Fault::Drift);

fn run(replicas: usize, model: Model, faults: Faults, seed: u64) -> ClusterRun {
    ClusterRun {
        replicas,
        faults,
        ..ClusterRun::new(seed, model)
    }
}

/// Runs it; it must end well.
fn passes(run: &ClusterRun) -> ClusterOutcome {
    let outcome = run.run();
    if let Some(failure) = &outcome.failure {
        panic!("{failure}\n{run} --runs 1");
    }
    assert_eq!(outcome.unjudged, 0, "{run} --runs 1");
    outcome
}

/// Goal: copies of cold keys, with one holder and with several, agree over a network that loses,
/// doubles, overtakes and is slow, with clocks that differ.
#[test]
fn copies_agree_over_a_bad_network() {
    for (replicas, model) in CONFIGURATIONS {
        let mut answered = 0;
        for seed in 1..=SEEDS {
            answered += passes(&run(replicas, model, NETWORK, seed)).answered;
        }
        assert!(answered > SEEDS * 1_500, "{answered}");
    }
}

/// Goal: the same when nodes stop, come back, pause and are cut off; with several holders nothing
/// is lost by one death. Method: cold keys; the test checks that each of this happened.
#[test]
fn nodes_come_and_go() {
    for replicas in 1..=3 {
        let mut crashes = 0;
        for seed in 1..=SEEDS {
            let outcome = passes(&run(replicas, Model::Lin, NODES, seed));
            crashes += outcome.crashes;
        }
        assert!(crashes > 0);
    }
}

/// Goal: the same while keys become hot and cease to be: a key that cools down while its home
/// changes is not lost, one that nobody remembers does not come back, and a hot one is not away for
/// longer than it takes to do without a dead node. Method: the judge of every run says so; some
/// request did wait for one.
#[test]
fn nodes_come_and_go_while_the_hot_set_changes() {
    for (replicas, model) in CONFIGURATIONS {
        let (mut crashes, mut promotions, mut waits) = (0, 0, 0);
        for seed in 1..=SEEDS {
            let faults = ClusterRun::new(seed, model).faults;
            let outcome = passes(&run(replicas, model, faults, seed));
            crashes += outcome.crashes;
            promotions += outcome.promotions;
            waits += outcome.waits;
        }
        assert!(crashes > 0 && promotions > 0 && waits > 0);
    }
}

/// Goal: runs that once ended badly end well. What each was about:
///
/// - a key moved to a node that had died before it was given the key, and was lost with it;
/// - a home gave its value up though it had heard, since it doubted, of a write or of its home;
/// - what a joining node had of a cluster that died came back in the next one;
/// - under SC, a write that no other node had died with its node, after a session saw it;
/// - under SC, a holder to which a cold write was on its way stayed invalid once the key was hot;
/// - a node that had not heard that a move had ended took its old copy for what was to come in the
///   next (2326, 91);
/// - a key that its home was just making hot was taken for one that is everywhere, and its move for
///   done (1657, 4937);
/// - what a promotion of a dead home had called nothing was later than the next home's writes
///   (2435);
/// - an item came from an earlier view while its new home was not done with the key (714);
/// - the simulator let what was sent late overtake what a pausing node had still to take in (1339);
/// - under SC, a write that a session had seen died with its node, and was waited for (1528, 1998);
/// - the judge took a version that a promotion gave to nothing for somebody's write (101);
/// - under SC, a holder that had missed a write was the one that its key moved from (2370);
/// - the judge took for well what links still had to catch up with (539);
/// - who answered for a key gave it up because its new home was silent (2397), and a holder what it
///   had acknowledged, for it had had nothing before (5384);
/// - a write was done that an update had overtaken, and not read (4375, 2069);
/// - who had left, and completed a write, did not hear that the key was cold (3781);
/// - what moves was taken from who was out of the view, by one of two new holders (2106, 3053);
/// - the simulator kept the version of a delete of what it had forgotten (4992);
/// - the judge believed a home that was out of the view, and that nobody heard (1294);
/// - nothing of a promotion whose home died was forgotten by the next, and is the same nothing yet
///   (10659).
#[test]
fn runs_that_failed_once_pass() {
    let without_churn = Faults::ALL.without(Fault::Churn);
    let ordered = Faults::ALL.without(Fault::Reorder);
    for (replicas, model, faults, seed) in [
        (1, Model::Lin, without_churn, 10_402),
        (2, Model::Lin, Faults::ALL, 10_590),
        (3, Model::Lin, Faults::ALL, 42),
        (3, Model::Lin, Faults::ALL, 10_020),
        (3, Model::Sc, ordered, 15),
        (3, Model::Sc, ordered, 10_509),
        (2, Model::Lin, Faults::ALL, 2_326),
        (3, Model::Lin, Faults::ALL, 91),
        (2, Model::Lin, Faults::ALL, 1_657),
        (2, Model::Lin, Faults::ALL, 4_937),
        (3, Model::Lin, Faults::ALL, 2_435),
        (1, Model::Sc, ordered, 714),
        (1, Model::Sc, ordered, 1_339),
        (1, Model::Sc, ordered, 1_528),
        (1, Model::Sc, ordered, 1_998),
        (2, Model::Sc, ordered, 101),
        (2, Model::Sc, ordered, 2_370),
        (2, Model::Sc, ordered, 539),
        (2, Model::Lin, Faults::ALL, 2_397),
        (3, Model::Lin, Faults::ALL, 5_384),
        (3, Model::Lin, Faults::ALL, 4_375),
        (3, Model::Lin, Faults::ALL, 2_069),
        (3, Model::Lin, Faults::ALL, 3_781),
        (3, Model::Lin, Faults::ALL, 2_106),
        (3, Model::Lin, Faults::ALL, 3_053),
        (3, Model::Lin, Faults::ALL, 4_992),
        (2, Model::Lin, Faults::ALL, 1_294),
        (3, Model::Sc, ordered, 10_659),
    ] {
        passes(&run(replicas, model, faults, seed));
    }
}

/// Goal: a line repeats a run.
#[test]
fn a_seed_replays() {
    let one = run(2, Model::Lin, Faults::ALL, 5);
    assert_eq!(one.run(), one.run());
    assert_ne!(one.run(), run(2, Model::Lin, Faults::ALL, 6).run());
}

/// Goal: the judges judge. Method: each wrong driver fails for some seed for which the right one
/// passes.
#[test]
fn wrong_drivers_are_found_out() {
    for (mutant, replicas, model, faults) in WRONG {
        let fails = |seed: &u64| {
            let right = run(replicas, model, faults, *seed);
            let wrong = ClusterRun {
                mutant: Some(mutant),
                ..right
            };
            wrong.run().failure.is_some() && right.run().failure.is_none()
        };
        let found = (1..=MUTANT_SEEDS).find(fails);
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} lives");
    }
}

/// Ten million operations of each configuration; minutes each in an optimised build.
#[test]
#[ignore = "takes minutes; run optimised"]
fn ten_million_operations() {
    for (replicas, model) in CONFIGURATIONS {
        for faults in [NETWORK, ClusterRun::new(0, model).faults] {
            let mut operations = 0;
            let mut seed = 1_000;
            let start = std::time::Instant::now();
            while operations < 10_000_000 {
                let run = ClusterRun {
                    operations: 5_000,
                    ..self::run(replicas, model, faults, seed)
                };
                let outcome = passes(&run);
                operations += outcome.answered + outcome.refused + outcome.unknown;
                seed += 1;
            }
            let rate = operations as f64 / start.elapsed().as_secs_f64();
            println!("R = {replicas}, {model:?}, {faults}: {rate:.0} operations a second");
        }
    }
}

const CONFIGURATIONS: [(usize, Model); 6] = [
    (1, Model::Lin),
    (2, Model::Lin),
    (3, Model::Lin),
    (1, Model::Sc),
    (2, Model::Sc),
    (3, Model::Sc),
];
const SEEDS: u64 = 20;
const MUTANT_SEEDS: u64 = 200;
const CHURN: Faults = NETWORK.with(Fault::Churn);
const NODES: Faults = Faults::ALL.without(Fault::Churn);

const DEATHS: Faults = CHURN.with(Fault::Crash);

/// Wrong drivers, and under what they are looked for.
const WRONG: [(Mutant, usize, Model, Faults); 11] = [
    (Mutant::LatePublish, 1, Model::Lin, CHURN),
    (Mutant::HomeBeside, 1, Model::Lin, CHURN),
    (Mutant::EarlyAnswer, 1, Model::Lin, CHURN),
    (Mutant::DropUnknown, 1, Model::Lin, CHURN),
    (Mutant::Unfenced, 1, Model::Lin, NODES),
    (Mutant::Unmoved, 1, Model::Lin, NODES),
    (Mutant::AskTwice, 2, Model::Lin, NODES),
    (Mutant::AnyView, 3, Model::Lin, NODES),
    (Mutant::SourceForgets, 1, Model::Lin, Faults::ALL),
    (
        Mutant::SeenUntold,
        1,
        Model::Sc,
        CHURN.without(Fault::Reorder),
    ),
    (Mutant::LateMissed, 1, Model::Lin, DEATHS),
];
