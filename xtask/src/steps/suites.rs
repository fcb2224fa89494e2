//! Builds the test programs of the workspace by one call of cargo and runs them side by side.
//!
//! Cargo runs them one after the other, and many of them wait more than they compute. The program
//! that took longest the last time starts first, so that it does not run alone at the end. The
//! examples in the documentation are a program, too, which compiles most of the time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cargo_calls::in_root;
use super::tally_of;
use crate::check_result::{Outcome, Tally};
use crate::process::Log;
use crate::workspace::{MANIFEST_FOLDER, Workspace, cargo, text};

/// A test program that cargo has built.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Program {
    /// What repeats it: `cargo test NAME`.
    name: String,
    path: PathBuf,
    arguments: Vec<String>,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// How a program ended.
struct Ended {
    name: String,
    seconds: f64,
    output: String,
    tally: Tally,
    succeeded: bool,
}

/// Tests inside the sources that start threads and namespaces, and wait for most of their time.
const WAITING: &str = "-p curtail-tier --lib";

/// The tests inside the sources, but for those that wait.
pub(super) fn unit(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let start = Instant::now();
    let mut programs = built(workspace, log, &["--lib", "--bins"])?;
    programs.retain(|program| program.name != WAITING);
    run(workspace, log, ("unit", start), programs, 0)
}

/// The tests beside the sources, those inside that wait, and the examples in the documentation.
pub(super) fn integration(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let documented = Program {
        name: "--workspace --doc".into(),
        // It leaves the processors to programs that wait for something.
        path: "nice".into(),
        arguments: ["-n", "10", &cargo(), "test", "--workspace", "--doc"]
            .map(String::from)
            .to_vec(),
        folder: workspace.root.clone(),
    };
    let start = Instant::now();
    let mut programs = built(workspace, log, &["--lib", "--test", "*"])?;
    programs.retain(|program| program.name == WAITING || program.name.contains(" --test "));
    programs.push(documented);
    // The two that take longest wait more than they compute.
    run(workspace, log, ("test", start), programs, 1)
}

fn run(
    workspace: &Workspace,
    log: &Log,
    (step, start): (&str, Instant),
    mut programs: Vec<Program>,
    lanes_more: usize,
) -> Result<Outcome> {
    let build_seconds = start.elapsed().as_secs_f64();
    let record = workspace.scratch("times")?.join(format!("{step}.json"));
    let before: BTreeMap<String, f64> = fs::read_to_string(&record)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let took = |program: &Program| {
        let known = LONG.iter().find(|(name, _)| *name == program.name);
        let before = before.get(&program.name).copied();
        before.or(known.map(|(_, seconds)| *seconds)).unwrap_or(0.0)
    };
    programs.sort_by(|one, other| took(other).total_cmp(&took(one)));
    let lanes = thread::available_parallelism().map_or(1, usize::from) + lanes_more;
    let mut ended = all(workspace, programs, lanes)?;
    ended.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let times: BTreeMap<&str, f64> = ended
        .iter()
        .map(|one| (one.name.as_str(), one.seconds))
        .collect();
    fs::write(record, serde_json::to_string_pretty(&times)?)?;
    let longest: Vec<String> = ended
        .iter()
        .take(LONGEST)
        .map(|one| format!("{} {:.0} s", one.name, one.seconds))
        .collect();
    ended.sort_by_key(|one| !one.succeeded); // the end of the log is shown
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    for one in &ended {
        log.line(&format!(
            "$ cargo test {}  # {:.1} s\n{}",
            one.name, one.seconds, one.output
        ))?;
        tally += one.tally;
        if !one.succeeded {
            failed.push(format!("cargo test {}", one.name));
        }
    }
    let failure = (!failed.is_empty()).then(|| format!("repeat with: {}", failed.join("; ")));
    let aloud = |one: &Ended| one.output.matches("SKIPPED: ").count();
    let skipped: usize = ended.iter().map(aloud).sum();
    let mut remark = format!(
        "built in {build_seconds:.0} s; longest: {}",
        longest.join(", ")
    );
    if skipped > 0 {
        remark += &format!("; SKIPPED: {skipped} tests that need root, namespaces and XDP");
    }
    Ok(Outcome::counted(tally, failure).remark(remark))
}

