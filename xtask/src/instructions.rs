//! `cargo xtask instructions`: what one small request costs, counted in instructions.
//!
//! Times on shared machines say little; instructions are the same from run to run. The server runs
//! under callgrind on one processor (so that no worker spins while it waits) and answers pipelines
//! of 16 requests from one connection, once some and once three times as many: the difference is
//! what the requests cost, without start and stop. The kernel's share is not in it.
//!
//! `docs/benchmarks/instructions.toml` keeps the counts of the default policy; the test fails when
//! one has grown by more than 3 %, so that a change which makes requests dearer is a decision and
//! not an accident. Another compiler gives other counts: then nothing is judged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use curtail_client::memcached;

use crate::packages::{self, Tool};
use crate::process::Log;
use crate::server::{self, Server};
use crate::tally::{Outcome, Tally};
use crate::workspace::Workspace;

/// A request that is sent again and again, and the length of its reply.
struct Form {
    name: &'static str,
    request: fn(&str) -> String,
    reply_bytes: fn(&str) -> usize,
}

const FORMS: &[Form] = &[
    Form {
        name: "meta get",
        request: |key| format!("mg {key} v\r\n"),
        reply_bytes: |_| "VA 64\r\n".len() + VALUE_BYTES + 2,
    },
    Form {
        name: "meta set",
        request: |key| format!("ms {key} 64\r\n{}\r\n", value()),
        reply_bytes: |_| "HD\r\n".len(),
    },
    Form {
        name: "get",
        request: |key| format!("get {key}\r\n"),
        reply_bytes: |key| "VALUE  0 64\r\n".len() + key.len() + VALUE_BYTES + 2 + "END\r\n".len(),
    },
    Form {
        name: "set",
        request: |key| format!("set {key} 0 0 64\r\n{}\r\n", value()),
        reply_bytes: |_| "STORED\r\n".len(),
    },
];

/// The policies beside the default, for the table.
const POLICIES: &[&str] = &[
    "size-aware+d-crew",
    "size-aware-static+d-crew",
    "d-crew",
    "crcw",
    "crew",
    "erew",
];

const VALUE_BYTES: usize = 64;
const KEYS: usize = 512;
const PIPELINE: usize = 16;
/// Pipelines of the shorter run.
const PIPELINES: usize = 1500;
const RECORD: &str = "docs/benchmarks/instructions.toml";
/// How much more a request may cost than recorded, per cent.
const GROWTH_MAX: f64 = 3.0;

/// `cargo xtask instructions [--record | --policies]`
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let log = Log::file(workspace.scratch("instructions")?.join("log"))?;
    match arguments.first().map(String::as_str) {
        None => judge(workspace, &log),
        Some("--record") => {
            let counts = count_forms(workspace, &log, &["-t", "1"])?;
            fs::write(workspace.root.join(RECORD), recorded(&counts)?)?;
            println!("wrote {RECORD}");
            Ok(Outcome::passed())
        }
        Some("--policies") => policies(workspace, &log),
        Some(other) => bail!("instructions takes --record or --policies, not `{other}`"),
    }
}

/// The step of `cargo xtask test`.
pub(crate) fn judge(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let text = fs::read_to_string(workspace.root.join(RECORD)).context(RECORD)?;
    let record: toml::Table = text.parse().context(RECORD)?;
    let compiler = compiler()?;
    if record.get("compiler").and_then(|value| value.as_str()) != Some(&compiler) {
        let why = format!("{RECORD} was made with another compiler than {compiler}");
        return Ok(Outcome::skipped(why));
    }
    let counts = count_forms(workspace, log, &["-t", "1"])?;
    let mut tally = Tally::default();
    let mut remarks = Vec::new();
    let mut grown = Vec::new();
    for (name, count) in &counts {
        let before = record["requests"]
            .get(name)
            .and_then(toml::Value::as_integer);
        let before = before.with_context(|| format!("{RECORD} does not know `{name}`"))? as f64;
        let change = (count / before - 1.0) * 100.0;
        remarks.push(format!("{name} {count:.0} ({change:+.1} %)"));
        if change > GROWTH_MAX {
            tally.failed += 1;
            grown.push(format!(
                "{name} cost {before} instructions and costs {count:.0} now"
            ));
        } else {
            tally.passed += 1;
        }
    }
    let failure = (!grown.is_empty()).then(|| {
        let grown = grown.join("; ");
        format!("{grown}. If that is meant: cargo xtask instructions --record, and say why")
    });
    Ok(Outcome::counted(tally, failure).remark(remarks.join(", ")))
}

