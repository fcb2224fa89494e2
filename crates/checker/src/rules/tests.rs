//! Searches the models of rules, and models with planted errors.

use super::{RULE_MODELS, RuleSetup};
use crate::search::tests::{assert_found, assert_right};

/// Goal: every planted error of the controller is found by some model. Method: each is searched for
/// in all of them.
#[test]
fn every_planted_error_of_a_controller_is_found() {
    assert_found(RuleSetup::mutants().map(|(_, name)| (name, RULE_MODELS.iter().collect())));
}

#[test]
fn every_model_of_rules_is_searched_to_the_end() {
    assert_right(RULE_MODELS.iter(), 1_500_000);
}
