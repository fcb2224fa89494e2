//! The program `curtail-lab`: load, simulation and model checking.
//!
//! A program of its own, so that a server is built and installed without it. `curtail bench` and
//! the others run it for their user and say which version they are, because the arguments of one
//! release need not mean the same to another.
#![forbid(unsafe_code)]

mod bench;
mod check;
#[cfg(test)]
#[path = "../../cli/src/flag_reference.rs"]
mod flag_reference;
mod interrupt;
mod simulate;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Tools for curtail and other caches: load generation, simulation, model checking.
#[derive(Debug, Parser)]
#[command(
    name = "curtail-lab",
    version,
    propagate_version = false,
    max_term_width = 100
)]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send load to a server, curtail or another, and measure rate and latency
    Bench(Box<curtail_loadgen::bench::BenchArgs>),
    /// Send mixed load to a running server, check the values that it returns, and report lost, torn
    /// and stale ones
    Soak(Box<curtail_loadgen::soak::SoakArgs>),
    /// Search every state of a small cluster or cache tier for a wrong answer; `check list` lists
    /// the models
    Check(check::Options),
    /// Simulate a figure of a paper in virtual time; `simulate list` lists the figures
    Simulate(Box<curtail_simulator::command::Args>),
}

fn main() -> ExitCode {
    run(std::env::args_os().collect()).unwrap_or_else(|error| {
        eprintln!("curtail-lab: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(mut words: Vec<OsString>) -> Result<ExitCode> {
    let mut grammar = Lab::command();
    let caller = words
        .get(1)
        .and_then(|word| word.to_str()?.strip_prefix(RUN_BY));
    if let Some(version) = caller {
        ensure!(
            version == VERSION,
            "curtail-lab has version {VERSION}, and curtail, which started it, has {version}; \
             install both programs from the same release"
        );
        words.remove(1);
        grammar = grammar.bin_name("curtail");
    }
    let matches = grammar.get_matches_from(words);
    match Lab::from_arg_matches(&matches)?.command {
        Command::Bench(options) => bench::run(&options),
        Command::Soak(options) => Ok(curtail_loadgen::soak::run(&options)?),
        Command::Check(options) => check::run(&options),
        Command::Simulate(options) => simulate::run(&options),
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How `curtail` says that it ran this program, and of which version it is itself.
const RUN_BY: &str = "--run-by=";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no flag is missing on the page, or has another default or meaning there.
    #[test]
    fn the_reference_page_has_every_flag() {
        flag_reference::check("flags-lab.md", &Lab::command());
    }
}
