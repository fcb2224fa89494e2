//! The figures: what is swept, what is measured, and what the paper has.
//!
//! Every figure is a function from [`Options`] to rows. An option that is not set has the figure's
//! own default, so that a figure's name alone reproduces the paper's, and any point that nobody
//! listed can be asked for.

mod beside;
mod c4;
mod c4_full;
mod cckvs;
mod combined;
mod hot_set;
mod juneberry;
mod minos;
mod minos_system;
mod popularities;
mod reference;

use crate::{
    balanced::Rules,
    cckvs::{ClusterCosts, Hardware},
    costs::FullCosts,
    full::{Calibration, Items},
    juneberry::DatagramTable,
    rows::Row,
    spread::Threads,
};

/// A reproduced figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the x axis is.
    pub x: &'static str,
    /// What the model includes, what not, and what the paper's numbers are.
    pub about: &'static str,
    /// The series that it knows; the first ones are drawn if none are asked for.
    pub series: &'static [&'static str],
    /// How many of `series` are drawn by default.
    pub series_default: usize,
    run: fn(&Request<'_>) -> Vec<Row>,
}

/// What can be asked of a figure. An empty list, or `None`, is the figure's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Workers of the model.
    pub cores: Vec<u16>,
    /// Offered loads as shares of the capacity.
    pub loads: Vec<f64>,
    /// Writes, per cent.
    pub writes: Vec<f64>,
    /// Exponents of popularity.
    pub gammas: Vec<f64>,
    /// Costs of a large request in small ones.
    pub ks: Vec<u32>,
    /// Large requests, per cent.
    pub large_percents: Vec<f64>,
    /// The longest value, in KB.
    pub large_max_kb: Vec<f64>,
    /// The speed of Minos's link.
    pub gigabits: Option<f64>,
    /// Curves.
    pub series: Vec<String>,
    /// Requests a point.
    pub requests: Option<u64>,
    /// Of all randomness.
    pub seed: u64,
    /// Whose rules the model of C-4 follows.
    pub rules: Option<Rules>,
    /// The bound of JBSQ.
    pub depth: Option<u16>,
    /// What whole systems' parts cost; `None` is what was measured on our own store.
    pub costs: Option<FullCosts>,
    /// Whose costs C-4's whole system is drawn with.
    pub calibrations: Vec<Calibration>,
    /// Sizes of items in C-4's whole system.
    pub items: Vec<Items>,
    /// Limits on the 99th percentile in C-4's whole system, in mean service times.
    pub limits: Vec<u16>,
    /// Requests in a turn, which share a receive and a send.
    pub batch: Option<u32>,
    /// What the steps of a datagram cost; `None` is the built-in table.
    pub prices: Option<DatagramTable>,
    /// Work in each execution beside the store, in microseconds.
    pub work_us: Option<f64>,
    /// Twitter's clusters, by their numbers.
    pub clusters: Vec<u16>,
    /// Lengths of values in bytes.
    pub value_bytes: Vec<u32>,
    /// Entries that a turn of the Ordered Queue executes.
    pub turn: Option<usize>,
    /// Share of the packets that are lost.
    pub loss: Option<f64>,
    /// Nodes of a cluster.
    pub nodes: Vec<u16>,
    /// What the work of a cluster costs; `None` is the built-in file.
    pub cluster_costs: Option<ClusterCosts>,
    /// What the work of a simulated cluster costs; `None` is the paper's hardware.
    pub cluster_hardware: Option<Hardware>,
}

/// A figure being drawn.
struct Request<'a> {
    figure: &'a Figure,
    options: &'a Options,
    series: Vec<&'static str>,
    threads: &'a Threads,
}

impl Request<'_> {
    /// A number of a curve, which has a series and parameters.
    fn row(
        &self,
        (series, params): (&str, &str),
        x: f64,
        (metric, value): (&'static str, Option<f64>),
        paper: Option<f64>,
    ) -> Row {
        Row {
            figure: self.figure.name,
            series: series.into(),
            params: params.into(),
            x,
            metric,
            value,
            paper,
        }
    }
}

/// What was asked for does not exist.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FigureError {
    /// No figure has this name.
    Name(String),
    /// The figure has no such series.
    Series(&'static Figure, String),
    /// A number that the model cannot take.
    Number(String),
}

/// All figures.
pub fn figures() -> &'static [Figure] {
    FIGURES
}

/// The figure of this name.
pub fn figure(name: &str) -> Result<&'static Figure, FigureError> {
    let found = FIGURES.iter().find(|figure| figure.name == name);
    found.ok_or_else(|| FigureError::Name(name.into()))
}

impl Figure {
    /// Draws it: simulates every point, on these threads.
    pub fn rows(
        &'static self,
        options: &Options,
        threads: &Threads,
    ) -> Result<Vec<Row>, FigureError> {
        options.check().map_err(FigureError::Number)?;
        let mut series = Vec::new();
        for name in &options.series {
            let known = self.series.iter().find(|known| *known == name);
            let known = known.ok_or_else(|| FigureError::Series(self, name.clone()))?;
            series.push(*known);
        }
        if series.is_empty() {
            series.extend_from_slice(&self.series[..self.series_default]);
        }
        Ok((self.run)(&Request {
            figure: self,
            options,
            series,
            threads,
        }))
    }
}

