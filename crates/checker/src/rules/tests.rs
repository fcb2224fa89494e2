//! Searches the models of rules, and models with planted errors.

use std::ops::ControlFlow;

use super::{RULE_MODELS, RuleSetup};
use crate::search::{Limits, search};

/// Goal: every planted error of the controller is found by some model. Method: each is searched for
/// in all of them.
#[test]
fn every_planted_error_of_a_controller_is_found() {
    let mut missed = Vec::new();
    for (mutant, name) in RuleSetup::mutants() {
        let found = RULE_MODELS.iter().find_map(|setup| {
            let setup = RuleSetup {
                mutant: Some(mutant),
                ..*setup
            };
            let outcome = search(&setup, Limits::default(), |_| ControlFlow::Continue(()));
            outcome.fault.map(|fault| (setup.name, fault.fault))
        });
        println!("{name}: {found:?}");
        if found.is_none() {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn every_model_of_rules_is_searched_to_the_end() {
    let mut failed = Vec::new();
    for setup in RULE_MODELS {
        let limits = Limits {
            states_max: 1_500_000,
            ..Limits::default()
        };
        let outcome = search(setup, limits, |_| ControlFlow::Continue(()));
        let (states, took) = (outcome.progress.states, outcome.took);
        println!("{}: {states} states, {took:?}", setup.name);
        if let Some(fault) = &outcome.fault {
            let steps = fault.steps.join("\n");
            failed.push(format!("{}: {}\n{steps}", setup.name, fault.fault));
        } else if !setup.unseen(&outcome).is_empty() || !outcome.ends {
            failed.push(format!("{}: {:?}", setup.name, setup.unseen(&outcome)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
