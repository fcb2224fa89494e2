//! The model for processors (requirement CC-58), with costs from the same block of runs.
//!
//! A request costs `hit + (1 - h)(1 - 1/N) remote + h w (N - 1) write`: what it is to answer it
//! where it arrives, what is added when another node does, and what a hot write costs for each
//! other node. Messages that leave in the same turn share a frame, so that a message costs its own
//! work and a part of a frame's; with B requests under way at a node, a turn has `B (1 - h) / N`
//! requests for each other node, and `B h w` hot writes. The ratio of two systems' costs is the
//! inverse of that of their throughputs.

use super::{
    plan::{Job, Popularity, System},
    run::Run,
};

/// What a kind of message costs, in nanoseconds of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Message {
    /// For itself.
    pub(super) own: f64,
    /// For the frames that it shares with its like.
    pub(super) frame: f64,
}

/// What work costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    /// A request answered where it arrived, in nanoseconds.
    pub(super) hit: f64,
    /// Added when another node answers it.
    pub(super) remote: Message,
    /// A hot write, for each other node, linearizable.
    pub(super) lin: Message,
    /// The same, sequentially consistent.
    pub(super) sc: Message,
}

impl Message {
    /// Of one of `each_turn` of its kind that go to one node in a turn, on average.
    pub(super) fn cost(&self, each_turn: f64) -> f64 {
        self.own + self.frame * frames(each_turn)
    }

    /// By least squares over (messages a turn, what one costs, how much that counts); neither
    /// number is below 0.
    fn fitted(points: &[(f64, f64, f64)]) -> Option<Self> {
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            let each = points.iter();
            each.map(|&(turn, cost, weight)| weight * of(frames(turn), cost))
                .sum()
        };
        let (all, x, y) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|_, y| y));
        let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
        let spread = all * xx - x * x;
        if all <= 0.0 || xx <= 0.0 {
            return None;
        }
        let frame = if spread > 1e-12 {
            (all * xy - x * y) / spread
        } else {
            0.0
        };
        let own = (y - frame * x) / all;
        let (own, frame) = match (own < 0.0, frame < 0.0) {
            (true, _) => (0.0, xy / xx),
            (_, true) => (y / all, 0.0),
            _ => (own, frame),
        };
        Some(Self {
            own: own.max(0.0),
            frame: frame.max(0.0),
        })
    }
}

/// Frames for each of the messages that leave in a turn: one if there is any (by Poisson's law).
fn frames(each_turn: f64) -> f64 {
    match each_turn > 1e-9 {
        true => (1.0 - (-each_turn).exp()) / each_turn,
        false => 1.0,
    }
}

impl Costs {
    /// From the runs of the small clusters; `None` if one is missing.
    pub(super) fn calibrated(runs: &[Run], nodes: usize) -> Option<Self> {
        let count = nodes as f64;
        let hot = |is_light| {
            let of = |system| Job {
                popularity: Popularity::Hot,
                is_light,
                ..Job::new(nodes, system, 0.0)
            };
            let cpu = |system| median(runs, &of(system), |run| Some(run.cpu_ns));
            Some((cpu(System::Lin)? + cpu(System::Sc)?) / 2.0)
        };
        let cold = |is_light| {
            let job = Job {
                is_light,
                ..Job::new(nodes, System::Base, 0.0)
            };
            let cpu = median(runs, &job, |run| Some(run.cpu_ns))?;
            let each_turn = median(runs, &job, |run| Some(run.in_flight))? / count;
            Some((each_turn, (cpu - hot(is_light)?) / (1.0 - 1.0 / count), 1.0))
        };
        let unfinished = Self {
            hit: hot(false)?,
            remote: Message::fitted(&[cold(false)?, cold(true)?])?,
            lin: Message::default(),
            sc: Message::default(),
        };
        Some(Self {
            lin: unfinished.writes(runs, nodes, System::Lin)?,
            sc: unfinished.writes(runs, nodes, System::Sc)?,
            ..unfinished
        })
    }

