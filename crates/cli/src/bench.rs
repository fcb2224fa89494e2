//! `curtail bench`, and what Ctrl-C does to it.
//!
//! The first signal asks the runs to end in good order, with a report of what they measured; the
//! second ends the process.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use curtail_loadgen::{
    Stop,
    bench::{self, BenchArgs},
};
use curtail_runtime::{ControlEvent, Controls};

/// What a shell calls a process that was interrupted.
const INTERRUPTED: i32 = 130;

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let stop = Stop::new();
    if args.can_stop() {
        // Before the first thread: threads inherit which signals are blocked. Servers that a
        // comparison starts would, too, so that it leaves signals as they are.
        let controls =
            Controls::new().map_err(|error| anyhow!("receiving signals: {}", error.0))?;
        let asked = stop.clone();
        std::thread::spawn(move || listen(controls, &asked));
    }
    // An error of the driver's says its cause itself.
    bench::run(args, &stop).map_err(|error| anyhow!(error.to_string()))
}

fn listen(mut controls: Controls, stop: &Stop) {
    loop {
        match controls.wait(None) {
            Some(ControlEvent::Reload) | None => {}
            Some(_) if stop.is_asked() => std::process::exit(INTERRUPTED),
            Some(_) => {
                eprintln!("ending early; again to end at once");
                stop.ask();
            }
        }
    }
}
