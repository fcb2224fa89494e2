//! `curtail simulate` alone, for profiling.

use std::{process::ExitCode, sync::Arc};

use clap::Parser;
use curtail_simulator::command::{Args, run};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    run(&Line::parse().args, &Arc::default()).unwrap_or_else(|error| {
        eprintln!("simulate: {error}");
        ExitCode::FAILURE
    })
}
