//! The load driver alone: `loadgen bench ...` and `loadgen soak ...`, as in `curtail`.

use std::process::ExitCode;

use clap::Parser;
use curtail_loadgen::{Stop, bench, soak};

#[derive(Parser)]
#[command(about = "Drives load at memcached-protocol and RESP servers")]
enum Command {
    /// Measures rates and latencies.
    Bench(Box<bench::BenchArgs>),
    /// Finds lost, torn, stale and foreign values.
    Soak(soak::SoakArgs),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Bench(args) => bench::run(&args, &Stop::new()),
        Command::Soak(args) => soak::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("loadgen: {error}");
        ExitCode::FAILURE
    })
}
