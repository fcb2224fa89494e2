//! One run of the load generator against a cluster, and what the nodes counted meanwhile.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    super::report,
    Asked,
    nodes::{Nodes, Numbers},
    other_programs_cpu::Others,
    plan::{Job, Popularity, System},
};

/// What all runs have in common.
pub(super) struct Driver<'a> {
    pub(super) binary: &'a Path,
    /// Measured in each run.
    pub(super) seconds: f64,
    pub(super) keys: u64,
    /// Keys that may be hot.
    pub(super) hot_keys: usize,
    /// Connections for each node.
    pub(super) connections: usize,
}

/// What one run gave, in its part of middle cost. Counts are of the whole run, warm-up and all, for
/// each request in it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) job: Job,
    pub(super) round: usize,
    /// Requests answered a second.
    pub(super) rate: f64,
    /// Processor time of all nodes for a request, user and system, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// Cores that the client used.
    pub(super) driver_cores: f64,
    /// Share of the reads that a node answered from a hot key of its own.
    pub(super) hot_share: f64,
    /// Requests handed to another node.
    pub(super) relayed: f64,
    /// Requests that the protocol of copies carried out.
    pub(super) protocol: f64,
    /// Calls of the nodes into the system that receive or send, and their turns, in each of which
    /// they look for events.
    pub(super) calls: f64,
    /// Frames between nodes.
    pub(super) frames: f64,
    /// What was in them: requests, answers, and messages about hot keys.
    pub(super) parts: f64,
    /// Messages about hot keys alone.
    pub(super) messages: f64,
    /// What processes that are not of the run took, as a share of all cores' time.
    pub(super) others: f64,
    /// Keys that were hot at the end, the mean of the nodes.
    pub(super) hot_keys: f64,
    pub(super) p50_us: Option<f64>,
    pub(super) p95_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

/// A run during which others took more of the cores is run again, so often at most; if they always
/// do, the one of middle cost counts.
pub(super) const OTHERS_MAX: f64 = 0.04;
const TRIES_MAX: usize = 3;

/// The hot set is whole if so much of it is there.
const WHOLE: f64 = 0.9;

/// Looks at a hot set without its growing after which it is taken as it is: an epoch of the control
/// may bring nothing.
const STILL_MAX: usize = 12;

/// Whatever the hot set does, it is taken as it is after so long.
const WARM_MAX: Duration = Duration::from_secs(10);

/// Reads between two looks at the hot set.
const WARM_STEP_SECONDS: &str = "0.3";

/// A hot set that is larger by this factor has grown.
const GROWN: f64 = 1.03;

/// A run is measured in so many parts, of which the one of middle cost counts.
const PARTS: usize = 5;

/// A hot set is what it will be after so long: a key comes after an epoch, goes after two, and may
/// come again after five.
const SETTLING_SECONDS: &str = "4";

/// Before measuring, in each part.
const WARM_UP_SECONDS: &str = "0.05";

impl<'a> Driver<'a> {
    /// What is asked for, with this server.
    pub(super) fn new(asked: &Asked, binary: &'a Path) -> Self {
        Self {
            binary,
            seconds: asked.seconds,
            keys: asked.keys,
            hot_keys: asked.hot_keys,
            connections: asked.connections,
        }
    }

    /// A cluster with every key.
    pub(super) fn start(&self, asked: &Asked, count: usize, system: System) -> Result<Nodes> {
        let folder = asked.folder.join(format!("{}-{count}", system.name()));
        let cluster = Nodes::start(self.binary, folder, count, system, asked.hot_keys)?;
        self.preload(&cluster)?;
        Ok(cluster)
    }
}

