//! Runs one step after the other: every rate, every target, every repetition.
//!
//! Targets take turns within a step, in an order that rotates, so that a machine that drifts
//! drifts for all of them.

use super::{
    arguments::Setting,
    document::{Document, Step},
    search::Search,
    slo::Verdict,
};
use crate::{
    drive::{Pace, Plan, measure},
    error::LoadError,
    preload::{self, Preloaded},
    terminal::Progress,
};

/// Stores every key in every target, and says so where nothing else will be said.
pub(super) fn preload(setting: &Setting, says_so: bool) -> Result<(), LoadError> {
    for (target, plan) in setting.targets.iter().zip(&setting.plans) {
        let Preloaded { refused } =
            preload::preload(&target.address, &plan.load, plan.threads, &setting.stop)?;
        let keys = plan.load.keys();
        if refused > 0 {
            eprintln!("{}: {refused} of {keys} keys were refused", target.label);
        } else if says_so {
            eprintln!("{}: {keys} keys stored", target.label);
        }
    }
    Ok(())
}

/// Runs everything and gathers it. Ended early, it gives what it has, if that is anything.
pub(super) fn run(setting: &Setting) -> Result<Document, LoadError> {
    let mut document = Document::new(setting);
    match setting.search {
        Some(range) => {
            let searches = setting.targets.iter().map(|_| Search::new(range)).collect();
            search(setting, searches, &mut document)?;
        }
        None => all(setting, &mut document)?,
    }
    document.conclude();
    if document.steps.is_empty() {
        return Err(LoadError::Arguments("ended before anything was run".into()));
    }
    Ok(document)
}

fn all(setting: &Setting, document: &mut Document) -> Result<(), LoadError> {
    let count = setting.targets.len();
    let total = setting.repeat * setting.paces.len() * count;
    for round in 0..setting.repeat {
        for (number, pace) in setting.paces.iter().enumerate() {
            for index in (0..count).map(|index| (index + number + round) % count) {
                if setting.stop.is_asked() {
                    return Ok(());
                }
                say(setting, index, pace, document.steps.len(), total);
                let step = step(setting, index, pace, round)?;
                document.add(step);
            }
        }
    }
    Ok(())
}

/// One run of every search in turn, until all are over.
fn search(
    setting: &Setting,
    mut searches: Vec<Search>,
    document: &mut Document,
) -> Result<(), LoadError> {
    let base = setting.paces.first().cloned();
    'over: loop {
        let mut ran = false;
        for (index, search) in searches.iter_mut().enumerate() {
            let Some(rate) = search.next() else {
                continue;
            };
            if setting.stop.is_asked() {
                break 'over;
            }
            ran = true;
            let mut pace = Pace::poisson(rate);
            if let (
                Pace::Open { is_constant, .. },
                Some(Pace::Open {
                    is_constant: wanted,
                    ..
                }),
            ) = (&mut pace, &base)
            {
                *is_constant = *wanted;
            }
            say(setting, index, &pace, document.steps.len(), 0);
            let step = step(setting, index, &pace, 0)?;
            // A run that was cut short says nothing about its rate.
            if !setting.stop.is_asked() {
                search.answer(step.verdict.clone().unwrap_or(Verdict::Met));
            }
            document.add(step);
        }
        if !ran {
            break;
        }
    }
    let found = setting.targets.iter().zip(&searches);
    document.searches = found
        .map(|(target, search)| (target.label.clone(), search.found()))
        .collect();
    Ok(())
}

fn step(setting: &Setting, index: usize, pace: &Pace, round: usize) -> Result<Step, LoadError> {
    let plan = Plan {
        pace: pace.clone(),
        seed: setting.plans[index].seed.wrapping_add(round as u64),
        ..setting.plans[index].clone()
    };
    let report = measure(&plan, &setting.sessions[index])?;
    let verdict = setting.slo.as_ref().map(|slo| slo.judge(&report));
    Ok(Step {
        target: setting.targets[index].label.clone(),
        round,
        slo: verdict.as_ref().map(Verdict::name),
        verdict,
        report,
    })
}

/// What is run now, where somebody watches.
fn say(setting: &Setting, index: usize, pace: &Pace, number: usize, total: usize) {
    let plan = &setting.plans[index];
    let rate = pace
        .rate(plan.warm_up, plan.duration)
        .map_or("closed loop".into(), |rate| format!("{rate:.0} requests/s"));
    let of = match total {
        0 => String::new(),
        total => format!(" of {total}"),
    };
    let label = &setting.targets[index].label;
    Progress::new("run", 0).text(&format!("run {}{of}: {label}, {rate}\n", number + 1));
}
