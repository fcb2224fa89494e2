//! Progress on a terminal: one line that is rewritten; nothing on a pipe.

use std::{
    io::{IsTerminal, Write, stderr},
    ops::Range,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A line on standard error that says how far something is.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    state: Option<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Per part: its start and how far it is.
    parts: Vec<(u64, u64)>,
    shown: Instant,
}

/// Shown at most this often.
const INTERVAL: Duration = Duration::from_millis(200);

impl Progress {
    /// Shows nothing until [`INTERVAL`] has passed, and nothing ever when standard error is no
    /// terminal.
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let state = || State {
            parts: Vec::new(),
            shown: Instant::now(),
        };
        Self {
            what,
            total,
            state: stderr().is_terminal().then(|| Mutex::new(state())),
        }
    }

    /// One of several parts of the whole is this far.
    pub(crate) fn part(&self, part: &Range<u64>, done: u64) {
        let Some(state) = &self.state else {
            return;
        };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match state
            .parts
            .iter_mut()
            .find(|(start, _)| *start == part.start)
        {
            Some((_, so_far)) => *so_far = done,
            None => state.parts.push((part.start, done)),
        }
        if state.shown.elapsed() >= INTERVAL {
            state.shown = Instant::now();
            let sum: u64 = state.parts.iter().map(|(_, done)| done).sum();
            line(&format!("{} {sum} of {}", self.what, self.total));
        }
    }

    /// Replaces the line by a text of one's own.
    pub(crate) fn text(&self, text: &str) {
        if self.state.is_some() {
            line(text);
        }
    }

    /// Clears the line.
    pub(crate) fn finish(&self) {
        if self.state.is_some() {
            line("");
        }
    }
}

fn line(text: &str) {
    // A terminal that cannot be written to is no reason to stop measuring.
    let _ = write!(stderr().lock(), "\r\x1b[K{text}");
}
