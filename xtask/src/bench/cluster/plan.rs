//! Which runs a block has.

use super::run::Run;

/// A way to run a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum System {
    /// Hot keys on every node, linearizable.
    Lin,
    /// Hot keys on every node, sequentially consistent.
    Sc,
    /// No hot keys; any worker of a key's home runs its requests (CRCW).
    Base,
    /// No hot keys; each key has one worker of its home. With one worker a node both are the same
    /// but for the policy's bookkeeping.
    Erew,
}

/// What the clients ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Popularity {
    /// Zipf 0.99 over all keys.
    Skewed,
    /// All keys alike.
    Uniform,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) nodes: usize,
    pub(super) system: System,
    pub(super) popularity: Popularity,
    /// Share of the requests that write.
    pub(super) writes: f64,
    /// Requests under way on a connection.
    pub(super) pipeline: usize,
    /// One connection a node, whatever the others have.
    pub(super) is_light: bool,
    /// Requests a second; a closed loop has none.
    pub(super) rate: Option<f64>,
}

/// Requests under way on a connection, as clients of ccKVS batch them.
pub(super) const PIPELINE: usize = 16;

/// The pipelines that systems are compared with.
pub(super) const PIPELINES: [usize; 2] = [PIPELINE, 1];

/// Fewer, where messages share fewer frames.
const SOME: usize = 4;

/// Share of writes when latencies are compared: with half of the requests for hot keys, twice as
/// many of them write as p95 leaves out, so that p95 is one that waits for the others' answers.
pub(super) const PACED_WRITES: f64 = 0.2;

/// Share of the linearizable cluster's capacity that is offered when latencies are compared. The
/// driver of an open loop shares the cores with all nodes and is itself late where they are busy.
const PACED_LOAD: f64 = 0.01;

impl System {
    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lin => "lin",
            Self::Sc => "sc",
            Self::Base => "base",
            Self::Erew => "base-erew",
        }
    }

    /// Whether popular keys are on every node.
    pub(super) fn shares(self) -> bool {
        matches!(self, Self::Lin | Self::Sc)
    }
}

impl Popularity {
    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Skewed => "zipf 0.99",
            Self::Uniform => "uniform",
        }
    }
}

impl Job {
    pub(super) const fn new(nodes: usize, system: System, writes: f64) -> Self {
        Self {
            nodes,
            system,
            popularity: Popularity::Skewed,
            writes,
            pipeline: PIPELINE,
            is_light: false,
            rate: None,
        }
    }

    /// Whether it tells a capacity, and not latencies.
    pub(super) fn is_closed(&self) -> bool {
        self.rate.is_none() && !self.is_light
    }
}

/// Sizes of the clusters that tell what the work of one of `nodes` costs: smaller ones. What a hot
/// write is beside its messages shows only where they differ in number.
pub(super) fn smaller(nodes: usize) -> &'static [usize] {
    match nodes {
        ..=3 => &[2],
        _ => &[2, 3],
    }
}

/// The runs that tell what requests, calls and messages cost: without and with keys that are
/// shared, without and with hot writes, each with many, some and few messages to a frame.
pub(super) fn calibration(nodes: usize, writes: &[f64]) -> Vec<Job> {
    let most = writes.last().copied().unwrap_or(0.0);
    let pipelines: &[usize] = match nodes {
        2 => &[PIPELINE, SOME, 1],
        _ => &[PIPELINE, 1],
    };
    let mut jobs = Vec::new();
    for &pipeline in pipelines {
        jobs.push(Job {
            pipeline,
            ..Job::new(nodes, System::Base, 0.0)
        });
        jobs.extend([System::Lin, System::Sc].map(|system| Job {
            pipeline,
            ..Job::new(nodes, system, most)
        }));
    }
    for system in [System::Lin, System::Sc] {
        jobs.extend([0.0, most / 3.0].map(|share| Job::new(nodes, system, share)));
    }
    jobs
}

/// The runs that are compared, with many requests under way on a connection and with one. Those of
/// both models stand beside one of Base, because machines drift.
pub(super) fn comparison(nodes: usize, writes: &[f64]) -> Vec<Job> {
    let of = |system, share| Job::new(nodes, system, share);
    let mut jobs = Vec::new();
    for pipeline in PIPELINES {
        for &share in writes {
            let with = |system| Job {
                pipeline,
                ..of(system, share)
            };
            jobs.extend([System::Lin, System::Base, System::Sc].map(with));
        }
    }
    let uniform = Job {
        popularity: Popularity::Uniform,
        ..of(System::Base, 0.0)
    };
    jobs.extend([of(System::Erew, 0.0), uniform]);
    jobs.extend([System::Lin, System::Sc].map(|system| quiet(of(system, PACED_WRITES))));
    jobs
}

/// The same with one request under way at each node: a closed loop in which little waits but for
/// other nodes.
pub(super) fn quiet(job: Job) -> Job {
    Job {
        is_light: true,
        pipeline: 1,
        ..job
    }
}

/// Both models at one rate, for their latencies; nothing before the capacity is known.
pub(super) fn paced(nodes: usize, runs: &[Run]) -> Vec<Job> {
    let like = |run: &&Run| run.job == Job::new(nodes, System::Lin, 0.0);
    // The first round's, so that all rounds offer the same.
    let capacity = runs.iter().find(like);
    let Some(capacity) = capacity.map(|run| run.rate) else {
        return Vec::new();
    };
    let paced = |system| Job {
        rate: Some((capacity * PACED_LOAD / 1000.0).round().max(1.0) * 1000.0),
        ..Job::new(nodes, system, PACED_WRITES)
    };
    vec![paced(System::Sc), paced(System::Lin)]
}
