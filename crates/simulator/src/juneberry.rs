//! Juneberry's evaluation: when a write is acknowledged, executed and seen, under five systems.
//!
//! Wang, Shu, Wang and Zhang, "Achieving Wire-Latency Storage Systems by Exploiting Hardware ACKs",
//! NSDI 2025, section 6. The queue is the production one: admission with its sessions, places,
//! stamps and dedup, leases, turns, parked reads and forwarding are `curtail_ordered_queue`'s own
//! code over real memory; here are time, clients, the network and the baselines.
//!
//! ```text
//! client            wire        card          input thread       worker
//! RawRpc        |----------->|------>|------------------------>| receive, execute, answer
//! DeferredExec  |----------->|------>|------------------------>| receive, answer, execute
//! Erpc          |  as RawRpc, a connection a thread, credits, go-back-N, rates            |
//! IoAck         |----------->|------>| receive, admit, answer ->| take, execute
//! Card          |----------->|->admit, answer ---------------->| take, execute
//! ```
//!
//! Every run also judges what the machines did ([`Wrong`]): a read that misses an acknowledged
//! write, a write executed twice or never. These counts are 0, or the model or the machine is
//! wrong.
//!
//! Memory depends on queues and on how many requests are under way, not on how many there are.

mod audit;
mod clients;
mod ingress;
mod queue_memory;
mod run;
mod step_costs;
mod workers;

use curtail_workload::{Kind, Stream, Workload, mix};

use crate::histogram::Histogram;

pub use step_costs::{DatagramPrices, DatagramTable, PersistentCosts};

/// One point of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Juneberry {
    /// Who acknowledges, and who executes.
    pub system: Datapath,
    /// What each step costs.
    pub prices: DatagramPrices,
    /// Keys, sizes, reads and writes.
    pub workload: Workload,
    /// When requests come.
    pub load: ClientLoad,
    /// Workers, 1 to 256; for systems with queues a power of two.
    pub workers: u16,
    /// Places of a queue, a power of two.
    pub queue_slots: u64,
    /// A write is acknowledged early while fewer entries wait in its queue (JB-44).
    pub early_max: u64,
    /// A worker serves reads before its queue while fewer entries wait there.
    pub deferred_max: u64,
    /// Entries of a turn; with more than one, sets of one key are folded.
    pub turn_max: usize,
    /// Machines with clients.
    pub machines: u16,
    /// Threads of each; they share a connection to each queue, but for eRPC's.
    pub threads: u16,
    /// What a sender is told when its queue is full.
    pub when_full: WhenFull,
    /// Requests that wait in a connection before its clients give up at once.
    pub patience: usize,
    /// Whether the receive buffers are persistent memory; the prices must have it.
    pub durable: bool,
    /// Requests that a receive buffer takes.
    pub requests_per_buffer: f64,
    /// Packets that are lost, as a share; only with queues and eRPC.
    pub loss: f64,
    /// Requests in all; the first and last sixth are not measured.
    pub requests: u64,
    /// Of all randomness.
    pub seed: u64,
}

/// Who acknowledges, and who executes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Datapath {
    /// A worker receives, executes, and answers.
    RawRpc,
    /// A worker answers a write before it executes it.
    DeferredExec,
    /// As `RawRpc` over unreliable datagrams, without delegation.
    Erpc,
    /// Input threads admit and acknowledge, workers execute (JB-25).
    IoAck(Reads),
    /// Who receives admits and acknowledges: a card, or a program in the kernel.
    Card(Reads),
}

/// How reads and queues meet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reads {
    /// The paper's: a read takes its place in the queue.
    InOrder,
    /// A read waits until its bucket's stamp is executed (JB-40).
    Stamped,
    /// The same, and it is answered from the queue if the newest entry is its value (JB-42).
    Forwarded,
    /// The same, and any free worker takes a read or the lease of a queue, and helps.
    Shared,
}

/// When requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientLoad {
    /// Poisson arrivals, in millions a second.
    Open {
        /// Of all clients together.
        mops: f64,
    },
    /// Every thread has so many requests outstanding, to random workers.
    Closed {
        /// Of a thread.
        outstanding: u16,
    },
    /// One thread sends these, each when the one before was answered: whether it writes, and the
    /// key.
    Script(Vec<(bool, u64)>),
}

/// What a sender is told when its queue is full.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum WhenFull {
    /// That it is full: it narrows its window and sends this one again after a random pause.
    Credits,
    /// That the receiver is not ready, as on a reliable connection of RDMA (JB-16): the connection
    /// stands still for a fixed time and then sends everything from there again.
    NotReady,
}

