//! Runs one step after another: every rate, every target, every repetition.
//!
//! Targets take turns within a step, in an order that rotates, so that a machine that drifts
//! drifts for all of them.

use std::time::Duration;

use curtail_workload::Phases;

use super::{
    arguments::Setting,
    document::{Document, Step},
    rate_range::Range,
    search::Search,
    slo::Verdict,
};
use crate::{
    drive::{Pace, Plan, measure, measure_until_lost},
    error::LoadError,
    preload,
    terminal::Progress,
};

/// Stores every key in every target, and says so where nothing else will be said.
pub(super) fn preload(setting: &Setting, says_so: bool) -> Result<(), LoadError> {
    for (target, plan) in setting.targets.iter().zip(&setting.plans) {
        let pace = (plan.threads, setting.preload_rate);
        let refused = preload::preload(&target.address, &plan.load, pace, &setting.stop)?;
        if setting.stop.is_asked() {
            eprintln!("{}: not all keys were stored: ended early", target.label);
            return Ok(());
        }
        let keys = plan.load.keys();
        if refused > 0 {
            eprintln!("{}: {refused} of {keys} keys were refused", target.label);
        } else if says_so {
            eprintln!("{}: {keys} keys stored", target.label);
        }
    }
    Ok(())
}

/// Runs everything and gathers it. Ended early, by somebody or because a server ended, it gives
/// what it has, if that is anything.
pub(super) fn run(setting: &Setting) -> Result<Document, LoadError> {
    let mut document = Document::new(setting)?;
    let end = match setting.search {
        Some(range) => search(setting, range, &mut document)?,
        None => all(setting, &mut document)?,
    };
    if setting.stop.is_asked() {
        document.partial = Some("ended early, as was asked for".into());
    }
    if let End::Lost(why) = end {
        if document.steps.is_empty() {
            return Err(LoadError::Protocol(why));
        }
        document.partial = Some(why);
    }
    document.conclude();
    if document.steps.is_empty() {
        return Err(LoadError::Arguments("ended before anything was run".into()));
    }
    Ok(document)
}

/// How the runs ended.
enum End {
    /// All were made, or somebody asked to end early.
    Done,
    /// A server ended, or a connection to it; in words.
    Lost(String),
}

fn all(setting: &Setting, document: &mut Document) -> Result<End, LoadError> {
    let count = setting.targets.len();
    let total = setting.repeat * setting.paces.len() * count;
    for round in 0..setting.repeat {
        for (number, pace) in setting.paces.iter().enumerate() {
            for index in (0..count).map(|index| (index + number + round) % count) {
                if setting.stop.is_asked() {
                    return Ok(End::Done);
                }
                say(setting, index, pace, document.steps.len(), total);
                if let End::Lost(why) = step(setting, index, pace, round, document)? {
                    return Ok(End::Lost(why));
                }
            }
        }
    }
    Ok(End::Done)
}

/// One run of every search in turn, until all are over.
fn search(setting: &Setting, range: Range, document: &mut Document) -> Result<End, LoadError> {
    judge_driver(setting, range.low)?;
    let mut searches: Vec<Search> = setting.targets.iter().map(|_| Search::new(range)).collect();
    let end = search_on(setting, &mut searches, document)?;
    let found = setting.targets.iter().zip(&searches);
    document.searches = found
        .map(|(target, search)| (target.label.clone(), search.found()))
        .collect();
    Ok(end)
}

fn search_on(
    setting: &Setting,
    searches: &mut [Search],
    document: &mut Document,
) -> Result<End, LoadError> {
    loop {
        let mut ran = false;
        for (index, search) in searches.iter_mut().enumerate() {
            let Some(rate) = search.next() else {
                continue;
            };
            if setting.stop.is_asked() {
                return Ok(End::Done);
            }
            ran = true;
            let pace = searched(setting, rate);
            if let End::Lost(why) = step(setting, index, &pace, 0, document)? {
                return Ok(End::Lost(why));
            }
            let step = document.steps.last();
            let verdict = step.and_then(|step| step.verdict.clone());
            // A run that was cut short says nothing about its rate.
            if let (Some(verdict), false) = (verdict, setting.stop.is_asked()) {
                tell(&setting.targets[index].label, rate, &verdict);
                search.answer(verdict);
            }
        }
        if !ran {
            return Ok(End::Done);
        }
    }
}

