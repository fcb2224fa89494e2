//! Which items a memory cache above a disk takes in when a read misses.
//!
//! With `--tier disk` the disk has every item, so memory need not take in what was read: an item
//! that is read once would make room for nothing. The server takes in every one (`all`), and leaves
//! it to eviction to keep what is read again. The other rules were tried on the store's eviction,
//! with the same traces.

use curtail_workload::Random;

use crate::ghost::Ghost;
use crate::policy::{Policy, replay};
use crate::real_store::Stored;
use crate::tables::cells;
use crate::trace::{ObjectId, Trace};

/// A rule of admission.
#[derive(Clone, Copy)]
enum Rule {
    /// What the server does.
    All,
    /// What missed a second time, within so many misses, in objects that fit.
    Second(f64),
    /// At random, one in so many.
    OneIn(u64),
}

const RULES: [(&str, Rule); 6] = [
    ("all (the server)", Rule::All),
    ("second miss, 0.5", Rule::Second(0.5)),
    ("second miss, 2", Rule::Second(2.0)),
    ("second miss, 8", Rule::Second(8.0)),
    ("one in 2", Rule::OneIn(2)),
    ("one in 8", Rule::OneIn(8)),
];

/// The store behind a rule.
struct Guarded<'t> {
    store: Stored<'t>,
    rule: Rule,
    missed: Ghost,
    random: Random,
    taken_in: u64,
}

impl<'t> Guarded<'t> {
    fn new(trace: &'t Trace, capacity: u64, rule: Rule) -> Option<Self> {
        let fitting = capacity as f64 * trace.sizes.len() as f64 / trace.footprint() as f64;
        let entries = match rule {
            Rule::Second(times) => (fitting * times) as u64,
            Rule::All | Rule::OneIn(_) => 1,
        };
        Some(Self {
            store: Stored::new(trace, capacity)?,
            rule,
            missed: Ghost::new(entries),
            random: Random::new(1),
            taken_in: 0,
        })
    }

    fn admits(&mut self, object: ObjectId) -> bool {
        match self.rule {
            Rule::All => true,
            Rule::OneIn(times) => self.random.one_in(times),
            Rule::Second(_) => {
                let is_second = self.missed.take(object).is_some();
                if !is_second {
                    self.missed.insert(object);
                }
                is_second
            }
        }
    }
}

impl Policy for Guarded<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let found = self.store.find(object);
        if !found && self.admits(object) {
            self.store.write(object);
            self.taken_in += 1;
        }
        found
    }
}

/// Prints the hit ratio of every rule on every trace, and how much memory takes in.
pub(crate) fn print(traces: &[Trace]) {
    let names: Vec<&str> = RULES.iter().map(|(name, _)| *name).collect();
    println!("\n| trace | size | {} |", names.join(" | "));
    println!("|---|---:|{}", "---:|".repeat(RULES.len()));
    let mut sums = [(0.0, 0.0); RULES.len()];
    let mut count = 0.0;
    for (trace, percent) in cells(traces) {
        let capacity = trace.footprint() * percent / 100;
        let mut row = Vec::new();
        for ((_, rule), sum) in RULES.iter().zip(&mut sums) {
            let Some(mut cache) = Guarded::new(trace, capacity, *rule) else {
                continue;
            };
            let hit_ratio = replay(trace, &mut cache).hit_ratio;
            row.push(format!("{:.2}", hit_ratio * 100.0));
            sum.0 += hit_ratio;
            sum.1 += cache.taken_in as f64 / trace.requests.len() as f64;
        }
        match row.is_empty() {
            true => println!("| {} | {percent} % | too few segments |", trace.name),
            false => {
                count += 1.0;
                println!("| {} | {percent} % | {} |", trace.name, row.join(" | "));
            }
        }
    }
    let line = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let means = sums
            .iter()
            .map(|sum| format!("{:.2}", 100.0 * of(sum) / count));
        means.collect::<Vec<_>>().join(" | ")
    };
    println!("| mean | | {} |", line(&|sum| sum.0));
    println!("| taken in, % of requests | | {} |", line(&|sum| sum.1));
}
