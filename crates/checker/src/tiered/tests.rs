//! Searches the models of tiers, and models with planted errors.

use std::ops::ControlFlow;

use super::{TIER_MODELS, TierModelMutant, TierSetup};
use crate::search::tests::assert_right;
use crate::search::{Limits, search};

/// Goal: every planted error of the machines and of their drivers is found by some model. Method:
/// each is searched for in the quick models, the one that showed it before first, until one shows
/// it.
#[test]
fn every_planted_error_of_a_tier_is_found() {
    let finds = |mutant: TierModelMutant, before: &str| {
        let quick = TIER_MODELS.iter().filter(|setup| !setup.is_deep);
        let mut order: Vec<_> = quick.collect();
        order.sort_by_key(|setup| setup.name != before);
        order.into_iter().find_map(|setup| {
            let setup = TierSetup {
                mutant: Some(mutant),
                ..*setup
            };
            let outcome = search(&setup, Limits::default(), |_| ControlFlow::Continue(()));
            outcome.fault.map(|fault| (setup.name, fault.fault))
        })
    };
    let mut missed = Vec::new();
    for (mutant, name) in TierSetup::mutants() {
        let found = finds(mutant, shown_before(&name));
        println!("{name}: {found:?}");
        if found.is_none() {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// The model that showed an error when this was written. If it does not any more, the test takes
/// longer: it searches the others.
fn shown_before(mutant: &str) -> &'static str {
    match mutant.trim_start_matches("tiered-") {
        "no-generation"
        | "lease-from-reply"
        | "lease-ignored"
        | "session-reused"
        | "queue-lost"
        | "reads-by-old-clock"
        | "session-unchecked"
        | "receives-by-old-clock" => "tiered-cache-crash",
        "writes-after-restart" | "reads-after-restart" => "tiered-back-end-crash",
        "flushes-at-once" | "renews-while-flushing" => "tiered-flush",
        "flushes-after-restart" => "tiered-flush-crash",
        "first-acknowledgement" | "updates-together" | "sent-in-round" => "tiered-group",
        "reassigns-at-once" => "tiered-other-cache",
        "forgets-when-full" => "tiered-full",
        "order-ignored" => "tiered-late",
        "never-resends" => "tiered-loss",
        _ => "tiered-updates",
    }
}

#[test]
fn every_quick_model_of_tiers_is_searched_to_the_end() {
    let quick = TIER_MODELS.iter().filter(|setup| !setup.is_deep);
    let models = quick.map(|setup| (setup.name, setup));
    assert_right(models, 1_500_000, TierSetup::unseen);
}
