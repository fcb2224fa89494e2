//! Reads of keys that are not in memory: the engine by itself against the server over sockets.
//!
//! All three read the same directory in the same memory group on the same processors, with as many
//! threads that read, and draw keys uniformly. `lsm-tree` is the engine alone, each of whose
//! threads reads key after key; `storage` adds the queue from which the threads take keys, and a
//! thread that submits them; the server adds its memory cache, sockets and protocol, and has the
//! load generator on other processors. A read of the server counts if it was one of the engine:
//! those that memory answered do not.
//!
//! The server is measured twice: with all of its threads on the engine's processors, so that
//! sockets and protocol take processor time from the engine; and with only the threads that read
//! there, as the engine's threads are, and the worker on the load generator's processors. The first
//! ratio is the price of a server on a processor that is short, the second that of the way to the
//! engine and back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use curtail_report::Table;
use serde_json::Value;

use super::load::{Driver, Shape};
use super::systems::{DISK_THREADS, Store, System, curtail, data_of};
use crate::bench::bounded_processes::MemoryGroup;
use crate::bench::middle;
use crate::server::free_port;
use crate::workspace::{Workspace, cargo_command};

/// What one round measured, in keys a second.
struct Round {
    tree: f64,
    storage: f64,
    server_together: f64,
    server_apart: f64,
}

/// What a round says of one way.
type Rate = fn(&Round) -> f64;

/// Which processors the server's worker has.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Worker {
    /// The engine's.
    Together,
    /// The load generator's.
    Apart,
}

/// Memory for items of the server, in MiB: the least that it takes, so that next to no key of the
/// data is in it.
const ITEMS_MIB: u64 = 24;

/// As many reads at a time as `storage` has.
const CONNECTIONS: usize = 32;

/// Makes the program that reads without a server, and says where it is.
pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let output = cargo_command()
        .args(["bench", "--quiet", "--package", "curtail-storage"])
        .args(["--bench", "uncached_reads", "--no-run"])
        .args(["--message-format", "json"])
        .current_dir(&workspace.root)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("the bench uncached_reads does not build");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let mut programs = messages.filter_map(|message: Value| {
        let is_it = message["target"]["name"] == "uncached_reads";
        let path = message["executable"].as_str().filter(|_| is_it)?;
        Some(PathBuf::from(path))
    });
    programs
        .next()
        .context("cargo does not say where the bench is")
}

/// Several rounds of the three, on the directory that a server has left.
pub(super) fn compare(
    driver: &Driver<'_>,
    (reader, folder): (&Path, &Path),
    group: &MemoryGroup,
) -> Result<String> {
    let mut rounds = Vec::new();
    for round in 0..driver.asked.rounds as u64 {
        let by_itself = |through| read(driver, (reader, folder, group), (through, round + 1));
        let served = |worker| serve(driver, (folder, group), (worker, round + 1));
        let measured = Round {
            tree: by_itself("tree")?,
            server_together: served(Worker::Together)?,
            server_apart: served(Worker::Apart)?,
            storage: by_itself("storage")?,
        };
        println!(
            "round {round}, uncached reads/s: lsm-tree {:.0}, storage {:.0}, server {:.0}, with \
             its worker elsewhere {:.0}",
            measured.tree, measured.storage, measured.server_together, measured.server_apart
        );
        rounds.push(measured);
    }
    let text = format!(
        "\n## Keys that are not in memory\n\nUniform popularity, reads only, {DISK_THREADS} \
         threads that read, {CONNECTIONS} reads at a time; medians over the rounds\n\n{}\n",
        table(&rounds).markdown()
    );
    print!("{text}");
    Ok(text)
}

/// The engine without a server.
fn read(
    driver: &Driver<'_>,
    (reader, folder, group): (&Path, &Path, &MemoryGroup),
    (through, seed): (&str, u64),
) -> Result<f64> {
    let asked = driver.asked;
    let words = [
        reader.display().to_string(),
        "--data".into(),
        data_of(folder).display().to_string(),
        "--keys".into(),
        asked.keys.to_string(),
        "--threads".into(),
        DISK_THREADS.to_string(),
        "--disk-memory".into(),
        asked.disk_memory_mib().to_string(),
        "--seconds".into(),
        asked.seconds.to_string(),
        "--warm-up".into(),
        asked.warm_up.to_string(),
        "--through".into(),
        through.into(),
        "--seed".into(),
        seed.to_string(),
    ];
    let mut command = group.command(&asked.server_cores, &words);
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    rate.with_context(|| format!("the engine said {text:?} and ended with {}", output.status))
}

/// The server's reads of the engine.
fn serve(
    driver: &Driver<'_>,
    (folder, group): (&Path, &MemoryGroup),
    (worker, seed): (Worker, u64),
) -> Result<f64> {
    let asked = driver.asked;
    let port = free_port()?;
    let mut words = curtail(asked, driver.binary, folder, ITEMS_MIB);
    words.extend(["-p", &port.to_string(), "-l", "127.0.0.1"].map(str::to_owned));
    let cores = match worker {
        Worker::Together => &asked.server_cores,
        Worker::Apart => &asked.driver_cores,
    };
    let store = Store::run(&words, port, group, cores)?;
    move_readers(store.process(), &asked.server_cores)?;
    let shape = Shape {
        zipf: 0.0,
        get_ratio: 1.0,
        rate: None,
        connections: CONNECTIONS,
        seed,
    };
    let counts = |store: &Store| -> Result<_> {
        let [reads, gets] =
            [("curtail", "disk:reads"), ("", "cmd_get")].map(|(kind, name)| store.stat(kind, name));
        Ok((reads? as f64, gets? as f64))
    };
    let before = counts(&store)?;
    let run = driver.run((System::Curtail, &store, group), shape)?;
    let after = counts(&store)?;
    store.stop()?;
    // The counters cover the warm-up, too, so they say only how many reads memory answered.
    let share = (after.0 - before.0) / (after.1 - before.1).max(1.0);
    Ok(run.rate * share.min(1.0))
}

/// Has the threads that read use these processors.
fn move_readers(process: u32, cores: &str) -> Result<()> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        let name = fs::read_to_string(task.path().join("comm"))?;
        if name.starts_with("disk-read") {
            let mut taskset = Command::new("taskset");
            taskset.args(["-c", "-p", cores]).arg(task.file_name());
            ensure!(
                taskset.stdout(Stdio::null()).status()?.success(),
                "{name} does not move"
            );
        }
    }
    Ok(())
}

fn table(rounds: &[Round]) -> Table {
    let mut table = Table::default();
    let ways: [(&str, Rate); 4] = [
        ("lsm-tree, in process", |round| round.tree),
        ("storage, in process", |round| round.storage),
        ("curtail serve, all threads on these processors", |round| {
            round.server_together
        }),
        ("curtail serve, its worker elsewhere", |round| {
            round.server_apart
        }),
    ];
    for (name, of) in ways {
        let all = || rounds.iter().map(of);
        let (low, high) = (
            all().fold(f64::INFINITY, f64::min),
            all().fold(0.0, f64::max),
        );
        let ratios = rounds.iter().map(|round| of(round) / round.tree);
        let ratio = middle(ratios.collect()).unwrap_or(0.0);
        table.named(&[
            ("through", name.to_owned()),
            (
                "keys/s",
                format!("{:.0}", middle(all().collect()).unwrap_or(0.0)),
            ),
            ("range", format!("{low:.0} to {high:.0}")),
            ("times lsm-tree", format!("{ratio:.2}")),
        ]);
    }
    table
}
