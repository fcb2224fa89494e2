//! Searches the models of slices, and models with planted errors.

use std::ops::ControlFlow;

use curtail_consistency::replica::Model as Agreement;
use curtail_consistency::replica::ReplicaMutant;
use curtail_consistency::slice_view::{RowStep, SliceId};
use curtail_types::{NodeId, RouteHash};
use curtail_workload::Random;

use super::{
    ANSWERED, AcceptMutant, DRAINED, ENTERED, EVICTED, EXITED, LOST, SHARED, SLICE_MODELS,
    SliceFaults, SliceSetup, TOOK_OVER, world::SliceWorld,
};
use crate::requests::Kind;
use crate::search::tests::{assert_found, assert_right};
use crate::search::{Limits, Model as _, fingerprint_of, search};

/// Goal: every planted error of the machine is found by some model. Method: each is searched for in
/// the quick models, the one that showed it before first, until one shows it.
#[test]
fn every_planted_error_of_a_replica_is_found() {
    assert_found(SliceSetup::mutants().map(|(mutant, name)| {
        let mut order: Vec<_> = quick_models().collect();
        order.sort_by_key(|setup| setup.name != shown_before(mutant));
        (name, order)
    }));
}

fn quick_models() -> impl Iterator<Item = &'static SliceSetup> {
    SLICE_MODELS.iter().filter(|setup| !setup.is_deep)
}

fn model(name: &str) -> SliceSetup {
    *SLICE_MODELS.iter().find(|one| one.name == name).unwrap()
}

/// The model that showed an error when this was written. If it does not any more, the test takes
/// longer: it searches the others.
fn shown_before(mutant: ReplicaMutant) -> &'static str {
    use ReplicaMutant as Error;
    match mutant {
        Error::AnswersAtOnce | Error::ReadsUnfinished => "slice-crash",
        Error::EnteringUncounted
        | Error::EntersEarly
        | Error::LiveUnsent
        | Error::GateNotAwaited => "slice-restart",
        Error::EntersUncommitted => "slice-enter-crash",
        Error::OrderIgnored => "slice-pair",
        Error::AnyTerm => "slice-hand-over-twice",
        Error::TailsNotAwaited | Error::TailsNotRepaired => "slice-crash-three",
        Error::RoomIgnored | Error::EvictsAlone => "slice-full",
        Error::BeginKeeps => "slice-return",
        Error::FlushesAlone => "slice-flush",
        Error::NeverResends => "slice-loss",
        Error::CopiesKept | Error::Unguarded | Error::AcksUncommitted => "copies-crash",
        Error::DropUnacknowledged => "copies-cools",
        Error::HiddenLate => "copies-pair",
        Error::GuardedLate => "copies-next-view",
        Error::DroppedBesideRound | Error::LateRejected => "copies-again-next-view",
        Error::TakesBeside => "copies-cools-loss",
        Error::ValidatesEarly => "copies-pair",
        Error::SessionGoesBack => "copies-sc-pair",
        Error::PromiseKept => "slice-full-crash",
    }
}

/// Goal: every planted error in how accepted writes are treated is found by a model that has some.
#[test]
fn every_planted_error_about_accepted_writes_is_found() {
    for error in AcceptMutant::ALL {
        let accept_mutant = Some(error);
        let mut models = SLICE_MODELS.iter().filter(|setup| setup.accepts);
        let found = models.find_map(|setup| {
            let setup = SliceSetup {
                accept_mutant,
                ..*setup
            };
            let outcome = search(&setup, Limits::default(), |_| ControlFlow::Continue(()));
            outcome.fault.map(|fault| (setup.name, fault.fault))
        });
        println!("{error:?}: {found:?}");
        assert!(found.is_some(), "{error:?} lives");
    }
}

#[test]
fn every_quick_model_of_slices_is_searched_to_the_end() {
    assert_right(quick_models(), 3_000_000);
}

