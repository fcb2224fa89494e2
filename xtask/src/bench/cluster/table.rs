//! What a block of runs says, as tables and as rows.

use curtail_report::Table;

use super::{
    fitted_costs::{Costs, crossing, jobs, median, paired},
    plan::{Job, PACED_WRITES, PIPELINE, PIPELINES, Popularity, System},
    run::{OTHERS_MAX, Run},
};

/// The tables of one block, for clusters of `nodes`.
pub(super) fn block(nodes: usize, runs: &[Run]) -> String {
    let costs = Costs::calibrated(runs, nodes);
    let calibrated = costs.as_ref().map(calibrated).unwrap_or_default();
    let tables = [
        comparison(nodes, runs, costs.as_ref()),
        break_even(nodes, runs, costs.as_ref()),
        latency(nodes, runs),
        coalescing(nodes, runs),
    ];
    let tables = tables.map(|table| table.markdown()).join("\n");
    let disturbed = disturbed(runs);
    format!("\n## {nodes} nodes\n\n{calibrated}{tables}\n{disturbed}\n")
}

fn calibrated(costs: &Costs) -> String {
    format!(
        "Calibrated on smaller clusters, in ns of one core: a request {:.0}, a call {:.0}, a \
         request that another node carries out {:.0} more, a message about a hot key {:.0}.\n\n",
        costs.request, costs.call, costs.relayed, costs.message,
    )
}

fn comparison(nodes: usize, runs: &[Run], costs: Option<&Costs>) -> Table {
    let mut table = Table::default();
    for job in &jobs(runs, |job| job.nodes == nodes && job.is_closed()) {
        let base = Job {
            pipeline: job.pipeline,
            ..Job::new(nodes, System::Base, job.writes)
        };
        let of = |what: fn(&Run) -> f64| median(runs, job, |run| Some(what(run)));
        let share = |what| format!("{:.1} %", 100.0 * of(what).unwrap_or(0.0));
        let rates = paired(runs, (job, &base), |run| run.rate);
        let measured = paired(runs, (&base, job), |run| run.cpu_ns);
        let model = costs.and_then(|costs| modelled(runs, costs, &base, job));
        table.named(&[
            ("system", title(job)),
            ("pipeline", job.pipeline.to_string()),
            ("writes", format!("{:.0} %", 100.0 * job.writes)),
            ("requests/s", number(of(|run| run.rate), 0)),
            ("CPU, ns", number(of(|run| run.cpu_ns), 0)),
            ("hot reads", share(|run| run.hot_share)),
            ("handed on", share(|run| run.relayed)),
            ("calls", number(of(|run| run.calls), 2)),
            ("messages", number(of(|run| run.messages), 3)),
            (
                "in a frame",
                number(of(|run| run.parts / run.frames.max(1e-9)), 1),
            ),
            ("requests/s to Base", number(rates, 2)),
            ("CPU: Base to it", number(measured, 2)),
            ("model", number(model, 2)),
            ("differs", differs(measured, model)),
        ]);
    }
    table
}

/// Base's cost over that of another system, by the model.
fn modelled(runs: &[Run], costs: &Costs, base: &Job, job: &Job) -> Option<f64> {
    if base == job {
        return None;
    }
    Some(costs.request_ns(runs, base)? / costs.request_ns(runs, job)?)
}

fn title(job: &Job) -> String {
    match job.popularity {
        Popularity::Uniform => format!("{}, uniform", job.system.name()),
        _ => job.system.name().to_owned(),
    }
}

fn break_even(nodes: usize, runs: &[Run], costs: Option<&Costs>) -> Table {
    let mut table = Table::default();
    for pipeline in PIPELINES {
        for system in [System::Lin, System::Sc] {
            let [measured, model, differs] = crossings(nodes, runs, costs, (system, pipeline));
            table.named(&[
                ("break-even", system.name().to_owned()),
                ("pipeline", pipeline.to_string()),
                ("measured", measured),
                ("model", model),
                ("differs", differs),
            ]);
        }
    }
    table
}