impl Driver<'_> {
    /// Stores every key.
    pub(super) fn preload(&self, cluster: &Nodes) -> Result<()> {
        let mut command = self.command(cluster, Popularity::Skewed);
        command.arg("--preload-only");
        report(&mut command).map(drop)
    }

    /// Warms the hot set if need be, and runs; again, if others disturb it.
    pub(super) fn run(&self, cluster: &Nodes, job: &Job, round: usize) -> Result<Run> {
        let mut tries = Vec::new();
        for _ in 0..TRIES_MAX {
            let run = self.run_once(cluster, job, round)?;
            println!("{}", run.line());
            if run.others <= OTHERS_MAX {
                return Ok(run);
            }
            tries.push(run);
        }
        middle(tries, |run| run.cpu_ns).context("a run that was not run")
    }

    /// Offers the load until the hot set is what it will be, and then measures. The hot set begins
    /// as the run before left it.
    pub(super) fn run_settled(&self, cluster: &Nodes, job: &Job, round: usize) -> Result<Run> {
        let mut command = self.command(cluster, job.popularity);
        command
            .args(["--json", "--warm-up", "0"])
            .args(["--duration", SETTLING_SECONDS])
            .args(["--pregenerated", PREGENERATED])
            .args(["--pipeline", &job.pipeline.to_string()])
            .args(["--get-ratio", &(1.0 - job.writes).to_string()])
            .args([
                "--connections",
                &self.connections_of(cluster, job).to_string(),
            ]);
        report(&mut command)?;
        let run = self.measure(cluster, job, round)?;
        println!("{}", run.line());
        Ok(run)
    }

    fn run_once(&self, cluster: &Nodes, job: &Job, round: usize) -> Result<Run> {
        if cluster.system().shares() {
            self.warm(cluster, job.popularity)?;
        }
        self.measure(cluster, job, round)
    }

    fn measure(&self, cluster: &Nodes, job: &Job, round: usize) -> Result<Run> {
        let mut command = self.command(cluster, job.popularity);
        command
            .args(["--json", "--server-pid", &cluster.processes()])
            .args([
                "--connections",
                &self.connections_of(cluster, job).to_string(),
            ])
            .args(["--pipeline", &job.pipeline.to_string()])
            .args(["--get-ratio", &(1.0 - job.writes).to_string()])
            .args(["--seed", &(round + 1).to_string()])
            .args(["--duration", &(self.seconds / PARTS as f64).to_string()])
            .args(["--repeat", &PARTS.to_string()])
            .args(["--warm-up", WARM_UP_SECONDS]);
        match job.rate {
            Some(rate) => command.args(["--rate", &rate.to_string()]),
            None => command.args(["--pregenerated", PREGENERATED]),
        };
        let before = cluster.numbers()?;
        let others = Others::begin(cluster.ids())?;
        let report = report(&mut command)?;
        let others = others.end()?;
        let after = cluster.numbers()?;
        let steps = report["steps"].as_array().map_or(&[][..], Vec::as_slice);
        let cost = |step: &Value| step["server_ns_per_request"].as_f64().unwrap_or(f64::MAX);
        // A driver that got no core for a while can give a part that cost nothing.
        let middle = middle(steps.iter().collect(), |step| cost(step));
        let read = read(middle.unwrap_or(&Value::Null), &before, &after, job);
        let run = read.with_context(|| format!("the report of {job:?}"))?;
        let run = Run {
            round,
            others,
            hot_keys: run.hot_keys / cluster.count() as f64,
            ..run
        };
        Ok(run)
    }

    /// Reads until the keys that these requests make hot are, or no more become hot.
    fn warm(&self, cluster: &Nodes, popularity: Popularity) -> Result<()> {
        let goal = WHOLE * self.keys.min(self.hot_keys as u64) as f64;
        let goal = goal * cluster.count() as f64;
        let start = Instant::now();
        let (mut most, mut still) = (0.0, 0);
        let hot_keys = || -> Result<f64> {
            let numbers = cluster.numbers()?;
            Ok(numbers.get("cluster_hot_keys").copied().unwrap_or(0.0))
        };
        let hot = hot_keys()?;
        if hot >= goal {
            return Ok(());
        }
        loop {
            let mut command = self.command(cluster, popularity);
            command
                .args([
                    "--json",
                    "--get-ratio",
                    "1",
                    "--duration",
                    WARM_STEP_SECONDS,
                ])
                .args(["--connections", &(4 * cluster.count()).to_string()])
                .args(["--warm-up", "0", "--pipeline", "16"])
                .args(["--pregenerated", PREGENERATED]);
            report(&mut command)?;
            let hot = hot_keys()?;
            if hot >= goal || still >= STILL_MAX || start.elapsed() > WARM_MAX {
                return Ok(());
            }
            still = if hot > most * GROWN { 0 } else { still + 1 };
            most = hot.max(most);
        }
    }

    fn command(&self, cluster: &Nodes, popularity: Popularity) -> Command {
        let mut command = Command::new(self.binary);
        let zipf = match popularity {
            Popularity::Skewed => "0.99",
            Popularity::Uniform => "0",
        };
        command
            .args(["bench", "--target", &format!("c={}", cluster.target())])
            .args(["--keys", &self.keys.to_string()])
            .args(["--key-bytes", "8", "--value-bytes", "40", "--zipf", zipf]);
        command
    }

    fn connections_of(&self, cluster: &Nodes, job: &Job) -> usize {
        let each = if job.is_light { 1 } else { self.connections };
        each * cluster.count()
    }
}

