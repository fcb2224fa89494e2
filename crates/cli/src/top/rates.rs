//! Rates and current values that follow from two samples of a server.
//!
//! Pure: samples in, a view out. A number that the server does not tell, or that went backwards
//! because the server started over, is absent; nothing is guessed but the share of a worker, where
//! the server tells loads and no counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    histogram::{Edge, Histogram, Quantiles},
    reported_cluster::Cluster,
    sample::{Names, Sample},
};

/// Everything there is to show. Rates are per second over the interval.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    pub(crate) version: String,
    pub(crate) uptime_seconds: u64,
    /// Between the two samples; absent when there is one only.
    pub(crate) interval_seconds: Option<f64>,
    pub(crate) traffic: Traffic,
    pub(crate) memory: Memory,
    pub(crate) clients: Clients,
    /// Of a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<Cluster>,
    pub(crate) plan: Option<Plan>,
    pub(crate) moves: Option<Moves>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) stages: Vec<StageRow>,
    /// Of a server that samples them, the hottest first.
    pub(crate) hot_keys: Vec<Sampled>,
}

/// Requests and what they cost.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Traffic {
    pub(crate) requests: Option<f64>,
    pub(crate) reads: Option<f64>,
    pub(crate) writes: Option<f64>,
    /// How many a worker carries out at a time; of servers that count turns.
    pub(crate) requests_per_turn: Option<f64>,
    /// 0 to 1; absent when nothing was read.
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) bytes_received: Option<f64>,
    pub(crate) bytes_sent: Option<f64>,
    pub(crate) evictions: Option<f64>,
    pub(crate) expirations: Option<f64>,
    /// Processors in use: 1.5 is one and a half.
    pub(crate) cpus: Option<f64>,
    pub(crate) cpu_us_per_request: Option<f64>,
}

/// Bytes, but for the items.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Memory {
    pub(crate) limit: Option<u64>,
    pub(crate) resident: Option<u64>,
    pub(crate) items: Option<u64>,
    pub(crate) item_bytes: Option<u64>,
    pub(crate) index: Option<u64>,
    pub(crate) segments: Option<u64>,
    pub(crate) free: Option<u64>,
    pub(crate) leased: Option<u64>,
    pub(crate) connections: Option<u64>,
}

/// Connections.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Clients {
    pub(crate) now: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) opened: Option<f64>,
    /// Since the start.
    pub(crate) refused: Option<u64>,
    pub(crate) slow_readers_closed: Option<u64>,
    /// How many are in each state, in memcached's words; empty when there are too many to list.
    pub(crate) states: BTreeMap<String, u64>,
}

/// What the server decides by.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Plan {
    pub(crate) policy: String,
    pub(crate) regime: Option<u64>,
    /// Values of so many bytes and more are large.
    pub(crate) threshold: Option<u64>,
    pub(crate) small_cores: Option<u64>,
    pub(crate) large_cores: Option<u64>,
    pub(crate) standby: bool,
    /// Changes that the server remembers, the oldest first.
    pub(crate) changes: Vec<Change>,
}

/// A policy or plan that came into force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Change {
    /// Since the server's start.
    pub(crate) at_seconds: u64,
    /// Policy, threshold, and small and large cores.
    pub(crate) what: String,
}

/// What the policy moves about.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Moves {
    pub(crate) hand_offs: Option<f64>,
    pub(crate) delegations: Option<f64>,
    pub(crate) compacted: Option<f64>,
    pub(crate) taken_back: Option<f64>,
    /// Since the start.
    pub(crate) large_refused: Option<u64>,
    /// Since the start.
    pub(crate) small_behind_large: Option<u64>,
}

