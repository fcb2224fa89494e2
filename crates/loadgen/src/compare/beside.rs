//! Small requests beside large ones: what large values do to the tail of those who never asked for
//! them.
//!
//! ```text
//!   for each server, in turn:   small alone | small + 0.125 % of 500 KB
//!   then for each:              small alone | small + 0.5 % ...
//! ```
//!
//! Two drivers with connections of their own: one sends requests for 14 to 1400 bytes in open loop,
//! at a share of what the first server reached just before in closed loop, the same for every
//! server; the other sends the large ones, also in open loop. Only the small ones are measured, in
//! windows of 20 ms; the medians of the windows' p99 with and without the large requests are
//! compared within a round, per server. The mixes are those of Minos (paper, section 5.2: 95:5,
//! 500 KB). A server of ours also tells what work was ahead of its small requests. Longer values
//! would need a third core: on the servers' core the client that takes them keeps every server's
//! processor for milliseconds.
//!
//! The first server is also measured while its neighbour, a second one of the same kind on the same
//! core, gets the large requests: what a core that is shared does to small requests which have
//! nothing to do with large ones.

mod ahead;
mod large;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use curtail_workload::{SizeClass, Sizes};
use serde::Serialize;

pub(crate) use self::ahead::AheadBounds;
use self::{ahead::Ahead, large::Large};
use super::{
    CompareArgs, Spread,
    servers::{Kind, Server},
    throughput::{self, CellPlan},
};
use crate::{
    drive::{Pace, Plan, Session, measure},
    error::LoadError,
    load::Load,
    measure::rank,
    preload,
    protocol::Protocol,
    stop::Stop,
};

/// One load for all servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Beside {
    /// Large requests for each small one.
    pub(crate) share: f64,
    /// Share of the first server's peak.
    pub(crate) load: f64,
    /// Small requests a second.
    pub(crate) rate: f64,
    pub(crate) servers: Vec<Figures>,
}

/// One server's small requests, with the large ones and without.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) server: String,
    pub(crate) windows: usize,
    pub(crate) alone_p99_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p99_lower_quartile_us: f64,
    pub(crate) p99_upper_quartile_us: f64,
    /// The median p99 of the driver's own lateness alone, and beside large requests: what is not
    /// the server's.
    pub(crate) late_us: [f64; 2],
    /// The p99 beside large requests over the one alone, within rounds.
    pub(crate) ratio: Spread,
    /// Large requests a second that were answered.
    pub(crate) large_rate: f64,
    pub(crate) unfinished: u64,
    /// Work ahead of the small requests, alone and beside large ones, if the server tells.
    pub(crate) ahead: [Option<AheadBounds>; 2],
    /// With the large requests at the neighbour, if that was measured.
    pub(crate) elsewhere: Option<Elsewhere>,
}

/// The same small requests with the large ones at the neighbour, on the same core.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Elsewhere {
    pub(crate) p99_us: f64,
    /// This p99 over the one alone, within rounds.
    pub(crate) ratio: Spread,
    /// The p99 beside large requests over this one, within rounds.
    pub(crate) beside: Spread,
}

/// Large requests for each small one.
const SHARES: [f64; 2] = [0.001_25, 0.005];

/// Shares of the peak.
const LOADS: [f64; 2] = [0.5, 0.8];

const SMALL: CellPlan = CellPlan {
    pipeline: 1,
    get_ratio: 0.95,
    value_bytes: 0,
    zipf: 0.99,
};

/// Keys of the small values: 140 MB.
const SMALL_KEYS: u64 = 200_000;
const LARGE_BYTES: u32 = 500_000;
const LARGE_KEYS: u64 = 400;
/// How often each of them is stored beforehand.
const LARGE_STORED: usize = 3;
/// Lengths of keys, which keep the two kinds apart.
const KEY_BYTES: [usize; 2] = [16, 20];

/// One load while it is measured.
struct Cell {
    load: f64,
    share: f64,
    rates: Vec<f64>,
    /// By server.
    runs: Vec<Runs>,
}

#[derive(Default)]
struct Runs {
    alone: Vec<Run>,
    beside: Vec<Run>,
    elsewhere: Vec<Run>,
    ahead: [Ahead; 2],
}

/// Where the large requests go.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Company {
    Nowhere,
    SameServer,
    Neighbour,
}

