//! Every check and task of the repository: `cargo xtask` lists them.
//!
//! One entry for people and for continuous integration, so that what is checked here is what is
//! checked there. Commands that check never edit a file; `fix` and `chart` do. Everything else that
//! a command makes (logs, fetched suites, virtual environments) stays under the target folder.
//!
//! ```text
//! main -> steps (the list of `test`) -> tidy, licences, conformance, readme
//!      -> bpf, metrics, bench, soak, instructions  -> workspace, process, required_packages
//! ```
#![forbid(unsafe_code)]

mod bench;
mod bpf;
mod chart;
mod check_result;
mod conformance;
mod docs;
mod instructions;
mod licences;
mod process;
mod promtool;
mod python_client_test;
mod readme;
mod required_packages;
mod server;
mod soak;
mod steps;
mod tidy;
mod trial_cluster;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::check_result::Outcome;
use crate::process::Log;
use crate::workspace::Workspace;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(outcome) => match outcome.failure {
            None => ExitCode::SUCCESS,
            Some(failure) => {
                eprintln!("{failure}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<Outcome> {
    let Some((command, rest)) = arguments.split_first() else {
        print!("{HELP}");
        return Ok(Outcome::default());
    };
    let workspace = Workspace::open()?;
    match command.as_str() {
        "test" => steps::command(&workspace, rest),
        "tidy" => tidy::command(&workspace, rest),
        "licences" => licences::command(&workspace),
        "readme" => readme::check(&workspace, &Log::terminal()),
        "docs" => docs::command(&workspace),
        "reference" => docs::reference(&workspace),
        "conformance" => conformance::command(&workspace, rest),
        "bpf" => bpf::command(&workspace),
        "chart" => chart::command(&workspace),
        "bench" => bench::command(&workspace, rest),
        "instructions" => instructions::command(&workspace, rest),
        "soak" => soak::command(&workspace, rest),
        "fix" => steps::fix(&workspace),
        "hook" => steps::hook(&workspace),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(Outcome::default())
        }
        other => bail!("there is no command `{other}`; `cargo xtask` lists them"),
    }
}

const HELP: &str = "\
cargo xtask COMMAND

  test [STEP..]            all checks, or the steps named; --quick only those for every save,
                           --all also the slow ones; --list lists; --times PAGE keeps in a page
                           what each step took
  tidy [--modules]         the house rules that a machine can check (STYLE.md); --modules prints
                           which module of the server uses which
  licences                 every dependency's licence against deny.toml
  readme                   runs the examples of README.md against a fresh server
  docs                     builds the documentation as a site with search
  reference                writes docs/reference/flags.md and metrics.md from the code
  conformance SUITE [..]   memcached, pymemcache, memccapable, exporter; --binary PATH tests
                           another server; memcached takes file names of its test-suite;
                           memcached-cluster and pymemcache-cluster: against a node of a cluster
  bench [NAME..]           the benches of a crate (table, store, ..); no name lists them
  instructions             instructions of a small request, under callgrind, beside the record;
                           --all-policies with 1 and 2 workers, --within PER_CENT, --rounds N,
                           --binary PATH; --record keeps the counts
  soak [SECONDS]           mixed load with verified values (600 s unless told)
  bpf                      compiles the XDP program into the object that is kept
  chart                    draws the documents' charts from the tables in docs/research
  fix                      cargo clippy --fix, cargo fmt, long comments wrapped; drops exceptions
                           that tidy's lists no longer need
  hook                     has git run format and tidy before each commit

Logs, fetched suites and virtual environments go to target/xtask.
";