/// A thread that serves.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// A large worker serves sizes from here on.
    pub(crate) from_bytes: Option<u64>,
    pub(crate) connections: Option<u64>,
    pub(crate) requests: Option<f64>,
    /// Connections and parcels of requests that wait for it.
    pub(crate) queue: Option<u64>,
    pub(crate) turns: Option<f64>,
    pub(crate) hand_offs: Option<f64>,
    pub(crate) delegations: Option<f64>,
    pub(crate) compacted: Option<f64>,
    /// Of measured turns.
    pub(crate) cpu_us_per_turn: Option<f64>,
    pub(crate) cpu_us_p99: Option<Edge>,
    /// Since the start.
    pub(crate) cpu_us_most: Option<u64>,
}

/// What a worker is there for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Requests of any size: the policy does not look at sizes.
    #[default]
    Any,
    /// Small requests.
    Small,
    /// Large ones.
    Large,
    /// Large ones, should there be any.
    Standby,
    /// Nothing, by the plan in force.
    Idle,
}

/// A stage of the server, or a stage for one class of requests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StageRow {
    pub(crate) name: String,
    pub(crate) per_second: Option<f64>,
    #[serde(flatten)]
    pub(crate) quantiles: Quantiles,
}

/// A key that the server found in its own sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sampled {
    /// As the server writes it.
    pub(crate) key: String,
    /// Of all requests, 0 to 1.
    pub(crate) share: f64,
    /// Of its requests, 0 to 1; absent if the server does not tell.
    pub(crate) writes: Option<f64>,
}

impl View {
    /// What `now` says, and how it differs from `before`.
    pub(crate) fn between(before: Option<&Sample>, now: &Sample) -> Self {
        let before = before.filter(|before| continues(before, now));
        let seconds = before.map(|before| (now.taken - before.taken).as_secs_f64());
        let general = Pair::new(before.map(|sample| &sample.general), &now.general, seconds);
        let own = now.own.as_ref().map(|own| {
            let before = before.and_then(|sample| sample.own.as_ref());
            Pair::new(before, own, seconds)
        });
        let traffic = traffic(&general, own.as_ref());
        let plan = now.own.as_ref().and_then(plan);
        Self {
            version: general.now.text("version").unwrap_or("").to_owned(),
            uptime_seconds: general.now.number("uptime").unwrap_or(0),
            interval_seconds: seconds,
            memory: memory(&now.general, now.memory.as_ref()),
            clients: clients(&general, now),
            cluster: own.as_ref().and_then(|own| Cluster::of(own, &traffic)),
            moves: own.as_ref().map(moves),
            workers: own.as_ref().map_or_else(Vec::new, |own| {
                workers(own, plan.as_ref(), traffic.requests)
            }),
            stages: own.as_ref().map_or_else(Vec::new, stages),
            hot_keys: now.own.as_ref().map_or_else(Vec::new, hot_keys),
            traffic,
            plan,
        }
    }
}

/// Whether both samples are from one life of one server, in this order.
fn continues(before: &Sample, now: &Sample) -> bool {
    let same = |name| before.general.text(name) == now.general.text(name);
    let uptime = |sample: &Sample| sample.general.number("uptime");
    same("pid") && uptime(before) <= uptime(now) && before.taken < now.taken
}

/// The same names at two moments.
pub(crate) struct Pair<'a> {
    before: Option<&'a Names>,
    pub(crate) now: &'a Names,
    seconds: Option<f64>,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(before: Option<&'a Names>, now: &'a Names, seconds: Option<f64>) -> Self {
        Self {
            before,
            now,
            seconds,
        }
    }

    /// By how much a counter grew.
    fn growth(&self, name: &str) -> Option<f64> {
        let (before, now) = (self.before?.fraction(name)?, self.now.fraction(name)?);
        (before <= now).then_some(now - before)
    }

    /// By how much a counter grew in a second.
    pub(crate) fn rate(&self, name: &str) -> Option<f64> {
        Some(self.growth(name)? / self.seconds?)
    }

    /// The sum of the rates of those counters that are there; absent if none is.
    fn rates(&self, names: &[&str]) -> Option<f64> {
        let rates = names.iter().filter_map(|name| self.rate(name));
        rates.reduce(|sum, rate| sum + rate)
    }

    /// What a histogram got, and its rate.
    fn histogram(&self, prefix: &str) -> (Histogram, Option<f64>) {
        let now = Histogram::of(self.now, prefix);
        let Some(before) = self.before else {
            return (now, None);
        };
        let new = now.since(&Histogram::of(before, prefix));
        let rate = self.seconds.map(|seconds| new.count() as f64 / seconds);
        (new, rate)
    }
}

