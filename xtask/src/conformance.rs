//! Other projects' tests of a memcached server, fetched at run time and run against ours.
//!
//! `--binary PATH` runs a suite against another server instead: that is how the suites themselves
//! are checked (Debian's memcached must pass what we ask of ours).

mod clients;
mod clustered;
mod languages;
mod memcached;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::process::Log;
use crate::server;
use crate::tally::Outcome;
use crate::workspace::Workspace;

pub(crate) use self::clients::python;

const SUITES: &str =
    "memcached, memcached-cluster, pymemcache, pymemcache-cluster, memccapable, exporter, clients";

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
    let outcome = match request.suite.as_str() {
        "memcached" => {
            let alone = memcached::Arrangement::Alone;
            memcached::run(workspace, &logged, &server, &request.files, alone)
        }
        "memcached-cluster" => {
            let clustered = memcached::Arrangement::Clustered;
            memcached::run(workspace, &logged, &server, &request.files, clustered)
        }
        "pymemcache-cluster" => clustered::pymemcache(workspace, &logged, &server),
        "pymemcache" => clients::pymemcache(workspace, &logged, &server),
        "memccapable" => clients::memccapable(&logged, &server),
        "exporter" => clients::exporter(workspace, &logged, &server),
        "clients" => languages::run(workspace, &logged, &server),
        other => bail!("there is no suite `{other}`: {SUITES}"),
    };
    println!("{}", logged.tail(60));
    let outcome = outcome?;
    println!("{}", outcome.tally);
    Ok(outcome)
}

pub(crate) fn memcached_step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let alone = memcached::Arrangement::Alone;
    memcached::run(workspace, log, &ours(workspace, log)?, &[], alone)
}

pub(crate) fn memcached_cluster_step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let clustered = memcached::Arrangement::Clustered;
    memcached::run(workspace, log, &ours(workspace, log)?, &[], clustered)
}

pub(crate) fn pymemcache_cluster_step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    clustered::pymemcache(workspace, log, &ours(workspace, log)?)
}

pub(crate) fn pymemcache_step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    clients::pymemcache(workspace, log, &ours(workspace, log)?)
}

pub(crate) fn memccapable_step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    clients::memccapable(log, &ours(workspace, log)?)
}

pub(crate) fn exporter_step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    clients::exporter(workspace, log, &ours(workspace, log)?)
}

pub(crate) fn languages_step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    languages::run(workspace, log, &ours(workspace, log)?)
}

fn ours(workspace: &Workspace, log: &Log) -> Result<Vec<String>> {
    Ok(server::words(&server::build(workspace, log)?))
}

fn read(arguments: &[String]) -> Result<Request> {
    let Some((suite, rest)) = arguments.split_first() else {
        bail!("name a suite: {SUITES}");
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