/// A rate of a search, in the workload's kind of arrivals.
fn searched(setting: &Setting, rate: f64) -> Pace {
    let is_constant = matches!(
        setting.paces.first(),
        Some(Pace::Open {
            is_constant: true,
            ..
        })
    );
    let rate = Phases::fixed(rate);
    Pace::Open { rate, is_constant }
}

/// A search takes minutes: it says what it found out on the way, on a terminal or not.
fn tell(label: &str, rate: f64, verdict: &Verdict) {
    let why = match verdict.reason() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    eprintln!("{label}: {rate:.0} requests/s {}{why}", verdict.name());
}

/// Refuses a search whose runs could not tell anything, because the driver alone, at the lowest
/// rate, is later than a bound allows. Three short runs have to agree.
fn judge_driver(setting: &Setting, rate: f64) -> Result<(), LoadError> {
    const SHORT: Duration = Duration::from_secs(1);
    const TRIES: usize = 3;
    let (Some(slo), Some(plan), Some(session)) = (
        &setting.slo,
        setting.plans.first(),
        setting.sessions.first(),
    ) else {
        return Ok(());
    };
    let plan = Plan {
        pace: searched(setting, rate),
        warm_up: SHORT / 5,
        duration: SHORT,
        ..plan.clone()
    };
    let mut last = None;
    for _ in 0..TRIES {
        last = slo.beyond_the_driver(&measure(&plan, session)?);
        if last.is_none() || setting.stop.is_asked() {
            return Ok(());
        }
    }
    let why = last.unwrap_or_default();
    Err(LoadError::Driver(format!(
        "the driver, which sends the load, cannot judge {slo} on this machine: {why}, at \
         {rate:.0} requests/s in {TRIES} short runs. {}",
        advice(&plan)
    )))
}

/// What makes the driver less late.
fn advice(plan: &Plan) -> String {
    let mut ways = vec!["end what else runs on this machine"];
    if plan.cores.is_empty() {
        ways.push("give the driver a core that the server leaves alone (--pin CORE)");
    }
    if !plan.spin {
        ways.push("let it poll (--spin)");
    }
    ways.push("run it on another machine than the server");
    format!("What helps: {}; or looser bounds", ways.join("; "))
}

/// Makes one run and adds it to the document, if it measured anything.
fn step(
    setting: &Setting,
    index: usize,
    pace: &Pace,
    round: usize,
    document: &mut Document,
) -> Result<End, LoadError> {
    let plan = Plan {
        pace: pace.clone(),
        seed: setting.plans[index].seed.wrapping_add(round as u64),
        ..setting.plans[index].clone()
    };
    let label = &setting.targets[index].label;
    let report = match measure_until_lost(&plan, &setting.sessions[index]) {
        Ok(report) => report,
        // Between two runs.
        Err(error) if !document.steps.is_empty() => {
            return Ok(End::Lost(format!(
                "{label} could not be reached any more: {error}"
            )));
        }
        Err(error) => return Err(error),
    };
    let lost = report.lost.as_ref().map(|lost| {
        let rate = pace.rate(plan.warm_up, plan.duration);
        let at = rate.map_or(String::new(), |rate| format!(" at {rate:.0} requests/s"));
        let (seconds, reason) = (lost.seconds, &lost.reason);
        format!("{label} was lost {seconds:.1} s into the run{at}: {reason}")
    });
    // A run that was ended in its warm-up measured nothing.
    let is_whole = lost.is_none() && !setting.stop.is_asked();
    if is_whole || report.counts.done > 0 {
        let verdict = setting.slo.as_ref().map(|slo| slo.judge(&report));
        let verdict = verdict.transpose()?;
        document.add(Step {
            target: label.clone(),
            round,
            slo: verdict.as_ref().map(Verdict::name),
            verdict,
            report,
        });
    }
    Ok(lost.map_or(End::Done, End::Lost))
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