/// One server in one round.
struct Run {
    p99s_us: Vec<f64>,
    /// The driver's lateness, likewise.
    late_p99s_us: Vec<f64>,
    large_rate: f64,
    unfinished: u64,
}

pub(crate) fn compare(
    args: &CompareArgs,
    servers: &[Server],
    neighbour: &Server,
) -> Result<Vec<Beside>, LoadError> {
    store_all(servers, neighbour)?;
    let cells = LOADS
        .iter()
        .flat_map(|load| SHARES.map(|share| (*load, share)));
    let mut cells: Vec<_> = cells
        .map(|(load, share)| Cell {
            load,
            share,
            rates: Vec::new(),
            runs: servers.iter().map(|_| Runs::default()).collect(),
        })
        .collect();
    for round in 0..args.rounds {
        // Anew in every round, because the machine's speed drifts.
        let peak = peak(args, servers, round)?;
        for cell in &mut cells {
            cell.measure(args, servers, neighbour, peak * cell.load, round)?;
        }
    }
    let all = cells.iter().map(|cell| Beside {
        share: cell.share,
        load: cell.load,
        rate: rank(&cell.rates, 0.5),
        servers: servers
            .iter()
            .zip(&cell.runs)
            .map(|(server, runs)| figures_of(server, runs))
            .collect(),
    });
    Ok(all.collect())
}

impl Cell {
    /// One round: every server alone and beside large requests, one right behind the other.
    fn measure(
        &mut self,
        args: &CompareArgs,
        servers: &[Server],
        neighbour: &Server,
        rate: f64,
        round: usize,
    ) -> Result<(), LoadError> {
        self.rates.push(rate);
        for index in throughput::rotated(servers.len(), round) {
            let (server, runs) = (&servers[index], &mut self.runs[index]);
            let companies = match index {
                0 => &[Company::Nowhere, Company::SameServer, Company::Neighbour][..],
                _ => &[Company::Nowhere, Company::SameServer],
            };
            for which in throughput::rotated(companies.len(), round) {
                let large_target = match companies[which] {
                    Company::Nowhere => None,
                    Company::SameServer => Some(&*server.target),
                    Company::Neighbour => Some(&*neighbour.target),
                };
                let large = large_target.map(|target| (target, self.share));
                let before = (server.kind == Kind::Ours).then(|| Ahead::ask(&server.target));
                let run = run(args, server, rate, large, round)?;
                if let Some(Some(before)) = before
                    && let Some(after) = Ahead::ask(&server.target)
                    && let Some(ahead) = runs.ahead.get_mut(which)
                {
                    ahead.add(&before, &after);
                }
                match companies[which] {
                    Company::Nowhere => runs.alone.push(run),
                    Company::SameServer => runs.beside.push(run),
                    Company::Neighbour => runs.elsewhere.push(run),
                }
            }
        }
        Ok(())
    }
}

/// Stores the large values more than once, so that the memory which they take in turns has been
/// touched: what is measured is a server that has run for a while.
fn store_all(servers: &[Server], neighbour: &Server) -> Result<(), LoadError> {
    let store = |server: &Server, load: Load| {
        let preloaded = preload::preload(&server.target, &load, 1, &Stop::new())?;
        if preloaded.refused == 0 {
            return Ok(());
        }
        let (name, refused) = (server.kind.name(), preloaded.refused);
        Err(LoadError::Server(format!("{name} refused {refused} keys")))
    };
    for server in servers {
        store(server, small(server.kind)?)?;
    }
    for server in servers.iter().chain([neighbour]) {
        for _ in 0..LARGE_STORED {
            store(server, large(server.kind)?)?;
        }
    }
    Ok(())
}

fn small(kind: Kind) -> Result<Load, LoadError> {
    let sizes = Sizes::new(vec![(SizeClass::Uniform(14, 1400), 1.0)]);
    let sizes = sizes.map_err(LoadError::Arguments)?;
    loaded(kind, SMALL_KEYS, sizes, (0.95, 0.99), KEY_BYTES[0])
}

fn large(kind: Kind) -> Result<Load, LoadError> {
    let sizes = Sizes::constant(LARGE_BYTES);
    loaded(kind, LARGE_KEYS, sizes, (0.95, 0.0), KEY_BYTES[1])
}

