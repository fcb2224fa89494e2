//! Other projects' tests of a memcached server, fetched at run time and run against ours.
//!
//! `--binary PATH` runs a suite against another server instead: that is how the suites themselves
//! are checked (Debian's memcached must pass what we ask of ours).

mod clients;
mod clustered;
mod languages;
mod memcached;
mod tiered;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::check_result::Outcome;
use crate::process::Log;
use crate::server;
use crate::workspace::Workspace;

pub(crate) use self::clients::python;
use self::memcached::Arrangement;

/// A suite against a server, started with these words; only memcached's takes names of files.
type Suite = fn(&Workspace, &Log, &[String], &[String]) -> Result<Outcome>;

const SUITES: [(&str, Suite); 9] = [
    ("memcached", |workspace, log, server, files| {
        memcached::run(workspace, log, server, files, Arrangement::Alone)
    }),
    ("memcached-cluster", |workspace, log, server, files| {
        memcached::run(workspace, log, server, files, Arrangement::Clustered)
    }),
    ("pymemcache", |workspace, log, server, _| {
        clients::pymemcache(workspace, log, server)
    }),
    ("pymemcache-cluster", |workspace, log, server, _| {
        clustered::pymemcache(workspace, log, server)
    }),
    ("pymemcache-tier", |workspace, log, server, _| {
        tiered::pymemcache(workspace, log, server)
    }),
    ("memccapable-tier", |workspace, log, server, _| {
        tiered::memccapable(workspace, log, server)
    }),
    ("memccapable", |_, log, server, _| {
        clients::memccapable(log, server)
    }),
    ("exporter", |workspace, log, server, _| {
        clients::exporter(workspace, log, server)
    }),
    ("clients", |workspace, log, server, _| {
        languages::run(workspace, log, server)
    }),
];

/// What to run, and against whom.
struct Request {
    suite: String,
    binary: Option<PathBuf>,
    files: Vec<String>,
}

/// `cargo xtask conformance SUITE [--binary PATH] [FILE..]`
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let request = read(arguments)?;
    let log = Log::terminal();
    let server = match request.binary {
        Some(path) => server::words(&path),
        None => ours(workspace, &log)?,
    };
    let logged = Log::file(
        workspace
            .scratch("logs")?
            .join(format!("{}.log", request.suite)),
    )?;
    let run = suite(&request.suite)?;
    let outcome = run(workspace, &logged, &server, &request.files);
    println!("{}", logged.tail(60));
    let outcome = outcome?;
    println!("{}", outcome.tally);
    Ok(outcome)
}

/// A suite as a step: all of it, against our server.
pub(crate) fn step(workspace: &Workspace, log: &Log, name: &str) -> Result<Outcome> {
    suite(name)?(workspace, log, &ours(workspace, log)?, &[])
}

fn suite(name: &str) -> Result<Suite> {
    match SUITES.iter().find(|(own, _)| *own == name) {
        Some((_, suite)) => Ok(*suite),
        None => bail!("there is no suite `{name}`: {}", names()),
    }
}

fn names() -> String {
    SUITES.map(|(name, _)| name).join(", ")
}

fn ours(workspace: &Workspace, log: &Log) -> Result<Vec<String>> {
    Ok(server::words(&server::build(workspace, log)?))
}

fn read(arguments: &[String]) -> Result<Request> {
    let Some((suite, rest)) = arguments.split_first() else {
        bail!("name a suite: {}", names());
    };
    let mut request = Request {
        suite: suite.clone(),
        binary: None,
        files: Vec::new(),
    };
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--binary" => match rest.next() {
                Some(path) => request.binary = Some(std::fs::canonicalize(path)?),
                None => bail!("--binary needs a path"),
            },
            file => request.files.push(file.to_string()),
        }
    }
    Ok(request)
}