/// Changes of items beside those that `cmd_set` counts.
const OTHER_WRITES: [&str; 7] = [
    "cmd_set",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
];

fn traffic(general: &Pair<'_>, own: Option<&Pair<'_>>) -> Traffic {
    let reads = general.rate("cmd_get");
    let writes = general.rates(&OTHER_WRITES);
    let told = own.and_then(|own| own.rate("requests"));
    let touches = general.rate("cmd_touch").unwrap_or(0.0);
    let requests = told.or_else(|| Some(reads? + writes? + touches));
    let (hits, misses) = (general.growth("get_hits"), general.growth("get_misses"));
    let cpus = general.rates(&["rusage_user", "rusage_system"]);
    let turns = own.and_then(|own| own.rate("turns"));
    Traffic {
        requests,
        requests_per_turn: ratio(told, turns),
        reads,
        writes,
        hit_ratio: ratio(hits, hits.zip(misses).map(|(hits, misses)| hits + misses)),
        bytes_received: general.rate("bytes_read"),
        bytes_sent: general.rate("bytes_written"),
        evictions: general.rate("evictions"),
        expirations: general.rate("reclaimed"),
        cpus,
        cpu_us_per_request: ratio(cpus, requests).map(|seconds| seconds * 1e6),
    }
}

fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0.0)?;
    Some(part? / whole)
}

fn memory(general: &Names, memory: Option<&Names>) -> Memory {
    let own = |name| memory.and_then(|memory| memory.number(name));
    Memory {
        limit: own("limit").or_else(|| general.number("limit_maxbytes")),
        resident: own("resident"),
        items: general.number("curr_items"),
        item_bytes: own("items_live").or_else(|| general.number("bytes")),
        index: own("index").or_else(|| general.number("hash_bytes")),
        segments: own("segments"),
        free: own("free"),
        leased: own("leased"),
        connections: own("connections").or_else(|| general.number("read_buf_bytes")),
    }
}

fn clients(general: &Pair<'_>, now: &Sample) -> Clients {
    let mut states = BTreeMap::new();
    let rows = now.clients.iter().flat_map(Names::rows);
    for (name, state) in rows {
        let state = state.strip_prefix("conn_").unwrap_or(state);
        if name.ends_with(":state") && state != "listening" {
            *states.entry(state.to_owned()).or_insert(0) += 1;
        }
    }
    let own = |name| now.own.as_ref().and_then(|own| own.number(name));
    Clients {
        now: general.now.number("curr_connections"),
        limit: general.now.number("max_connections"),
        opened: general.rate("total_connections"),
        refused: general.now.number("rejected_connections"),
        slow_readers_closed: own("slow_readers_closed"),
        states,
    }
}

fn plan(own: &Names) -> Option<Plan> {
    let change = |(at, what): (&str, &str)| {
        Some(Change {
            at_seconds: at.parse().ok()?,
            what: what.to_owned(),
        })
    };
    Some(Plan {
        policy: own.text("policy")?.to_owned(),
        regime: own.number("regime"),
        threshold: own.number("threshold"),
        small_cores: own.number("small_cores"),
        large_cores: own.number("large_cores"),
        standby: own.number("standby") == Some(1),
        changes: own.behind("history:").filter_map(change).collect(),
    })
}

fn moves(own: &Pair<'_>) -> Moves {
    Moves {
        hand_offs: own.rate("hand_offs"),
        delegations: own.rate("delegations"),
        compacted: own.rate("writes_compacted"),
        taken_back: own.rate("parcels_taken_back"),
        large_refused: own.now.number("large_refused"),
        small_behind_large: own.now.number("small_behind_large"),
    }
}

