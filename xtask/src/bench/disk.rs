//! `cargo xtask bench disk`: a server whose data is ten times its memory, beside memcached with
//! extstore and beside redis, which cannot hold the data; and beside the engine by itself.
//!
//! ```text
//!   all three start in memory groups of one size, and every key is stored
//!   rounds: closed loop, each system in turn ──> requests/s, reads that found their key
//!           open loop at half of what the slower of curtail and memcached did ──> tails
//!   uncached reads, rounds: lsm-tree, storage, server on the same directory in the same group
//! ```
//!
//! Servers have the cores `--server-cores`, the load generator those of `--driver-cores`; the
//! engine by itself has those of the servers. Every value read is compared with what was written.
//! redis answers reads of what it evicted with a miss, which is no answer to whoever wanted the
//! value; the load generator then stores it again, as the client of a cache does.

mod load;
mod systems;
mod table;
mod uncached;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use self::load::{Driver, Run, Shape};
use self::systems::{SYSTEMS, Store, System, data_of};
use super::bounded_processes::{MemoryGroup, Scratch, all_cores, flush, forget};
use super::{middle, take_all};
use crate::check_result::Outcome;
use crate::process::Log;
use crate::required_packages::{self, Tool};
use crate::workspace::Workspace;

/// What was asked for.
struct Asked {
    /// The limit of each system: its own memory and the page cache of its files.
    memory_mib: u64,
    /// Data is so many times as much as memory.
    times: u64,
    value_bytes: u64,
    /// Follows from the three above.
    keys: u64,
    rounds: usize,
    /// Measured in each run.
    seconds: f64,
    warm_up: f64,
    /// Keys a second that are stored at first: memcached evicts items for which no page of its file
    /// is ready.
    preload_rate: f64,
    server_cores: String,
    driver_cores: String,
    binary: Option<PathBuf>,
    /// Where data is written while the bench runs.
    folder: PathBuf,
    /// Only one of the two parts.
    only: Option<Part>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Systems,
    Uncached,
}

/// Both runs of a system in one round.
#[derive(Clone, Copy)]
struct Row {
    system: System,
    is_paced: bool,
    run: Run,
}

/// Programs that Debian has.
const TOOLS: [Tool; 4] = [
    Tool::of("memcached", "memcached"),
    Tool::of("redis-server", "redis-server"),
    Tool::of("taskset", "util-linux"),
    Tool::of("setpriv", "util-linux"),
];

/// Runs what is asked for.
pub(super) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(arguments, workspace.scratch("disk")?)?;
    required_packages::ensure(&Log::terminal(), &TOOLS)?;
    let binary = asked.binary.clone();
    let binary = binary.map_or_else(|| super::build(workspace), Ok)?;
    let reader = uncached::build(workspace)?;
    let scratch = Scratch::new(&asked.folder)?;
    let results = workspace.scratch("bench")?;
    let driver = Driver {
        asked: &asked,
        binary: &binary,
    };
    let mut text = table::heading(&asked);
    print!("{text}");
    let group = asked.group("curtail");
    if !group.is_enforced() {
        let warning = "**No control group limits memory here: the page cache is not limited.**\n\n";
        print!("{warning}");
        text += warning;
    }
    store_ours(&driver, scratch.path())?;
    if asked.only != Some(Part::Uncached) {
        let (part, rows) = systems(&driver, scratch.path(), &group)?;
        text += &part;
        fs::write(results.join("disk.svg"), table::chart(&rows))?;
    }
    if asked.only != Some(Part::Systems) {
        text += &uncached::compare(&driver, (&reader, scratch.path()), &group)?;
    }
    fs::write(results.join("disk.md"), text)?;
    println!("tables and chart: {}", results.display());
    Ok(Outcome::passed())
}

/// Stores every key in a data directory with a server that has more memory and all processors, and
/// has the page cache forget the files: they belong to no group.
fn store_ours(driver: &Driver<'_>, folder: &Path) -> Result<()> {
    let group = MemoryGroup::unlimited();
    let asked = Asked {
        memory_mib: driver.asked.memory_mib * 8,
        server_cores: all_cores()?,
        binary: None,
        folder: PathBuf::new(),
        driver_cores: String::new(),
        ..*driver.asked
    };
    let store = Store::start(System::Curtail, (&asked, driver.binary, folder), &group)?;
    driver.preload(System::Curtail, &store)?;
    store.settle(System::Curtail)?;
    store.stop()?;
    forget(&data_of(folder))
}

