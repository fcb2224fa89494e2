//! `curtail simulate`, and its reaction to Ctrl-C.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use curtail_simulator::command::{self, Args};

use crate::interrupt;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    interrupt::on_first(move || asked.store(true, Ordering::Relaxed))?;
    let ended = command::run(args, &stop).map_err(|error| anyhow!(error))?;
    Ok(match stop.load(Ordering::Relaxed) {
        true => ExitCode::from(interrupt::INTERRUPTED),
        false => ended,
    })
}
