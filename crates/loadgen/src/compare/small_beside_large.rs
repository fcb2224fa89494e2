//! Small requests beside large ones: what large values do to the tail of clients that never asked
//! for them.
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
//! 500 KB), or 1 KB beside 10, 30 and 100 values of 10 MB a second. A server of ours also tells
//! what work was ahead of its small requests.
//!
//! The first server is also measured while as many bytes go over as many connections between
//! threads that belong to no server (`copies_without_server`): what the machine does to small
//! requests beside large values, on any server.

mod copies_without_server;
mod large_driver;
mod reported_work_ahead;
mod request_mixes;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use serde::Serialize;

use self::{
    copies_without_server::Transfers,
    large_driver::Large,
    reported_work_ahead::{Ahead, AheadP99},
};
pub(crate) use self::{reported_work_ahead::AheadFigures, request_mixes::Company};
use super::{
    CompareArgs, Pooled, Spread, quiet_host, rotated,
    servers::{Kind, Server},
    tail,
    throughput::{self, CellPlan},
    values, windows,
};
use crate::{
    drive::{Pace, Plan, Session, measure},
    error::LoadError,
    measure::rank,
    report::Report,
};

/// One load for all servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Beside {
    /// What the small requests are beside.
    pub(crate) company: Company,
    /// Share of the first server's peak.
    pub(crate) load: f64,
    /// Small requests a second.
    pub(crate) rate: f64,
    /// Rounds that began on a quiet machine, of how many, if that was asked for.
    pub(crate) quiet: Option<[usize; 2]>,
    pub(crate) servers: Vec<Figures>,
}

/// One server's small requests, with the large ones and without.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) server: String,
    pub(crate) alone_p99_us: f64,
    #[serde(flatten)]
    pub(crate) pooled: Pooled,
    /// The median p99 of the driver's own lateness alone, and beside large requests: what is not
    /// the server's.
    pub(crate) late_us: [f64; 2],
    /// The p99 beside large requests over the one alone, within rounds.
    pub(crate) ratio: Spread,
    /// Large requests a second that were answered.
    pub(crate) large_rate: f64,
    pub(crate) unfinished: u64,
    /// Work ahead of the small requests, alone, beside large ones, and beside as many bytes without
    /// a server, if the server tells.
    pub(crate) ahead: [Option<AheadFigures>; 3],
    /// With as many bytes between threads of no server, if that was measured.
    pub(crate) control: Option<Control>,
}

/// The same small requests beside as many bytes that no server sends.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Control {
    pub(crate) p99_us: f64,
    /// This p99 over the one alone, within rounds.
    pub(crate) ratio: Spread,
    /// The p99 beside large requests over this one, within rounds.
    pub(crate) beside: Spread,
}

/// Shares of the peak.
const LOADS: [f64; 2] = [0.5, 0.8];

const SMALL: CellPlan = CellPlan {
    value_bytes: 0,
    ..tail::CELL
};

/// How often each large value is stored beforehand.
const LARGE_STORED: usize = 3;

/// One load while it is measured.
struct Cell {
    load: f64,
    company: Company,
    rates: Vec<f64>,
    quiet_rounds: usize,
    /// By server.
    runs: Vec<Runs>,
}

#[derive(Default)]
struct Runs {
    alone: Vec<Run>,
    beside: Vec<Run>,
    control: Vec<Run>,
    ahead: [Vec<AheadP99>; 3],
}

/// Where the large requests go.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Where {
    Nowhere,
    SameServer,
    NoServer,
}

/// One server in one round.
struct Run {
    p99s_us: Vec<f64>,
    /// The driver's lateness, likewise.
    late_p99s_us: Vec<f64>,
    large_rate: f64,
    unfinished: u64,
}

