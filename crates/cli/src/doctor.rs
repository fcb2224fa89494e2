//! `curtail doctor`: settings of this machine that slow a server down, their cost, and the remedy.
//!
//! It only reads; every line says what was found, whether that is good, and if not, what it costs.

use std::{fmt::Write as _, fs, process::ExitCode};

use clap::{Args, ValueEnum};
use curtail_runtime::{ControlGroups, Xdp};
use curtail_server::NativeConfig;
use serde_json::json;

/// Options of `curtail doctor`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Format of the findings
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// How good a finding is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Good,
    Note,
    Warning,
}

/// One thing looked at.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    found: String,
    verdict: Verdict,
    advice: &'static str,
}

/// Prints the findings. The exit code is 0 even with warnings: they are advice.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let findings = examine();
    match options.format {
        Format::Text => print!("{}", as_text(&findings)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&as_json(&findings))?),
    }
    Ok(ExitCode::SUCCESS)
}

fn examine() -> Vec<Finding> {
    vec![
        processors(),
        quota(),
        spinning(),
        memory(),
        memory_group(),
        huge_pages(),
        overcommit(),
        open_files(),
        backlog(),
        congestion(),
        memory_lock(),
        swap(),
        network_card(),
    ]
}

/// Whether a program of the kernel's may acknowledge native writes: as far as a server gets without
/// an interface.
fn network_card() -> Finding {
    let name = "native writes";
    let pins = NativeConfig::default().pin;
    match Xdp::probe(&pins) {
        Ok(()) => good(
            name,
            format!(
                "the XDP program can acknowledge them (--native-interface); it would be \
                 pinned in {}",
                pins.display()
            ),
        ),
        // In the words that the server would use, because they are the server's.
        Err(why) => good(name, format!("a thread acknowledges them, because {why}")).note(
            true,
            "matters only with --native-interface; --native-mode xdp would not start: see \
             docs/guide/nic.md",
        ),
    }
}

fn good(name: &'static str, found: impl Into<String>) -> Finding {
    let found = found.into();
    Finding {
        name,
        found,
        verdict: Verdict::Good,
        advice: "",
    }
}

impl Finding {
    fn note(self, when: bool, advice: &'static str) -> Self {
        self.judged(when, Verdict::Note, advice)
    }

    fn warn(self, when: bool, advice: &'static str) -> Self {
        self.judged(when, Verdict::Warning, advice)
    }

    fn judged(mut self, when: bool, verdict: Verdict, advice: &'static str) -> Self {
        if when {
            self.verdict = verdict;
            self.advice = advice;
        }
        self
    }
}

fn processors() -> Finding {
    let usable = curtail_runtime::cpus_usable();
    let allowed = curtail_runtime::cpus_allowed().len();
    good(
        "processors",
        format!("{usable} usable of {allowed} allowed"),
    )
    .note(
        usable == 1,
        "one worker shares the processor with the kernel's network threads and all other programs",
    )
}

fn quota() -> Finding {
    match curtail_runtime::quota_cpus() {
        None => good("cpu quota", "none"),
        Some(cpus) => good("cpu quota", format!("{cpus:.2} processors")).warn(
            true,
            "when the quota is used up, every thread stops for the rest of the period, up to 100 \
             ms: the 99th percentile shows it. Give whole processors (cpuset) instead",
        ),
    }
}

fn spinning() -> Finding {
    if curtail_runtime::quota_cpus().is_some() {
        return good("spinning", "off: it would use up the quota");
    }
    match curtail_runtime::cpus_usable() {
        1 => good("spinning", "off: there is one processor"),
        usable => good("spinning", format!("on if -t is at most {}", usable - 1)).note(
            true,
            "with fewer workers than processors, busy workers poll for up to 20 us before they \
             sleep, which shortens latencies by the time to wake them",
        ),
    }
}

fn memory() -> Finding {
    let (total, available) = (meminfo("MemTotal:"), meminfo("MemAvailable:"));
    let found = format!("{} MiB, {} MiB available", mib(total), mib(available));
    good("memory", found).warn(
        available < 128 << 20,
        "less than a server with the default -m 64 needs: the kernel may kill a process",
    )
}

fn memory_group() -> Finding {
    memory_group_of(&ControlGroups::own())
}

fn memory_group_of(groups: &ControlGroups<'_>) -> Finding {
    match groups.memory_limit() {
        None => good("cgroup memory limit", "none"),
        Some(limit) => good(
            "cgroup memory limit",
            format!("{} MiB, of {}", mib(limit.bytes), limit.group.display()),
        )
        .note(
            true,
            "keep -m at least 32 MiB below this limit: at -m the server evicts items, at the limit \
             the kernel kills it",
        ),
    }
}

