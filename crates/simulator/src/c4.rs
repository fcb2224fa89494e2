//! C-4's models (Sutherland, Falsafi, Daglis, ASPLOS 2023): a balancer, workers with private
//! queues, versions that optimistic readers check, and write compaction; and beside the paper's
//! mechanism what the server ships of it.
//!
//! A request comes to the balancer, goes to a worker's queue, is served, is answered (its latency
//! ends), and is reported back to the balancer:
//!
//! ```text
//! generated --1 ns--> balancer --30 ns--> queue .. service 400..800 + 100 --> answered
//!                        ^                                          |
//!                        +---------------- report, 30 ns -----------+
//! ```
//!
//! The paper's balancer is part of the network card and takes no worker's time. One in software is
//! a core that is no worker, and every request, with its report, takes time of it: requests pass it
//! one after another ([`C4Model::with_dispatcher`]). As shipped there is none: a request comes over
//! a connection, and connections are spread over workers ([`Mechanism::Shipped`]).
//!
//! The queueing model (section 3) has no caches and no coherence: it shows what queues and locks
//! do, not what a contended line costs. A [`FullSystem`] adds that.

pub(crate) mod dispatcher;
pub(crate) mod exclusive_writers;
pub(crate) mod jbsq;
pub(crate) mod key_buckets;
pub(crate) mod system_costs;

use std::collections::HashMap;

use clap::ValueEnum;
use curtail_dispatch::{Answers, Closing, CompactionConfig, Deadline, Policy};
use curtail_workload::{Popularity, Ranks};

use crate::{
    c4::{
        dispatcher::{DispatchConfig, Dispatcher, Sticky},
        jbsq::TieBreak,
        system_costs::FullSystem,
    },
    costs::FullCosts,
    queueing::{
        Bound, Outcome, Point,
        arrivals::Arrivals,
        compaction_windows::{Scan, Windows},
        dispatchers::Deciders,
        server_dispatch::Shipped,
        times::{Around, Publish, Steps, Times, Uniform, Whole, services},
        versions::Versions,
    },
};

/// One point of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct C4Model {
    /// Who may read and write where.
    pub policy: Policy,
    /// Whose mechanism balances and compacts.
    pub mechanism: Mechanism,
    /// Workers, 1 to 256.
    pub workers: u16,
    /// Outstanding requests of a worker that takes no more balanced ones.
    pub depth: u16,
    /// Offered load as a share of what all workers can serve.
    pub load: f64,
    /// Writes, per cent of the requests.
    pub write_percent: f64,
    /// Exponent of Zipf's law of popularity; 0 is uniform.
    pub gamma: f64,
    /// Whether workers compact writes, and when windows close. Under the reference's rules
    /// `DeadlineOnly` is what the authors' simulator does instead.
    pub compaction: Option<Closing>,
    /// Requests in all.
    pub requests: u64,
    /// Of all randomness.
    pub seed: u64,
    /// Whose rules are followed where the paper and its authors' simulator differ.
    pub rules: Rules,
    /// Whether all workers draw the same service times in the same order, as they do in the
    /// authors' simulator. It lets workers fall into step, which lengthens the tail of short runs.
    pub same_services: bool,
    /// What takes how long.
    pub costs: Costs,
    /// The limit on the 99th percentile, in mean service times. Windows are made for ten.
    pub limit: u16,
    /// A whole system's times in the store, in place of those of `costs`.
    pub whole: Option<FullSystem>,
    /// What a request and its report take of the core that balances; 0: the network card balances.
    pub dispatch_ns: u64,
}

/// Who balances requests among workers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, ValueEnum)]
pub enum Balancer {
    /// The network card, as in the paper: it costs no core and no time.
    Card,
    /// One of the cores, which then is no worker.
    Core,
}

/// Whose mechanism balances writes and compacts them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Mechanism {
    /// The paper's: a central dispatcher with bounded queues, and windows that wait for writes.
    Paper,
    /// The server's: requests come over connections, claims are in
    /// [`curtail_dispatch::SharedWriters`], and a window is the batch of a turn.
    Shipped,
}

/// Whose rules are followed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, ValueEnum)]
pub enum Rules {
    /// As in the authors' simulator.
    ///
    /// The balancer learns of a completed request only at the next arrival; of equally loaded
    /// workers it chooses the lowest; a write whose partition has a writer waits while all workers
    /// are full; a reader retries once; a compaction window closes when no further write of its key
    /// is queued, and answers before it applies the write; the whole queue is searched; no requests
    /// are dropped as warm-up.
    Reference,
    /// As in the paper.
    ///
    /// The balancer learns of a completed request at once; it rotates among equally loaded workers;
    /// a reader retries until no write interferes; a compaction window closes by the selected rule,
    /// and applies the write before it answers; 8 slots of the queue are searched; the first tenth
    /// of the requests is warm-up; a worker under d-CREW that defers a write executes other
    /// requests meanwhile.
    Paper,
}

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Costs {
    /// The shortest time in the store.
    pub service_min: u64,
    /// The longest; uniform in between.
    pub service_max: u64,
    /// Network stack and balancer, on the worker.
    pub fixed: u64,
    /// Putting a write aside.
    pub put_aside: u64,
    /// From the balancer to a worker, and back.
    pub channel: u64,
    /// From the client's stamp to the balancer.
    pub input: u64,
    /// From the beginning of a write until its version is odd, and from its end until even.
    pub version_lag: u64,
}

