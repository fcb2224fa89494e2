//! memcached's own test-suite (`t/*.t` of Debian's source package) against a server of ours.
//!
//! The suite starts `memcached-debug` in its own folder, so we put a wrapper of that name there
//! that starts the server under test. Which files run is a reviewed list in
//! `xtask/conformance/memcached.toml`: each file of the suite is `run` or has a reason not to; a
//! file that the list does not know, and a listed file that skips itself, are failures.

mod list;
mod source;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::list::List;
use crate::packages::{self, Tool};
use crate::process::Log;
use crate::tally::{Outcome, Tally};
use crate::workspace::Workspace;

pub(super) fn run(
    workspace: &Workspace,
    log: &Log,
    server: &[String],
    chosen: &[String],
) -> Result<Outcome> {
    packages::ensure(log, TOOLS)?;
    let suite = source::fetch(workspace, log)?;
    prepare(log, &suite, server)?;
    let list = List::read(&workspace.root.join("xtask/conformance/memcached.toml"))?;
    let files = list.choose(&files_of(&suite)?, chosen)?;
    let mut command = Command::new("prove");
    command
        .args(["-j", JOBS, "--timer", "--exec", PERL])
        .current_dir(&suite);
    command.args(files.run.iter().map(|name| format!("t/{name}")));
    // perl warns of a locale that is not installed; the suite's own language is C
    command.env("LC_ALL", "C");
    let finished = log.finish(&mut command)?;
    let ends = ends_of(&finished.output);
    let mut tally = Tally {
        skipped: files.skipped.len() as u64,
        ..Tally::default()
    };
    let mut failed = Vec::new();
    for name in &files.run {
        match ends.iter().find(|(file, _)| file == name) {
            Some((_, End::Passed)) => tally.passed += 1,
            Some((_, End::Skipped)) => failed.push(format!("{name} (skipped itself)")),
            Some((_, End::Failed)) => failed.push(name.clone()),
            None => failed.push(format!("{name} (did not run)")),
        }
    }
    tally.failed = failed.len() as u64;
    for (name, why) in &files.skipped {
        log.line(&format!("not run: {name}: {why}"))?;
    }
    let totals = finished
        .output
        .lines()
        .find(|line| line.starts_with("Files="));
    log.line(&format!(
        "{} of {} files pass",
        tally.passed,
        files.run.len()
    ))?;
    let failure =
        (!failed.is_empty()).then(|| format!("{} fail: {}", failed.len(), failed.join(", ")));
    let assertions = totals.and_then(|line| line.split("Tests=").nth(1)?.split(',').next());
    let remark = format!("files; {} assertions", assertions.unwrap_or("no"));
    Ok(Outcome::counted(tally, failure).remark(remark))
}

/// Builds what the suite starts servers with, and puts ours in memcached's place.
fn prepare(log: &Log, suite: &Path, server: &[String]) -> Result<()> {
    let timedrun = suite.join("timedrun");
    if !timedrun.exists() {
        let mut compile = Command::new("cc");
        log.run(
            compile
                .args(["-O1", "-w", "-o", "timedrun", "timedrun.c"])
                .current_dir(suite),
        )?;
    }
    let wrapper = suite.join("memcached-debug");
    let words: Vec<String> = server.iter().map(|word| format!("'{word}'")).collect();
    fs::write(&wrapper, WRAPPER.replace("SERVER", &words.join(" ")))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn files_of(suite: &Path) -> Result<Vec<String>> {
    let folder = fs::read_dir(suite.join("t")).context("the suite's folder t")?;
    let mut names = Vec::new();
    for entry in folder {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".t") {
            names.push(name);
        }
    }
    names.sort();
    if names.is_empty() {
        bail!("the memcached source package has no tests");
    }
    Ok(names)
}

#[derive(Debug, Eq, PartialEq)]
enum End {
    Passed,
    Skipped,
    Failed,
}

/// How each file ended, from prove's lines: `[time] t/cas.t ...... ok    12 ms`.
fn ends_of(output: &str) -> Vec<(String, End)> {
    let mut ends: Vec<(String, End)> = Vec::new();
    for line in output.lines() {
        // A line of the summary: also for a file whose own line was lost among its server's.
        if let Some((name, _)) = line
            .strip_prefix("t/")
            .and_then(|rest| rest.split_once(".t "))
            && line.contains("(Wstat: ")
        {
            ends.retain(|(file, _)| *file != format!("{name}.t"));
            ends.push((format!("{name}.t"), End::Failed));
            continue;
        }
        let Some(at) = line.find("t/") else { continue };
        let timed = line[..at].starts_with('[') && line[..at].ends_with("] ");
        let Some((name, rest)) = line[at + 2..].split_once(".t ") else {
            continue;
        };
        if !timed || !rest.trim_start().starts_with("..") {
            continue;
        }
        let end = match rest.trim_start_matches(['.', ' ']) {
            ok if ok.starts_with("ok") => End::Passed,
            skipped if skipped.starts_with("skipped") => End::Skipped,
            _ => End::Failed,
        };
        ends.push((format!("{name}.t"), end));
    }
    ends
}

/// Files run side by side: most of their time is sleep.
const JOBS: &str = "10";

/// A file that waits for an answer which never comes would wait for ever; the slowest takes 30 s.
const PERL: &str = "timeout 180 perl";

const TOOLS: &[Tool] = &[
    Tool {
        program: "cc",
        package: "gcc",
    },
    Tool {
        program: "prove",
        package: "perl",
    },
    Tool {
        program: "dpkg-source",
        package: "dpkg-dev",
    },
];

/// `-o relaxed_privileges` exists in memcached's debug builds only; the suite always passes it.
const WRAPPER: &str = r#"#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    if [ "$argument" = -o ] && [ "$1" = relaxed_privileges ]; then
        shift
        count=$((count - 1))
    else
        set -- "$@" "$argument"
    fi
done
exec SERVER "$@"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    // prove's own words: a pass, a skip, a failure (which has nothing behind its dots), and noise.
    #[test]
    fn the_ends_are_read_from_proves_lines() {
        let output = "\
[10:36:17] t/64bit.t ................... ok     1913 ms ( 0.02 usr)
[10:36:40] t/issue_140.t ............... skipped: Fix for Issue 140 was only an illusion
[10:36:22] t/expirations.t .............
[10:36:23] t/cas.t ..................... Failed 1/3 subtests
# t/noise.t .... ok
t/expirations.t           (Wstat: 1280 (exited 5) Tests: 41 Failed: 5)
t/restart.t               (Wstat: 31744 (exited 124) Tests: 68 Failed: 19)
";
        let expected = [
            ("64bit.t".to_string(), End::Passed),
            ("issue_140.t".to_string(), End::Skipped),
            ("cas.t".to_string(), End::Failed),
            ("expirations.t".to_string(), End::Failed),
            ("restart.t".to_string(), End::Failed),
        ];
        assert_eq!(ends_of(output), expected);
    }

    // The wrapper drops exactly the pair that only debug builds know.
    #[test]
    fn the_wrapper_drops_relaxed_privileges() {
        let script = WRAPPER.replace("SERVER", "echo");
        let words = [
            "-o",
            "modern",
            "-m",
            "3",
            "-u",
            "root",
            "-o",
            "relaxed_privileges",
            "-s",
            "a b",
        ];
        let output = Command::new("sh")
            .args(["-c", &script, "sh"])
            .args(words)
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "-o modern -m 3 -u root -s a b\n"
        );
    }
}
