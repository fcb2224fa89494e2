//! The closed-loop cells: rate and the server's processor time per request.

use std::time::Duration;

use curtail_workload::{Mix, Popularity, Sizes, Workload, WorkloadError};
use serde::Serialize;

use super::{
    CompareArgs, Part, Spread, alternate,
    servers::{Kind, Server},
};
use crate::{
    drive::{Plan, Session, measure},
    error::LoadError,
    preload,
    report::Report,
    request_source::Load,
    stop::Stop,
};

/// What a cell asks for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CellPlan {
    pub(crate) pipeline: usize,
    pub(crate) get_ratio: f64,
    pub(crate) value_bytes: u32,
    /// Zipf exponent of the keys' popularity; 0 is uniform.
    pub(crate) zipf: f64,
    pub(crate) asks: Asks,
}

/// What the requests of a cell are about.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Asks {
    /// Reads and writes of many keys.
    Many,
    /// Writes of one key.
    OneKey,
    /// Increments of one counter.
    OneCounter,
}

/// What a cell gave.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) plan: CellPlan,
    pub(crate) servers: Vec<Figures>,
}

/// One server's figures in a cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) server: String,
    pub(crate) rate: Spread,
    pub(crate) server_ns: Spread,
    pub(crate) server_cores: Spread,
    pub(crate) driver_cores: Spread,
    /// The first server's rate over this one's, within rounds.
    pub(crate) rate_ratio: Spread,
    /// The first server's processor time per request over this one's, within rounds.
    pub(crate) server_ns_ratio: Spread,
    /// Errors, misses and wrong lengths: all keys were stored before.
    pub(crate) faults: u64,
}

const ZIPF: f64 = 0.99;

/// Sorted by value length, because keys are stored anew when it changes.
pub(crate) const CELLS: [CellPlan; 8] = [
    CellPlan::new(1, 0.95, 64, ZIPF),
    CellPlan::new(1, 0.5, 64, ZIPF),
    CellPlan::new(16, 0.95, 64, ZIPF),
    CellPlan::new(16, 0.95, 64, 0.0),
    CellPlan::new(16, 0.5, 64, 0.0),
    CellPlan::new(1, 0.95, 512, ZIPF),
    CellPlan::new(1, 0.5, 512, ZIPF),
    CellPlan::new(16, 0.5, 512, 0.0),
];

/// What policies differ by: writes to hot keys, many writes of hot keys, writes all over.
pub(crate) const WRITING_CELLS: [CellPlan; 3] = [
    CellPlan::new(16, 0.95, 64, 1.25),
    CellPlan::new(16, 0.5, 64, ZIPF),
    CellPlan::new(16, 0.05, 64, 0.0),
];

/// What compaction differs by: where all writes meet, where many do, and where few do.
pub(crate) const MEETING_CELLS: [CellPlan; 5] = [
    CellPlan::of_one(Asks::OneCounter),
    CellPlan::of_one(Asks::OneKey),
    CellPlan::new(16, 0.5, 64, 1.25),
    CellPlan::new(16, 0.95, 64, 1.25),
    CellPlan::new(16, 0.5, 64, ZIPF),
];

/// Connections of every cell.
pub(crate) const CONNECTIONS: usize = 50;

/// Requests made in advance; a stream longer than any cache.
const PREGENERATED: usize = 1_000_000;

impl CellPlan {
    const fn new(pipeline: usize, get_ratio: f64, value_bytes: u32, zipf: f64) -> Self {
        Self {
            pipeline,
            get_ratio,
            value_bytes,
            zipf,
            asks: Asks::Many,
        }
    }

    const fn of_one(asks: Asks) -> Self {
        Self {
            asks,
            ..Self::new(16, 0.0, 64, 0.0)
        }
    }

    pub(crate) const fn part(&self) -> Part {
        if self.pipeline == 1 {
            Part::Unpipelined
        } else {
            Part::Pipelined
        }
    }

    pub(crate) fn load(&self, kind: Kind, keys: u64) -> Result<Load, LoadError> {
        let protocol = kind.protocol(self.pipeline);
        let values = Sizes::constant(self.value_bytes);
        let keys = if self.asks == Asks::Many { keys } else { 1 };
        let mut workload = workload(keys, values, self.get_ratio, self.zipf)?;
        if self.asks == Asks::OneCounter {
            workload.mix = "incr".parse().map_err(LoadError::Arguments)?;
        }
        Ok(Load::drawn(protocol, workload))
    }