impl C4Model {
    /// The paper's model for 64 workers at a load of 0.9, half of it writes.
    pub fn new(policy: Policy, rules: Rules) -> Self {
        Self {
            policy,
            mechanism: Mechanism::Paper,
            workers: 64,
            depth: 2,
            load: 0.9,
            write_percent: 50.0,
            gamma: 0.0,
            compaction: None,
            requests: 200_000,
            seed: 1,
            rules,
            same_services: false,
            costs: Costs::PAPER,
            limit: 10,
            whole: None,
            dispatch_ns: 0,
        }
    }

    /// The same number of cores, of which one balances, where there is something to balance: EREW
    /// binds every request by its key, the ideal is a bound that no system reaches, one core serves
    /// what it receives, and the server's workers balance among themselves.
    pub fn with_dispatcher(self, dispatch_ns: u64) -> Self {
        let is_bound = matches!(self.policy, Policy::Erew | Policy::Ideal)
            || self.mechanism == Mechanism::Shipped;
        match self.workers {
            workers @ 2.. if !is_bound => Self {
                workers: workers - 1,
                dispatch_ns,
                ..self
            },
            _ => self,
        }
    }

    /// Cores: the workers, and the one that balances.
    pub fn cores(&self) -> u16 {
        self.workers + u16::from(self.dispatch_ns > 0)
    }

    /// A whole system of 64 workers, by the paper's rules.
    pub fn of_system(policy: Policy, system: FullSystem) -> Self {
        let service = system.service_ns() - system.fixed_ns;
        Self {
            costs: Costs {
                service_min: service * 2 / 3,
                service_max: service * 4 / 3,
                fixed: system.fixed_ns,
                put_aside: system.put_aside_ns,
                channel: system.channel_ns,
                input: 1,
                version_lag: 0,
            },
            whole: Some(system),
            ..Self::new(policy, Rules::Paper)
        }
    }

    /// The popularity of its keys, ready to be drawn from; to be shared by runs of one `gamma`.
    pub fn ranks(gamma: f64) -> Ranks {
        Ranks::new(KEYS, Popularity::Zipf { exponent: gamma })
    }

    /// Runs it. `ranks` are [`C4Model::ranks`] of its `gamma`.
    pub fn run(&self, ranks: &Ranks) -> Outcome {
        let balancer_ns = match (self.mechanism, self.whole) {
            (Mechanism::Shipped, Some(system)) => system.balancer_ns,
            _ => 0,
        };
        let around = Around {
            fixed_ns: self.costs.fixed - balancer_ns,
            put_aside_ns: self.costs.put_aside,
            answer_ns: self.costs.fixed - balancer_ns,
            publish: Publish::Later {
                ns: self.costs.version_lag,
            },
            steps: Steps {
                delegate_ns: FullCosts::measured().delegated_write.ns,
                ..Steps::default()
            },
        };
        let services = services(self.workers, self.seed, self.same_services);
        match self.whole {
            None => {
                let range = (self.costs.service_min, self.costs.service_max);
                self.run_with(ranks, Uniform::new(services, range, around))
            }
            Some(system) => {
                // The table of exclusive writers knows whether another write of a partition is
                // under way, so that under d-CREW only those few look for it in their queue.
                let scans = self.compaction.is_some() && self.policy == Policy::Crew;
                self.run_with(ranks, Whole::new(services, system, scans, around))
            }
        }
    }

    fn run_with(&self, ranks: &Ranks, times: impl Times) -> Outcome {
        let rate = self.load * self.capacity();
        let sample = (self.requests, self.seed);
        let arrivals = Arrivals::of_ranks(ranks, self.write_percent, rate, sample)
            .measured(self.warm_up()..self.requests)
            .through(self.costs.input, self.dispatch_ns);
        let deciders = match self.mechanism {
            Mechanism::Paper => Deciders::Dispatched {
                dispatcher: Box::new(Dispatcher::new(self.dispatch())),
                plan: None,
            },
            Mechanism::Shipped => {
                Deciders::Shipped(Box::new(Shipped::new(self.policy, self.workers, None)))
            }
        };
        let conflicts = self.has_conflicts();
        let point = Point {
            versions: conflicts.then(|| Versions::new(self.remembered_ns())),
            windows: self.compaction.map(|closing| self.windows(closing)),
            channel_ns: self.costs.channel,
            as_authors: self.rules == Rules::Reference && self.mechanism == Mechanism::Paper,
            bound: Bound::under_way(IN_FLIGHT_MAX),
            ..Point::new(self.workers, arrivals, deciders, times, self.seed)
        };
        point.run()
    }

