//! The models hold, and every planted error is found.

use std::ops::ControlFlow;

use crate::search::{Model, fingerprint_of};
use crate::{Cluster, Limits, MODELS, Mutant, Outcome, Pool, Setup, search};

fn model(name: &str) -> Setup {
    let found = MODELS.iter().find(|setup| setup.name == name);
    *found.unwrap_or_else(|| panic!("no model is called {name}"))
}

fn run(setup: Setup, mutant: Option<Mutant>) -> Outcome {
    search(&cluster(setup, mutant), Limits::default(), |_| {
        ControlFlow::Continue(())
    })
}

fn cluster(setup: Setup, mutant: Option<Mutant>) -> Cluster {
    let keeps_past = false;
    Cluster {
        setup,
        mutant,
        keeps_past,
    }
}

fn holds(setup: Setup) {
    let outcome = run(setup, None);
    let name = setup.name;
    assert!(outcome.fault.is_none(), "{name}: {:#?}", outcome.fault);
    assert!(outcome.is_complete, "{name}");
    assert!(outcome.ends || setup.is_deep, "{name}");
    for witness in setup.sees {
        assert!(outcome.saw(*witness), "{name} does not see {witness:?}");
    }
    println!("{name}: {:?}, {:?}", outcome.progress, outcome.took);
}

/// Every state of every model that does not take long, on the machine that the server runs.
#[test]
fn models_hold() {
    MODELS
        .iter()
        .filter(|setup| !setup.is_deep)
        .for_each(|setup| holds(*setup));
}

#[test]
#[ignore = "takes long"]
fn deep_models_hold() {
    MODELS
        .iter()
        .filter(|setup| setup.is_deep)
        .for_each(|setup| holds(*setup));
}

fn are_found(errors: &[(&str, &str)]) {
    for &(error, name) in errors {
        let mutant = Mutant::all().find(|mutant| mutant.name() == error);
        let mutant = mutant.unwrap_or_else(|| panic!("no error is called {error}"));
        let found = run(model(name), Some(mutant)).fault;
        let found = found.unwrap_or_else(|| panic!("{name} does not find {error}"));
        let steps = found.steps.len();
        println!("{error} in {name}: {}, {steps} steps", found.fault);
    }
}

/// What every planted error does, some model sees.
#[test]
fn planted_errors_are_found() {
    are_found(FINDERS);
}

#[test]
#[ignore = "takes long"]
fn planted_errors_that_hide_are_found() {
    are_found(SLOW_FINDERS);
}

/// Goal: every model of deaths during moves can fail. Method: an error for each.
#[test]
fn deaths_during_moves_are_judged() {
    are_found(DYING);
}

/// Goal: every model of deletes under SC, of deaths of a holder, and of leases can fail. Method: an
/// error for each.
#[test]
fn deletes_and_leases_are_judged() {
    are_found(DELETING);
}

#[test]
fn every_planted_error_has_a_model() {
    for mutant in Mutant::all() {
        let mut finders = FINDERS.iter().chain(SLOW_FINDERS);
        assert!(finders.any(|one| one.0 == mutant.name()), "{mutant:?}");
    }
}

/// What a state is packed into is that state: along one way through a model with everything in it.
#[test]
fn a_packed_state_is_the_same() {
    for name in [
        "promote-loss",
        "sc-promote",
        "lin-rejoin-pair",
        "lin",
        "cold-crash",
        "move-crash",
        "move-holders-loss",
    ] {
        let cluster = cluster(model(name), None);
        let (mut state, pool) = (cluster.start(), Pool::default());
        for step in 0..200 {
            let mut actions = Vec::new();
            cluster.actions(&state, &mut actions);
            if actions.is_empty() {
                break;
            }
            state = cluster.next(&state, &actions[step * 7 % actions.len()], &pool);
            let again = cluster.unpack(&cluster.pack(state.clone(), &pool));
            assert_eq!(
                format!("{:?}", state.parcels),
                format!("{:?}", again.parcels)
            );
            assert_eq!(
                fingerprint_of(&state),
                fingerprint_of(&again),
                "{name}, {step}"
            );
        }
    }
}

/// Goal: no reply is missed because a step looks only at what it changed. Method: along ways
/// through models in which messages repeat, all replies are looked for again.
#[test]
fn a_step_adds_every_reply() {
    for name in ["promote-again", "lin-update-pair", "lin-repeats", "promote"] {
        let cluster = cluster(model(name), None);
        let (mut state, pool) = (cluster.start(), Pool::default());
        for step in 0..400 {
            let mut actions = Vec::new();
            cluster.actions(&state, &mut actions);
            cluster.actions_if_still(&state, &mut actions);
            if actions.is_empty() {
                break;
            }
            state = cluster.next(&state, &actions[step * 7 % actions.len()], &pool);
            let mut before = state.clone();
            before.parcels.clear();
            let mut again = state.clone();
            cluster.add_replies(&before, &mut again, &pool);
            assert_eq!(state.parcels, again.parcels, "{name}, {step}");
        }
    }
}