/// What a run measured; latencies in nanoseconds, from the time at which a request was meant to be
/// sent.
#[derive(Clone, Debug, Default)]
pub struct JuneberryOutcome {
    /// Until a write's sender knows that it is accepted, or executed.
    pub ack: Histogram,
    /// Until a read's value is there.
    pub read: Histogram,
    /// Both: until the client has what commits its request.
    pub commit: Histogram,
    /// Until a write is executed.
    pub executed: Histogram,
    /// Entries or requests that wait where a packet comes to, at its arrival.
    pub backlog: Histogram,
    /// Of a script: the latencies in order.
    pub script_ns: Vec<u64>,
    /// Requests answered or executed a second while requests came, in millions.
    pub done_mops: f64,
    /// Requests that came a second, in millions.
    pub offered_mops: f64,
    /// How often what happened.
    pub counts: Counts,
    /// What must not have happened.
    pub wrong: Wrong,
    /// More was under way than a stable system would have.
    pub saturated: bool,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Requests that came.
    pub requests: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Packets that clients sent with requests.
    pub packets: u64,
    /// Packets that were refused because a queue was full.
    pub refusals: u64,
    /// Writes that were acknowledged before they were executed.
    pub early: u64,
    /// Packets of requests that had their place already.
    pub repeated: u64,
    /// Reads answered from the queue.
    pub forwarded: u64,
    /// Reads that had to wait for a write.
    pub parked: u64,
    /// Requests given up at once by clients whose connection had too many waiting.
    pub given_up: u64,
    /// Writes that were covered by a later one of the same key.
    pub folded: u64,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Wrong {
    /// Reads that did not see a write that was acknowledged before they were sent.
    pub stale_reads: u64,
    /// Writes executed a second time.
    pub executed_twice: u64,
    /// Writes that never were.
    pub never_executed: u64,
    /// Requests without an answer.
    pub never_answered: u64,
}

impl Juneberry {
    /// The paper's: 16 workers, 8 machines of 24 threads.
    pub fn new(system: Datapath, prices: DatagramPrices, workload: Workload) -> Self {
        Self {
            system,
            prices,
            workload,
            load: ClientLoad::Open { mops: 1.0 },
            workers: 16,
            queue_slots: 1_024,
            early_max: 256,
            deferred_max: 16,
            turn_max: 1,
            machines: 8,
            threads: 24,
            when_full: WhenFull::Credits,
            patience: usize::MAX,
            durable: false,
            requests_per_buffer: 256.0,
            loss: 0.0,
            requests: 200_000,
            seed: 1,
        }
    }

    /// Runs it.
    pub fn run(&self) -> JuneberryOutcome {
        assert!(self.loss == 0.0 || self.system.survives_loss());
        assert!(!self.durable || self.prices.persistent.is_some());
        run::run(self)
    }

    /// What persistent receive buffers cost; nothing if they are not.
    fn durable_costs(&self) -> PersistentCosts {
        let costs = self.prices.persistent.filter(|_| self.durable);
        costs.unwrap_or_default()
    }

    /// What RawRPC could carry of this workload, in millions a second: where the worker with the
    /// most popular keys has no time left.
    pub fn capacity_mops(&self) -> f64 {
        let mut generator = self
            .workload
            .generator(mix(self.seed ^ SAMPLE), Stream::ONLY);
        let mut busy = vec![0.0; usize::from(self.workers)];
        let samples = (5 * self.requests).clamp(50_000, SAMPLES_MAX);
        for _ in 0..samples {
            let request = generator.draw(0);
            let worker = place(mix(request.key), self.workers);
            let write = request.kind != Kind::Get;
            busy[worker] += self.prices.rpc_ns(write, request.item.value_bytes);
        }
        let busiest = busy.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        samples as f64 * 1e3 / busiest
    }
}

impl Datapath {
    /// Whether writes go through a queue, and how reads meet it.
    pub fn reads(self) -> Option<Reads> {
        match self {
            Self::IoAck(reads) | Self::Card(reads) => Some(reads),
            _ => None,
        }
    }

    pub(crate) fn survives_loss(self) -> bool {
        self.reads().is_some() || self == Self::Erpc
    }
}

impl JuneberryOutcome {
    /// A quantile in microseconds; `None` without values, or if the queues grew without end.
    pub fn quantile_us(&self, histogram: &Histogram, share: f64) -> Option<f64> {
        let ns = histogram.quantile(share).filter(|_| !self.saturated);
        ns.map(|ns| ns as f64 / 1e3)
    }

    /// Refusals of packets with requests, as a share.
    pub fn refused_share(&self) -> f64 {
        self.counts.refusals as f64 / self.counts.packets.max(1) as f64
    }
}

/// The worker, or queue, of a hash; for a power of two its top bits.
fn place(hash: u64, count: u16) -> usize {
    ((u128::from(hash) * u128::from(count)) >> 64) as usize
}

/// Requests from which a capacity is taken, at most.
const SAMPLES_MAX: u64 = 1_000_000;
const SAMPLE: u64 = 0x6a75_6e65;
/// Requests under way from which a run is no stable one.
const UNDER_WAY_MAX: usize = 1 << 19;
