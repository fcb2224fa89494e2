//! `curtail check`: every state of a tiny cluster, on the machine that the server runs.

use std::io::{self, IsTerminal as _, Write as _, stderr, stdout};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use curtail_checker::{Checked, Limits, Outcome, Progress, models, mutants};
use serde_json::{Value, json};

use crate::interrupt;

/// Options of `curtail check`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The model; `list` names them all, `all` runs those that take seconds, one after the other
    model: String,
    /// With `all`: also the models that take minutes
    #[arg(long)]
    deep: bool,
    /// Inject an error (a mutant) that the search must find; `list` names them
    #[arg(long)]
    mutant: Option<String>,
    /// Stop after about this many states
    #[arg(long, default_value_t = 100_000_000)]
    states_max: usize,
    /// Remember at most this many steps (12 bytes each), to check that from every state every
    /// request can end; a search with more steps goes on, and checks only for deadlock
    #[arg(long, default_value_t = 300_000_000)]
    steps_max: usize,
    /// Number of threads; 0 means one for each processor
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Print results as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the models. The exit code says whether one of them failed: it found a fault, did not see
/// what it must see, or did not get to the end. The first Ctrl-C ends the model that is under way
/// with what it saw.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.model == "list" {
        print(&list(options.json))?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_asked = |model: &&dyn Checked| match options.model.as_str() {
        "all" => options.deep || !model.is_deep(),
        name => model.name() == name,
    };
    let asked: Vec<_> = models().filter(is_asked).collect();
    if asked.is_empty() {
        bail!(
            "no model is called {}: see `curtail check list`",
            options.model
        );
    }
    if let Some(name) = &options.mutant
        && !mutants().any(|one| one == *name)
    {
        bail!(
            "no mutant is called {name}: see `curtail check list`; mutants of the state machines \
             are there only if curtail-lab was built with --features mutants"
        );
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    interrupt::on_first(move || stopped.store(true, Ordering::Relaxed))?;
    let (mut is_right, mut left) = (true, asked.len());
    for model in asked {
        let outcome = run_one(options, model, &stop);
        left -= 1;
        is_right &= is_as_it_should_be(model, &outcome);
        let text = match options.json {
            true => as_json(model, &outcome).to_string() + "\n",
            false => as_text(model, &outcome),
        };
        print(&text)?;
        if stop.load(Ordering::Relaxed) {
            eprintln!("PARTIAL: ended early; {left} more models were not searched");
            return Ok(ExitCode::from(interrupt::INTERRUPTED));
        }
    }
    Ok(ExitCode::from(u8::from(!is_right)))
}

fn run_one(options: &Options, model: &dyn Checked, stop: &AtomicBool) -> Outcome {
    let mut limits = Limits {
        states_max: options.states_max,
        steps_max: options.steps_max,
        ..Limits::default()
    };
    if options.threads > 0 {
        limits.threads = options.threads;
    }
    let shows = stderr().is_terminal();
    let began = Instant::now();
    let mut last = Duration::ZERO;
    let outcome = model.search(options.mutant.as_deref(), limits, &mut |progress| {
        let now = began.elapsed();
        if shows && now >= last + Duration::from_millis(200) {
            last = now;
            show(model.name(), progress, now);
        }
        match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if shows {
        eprint!("\r\x1b[K");
    }
    outcome
}

fn show(name: &str, progress: Progress, took: Duration) {
    let Progress {
        states,
        depth,
        frontier,
        ..
    } = progress;
    let seconds = took.as_secs_f64();
    let speed = states as f64 / seconds.max(0.001);
    eprint!(
        "\r\x1b[K{name}: {states} states, {speed:.0} a second, {depth} steps deep, {frontier} \
         to expand, {seconds:.0} s"
    );
    // Progress that cannot be shown is no reason to stop.
    let _ = stderr().flush();
}

fn is_as_it_should_be(model: &dyn Checked, outcome: &Outcome) -> bool {
    outcome.fault.is_none() && outcome.is_complete && model.unseen(outcome).is_empty()
}

fn verdict(model: &dyn Checked, outcome: &Outcome) -> &'static str {
    match (&outcome.fault, outcome.is_complete) {
        (Some(_), _) => "FAULT",
        (None, false) => "not finished",
        (None, true) if model.unseen(outcome).is_empty() && outcome.ends => "right",
        (None, true) if model.unseen(outcome).is_empty() => {
            "right; whether every request can end was not checked"
        }
        (None, true) => "right, but not every situation was reached",
    }
}

fn as_text(model: &dyn Checked, outcome: &Outcome) -> String {
    let Progress {
        states,
        transitions,
        depth,
        ..
    } = outcome.progress;
    let mut text = format!(
        "{:<24} {:<12} {states:>10} states {transitions:>11} steps, {depth:>2} deep, {:.1} s\n",
        model.name(),
        verdict(model, outcome),
        outcome.took.as_secs_f64(),
    );
    for witness in model.unseen(outcome) {
        text += &format!("  never reached: {witness}\n");
    }
    if let Some(found) = &outcome.fault {
        text += &format!("  {}. The steps that led to it:\n", found.fault);
        for (number, step) in found.steps.iter().enumerate() {
            text += &format!(
                "  {:>3}. {}\n",
                number + 1,
                step.replace("; ", "\n         ")
            );
        }
    }
    text
}

fn as_json(model: &dyn Checked, outcome: &Outcome) -> Value {
    let fault = outcome.fault.as_ref();
    json!({
        "model": model.name(),
        "bound": model.bound(),
        "verdict": verdict(model, outcome),
        "states": outcome.progress.states,
        "transitions": outcome.progress.transitions,
        "depth": outcome.progress.depth,
        "complete": outcome.is_complete,
        "ends": outcome.ends,
        "seconds": outcome.took.as_secs_f64(),
        "unseen": model.unseen(outcome),
        "fault": fault.map(|found| &found.fault),
        "steps": fault.map(|found| &found.steps),
    })
}

/// Prints; the reader may close the pipe early.
fn print(text: &str) -> io::Result<()> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn list(json: bool) -> String {
    if json {
        let model = |model: &dyn Checked| {
            let bound = model.bound();
            json!({"model": model.name(), "bound": bound, "deep": model.is_deep()})
        };
        let models: Vec<Value> = models().map(model).collect();
        let mutants: Vec<String> = mutants().collect();
        return format!("{}\n", json!({"models": models, "mutants": mutants}));
    }
    let mut text =
        "models (nodes, requests; then how often each change or fault may happen):\n".to_owned();
    for model in models() {
        let deep = if model.is_deep() { " (takes long)" } else { "" };
        text += &format!("  {:<24} {}{deep}\n", model.name(), model.bound());
    }
    text += "\nmutants (errors that --mutant injects):\n";
    for name in mutants() {
        text += &format!("  {name}\n");
    }
    text
}
