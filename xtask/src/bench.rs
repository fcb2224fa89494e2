//! `cargo xtask bench`: finds the benches of our crates and runs them.
//!
//! `server` is not one of them: it builds the server as it is released and measures it alternately
//! with its peers (`curtail bench compare`).
//!
//! `nic` with arguments is not one either: it measures the released server between two network
//! namespaces.
//!
//! `growth` adds a node to a cluster while the keys that move are written.
//!
//! `cluster` starts clusters of processes on loopback, with shared hot keys and without.
//!
//! `disk` measures a server whose data is larger than its memory, `restart` how soon it answers.
//!
//! A bench prints its tables; what it printed is kept under target/xtask/bench. The figures that
//! the documents show, with the command that made each, are in docs/research.

mod bounded_processes;
mod cluster;
mod cluster_growth;
mod disk;
mod nic;
mod restart;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::check_result::Outcome;
use crate::process::Log;
use crate::server;
use crate::workspace::{Member, Workspace, cargo_command};

/// `cargo xtask bench [NAME..]`: the name of a crate (all its benches) or of one bench.
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let members = workspace.members();
    let benches: Vec<(&Member, &str)> = members
        .iter()
        .flat_map(|member| benches(member).map(move |bench| (member, bench)))
        .collect();
    if arguments.is_empty() {
        for (member, bench) in &benches {
            println!("{:12} {bench}", member.short);
        }
        println!("{:12} compare", "server");
        println!("{:12} --only clusters, --only overload", "nic");
        println!("{:12} --nodes 3,4,8", "cluster");
        println!("{:12} --rate 30000", "growth");
        println!("{:12} --memory 192 --times 10", "disk");
        println!("{:12} --keys 10000000", "restart");
        return Ok(Outcome::default());
    }
    match arguments {
        [name, rest @ ..] if name == "cluster" => return cluster::command(workspace, rest),
        [name, rest @ ..] if name == "growth" => return cluster_growth::command(workspace, rest),
        [name, rest @ ..] if name == "disk" => return disk::command(workspace, rest),
        [name, rest @ ..] if name == "restart" => return restart::command(workspace, rest),
        // By itself it is a bench of the program's.
        [name, rest @ ..] if name == "nic" && !rest.is_empty() => {
            return nic::command(workspace, rest);
        }
        _ => {}
    }
    let folder = workspace.scratch("bench")?;
    for name in arguments {
        if name == "server" {
            run(&folder.join("server-compare.txt"), &mut compare(workspace)?)?;
            continue;
        }
        let chosen = benches
            .iter()
            .filter(|(member, bench)| member.short == *name || bench == name);
        let chosen: Vec<_> = chosen.collect();
        if chosen.is_empty() {
            bail!("no bench is called `{name}`; `cargo xtask bench` lists them");
        }
        for (member, bench) in chosen {
            let mut command = cargo_command();
            command.args([
                "bench",
                "--quiet",
                "--package",
                &member.name,
                "--bench",
                bench,
            ]);
            command.current_dir(&workspace.root);
            run(
                &folder.join(format!("{}-{bench}.txt", member.short)),
                &mut command,
            )?;
        }
    }
    println!("the tables that the documents show are in docs/research");
    Ok(Outcome::passed())
}

/// Runs it, shows its tables and keeps them.
fn run(path: &Path, command: &mut Command) -> Result<()> {
    println!("running; the tables go to {}", path.display());
    let log = Log::file(path.to_path_buf())?;
    let result = log.run(command);
    print!(
        "{}",
        fs::read_to_string(path).context("the bench's tables")?
    );
    result.map(drop)
}

/// The server against memcached and redis, each on one core, alternately.
fn compare(workspace: &Workspace) -> Result<Command> {
    let binary = build(workspace)?;
    let mut command = Command::new(&binary);
    command.args(["bench", "compare", "--ours"]).arg(&binary);
    Ok(command)
}

/// Makes the programs as they are released, and says where the server is.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    server::build_with_lab(workspace, &Log::terminal())
}

/// Runs the driver and reads its report.
fn report(command: &mut Command) -> Result<Value> {
    let output = command.output().context("the driver")?;
    if !output.status.success() {
        let [text, said] = [&output.stderr, &output.stdout].map(|it| String::from_utf8_lossy(it));
        bail!("the driver ended with {}: {text}{said}", output.status);
    }
    match output.stdout.as_slice() {
        [] => Ok(Value::Null),
        report => serde_json::from_slice(report).context("the driver's report"),
    }
}

/// Hands every argument and its value to `take`, which says whether it is one of `bench NAME`.
fn take_all(
    name: &str,
    arguments: &[String],
    mut take: impl FnMut(&str, &str) -> Result<bool>,
) -> Result<()> {
    for pair in arguments.chunks(2) {
        let [word, value] = pair else {
            bail!("{} of what?", pair.concat());
        };
        if !take(word, value)? {
            bail!("{word} is no argument of `bench {name}`");
        }
    }
    Ok(())
}

/// The median.
pub(crate) fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        0 => Some((values.get(half.checked_sub(1)?)? + values.get(half)?) / 2.0),
        _ => values.get(half).copied(),
    }
}

/// `1,2,3`.
fn list<T>(text: &str) -> Result<Vec<T>>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.split(',').map(|one| Ok(one.parse()?)).collect()
}

fn benches(member: &Member) -> impl Iterator<Item = &str> {
    let benches = member.targets.iter().filter(|(kind, _)| kind == "bench");
    benches.map(|(_, name)| name.as_str())
}
