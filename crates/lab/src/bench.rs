//! `curtail bench`, and its reaction to Ctrl-C.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use curtail_loadgen::{
    Stop,
    bench::{self, BenchArgs},
};

use crate::interrupt;

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let stop = Stop::new();
    // Servers that a comparison starts would inherit blocked signals, so that it leaves them.
    if args.can_stop() {
        let asked = stop.clone();
        interrupt::on_first(move || asked.ask())?;
    }
    // An error of the driver's says its cause itself.
    bench::run(args, &stop).map_err(|error| anyhow!(error.to_string()))
}