    /// Hot writes: what a share of them adds to the cost without any, with as many keys hot.
    fn writes(&self, runs: &[Run], nodes: usize, system: System) -> Option<Message> {
        let none = Job::new(nodes, system, 0.0);
        let cpu = |job: &Job| median(runs, job, |run| Some(run.cpu_ns));
        let hot_share = |job: &Job| median(runs, job, |run| Some(run.hot_share));
        let (cpu_none, hot_none) = (cpu(&none)?, hot_share(&none)?);
        let mut points = Vec::new();
        let jobs = runs.iter().map(|run| run.job);
        for job in jobs.filter(|job| *job == Job::new(nodes, system, job.writes)) {
            let hot = hot_share(&job)?;
            let writes = hot * job.writes * (nodes as f64 - 1.0);
            if writes > 0.0 {
                let in_flight = median(runs, &job, |run| Some(run.in_flight))?;
                let other =
                    self.reads(&job, hot, in_flight) - self.reads(&none, hot_none, in_flight);
                let added = cpu(&job)? - cpu_none - other;
                // A difference is uncertain by the same time, whatever it is divided by.
                points.push((
                    in_flight * hot * job.writes,
                    added / writes,
                    writes * writes,
                ));
            }
        }
        Message::fitted(&points)
    }

    fn reads(&self, job: &Job, hot: f64, in_flight: f64) -> f64 {
        let nodes = job.nodes as f64;
        let each_turn = in_flight * (1.0 - hot) / nodes;
        self.hit + (1.0 - hot) * (1.0 - 1.0 / nodes) * self.remote.cost(each_turn)
    }

    /// Processor time for a request of this job, of which `hot_share` are for hot keys, with so
    /// many under way at each node.
    pub(super) fn request(&self, job: &Job, hot_share: f64, in_flight: f64) -> f64 {
        let write = match job.system {
            System::Lin => self.lin,
            System::Sc => self.sc,
            System::Base | System::Erew => return self.reads(job, 0.0, in_flight),
        };
        let writes = hot_share * job.writes;
        let each = write.cost(in_flight * writes);
        self.reads(job, hot_share, in_flight) + writes * (job.nodes as f64 - 1.0) * each
    }
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

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        0 => Some((values.get(half.checked_sub(1)?)? + values.get(half)?) / 2.0),
        _ => values.get(half).copied(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const COSTS: Costs = Costs {
        hit: 400.0,
        remote: Message {
            own: 1000.0,
            frame: 4000.0,
        },
        lin: Message {
            own: 2000.0,
            frame: 6000.0,
        },
        sc: Message {
            own: 800.0,
            frame: 3000.0,
        },
    };

    /// A run as the model would have it.
    pub(in super::super) fn modelled(job: Job) -> Run {
        let hot = match (job.system.shares(), job.popularity) {
            (false, _) => 0.0,
            (true, Popularity::Hot) => 1.0,
            (true, _) => 0.5,
        };
        let in_flight = if job.is_light { 16.0 } else { 64.0 };
        let cpu_ns = COSTS.request(&job, hot, in_flight);
        Run {
            job,
            round: 0,
            rate: 1e9 / cpu_ns,
            cpu_ns,
            driver_cores: 1.0,
            hot_share: hot,
            relayed: 0.0,
            protocol: 0.0,
            in_flight,
            hot_keys: 256.0,
            p50_us: Some(10.0),
            p95_us: Some(20.0),
        }
    }

    /// Goal: the calibration finds the costs that the runs were made of. Method: runs by the model
    /// itself; and without one of the kinds there is no calibration.
    #[test]
    fn costs_are_found_again() {
        let jobs = super::super::plan::calibration(2, &[0.0, 0.01, 0.05, 0.2]);
        let mut runs: Vec<Run> = jobs.into_iter().map(modelled).collect();
        let found = Costs::calibrated(&runs, 2).unwrap();
        for (one, other) in [
            (found.hit, COSTS.hit),
            (found.remote.own, COSTS.remote.own),
            (found.remote.frame, COSTS.remote.frame),
            (found.lin.own, COSTS.lin.own),
            (found.lin.frame, COSTS.lin.frame),
            (found.sc.frame, COSTS.sc.frame),
        ] {
            assert!((one - other).abs() < 1e-3, "{found:?}");
        }
        runs.retain(|run| !run.job.is_light);
        assert_eq!(Costs::calibrated(&runs, 2), None);
    }

    /// Goal: disturbed runs do not make a message cost less than nothing.
    #[test]
    fn no_message_gives_time_back() {
        for points in [
            [(1.0, -5.0, 1.0), (9.0, -9.0, 1.0)],
            [(1.0, 9.0, 1.0), (9.0, -9.0, 1.0)],
        ] {
            let fitted = Message::fitted(&points).unwrap();
            assert!(fitted.own >= 0.0 && fitted.frame >= 0.0, "{fitted:?}");
        }
    }

    #[test]
    fn ratios_that_stay_above_one_do_not_cross() {
        assert_eq!(crossing(&[(0.0, 2.0), (0.1, 1.5)]), None);
        assert_eq!(crossing(&[]), None);
        assert_eq!(crossing(&[(0.0, 2.0), (0.1, 1.0)]), Some(0.1));
    }
}
