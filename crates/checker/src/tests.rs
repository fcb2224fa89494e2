//! The models hold, and every planted error is found.

use std::ops::ControlFlow;

use crate::Mutant::{Driver, Machine};
use crate::search::{Model, fingerprint_of};
use crate::{
    Cluster, DriverMutant, Limits, MODELS, MachineMutant, Mutant, Outcome, Pool, Setup, search,
};

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

fn is_found(mutant: Mutant, name: &str) {
    let outcome = run(model(name), Some(mutant));
    assert!(outcome.fault.is_some(), "{name} does not find {mutant:?}");
    let found = outcome.fault.unwrap_or_else(|| panic!("just looked"));
    println!(
        "{mutant:?} in {name}: {}, {} steps",
        found.fault,
        found.steps.len()
    );
}

/// What every planted error does, some model sees.
#[test]
fn planted_errors_are_found() {
    for &(mutant, name) in FINDERS {
        is_found(mutant, name);
    }
}

#[test]
#[ignore = "takes long"]
fn planted_errors_that_hide_are_found() {
    for &(mutant, name) in SLOW_FINDERS {
        is_found(mutant, name);
    }
}

/// Goal: every model of deaths during moves can fail. Method: an error for each.
#[test]
fn deaths_during_moves_are_judged() {
    for &(name, mutant) in DYING {
        is_found(mutant, name);
    }
}

/// Goal: every model of deletes under SC, of deaths of a holder, and of leases can fail. Method: an
/// error for each.
#[test]
fn deletes_and_leases_are_judged() {
    for &(name, mutant) in DELETING {
        is_found(mutant, name);
    }
}

#[test]
fn every_planted_error_has_a_model() {
    for mutant in Mutant::all() {
        let mut finders = FINDERS.iter().chain(SLOW_FINDERS);
        assert!(finders.any(|one| one.0 == mutant), "{mutant:?}");
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

/// The model that finds an error soonest.
const FINDERS: &[(Mutant, &str)] = &[
    (Machine(MachineMutant::AckWithoutSender), "lin-home-crash"),
    (Machine(MachineMutant::AckBeforePublish), "lin-rejoin-pair"),
    (Machine(MachineMutant::ValidateAnother), "lin-appends-pair"),
    (Machine(MachineMutant::NoReplay), "lin-rejoin-pair"),
    (Machine(MachineMutant::UpdateStepTwo), "lin-appends-pair"),
    (
        Machine(MachineMutant::UpdateAcknowledged),
        "lin-appends-pair",
    ),
    (
        Machine(MachineMutant::EarlierAcknowledged),
        "lin-update-pair",
    ),
    (Machine(MachineMutant::UpdateHelped), "lin-append-pair"),
    (Machine(MachineMutant::SetDropped), "lin-appends-pair"),
    (Machine(MachineMutant::AnyActivation), "promote-again"),
    (Machine(MachineMutant::DemotionWithoutAcks), "promote-pair"),
    (Machine(MachineMutant::AbsentAcknowledged), "lin-join-pair"),
    (
        Machine(MachineMutant::DoubtfulServed),
        "promote-home-crash-pair",
    ),
    (Machine(MachineMutant::OlderUpdateTaken), "sc"),
    (Machine(MachineMutant::NoAntiEntropy), "sc"),
    (Machine(MachineMutant::SeenForgotten), "sc-promote"),
    (
        Machine(MachineMutant::LateUpdateDropped),
        "sc-move-promote-away",
    ),
    (Machine(MachineMutant::HomeUnasked), "move-promote-away"),
    (
        Machine(MachineMutant::AnyView),
        "sc-move-hot-crash-demotion",
    ),
    (
        Machine(MachineMutant::LateUpdateBegins),
        "sc-move-promote-crash",
    ),
    (
        Machine(MachineMutant::LostAwaited),
        "sc-move-hot-crash-pair",
    ),
    (Machine(MachineMutant::HeirDoubts), "move-hot-crash-pair"),
    (
        Machine(MachineMutant::RemovedForgotten),
        "cold-delete-three",
    ),
    (Driver(DriverMutant::NoWriteBack), "promote-again"),
    (Driver(DriverMutant::ReaderLooksOnce), "lin"),
    (
        Driver(DriverMutant::HomeReadsBesideEntry),
        "lin-update-pair",
    ),
    (Driver(DriverMutant::AnswersWithoutLease), "lin-lease"),
    (Driver(DriverMutant::ServesBeforeArrival), "move"),
    (Driver(DriverMutant::GivesWhileServing), "move"),
    (Driver(DriverMutant::KeepsWhatItSent), "move-crash"),
    (Driver(DriverMutant::TakesUnawaited), "move-crash"),
    (Driver(DriverMutant::ForgetsRemoved), "move-holders"),
    (Driver(DriverMutant::PassesUnsettled), "move-holders-set"),
    (Driver(DriverMutant::EndsUnseen), "move"),
    (Driver(DriverMutant::SweepsNever), "move-holders-crash"),
    (
        Driver(DriverMutant::TakesShownForSent),
        "move-holders-promote-die",
    ),
    (Driver(DriverMutant::ChangesHotWhileMoving), "move-promote"),
    (Driver(DriverMutant::SendsOnWithoutSeen), "sc-move-hot-wide"),
];

/// Models in which a node dies while keys move and the hot set changes, and an error that each
/// finds besides: so each of them can fail.
const DYING: &[(&str, Mutant)] = &[
    ("move-hot-crash-get", Machine(MachineMutant::HeirDoubts)),
    (
        "move-hot-crash-demotion",
        Machine(MachineMutant::DoubtfulServed),
    ),
    ("move-promote-crash", Driver(DriverMutant::KeepsWhatItSent)),
    (
        "move-promote-away-crash",
        Machine(MachineMutant::DoubtfulServed),
    ),
    (
        "sc-move-hot-crash-loss",
        Machine(MachineMutant::LostAwaited),
    ),
    (
        "sc-move-promote-away-crash",
        Machine(MachineMutant::LostAwaited),
    ),
];

/// Models in which something is deleted under SC while keys move, or a node dies meanwhile that
/// holds the key with others, and models of leases under SC and of promotions: so each can fail.
const DELETING: &[(&str, Mutant)] = &[
    (
        "sc-move-hot-delete",
        Machine(MachineMutant::OlderUpdateTaken),
    ),
    (
        "sc-move-promote-delete",
        Driver(DriverMutant::KeepsWhatItSent),
    ),
    (
        "sc-move-promote-away-delete",
        Driver(DriverMutant::NoWriteBack),
    ),
    (
        "sc-move-holders-delete",
        Driver(DriverMutant::ForgetsRemoved),
    ),
    (
        "sc-move-holders-promote-die",
        Driver(DriverMutant::TakesShownForSent),
    ),
    (
        "sc-move-holders-hot-crash",
        Machine(MachineMutant::HeirDoubts),
    ),
    ("cold-lease", Driver(DriverMutant::AnswersWithoutLease)),
    ("sc-lease", Driver(DriverMutant::AnswersWithoutLease)),
    (
        "promote-home-lease-pair",
        Driver(DriverMutant::AnswersWithoutLease),
    ),
];

/// These take long to show: millions of states.
const SLOW_FINDERS: &[(Mutant, &str)] = &[
    (
        Driver(DriverMutant::GivesUnsettled),
        "move-holders-append-wide",
    ),
    (
        Machine(MachineMutant::DemotionWithoutAcks),
        "sc-move-holders-crash-set",
    ),
];
