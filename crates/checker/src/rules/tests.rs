//! Searches the models of rules, and models with planted errors.

use std::ops::ControlFlow;

use super::{RULE_MODELS, RuleSetup};
use crate::search::tests::assert_right;
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
    let models = RULE_MODELS.iter().map(|setup| (setup.name, setup));
    assert_right(models, 1_500_000, RuleSetup::unseen);
}
