//! Ctrl-C in a command that works for minutes: the first one ends it with a partial result, the
//! second ends the process.

use std::process::exit;

use anyhow::{Result, anyhow};
use curtail_runtime::{ControlEvent, Controls};

/// What a shell calls a process that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// Has `ask` called at the first signal. To be called before the first thread is started: threads
/// inherit which signals are blocked.
pub(crate) fn on_first(ask: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut controls =
        Controls::new().map_err(|error| anyhow!("receiving signals: {}", error.0))?;
    let mut ask = Some(ask);
    std::thread::spawn(move || {
        loop {
            match controls.wait(None) {
                Some(ControlEvent::Reload) | None => {}
                Some(_) => match ask.take() {
                    Some(ask) => {
                        eprintln!(
                            "ending early, with the results so far; press Ctrl-C again to end at \
                             once"
                        );
                        ask();
                    }
                    None => exit(INTERRUPTED.into()),
                },
            }
        }
    });
    Ok(())
}