impl PartialEq for Figure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Figure {}

impl Options {
    /// Says which number is none that a model can take.
    fn check(&self) -> Result<(), String> {
        let all = |values: &[f64], low: f64, high: f64, what: &str| {
            let wrong = values.iter().find(|value| !(low..=high).contains(*value));
            wrong.map_or(Ok(()), |value| {
                Err(format!("{what} is {low} to {high}, not {value}"))
            })
        };
        all(&self.loads, 0.001, 10.0, "a load")?;
        all(&self.writes, 0.0, 100.0, "a percentage of writes")?;
        all(&self.gammas, 0.0, 20.0, "gamma")?;
        all(
            &self.large_percents,
            0.0,
            100.0,
            "a percentage of large requests",
        )?;
        all(
            &self.large_max_kb,
            2.0,
            100_000.0,
            "the longest value in KB",
        )?;
        let gigabits: Vec<f64> = self.gigabits.into_iter().collect();
        all(&gigabits, 0.1, 8_000.0, "the link's speed in Gb/s")?;
        let cores: Vec<f64> = self.cores.iter().copied().map(f64::from).collect();
        all(&cores, 1.0, 256.0, "a number of cores")?;
        let ks: Vec<f64> = self.ks.iter().copied().map(f64::from).collect();
        all(&ks, 1.0, 1e6, "k")?;
        let depth: Vec<f64> = self.depth.iter().copied().map(f64::from).collect();
        all(
            &depth,
            1.0,
            f64::from(curtail_dispatch::DEPTH_MAX),
            "the depth",
        )?;
        let limits: Vec<f64> = self.limits.iter().copied().map(f64::from).collect();
        all(&limits, 2.0, 10_000.0, "a limit in service times")?;
        let batch: Vec<f64> = self.batch.iter().copied().map(f64::from).collect();
        all(&batch, 1.0, 1e6, "a turn's number of requests")?;
        let work: Vec<f64> = self.work_us.into_iter().collect();
        all(&work, 0.0, 1e6, "work in microseconds")?;
        let values: Vec<f64> = self.value_bytes.iter().copied().map(f64::from).collect();
        all(&values, 1.0, 1e6, "the length of a value")?;
        let turn: Vec<f64> = self.turn.iter().map(|turn| *turn as f64).collect();
        let turn_max = curtail_dispatch::ordered_queue::TURN_MAX as f64;
        all(&turn, 1.0, turn_max, "a turn's number of entries")?;
        let loss: Vec<f64> = self.loss.into_iter().collect();
        all(&loss, 0.0, 0.5, "the share that is lost")?;
        let nodes: Vec<f64> = self.nodes.iter().copied().map(f64::from).collect();
        all(&nodes, 2.0, 1_000.0, "a number of nodes")?;
        let requests: Vec<f64> = self.requests.iter().map(|n| *n as f64).collect();
        all(&requests, 1.0, 1e12, "the number of requests")
    }
}

impl std::fmt::Display for FigureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => {
                let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
                let names = names.join(", ");
                write!(f, "no figure is called {name:?}; there are {names}")
            }
            Self::Series(figure, name) => {
                let known = figure.series.join(", ");
                write!(f, "{} has no series {name:?}; it has {known}", figure.name)
            }
            Self::Number(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for FigureError {}

/// `values`, or the default if there are none.
fn or<T: Clone>(values: &[T], default: &[T]) -> Vec<T> {
    match values.is_empty() {
        true => default.to_vec(),
        false => values.to_vec(),
    }
}

/// Every setting at every load, settings first.
fn at_loads<'a, S>(settings: impl IntoIterator<Item = &'a S>, loads: &[f64]) -> Vec<(&'a S, f64)> {
    let at = |setting| loads.iter().map(move |load| (setting, *load));
    settings.into_iter().flat_map(at).collect()
}

const FIGURES: &[Figure] = &[
    c4::FIG3,
    c4::FIG4,
    c4::FIG13,
    c4::CURVE,
    c4_full::FIG9,
    c4_full::FIG10,
    c4_full::FIG11,
    c4_full::FIG12,
    c4_full::FIG13,
    c4_full::TABLE2,
    c4_full::SCALING,
    minos::FIG2,
    minos_system::FIG3,
    minos_system::FIG4,
    minos_system::FIG5,
    minos_system::FIG6,
    minos_system::FIG7,
    minos_system::FIG8,
    minos_system::FIG9,
    minos_system::FIG10,
    combined::COMBINED,
    beside::BESIDE,
    juneberry::FIG6,
    juneberry::FIG7,
    juneberry::FIG9,
    juneberry::FIG11,
    juneberry::PATTERN,
    juneberry::OVERLOAD,
    cckvs::FIG1,
    cckvs::FIG3,
    cckvs::FIG8,
    cckvs::FIG9,
    cckvs::FIG10,
    cckvs::FIG11,
    cckvs::FIG12,
    cckvs::FIG13,
    cckvs::FIG14,
    cckvs::FIG15,
    cckvs::CORES,
    cckvs::COPIES,
    hot_set::HOT_SET,
    reference::POINTS,
];