/// Where a system stops to pay, measured and by the model, and how far they differ.
fn crossings(
    nodes: usize,
    runs: &[Run],
    costs: Option<&Costs>,
    (system, pipeline): (System, usize),
) -> [String; 3] {
    let jobs = jobs(runs, |job| job.nodes == nodes && job.is_closed());
    let mut writes: Vec<f64> = jobs.iter().map(|job| job.writes).collect();
    writes.sort_by(f64::total_cmp);
    writes.dedup();
    let pair = |share| {
        [System::Base, system].map(|system| Job {
            pipeline,
            ..Job::new(nodes, system, share)
        })
    };
    let measured = |&share: &f64| {
        let [base, job] = pair(share);
        Some((share, paired(runs, (&base, &job), |run| run.cpu_ns)?))
    };
    let modelled = |&share: &f64| {
        let [base, job] = pair(share);
        Some((share, modelled(runs, costs?, &base, &job)?))
    };
    let ratios: Vec<(f64, f64)> = writes.iter().filter_map(measured).collect();
    let model: Vec<(f64, f64)> = writes.iter().filter_map(modelled).collect();
    let differs = differs(crossing(&ratios), crossing(&model));
    [where_even(&ratios), where_even(&model), differs]
}

/// Where ratios fall to 1, in words.
fn where_even(ratios: &[(f64, f64)]) -> String {
    match (crossing(ratios), ratios.first(), ratios.last()) {
        (Some(share), ..) => format!("{:.1} %", 100.0 * share),
        (None, Some(first), _) if first.1 <= 1.0 => "never pays".to_owned(),
        (None, _, Some(last)) => format!("above {:.0} %", 100.0 * last.0),
        _ => "-".to_owned(),
    }
}

fn latency(nodes: usize, runs: &[Run]) -> Table {
    let what = format!("latency, {:.0} % writes", 100.0 * PACED_WRITES);
    let mut table = Table::default();
    for job in &jobs(runs, |job| job.nodes == nodes && !job.is_closed()) {
        let us = |of: fn(&Run) -> Option<f64>| number(median(runs, job, of), 0);
        let (kind, rate) = match job.rate {
            Some(rate) => ("open loop", Some(rate)),
            None => (
                "one request at each node",
                median(runs, job, |run| Some(run.rate)),
            ),
        };
        table.named(&[
            (&what, format!("{}, {kind}", job.system.name())),
            ("requests/s", number(rate, 0)),
            ("p50", us(|run| run.p50_us)),
            ("p95", us(|run| run.p95_us)),
            ("p99, us", us(|run| run.p99_us)),
        ]);
    }
    table
}

/// How many runs others disturbed, and by how much at most.
fn disturbed(runs: &[Run]) -> String {
    let above = runs.iter().filter(|run| run.others > OTHERS_MAX).count();
    let most = runs.iter().map(|run| run.others).fold(0.0, f64::max);
    format!(
        "During {above} of {} runs others took more than {:.0} % of the cores, {:.0} % at most.",
        runs.len(),
        100.0 * OTHERS_MAX,
        100.0 * most,
    )
}

fn coalescing(nodes: usize, runs: &[Run]) -> Table {
    let of_many = format!("of {PIPELINE}");
    let mut table = Table::default();
    for system in [System::Base, System::Lin] {
        let many = Job::new(nodes, system, 0.0);
        let one = Job {
            pipeline: 1,
            ..many
        };
        let of = |job: &Job, what: fn(&Run) -> f64| median(runs, job, |run| Some(what(run)));
        let gain = |over, under, what| number(paired(runs, (over, under), what), 2);
        let [rate, cpu_ns]: [fn(&Run) -> f64; 2] = [|run| run.rate, |run| run.cpu_ns];
        table.named(&[
            ("coalescing", system.name().to_owned()),
            ("requests/s, pipelines of 1", number(of(&one, rate), 0)),
            (&of_many, number(of(&many, rate), 0)),
            ("gain", gain(&many, &one, rate)),
            ("CPU, ns, of 1", number(of(&one, cpu_ns), 0)),
            (&of_many, number(of(&many, cpu_ns), 0)),
            ("gain", gain(&one, &many, cpu_ns)),
        ]);
    }
    table
}

