//! `cargo xtask soak`: mixed load whose values verify themselves, against a fresh server.

use std::process::Command;

use anyhow::{Context, Result};

use crate::process::Log;
use crate::server::{self, Server};
use crate::tally::Outcome;
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

pub(crate) fn run(workspace: &Workspace, log: &Log, seconds: u64) -> Result<Outcome> {
    let binary = server::build(workspace, log)?;
    let server = Server::start(&server::words(&binary), &["-m", "256"])?;
    let mut command = Command::new(binary);
    command.args(["soak", "--target", &format!("127.0.0.1:{}", server.port)]);
    command.args(["--duration", &seconds.to_string()]);
    log.run(&mut command)?;
    Ok(Outcome::passed())
}
