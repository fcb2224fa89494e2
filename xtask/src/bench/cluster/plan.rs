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
    /// Few keys alike, all of them hot.
    Hot,
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

/// Share of writes when latencies are compared.
pub(super) const PACED_WRITES: f64 = 0.05;

/// Share of the linearizable cluster's capacity that is offered when latencies are compared. The
/// driver of an open loop needs a core for much less than that capacity.
const PACED_LOAD: f64 = 0.15;

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
            Self::Hot => "hot alone",
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
}

/// The runs that tell what a request and its messages cost: requests that are all answered where
/// they arrive beside requests of which half are handed on, with many and with few to a frame, and
/// hot writes at the shares that will be compared.
pub(super) fn calibration(nodes: usize, writes: &[f64]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for is_light in [false, true] {
        for system in [System::Lin, System::Sc] {
            jobs.push(Job {
                popularity: Popularity::Hot,
                is_light,
                ..Job::new(nodes, system, 0.0)
            });
            jobs.push(Job {
                is_light,
                ..Job::new(nodes, System::Base, 0.0)
            });
        }
    }
    for system in [System::Lin, System::Sc] {
        jobs.extend(writes.iter().map(|&share| Job::new(nodes, system, share)));
    }
    jobs
}

/// The runs that are compared. Each stands beside one of Base, because machines drift; and those of
/// one cluster follow each other, because a hot set that nobody asks for dissolves.
pub(super) fn comparison(nodes: usize, writes: &[f64]) -> Vec<Job> {
    let base = |share| Job::new(nodes, System::Base, share);
    let mut jobs = Vec::new();
    for system in [System::Lin, System::Sc] {
        for &share in writes {
            jobs.extend([base(share), Job::new(nodes, system, share)]);
        }
        if system == System::Lin {
            jobs.extend([base(0.0), Job::new(nodes, system, 0.0)].map(alone));
        }
    }
    for &share in writes.iter().filter(|share| **share <= 0.01) {
        let uniform = Job {
            popularity: Popularity::Uniform,
            ..base(share)
        };
        jobs.extend([base(share), Job::new(nodes, System::Erew, share), uniform]);
    }
    jobs
}

/// The same with one request under way on a connection.
fn alone(job: Job) -> Job {
    Job { pipeline: 1, ..job }
}

/// Both models at one rate, for their latencies; nothing before the capacity is known.
pub(super) fn paced(nodes: usize, runs: &[Run]) -> Vec<Job> {
    let like = |run: &&Run| run.job == Job::new(nodes, System::Lin, PACED_WRITES);
    // The first round's, so that all rounds offer the same.
    let capacity = runs.iter().find(like);
    let Some(capacity) = capacity.map(|run| run.rate) else {
        return Vec::new();
    };
    let paced = |system| Job {
        rate: Some((capacity * PACED_LOAD / 1000.0).round() * 1000.0),
        ..Job::new(nodes, system, PACED_WRITES)
    };
    vec![paced(System::Sc), paced(System::Lin)]
}
