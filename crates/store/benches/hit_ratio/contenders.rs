//! Who takes part: the policies of the main table, and the variations of ours that lost.

use crate::arc::Arc;
use crate::filtered::{CHOSEN, Filtered, Plan};
use crate::merge::Merge;
use crate::optimum::Optimum;
use crate::policy::Policy;
use crate::recency::{OneQueue, Rule};
use crate::s3_fifo::S3Fifo;
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
    let plans = [
        ("chosen", CHOSEN),
        ("share fixed at 10 %", FIXED),
        (
            "share fixed at 5 %",
            Plan {
                small: 0.05,
                ..FIXED
            },
        ),
        (
            "share fixed at 20 %",
            Plan {
                small: 0.2,
                ..FIXED
            },
        ),
        (
            "share fixed at 50 %",
            Plan {
                small: 0.5,
                ..FIXED
            },
        ),
        (
            "ghosts count however old",
            Plan {
                lives: f64::INFINITY,
                ..CHOSEN
            },
        ),
        (
            "hits count from the start",
            Plan {
                young: 0.0,
                ..CHOSEN
            },
        ),
        (
            "hits never count while young",
            Plan {
                enough: 200,
                ..CHOSEN
            },
        ),
        ("none of the three (S3-FIFO in segments)", plain(2)),
        ("none of the three, promote at 1", plain(1)),
        (
            "balance 5 %",
            Plan {
                balance: 0.05,
                ..CHOSEN
            },
        ),
        (
            "balance 20 %",
            Plan {
                balance: 0.2,
                ..CHOSEN
            },
        ),
        (
            "balance 50 %",
            Plan {
                balance: 0.5,
                ..CHOSEN
            },
        ),
        (
            "balance 120 % (as ARC)",
            Plan {
                balance: 1.2,
                ..CHOSEN
            },
        ),
        (
            "no small (CLOCK in segments)",
            Plan {
                small: 0.0,
                ..FIXED
            },
        ),
        ("no small, in place (SIEVE in segments)", sieve()),
        (
            "main in place",
            Plan {
                stays: true,
                ..CHOSEN
            },
        ),
        (
            "young 25 %",
            Plan {
                young: 0.25,
                ..CHOSEN
            },
        ),
        (
            "young 75 %",
            Plan {
                young: 0.75,
                ..CHOSEN
            },
        ),
        (
            "young 100 %",
            Plan {
                young: 1.0,
                ..CHOSEN
            },
        ),
        (
            "two young hits are enough",
            Plan {
                enough: 2,
                ..CHOSEN
            },
        ),
        (
            "five young hits are enough",
            Plan {
                enough: 5,
                ..CHOSEN
            },
        ),
        (
            "lives 0.25",
            Plan {
                lives: 0.25,
                ..CHOSEN
            },
        ),
        (
            "lives 0.6",
            Plan {
                lives: 0.6,
                ..CHOSEN
            },
        ),
        (
            "lives 1.0",
            Plan {
                lives: 1.0,
                ..CHOSEN
            },
        ),
        (
            "ghost 0.6",
            Plan {
                ghost: 0.6,
                ..CHOSEN
            },
        ),
        (
            "ghost 0.9",
            Plan {
                ghost: 0.9,
                ..CHOSEN
            },
        ),
        (
            "ghost 1.5",
            Plan {
                ghost: 1.5,
                ..CHOSEN
            },
        ),
        (
            "ghost 2.0",
            Plan {
                ghost: 2.0,
                ..CHOSEN
            },
        ),
        (
            "mark 0..1",
            Plan {
                mark_max: 1,
                ..CHOSEN
            },
        ),
        (
            "mark 0..7",
            Plan {
                mark_max: 7,
                ..CHOSEN
            },
        ),
        (
            "mark halves",
            Plan {
                halves: true,
                ..CHOSEN
            },
        ),
        (
            "keeps half always",
            Plan {
                scans_max: 0,
                ..CHOSEN
            },
        ),
        (
            "keeps half after 2",
            Plan {
                scans_max: 2,
                ..CHOSEN
            },
        ),
        (
            "never has to give",
            Plan {
                scans_max: u32::MAX,
                ..CHOSEN
            },
        ),
        (
            "16 segments",
            Plan {
                segments: 16,
                ..CHOSEN
            },
        ),
        (
            "32 segments",
            Plan {
                segments: 32,
                ..CHOSEN
            },
        ),
        (
            "64 segments",
            Plan {
                segments: 64,
                ..CHOSEN
            },
        ),
        (
            "128 segments",
            Plan {
                segments: 128,
                ..CHOSEN
            },
        ),
        (
            "1024 segments",
            Plan {
                segments: 1024,
                ..CHOSEN
            },
        ),
        (
            "4096 segments",
            Plan {
                segments: 4096,
                ..CHOSEN
            },
        ),
    ];
    let row = |(name, plan)| Contender::new(name, "", Kind::Filtered(plan));
    plans.into_iter().map(row).collect()
}

/// The chosen plan before its share learned to adapt.
const FIXED: Plan = Plan {
    balance: 0.0,
    ..CHOSEN
};

/// Every hit counts one, and so many move an object to main.
fn plain(enough: u8) -> Plan {
    Plan {
        young: 1.0,
        enough,
        lives: f64::INFINITY,
        ..FIXED
    }
}

fn sieve() -> Plan {
    Plan {
        small: 0.0,
        mark_max: 1,
        stays: true,
        ..FIXED
    }
}
