//! The model for processors (requirement CC-58), with costs from the same block of runs.
//!
//! A request costs what it is to read, carry out and answer it; what is added when another node
//! carries it out; what each message about a hot key costs for itself; and what the calls into the
//! system cost, which requests, answers and messages share when they leave or come in one turn. How
//! many calls and messages there are to a request is counted by the nodes, in the run that is
//! modelled: it depends on the number of nodes, on the share of hits and on the pipelines, and is
//! the degree of coalescing by which CC-58 divides. What each *costs* comes from clusters of 2
//! and 3 nodes. The ratio of two systems' costs is the inverse of that of their throughputs.

use super::super::middle;
use super::{plan::Job, run::Run};

/// What work costs, in nanoseconds of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    /// A request, without the calls that bring it and its answer.
    pub(super) request: f64,
    /// A call into the system that receives or sends or asks for events.
    pub(super) call: f64,
    /// Added when another node carries a request out.
    pub(super) relayed: f64,
    /// A message about a hot key, sent and received, whichever model it belongs to.
    pub(super) message: f64,
}

/// How many costs there are.
const COSTS: usize = 4;

impl Costs {
    /// From the runs of clusters smaller than `nodes`; `None` if there are too few.
    pub(super) fn calibrated(runs: &[Run], nodes: usize) -> Option<Self> {
        let jobs = jobs(runs, |job| job.nodes < nodes);
        let row = |job: &Job| {
            let cpu = median(runs, job, |run| Some(run.cpu_ns))?;
            Some((counted(runs, job)?, cpu))
        };
        let rows: Vec<([f64; COSTS], f64)> = jobs.iter().filter_map(row).collect();
        let [request, call, relayed, message] = fitted(&rows)?;
        Some(Self {
            request,
            call,
            relayed,
            message,
        })
    }

    /// Processor time for a request of this job, with what its runs counted.
    pub(super) fn request_ns(&self, runs: &[Run], job: &Job) -> Option<f64> {
        let costs = [self.request, self.call, self.relayed, self.message];
        let counts = counted(runs, job)?;
        Some(
            costs
                .iter()
                .zip(counts)
                .map(|(cost, count)| cost * count)
                .sum(),
        )
    }
}

/// Every job of these once, in the order of the plan.
pub(super) fn jobs(runs: &[Run], chosen: impl Fn(&Job) -> bool) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for run in runs.iter().filter(|run| chosen(&run.job)) {
        if !jobs.contains(&run.job) {
            jobs.push(run.job);
        }
    }
    jobs
}

/// How often each cost arises for a request of this job.
fn counted(runs: &[Run], job: &Job) -> Option<[f64; COSTS]> {
    let of = |what: fn(&Run) -> f64| median(runs, job, |run| Some(what(run)));
    let messages = match job.system.shares() {
        true => of(|run| run.messages)?,
        false => 0.0,
    };
    Some([1.0, of(|run| run.calls)?, of(|run| run.relayed)?, messages])
}

