//! `curtail simulate cluster`: many runs, and the command that repeats the first that fails.

use std::time::Instant;

use clap::ValueEnum;
use curtail_consistency::replica::Model;

use super::{ClusterOutcome, ClusterRun, Faults, MemoryFull, Mutant};
use crate::parallel_points::Threads;

/// Options of `curtail simulate cluster`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClusterArgs {
    /// Cluster: number of runs, with consecutive seeds from --seed.
    #[arg(long)]
    pub runs: Option<u64>,
    /// Cluster: operations in each run.
    #[arg(long)]
    pub operations: Option<u64>,
    /// Cluster: number of nodes that hold each key.
    #[arg(long)]
    pub replicas: Option<usize>,
    /// Cluster: consistency of hot keys.
    #[arg(long, value_enum)]
    pub model: Option<ModelArg>,
    /// Cluster: faults: all, none, or a list of loss, duplicate and reorder (messages), partition
    /// and slow (links), crash, pause and leave (nodes), drift (clocks), churn (keys become hot and
    /// cold), flush (a client empties a slice) and room (too little memory); a name after a minus
    /// is excluded.
    #[arg(long, allow_hyphen_values = true)]
    pub faults: Option<Faults>,
    /// Cluster: number of keys.
    #[arg(long)]
    pub keys: Option<usize>,
    /// Cluster: number of slices that the keys are divided into.
    #[arg(long)]
    pub slices: Option<u16>,
    /// Cluster: what a full store does; ample: no store is ever full. Without the flag the seed
    /// decides.
    #[arg(long, value_enum)]
    pub memory_full: Option<MemoryFull>,
    /// Cluster: number of clients.
    #[arg(long)]
    pub sessions: Option<usize>,
    /// Cluster: error (mutant) to inject, which a run must find.
    #[arg(long)]
    pub mutant: Option<Mutant>,
    /// Cluster: print every step of the key with this number to standard error.
    #[arg(long)]
    pub trace: Option<usize>,
}

/// As [`Model`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ModelArg {
    /// Linearizable.
    Lin,
    /// Sequentially consistent for each key.
    Sc,
}

impl ClusterArgs {
    /// The options that are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let all = [
            ("--runs", self.runs.is_some()),
            ("--operations", self.operations.is_some()),
            ("--replicas", self.replicas.is_some()),
            ("--model", self.model.is_some()),
            ("--faults", self.faults.is_some()),
            ("--keys", self.keys.is_some()),
            ("--slices", self.slices.is_some()),
            ("--memory-full", self.memory_full.is_some()),
            ("--sessions", self.sessions.is_some()),
            ("--mutant", self.mutant.is_some()),
            ("--trace", self.trace.is_some()),
        ];
        let given = all.into_iter().filter(|(_, given)| *given);
        given.map(|(flag, _)| flag).collect()
    }
}

/// Runs them all; what to print, and whether all went well.
pub(crate) fn simulate(
    args: &ClusterArgs,
    seed: u64,
    nodes: Option<u16>,
    threads: &Threads,
) -> Result<(String, bool), String> {
    let first = settings(args, seed, nodes)?;
    let runs = args.runs.unwrap_or(100);
    let all: Vec<ClusterRun> = (0..runs)
        .map(|offset| ClusterRun {
            seed: seed + offset,
            ..first
        })
        .collect();
    let start = Instant::now();
    let outcomes = threads.map("cluster", &all, ClusterRun::run);
    let seconds = start.elapsed().as_secs_f64();
    let mut text = summary(&outcomes, seconds);
    let mut failed = all
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| outcome.failure.is_some());
    let failures = failed.clone().count();
    if let Some((run, outcome)) = failed.next() {
        let what = outcome.failure.as_deref().unwrap_or_default();
        let others = failed.map(|(run, _)| run.seed.to_string());
        let others: Vec<String> = others.take(SEEDS_SHOWN).collect();
        text += &format!("{failures} of {runs} runs failed; the first:\n{what}\n{run} --runs 1\n");
        if !others.is_empty() {
            text += &format!("others: --seed {}\n", others.join(", "));
        }
    }
    Ok((text, failures == 0))
}

fn settings(args: &ClusterArgs, seed: u64, nodes: Option<u16>) -> Result<ClusterRun, String> {
    let model = match args.model {
        Some(ModelArg::Sc) => Model::Sc,
        _ => Model::Lin,
    };
    let usual = ClusterRun::new(seed, model);
    let nodes = nodes.unwrap_or(u16::from(usual.nodes));
    let run = ClusterRun {
        nodes: nodes.min(64) as u8,
        replicas: args.replicas.unwrap_or(usual.replicas),
        faults: args.faults.unwrap_or(usual.faults),
        operations: args.operations.unwrap_or(usual.operations),
        keys: args.keys.unwrap_or(usual.keys),
        slices: args.slices.unwrap_or(usual.slices),
        sessions: args.sessions.unwrap_or(usual.sessions),
        memory_full: args.memory_full,
        mutant: args.mutant,
        trace: args.trace,
        ..usual
    };
    let within = |what: &str, number: usize, most: usize| match (1..=most).contains(&number) {
        true => Ok(()),
        false => Err(format!("{what} are 1 to {most}, not {number}")),
    };
    within("nodes", usize::from(nodes), 16)?;
    within("replicas", run.replicas, usize::from(nodes))?;
    within("keys", run.keys, 64)?;
    within("slices", run.slices.into(), 64)?;
    within("sessions", run.sessions, 64)?;
    if let Some(key) = run.trace.filter(|key| *key >= run.keys) {
        return Err(format!(
            "there are {} keys, from 0 on, and no key {key}",
            run.keys
        ));
    }
    Ok(run)
}

fn summary(outcomes: &[ClusterOutcome], seconds: f64) -> String {
    let sum = |part: fn(&ClusterOutcome) -> u64| outcomes.iter().map(part).sum::<u64>();
    let (answered, refused) = (sum(|one| one.answered), sum(|one| one.refused));
    let (unknown, packets) = (sum(|one| one.unknown), sum(|one| one.packets));
    let all = answered + refused + unknown;
    let longest = outcomes.iter().map(|one| one.longest_wait_ns).max();
    let longest = longest.unwrap_or_default();
    let runs = outcomes.len();
    format!(
        "{runs} runs: {all} operations ({answered} answered, {refused} refused, {} for lack \
         of room, {unknown} unknown), {packets} packets, {} views, {} restarts, {} departures, {} \
         promotions, {} evictions, {} flushes; {} slices lost with all their nodes in sync; {} \
         requests waited for a node in trouble, {:.1} ms at most; {} keys too hard to judge; {:.1} \
         virtual seconds in {seconds:.1}: {:.1} runs and {:.0} operations a second\n",
        sum(|one| one.no_room),
        sum(|one| one.views),
        sum(|one| one.crashes),
        sum(|one| one.departures),
        sum(|one| one.promotions),
        sum(|one| one.evictions),
        sum(|one| one.flushes),
        sum(|one| one.lost),
        sum(|one| one.waits),
        longest as f64 / 1e6,
        sum(|one| one.unjudged),
        sum(|one| one.elapsed_ns) as f64 / 1e9,
        runs as f64 / seconds.max(1e-9),
        all as f64 / seconds.max(1e-9),
    )
}

/// Failures of which the seed is shown.
const SEEDS_SHOWN: usize = 50;
