//! The program `curtail`.
//!
//! Each command has a file; this one only names them. `serve` speaks memcached's command line, the
//! others are our own. The instruments' commands are carried out by a second program (`lab`).
//!
//! A library, so that it is compiled beside the server's code generation: a program would wait for
//! that, and is left with nothing but the link.
#![forbid(unsafe_code)]

mod check_config;
mod cluster;
mod cluster_flags;
mod config_file;
mod data;
mod disk_flags;
mod doctor;
mod extended_options;
mod flag_errors;
#[cfg(test)]
mod flag_reference;
mod flags;
mod native_flags;
mod ranged_numbers;
mod run_lab;
mod serve;
mod tier;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

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
    /// Run a server, which speaks memcached's protocol and takes memcached's flags
    Serve(Box<flags::Flags>),
    /// Report settings of this machine that cost a server performance
    Doctor(doctor::Options),
    /// Show a server's rates, memory, workers and hottest keys, on a terminal or as a report
    Top(top::Options),
    /// Run a trial cluster on this machine, or manage a cluster
    Cluster(cluster::Options),
    /// Run a node of a cache tier, show a tier, or send it a request
    Tier(tier::TierOptions),
    /// Verify, describe, export or import the data directory of a disk tier
    Data(data::DataOptions),
}

/// Carries out the command that this process was started with.
pub fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    if let Some(arguments) = run_lab::arguments(&given) {
        return fail(&run_lab::run(arguments));
    }
    let expanded = match config_file::expand(given, &Cli::command()) {
        Ok(expanded) => expanded,
        Err(error) => return fail(&error),
    };
    let matches = run_lab::listed(Cli::command()).get_matches_from(expanded.arguments);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let answer = match cli.command {
        Command::Serve(mut flags) => {
            flags.origins = expanded.origins;
            serve::run(&flags)
        }
        Command::Doctor(options) => doctor::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Tier(options) => tier::run(&options),
        Command::Data(options) => data::run(&options),
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
        flag_reference::check("flags.md", &Cli::command());
    }
}
