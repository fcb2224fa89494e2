//! ccKVS's figures: the paper's equations, the same with packets in place of bytes, and the
//! paper's numbers.
//!
//! A series is a system: `base-erew`, `base` and `uniform` have no cache, `cckvs` is read only,
//! `sc` and `lin` write. Without an ending its numbers come from the paper's equations (bytes
//! against 21.5 Gb/s); with `-packets` from what the paper's section 8.4 says of them (packets
//! through the switch, and 54 Gb/s); with `-simulated` from whole nodes in virtual time that run
//! the production protocol ([`crate::WholeCluster`]), whose SC is dearer than the paper's: writes
//! run at a primary, and updates are acknowledged. Hit ratios are exact (`hits=` says them);
//! where the paper states another, its own stands beside in a chart of its own.

mod latency;
mod load_hits_break_even;
pub(super) mod paper_text_numbers;
mod throughput;

use curtail_consistency::replica::Model;

use crate::{
    cckvs::{
        CACHED_SHARE, Hardware, HotCopies, Link, MessageBytes, Shards, TrafficShares, WholeCluster,
        WholeOutcome, base_mrps, exact_hit_ratio, stated_hit_ratio,
    },
    figures::{Choice, Parameter, Request},
    rows::Row,
};

pub(super) use latency::FIG13C;
pub(super) use load_hits_break_even::{COPIES, CORES, FIG1, FIG3, FIG15};
pub(super) use throughput::{FIG8, FIG9, FIG10, FIG11, FIG12, FIG13, FIG14};

/// What a series is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum System {
    BaseErew,
    Base,
    Uniform,
    ReadOnly,
    Cached(Model),
}

/// One point of a throughput figure.
#[derive(Clone, Copy, Debug)]
struct Setting {
    system: System,
    link: Link,
    nodes: u16,
    gamma: f64,
    hits: f64,
    writes_percent: f64,
    value_bytes: u32,
    /// Requests in a packet, where they are coalesced.
    degree: f64,
    seed: u64,
    /// Requests under way of a simulated thread's clients; `None` is enough to fill the cluster.
    sessions: Option<u32>,
    /// What a simulated cluster costs, and requests to complete; `None` is the equations.
    simulated: Option<(Hardware, u64)>,
}

/// What a setting gives.
#[derive(Clone, Copy, Debug)]
struct Measured {
    mrps: f64,
    hits_mrps: f64,
    /// What a node's link carries.
    gigabits: f64,
    shares: TrafficShares,
    /// Mean and 95th percentile of the latencies in microseconds, of a simulation.
    latency_us: [f64; 2],
}

impl Setting {
    /// The paper's cluster, for a series.
    fn new(series: &str, request: &Request<'_>) -> Self {
        let simulated = series.strip_suffix("-simulated");
        let packets = series.strip_suffix("-packets");
        let system = match packets.or(simulated).unwrap_or(series) {
            "base-erew" => System::BaseErew,
            "base" => System::Base,
            "uniform" => System::Uniform,
            "sc" => System::Cached(Model::Sc),
            "lin" => System::Cached(Model::Lin),
            _ => System::ReadOnly,
        };
        Self {
            system,
            link: packets.map_or(Link::PAPER, |_| Link::switched()),
            nodes: NODES,
            gamma: GAMMA,
            hits: 0.0,
            writes_percent: 1.0,
            value_bytes: VALUE_BYTES as u32,
            degree: 1.0,
            seed: request.seed(),
            sessions: None,
            simulated: simulated.map(|_| {
                let given = request.options.cluster_hardware.as_ref();
                let hardware = given.map_or_else(|| *Hardware::paper(), |given| given.costs);
                (hardware, request.requests())
            }),
        }
    }

    /// The cluster to simulate, if it is not the equations that are asked.
    fn whole(&self) -> Option<WholeCluster> {
        let (hardware, requests) = self.simulated?;
        let load = self.load();
        let copies = matches!(self.system, System::ReadOnly | System::Cached(_));
        let (coalesces, is_uniform) = (self.degree > 1.0, self.system == System::Uniform);
        // One node or store thread with more than its share is slow to fill.
        let is_skewed = !copies && !is_uniform;
        let whole = WholeCluster {
            hardware,
            nodes: self.nodes,
            copies: copies.then(|| self.model()),
            is_exclusive: self.system == System::BaseErew,
            gamma: if is_uniform { 0.0 } else { self.gamma },
            hit_ratio: load.hit_ratio,
            // What writes where there are no copies is like what reads.
            write_ratio: if copies { load.write_ratio } else { 0.0 },
            value_bytes: self.value_bytes,
            coalesces,
            sessions: self.sessions.unwrap_or(if coalesces { 128 } else { 24 }),
            warm_up: match (is_skewed, coalesces) {
                (true, false) => 64,
                (true, true) => 24,
                (false, _) => 8,
            }
            // What is as short as this says nothing anyway.
            .min(1 + requests as u32 / 100),
            requests,
            seed: self.seed,
        };
        (2..=WholeCluster::NODES_MAX)
            .contains(&self.nodes)
            .then_some(whole)
    }

