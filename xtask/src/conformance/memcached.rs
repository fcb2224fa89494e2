//! memcached's own test-suite (`t/*.t` of Debian's source package) against a server of ours.
//!
//! The suite starts `memcached-debug` in its own folder, so we put a wrapper of that name there
//! that starts the server under test. Which files run is a reviewed list in
//! `xtask/conformance/memcached.toml`: each file of the suite is `run` or has a reason not to; a
//! file that the list does not know, and a listed file that skips itself, are failures. Against a
//! node of a cluster those do not run that the list has under `alone`.

mod clustered;
mod list;
mod source;

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::list::List;
use crate::check_result::{Outcome, Tally};
use crate::process::Log;
use crate::required_packages::{self, Tool};
use crate::workspace::Workspace;

/// What each server of the suite is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arrangement {
    /// A server.
    Alone,
    /// A node of a cluster of three.
    Clustered,
}

pub(super) fn run(
    workspace: &Workspace,
    log: &Log,
    server: &[String],
    chosen: &[String],
    arrangement: Arrangement,
) -> Result<Outcome> {
    required_packages::ensure(log, TOOLS)?;
    let suite = source::fetch(workspace, log)?;
    prepare(log, &suite, server, arrangement)?;
    let list = List::read(&workspace.root.join(LIST))?;
    let (list, jobs) = match arrangement {
        Arrangement::Alone => (list, JOBS),
        Arrangement::Clustered => (list.of_a_node(), clustered::JOBS),
    };
    let files = list.choose(&files_of(&suite)?, chosen)?;
    let mut command = Command::new("prove");
    command
        .args(["-j", jobs, "--timer", "--exec", PERL])
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
        let end = ends
            .iter()
            .find(|(file, _)| file == name)
            .map(|(_, end)| end);
        match judged(end, list.may_fail(name)) {
            None => tally.passed += 1,
            Some(why) => failed.push(format!("{name}{why}")),
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
fn prepare(log: &Log, suite: &Path, server: &[String], arrangement: Arrangement) -> Result<()> {
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
    let mut words: Vec<String> = server.iter().map(|word| format!("'{word}'")).collect();
    if server.last().is_some_and(|word| word == "serve") {
        // The suite moves the clock as in a debug build, and listens on all addresses.
        words.extend(["--debug-time", "--open-to-network"].map(str::to_string));
    }
    let words = words.join(" ");
    let script = match arrangement {
        Arrangement::Alone => WRAPPER.replace("SERVER", &words),
        Arrangement::Clustered => clustered::wrapper(&words, &suite.join("clusters"))?,
    };
    fs::write(&wrapper, script)?;
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

/// Why the end of a file is no pass, given the assertions that may fail and then must; or `None`.
fn judged(end: Option<&End>, may_fail: &[u32]) -> Option<&'static str> {
    match end {
        None => Some(" (did not run)"),
        Some(End::Skipped) => Some(" (skipped itself)"),
        Some(End::Passed) if may_fail.is_empty() => None,
        Some(End::Passed) => Some(" (passes now: see the list)"),
        Some(End::Failed(numbers)) if numbers.is_empty() => Some(" (did not reach its end)"),
        Some(End::Failed(numbers)) if numbers == may_fail => None,
        Some(End::Failed(_)) => Some(""),
    }
}

#[derive(Debug, Eq, PartialEq)]
enum End {
    Passed,
    Skipped,
    /// The numbers of the assertions that failed; none if the file ended early or never began.
    Failed(Vec<u32>),
}

/// How each file ended, from prove's lines: `[time] t/cas.t ...... ok    12 ms`, and from its
/// summary of failures, which has the numbers.
fn ends_of(output: &str) -> Vec<(String, End)> {
    let mut ends: Vec<(String, End)> = Vec::new();
    for line in output.lines() {
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
            _ => End::Failed(Vec::new()),
        };
        ends.push((format!("{name}.t"), end));
    }
    for (name, numbers) in failures_of(output) {
        ends.retain(|(file, _)| *file != name);
        ends.push((name, End::Failed(numbers)));
    }
    ends
}

/// prove's summary: a line `t/cas.t (Wstat: ..)` for each file that failed, and indented lines
/// behind it. It has also those whose own line was lost among what their servers said.
fn failures_of(output: &str) -> Vec<(String, Vec<u32>)> {
    let mut failures: Vec<(String, Vec<u32>)> = Vec::new();
    for line in output.lines() {
        if let Some((name, _)) = line
            .strip_prefix("t/")
            .and_then(|rest| rest.split_once(".t "))
            && line.contains("(Wstat: ")
        {
            failures.push((format!("{name}.t"), Vec::new()));
        } else if let Some((_, numbers)) = failures.last_mut() {
            if let Some(list) = line.trim().strip_prefix("Failed test") {
                numbers.extend(ranges(list.trim_start_matches(['s', ':', ' '])));
            } else if line.trim().starts_with("Parse errors") {
                numbers.clear(); // it did not reach its end
            }
        }
    }
    failures
}

/// `1, 3-5` as numbers.
fn ranges(list: &str) -> impl Iterator<Item = u32> {
    list.split(", ").flat_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        match (from.trim().parse(), to.trim().parse()) {
            (Ok(from), Ok(to)) => from..=to,
            _ => RangeInclusive::new(1, 0),
        }
    })
}

const LIST: &str = "xtask/conformance/memcached.toml";

/// Files run side by side: most of their time is sleep.
const JOBS: &str = "10";

/// A file that waits for an answer which never comes would wait for ever; the slowest takes 30 s.
const PERL: &str = "timeout 180 perl";

const TOOLS: &[Tool] = &[
    Tool::of("cc", "gcc"),
    Tool::of("prove", "perl"),
    Tool::of("dpkg-source", "dpkg-dev"),
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
  Failed tests:  3, 8, 16-17, 36
  Non-zero exit status: 5
t/restart.t               (Wstat: 31744 (exited 124) Tests: 68 Failed: 1)
  Failed test:  1
  Non-zero exit status: 124
  Parse errors: No plan found in TAP output
";
        let expected = [
            ("64bit.t".to_string(), End::Passed),
            ("issue_140.t".to_string(), End::Skipped),
            ("cas.t".to_string(), End::Failed(vec![])),
            (
                "expirations.t".to_string(),
                End::Failed(vec![3, 8, 16, 17, 36]),
            ),
            ("restart.t".to_string(), End::Failed(vec![])),
        ];
        assert_eq!(ends_of(output), expected);
    }

    // Only a whole pass passes, or exactly the failures that the list argues for.
    #[test]
    fn ends_are_judged() {
        assert!(judged(Some(&End::Passed), &[]).is_none());
        assert!(judged(Some(&End::Failed(vec![2, 3])), &[2, 3]).is_none());
        assert!(judged(Some(&End::Failed(vec![2])), &[2, 3]).is_some());
        assert!(judged(Some(&End::Failed(vec![2])), &[]).is_some());
        assert!(judged(Some(&End::Failed(vec![])), &[]).is_some());
        assert!(judged(Some(&End::Passed), &[2]).is_some());
        assert!(judged(Some(&End::Skipped), &[]).is_some());
        assert!(judged(None, &[]).is_some());
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
