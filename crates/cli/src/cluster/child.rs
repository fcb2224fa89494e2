//! The process of one node: starts it, reads its output, pauses, resumes and ends it. Its pid is
//! used only until the process is waited for, so no other process gets a signal.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::control_socket::{NodeSignal, Process};

/// A node's process, running or ended.
#[derive(Debug)]
pub(super) struct NodeProcess {
    id: u8,
    name: String,
    child: Child,
    paused: bool,
    ended: Option<ExitStatus>,
}

impl NodeProcess {
    /// Starts `command` as node `id` with this name, which stands in front of its lines here.
    pub(super) fn start(id: u8, name: &str, mut command: Command) -> anyhow::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for this process, which ends the others in its own time.
            .process_group(0);
        let mut child = command.spawn().with_context(|| name.to_owned())?;
        follow(name, child.stdout.take())?;
        follow(name, child.stderr.take())?;
        Ok(Self {
            id,
            name: name.to_owned(),
            child,
            paused: false,
            ended: None,
        })
    }

    /// The node's number.
    pub(super) fn id(&self) -> u8 {
        self.id
    }

    /// The node's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has not ended yet.
    pub(super) fn runs(&self) -> bool {
        self.ended.is_none()
    }

    /// What there is to report.
    pub(super) fn report(&self) -> Process {
        let state = match self.ended {
            Some(status) => describe(status),
            None if self.paused => "paused".to_owned(),
            None => "running".to_owned(),
        };
        Process {
            id: self.id,
            pid: self.runs().then(|| self.child.id()),
            state,
        }
    }

    /// Notes whether it has ended; says how if that is new.
    pub(super) fn look(&mut self) -> Option<String> {
        if self.ended.is_some() {
            return None;
        }
        self.ended = self.child.try_wait().ok().flatten();
        self.ended.map(describe)
    }

    /// Kills, pauses or resumes it, and says what it is now.
    pub(super) fn act(&mut self, signal: NodeSignal) -> anyhow::Result<String> {
        let state = match signal {
            NodeSignal::Kill => {
                self.kill()?;
                "is dead"
            }
            NodeSignal::Pause => {
                self.signal(Signal::STOP)?;
                self.paused = true;
                "is paused"
            }
            NodeSignal::Resume => {
                self.signal(Signal::CONT)?;
                self.paused = false;
                "continues"
            }
        };
        Ok(format!("{} {state}", self.name))
    }

    /// Asks it to end.
    pub(super) fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.signal(Signal::TERM);
        let _ = self.signal(Signal::CONT);
    }

    /// Asks it to end without leaving its cluster first: the second signal says so.
    pub(super) fn stop_at_once(&mut self) {
        let _ = self.signal(Signal::INT);
        self.stop();
    }

    /// Waits for its end, and brings it about at `deadline`.
    pub(super) fn finish(&mut self, deadline: Instant) {
        while self.runs() && Instant::now() < deadline {
            let _ = self.look();
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.kill();
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.must_run()?;
        self.child.kill()?;
        self.ended = Some(self.child.wait()?);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.must_run()?;
        kill_process(Pid::from_child(&self.child), signal)?;
        Ok(())
    }

    fn must_run(&self) -> anyhow::Result<()> {
        ensure!(self.runs(), "{} does not run", self.name);
        Ok(())
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended".to_owned(),
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Prints what a node prints, a line at a time.
fn follow(name: &str, stream: Option<impl Read + Send + 'static>) -> io::Result<()> {
    let Some(stream) = stream else {
        return Ok(());
    };
    let shown = name.to_owned();
    let copy = move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while lines
            .read_until(b'\n', &mut line)
            .is_ok_and(|bytes| bytes > 0)
        {
            say(&shown, &String::from_utf8_lossy(&line));
            line.clear();
        }
    };
    let builder = thread::Builder::new().name(format!("{name}-lines"));
    builder.spawn(copy).map(|_| ())
}

/// Prints a line about the node with this name. Nobody may be looking.
pub(super) fn say(name: &str, line: &str) {
    let _ = writeln!(io::stdout().lock(), "{name} | {}", line.trim_end());
}
