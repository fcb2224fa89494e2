//! Discrete-event simulation of what cores, queues and locks do to latency.
//!
//! It reproduces the figures of the papers that the server's policies come from, at any number of
//! cores; the paper's number stands beside ours in every output. In a figure of C-4 all series but
//! `shipped` are the paper's own mechanism, which is here ([`Dispatcher`], [`ExclusiveWriters`]);
//! `shipped` is what the server runs, with the code of `curtail-dispatch`. One point is one thread;
//! the points of a figure are spread over all threads. A seed replays a run, whatever the number of
//! threads.
//!
//! [`C4Model`], [`MinosModel`], [`MinosSystem`] and [`Combined`] are points of one queueing model;
//! [`figure`] sweeps them, and [`command`] is the command line, `curtail simulate`.
#![forbid(unsafe_code)]

mod c4;
mod cckvs;
mod cluster;
mod combined;
pub mod command;
mod costs;
mod event_queue;
mod few_cores;
mod figures;
mod histogram;
mod juneberry;
mod minos;
mod parallel_points;
mod queueing;
mod report;
mod rows;
mod switchkv;

pub use c4::{
    Balancer, C4Model, Costs, IN_FLIGHT_MAX, KEYS, Mechanism, Rules,
    dispatcher::{Arrival, Completion, DispatchConfig, Dispatcher, Input, Sticky},
    exclusive_writers::{ClaimError, ExclusiveWriters, ReleaseError},
    jbsq::{DEPTH_MAX, TieBreak},
    system_costs::{Calibration, FullSystem, Items},
};
pub use cckvs::{
    CACHED_SHARE, ClusterCosts, Count, Hardware, HotCopies, Link, MessageBytes, STORED_KEYS,
    Shards, SharedCpu, Traffic, TrafficShares, WholeCluster, WholeOutcome, break_even,
    copies_worth, exact_hit_ratio, stated_hit_ratio,
};
pub use cluster::{ClusterArgs, ClusterOutcome, ClusterRun, Fault, Faults, MemoryFull, Mutant};
pub use combined::{Combined, CombinedPrices};
pub use costs::{
    ContendedCosts, CostsError, FullCosts, NetworkCosts, OneCost, RequestCosts, SizeCosts,
};
pub use figures::{Choice, Figure, FigureError, Given, Options, Parameter, figure, figures};
pub use histogram::Histogram;
pub use juneberry::{
    ClientLoad, Counts, DatagramPrices, DatagramTable, Datapath, Juneberry, JuneberryOutcome,
    PersistentCosts, Reads, WhenFull, Wrong,
};
pub use minos::{
    LargeReplies, LinkSpeed, MinosModel, MinosSystem, PlanCost, Prices, QUEUED_MAX, SizeAware,
    SizeCore, Stealing, System, UNDER_WAY_MAX, UNIT,
};
pub use parallel_points::Threads;
pub use queueing::{CoreUse, Outcome, WindowOfTime, times::Steps};
pub use report::html;
pub use rows::{Row, csv, table};
pub use switchkv::{
    Architecture, CacheUpdate, StaticShares, SwitchKv, TierInterval, TierLatency, TierOutcome,
    TierPath,
};
