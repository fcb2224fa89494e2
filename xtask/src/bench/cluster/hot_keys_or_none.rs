//! `bench cluster --decided`: what the nodes themselves decide about hot keys, against none
//! (`--hot-keys 0`), at every mix of writes.
//!
//! ```text
//!   for each mix and pipeline, for each round:
//!     sharing: load until its hot set is what it will be | measured    alternately with the same
//!     without: the same load                             | measured    on a cluster without
//! ```

use anyhow::Result;
use curtail_report::Table;

use super::{
    fitted_costs::{jobs, median, paired},
    nodes::Nodes,
    plan::{Job, PIPELINES, System},
    run::{Driver, Run},
};

/// Runs all mixes on two clusters, of `system` and without hot keys.
pub(super) fn runs(
    driver: &Driver<'_>,
    (sharing, without): (&Nodes, &Nodes),
    writes: &[f64],
    rounds: usize,
) -> Result<Vec<Run>> {
    let mut all = Vec::new();
    for pipeline in PIPELINES {
        for &share in writes {
            for round in 0..rounds {
                // Whoever is first is so every other time.
                let mut pair = [sharing, without];
                if round % 2 == 1 {
                    pair.reverse();
                }
                for cluster in pair {
                    let job = Job {
                        pipeline,
                        ..Job::new(cluster.count(), cluster.system(), share)
                    };
                    all.push(driver.run_settled(cluster, &job, round)?);
                }
            }
        }
    }
    Ok(all)
}

/// A row for each mix.
pub(super) fn table(nodes: usize, runs: &[Run]) -> String {
    let mut table = Table::default();
    for job in &jobs(runs, |job| job.system.shares()) {
        let base = Job {
            system: System::Base,
            ..*job
        };
        let of = |job: &Job, what: fn(&Run) -> f64| median(runs, job, |run| Some(what(run)));
        let text = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        table.named(&[
            ("model", job.system.name().to_owned()),
            ("pipeline", job.pipeline.to_string()),
            ("writes", format!("{:.0} %", 100.0 * job.writes)),
            ("requests/s", text(of(job, |run| run.rate), 0)),
            ("without", text(of(&base, |run| run.rate), 0)),
            (
                "over it",
                text(paired(runs, (job, &base), |run| run.rate), 3),
            ),
            ("CPU, ns", text(of(job, |run| run.cpu_ns), 0)),
            ("without, ns", text(of(&base, |run| run.cpu_ns), 0)),
            ("hot keys", text(of(job, |run| run.hot_keys), 0)),
            (
                "hot reads",
                text(of(job, |run| 100.0 * run.hot_share), 0) + " %",
            ),
        ]);
    }
    format!("\n## {nodes} nodes, as they decide\n\n{}", table.markdown())
}