/// What a node counts where it calls the system: in each turn it asks for events once.
const CALLS: [&str; 5] = [
    "turns",
    "receives",
    "sends",
    "cluster_link_sends",
    "cluster_link_receives",
];

/// Requests that the driver makes in advance.
const PREGENERATED: &str = "200000";

/// The one of middle cost.
fn middle<T>(mut all: Vec<T>, cost: impl Fn(&T) -> f64) -> Option<T> {
    all.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    let middle = all.len() / 2;
    all.into_iter().nth(middle)
}

fn read(step: &Value, before: &Numbers, after: &Numbers, job: &Job) -> Result<Run> {
    let grown = |name: &str| {
        let of = |numbers: &Numbers| numbers.get(name).copied().unwrap_or(0.0);
        of(after) - of(before)
    };
    let number = |name: &str| step[name].as_f64().with_context(|| format!("no {name}"));
    let quantile = |name: &str| step["all"][name].as_f64();
    let requests = grown("requests").max(1.0);
    let each = |names: &[&str]| names.iter().map(|name| grown(name)).sum::<f64>() / requests;
    Ok(Run {
        job: *job,
        round: 0,
        rate: number("rate")?,
        cpu_ns: number("server_ns_per_request")?,
        driver_cores: number("driver_cores")?,
        hot_share: grown("cluster_hot_reads") / (requests * (1.0 - job.writes)),
        relayed: grown("cluster_relayed") / requests,
        protocol: grown("cluster_protocol") / requests,
        calls: each(&CALLS),
        frames: each(&["cluster_frames_sent"]),
        parts: each(&["cluster_parts_sent"]),
        messages: each(&["cluster_messages_sent"]),
        others: 0.0,
        hot_keys: after.get("cluster_hot_keys").copied().unwrap_or(0.0),
        p50_us: quantile("p50_us"),
        p95_us: quantile("p95_us"),
        p99_us: quantile("p99_us"),
    })
}

impl Run {
    /// In a line, for whoever watches.
    fn line(&self) -> String {
        let job = &self.job;
        let us = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.0}"));
        format!(
            "N={} {:9} {:9} w={:4.1}% x{:<2} {:>7.0}/s {:>6.0} ns hot {:.3} ({:.0} keys) \
             relayed {:.3} protocol {:.3} calls {:.2} parts {:.2} in {:.2} frames, others {:.1} %, \
             p50 {} p95 {} us",
            job.nodes,
            job.system.name(),
            job.popularity.name(),
            100.0 * job.writes,
            job.pipeline,
            self.rate,
            self.cpu_ns,
            self.hot_share,
            self.hot_keys,
            self.relayed,
            self.protocol,
            self.calls,
            self.parts,
            self.frames,
            100.0 * self.others,
            us(self.p50_us),
            us(self.p95_us),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a run's figures are found where the driver and the nodes write them.
    #[test]
    fn a_report_is_read() {
        let text = r#"{"rate": 1000.0, "server_ns_per_request": 900.5, "driver_cores": 0.5,
            "all": {"p50_us": 20.0, "p95_us": null}}"#;
        let numbers = |requests, hot| {
            let pairs = [("requests", requests), ("cluster_hot_reads", hot)];
            pairs.map(|(name, value)| (name.to_owned(), value)).into()
        };
        let job = Job::new(3, System::Lin, 0.2);
        let step = serde_json::from_str(text).unwrap();
        let run = read(&step, &numbers(50.0, 5.0), &numbers(150.0, 45.0), &job).unwrap();
        assert_eq!((run.rate, run.cpu_ns), (1000.0, 900.5));
        assert!((run.hot_share - 0.5).abs() < 1e-9);
        assert_eq!((run.p50_us, run.p95_us), (Some(20.0), None));
        assert!(read(&Value::Null, &numbers(0.0, 0.0), &numbers(1.0, 0.0), &job).is_err());
    }
}