    /// Requests a second that load 1 stands for: in a whole system, if all were reads of items
    /// that are in a cache. A core that balances may be what carries least.
    pub fn capacity(&self) -> f64 {
        let mean = match self.whole {
            None => self.costs.mean(),
            Some(system) => (system.read_ns + system.fixed_ns) as f64,
        };
        let workers = f64::from(self.workers) * 1e9 / mean;
        match self.dispatch_ns {
            0 => workers,
            ns => workers.min(1e9 / ns as f64),
        }
    }

    /// The worker that the most popular key's writes go to, if one is bound to them for good.
    pub fn hot_worker(&self) -> Option<usize> {
        let bucket = key_buckets::bucket(key_buckets::popular(), 0);
        let is_static = matches!(self.policy, Policy::Erew | Policy::Crew);
        is_static.then(|| bucket as usize % usize::from(self.workers))
    }

    fn dispatch(&self) -> DispatchConfig {
        let reference = self.rules == Rules::Reference;
        // Neither EREW nor shortest-queue CRCW of the authors' simulator knows a bound.
        let unbound = reference && matches!(self.policy, Policy::Erew | Policy::Crcw);
        let entries = match self.compaction {
            None => 2 * u32::from(self.workers).max(1) * u32::from(self.depth).max(1),
            // Deferred writes keep their entries and not their credits.
            Some(_) => 64 * u32::from(self.workers),
        };
        DispatchConfig {
            depth: (!unbound).then_some(self.depth),
            tie_break: match reference {
                true => TieBreak::Lowest,
                false => TieBreak::Rotating,
            },
            sticky: match reference {
                true => Sticky::WhileAllFull,
                false => Sticky::BehindHead,
            },
            entries_max: entries,
            writes_max: match (reference, self.whole) {
                (true, _) => u32::MAX,
                (false, None) => 63,
                (false, Some(system)) => system.writes_max,
            },
            ..DispatchConfig::new(self.policy, self.workers)
        }
    }

    fn windows(&self, closing: Closing) -> Windows {
        let scan = match self.rules {
            Rules::Reference => Scan::Whole(HashMap::new()),
            Rules::Paper => Scan::Slots(8),
        };
        let defers = self.rules == Rules::Paper && self.policy == Policy::DynamicCrew;
        Windows::new(self.workers, self.compactor(closing), scan, defers)
    }

    fn compactor(&self, closing: Closing) -> CompactionConfig {
        let service = self.costs.service_mean();
        let after = |ns| Deadline::AfterOpening { ns };
        match self.rules {
            // A window of ten service times, of which one and a half are left for closing.
            Rules::Reference => CompactionConfig {
                closing: match closing {
                    Closing::DeadlineOnly => Closing::Reference,
                    other => other,
                },
                deadline: after(10 * service - service * 3 / 2),
                answers: Answers::Early,
                windows_max: 16,
                writes_max: curtail_dispatch::WRITES_MAX,
            },
            Rules::Paper => CompactionConfig {
                closing,
                // S x (m - 1) for the limit of ten times S.
                deadline: after(9 * (service + self.costs.fixed)),
                answers: Answers::AfterApply,
                windows_max: 4,
                writes_max: 62,
            },
        }
    }

    /// The limit on p99: ten times the mean service time, or `limit` times (section 3).
    pub fn limit_ns(&self) -> u64 {
        u64::from(self.limit) * (self.costs.service_mean() + self.costs.fixed)
    }

    /// How long a write is remembered: longer than any reader that began before it takes.
    fn remembered_ns(&self) -> u64 {
        let longest = self.costs.service_max + self.costs.fixed;
        match self.whole {
            None => 4 * longest,
            // Lines of an item travel to every worker once, one after another.
            Some(system) => {
                4 * longest
                    + 4 * system.cold_ns
                    + 512 * system.line_read_ns.max(system.line_write_ns)
            }
        }
    }

    /// Requests before the first that is measured.
    fn warm_up(&self) -> u64 {
        match self.rules {
            Rules::Reference => 0,
            Rules::Paper => self.requests / 10,
        }
    }

    /// Whether reads and writes look at versions.
    fn has_conflicts(&self) -> bool {
        !matches!(self.policy, Policy::Erew | Policy::Ideal)
    }
}

impl Costs {
    /// The paper's: T_kvs uniform in 400 to 800 ns, T_fixed and T_comp 100 ns (section 3).
    pub const PAPER: Self = Self {
        service_min: 400,
        service_max: 800,
        fixed: 100,
        put_aside: 100,
        channel: 30,
        input: 1,
        version_lag: 50,
    };

    fn service_mean(self) -> u64 {
        (self.service_min + self.service_max) / 2
    }

    fn mean(self) -> f64 {
        (self.service_min + self.service_max) as f64 / 2.0 + self.fixed as f64
    }
}

/// Keys of the model (section 3 uses the evaluation's 1.6 million).
pub const KEYS: u64 = 1_600_000;
/// Requests that may be under way at once: 4 M at 91 MRPS are 46 ms of latency.
pub const IN_FLIGHT_MAX: usize = 1 << 22;