/// A table of all policies with two workers.
fn policies(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let names: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
    println!("| policy, 2 workers | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(FORMS.len()));
    for policy in POLICIES {
        let counts = count_forms(workspace, log, &["-t", "2", "--policy", policy])?;
        let cells: Vec<String> = FORMS
            .iter()
            .filter_map(|form| counts.get(form.name))
            .map(|count| format!("{count:.0}"))
            .collect();
        println!("| {policy} | {} |", cells.join(" | "));
    }
    Ok(Outcome::passed())
}

/// Instructions per request, by form.
fn count_forms(
    workspace: &Workspace,
    log: &Log,
    options: &[&str],
) -> Result<BTreeMap<&'static str, f64>> {
    packages::ensure(log, TOOLS)?;
    let binary = server::build(workspace, log)?;
    let folder = workspace.scratch("instructions")?;
    let mut counts = BTreeMap::new();
    for form in FORMS {
        let few = run(&binary, &folder, form, PIPELINES, options)?;
        let many = run(&binary, &folder, form, 3 * PIPELINES, options)?;
        let requests = (2 * PIPELINES * PIPELINE) as f64;
        counts.insert(form.name, (many as f64 - few as f64) / requests);
    }
    Ok(counts)
}

/// All instructions of a server that answered so many pipelines.
fn run(
    binary: &Path,
    folder: &Path,
    form: &Form,
    pipelines: usize,
    options: &[&str],
) -> Result<u64> {
    let out = folder.join("callgrind.out");
    let mut words: Vec<String> = ["taskset", "-c"].map(String::from).to_vec();
    words.push(processor()?);
    words.extend(["valgrind", "--tool=callgrind"].map(String::from));
    words.push(format!("--callgrind-out-file={}", out.display()));
    words.extend(server::words(binary));
    let options: Vec<&str> = ["-m", "64"].iter().chain(options).copied().collect();
    let server = Server::start(&words, &options)?;
    drive(server.port, form, pipelines)?;
    server.stop()?;
    let profile = fs::read_to_string(&out).context("callgrind's output")?;
    let total = profile.lines().find_map(|line| {
        let number = line
            .strip_prefix("summary:")
            .or(line.strip_prefix("totals:"));
        number?.trim().parse().ok()
    });
    total.context("callgrind wrote no sum")
}

/// Stores all keys, then asks.
fn drive(port: u16, form: &Form, pipelines: usize) -> Result<()> {
    let keys: Vec<String> = (0..KEYS)
        .map(|key| format!("instruction-{key:04}"))
        .collect();
    let mut stream = memcached::connect(("127.0.0.1", port), Duration::from_secs(60))?;
    let store = &FORMS[3];
    for few in keys.chunks(PIPELINE) {
        ask(&mut stream, store, few)?;
    }
    let mut chunks = keys.chunks(PIPELINE).cycle();
    for _ in 0..pipelines {
        ask(&mut stream, form, chunks.next().unwrap_or_default())?;
    }
    Ok(())
}

fn ask(stream: &mut TcpStream, form: &Form, keys: &[String]) -> Result<()> {
    let text: String = keys.iter().map(|key| (form.request)(key)).collect();
    stream.write_all(text.as_bytes())?;
    let mut reply = vec![0; keys.iter().map(|key| (form.reply_bytes)(key)).sum()];
    stream
        .read_exact(&mut reply)
        .context("the server's replies")?;
    if !reply.ends_with(b"\r\n") {
        bail!(
            "`{}` is answered in another length than expected",
            form.name
        );
    }
    Ok(())
}

fn recorded(counts: &BTreeMap<&'static str, f64>) -> Result<String> {
    let mut text = format!(
        "# Instructions of the server for one request: 16-byte keys, 64-byte values, pipelines of\n\
         # 16, one worker, the default policy, profile release-fast; made by\n\
         #     cargo xtask instructions --record\n\
         # and held to within {GROWTH_MAX} % by cargo xtask test instructions.\n\
         compiler = \"{}\"\n\n[requests]\n",
        compiler()?
    );
    for (name, count) in counts {
        text += &format!("\"{name}\" = {count:.0}\n");
    }
    Ok(text)
}

fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// A processor that we may use.
fn processor() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.and_then(|list| list.trim().split([',', '-']).next());
    first.map(String::from).context("the processors we may use")
}

fn value() -> String {
    "v".repeat(VALUE_BYTES)
}

const TOOLS: &[Tool] = &[
    Tool {
        program: "valgrind",
        package: "valgrind",
    },
    Tool {
        program: "taskset",
        package: "util-linux",
    },
];
