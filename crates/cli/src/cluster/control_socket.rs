//! The requests of other commands to the process that runs a trial cluster: one line of JSON each
//! way, over a socket in its folder.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::trial_folder::Folder;

/// What is asked.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub(super) enum Request {
    /// Which processes there are, as [`Process`].
    Processes,
    /// Do something to the process of a node.
    Signal { node: String, signal: NodeSignal },
    /// Start a node; the answer is its name.
    Add { node: Option<String> },
    /// End a node that has left.
    Stop { node: String },
}

/// What can be done to the process of a node.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NodeSignal {
    /// End it at once.
    Kill,
    Pause,
    /// Let it go on.
    Resume,
}

/// What is answered: what was done, or why it was not.
type Answer = Result<String, String>;

/// A node's process.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Process {
    /// The node's number.
    pub(super) id: u8,
    /// The process's, if it runs.
    pub(super) pid: Option<u32>,
    /// `running`, `paused`, or how it ended.
    pub(super) state: String,
}

/// Asks the process that runs the cluster in `folder`.
pub(super) fn ask(folder: &Folder, request: &Request) -> anyhow::Result<String> {
    let path = folder.control();
    let stream = UnixStream::connect(&path).with_context(|| {
        let path = folder.path().display();
        format!("no trial cluster runs in {path} (`curtail cluster up` starts one)")
    })?;
    let answer = exchange(stream, request).with_context(|| path.display().to_string())?;
    answer.map_err(anyhow::Error::msg)
}

/// The processes of the cluster in `folder`.
pub(super) fn processes(folder: &Folder) -> anyhow::Result<Vec<Process>> {
    Ok(serde_json::from_str(&ask(folder, &Request::Processes)?)?)
}

fn exchange(mut stream: UnixStream, request: &Request) -> anyhow::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", serde_json::to_string(request)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Reads what is asked on `stream`.
pub(super) fn receive(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Answers it. The requester may have ended.
pub(super) fn reply(mut stream: &UnixStream, answer: anyhow::Result<String>) {
    let answer: Answer = answer.map_err(|error| format!("{error:#}"));
    if let Ok(text) = serde_json::to_string(&answer) {
        let _ = writeln!(stream, "{text}");
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
