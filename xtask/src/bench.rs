//! `cargo xtask bench`: finds the benches of our crates and runs them.
//!
//! A bench prints its tables; what it printed is kept under target/xtask/bench. The figures that
//! the documents show, with the command that made each, are in docs/benchmarks.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::Log;
use crate::tally::Outcome;
use crate::workspace::{Member, Workspace, cargo};

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
        return Ok(Outcome::default());
    }
    let folder = workspace.scratch("bench")?;
    for name in arguments {
        let chosen = benches
            .iter()
            .filter(|(member, bench)| member.short == *name || bench == name);
        let chosen: Vec<_> = chosen.collect();
        if chosen.is_empty() {
            bail!("no bench is called `{name}`; `cargo xtask bench` lists them");
        }
        for (member, bench) in chosen {
            let path = folder.join(format!("{}-{bench}.txt", member.short));
            println!(
                "{} {bench}: running; its tables go to {}",
                member.short,
                path.display()
            );
            let log = Log::file(path.clone())?;
            let mut command = Command::new(cargo());
            command.args([
                "bench",
                "--quiet",
                "--package",
                &member.name,
                "--bench",
                bench,
            ]);
            let result = log.run(command.current_dir(&workspace.root));
            print!(
                "{}",
                fs::read_to_string(&path).context("the bench's tables")?
            );
            result?;
        }
    }
    println!("the tables that the documents show are in docs/benchmarks");
    Ok(Outcome::passed())
}

fn benches(member: &Member) -> impl Iterator<Item = &str> {
    let benches = member.targets.iter().filter(|(kind, _)| kind == "bench");
    benches.map(|(_, name)| name.as_str())
}
