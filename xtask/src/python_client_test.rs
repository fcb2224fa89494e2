//! `cargo xtask test python-client`: the pure-Python clients against the golden packets, a fresh
//! server, and a cache tier of processes.
//!
//! It speaks the protocol from the text alone, without a line of ours, so what it agrees on with
//! the server is what the text says.

use std::process::Command;

use anyhow::Result;

use crate::check_result::{Outcome, Tally};
use crate::process::Log;
use crate::required_packages::{self, Tool};
use crate::server::{self, Server};
use crate::workspace::Workspace;

/// Runs the client's tests; each of its cases counts.
pub(crate) fn step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    required_packages::ensure(log, &[Tool::of("python3", "python3")])?;
    let binary = server::build(workspace, log)?;
    let native = server::free_port()?.to_string();
    let server = Server::start(&server::words(&binary), &["--native", &native])?;
    let mut command = Command::new("python3");
    command
        .args(["-B", "-W", "error", "-m", "unittest", "discover"])
        .args(["-s", "clients/python", "-p", "test_*.py"])
        .env("CURTAIL_NATIVE", format!("127.0.0.1:{native}"))
        .env("CURTAIL", &binary)
        .current_dir(&workspace.root);
    let finished = log.finish(&mut command)?;
    server.stop()?;
    let tally = tally_of(&finished.output);
    let failure = match (finished.status.success(), tally.passed) {
        (false, _) => Some("the Python client's tests fail".to_string()),
        (true, 0) => Some("no test of the Python client was run".to_string()),
        (true, _) => None,
    };
    Ok(Outcome::counted(tally, failure))
}

/// What unittest says at its end: `Ran 14 tests in 1.2s`, then `OK` or `FAILED (failures=1,
/// skipped=8)`.
fn tally_of(output: &str) -> Tally {
    let last = |prefix: &str| {
        output
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix(prefix))
    };
    let ran = last("Ran ").and_then(|rest| rest.split(' ').next());
    let ran: u64 = ran.and_then(|count| count.parse().ok()).unwrap_or(0);
    let end = last("FAILED").or(last("OK")).unwrap_or_default();
    let count = |name: &str| -> u64 {
        let mut parts = end.split(['(', ',', ')']);
        let found = parts.find_map(|part| part.trim().strip_prefix(name));
        found
            .and_then(|count| count.strip_prefix('=')?.parse().ok())
            .unwrap_or(0)
    };
    let failed = count("failures") + count("errors");
    let skipped = count("skipped");
    Tally {
        passed: ran.saturating_sub(failed + skipped),
        failed,
        skipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_unittest_are_counted() {
        let output = "..s\nRan 14 tests in 0.2s\n\nFAILED (failures=1, errors=2, skipped=8)\n";
        let tally = tally_of(output);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (3, 3, 8));
        let tally = tally_of("Ran 5 tests in 0.2s\n\nOK\n");
        assert_eq!((tally.passed, tally.failed, tally.skipped), (5, 0, 0));
        assert_eq!(tally_of("Traceback").total(), 0);
    }
}
