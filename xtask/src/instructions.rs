//! `cargo xtask instructions`: what one small request costs, counted in instructions.
//!
//! Times on shared machines say little; instructions are the same from run to run. The server runs
//! under callgrind on one processor (so that no worker spins while it waits) and answers pipelines
//! from one connection, once some and once three times as many: the difference is what the requests
//! cost, without start and stop. The kernel's share is not in it.
//!
//! A server hashes keys with a random seed. Where keys have owners, the seed decides how many of
//! them a worker delegates, and with it what a request costs. There each run chooses its keys: one
//! half of each pipeline is delegated, always in the same order.
//!
//! `docs/research/instructions.toml` keeps the counts of every policy with one worker and with
//! two. The step of `cargo xtask test` looks at the default policy with one worker and fails when a
//! count has grown by more than 3 %, so that a change which makes requests dearer is a decision and
//! not an accident. Another compiler gives other counts: then nothing is judged.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use curtail_client::memcached::Connection;

use crate::bench;
use crate::check_result::{Outcome, Tally};
use crate::process::Log;
use crate::required_packages::{self, Tool};
use crate::server::{self, Server};
use crate::workspace::Workspace;

/// A pipeline that is sent again and again, and the length of its replies.
struct Form {
    name: &'static str,
    /// Keys, and so requests, in a pipeline; a key of a `get` with several counts as a request.
    keys: usize,
    pipeline: fn(&[String]) -> String,
    reply_bytes: fn(&[String]) -> usize,
}

const FORMS: &[Form] = &[
    Form {
        name: "meta get",
        keys: 16,
        pipeline: |keys| keys.iter().map(|key| format!("mg {key} v\r\n")).collect(),
        reply_bytes: |keys| keys.len() * ("VA 64\r\n".len() + VALUE_BYTES + 2),
    },
    Form {
        name: "meta set",
        keys: 16,
        pipeline: |keys| keys.iter().map(|key| meta_set(key)).collect(),
        reply_bytes: |keys| keys.len() * "HD\r\n".len(),
    },
    Form {
        name: "get",
        keys: 16,
        pipeline: |keys| keys.iter().map(|key| format!("get {key}\r\n")).collect(),
        reply_bytes: |keys| {
            keys.iter()
                .map(|key| item_bytes(key) + "END\r\n".len())
                .sum()
        },
    },
    STORE,
    Form {
        name: "key of a get of 64",
        keys: 64,
        pipeline: |keys| format!("get {}\r\n", keys.join(" ")),
        reply_bytes: |keys| keys.iter().map(|key| item_bytes(key)).sum::<usize>() + 5,
    },
    Form {
        name: "set of one key",
        keys: 16,
        pipeline: |keys| set(&keys[0]).repeat(keys.len()),
        reply_bytes: STORE.reply_bytes,
    },
    Form {
        name: "meta set of one key",
        keys: 16,
        pipeline: |keys| meta_set(&keys[0]).repeat(keys.len()),
        reply_bytes: |keys| keys.len() * "HD\r\n".len(),
    },
];

/// What also stores the keys that the others ask for.
const STORE: Form = Form {
    name: "set",
    keys: 16,
    pipeline: |keys| keys.iter().map(|key| set(key)).collect(),
    reply_bytes: |keys| keys.len() * "STORED\r\n".len(),
};

/// The default comes first.
const POLICIES: &[&str] = &[
    "size-aware+d-crew",
    "size-aware-static+d-crew",
    "d-crew",
    "crcw",
    "crew",
    "erew",
];
const WORKERS: &[usize] = &[1, 2];
/// Policies under which partitions have owners, who execute at least all writes.
const WITH_OWNERS: &[&str] = &["crew", "erew"];

const VALUE_BYTES: usize = 64;
const KEYS: usize = 512;
/// Keys where it is looked up who owns them,
const KEYS_WITH_OWNERS: usize = 64;
/// and how many keys that takes. Every run looks up as many, so that it costs each the same. In one
/// run of 50,000 they do not suffice.
const KEYS_LOOKED_UP: usize = 112;
/// Which of 32 neighbours another worker owns: of each 16 one half, in short runs as chance would
/// make them. The second 16 are the opposite of the first, so their first keys are of both kinds.
const IS_ANOTHERS: u32 = 0b0100_1101_0001_1011_1011_0010_1110_0100;
/// Requests of the shorter run.
const REQUESTS: usize = 24_000;
const RECORD: &str = "docs/research/instructions.toml";
/// How much more a request may cost than recorded, per cent, unless `--within` says it.
const GROWTH_MAX: f64 = 3.0;

/// The options of the command.
struct Options {
    record: bool,
    all_policies: bool,
    growth_max: f64,
    /// Pairs of runs, of which the middle one counts.
    rounds: usize,
    binary: Option<PathBuf>,
}

