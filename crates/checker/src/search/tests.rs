//! The search finds the errors that are planted in models of a few numbers.

use std::ops::ControlFlow;

use super::{Limits, Model, Outcome, search};

/// Each of these models is searched to the end, is right, and shows all that it is there for.
pub(crate) fn assert_right<'a, M: Model + 'a>(
    models: impl Iterator<Item = (&'static str, &'a M)>,
    states_max: usize,
    unseen: impl Fn(&M, &Outcome) -> Vec<String>,
) {
    let limits = Limits {
        states_max,
        ..Limits::default()
    };
    let mut failed = Vec::new();
    for (name, model) in models {
        let outcome = search(model, limits, |_| ControlFlow::Continue(()));
        let (states, took) = (outcome.progress.states, outcome.took);
        println!("{name}: {states} states, {took:?}");
        let unseen = unseen(model, &outcome);
        if let Some(fault) = &outcome.fault {
            let steps = fault.steps.join("\n");
            failed.push(format!("{name}: {}\n{steps}", fault.fault));
        } else if !unseen.is_empty() || !outcome.ends {
            failed.push(format!("{name}: {unseen:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Each of these errors is found in one of the models that it is planted in.
pub(crate) fn assert_found<M: Model>(
    planted: impl Iterator<Item = (String, impl Iterator<Item = (&'static str, M)>)>,
) {
    let mut missed = Vec::new();
    for (error, mut models) in planted {
        let found = models.find_map(|(name, model)| {
            let outcome = search(&model, Limits::default(), |_| ControlFlow::Continue(()));
            outcome.fault.map(|fault| (name, fault.fault))
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

impl Model for Counting {
    type State = u8;
    type Packed = u8;
    type Pool = ();
    type Action = u8;

    fn start(&self) -> u8 {
        0
    }

    fn actions(&self, state: &u8, actions: &mut Vec<u8>) {
        match self.trap {
            Some(trap) if *state == trap => actions.push(200),
            Some(trap) if *state == 200 => actions.push(trap),
            _ => actions.extend(
                [state + 1, state + 2]
                    .into_iter()
                    .filter(|next| *next <= 100),
            ),
        }
    }

    fn next(&self, _state: &u8, action: &u8, _pool: &()) -> u8 {
        *action
    }

    fn fault(&self, state: &u8) -> Option<&'static str> {
        (self.fault == Some(*state)).then_some("planted")
    }

    fn fault_at_end(&self, _state: &u8) -> Option<&'static str> {
        self.wrong_end.then_some("the wrong end")
    }

    fn witnesses(&self, state: &u8) -> u32 {
        u32::from(*state == 50)
    }

    fn describe(&self, _before: &u8, action: &u8) -> String {
        action.to_string()
    }

    fn pack(&self, state: u8, _pool: &()) -> u8 {
        state
    }

    fn unpack(&self, packed: &u8) -> u8 {
        *packed
    }

    fn sweep(&self, _pool: &()) {}
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
