//! Searches the models of slices, and models with planted errors.

use std::ops::ControlFlow;

use curtail_consistency::replica::ReplicaMutant;

use super::{SLICE_MODELS, SliceSetup};
use crate::search::{Limits, search};

/// Goal: every planted error of the machine is found by some model. Method: each is searched for in
/// the quick models, until one shows it.
#[test]
fn every_planted_error_of_a_replica_is_found() {
    let finds = |mutant: ReplicaMutant| {
        let quick = SLICE_MODELS.iter().filter(|setup| !setup.is_deep);
        quick.clone().find_map(|setup| {
            let setup = SliceSetup {
                mutant: Some(mutant),
                ..*setup
            };
            let outcome = search(&setup, Limits::default(), |_| ControlFlow::Continue(()));
            outcome.fault.map(|fault| (setup.name, fault.fault))
        })
    };
    let found = ReplicaMutant::ALL.map(|mutant| (mutant, finds(mutant)));
    for (mutant, found) in &found {
        println!("{mutant:?}: {found:?}");
    }
    let missed: Vec<_> = found.iter().filter(|(_, found)| found.is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn every_quick_model_of_slices_is_searched_to_the_end() {
    let mut failed = Vec::new();
    for setup in SLICE_MODELS.iter().filter(|setup| !setup.is_deep) {
        let outcome = search(
            setup,
            Limits {
                states_max: 3_000_000,
                ..Limits::default()
            },
            |_| ControlFlow::Continue(()),
        );
        let (states, took) = (outcome.progress.states, outcome.took);
        println!("{}: {states} states, {took:?}", setup.name);
        if let Some(fault) = &outcome.fault {
            failed.push(format!(
                "{}: {}\n{}",
                setup.name,
                fault.fault,
                fault.steps.join("\n")
            ));
        } else if outcome.witnesses & setup.sees != setup.sees || !outcome.ends {
            failed.push(format!(
                "{}: saw {:#b} of {:#b}",
                setup.name, outcome.witnesses, setup.sees
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
