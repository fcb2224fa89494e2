//! Replays every policy at every size and prints Markdown tables for `docs/decisions`.

use crate::contenders::{Contender, OURS};
use crate::policy::{Outcome, replay};
use crate::real_store::Stored;
use crate::store_eviction::{CHOSEN, Filtered, Plan};
use crate::trace::Trace;

/// Cache sizes, in percent of the footprint.
const PERCENTS: [u64; 4] = [1, 5, 10, 25];

/// One row of outcomes per contender, one column per trace and size.
pub(crate) struct Results {
    contenders: Vec<Contender>,
    outcomes: Vec<Vec<Outcome>>,
}

impl Results {
    /// Replays every trace at every size through every contender.
    pub(crate) fn measure(traces: &[Trace], contenders: Vec<Contender>) -> Self {
        let row = |contender: &Contender| {
            let cell = |(trace, percent): (&Trace, u64)| {
                let capacity = trace.footprint() * percent / 100;
                replay(trace, &mut *contender.cache(trace, capacity))
            };
            cells(traces).map(cell).collect()
        };
        let outcomes = contenders.iter().map(row).collect();
        Self {
            contenders,
            outcomes,
        }
    }

    /// Prints a table per trace: hit ratios, and byte hit ratios where objects have sizes.
    pub(crate) fn print_per_trace(&self, traces: &[Trace]) {
        for (number, trace) in traces.iter().enumerate() {
            let columns = number * PERCENTS.len()..(number + 1) * PERCENTS.len();
            println!(
                "\n{}: {} requests, {} objects",
                trace.name,
                trace.requests.len(),
                objects(trace)
            );
            let sized = trace.has_sizes();
            println!(
                "\n| hit ratio, % | 1 % | 5 % | 10 % | 25 % |{}",
                heads(sized)
            );
            println!(
                "|---|---:|---:|---:|---:|{}",
                "---:|".repeat(if sized { 4 } else { 0 })
            );
            for (contender, outcomes) in self.contenders.iter().zip(&self.outcomes) {
                print!("| {} |", contender.name);
                for outcome in &outcomes[columns.clone()] {
                    print!(" {:.2} |", outcome.hit_ratio * 100.0);
                }
                for outcome in outcomes[columns.clone()].iter().filter(|_| sized) {
                    print!(" {:.2} |", outcome.byte_hit_ratio * 100.0);
                }
                println!();
            }
        }
    }

    /// Prints one line per contender: means, and how it stands to the best of the yardsticks.
    pub(crate) fn print_summary(&self, yardstick: &[f64]) {
        println!("\n| policy | mean | as good | worst | copies mean | most | metadata |");
        println!("|---|---:|---:|---:|---:|---:|---:|");
        for (contender, outcomes) in self.contenders.iter().zip(&self.outcomes) {
            let count = outcomes.len() as f64;
            let mean = outcomes
                .iter()
                .map(|outcome| outcome.hit_ratio)
                .sum::<f64>()
                / count;
            let margins = outcomes.iter().zip(yardstick);
            let margins: Vec<_> = margins
                .map(|(outcome, best)| outcome.hit_ratio - best)
                .collect();
            let good = margins.iter().filter(|&&margin| margin >= -AS_GOOD).count();
            let worst = margins.iter().copied().fold(f64::INFINITY, f64::min);
            let copies = outcomes.iter().map(|outcome| outcome.write_amplification);
            let most = copies.clone().fold(0.0, f64::max);
            println!(
                "| {} | {:.2} | {good} of {} | {:+.2} | {:.2} | {most:.2} | {} |",
                contender.name,
                mean * 100.0,
                outcomes.len(),
                worst * 100.0,
                copies.sum::<f64>() / count,
                contender.metadata,
            );
        }
    }

    /// In each cell the best hit ratio of LRU, S3-FIFO and SIEVE.
    pub(crate) fn yardstick(&self) -> Vec<f64> {
        let rows = self.contenders.iter().zip(&self.outcomes);
        let rows: Vec<_> = rows
            .filter(|(contender, _)| contender.is_yardstick)
            .collect();
        let best = |cell: usize| {
            rows.iter()
                .map(|(_, outcomes)| outcomes[cell].hit_ratio)
                .fold(0.0, f64::max)
        };
        (0..self.outcomes.first().map_or(0, Vec::len))
            .map(best)
            .collect()
    }

    /// What has to hold whatever the traces are: nobody beats the future, ours is not a toy.
    pub(crate) fn check(&self, traces: &[Trace]) {
        let optimum = self.row("OPT");
        for (cell, (trace, percent)) in cells(traces).enumerate() {
            for (contender, outcomes) in self.contenders.iter().zip(&self.outcomes) {
                let fine = outcomes[cell].hit_ratio <= optimum[cell].hit_ratio || trace.has_sizes();
                assert!(
                    fine,
                    "{} beats OPT: {} at {percent} %",
                    contender.name, trace.name
                );
            }
        }
        let mean = |row: &[Outcome]| row.iter().map(|outcome| outcome.hit_ratio).sum::<f64>();
        for yardstick in self
            .contenders
            .iter()
            .filter(|contender| contender.is_yardstick)
        {
            let better = mean(self.row(OURS)) > mean(self.row(&yardstick.name));
            assert!(
                better,
                "{} is better than ours: choose again",
                yardstick.name
            );
        }
    }

    fn row(&self, name: &str) -> &[Outcome] {
        let row = self
            .contenders
            .iter()
            .position(|contender| contender.name == name);
        row.map_or(&[], |row| &self.outcomes[row])
    }
}

/// Prints the real store beside its simulator with as many segments.
pub(crate) fn print_store(traces: &[Trace]) {
    println!("\n| trace | size | segments | simulated | the store | difference | moved |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (trace, percent) in cells(traces) {
        let capacity = trace.footprint() * percent / 100;
        let Some(mut store) = Stored::new(trace, capacity) else {
            println!("| {} | {percent} % | too few | | | | |", trace.name);
            continue;
        };
        let real = replay(trace, &mut store);
        let segments = store.segments();
        let plan = Plan { segments, ..CHOSEN };
        let simulated = replay(trace, &mut Filtered::new(trace, capacity, plan));
        println!(
            "| {} | {percent} % | {segments} | {:.2} | {:.2} | {:+.2} | {:.2} |",
            trace.name,
            simulated.hit_ratio * 100.0,
            real.hit_ratio * 100.0,
            (real.hit_ratio - simulated.hit_ratio) * 100.0,
            real.write_amplification,
        );
    }
}

/// A margin of a tenth of a point counts as equal.
const AS_GOOD: f64 = 0.001;

/// Every trace at every size.
pub(crate) fn cells(traces: &[Trace]) -> impl Iterator<Item = (&Trace, u64)> {
    traces
        .iter()
        .flat_map(|trace| PERCENTS.map(|percent| (trace, percent)))
}

fn heads(sized: bool) -> String {
    let head = |percent: u64| format!(" bytes {percent} % |");
    PERCENTS.into_iter().filter(|_| sized).map(head).collect()
}

fn objects(trace: &Trace) -> String {
    match trace.has_sizes() {
        true => format!(
            "{} of {} bytes in all",
            trace.sizes.len(),
            trace.footprint()
        ),
        false => trace.sizes.len().to_string(),
    }
}
