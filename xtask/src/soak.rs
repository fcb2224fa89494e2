//! `cargo xtask soak`: mixed load whose values verify themselves, against a fresh server.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::check_result::{Outcome, Tally};
use crate::process::Log;
use crate::server::{self, Server};
use crate::workspace::Workspace;

/// How long unless told.
pub(crate) const SECONDS: u64 = 600;

pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let seconds = match arguments.first() {
        Some(text) => text.parse().context("soak takes a number of seconds")?,
        None => SECONDS,
    };
    run(workspace, &Log::terminal(), seconds)
}

/// Half of the time with room for everything, where nothing may be missing and histories must be
/// linearizable; half with far too little room, where what comes back must still be true.
pub(crate) fn run(workspace: &Workspace, log: &Log, seconds: u64) -> Result<Outcome> {
    let binary = server::build_with_lab(workspace, log)?;
    let half = (seconds / 2).max(1).to_string();
    let roomy = ["--mode", "strict", "--linearizability", "--duration", &half];
    let full = ["--mode", "cache", "--duration", &half];
    soak(log, &binary, 1024, &roomy)?;
    soak(log, &binary, 64, &full)?;
    Ok(Outcome::counted(
        Tally {
            passed: 2,
            ..Tally::default()
        },
        None,
    ))
}

fn soak(log: &Log, binary: &Path, megabytes: u64, words: &[&str]) -> Result<()> {
    let server = Server::start(&server::words(binary), &["-m", &megabytes.to_string()])?;
    let mut command = Command::new(binary);
    command
        .args(["soak", "--target", &format!("127.0.0.1:{}", server.port)])
        .args(words);
    command.args(["--server-pid", &server.process().to_string()]);
    command.args(["--rss-max", &(megabytes + BESIDE_MEGABYTES).to_string()]);
    log.run(&mut command)?;
    Ok(())
}

/// What the process may take beside `-m`.
const BESIDE_MEGABYTES: u64 = 32;