/// `cargo xtask instructions [--record | --all-policies] [--within PER_CENT] [--rounds N]
/// [--binary PATH]`
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let options = Options::parse(arguments)?;
    let log = Log::file(workspace.scratch("instructions")?.join("log"))?;
    let outcome = match options.record {
        true => record(workspace, &log, &options)?,
        false => compare(workspace, &log, &options)?,
    };
    if !outcome.remark.is_empty() {
        println!("{}", outcome.remark);
    }
    Ok(outcome)
}

/// The step of `cargo xtask test`.
pub(crate) fn judge(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    compare(workspace, log, &Options::parse(&[])?)
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Options {
            record: false,
            all_policies: false,
            growth_max: GROWTH_MAX,
            rounds: 1,
            binary: None,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} takes a value"))
            };
            match word.as_str() {
                "--record" => options.record = true,
                "--all-policies" => options.all_policies = true,
                "--within" => options.growth_max = value()?.parse().context("--within")?,
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--binary" => options.binary = Some(value()?.into()),
                other => bail!("instructions has no option `{other}`"),
            }
        }
        if options.rounds == 0 {
            bail!("at least one round");
        }
        Ok(options)
    }

    /// The servers to look at: a policy and a number of workers.
    fn servers(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let all = self.all_policies || self.record;
        let pairs = |workers: &'static usize| POLICIES.iter().map(|policy| (*workers, *policy));
        WORKERS
            .iter()
            .flat_map(pairs)
            .take(if all { usize::MAX } else { 1 })
    }
}

fn compare(workspace: &Workspace, log: &Log, options: &Options) -> Result<Outcome> {
    let text = fs::read_to_string(workspace.root.join(RECORD)).context(RECORD)?;
    let record: toml::Table = text.parse().context(RECORD)?;
    let compiler = compiler()?;
    if record.get("compiler").and_then(|value| value.as_str()) != Some(&compiler) {
        let why = format!("{RECORD} was made with another compiler than {compiler}");
        return Ok(Outcome::skipped(why));
    }
    let counter = Counter::new(workspace, log, options)?;
    let mut tally = Tally::default();
    let mut remarks = Vec::new();
    let mut grown = Vec::new();
    for (workers, policy) in options.servers() {
        for (name, count) in counter.counts(workers, policy)? {
            let section = record
                .get(&section(workers))
                .and_then(|all| all.get(policy));
            let before = section.and_then(|forms| forms.get(name)?.as_integer());
            let what = format!("`{name}` with {policy}, workers: {workers}");
            let before = before.with_context(|| format!("{RECORD} does not know {what}"))? as f64;
            let change = (count / before - 1.0) * 100.0;
            if options.all_policies {
                println!(
                    "{workers} {policy:26} {name:20} {before:6.0} {count:6.0} {change:+6.2} %"
                );
            }
            remarks.push(format!("{name} {count:.0} ({change:+.1} %)"));
            if change > options.growth_max {
                tally.failed += 1;
                grown.push(format!(
                    "{what}: {before} instructions then, {count:.0} now"
                ));
            } else {
                tally.passed += 1;
            }
        }
    }
    let failure = (!grown.is_empty()).then(|| {
        let grown = grown.join("; ");
        format!("{grown}. If that is meant: cargo xtask instructions --record, and say why")
    });
    if options.all_policies {
        remarks.clear(); // they stand in the table
    }
    Ok(Outcome::counted(tally, failure).remark(remarks.join(", ")))
}

fn record(workspace: &Workspace, log: &Log, options: &Options) -> Result<Outcome> {
    let counter = Counter::new(workspace, log, options)?;
    let mut text = format!(
        "# Instructions of the server for one request: 16-byte keys, 64-byte values, pipelines of\n\
         # 16 from one connection, profile release; made by\n\
         #     cargo xtask instructions --record --rounds {}\n\
         # `cargo xtask test instructions` holds the default policy to within {GROWTH_MAX} %, and\n\
         # `cargo xtask instructions --all-policies --rounds 3 --within 0.5` looks at every one.\n\
         compiler = \"{}\"\n",
        options.rounds,
        compiler()?
    );
    for (workers, policy) in options.servers() {
        text += &format!("\n[{}.\"{policy}\"]\n", section(workers));
        for (name, count) in counter.counts(workers, policy)? {
            text += &format!("\"{name}\" = {count:.0}\n");
        }
        println!("workers: {workers}, {policy}");
    }
    fs::write(workspace.root.join(RECORD), text)?;
    println!("wrote {RECORD}");
    Ok(Outcome::passed())
}

/// The record's table of the servers with so many workers.
fn section(workers: usize) -> String {
    format!("workers-{workers}")
}

/// What counts: the program and its surroundings.
struct Counter {
    binary: PathBuf,
    folder: PathBuf,
    rounds: usize,
}