pub(crate) fn compare(args: &CompareArgs, servers: &[Server]) -> Result<Vec<Beside>, LoadError> {
    let companies = match args.long {
        true => request_mixes::LONG,
        false => request_mixes::LARGE,
    };
    let Some(first) = companies.first() else {
        return Ok(Vec::new());
    };
    store_all(servers, first)?;
    let (values, each) = first.values();
    let core = (!args.spread).then_some(args.server_core);
    let transfers = Transfers::start(values, each, core, first.step_back());
    let transfers = transfers.map_err(LoadError::network("listening for the control"))?;
    let cells = LOADS
        .iter()
        .flat_map(|load| companies.iter().map(move |company| (*load, *company)));
    let mut cells: Vec<_> = cells
        .map(|(load, company)| Cell {
            load,
            company,
            rates: Vec::new(),
            quiet_rounds: 0,
            runs: servers.iter().map(|_| Runs::default()).collect(),
        })
        .collect();
    for round in 0..args.rounds {
        eprintln!(
            "beside large requests: round {} of {}",
            round + 1,
            args.rounds
        );
        // Anew in every round, because the machine's speed drifts.
        let peak = peak(args, servers, first, round)?;
        for cell in &mut cells {
            cell.measure(args, servers, &transfers, peak * cell.load, round)?;
        }
    }
    let all = cells.iter().map(|cell| Beside {
        company: cell.company,
        load: cell.load,
        rate: rank(&cell.rates, 0.5),
        quiet: args.quiet.map(|_| [cell.quiet_rounds, args.rounds]),
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
        transfers: &Transfers,
        rate: f64,
        round: usize,
    ) -> Result<(), LoadError> {
        self.rates.push(rate);
        if let Some(percent) = args.quiet {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            self.quiet_rounds += usize::from(quiet_host::wait(cores, percent));
        }
        for index in rotated(servers.len(), round) {
            let (server, runs) = (&servers[index], &mut self.runs[index]);
            let control = transfers.target();
            let places = match index {
                0 => &[Where::Nowhere, Where::SameServer, Where::NoServer][..],
                _ => &[Where::Nowhere, Where::SameServer],
            };
            for which in rotated(places.len(), round) {
                let large = match places[which] {
                    Where::Nowhere => None,
                    Where::SameServer => Some((&*server.target, server.kind)),
                    Where::NoServer => Some((&*control, Kind::Memcached)),
                };
                let before = (server.kind == Kind::Ours).then(|| Ahead::ask(&server.target));
                let run = run(args, server, rate, (&self.company, large), round)?;
                if let Some(Some(before)) = before
                    && let Some(after) = Ahead::ask(&server.target)
                    && let Some(found) = after.since(&before).p99()
                    && let Some(ahead) = runs.ahead.get_mut(which)
                {
                    ahead.push(found);
                }
                match places[which] {
                    Where::Nowhere => runs.alone.push(run),
                    Where::SameServer => runs.beside.push(run),
                    Where::NoServer => runs.control.push(run),
                }
            }
        }
        Ok(())
    }
}

/// Stores the large values more than once, so that the memory which they take in turns has been
/// touched: what is measured is a server that has run for a while.
fn store_all(servers: &[Server], company: &Company) -> Result<(), LoadError> {
    for server in servers {
        throughput::store(server, &company.small(server.kind)?)?;
    }
    for server in servers {
        for _ in 0..LARGE_STORED {
            throughput::store(server, &company.large(server.kind)?)?;
        }
    }
    Ok(())
}

/// What the first server reaches in closed loop.
fn peak(
    args: &CompareArgs,
    servers: &[Server],
    company: &Company,
    round: usize,
) -> Result<f64, LoadError> {
    let Some(server) = servers.first() else {
        return Err(LoadError::Arguments("no server to measure".into()));
    };
    let plan = Plan {
        load: company.small(server.kind)?,
        ..throughput::plan(args, &SMALL, server, round)?
    };
    Ok(measure(&plan, &Session::default())?.rate)
}

/// Small requests at `rate`, and the large ones beside them, where they go to.
fn run(
    args: &CompareArgs,
    server: &Server,
    rate: f64,
    (company, large): (&Company, Option<(&str, Kind)>),
    round: usize,
) -> Result<Run, LoadError> {
    let plan = Plan {
        load: company.small(server.kind)?,
        pace: Pace::poisson(rate),
        pregenerated: None,
        // On a core that others use, too, it would keep them from it.
        spin: !args.spread,
        ..throughput::plan(args, &SMALL, server, round)?
    };
    let Some((target, kind)) = large else {
        let report = measure(&plan, &Session::default())?;
        return Ok(run_of(&report, 0.0));
    };
    let large = Large {
        load: company.large(kind)?,
        rate: company.rate(rate),
        core: (!args.spread).then_some(args.server_core),
        step_back: company.step_back(),
    };
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let large = scope.spawn(|| large.drive(target, &stop));
        let report = measure(&plan, &Session::default());
        stop.store(true, Ordering::Relaxed);
        large.thread().unpark();
        let panicked = |_| LoadError::Server("the driver of large requests panicked".into());
        let answered = large.join().map_err(panicked)??;
        Ok(run_of(
            &report?,
            answered as f64 / start.elapsed().as_secs_f64(),
        ))
    })
}

fn run_of(report: &Report, large_rate: f64) -> Run {
    Run {
        p99s_us: windows(report, 0.99),
        late_p99s_us: values(report.recorder().late_each(0.99)),
        large_rate,
        unfinished: report.counts.unfinished,
    }
}

fn figures_of(server: &Server, runs: &Runs) -> Figures {
    let Runs {
        alone,
        beside,
        control,
        ahead,
    } = runs;
    let pooled = |runs: &[Run]| Pooled::of(runs.iter().map(|run| &run.p99s_us));
    let late_us = |runs: &[Run]| Pooled::of(runs.iter().map(|run| &run.late_p99s_us)).p99_us;
    let ratio = |above: &[Run], below: &[Run]| {
        Spread::ratio(above, below, |run: &Run| rank(&run.p99s_us, 0.5))
    };
    let [alone_ahead, _, _] = ahead;
    Figures {
        server: server.label.clone(),
        alone_p99_us: pooled(alone).p99_us,
        pooled: pooled(beside),
        late_us: [late_us(alone), late_us(beside)],
        ratio: ratio(beside, alone),
        large_rate: Spread::over(beside, |run| run.large_rate).median,
        unfinished: beside.iter().map(|run| run.unfinished).sum(),
        ahead: ahead
            .each_ref()
            .map(|runs| AheadFigures::of(runs, alone_ahead)),
        control: (!control.is_empty()).then(|| Control {
            p99_us: pooled(control).p99_us,
            ratio: ratio(control, alone),
            beside: ratio(beside, control),
        }),
    }
}