fn loaded(
    kind: Kind,
    keys: u64,
    sizes: Sizes,
    (get_ratio, zipf): (f64, f64),
    key_bytes: usize,
) -> Result<Load, LoadError> {
    let protocol = match kind {
        Kind::Redis => Protocol::Resp,
        Kind::Ours | Kind::Memcached => Protocol::Text,
    };
    let mut workload = throughput::workload(keys, sizes, get_ratio, zipf)?;
    workload.key_bytes = key_bytes;
    Ok(Load::drawn(protocol, workload))
}

/// What the first server reaches in closed loop.
fn peak(args: &CompareArgs, servers: &[Server], round: usize) -> Result<f64, LoadError> {
    let Some(server) = servers.first() else {
        return Err(LoadError::Arguments("no server to measure".into()));
    };
    let plan = Plan {
        load: small(server.kind)?,
        ..throughput::plan(args, &SMALL, server, round)?
    };
    Ok(measure(&plan, &Session::default())?.rate)
}

/// Small requests at `rate`, and this share of large ones beside them, where they go to.
fn run(
    args: &CompareArgs,
    server: &Server,
    rate: f64,
    large: Option<(&str, f64)>,
    round: usize,
) -> Result<Run, LoadError> {
    let plan = Plan {
        load: small(server.kind)?,
        pace: Pace::poisson(rate),
        pregenerated: None,
        spin: true,
        ..throughput::plan(args, &SMALL, server, round)?
    };
    let Some((target, share)) = large else {
        let report = measure(&plan, &Session::default())?;
        return Ok(run_of(&report, 0.0));
    };
    let large = Large {
        load: self::large(server.kind)?,
        rate: rate * share,
        core: args.server_core,
    };
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let large = scope.spawn(|| large.drive(target, &stop));
        let report = measure(&plan, &Session::default());
        stop.store(true, Ordering::Relaxed);
        let panicked = |_| LoadError::Server("the driver of large requests panicked".into());
        let answered = large.join().map_err(panicked)??;
        Ok(run_of(
            &report?,
            answered as f64 / start.elapsed().as_secs_f64(),
        ))
    })
}

fn run_of(report: &crate::report::Report, large_rate: f64) -> Run {
    let us = |each: Vec<(f64, f64)>| each.into_iter().map(|(_, us)| us).collect();
    Run {
        p99s_us: us(report.recorder().window_each(0.99)),
        late_p99s_us: us(report.recorder().late_each(0.99)),
        large_rate,
        unfinished: report.counts.unfinished,
    }
}

fn figures_of(server: &Server, runs: &Runs) -> Figures {
    let Runs {
        alone,
        beside,
        elsewhere,
        ahead,
    } = runs;
    let pooled = |runs: &[Run]| -> Vec<f64> {
        let each = runs.iter().flat_map(|run| run.p99s_us.iter().copied());
        each.collect()
    };
    let late_us = |runs: &[Run]| {
        let each = runs.iter().flat_map(|run| run.late_p99s_us.iter().copied());
        rank(&each.collect::<Vec<f64>>(), 0.5)
    };
    let windows = pooled(beside);
    let ratio = |above: &[Run], below: &[Run]| {
        let p99 = |run: &Run| rank(&run.p99s_us, 0.5);
        let each = above.iter().zip(below);
        Spread::of(&each.map(|(a, b)| p99(a) / p99(b)).collect::<Vec<f64>>())
    };
    let large_rates: Vec<f64> = beside.iter().map(|run| run.large_rate).collect();
    Figures {
        server: server.label.clone(),
        windows: windows.len(),
        alone_p99_us: rank(&pooled(alone), 0.5),
        p99_us: rank(&windows, 0.5),
        p99_lower_quartile_us: rank(&windows, 0.25),
        p99_upper_quartile_us: rank(&windows, 0.75),
        late_us: [late_us(alone), late_us(beside)],
        ratio: ratio(beside, alone),
        large_rate: rank(&large_rates, 0.5),
        unfinished: beside.iter().map(|run| run.unfinished).sum(),
        ahead: ahead.each_ref().map(Ahead::bounds),
        elsewhere: (!elsewhere.is_empty()).then(|| Elsewhere {
            p99_us: rank(&pooled(elsewhere), 0.5),
            ratio: ratio(elsewhere, alone),
            beside: ratio(beside, elsewhere),
        }),
    }
}