/// The costs, none below 0, with which the rows come nearest to what they measured, each by its
/// share: least squares, without those that would be negative. `None` if a cost arises nowhere.
fn fitted(rows: &[([f64; COSTS], f64)]) -> Option<[f64; COSTS]> {
    let mut is_free = [true; COSTS];
    loop {
        let (mut matrix, mut right) = ([[0.0; COSTS]; COSTS], [0.0; COSTS]);
        for (counts, measured) in rows.iter().filter(|(_, measured)| *measured > 0.0) {
            let counts = counts.map(|count| count / measured);
            for (line, one) in matrix.iter_mut().zip(counts) {
                for (sum, other) in line.iter_mut().zip(counts) {
                    *sum += one * other;
                }
            }
            for (sum, count) in right.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        for (place, is_free) in is_free.iter().enumerate() {
            if !is_free {
                matrix[place] = [0.0; COSTS];
                matrix.iter_mut().for_each(|line| line[place] = 0.0);
                (matrix[place][place], right[place]) = (1.0, 0.0);
            }
        }
        let costs = solved(matrix, right)?;
        let least = (0..COSTS).min_by(|one, other| costs[*one].total_cmp(&costs[*other]))?;
        if costs[least] >= 0.0 {
            return Some(costs);
        }
        is_free[least] = false;
    }
}

/// Gauss's elimination; `None` if it has no single answer.
fn solved(mut matrix: [[f64; COSTS]; COSTS], mut right: [f64; COSTS]) -> Option<[f64; COSTS]> {
    for column in 0..COSTS {
        let largest = (column..COSTS).max_by(|one, other| {
            matrix[*one][column]
                .abs()
                .total_cmp(&matrix[*other][column].abs())
        })?;
        matrix.swap(column, largest);
        right.swap(column, largest);
        let pivot = matrix[column];
        if pivot[column].abs() < 1e-15 {
            return None;
        }
        for row in (0..COSTS).filter(|row| *row != column) {
            let factor = matrix[row][column] / pivot[column];
            for (own, other) in matrix[row].iter_mut().zip(pivot) {
                *own -= factor * other;
            }
            right[row] -= factor * right[column];
        }
    }
    let all = right.iter().enumerate();
    let mut answer = [0.0; COSTS];
    for (place, value) in all {
        answer[place] = value / matrix[place][place];
    }
    Some(answer)
}

/// The write ratio at which `ratios` (write ratio, not sharing's cost over sharing's) falls to 1:
/// between the last point above and the first below, on the straight line.
pub(super) fn crossing(ratios: &[(f64, f64)]) -> Option<f64> {
    let pairs = ratios.iter().zip(ratios.get(1..)?);
    let mut crossings = pairs.filter(|(left, right)| left.1 > 1.0 && right.1 <= 1.0);
    // The inverse is what is linear in the write ratio.
    crossings.next().map(|(left, right)| {
        let (low, high) = (1.0 / left.1, 1.0 / right.1);
        left.0 + (right.0 - left.0) * (1.0 - low) / (high - low)
    })
}

/// The median over the rounds of one job.
pub(super) fn median(runs: &[Run], job: &Job, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let same = runs.iter().filter(|run| run.job == *job);
    middle(same.filter_map(of).collect())
}

/// The median of the quotients of two jobs, each run with the nearest one of the other job.
pub(super) fn paired(
    runs: &[Run],
    (over, under): (&Job, &Job),
    of: impl Fn(&Run) -> f64,
) -> Option<f64> {
    let all = || runs.iter().enumerate();
    let above = all().filter(|(_, run)| run.job == *over);
    let quotients = above.filter_map(|(place, above)| {
        let same = all().filter(|(_, run)| run.job == *under);
        let (_, nearest) = same.min_by_key(|(other, _)| other.abs_diff(place))?;
        Some(of(above) / of(nearest))
    });
    middle(quotients.collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::plan::System;
    use super::*;

    const KNOWN: Costs = Costs {
        request: 400.0,
        call: 1800.0,
        relayed: 500.0,
        message: 900.0,
    };

    /// A run as the model would have it, with half of the requests for hot keys.
    pub(in super::super) fn modelled(job: Job) -> Run {
        let nodes = job.nodes as f64;
        let hot = if job.system.shares() { 0.5 } else { 0.0 };
        let relayed = (1.0 - hot) * (1.0 - 1.0 / nodes);
        let kinds = if job.system == System::Lin { 3.0 } else { 1.0 };
        let messages = hot * job.writes * (nodes - 1.0) * kinds;
        let calls = (3.0 + 2.0 * (nodes - 1.0) * (relayed + messages).min(1.0))
            / (job.pipeline as f64).powf(0.8);
        let mut run = Run {
            job,
            round: 0,
            rate: 0.0,
            cpu_ns: 0.0,
            driver_cores: 1.0,
            hot_share: hot,
            relayed,
            protocol: 0.0,
            calls,
            frames: 0.5 * calls,
            parts: 2.0 * relayed + messages,
            messages,
            others: 0.0,
            hot_keys: 256.0,
            p50_us: Some(10.0),
            p95_us: Some(20.0),
            p99_us: Some(30.0),
        };
        run.cpu_ns = KNOWN.request_ns(&[run.clone()], &job).unwrap();
        run.rate = 1e9 / run.cpu_ns;
        run
    }

    /// Goal: the calibration finds the costs that the runs were made of. Method: runs by the model
    /// itself; and without hot writes there is no calibration.
    #[test]
    fn costs_are_found_again() {
        let jobs = super::super::plan::calibration(2, &[0.0, 0.01, 0.1]);
        let mut runs: Vec<Run> = jobs.into_iter().map(modelled).collect();
        let found = Costs::calibrated(&runs, 3).unwrap();
        for (one, other) in [
            (found.request, KNOWN.request),
            (found.call, KNOWN.call),
            (found.relayed, KNOWN.relayed),
            (found.message, KNOWN.message),
        ] {
            assert!((one - other).abs() < 1e-3, "{found:?}");
        }
        runs.retain(|run| run.job.writes == 0.0);
        assert_eq!(Costs::calibrated(&runs, 3), None);
    }

    /// Goal: disturbed runs do not make work cost less than nothing. Method: a message that makes
    /// its run cheaper.
    #[test]
    fn no_work_gives_time_back() {
        let jobs = super::super::plan::calibration(2, &[0.0, 0.01, 0.1]);
        let mut runs: Vec<Run> = jobs.into_iter().map(modelled).collect();
        for run in runs.iter_mut().filter(|run| run.job.system.shares()) {
            run.cpu_ns /= 1.0 + 2.0 * run.messages;
        }
        let found = Costs::calibrated(&runs, 3).unwrap();
        let all = [found.request, found.call, found.relayed, found.message];
        assert!(all.iter().all(|cost| *cost >= 0.0), "{found:?}");
    }

    #[test]
    fn ratios_that_stay_above_one_do_not_cross() {
        assert_eq!(crossing(&[(0.0, 2.0), (0.1, 1.5)]), None);
        assert_eq!(crossing(&[]), None);
        assert_eq!(crossing(&[(0.0, 2.0), (0.1, 1.0)]), Some(0.1));
    }
}
