//! The steps that only `--all` runs.

use std::process::Command;

use anyhow::Result;

use super::cargo_calls::in_root;
use super::counted;
use crate::check_result::{Outcome, Tally};
use crate::process::Log;
use crate::soak;
use crate::workspace::Workspace;

/// Optimised, and with everything asserted and contention forced.
pub(super) fn ignored(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let words = [
        "test",
        "--profile",
        "checked",
        "--workspace",
        "--no-fail-fast",
        "--",
        "--ignored",
    ];
    counted(log, &mut in_root(workspace, &words))
}

/// Miri comes with some nightlies only; without one the step is skipped and says so.
pub(super) fn miri(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let probe = nightly(workspace, &["miri", "--version"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return Ok(Outcome::skipped(
            "no nightly toolchain with miri is installed",
        ));
    }
    let words = [
        "miri",
        "test",
        "--lib",
        "-p",
        "curtail-table",
        "-p",
        "curtail-segments",
    ];
    let mut command = nightly(workspace, &words);
    command.env("CARGO_TARGET_DIR", workspace.scratch("miri")?);
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    counted(log, &mut command)
}

pub(super) fn fuzz(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let output = match nightly(workspace, &["fuzz", "list"]).output() {
        Ok(output) if output.status.success() => output,
        _ => {
            return Ok(Outcome::skipped(
                "no nightly toolchain with cargo-fuzz is installed",
            ));
        }
    };
    let mut tally = Tally::default();
    let mut failure = None;
    for target in String::from_utf8_lossy(&output.stdout).lines() {
        let words = ["fuzz", "run", target, "--", "-max_total_time=60"];
        let mut run = nightly(workspace, &words);
        let finished = log.finish(&mut run)?;
        // The canary has a bug: a fuzzer that does not find it finds nothing.
        if finished.status.success() != (target == "canary") {
            tally += Tally::ONE_PASSED;
        } else {
            tally += Tally::ONE_FAILED;
            failure = Some(format!("cargo +nightly fuzz run {target}"));
        }
    }
    Ok(Outcome::counted(tally, failure))
}

/// The nightly toolchain's cargo, which must not be told of the one that runs this.
fn nightly(workspace: &Workspace, words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command
        .arg("+nightly")
        .args(words)
        .current_dir(&workspace.root);
    for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC"] {
        command.env_remove(name);
    }
    command
}

pub(super) fn soak(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    soak::run(workspace, log, soak::SECONDS)
}