/// Small workers, then large ones, as long as the server tells of another.
fn workers(own: &Pair<'_>, plan: Option<&Plan>, requests: Option<f64>) -> Vec<Worker> {
    let kind = |kind: &'static str| {
        (0..)
            .map(move |index| format!("{kind}:{index}"))
            .take_while(|name| own.now.number(&format!("{name}:connections")).is_some())
    };
    let load = |name: &str| own.now.number(&format!("{name}:requests_last_epoch"));
    let loads: u64 = kind("worker").filter_map(|name| load(&name)).sum();
    let mut workers = Vec::new();
    for name in kind("worker") {
        let mut worker = worker(own, &name);
        let share = ratio(load(&name).map(|load| load as f64), Some(loads as f64));
        let share = share
            .zip(requests)
            .map(|(share, requests)| share * requests);
        worker.requests = worker.requests.or(share);
        worker.role = match plan.is_some_and(Plan::splits_sizes) {
            true => Role::Small,
            false => Role::Any,
        };
        workers.push(worker);
    }
    for name in kind("large") {
        let mut worker = worker(own, &name);
        worker.from_bytes = own.now.number(&format!("{name}:from_bytes"));
        worker.role = match plan {
            Some(plan) if plan.splits_sizes() && worker.from_bytes.is_some() => {
                match plan.large_cores {
                    Some(0) => Role::Standby,
                    _ => Role::Large,
                }
            }
            _ => Role::Idle,
        };
        workers.push(worker);
    }
    workers
}

fn worker(own: &Pair<'_>, name: &str) -> Worker {
    let number = |what| own.now.number(&format!("{name}:{what}"));
    let rate = |what| own.rate(&format!("{name}:{what}"));
    let (turns, _) = own.histogram(&format!("{name}:turn_cpu_us_"));
    let sum_us = own.growth(&format!("{name}:turn_cpu_us_sum"));
    Worker {
        name: name
            .strip_prefix("worker:")
            .unwrap_or(name)
            .replace(':', " "),
        connections: number("connections"),
        requests: rate("requests"),
        queue: number("queue_depth").or_else(|| number("mailbox")),
        turns: rate("turns"),
        hand_offs: rate("hand_offs"),
        delegations: rate("delegations"),
        compacted: rate("writes_compacted"),
        cpu_us_per_turn: ratio(sum_us, Some(turns.count() as f64)),
        cpu_us_p99: turns.quantiles().p99,
        cpu_us_most: number("turn_cpu_us_max"),
        ..Worker::default()
    }
}

/// A row for each stage that the server names, in its order.
fn stages(own: &Pair<'_>) -> Vec<StageRow> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in own.now.behind("stage:") {
        if let Some((name, _)) = name.rsplit_once(':')
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    let row = |name: &str| {
        let (seen, per_second) = own.histogram(&format!("stage:{name}:"));
        StageRow {
            name: name.replace('_', " ").replace(':', ", "),
            per_second,
            quantiles: seen.quantiles(),
        }
    };
    names.into_iter().map(row).collect()
}

fn hot_keys(own: &Names) -> Vec<Sampled> {
    let sampled = |(rank, value): (&str, &str)| {
        let (share, key) = value.split_once(' ')?;
        let writes = own.text(&format!("hot_key_writes:{rank}"));
        Some(Sampled {
            key: key.to_owned(),
            share: share.parse().ok()?,
            writes: writes.and_then(|writes| writes.parse().ok()),
        })
    };
    own.behind("hot_key:").filter_map(sampled).collect()
}

impl Plan {
    /// Whether large requests are served apart.
    pub(crate) fn splits_sizes(&self) -> bool {
        self.policy.starts_with("size-aware")
    }

    /// As the server's own history says it.
    pub(crate) fn words(&self) -> String {
        let number = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
        let (threshold, small) = (number(self.threshold), number(self.small_cores));
        let large = number(self.large_cores);
        format!("{} {threshold} {small}+{large}", self.policy)
    }
}

#[cfg(test)]
mod tests;