    /// By the equations.
    fn modelled(&self) -> Measured {
        let (mrps, load) = (self.mrps(), self.load());
        let bytes = MessageBytes::paper(self.value_bytes);
        let traffic = load.coalesced(&bytes, self.model(), self.degree);
        Measured {
            mrps,
            hits_mrps: mrps * load.hit_ratio,
            gigabits: mrps * traffic.bytes * 8.0 / 1e3 / f64::from(self.nodes),
            shares: load.shares(&bytes, self.model()),
            latency_us: [0.0; 2],
        }
    }

    /// Hot copies under this load; none for the systems without a cache.
    fn load(&self) -> HotCopies {
        let (hit_ratio, percent) = match self.system {
            System::BaseErew | System::Base | System::Uniform => (0.0, self.writes_percent),
            System::ReadOnly => (self.hits, 0.0),
            System::Cached(_) => (self.hits, self.writes_percent),
        };
        HotCopies {
            nodes: self.nodes,
            hit_ratio,
            write_ratio: percent / 100.0,
        }
    }

    fn model(&self) -> Model {
        match self.system {
            System::Cached(model) => model,
            _ => Model::Sc,
        }
    }

    /// Millions of requests a second of the cluster.
    fn mrps(&self) -> f64 {
        let bytes = MessageBytes::paper(self.value_bytes);
        let spread = |gamma| {
            let hottest = Shards::hottest(gamma, self.nodes, self.seed);
            base_mrps(
                self.nodes,
                hottest,
                &bytes.coalesced(self.degree),
                &self.link.coalesced(self.degree),
            )
        };
        match self.system {
            System::BaseErew => self.hottest_core_mrps().min(spread(self.gamma)),
            System::Base => spread(self.gamma),
            System::Uniform | System::ReadOnly | System::Cached(_) => {
                let load = self.load();
                let traffic = load.coalesced(&bytes, self.model(), self.degree);
                load.throughput_mrps(&self.link, traffic)
            }
        }
    }

    /// When each core serves keys of its own, the one with the hottest is the limit. How much a
    /// core carries is set so that the paper's 95 MRPS come out at its exponent.
    fn hottest_core_mrps(&self) -> f64 {
        let shards = |nodes: u16| nodes.saturating_mul(CORES_PER_NODE);
        let core = EREW_MRPS * Shards::hottest(GAMMA, shards(NODES), self.seed);
        core / Shards::hottest(self.gamma, shards(self.nodes), self.seed)
    }
}

impl From<WholeOutcome> for Measured {
    fn from(outcome: WholeOutcome) -> Self {
        Self {
            mrps: outcome.mrps,
            hits_mrps: outcome.hits_mrps,
            gigabits: outcome.link_gigabits,
            shares: outcome.sent.bytes(),
            latency_us: [outcome.mean_us, outcome.p95_us],
        }
    }
}

/// What each of `settings` gives, each cluster simulated once; `None` where there are more nodes
/// than can be simulated.
fn measured(request: &Request<'_>, settings: &[Setting]) -> Vec<Option<Measured>> {
    let mut clusters: Vec<WholeCluster> = Vec::new();
    for whole in settings.iter().filter_map(Setting::whole) {
        if !clusters.contains(&whole) {
            clusters.push(whole);
        }
    }
    let name = request.figure.name;
    let outcomes = request.threads.map(name, &clusters, WholeCluster::run);
    let of = |setting: &Setting| {
        if setting.simulated.is_none() {
            return Some(setting.modelled());
        }
        let whole = setting.whole()?;
        let place = clusters.iter().position(|known| *known == whole)?;
        outcomes.get(place).map(|outcome| Measured::from(*outcome))
    };
    settings.iter().map(of).collect()
}

/// The hit ratios to draw for an exponent: the exact one, and the paper's if it states one.
fn hit_ratios(gamma: f64) -> Vec<f64> {
    let exact = exact_hit_ratio(gamma, CACHED_SHARE);
    let stated = stated_hit_ratio(gamma);
    std::iter::once(exact).chain(stated).collect()
}

/// A hit ratio as it stands in a row's parameters.
fn hits_text(hits: f64) -> String {
    format!("hits={:.3}", hits)
}