/// Goal: what no small model can show is not there in larger clusters. Method: random walks through
/// clusters of three to five nodes, with up to twelve requests, several faults of each kind, and
/// stores that fill up; each goes on until nothing more can happen.
#[test]
fn random_walks_through_larger_clusters_find_nothing() {
    let runs = std::env::var("CURTAIL_WALKS").map_or(2_000, |runs| runs.parse().unwrap());
    let first = std::env::var("CURTAIL_WALK_SEED").map_or(0, |seed| seed.parse().unwrap());
    let (mut seen, mut ended) = (0, 0);
    for seed in first..first + runs {
        let mut random = Random::new(seed);
        let setup = random_setup(&mut random);
        let (fault, steps, witnesses, is_end) = walk(&setup, &mut random);
        (seen, ended) = (seen | witnesses, ended + u64::from(is_end));
        let told = &steps[steps.len().saturating_sub(60)..];
        assert!(
            fault.is_none(),
            "seed {seed}: {fault:?} in {setup:?}\n{}",
            told.join("\n")
        );
    }
    println!("{ended} of {runs} walks came to an end, having seen {seen:#b}");
    let all = DRAINED | ANSWERED | LOST | ENTERED | TOOK_OVER | EVICTED | EXITED | SHARED;
    assert!(
        seen == all && ended * 10 > runs * 9,
        "{seen:#b}, {ended} of {runs}"
    );
}

const KEYS: &[RouteHash] = &[
    RouteHash(1),
    RouteHash(1 << 62),
    RouteHash(u64::MAX / 2 + 1),
];

fn random_setup(random: &mut Random) -> SliceSetup {
    let mut below = |bound: u64| random.below(bound);
    let nodes = 3 + below(3) as u8;
    let kinds = [Kind::Get, Kind::Get, Kind::Set, Kind::Append, Kind::Delete];
    let is_sc = below(3) == 0;
    let operations = (0..12).map(|_| {
        let kind = kinds[below(5) as usize];
        (kind, below(KEYS.len() as u64) as usize)
    });
    let operations: Vec<_> = operations.collect();
    let wants = (0..6).map(|_| {
        let (slice, node) = (SliceId(below(2) as u16), NodeId(below(nodes.into()) as u8));
        let steps = [
            RowStep::Hold(node),
            RowStep::HandOver(node),
            RowStep::Exit(node),
        ];
        (slice, steps[below(3) as usize])
    });
    let wants: Vec<_> = wants.collect();
    SliceSetup {
        name: "walk",
        nodes,
        slices: 2,
        replicas: 1 + below(3) as u8,
        keys: KEYS,
        operations: operations.leak(),
        done_before: 0,
        capacity: if is_sc { 0 } else { below(4) },
        asked: u8::MAX,
        wants: wants.leak(),
        suspects: below(2) == 0,
        accepts: !is_sc && below(2) == 0,
        model: if is_sc { Agreement::Sc } else { Agreement::Lin },
        faults: SliceFaults {
            losses: below(4) as u8,
            duplicates: below(3) as u8,
            crashes: if is_sc { 0 } else { below(2) as u8 },
            restarts: below(3) as u8,
            evictions: if is_sc { 0 } else { below(2) as u8 },
            flushes: if is_sc { 0 } else { below(2) as u8 },
            heats: below(3) as u8,
            cools: below(2) as u8,
        },
        sees: 0,
        is_deep: false,
        mutant: None,
        accept_mutant: None,
    }
}

/// One walk: what went wrong, the steps, what was seen, and whether it came to an end.
fn walk(setup: &SliceSetup, random: &mut Random) -> (Option<&'static str>, Vec<String>, u32, bool) {
    let (mut world, mut steps, mut seen) = (setup.start(), Vec::new(), 0);
    let mut actions = Vec::new();
    let mut still = 0;
    for _ in 0..3_000 {
        actions.clear();
        setup.actions(&world, &mut actions);
        if actions.is_empty() {
            break;
        }
        let action = actions[random.below(actions.len() as u64) as usize];
        let next = setup.next(&world, &action);
        steps.push(setup.describe(&world, &action));
        seen |= next.notes.seen;
        let same = fingerprint_of(&next) == fingerprint_of(&world);
        still = if same { still + 1 } else { 0 };
        world = next;
        if let Some(fault) = world.notes.fault {
            return (Some(fault), steps, seen, true);
        }
        // Timers that change nothing go on for ever.
        if still > 40 {
            let here = fingerprint_of(&world);
            let stays = |action| fingerprint_of(&setup.next(&world, action)) == here;
            actions.clear();
            setup.actions(&world, &mut actions);
            if actions.iter().all(stays) {
                actions.clear();
                break;
            }
            still = 0;
        }
    }
    let is_end = actions.is_empty();
    let fault = setup.fault_at_end(&world).filter(|_| is_end);
    (fault, steps, seen, is_end)
}

