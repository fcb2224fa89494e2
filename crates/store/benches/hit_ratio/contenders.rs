//! The policies of the main table, and the variations of ours that lost.

use crate::arc::Arc;
use crate::optimum::Optimum;
use crate::policy::Policy;
use crate::recency::{OneQueue, Rule};
use crate::s3_fifo::S3Fifo;
use crate::segcache_merge::Merge;
use crate::store_eviction::{CHOSEN, Filtered, Plan};
use crate::tiny_lfu::TinyLfu;
use crate::trace::Trace;

/// A policy with its name and its price.
pub(crate) struct Contender {
    /// The name that the tables print.
    pub(crate) name: String,
    /// Bytes of metadata per object that a lean implementation needs beyond its index.
    pub(crate) metadata: &'static str,
    /// Whether the others are measured against it.
    pub(crate) is_yardstick: bool,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    OneQueue(Rule),
    S3Fifo,
    Arc,
    TinyLfu,
    Merge(u64),
    Filtered(Plan),
    Optimum,
}

impl Contender {
    /// The cache of this policy, empty.
    pub(crate) fn cache<'t>(&self, trace: &'t Trace, capacity: u64) -> Box<dyn Policy + 't> {
        match self.kind {
            Kind::OneQueue(rule) => Box::new(OneQueue::new(trace, capacity, rule)),
            Kind::S3Fifo => Box::new(S3Fifo::new(trace, capacity)),
            Kind::Arc => Box::new(Arc::new(trace, capacity)),
            Kind::TinyLfu => Box::new(TinyLfu::new(trace, capacity)),
            Kind::Merge(segments) => Box::new(Merge::new(trace, capacity, segments)),
            Kind::Filtered(plan) => Box::new(Filtered::new(trace, capacity, plan)),
            Kind::Optimum => Box::new(Optimum::new(trace, capacity)),
        }
    }

    fn new(name: &str, metadata: &'static str, kind: Kind) -> Self {
        let is_yardstick = matches!(kind, Kind::OneQueue(Rule::Lru | Rule::Sieve) | Kind::S3Fifo);
        Self {
            name: name.to_string(),
            metadata,
            is_yardstick,
            kind,
        }
    }
}

/// The name of the row of the store's own policy.
pub(crate) const OURS: &str = "ours";

/// The rows of the main tables.
pub(crate) fn policies() -> Vec<Contender> {
    vec![
        Contender::new("FIFO", "0", Kind::OneQueue(Rule::Fifo)),
        Contender::new("LRU", "16", Kind::OneQueue(Rule::Lru)),
        Contender::new("CLOCK", "0.1", Kind::OneQueue(Rule::Clock)),
        Contender::new("SIEVE", "16.1", Kind::OneQueue(Rule::Sieve)),
        Contender::new("S3-FIFO", "4 (ghost)", Kind::S3Fifo),
        Contender::new("ARC", "32 (ghosts)", Kind::Arc),
        Contender::new("W-TinyLFU", "24", Kind::TinyLfu),
        Contender::new("Segcache merge", "1", Kind::Merge(256)),
        Contender::new(OURS, "0.3 + 2.6 (ghosts)", Kind::Filtered(CHOSEN)),
        Contender::new("OPT", "the future", Kind::Optimum),
    ]
}

/// What else ours could be: each differs from the chosen plan in what its name says.
pub(crate) fn variations() -> Vec<Contender> {
    let row = |&(name, change): &(&str, Change)| {
        let mut plan = CHOSEN;
        change(&mut plan);
        Contender::new(name, "", Kind::Filtered(plan))
    };
    VARIATIONS.iter().map(row).collect()
}

type Change = fn(&mut Plan);

const VARIATIONS: &[(&str, Change)] = &[
    ("chosen", |_| {}),
    ("share fixed at 10 %", |plan| plan.fix_share(0.1)),
    ("share fixed at 5 %", |plan| plan.fix_share(0.05)),
    ("share fixed at 20 %", |plan| plan.fix_share(0.2)),
    ("share fixed at 50 %", |plan| plan.fix_share(0.5)),
    ("ghosts count however old", |plan| plan.lives = NEVER_OLD),
    ("hits count from the start", |plan| plan.young = 0.0),
    ("hits never count while young", |plan| plan.enough = 200),
    ("S3-FIFO in segments", |plan| plan.simplify(2)),
    ("S3-FIFO in segments, promote at 1", |plan| plan.simplify(1)),
    ("CLOCK in segments", |plan| plan.fix_share(0.0)),
    ("SIEVE in segments", |plan| {
        plan.fix_share(0.0);
        plan.mark_max = 1;
        plan.stays = true;
    }),
    ("main in place", |plan| plan.stays = true),
    ("balance 5 %", |plan| plan.balance = 0.05),
    ("balance 20 %", |plan| plan.balance = 0.2),
    ("balance 50 %", |plan| plan.balance = 0.5),
    ("balance 120 %, as ARC", |plan| plan.balance = 1.2),
    ("young 25 %", |plan| plan.young = 0.25),
    ("young 75 %", |plan| plan.young = 0.75),
    ("young 100 %", |plan| plan.young = 1.0),
    ("two young hits are enough", |plan| plan.enough = 2),
    ("five young hits are enough", |plan| plan.enough = 5),
    ("lives 0.25", |plan| plan.lives = 0.25),
    ("lives 0.6", |plan| plan.lives = 0.6),
    ("lives 1.0", |plan| plan.lives = 1.0),
    ("ghost 0.6", |plan| plan.ghost = 0.6),
    ("ghost 0.9", |plan| plan.ghost = 0.9),
    ("ghost 1.5", |plan| plan.ghost = 1.5),
    ("ghost 2.0", |plan| plan.ghost = 2.0),
    ("mark 0..1", |plan| plan.mark_max = 1),
    ("mark 0..7", |plan| plan.mark_max = 7),
    ("mark halves", |plan| plan.halves = true),
    ("keeps half always", |plan| plan.scans_max = 0),
    ("keeps half after 2", |plan| plan.scans_max = 2),
    ("never has to give", |plan| plan.scans_max = u32::MAX),
    ("16 segments", |plan| plan.segments = 16),
    ("32 segments", |plan| plan.segments = 32),
    ("64 segments", |plan| plan.segments = 64),
    ("128 segments", |plan| plan.segments = 128),
    ("1024 segments", |plan| plan.segments = 1024),
    ("4096 segments", |plan| plan.segments = 4096),
];

const NEVER_OLD: f64 = f64::INFINITY;

impl Plan {
    fn fix_share(&mut self, share: f64) {
        self.balance = 0.0;
        self.small = share;
    }

    /// Every hit counts one, and so many move an object to main; ghosts do not fade.
    fn simplify(&mut self, enough: u8) {
        self.fix_share(0.1);
        self.young = 1.0;
        self.enough = enough;
        self.lives = NEVER_OLD;
    }
}
