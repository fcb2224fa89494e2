//! What a block of runs says, as tables and as rows.

use std::fmt::Write as _;

use curtail_report::Table;

use super::{
    model::{Costs, crossing, median, paired},
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

/// Every run once, in the order of the plan.
fn jobs(runs: &[Run], nodes: usize) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for run in runs.iter().filter(|run| run.job.nodes == nodes) {
        if !jobs.contains(&run.job) {
            jobs.push(run.job);
        }
    }
    jobs
}

fn calibrated(costs: &Costs) -> String {
    format!(
        "Calibrated on smaller clusters, in ns of one core: a request {:.0}, a call {:.0}, a \
         request that another node carries out {:.0} more, a message about a hot key {:.0}.\n\n",
        costs.request, costs.call, costs.relayed, costs.message,
    )
}

fn comparison(nodes: usize, runs: &[Run], costs: Option<&Costs>) -> Table {
    let header = [
        "system",
        "pipeline",
        "writes",
        "requests/s",
        "CPU, ns",
        "hot reads",
        "handed on",
        "calls",
        "messages",
        "in a frame",
        "requests/s to Base",
        "CPU: Base to it",
        "model",
        "differs",
    ];
    let mut table = Table::new(&header, &[0]);
    let closed = |job: &Job| job.rate.is_none() && !job.is_light;
    for job in jobs(runs, nodes).iter().filter(|job| closed(job)) {
        let base = Job {
            pipeline: job.pipeline,
            ..Job::new(nodes, System::Base, job.writes)
        };
        let of = |what: fn(&Run) -> f64| median(runs, job, |run| Some(what(run)));
        let share = |what| format!("{:.1} %", 100.0 * of(what).unwrap_or(0.0));
        let measured = paired(runs, (&base, job), |run| run.cpu_ns);
        let model = costs.and_then(|costs| modelled(runs, costs, &base, job));
        table.row(&[
            title(job),
            job.pipeline.to_string(),
            format!("{:.0} %", 100.0 * job.writes),
            number(of(|run| run.rate), 0),
            number(of(|run| run.cpu_ns), 0),
            share(|run| run.hot_share),
            share(|run| run.relayed),
            number(of(|run| run.calls), 2),
            number(of(|run| run.messages), 3),
            number(of(|run| run.parts / run.frames.max(1e-9)), 1),
            number(paired(runs, (job, &base), |run| run.rate), 2),
            number(measured, 2),
            number(model, 2),
            differs(measured, model),
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
    let header = ["break-even", "pipeline", "measured", "model", "differs"];
    let mut table = Table::new(&header, &[0]);
    for pipeline in PIPELINES {
        for system in [System::Lin, System::Sc] {
            let [measured, model, differs] = crossings(nodes, runs, costs, (system, pipeline));
            let name = system.name().to_owned();
            table.row(&[name, pipeline.to_string(), measured, model, differs]);
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
    let jobs = jobs(runs, nodes);
    let compared = jobs
        .iter()
        .filter(|job| job.rate.is_none() && !job.is_light);
    let mut writes: Vec<f64> = compared.map(|job| job.writes).collect();
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
    let header = [&what, "requests/s", "p50", "p95", "p99, us"];
    let mut table = Table::new(&header, &[0]);
    let jobs = jobs(runs, nodes);
    for job in jobs.iter().filter(|job| job.rate.is_some() || job.is_light) {
        let us = |of: fn(&Run) -> Option<f64>| number(median(runs, job, of), 0);
        let (kind, rate) = match job.rate {
            Some(rate) => ("open loop", Some(rate)),
            None => (
                "one request at each node",
                median(runs, job, |run| Some(run.rate)),
            ),
        };
        table.row(&[
            format!("{}, {kind}", job.system.name()),
            number(rate, 0),
            us(|run| run.p50_us),
            us(|run| run.p95_us),
            us(|run| run.p99_us),
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
    let header = [
        "coalescing",
        "requests/s, pipelines of 1",
        &of_many,
        "gain",
        "CPU, ns, of 1",
        &of_many,
        "gain",
    ];
    let mut table = Table::new(&header, &[0]);
    for system in [System::Base, System::Lin] {
        let many = Job::new(nodes, system, 0.0);
        let one = Job {
            pipeline: 1,
            ..many
        };
        let of = |job: &Job, what: fn(&Run) -> f64| median(runs, job, |run| Some(what(run)));
        table.row(&[
            system.name().to_owned(),
            number(of(&one, |run| run.rate), 0),
            number(of(&many, |run| run.rate), 0),
            number(paired(runs, (&many, &one), |run| run.rate), 2),
            number(of(&one, |run| run.cpu_ns), 0),
            number(of(&many, |run| run.cpu_ns), 0),
            number(paired(runs, (&one, &many), |run| run.cpu_ns), 2),
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
    let mut text = String::from(
        "nodes,system,popularity,write_ratio,pipeline,rate_offered,round,requests_per_second,\
         cpu_ns,driver_cores,hot_share,relayed,protocol,calls,frames,parts,messages,others,\
         hot_keys,p50_us,p95_us,p99_us\n",
    );
    for run in runs {
        let job = &run.job;
        let optional = |value: Option<f64>| value.map_or(String::new(), |one| format!("{one:.1}"));
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{:.0},{:.1},{:.3},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},\
             {:.4},{:.1},{},{},{}",
            job.nodes,
            job.system.name(),
            job.popularity.name(),
            job.writes,
            job.pipeline,
            optional(job.rate),
            run.round,
            run.rate,
            run.cpu_ns,
            run.driver_cores,
            run.hot_share,
            run.relayed,
            run.protocol,
            run.calls,
            run.frames,
            run.parts,
            run.messages,
            run.others,
            run.hot_keys,
            optional(run.p50_us),
            optional(run.p95_us),
            optional(run.p99_us),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{model::tests::modelled, plan};
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