/// Goal: a write of a hot key that is under way in a view change happens once. Method: the primary
/// takes it, a copy of the message arrives in the next view before the acknowledgement does, and a
/// removal is answered in between. A primary that rejects what it has taken makes it happen again.
#[test]
fn a_write_that_outlives_its_view_happens_once() {
    assert_eq!(write_outlives_view(None), None);
    let fault = write_outlives_view(Some(ReplicaMutant::LateRejected));
    assert!(fault.is_some(), "the planted error shows");
}

fn write_outlives_view(mutant: Option<ReplicaMutant>) -> Option<&'static str> {
    let setup = &SliceSetup {
        mutant,
        operations: &[(Kind::Set, 0), (Kind::Delete, 0), (Kind::Get, 0)],
        asked: 3,
        ..model("copies-next-view")
    };
    let world = &mut setup.start();
    act(setup, world, &["key 0 becomes hot"]);
    deliver(setup, world, &[]);
    act(setup, world, &["request 1", "to node 1"]);
    act(setup, world, &["invalidate", "once more"]);
    deliver(setup, world, &["invalidate", "has arrived"]);
    act(setup, world, &["is to propose"]);
    act(setup, world, &["accepts the proposal"]);
    act(setup, world, &["node 0 adopts"]);
    act(setup, world, &["node 1 adopts"]);
    deliver(setup, world, &["has arrived", "is rejected"]);
    act(setup, world, &["request 2", "to node 0, which begins it"]);
    act(setup, world, &["executes request 2"]);
    deliver(setup, world, &["has arrived"]);
    act(setup, world, &["request 3", "to node 0, which begins it"]);
    act(setup, world, &["node 0 executes request 3"]);
    deliver(setup, world, &[]);
    world.notes.fault.or_else(|| setup.fault_at_end(world))
}

/// Goal: people can read the path to a fault. Method: the whole path to a planted error, which the
/// guide (`docs/guide/check.md`) shows too.
#[test]
fn the_path_to_a_fault_is_in_words() {
    let setup = SliceSetup {
        mutant: Some(ReplicaMutant::DropUnacknowledged),
        ..model("copies-cools")
    };
    let limits = Limits {
        threads: 1,
        ..Limits::default()
    };
    let outcome = search(&setup, limits, |_| ControlFlow::Continue(()));
    let path = outcome.fault.unwrap().steps.join("\n");
    let path = path.replace("; ", "\n  ");
    assert_eq!(path, PATH);
    let guide = include_str!("../../../../docs/guide/check.md");
    for line in PATH.lines() {
        assert!(guide.contains(line.trim()), "not in the guide: {line}");
    }
}

const PATH: &str = "\
key 0 becomes hot
node 0: all requests that it had begun in slice 0 have ended
node 0 -> node 1: install a copy of key 0, version 2 of node 0 (view 1): no item
node 1 -> node 0: key 0, version 2 of node 0, has arrived (view 1)
key 0 ceases to be hot
a client sends request 1 (set key 0) to node 0
  request 1 is answered: stored
a client sends request 2 (get key 0) to node 1
node 0 -> node 1: the copy of key 0, version 2 of node 0, is valid (view 1)
  request 2 is answered: no item";

/// Does the first thing that can be done whose description has all these words; nothing after a
/// fault.
fn act(setup: &SliceSetup, world: &mut SliceWorld, words: &[&str]) {
    let has = |text: &str| words.iter().all(|word| text.contains(word));
    let done = world.notes.fault.is_some() || act_if(setup, world, has);
    assert!(done, "{words:?} cannot be done");
}

/// Delivers all that is on its way, but for what has one of these words.
fn deliver(setup: &SliceSetup, world: &mut SliceWorld, kept: &[&str]) {
    let goes = |text: &str| {
        let is_kept = kept.iter().any(|word| text.contains(word));
        let behind_node = text.strip_prefix("node ").and_then(|text| text.get(1..));
        let is_delivery =
            behind_node.is_some_and(|text| text.starts_with(" -> node ") || text.starts_with(": "));
        is_delivery && !text.contains("once more") && !is_kept
    };
    while act_if(setup, world, goes) {}
}

fn act_if(setup: &SliceSetup, world: &mut SliceWorld, fits: impl Fn(&str) -> bool) -> bool {
    let mut actions = Vec::new();
    setup.actions(world, &mut actions);
    for action in &actions {
        let next = setup.next(world, action);
        let text = setup.describe(world, action);
        if fits(&text) {
            println!("{text}");
            *world = next;
            return true;
        }
    }
    false
}
