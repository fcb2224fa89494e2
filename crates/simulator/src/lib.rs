//! Discrete-event simulation of what cores, queues and locks do to latency, in virtual time.
//!
//! It drives the machines of `curtail-dispatch`, the same code that a server runs, at any number of
//! cores, and reproduces the figures of the papers that the machines come from: the paper's number
//! stands beside ours in every output. One point is one thread; the points of a figure are spread
//! over all threads. A seed replays a run, whatever the number of threads.
//!
//! [`Balanced`] is the model of C-4, [`Sized`] that of Minos; [`figure`] sweeps them, and
//! [`command`] is the command line, `curtail simulate`.
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
mod plot;
mod queueing;
mod report;
mod rows;
mod threads;

pub use c4::{
    Balancer, C4Model, Costs, IN_FLIGHT_MAX, KEYS, Mechanism, Rules,
    dispatcher::{Arrival, Completion, DispatchConfig, Dispatcher, Input, Sticky},
    exclusive_writers::{ClaimError, ExclusiveWriters, ReleaseError},
    jbsq::{DEPTH_MAX, TieBreak},
    system_costs::{Calibration, FullSystem, Items},
};
pub use cckvs::{
    CACHED_SHARE, ClusterCosts, Count, Hardware, HotCopies, Link, MessageBytes, STORED_KEYS, Sent,
    Shards, SharedCpu, Traffic, TrafficShares, WholeCluster, WholeOutcome, break_even,
    copies_worth, exact_hit_ratio, stated_hit_ratio,
};
pub use cluster::{ClusterArgs, ClusterOutcome, ClusterRun, Fault, Faults, Mutant};
pub use combined::{Combined, CombinedPrices};
pub use costs::{
    ContendedCosts, CostsError, FullCosts, NetworkCosts, OneCost, RequestCosts, SizeCosts,
};
pub use figures::{
    Choice, Figure, FigureError, Given, Options, Parameter, Refused, figure, figures,
};
pub use histogram::Histogram;
pub use juneberry::{
    ClientLoad, Counts, DatagramPrices, DatagramTable, Datapath, Juneberry, JuneberryOutcome,
    PersistentCosts, Reads, WhenFull, Wrong,
};
pub use minos::{
    LargeReplies, LinkSpeed, MinosModel, MinosSystem, PlanCost, Prices, QUEUED_MAX, Sharding,
    SizeAware, SizeCore, Stealing, System, UNDER_WAY_MAX, UNIT,
};
pub use queueing::{CoreUse, Outcome, WindowOfTime};
pub use report::html;
pub use rows::{Row, csv, table};
pub use threads::Threads;
