//! Clients and tools that people use, run against the server: pymemcache's integration tests,
//! libmemcached's `memccapable`, and a Prometheus exporter.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::check_result::{Outcome, Tally};
use crate::process::{self, Log, Running};
use crate::required_packages::{self, Tool};
use crate::server::{self, Server, talk};
use crate::workspace::Workspace;

/// Python with pymemcache and pytest.
pub(crate) fn python(workspace: &Workspace, log: &Log) -> Result<PathBuf> {
    required_packages::virtual_environment(workspace, log, "python", &[PYMEMCACHE, "pytest"])
}

pub(super) fn pymemcache(workspace: &Workspace, log: &Log, server: &[String]) -> Result<Outcome> {
    let server = Server::start(server, &[])?;
    pymemcache_at(workspace, log, server.port, &[])
}

/// Tests that cannot pass, as pytest's `-k` names them, and why.
pub(super) type Cannot = [(&'static str, &'static str)];

/// pymemcache's integration tests against the server on `port`, but for those that cannot
/// pass there.
pub(super) fn pymemcache_at(
    workspace: &Workspace,
    log: &Log,
    port: u16,
    cannot: &Cannot,
) -> Result<Outcome> {
    let python = python(workspace, log)?;
    // By path: only then does pytest read the options that the tests' conftest.py adds.
    let mut find = Command::new(&python);
    find.args([
        "-c",
        "import pymemcache.test as test; print(test.__path__[0])",
    ]);
    let folder = String::from_utf8(find.output()?.stdout)?;
    let mut command = Command::new(python);
    command.args([
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--disable-warnings",
    ]);
    command.arg(format!("{}/test_integration.py", folder.trim()));
    command.args(["--server", "127.0.0.1", "--port", &port.to_string()]);
    for (test, why) in cannot {
        log.line(&format!("not run: {test}: {why}"))?;
    }
    if !cannot.is_empty() {
        let names: Vec<String> = cannot.iter().map(|(test, _)| format!("({test})")).collect();
        command.args(["-k", &format!("not ({})", names.join(" or "))]);
    }
    let finished = log.finish(&mut command)?;
    let tally = pytest_tally(&finished.output);
    if tally.passed == 0 {
        return Ok(Outcome::failed("pytest ran no test"));
    }
    let failure = (!finished.status.success()).then(|| "pymemcache's tests fail".to_string());
    Ok(Outcome::counted(tally, failure))
}

/// From pytest's last line: `56 passed, 2 skipped in 3.21s`.
fn pytest_tally(output: &str) -> Tally {
    let mut tally = Tally::default();
    let last = output
        .lines()
        .rev()
        .find(|line| line.contains(" in ") && line.ends_with('s'));
    for part in last
        .unwrap_or_default()
        .trim_matches(['=', ' '])
        .split([',', ' '])
        .collect::<Vec<_>>()
        .windows(2)
    {
        let Ok(count) = part[0].parse::<u64>() else {
            continue;
        };
        match part[1] {
            "passed" => tally.passed += count,
            "failed" | "error" | "errors" => tally.failed += count,
            "skipped" | "xfailed" => tally.skipped += count,
            _ => {}
        }
    }
    tally
}

pub(super) fn memccapable(log: &Log, server: &[String]) -> Result<Outcome> {
    let server = Server::start(server, &[])?;
    memccapable_at(log, server.port)
}

/// The same against the server on `port`.
pub(super) fn memccapable_at(log: &Log, port: u16) -> Result<Outcome> {
    required_packages::ensure(log, &[Tool::of("memccapable", "libmemcached-tools")])?;
    let mut command = Command::new("memccapable");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-a"]);
    let finished = log.finish(&mut command)?;
    let count = |word: &str| {
        let ends = |line: &&str| line.trim_end().ends_with(word);
        finished.output.lines().filter(ends).count() as u64
    };
    let tally = Tally {
        passed: count("[pass]"),
        failed: count("[FAIL]"),
        skipped: count("[skip]"),
    };
    if tally.passed == 0 {
        return Ok(Outcome::failed("memccapable ran no test"));
    }
    let failure = (!finished.status.success()).then(|| "memccapable fails".to_string());
    Ok(Outcome::counted(tally, failure))
}

/// The exporter that dashboards use: it must report the server as up after some traffic.
pub(super) fn exporter(workspace: &Workspace, log: &Log, server: &[String]) -> Result<Outcome> {
    if !process::exists("go") {
        return Ok(Outcome::skipped(
            "the exporter is written in Go, and no Go is installed",
        ));
    }
    let program = build_exporter(workspace, log)?;
    let server = Server::start(server, &[])?;
    talk(server.port, "set a 0 0 1\r\nb\r\nget a\r\nquit\r\n")?;
    let port = server::free_port()?;
    let mut command = Command::new(program);
    command.arg(format!("--memcached.address=127.0.0.1:{}", server.port));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _exporter = Running::start(&mut command)?;
    let page = first_answer(port)?;
    log.line(&page)?;
    let mut tally = Tally::default();
    for wanted in EXPORTED {
        match page.lines().any(|line| line.starts_with(wanted)) {
            true => tally += Tally::ONE_PASSED,
            false => {
                log.line(&format!("missing: {wanted}"))?;
                tally += Tally::ONE_FAILED;
            }
        }
    }
    Ok(Outcome::counted(tally, None))
}

/// Debian 12 has no package of it, so it is built from its module, once.
fn build_exporter(workspace: &Workspace, log: &Log) -> Result<PathBuf> {
    let folder = workspace.scratch("exporter")?;
    let program = folder.join("exporter");
    if !program.exists() {
        let module =
            format!("module exporter\n\ngo 1.23\n\nrequire {EXPORTER} {EXPORTER_VERSION}\n");
        fs::write(folder.join("go.mod"), module)?;
        let mut build = Command::new("go");
        build.args(["build", "-mod=mod", "-o", "exporter"]);
        build
            .arg(format!("{EXPORTER}/cmd/memcached_exporter"))
            .current_dir(&folder);
        log.run(&mut build)?;
    }
    Ok(program)
}

fn first_answer(port: u16) -> Result<String> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let answer = talk(port, "GET /metrics HTTP/1.0\r\n\r\n");
        match answer {
            Ok(page) if page.contains("memcached_up") => return Ok(page),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    bail!("the exporter gave no page within 10 s")
}

/// Lines that the exporter's page has if it understood every answer.
const EXPORTED: &[&str] = &[
    "memcached_up 1",
    "memcached_commands_total{command=\"get\",status=\"hit\"} 1",
    "memcached_commands_total{command=\"set\",status=\"hit\"} 1",
    "memcached_current_items 1",
    "memcached_max_connections 1024",
    "memcached_limit_bytes 6.7108864e+07",
    "memcached_version{version=",
    "memcached_uptime_seconds",
];

const EXPORTER: &str = "github.com/prometheus/memcached_exporter";
const EXPORTER_VERSION: &str = "v0.16.0";

/// Pinned: its tests are the contract.
const PYMEMCACHE: &str = "pymemcache==4.0.0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytests_last_line_is_counted() {
        let output = "....\n== 56 passed, 2 skipped, 1 failed in 3.21s ==\n";
        let line = output.replace("== ", "").replace(" ==", "");
        assert_eq!(
            pytest_tally(&line),
            Tally {
                passed: 56,
                failed: 1,
                skipped: 2
            }
        );
        assert_eq!(pytest_tally("no tests ran in 0.01s"), Tally::default());
    }
}
