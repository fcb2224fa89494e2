//! Searches the models of tiers, and models with planted errors.

use super::{TIER_MODELS, TierAction, TierFaults, TierSetup};
use crate::search::Model as _;
use crate::search::tests::{assert_found, assert_right};

/// Goal: every planted error of the machines and of their drivers is found by some model. Method:
/// each is searched for in the quick models, the one that showed it before first, until one shows
/// it.
#[test]
fn every_planted_error_of_a_tier_is_found() {
    assert_found(TierSetup::mutants().map(|(_, name)| {
        let before = shown_before(&name);
        let mut order: Vec<_> = quick_models().collect();
        order.sort_by_key(|setup| setup.name != before);
        (name, order)
    }));
}

fn quick_models() -> impl Iterator<Item = &'static TierSetup> {
    TIER_MODELS.iter().filter(|setup| !setup.is_deep)
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
        "first-acknowledgement"
        | "updates-together"
        | "sent-in-round"
        | "serves-when-one-dropped" => "tiered-group",
        "revocation-any-number" => "tiered-group-evictions",
        "revocation-not-resent" => "tiered-group-loss",
        "acknowledged-in-any-session" => "tiered-cache-return",
        "reassigns-at-once" => "tiered-other-cache",
        "forgets-when-full" => "tiered-full",
        "order-ignored" => "tiered-late",
        "never-resends" => "tiered-loss",
        _ => "tiered-updates",
    }
}

#[test]
fn every_quick_model_of_tiers_is_searched_to_the_end() {
    assert_right(quick_models(), 2_000_000);
}

/// Goal: a restarted back end serves again, however little time a model gives. Method: a back end
/// that granted a lease of two units restarts in a model without time; two units pass.
#[test]
fn time_passes_while_a_restarted_back_end_waits_for_leases() {
    let setup = TierSetup {
        faults: TierFaults {
            back_end_crashes: 1,
            ..TierFaults::default()
        },
        ..TIER_MODELS[0]
    };
    let mut world = setup.start();
    assert!(!setup.may_pass(&world), "no time is left");
    for action in [TierAction::CrashBackEnd, TierAction::RestartBackEnd] {
        world = setup.next(&world, &action);
    }
    for _ in 0..2 {
        assert!(setup.may_pass(&world), "it waits for the lease");
        world = setup.next(&world, &TierAction::Pass);
    }
    assert!(!setup.may_pass(&world), "the lease has ended");
    let machine = world.back_end.machine.as_ref().unwrap();
    assert_eq!(machine.serves_from().ns, world.clocks[0]);
}