/// A row with the paper's number, if it has one there.
fn row(
    request: &Request<'_>,
    curve: (&str, &str),
    x: f64,
    (metric, value): (&'static str, f64),
) -> Row {
    let (series, params) = curve;
    let paper = paper_text_numbers::of(request.figure.name, series, params, x, metric);
    request.row(curve, x, (metric, Some(value)), paper)
}

/// A place on a curve.
struct Point {
    series: &'static str,
    params: String,
    x: f64,
    setting: Setting,
}

impl Point {
    fn curve(&self) -> (&str, &str) {
        (self.series, &self.params)
    }
}

/// Every series along `axis` with the exact hit ratio and with the paper's, and along nodes with
/// that of the paper's estimates, for each number of nodes.
fn points(request: &Request<'_>, axis: Choice) -> Vec<Point> {
    let is_declared = |choice| request.figure.parameter(choice).is_some();
    let counts = match axis {
        Choice::Nodes => vec![0.0],
        _ => request.numbers(Choice::Nodes),
    };
    let (series, numbers) = (request.series.iter().copied(), request.numbers(axis));
    let mut places: Vec<(f64, &'static str)> = series
        .flat_map(|series| numbers.iter().map(move |x| (*x, series)))
        .collect();
    if axis == Choice::ValueBytes {
        // What is set beside another of its size stands next to it.
        places.sort_by_key(|(x, _)| numbers.iter().position(|other| other == x));
    }
    let mut points = Vec::new();
    for count in counts {
        for (index, kind) in ["exact", "stated", "estimate"].into_iter().enumerate() {
            for (x, series) in places.iter().copied() {
                let number = |choice| match choice {
                    _ if choice == axis => x,
                    Choice::Nodes => count,
                    _ => request.number(choice),
                };
                let mut all = hit_ratios(number(Choice::Gamma));
                all.extend((axis == Choice::Nodes).then_some(0.66));
                let Some(hits) = all.get(index).copied() else {
                    continue;
                };
                let mut setting = Setting::new(series, request);
                setting.hits = hits;
                setting.nodes = number(Choice::Nodes) as u16;
                setting.gamma = number(Choice::Gamma);
                setting.value_bytes = number(Choice::ValueBytes) as u32;
                let mut params = String::new();
                for choice in [Choice::Nodes, Choice::Gamma, Choice::Writes] {
                    if choice != axis && is_declared(choice) {
                        params += &format!("{}={};", choice.key(), number(choice));
                    }
                }
                if is_declared(Choice::Writes) {
                    setting.writes_percent = number(Choice::Writes);
                }
                params += &match axis {
                    Choice::Gamma => format!("hits={kind}"),
                    _ => hits_text(hits),
                };
                points.push(Point {
                    series,
                    params,
                    x,
                    setting,
                });
            }
        }
    }
    points
}

/// Rows of every point: the numbers that `of` takes from what it gives.
fn rows<const N: usize>(
    request: &Request<'_>,
    points: &[Point],
    of: impl Fn(&Measured) -> [(&'static str, f64); N],
) -> Vec<Row> {
    let settings: Vec<Setting> = points.iter().map(|point| point.setting).collect();
    let mut rows = Vec::new();
    for (point, measured) in points.iter().zip(measured(request, &settings)) {
        let numbers = measured.iter().flat_map(&of);
        rows.extend(numbers.map(|number| row(request, point.curve(), point.x, number)));
    }
    rows
}

/// What the figures of throughput have in common; `nodes`, `gamma` and lengths of values are added.
const fn simulated() -> [Parameter; 3] {
    [
        Parameter::requests(&[200_000.0]).only("-simulated"),
        Parameter::file(Choice::ClusterHardware).only("-simulated"),
        Parameter::seed(),
    ]
}

const fn nodes() -> Parameter {
    Parameter::each(Choice::Nodes, NODES_RANGE, &[9.0])
        .whole()
        .papers(&[9.0])
}

/// One exponent.
const fn gamma() -> Parameter {
    Parameter::one(Choice::Gamma, GAMMAS, &[GAMMA]).papers(&[GAMMA])
}

/// One length of values.
const fn value() -> Parameter {
    let value = Parameter::one(Choice::ValueBytes, VALUES, &[VALUE_BYTES]);
    value.whole().papers(&[VALUE_BYTES])
}

const NODES_RANGE: (f64, f64) = (2.0, 1_000.0);
const NODES_DRAWN: [f64; 9] = [5.0, 7.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0];
const GAMMAS: (f64, f64) = (0.0, 20.0);
const VALUES: (f64, f64) = (1.0, 1e6);
/// The paper's cluster.
const NODES: u16 = 9;
/// Its threads for the store in each node.
const CORES_PER_NODE: u16 = 10;
/// Its exponent unless another is named.
const GAMMA: f64 = 0.99;
/// Its values.
const VALUE_BYTES: f64 = 40.0;
/// What Base-EREW carries.
const EREW_MRPS: f64 = 95.0;