    /// The answer to an increment has as many bytes as its number has digits, so only the other
    /// cells' replies can be counted by bytes.
    fn pregenerated(&self) -> Option<usize> {
        (self.asks != Asks::OneCounter).then_some(PREGENERATED)
    }
}

/// Keys of 16 bytes, reads with this share, the rest sets.
pub(crate) fn workload(
    keys: u64,
    sizes: Sizes,
    get_ratio: f64,
    zipf: f64,
) -> Result<Workload, LoadError> {
    let mut workload: Workload = "custom:key=16".parse().map_err(refused)?;
    workload.keys = keys;
    workload.sizes = sizes;
    workload.mix = Mix::get_share(get_ratio)
        .ok_or_else(|| LoadError::Arguments(format!("get ratio {get_ratio}")))?;
    workload.popularity = match zipf {
        0.0 => Popularity::Uniform,
        exponent => Popularity::Zipf { exponent },
    };
    Ok(workload)
}

fn refused(error: WorkloadError) -> LoadError {
    LoadError::Arguments(error.to_string())
}

impl Cell {
    pub(crate) fn faults(&self) -> u64 {
        self.servers.iter().map(|figures| figures.faults).sum()
    }
}

/// A closed-loop plan for one cell on one server.
pub(crate) fn plan(
    args: &CompareArgs,
    cell: &CellPlan,
    server: &Server,
    round: usize,
) -> Result<Plan, LoadError> {
    Ok(Plan {
        connections: CONNECTIONS,
        pipeline: cell.pipeline,
        warm_up: Duration::from_secs_f64(args.warm_up),
        duration: Duration::from_secs_f64(args.duration),
        pregenerated: cell.pregenerated(),
        cores: match server.spreads {
            true => Vec::new(),
            false => vec![args.driver_core],
        },
        seed: 1 + round as u64,
        server_pids: vec![server.pid()],
        ..Plan::new(server.target.clone(), cell.load(server.kind, args.keys)?)
    })
}

/// Stores every key of a load in a server.
pub(crate) fn store(server: &Server, load: &Load) -> Result<(), LoadError> {
    match preload::preload(&server.target, load, (1, None), &Stop::new())? {
        0 => Ok(()),
        refused => {
            let name = server.kind.name();
            Err(LoadError::Server(format!("{name} refused {refused} keys")))
        }
    }
}

/// Stores all keys with values of one length in every server.
pub(crate) fn store_all(
    args: &CompareArgs,
    cell: &CellPlan,
    servers: &[Server],
) -> Result<(), LoadError> {
    let mut servers = servers.iter();
    servers.try_for_each(|server| store(server, &cell.load(server.kind, args.keys)?))
}

pub(crate) fn compare<'a>(
    args: &CompareArgs,
    servers: &[Server],
    cells: impl Iterator<Item = &'a CellPlan>,
) -> Result<Vec<Cell>, LoadError> {
    let mut stored = None;
    let mut results = Vec::new();
    for cell in cells {
        let kept = (cell.value_bytes, cell.asks);
        if stored != Some(kept) {
            store_all(args, cell, servers)?;
            stored = Some(kept);
        }
        let reports = alternate(args.rounds, servers, |server, round| {
            measure(&plan(args, cell, server, round)?, &Session::default())
        })?;
        let figures = servers.iter().zip(&reports);
        results.push(Cell {
            plan: *cell,
            servers: figures
                .map(|(server, own)| figures_of(&server.label, &reports[0], own))
                .collect(),
        });
    }
    Ok(results)
}

fn figures_of(server: &str, first: &[Report], own: &[Report]) -> Figures {
    let server_ns = |report: &Report| report.server_ns_per_request.unwrap_or(0.0);
    Figures {
        server: server.to_owned(),
        rate: Spread::over(own, |report| report.rate),
        server_ns: Spread::over(own, server_ns),
        server_cores: Spread::over(own, |report| report.server_cores.unwrap_or(0.0)),
        driver_cores: Spread::over(own, |report| report.driver_cores),
        rate_ratio: Spread::ratio(first, own, |report| report.rate),
        server_ns_ratio: Spread::ratio(first, own, server_ns),
        faults: own
            .iter()
            .map(|report| report.faults() + report.counts.misses)
            .sum(),
    }
}
