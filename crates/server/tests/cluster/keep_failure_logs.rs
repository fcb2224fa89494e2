//! Keeps logs of nodes and panics, so that a failed test shows its cause.
//!
//! A panic of any thread is added to `cluster-panics.log` among the build's temporary files, where
//! nothing removes it: the output of a test that fails now and then is lost too easily.

use std::{
    backtrace::Backtrace,
    collections::VecDeque,
    fs::OpenOptions,
    io::{BufRead, BufReader, Read, Write},
    panic,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    thread,
    time::{Instant, SystemTime},
};

/// What the nodes of a cluster said, and what was done to them, in its order.
#[derive(Clone)]
pub(crate) struct Log {
    started: Instant,
    lines: Arc<Mutex<VecDeque<String>>>,
}

/// Lines that are kept.
const LINES_MAX: usize = 2000;

impl Log {
    pub(crate) fn begin() -> Self {
        Self {
            started: Instant::now(),
            lines: Arc::default(),
        }
    }

    pub(crate) fn note(&self, text: &str) {
        let mut lines = self.lines();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        let at = self.started.elapsed().as_secs_f64();
        lines.push_back(format!("{at:9.3} {text}"));
    }

    /// Notes what `from` says, until it ends.
    pub(crate) fn follow(&self, who: String, from: impl Read + Send + 'static) {
        let log = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                log.note(&format!("{who}: {line}"));
            }
        });
    }

    /// Forgets what was noted.
    pub(crate) fn clear(&self) {
        self.lines().clear();
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has every panic kept, beside what is done with it anyway.
pub(crate) fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster-panics.log");
            if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let seconds = since.map_or(0, |since| since.as_secs());
                let (process, thread) = (std::process::id(), thread::current());
                let name = thread.name().unwrap_or("?");
                let trace = Backtrace::force_capture();
                let text = format!("{seconds}, process {process}, {name}: {info}\n{trace}\n");
                // There is nobody to tell if it cannot be kept.
                let _ = file.write_all(text.as_bytes());
            }
            before(info);
        }));
    });
}
