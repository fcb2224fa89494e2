//! The models hold, and every planted error is found.

use crate::Mutant::{Driver, Machine};
use crate::{Cluster, DriverMutant, Limits, MODELS, MachineMutant, Mutant, Outcome, Setup, search};

fn model(name: &str) -> Setup {
    let found = MODELS.iter().find(|setup| setup.name == name);
    *found.unwrap_or_else(|| panic!("no model is called {name}"))
}

fn run(setup: Setup, mutant: Option<Mutant>) -> Outcome {
    search(&Cluster { setup, mutant }, Limits::default(), |_| {})
}

fn holds(setup: Setup) {
    let outcome = run(setup, None);
    let name = setup.name;
    assert!(outcome.fault.is_none(), "{name}: {:#?}", outcome.fault);
    assert!(outcome.is_complete, "{name}");
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

#[test]
fn planted_errors_are_found() {
    for &(mutant, name) in QUICK {
        is_found(mutant, name);
    }
}

#[test]
#[ignore = "takes long"]
fn planted_errors_that_hide_are_found() {
    for &(mutant, name) in SLOW {
        is_found(mutant, name);
    }
}

#[test]
fn every_planted_error_has_a_model() {
    for mutant in Mutant::all() {
        let mut all = QUICK.iter().chain(SLOW);
        assert!(all.any(|one| one.0 == mutant), "{mutant:?}");
    }
}

const QUICK: &[(Mutant, &str)] = &[
    (Machine(MachineMutant::AckWithoutSender), "lin"),
    (Machine(MachineMutant::AckBeforePublish), "lin-readers"),
    (Machine(MachineMutant::NoReplay), "lin-crash"),
    (Machine(MachineMutant::UpdateStepTwo), "lin-append"),
    (Machine(MachineMutant::SetDropped), "lin"),
    (Machine(MachineMutant::AnyActivation), "promote-again-wide"),
    (Machine(MachineMutant::DemotionWithoutAcks), "promote-set"),
    (Machine(MachineMutant::AbsentAcknowledged), "promote-set"),
    (Machine(MachineMutant::DoubtfulServed), "promote-home-crash"),
    (Machine(MachineMutant::OlderUpdateTaken), "sc"),
    (Machine(MachineMutant::NoAntiEntropy), "sc"),
    (Machine(MachineMutant::SeenForgotten), "sc-promote"),
    (Machine(MachineMutant::ValidateAnother), "lin-readers"),
    (Driver(DriverMutant::NoWriteBack), "promote-set"),
    (Driver(DriverMutant::ReaderLooksOnce), "lin"),
    (Driver(DriverMutant::HomeReadsBesideEntry), "lin-readers"),
    (Driver(DriverMutant::AnswersWithoutLease), "lin-lease"),
];

/// These take long to show, or do not show yet in any model that is here: see the guide.
const SLOW: &[(Mutant, &str)] = &[
    (Machine(MachineMutant::UpdateAcknowledged), "lin-appends"),
    (
        Machine(MachineMutant::EarlierAcknowledged),
        "lin-append-wide",
    ),
    (Machine(MachineMutant::UpdateHelped), "lin-append-loss"),
    (Machine(MachineMutant::AnyView), "lin-join"),
];