/// Goal: nothing comes of what states are not kept apart by. Method: models with each of the things
/// that may be over, as they are and with every planted error, and the same with all that is over.
#[test]
fn what_is_over_makes_no_difference() {
    let names = [
        "lin-home-crash",
        "lin-rejoin-pair",
        "sc-home-crash-pair",
        "promote-home-crash-pair",
        "cold-promote-crash-pair",
        "move-hot-crash-pair",
        "move-hot",
        "move-away-crash",
    ];
    for name in names {
        for mutant in Mutant::all().map(Some).chain([None]) {
            let short = cluster(model(name), mutant);
            let keeps_past = true;
            let long = Cluster {
                keeps_past,
                ..short
            };
            let [short, long] = [short, long]
                .map(|one| search(&one, Limits::default(), |_| ControlFlow::Continue(())));
            let verdict = |outcome: &Outcome| outcome.fault.as_ref().map(|one| one.fault.clone());
            assert_eq!(
                verdict(&short).is_some(),
                verdict(&long).is_some(),
                "{name}, {mutant:?}: {:?}, {:?}",
                verdict(&short),
                verdict(&long)
            );
            assert_eq!(short.ends, long.ends, "{name}, {mutant:?}");
            assert!(
                short.progress.states <= long.progress.states || short.fault.is_some(),
                "{name}"
            );
        }
    }
}

/// Planted errors, and the model that finds each soonest.
const FINDERS: &[(&str, &str)] = &[
    ("ack-without-sender", "lin-home-crash"),
    ("ack-before-publish", "lin-rejoin-pair"),
    ("validate-another", "lin-appends-pair"),
    ("no-replay", "lin-rejoin-pair"),
    ("update-step-two", "lin-appends-pair"),
    ("update-acknowledged", "lin-appends-pair"),
    ("earlier-acknowledged", "lin-update-pair"),
    ("update-helped", "lin-append-pair"),
    ("set-dropped", "lin-appends-pair"),
    ("any-activation", "promote-again"),
    ("demotion-without-acks", "promote-pair"),
    ("absent-acknowledged", "lin-join-pair"),
    ("doubtful-served", "promote-home-crash-pair"),
    ("older-update-taken", "sc"),
    ("no-anti-entropy", "sc"),
    ("seen-forgotten", "sc-promote"),
    ("late-update-dropped", "sc-move-promote-away"),
    ("home-unasked", "move-promote-away"),
    ("any-view", "sc-move-hot-crash-demotion"),
    ("late-update-begins", "sc-move-promote-crash"),
    ("lost-awaited", "sc-move-hot-crash-pair"),
    ("heir-doubts", "move-hot-crash-pair"),
    ("removed-forgotten", "cold-delete-three"),
    ("no-write-back", "promote-again"),
    ("reader-looks-once", "lin"),
    ("home-reads-beside-entry", "lin-update-pair"),
    ("answers-without-lease", "lin-lease"),
    ("serves-before-arrival", "move"),
    ("gives-while-serving", "move"),
    ("keeps-what-it-sent", "move-crash"),
    ("takes-unawaited", "move-crash"),
    ("forgets-removed", "move-holders"),
    ("passes-unsettled", "move-holders-set"),
    ("ends-unseen", "move"),
    ("sweeps-never", "move-holders-crash"),
    ("takes-shown-for-sent", "move-holders-promote-die"),
    ("changes-hot-while-moving", "move-promote"),
    ("sends-on-without-seen", "sc-move-hot-wide"),
];

/// Models in which a node dies while keys move and the hot set changes, and before each an error
/// that it finds besides: so each of them can fail.
const DYING: &[(&str, &str)] = &[
    ("heir-doubts", "move-hot-crash-get"),
    ("doubtful-served", "move-hot-crash-demotion"),
    ("keeps-what-it-sent", "move-promote-crash"),
    ("doubtful-served", "move-promote-away-crash"),
    ("lost-awaited", "sc-move-hot-crash-loss"),
    ("lost-awaited", "sc-move-promote-away-crash"),
];

/// Models in which something is deleted under SC while keys move, or a node dies meanwhile that
/// holds the key with others, and models of leases under SC and of promotions: so each can fail.
const DELETING: &[(&str, &str)] = &[
    ("older-update-taken", "sc-move-hot-delete"),
    ("keeps-what-it-sent", "sc-move-promote-delete"),
    ("no-write-back", "sc-move-promote-away-delete"),
    ("forgets-removed", "sc-move-holders-delete"),
    ("takes-shown-for-sent", "sc-move-holders-promote-die"),
    ("heir-doubts", "sc-move-holders-hot-crash"),
    ("answers-without-lease", "cold-lease"),
    ("answers-without-lease", "sc-lease"),
    ("answers-without-lease", "promote-home-lease-pair"),
];

/// These take long to show: millions of states.
const SLOW_FINDERS: &[(&str, &str)] = &[
    ("gives-unsettled", "move-holders-append-wide"),
    ("demotion-without-acks", "sc-move-holders-crash-set"),
];