fn number(value: Option<f64>, places: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.places$}"))
}

/// How far the model is off.
fn differs(measured: Option<f64>, model: Option<f64>) -> String {
    // Adding 0 makes a rounded -0 one without its sign.
    let whole = |share: f64| (100.0 * share).round() + 0.0;
    let off = measured
        .zip(model)
        .map(|(measured, model)| model / measured - 1.0);
    off.map_or("-".to_owned(), |off| format!("{:+.0} %", whole(off)))
}

/// Every run as a row.
pub(super) fn csv(runs: &[Run]) -> String {
    let mut text = COLUMNS.map(|(name, _)| name).join(",") + "\n";
    for run in runs {
        text += &(COLUMNS.map(|(_, cell)| cell(run)).join(",") + "\n");
    }
    text
}

type Column = (&'static str, fn(&Run) -> String);

const COLUMNS: [Column; 22] = [
    ("nodes", |run| run.job.nodes.to_string()),
    ("system", |run| run.job.system.name().into()),
    ("popularity", |run| run.job.popularity.name().into()),
    ("write_ratio", |run| run.job.writes.to_string()),
    ("pipeline", |run| run.job.pipeline.to_string()),
    ("rate_offered", |run| optional(run.job.rate)),
    ("round", |run| run.round.to_string()),
    ("requests_per_second", |run| format!("{:.0}", run.rate)),
    ("cpu_ns", |run| format!("{:.1}", run.cpu_ns)),
    ("driver_cores", |run| format!("{:.3}", run.driver_cores)),
    ("hot_share", |run| format!("{:.4}", run.hot_share)),
    ("relayed", |run| format!("{:.4}", run.relayed)),
    ("protocol", |run| format!("{:.4}", run.protocol)),
    ("calls", |run| format!("{:.4}", run.calls)),
    ("frames", |run| format!("{:.4}", run.frames)),
    ("parts", |run| format!("{:.4}", run.parts)),
    ("messages", |run| format!("{:.4}", run.messages)),
    ("others", |run| format!("{:.4}", run.others)),
    ("hot_keys", |run| format!("{:.1}", run.hot_keys)),
    ("p50_us", |run| optional(run.p50_us)),
    ("p95_us", |run| optional(run.p95_us)),
    ("p99_us", |run| optional(run.p99_us)),
];

fn optional(value: Option<f64>) -> String {
    value.map_or(String::new(), |one| format!("{one:.1}"))
}

#[cfg(test)]
mod tests {
    use super::super::{fitted_costs::tests::modelled, plan};
    use super::*;

    /// Goal: runs that are as the model has them differ from it by nothing, in the ratios and in
    /// the break-even, and one that is dearer by a quarter is seen. Method: runs by the model.
    #[test]
    fn tables_show_how_far_the_model_is_off() {
        let writes = [0.0, 0.05, 0.1, 0.2, 0.4];
        let mut jobs = plan::calibration(2, &writes);
        jobs.extend(plan::comparison(4, &writes));
        let mut runs: Vec<Run> = jobs.into_iter().map(modelled).collect();
        let text = block(4, &runs);
        let even = text
            .lines()
            .filter(|line| line.ends_with(" %  | +0 % |") || line.ends_with(" % | +0 % |"));
        assert_eq!(even.count(), 4, "{text}");
        assert_eq!(text.matches("| +0 % |").count(), 26, "{text}");
        let worst = Job::new(4, System::Lin, 0.05);
        for run in runs.iter_mut().filter(|run| run.job == worst) {
            run.cpu_ns *= 1.25;
        }
        assert!(block(4, &runs).contains("| +25 % |"));
        assert_eq!(csv(&runs).lines().count(), runs.len() + 1);
    }
}
