//! The tail: p99 by windows at half of memcached's peak rate, in open loop.
//!
//! The rate is the same for every server: half of what memcached reached just before (the first
//! server's, where memcached is not measured). Servers alternate; the windows of all rounds are
//! pooled, and beside their median stands their lower quartile, which the machine's own stalls
//! reach least.

use std::time::Duration;

use serde::Serialize;

use super::{
    CompareArgs, Pooled, Spread, alternate,
    servers::{Kind, Server},
    throughput::{self, CellPlan},
    windows,
};
use crate::{
    drive::{Pace, Plan, Session, measure},
    error::LoadError,
    measure::rank,
};

/// The tails of all servers at one rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tail {
    pub(crate) rate: f64,
    pub(crate) servers: Vec<Figures>,
}

/// One server's tail.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) server: Kind,
    pub(crate) p50_us: f64,
    #[serde(flatten)]
    pub(crate) pooled: Pooled,
    /// Median over rounds of the whole run's p99.
    pub(crate) run_p99_us: f64,
    /// The first server's median window p99 over this one's, within rounds.
    pub(crate) ratio: Spread,
    /// The same of the lower quartiles.
    pub(crate) lower_quartile_ratio: Spread,
    pub(crate) unfinished: u64,
}

pub(super) const CELL: CellPlan = CellPlan {
    pipeline: 1,
    get_ratio: 0.95,
    value_bytes: 64,
    zipf: 0.99,
    asks: throughput::Asks::Many,
};

/// Each open-loop run is this much longer than a closed one: windows are what counts.
const LONGER: f64 = 2.0;

/// One server in one round.
struct Run {
    p50_us: f64,
    p99s_us: Vec<f64>,
    run_p99_us: f64,
    unfinished: u64,
}

pub(crate) fn compare(args: &CompareArgs, servers: &[Server]) -> Result<Tail, LoadError> {
    throughput::store_all(args, &CELL, servers)?;
    let rate = peak(args, servers)? / 2.0;
    let runs = alternate(args.rounds, servers, |server, round| {
        run(args, server, rate, round)
    })?;
    let figures = servers.iter().zip(&runs);
    Ok(Tail {
        rate,
        servers: figures
            .map(|(server, own)| figures_of(server.kind, &runs[0], own))
            .collect(),
    })
}

/// The median of three closed-loop rates of memcached.
fn peak(args: &CompareArgs, servers: &[Server]) -> Result<f64, LoadError> {
    let memcached = servers.iter().find(|server| server.kind == Kind::Memcached);
    let Some(server) = memcached.or(servers.first()) else {
        return Err(LoadError::Arguments("no server to measure".into()));
    };
    let rates: Result<Vec<f64>, LoadError> = (0..3)
        .map(|round| {
            let plan = throughput::plan(args, &CELL, server, round)?;
            Ok(measure(&plan, &Session::default())?.rate)
        })
        .collect();
    Ok(rank(&rates?, 0.5))
}

fn run(args: &CompareArgs, server: &Server, rate: f64, round: usize) -> Result<Run, LoadError> {
    let plan = Plan {
        pace: Pace::poisson(rate),
        pregenerated: None,
        spin: true,
        duration: Duration::from_secs_f64(args.duration * LONGER),
        ..throughput::plan(args, &CELL, server, round)?
    };
    let report = measure(&plan, &Session::default())?;
    let all = report.recorder().sum(false, |_| true)?;
    Ok(Run {
        p50_us: rank(&windows(&report, 0.5), 0.5),
        p99s_us: windows(&report, 0.99),
        run_p99_us: all.value_at_quantile(0.99) as f64 / 1000.0,
        unfinished: report.counts.unfinished,
    })
}

fn figures_of(server: Kind, first: &[Run], own: &[Run]) -> Figures {
    let median = |value: fn(&Run) -> f64| Spread::over(own, value).median;
    let ratio = |share| Spread::ratio(first, own, |run: &Run| rank(&run.p99s_us, share));
    Figures {
        server,
        p50_us: median(|run| run.p50_us),
        pooled: Pooled::of(own.iter().map(|run| &run.p99s_us)),
        run_p99_us: median(|run| run.run_p99_us),
        ratio: ratio(0.5),
        lower_quartile_ratio: ratio(0.25),
        unfinished: own.iter().map(|run| run.unfinished).sum(),
    }
}
