//! The search finds the errors that are planted in models of a few numbers.

use std::ops::ControlFlow;

use super::{Limits, Model, ModelState, Outcome, search};
use crate::setup::Checked;
use crate::step_notes::StepNotes;

/// Each of these models is searched to the end, is right, and shows all that it is there for.
pub(crate) fn assert_right<'a, M: Checked + 'a>(
    models: impl Iterator<Item = &'a M>,
    states_max: usize,
) {
    let limits = Limits {
        states_max,
        ..Limits::default()
    };
    let mut failed = Vec::new();
    for model in models {
        let name = model.name();
        let outcome = model.search(None, limits, &mut |_| ControlFlow::Continue(()));
        let (states, took) = (outcome.progress.states, outcome.took);
        println!("{name}: {states} states, {took:?}");
        let unseen = model.unseen(&outcome);
        if let Some(fault) = &outcome.fault {
            let steps = fault.steps.join("\n");
            failed.push(format!("{name}: {}\n{steps}", fault.fault));
        } else if !unseen.is_empty() || !outcome.ends {
            failed.push(format!("{name}: {unseen:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Each of these errors is found in one of its models.
pub(crate) fn assert_found<'a, M: Checked + 'a>(
    planted: impl Iterator<Item = (String, Vec<&'a M>)>,
) {
    let mut missed = Vec::new();
    for (error, models) in planted {
        let found = models.into_iter().find_map(|model| {
            let goes_on = &mut |_| ControlFlow::Continue(());
            let outcome = model.search(Some(&error), Limits::default(), goes_on);
            outcome.fault.map(|fault| (model.name(), fault.fault))
        });
        println!("{error}: {found:?}");
        missed.extend(found.is_none().then_some(error));
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Numbers that can be counted up by one or two, up to a hundred.
#[derive(Clone, Copy, Default)]
struct Counting {
    /// Is wrong.
    fault: Option<u8>,
    /// Leads nowhere but to its neighbour, and that one back.
    trap: Option<u8>,
    /// Is wrong only if it is where things end.
    wrong_end: bool,
}

/// A number, and what is wrong with it.
#[derive(Clone, Default, Hash)]
struct Number(u8, StepNotes);

impl ModelState for Number {
    fn notes(&mut self) -> &mut StepNotes {
        &mut self.1
    }
}

impl Model for Counting {
    type State = Number;
    type Action = u8;

    fn start(&self) -> Number {
        Number::default()
    }

    fn actions(&self, state: &Number, actions: &mut Vec<u8>) {
        match self.trap {
            Some(trap) if state.0 == trap => actions.push(200),
            Some(trap) if state.0 == 200 => actions.push(trap),
            _ => {
                let next = [state.0 + 1, state.0 + 2];
                actions.extend(next.into_iter().filter(|next| *next <= 100));
            }
        }
    }

    fn act(&self, state: &mut Number, action: &u8) {
        state.0 = *action;
    }

    fn settle(&self, _before: &Number, state: &mut Number) {
        state.1.seen = u32::from(state.0 == 50);
        if self.fault == Some(state.0) {
            state.1.fail("planted");
        }
    }

    fn fault_at_end(&self, _state: &Number) -> Option<&'static str> {
        self.wrong_end.then_some("the wrong end")
    }

    fn in_words(&self, _before: &Number, action: &u8) -> String {
        action.to_string()
    }
}

fn run(model: Counting) -> Outcome {
    search(&model, Limits::default(), |_| ControlFlow::Continue(()))
}

#[test]
fn every_state_is_seen_once() {
    let outcome = run(Counting::default());
    assert!(outcome.is_complete && outcome.ends && outcome.fault.is_none());
    assert_eq!(outcome.progress.states, 101);
    assert_eq!(outcome.progress.depth, 50);
    assert_eq!(outcome.witnesses, 1);
}

#[test]
fn the_way_to_a_fault_is_a_shortest_one() {
    let fault = Some(7);
    let outcome = run(Counting {
        fault,
        ..Default::default()
    });
    let found = outcome.fault.expect("planted");
    assert_eq!((found.fault.as_str(), found.steps.len()), ("planted", 4));
    assert_eq!(found.steps.last().map(String::as_str), Some("7"));
}

#[test]
fn a_circle_that_nothing_leads_out_of_is_a_fault() {
    let trap = Some(9);
    let outcome = run(Counting {
        trap,
        ..Default::default()
    });
    let found = outcome.fault.expect("planted");
    assert_eq!(found.steps.last().map(String::as_str), Some("9"));
    assert!(!outcome.ends);
}

#[test]
fn an_end_may_be_wrong() {
    let outcome = run(Counting {
        wrong_end: true,
        ..Default::default()
    });
    assert_eq!(outcome.fault.expect("planted").fault, "the wrong end");
}

#[test]
fn too_many_steps_leave_open_whether_there_is_an_end() {
    let limits = Limits {
        steps_max: 10,
        ..Limits::default()
    };
    let outcome = search(&Counting::default(), limits, |_| ControlFlow::Continue(()));
    assert!(outcome.is_complete && !outcome.ends && outcome.fault.is_none());
}

/// Goal: a search that is broken off says how far it came, and claims nothing about the rest.
#[test]
fn a_search_that_is_broken_off_is_not_complete() {
    let outcome = search(&Counting::default(), Limits::default(), |progress| {
        match progress.depth < 5 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    assert!(!outcome.is_complete && !outcome.ends && outcome.fault.is_none());
    assert!((6..101).contains(&outcome.progress.states), "{outcome:?}");
}
