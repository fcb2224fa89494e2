//! The one binary, `curtail`.
//!
//! Each command has a file; this one only names them. `serve` speaks memcached's command line, the
//! others are our own.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod cluster;
mod cluster_flags;
mod config_file;
mod doctor;
mod effective;
mod extended;
mod faults;
mod flags;
mod interrupt;
mod native_flags;
mod ranges;
#[cfg(test)]
mod reference;
mod serve;
mod simulate;
mod sizes;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// A cache server for memcached's clients, with short tail latency.
#[derive(Debug, Parser)]
#[command(
    name = "curtail",
    version,
    propagate_version = false,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server: memcached's protocol, memcached's flags
    Serve(Box<flags::Flags>),
    /// Report settings of this machine that cost a server performance
    Doctor(doctor::Options),
    /// Generate load on a server, curtail or another, and measure rate and latency
    Bench(Box<curtail_loadgen::bench::BenchArgs>),
    /// Run mixed load with self-checking values, and report lost, torn and stale ones
    Soak(Box<curtail_loadgen::soak::SoakArgs>),
    /// Show a server's rates, memory, workers and hottest keys, on a terminal or as a report
    Top(top::Options),
    /// Search every state of a small cluster for a wrong answer; `check list` lists the models
    Check(check::Options),
    /// Run a trial cluster on this machine, or manage a cluster
    Cluster(cluster::Options),
    /// Simulate a figure of a paper in virtual time; `simulate list` lists the figures
    Simulate(Box<curtail_simulator::command::Args>),
}

fn main() -> ExitCode {
    let given = std::env::args_os().collect();
    let expanded = match config_file::expand(given, &Cli::command()) {
        Ok(expanded) => expanded,
        Err(error) => return fail(&error),
    };
    let answer = match Cli::parse_from(expanded.arguments).command {
        Command::Serve(mut flags) => {
            flags.origins = expanded.origins;
            serve::run(&flags)
        }
        Command::Doctor(options) => doctor::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Soak(options) => curtail_loadgen::soak::run(&options).map_err(Into::into),
        Command::Top(options) => top::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Simulate(options) => simulate::run(&options),
    };
    answer.unwrap_or_else(|error| fail(&error))
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("curtail: {error:#}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no flag is missing on the page, or has another default or meaning there.
    #[test]
    fn the_reference_page_has_every_flag() {
        reference::check("flags.md", &Cli::command());
    }
}
