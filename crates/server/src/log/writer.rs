//! The thread that writes the log, and the bounded queue before it.

use std::{
    io::{self, Write},
    sync::mpsc::{self, Receiver, SyncSender, TrySendError},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use tracing::Level;

use crate::{
    log::{
        LogFormat, component,
        record::{self, Head},
    },
    sync::{AtomicU64, Relaxed},
};

/// Lines that wait to be written, at most.
const LINES_MAX: usize = 4096;

/// Bytes written at once, about.
const WRITE_BYTES: usize = 64 << 10;

/// How often the end looks whether there is room in the queue.
const PAUSE: Duration = Duration::from_millis(5);

/// Where threads leave their lines.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    lines: SyncSender<Message>,
    dropped: &'static AtomicU64,
}

/// The thread, and how it is ended.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Queue,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    End,
}

impl Queue {
    /// Queues a line; if there is no room, it is dropped and counted.
    pub(super) fn push(&self, line: Vec<u8>) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl Writer {
    /// Starts the thread, which writes to `out`.
    pub(super) fn start(
        out: Box<dyn Write + Send>,
        format: LogFormat,
        dropped: &'static AtomicU64,
    ) -> io::Result<Self> {
        let (lines, queued) = mpsc::sync_channel(LINES_MAX);
        let thread = thread::Builder::new().name("log".to_owned());
        let thread = thread.spawn(move || write_all(out, format, &queued, dropped))?;
        Ok(Self {
            queue: Queue { lines, dropped },
            thread: Some(thread),
        })
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Has everything written that is queued, and ends the thread; gives up after `patience`.
    pub(super) fn finish(&mut self, patience: Duration) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        let begun = Instant::now();
        let mut told = false;
        while begun.elapsed() < patience && !thread.is_finished() {
            if !told {
                let sent = self.queue.lines.try_send(Message::End);
                told = !matches!(sent, Err(TrySendError::Full(_)));
            }
            thread::sleep(PAUSE);
        }
    }
}

fn write_all(
    mut out: Box<dyn Write + Send>,
    format: LogFormat,
    queued: &Receiver<Message>,
    dropped: &AtomicU64,
) {
    let mut reported = 0;
    let mut text = Vec::new();
    while let Ok(first) = queued.recv() {
        text.clear();
        let (mut lines, mut ends) = (0, false);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    text.extend_from_slice(&line);
                    lines += 1;
                }
                Message::End => ends = true,
            }
            next = (text.len() < WRITE_BYTES && !ends)
                .then(|| queued.try_recv().ok())
                .flatten();
        }
        let now = dropped.load(Relaxed);
        if now > reported {
            text.extend_from_slice(&gap(format, now - reported));
            reported = now;
        }
        if out.write_all(&text).and_then(|()| out.flush()).is_err() {
            dropped.fetch_add(lines, Relaxed);
        }
        if ends {
            return;
        }
    }
}

/// The line that tells of lines that are missing.
fn gap(format: LogFormat, lines: u64) -> Vec<u8> {
    let head = Head {
        time: SystemTime::now(),
        level: Level::WARN,
        component: component::LOG,
    };
    let message = format!(
        "{lines} lines were dropped: standard error did not take them in time; read it faster, \
         or log less (--log-level)"
    );
    record::line(format, head, &record::Fields::of(message))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;

    /// An output that takes nothing until it is told to.
    #[derive(Clone, Default)]
    struct Slow(Arc<State>);

    #[derive(Default)]
    struct State {
        taken: Mutex<Taken>,
        opens: Condvar,
    }

    #[derive(Default)]
    struct Taken {
        is_open: bool,
        text: Vec<u8>,
    }

    impl Slow {
        fn open(&self) {
            self.0.taken.lock().unwrap().is_open = true;
            self.0.opens.notify_all();
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.taken.lock().unwrap().text.clone()).unwrap()
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = self.0.taken.lock().unwrap();
            let waited = self.0.opens.wait_while(taken, |taken| !taken.is_open);
            waited.unwrap().text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Goal: who logs never waits for a standard error that takes nothing, and what is dropped is
    /// counted and told. Method: an output that takes nothing until three times as many lines as
    /// there is room for are queued.
    #[test]
    fn a_slow_output_costs_lines_and_no_time() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let slow = Slow::default();
        let mut writer = Writer::start(Box::new(slow.clone()), LogFormat::Text, &DROPPED).unwrap();
        let queue = writer.queue();
        for number in 0..3 * LINES_MAX {
            queue.push(format!("line {number:0100}\n").into_bytes());
        }
        let dropped = DROPPED.load(Relaxed);
        assert!(dropped >= LINES_MAX as u64, "{dropped}");
        slow.open();
        writer.finish(Duration::from_secs(20));
        let text = slow.text();
        let written = text.lines().filter(|line| line.starts_with("line "));
        assert_eq!(written.count() as u64 + dropped, 3 * LINES_MAX as u64);
        // It may have been told in parts, if dropping began before the first write.
        let told = text.lines().filter_map(|line| {
            let (before, _) = line.split_once(" lines were dropped")?;
            before.rsplit(' ').next()?.parse::<u64>().ok()
        });
        assert_eq!(told.sum::<u64>(), dropped);
    }

    /// Goal: the end of a process does not wait for ever for a standard error that nobody reads.
    #[test]
    fn the_end_does_not_wait_for_a_stuck_output() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let slow = Slow::default();
        let mut writer = Writer::start(Box::new(slow.clone()), LogFormat::Json, &DROPPED).unwrap();
        writer.queue().push(b"stuck\n".to_vec());
        writer.finish(Duration::from_millis(50));
        assert_eq!(slow.text(), "");
        slow.open();
    }
}