/// The three systems, alternately.
fn systems(driver: &Driver<'_>, folder: &Path, group: &MemoryGroup) -> Result<(String, Vec<Row>)> {
    let asked = driver.asked;
    let groups = [asked.group("memcached"), asked.group("redis")];
    let start = |system, group| Store::start(system, (asked, driver.binary, folder), group);
    let mut stores = vec![start(System::Curtail, group)?];
    for (system, group) in [System::Extstore, System::Redis].into_iter().zip(&groups) {
        let store = start(system, group)?;
        driver.preload(system, &store)?;
        stores.push(store);
    }
    let [memcached, redis] = &groups;
    let groups = [group, memcached, redis];
    for (system, store) in SYSTEMS.into_iter().zip(&stores) {
        store.settle(system)?;
    }
    let all = || SYSTEMS.into_iter().zip(&stores).zip(groups);
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..asked.rounds {
        for is_paced in [false, true] {
            // Every system is the first as often as others.
            let turn = all().cycle().skip(round % SYSTEMS.len());
            for ((system, store), group) in turn.take(SYSTEMS.len()) {
                let shape = Shape {
                    zipf: 0.99,
                    get_ratio: 0.95,
                    rate: is_paced.then(|| paced_rate(&rows)),
                    connections: CONNECTIONS,
                    seed: 2 * round as u64 + u64::from(is_paced) + 1,
                };
                // What the kernel has not written of others' files would delay this one's syncs.
                flush(folder)?;
                let run = driver.run((system, store, group), shape)?;
                let row = Row {
                    system,
                    is_paced,
                    run,
                };
                print!("{}", table::line(round, &row));
                rows.push(row);
            }
        }
    }
    let text = table::systems(&rows);
    print!("{text}");
    let mut stores = stores.into_iter();
    let ours = stores.next().context("no server of ours")?;
    ours.stop()?;
    stores.for_each(Store::kill);
    Ok((text, rows))
}

/// Connections of the load generator.
const CONNECTIONS: usize = 50;

/// Half of what the slower of the systems that hold all data did in the first round.
fn paced_rate(rows: &[Row]) -> f64 {
    let holds = |row: &&Row| row.system.holds_all() && !row.is_paced;
    let first = rows.iter().filter(holds).take(2);
    let slower = first.map(|row| row.run.rate).fold(f64::INFINITY, f64::min);
    (slower / 2.0).round()
}

/// The median over the rounds.
fn median(
    rows: &[Row],
    (system, is_paced): (System, bool),
    what: fn(&Run) -> Option<f64>,
) -> Option<f64> {
    let rows = rows.iter();
    let rows = rows.filter(|row| row.system == system && row.is_paced == is_paced);
    middle(rows.filter_map(|row| what(&row.run)).collect())
}

impl Asked {
    fn parse(arguments: &[String], folder: PathBuf) -> Result<Self> {
        let mut asked = Self {
            memory_mib: 192,
            times: 10,
            value_bytes: 2000,
            keys: 0,
            rounds: 5,
            seconds: 5.0,
            warm_up: 1.0,
            preload_rate: 15_000.0,
            server_cores: "0".into(),
            driver_cores: "1".into(),
            binary: None,
            folder,
            only: None,
        };
        take_all("disk", arguments, |word, value| {
            match word {
                "--memory" => asked.memory_mib = value.parse()?,
                "--times" => asked.times = value.parse()?,
                "--value-bytes" => asked.value_bytes = value.parse()?,
                "--rounds" => asked.rounds = value.parse()?,
                "--seconds" => asked.seconds = value.parse()?,
                "--warm-up" => asked.warm_up = value.parse()?,
                "--preload-rate" => asked.preload_rate = value.parse()?,
                "--server-cores" => asked.server_cores = value.into(),
                "--driver-cores" => asked.driver_cores = value.into(),
                "--ours" => asked.binary = Some(value.into()),
                "--folder" => asked.folder = value.into(),
                "--only" => asked.only = Some(part(value)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if asked.rounds == 0 || asked.times == 0 {
            bail!("at least one round, and data as large as memory");
        }
        if asked.memory_mib < 128 || !(64..=100_000).contains(&asked.value_bytes) {
            bail!("at least 128 MiB of memory, and values of 64 to 100000 bytes");
        }
        asked.keys = (asked.data_mib() << 20) / (asked.value_bytes + KEY_BYTES);
        Ok(asked)
    }

    /// Keys and values, in MiB.
    fn data_mib(&self) -> u64 {
        self.memory_mib * self.times
    }

    /// Memory of the disk tier beside the items.
    fn disk_memory_mib(&self) -> u64 {
        (self.memory_mib / 6).max(16)
    }

    fn group(&self, name: &str) -> MemoryGroup {
        MemoryGroup::new(name, self.memory_mib << 20)
    }
}

/// What the load generator writes by default.
const KEY_BYTES: u64 = 16;

fn part(name: &str) -> Result<Part> {
    match name {
        "systems" => Ok(Part::Systems),
        "uncached" => Ok(Part::Uncached),
        _ => bail!("{name} is no part: systems, uncached"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Asked> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Asked::parse(&words, PathBuf::new())
    }

    /// Goal: the number of keys follows from memory, times and length, and what cannot be measured
    /// is refused.
    #[test]
    fn arguments_are_understood() {
        let asked = parse("--memory 200 --times 10 --value-bytes 1984").unwrap();
        assert_eq!(asked.keys, (2000 << 20) / 2000);
        assert_eq!(parse("--only uncached").unwrap().only, Some(Part::Uncached));
        for line in [
            "--rounds 0",
            "--times 0",
            "--memory 16",
            "--value-bytes 1",
            "--only x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
