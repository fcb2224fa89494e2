//! Searches the models of rules, and models with planted errors.

use super::{RULE_MODELS, RuleSetup};
use crate::search::tests::{assert_found, assert_right};

/// Goal: every planted error of the controller is found by some model. Method: each is searched for
/// in all of them.
#[test]
fn every_planted_error_of_a_controller_is_found() {
    assert_found(RuleSetup::mutants().map(|(mutant, name)| {
        let mutant = Some(mutant);
        let models = RULE_MODELS.iter();
        (
            name,
            models.map(move |setup| (setup.name, RuleSetup { mutant, ..*setup })),
        )
    }));
}

#[test]
fn every_model_of_rules_is_searched_to_the_end() {
    let models = RULE_MODELS.iter().map(|setup| (setup.name, setup));
    assert_right(models, 1_500_000, RuleSetup::unseen);
}
