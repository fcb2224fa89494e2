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
mod serve;
mod simulate;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// A key-value store that keeps its tail short.
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
    /// Look at this machine and say what it costs a server
    Doctor(doctor::Options),
    /// Drive load at a server, ours or another, and measure it
    Bench(Box<curtail_loadgen::bench::BenchArgs>),
    /// Drive a server with values that prove themselves, and look for lost, torn and stale ones
    Soak(Box<curtail_loadgen::soak::SoakArgs>),
    /// Watch a server: rates, workers, plan and stages, on a terminal or as a report
    Top(top::Options),
    /// Walk every path through a tiny cluster, and look for a wrong answer; `check list`
    Check(check::Options),
    /// Run a trial cluster on this machine, or look after a cluster
    Cluster(cluster::Options),
    /// Simulate a figure of a paper with the decision-makers of the server; `simulate list`
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