fn built(workspace: &Workspace, log: &Log, targets: &[&str]) -> Result<Vec<Program>> {
    let words = ["test", "--workspace", "--no-run"];
    let mut command = in_root(workspace, &words);
    command.arg("--message-format=json-render-diagnostics");
    let output = log.run(command.args(targets))?;
    let names = |folder: &Path| {
        let mut members = workspace.members().into_iter();
        let member = members.find(|member| workspace.root.join(&member.folder) == folder);
        member.map(|member| member.name)
    };
    let programs: Vec<Program> = output
        .lines()
        .filter_map(|line| program(line, &names))
        .collect();
    ensure!(!programs.is_empty(), "cargo names no test program");
    Ok(programs)
}

/// The test program that a line of cargo's messages announces; `names` knows the packages.
fn program(line: &str, names: &dyn Fn(&Path) -> Option<String>) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    if message["profile"]["test"] != true {
        return None;
    }
    let manifest = PathBuf::from(text(&message, "manifest_path"));
    let folder = manifest.parent()?.to_path_buf();
    let package = names(&folder)?;
    let name = text(&message["target"], "name");
    let kind = match message["target"]["kind"][0].as_str()? {
        "test" => format!("--test {name}"),
        "bin" => format!("--bin {name}"),
        _ => "--lib".to_string(),
    };
    Some(Program {
        name: format!("-p {package} {kind}"),
        path,
        arguments: Vec::new(),
        folder,
    })
}

/// Runs them, so many at once.
fn all(workspace: &Workspace, programs: Vec<Program>, lanes: usize) -> Result<Vec<Ended>> {
    let logs = workspace.scratch("logs")?;
    let waiting = Mutex::new(programs.into_iter());
    let next = || waiting.lock().ok()?.next();
    let work = |number: usize| -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        while let Some(program) = next() {
            let log = Log::file(logs.join(format!("program-{number}.log")))?;
            let start = Instant::now();
            let mut command = Command::new(&program.path);
            command
                .args(&program.arguments)
                .env_remove(MANIFEST_FOLDER)
                .current_dir(&program.folder);
            let finished = log.finish(&mut command)?;
            ended.push(Ended {
                seconds: start.elapsed().as_secs_f64(),
                tally: tally_of(&finished.output),
                succeeded: finished.status.success(),
                output: finished.output,
                name: program.name,
            });
        }
        Ok(ended)
    };
    thread::scope(|scope| {
        let start = |number| scope.spawn(move || work(number));
        let threads: Vec<_> = (0..lanes).map(start).collect();
        let mut ended = Vec::new();
        for thread in threads {
            let finished = thread
                .join()
                .ok()
                .context("a thread that runs tests panicked")?;
            ended.extend(finished?);
        }
        Ok(ended)
    })
}

/// Programs that take long, and about how long in seconds, for the first time.
const LONG: [(&str, f64); 6] = [
    ("-p curtail-server --test cluster", 400.0),
    ("-p curtail-tier --lib", 410.0),
    ("-p curtail-checker --lib", 220.0),
    ("-p curtail-simulator --lib", 190.0),
    ("--workspace --doc", 120.0),
    ("-p curtail-cli --test tier", 50.0),
];

/// Programs that the step's line names.
const LONGEST: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    // Only test programs are run, under the name that repeats them.
    #[test]
    fn programs_are_read_from_cargos_messages() {
        let names =
            |folder: &Path| (folder == Path::new("/w/table")).then(|| "curtail-table".into());
        let line = "{'manifest_path':'/w/table/Cargo.toml','executable':'/w/target/stress-1',\
                    'target':{'kind':['test'],'name':'stress'},'profile':{'test':true}}";
        let line = &line.replace('\'', "\"");
        let found = program(line, &names).unwrap();
        assert_eq!(found.name, "-p curtail-table --test stress");
        assert_eq!(found.folder, PathBuf::from("/w/table"));
        let tool = line.replace("\"test\":true", "\"test\":false");
        assert_eq!(program(&tool, &names), None);
        let unit = line.replace("[\"test\"]", "[\"lib\"]");
        assert_eq!(
            program(&unit, &names).unwrap().name,
            "-p curtail-table --lib"
        );
        assert_eq!(program("warning: noise", &names), None);
    }
}