fn huge_pages() -> Finding {
    let text = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text
        .split(['[', ']'])
        .nth(1)
        .unwrap_or("unknown")
        .to_owned();
    let off = !matches!(chosen.as_str(), "always" | "madvise");
    good("huge pages", chosen).note(
        off,
        "with small pages each access to a large table also waits for address translation, which \
         costs 7 to 12 % of the throughput with pipelines of 16",
    )
}

fn overcommit() -> Finding {
    let mode = read("/proc/sys/vm/overcommit_memory").unwrap_or_else(|| "unknown".to_owned());
    let strict = mode == "2";
    good("overcommit", mode).warn(
        strict,
        "strict accounting may refuse the address space that the server reserves for eight times \
         -m",
    )
}

fn open_files() -> Finding {
    let (now, most) = curtail_runtime::open_files_limit();
    good("open files", format!("{now}, at most {most}")).warn(
        most < 1024 + 64 && !curtail_runtime::is_root(),
        "fewer than the default -c 1024 needs: clients will be refused. Raise LimitNOFILE or \
         ulimit -n",
    )
}

fn backlog() -> Finding {
    let most = number("/proc/sys/net/core/somaxconn").unwrap_or(0);
    good("listen backlog", format!("somaxconn {most}")).note(
        most < 1024,
        "limits -b: if more new connections arrive at a time, clients retry after a second",
    )
}

fn congestion() -> Finding {
    let name = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let name = name.unwrap_or_else(|| "unknown".to_owned());
    let pacing = name == "bbr";
    good("tcp congestion control", name).note(
        pacing,
        "with bbr a busy worker spends about 1.5 % of its processor time on pacing in a local \
         network; with reno and cubic it does not",
    )
}

fn memory_lock() -> Finding {
    let text = read("/proc/self/limits").unwrap_or_default();
    let limit = text
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let limit = limit
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or("unknown");
    let bytes = match limit {
        "unlimited" | "unknown" => limit.to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    good("locked memory", bytes).note(
        limit != "unlimited" && !curtail_runtime::is_root(),
        "for -k, set it to unlimited (LimitMEMLOCK=infinity)",
    )
}

fn swap() -> Finding {
    let total = meminfo("SwapTotal:");
    good("swap", format!("{} MiB", mib(total))).note(
        total > 0,
        "items that were swapped out take milliseconds to read; -k keeps them in memory",
    )
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    read(path)?.parse().ok()
}

/// A line of /proc/meminfo, in bytes.
fn meminfo(name: &str) -> u64 {
    let text = read("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "ok",
        Verdict::Note => "note",
        Verdict::Warning => "warning",
    }
}

fn as_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let (verdict, name, found) = (word(finding.verdict), finding.name, &finding.found);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{verdict:<8} {name:<23} {found}");
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "{:>8} {}", "", finding.advice);
        }
    }
    text
}

fn as_json(findings: &[Finding]) -> serde_json::Value {
    let rows = findings.iter().map(|finding| {
        json!({
            "name": finding.name,
            "found": finding.found,
            "verdict": word(finding.verdict),
            "advice": finding.advice,
        })
    });
    json!({ "version": env!("CARGO_PKG_VERSION"), "findings": rows.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_is_printed_in_both_forms() {
        let findings = examine();
        let text = as_text(&findings);
        let rows = as_json(&findings);
        assert_eq!(rows["findings"].as_array().unwrap().len(), findings.len());
        for finding in &findings {
            assert!(text.contains(finding.name) && !finding.found.is_empty());
            assert_eq!(finding.advice.is_empty(), finding.verdict == Verdict::Good);
        }
    }

    /// Goal: a service's own limit is reported, not the root's, which has none.
    #[test]
    fn the_limit_of_the_own_group_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for (path, text) in [
            ("proc/self/cgroup", "0::/a.slice/b.service\n"),
            ("proc/self/mountinfo", mount),
            ("sys/fs/cgroup/a.slice/b.service/memory.max", "1073741824\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let finding = memory_group_of(&ControlGroups::below(root.path()));
        assert!(
            finding.found.starts_with("1024 MiB, of "),
            "{}",
            finding.found
        );
        assert!(
            finding.found.ends_with("a.slice/b.service"),
            "{}",
            finding.found
        );
        assert_eq!(finding.verdict, Verdict::Note);
    }
}