impl Counter {
    fn new(workspace: &Workspace, log: &Log, options: &Options) -> Result<Self> {
        required_packages::ensure(log, TOOLS)?;
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => server::build(workspace, log)?,
        };
        Ok(Self {
            binary,
            folder: workspace.scratch("instructions")?,
            rounds: options.rounds,
        })
    }

    /// Instructions per request, by form.
    fn counts(&self, workers: usize, policy: &str) -> Result<BTreeMap<&'static str, f64>> {
        let workers = workers.to_string();
        let options = ["-m", "64", "-t", &workers, "--policy", policy];
        let have_owners = workers != "1" && WITH_OWNERS.contains(&policy);
        let count = |form: &Form| -> Result<f64> {
            let run = |requests| self.run(form, requests, &options, have_owners);
            let (few, many) = (run(REQUESTS)?, run(3 * REQUESTS)?);
            Ok((many as f64 - few as f64) / (2 * REQUESTS) as f64)
        };
        let middle = |form: &Form| -> Result<(&'static str, f64)> {
            let counts: Vec<f64> = (0..self.rounds)
                .map(|_| count(form))
                .collect::<Result<_>>()?;
            Ok((form.name, bench::middle(counts).context("no round")?))
        };
        FORMS.iter().map(middle).collect()
    }

    /// All instructions of a server that answered so many requests.
    fn run(
        &self,
        form: &Form,
        requests: usize,
        options: &[&str],
        have_owners: bool,
    ) -> Result<u64> {
        let out = self.folder.join("callgrind.out");
        let mut words: Vec<String> = ["taskset", "-c"].map(String::from).to_vec();
        words.push(processor()?);
        // Threads take turns, whatever the system has them do.
        let valgrind = ["valgrind", "--tool=callgrind", "--fair-sched=yes"];
        words.extend(valgrind.map(String::from));
        words.push(format!("--callgrind-out-file={}", out.display()));
        words.extend(server::words(&self.binary));
        let server = Server::start(&words, options)?;
        drive(server.port, form, requests, have_owners)?;
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
}

/// Stores all keys, then asks.
fn drive(port: u16, form: &Form, requests: usize, have_owners: bool) -> Result<()> {
    let mut client = Connection::to(("127.0.0.1", port), Duration::from_secs(60))?;
    let keys = match have_owners {
        true => keys_by_owner(&mut client)?,
        false => keys().take(KEYS).collect(),
    };
    for few in keys.chunks(STORE.keys) {
        ask(&mut client, &STORE, few)?;
    }
    let pipelines = requests / form.keys;
    for few in keys.chunks(form.keys).cycle().take(pipelines) {
        ask(&mut client, form, few)?;
    }
    Ok(())
}

fn keys() -> impl Iterator<Item = String> {
    (0..).map(|key| format!("instruction-{key:04}"))
}

/// Keys of which the worker of this connection owns one half, in the order of [`IS_ANOTHERS`].
fn keys_by_owner(client: &mut Connection) -> Result<Vec<String>> {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    let mut before = delegations(client)?;
    for key in keys().take(KEYS_LOOKED_UP) {
        ask(client, &STORE, std::slice::from_ref(&key))?;
        let now = delegations(client)?;
        match now > before {
            true => others.push(key),
            false => ours.push(key),
        }
        before = now;
    }
    let (mut ours, mut others) = (ours.into_iter(), others.into_iter());
    let next = |place| match IS_ANOTHERS >> place & 1 {
        1 => others.next(),
        _ => ours.next(),
    };
    let places = (0..u32::BITS).cycle().take(KEYS_WITH_OWNERS);
    let keys: Option<_> = places.map(next).collect();
    keys.context("too few keys of one owner; try again")
}

/// Requests that were handed to other workers.
fn delegations(client: &mut Connection) -> Result<u64> {
    let rows = client.stats("curtail")?;
    let row = rows.iter().find(|(name, _)| name == "delegations");
    let (_, count) = row.context("`stats curtail` has no `delegations`")?;
    Ok(count.parse()?)
}

fn ask(client: &mut Connection, form: &Form, keys: &[String]) -> Result<()> {
    client.send((form.pipeline)(keys))?;
    let mut reply = vec![0; (form.reply_bytes)(keys)];
    client
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

fn set(key: &str) -> String {
    format!("set {key} 0 0 64\r\n{}\r\n", "v".repeat(VALUE_BYTES))
}

fn meta_set(key: &str) -> String {
    format!("ms {key} 64\r\n{}\r\n", "v".repeat(VALUE_BYTES))
}

/// The length of an item in the reply to a `get`.
fn item_bytes(key: &str) -> usize {
    "VALUE  0 64\r\n".len() + key.len() + VALUE_BYTES + 2
}

const TOOLS: &[Tool] = &[
    Tool::of("valgrind", "valgrind"),
    Tool::of("taskset", "util-linux"),
];
