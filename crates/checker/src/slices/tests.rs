use std::ops::ControlFlow;

use super::SLICE_MODELS;
use crate::search::{Limits, search};

#[test]
fn every_quick_model_of_slices_is_searched_to_the_end() {
    let mut failed = Vec::new();
    for setup in SLICE_MODELS.iter().filter(|setup| !setup.is_deep) {
        let outcome = search(
            setup,
            Limits {
                states_max: 1_000_000,
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
