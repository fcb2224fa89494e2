//! The figures: what is swept, what is measured, and what the paper has.
//!
//! Every figure is a function from [`Options`] to rows. It declares what it takes
//! ([`Figure::parameters`]): an option that is not set has the figure's own default, so that a
//! figure's name alone reproduces the paper's, any point that nobody listed can be asked for, and
//! what a figure does not take is an error.

mod c4;
mod c4_full;
mod cckvs;
mod combined;
mod few_cores;
mod hot_set;
mod juneberry;
mod minos;
mod minos_system;
mod parameters;
mod popularities;
mod reference;

use std::collections::BTreeSet;

use parameters::Value;
pub use parameters::{Choice, Parameter, Refused};

use crate::{
    c4::{
        Balancer, Rules,
        system_costs::{Calibration, Items},
    },
    cckvs::{ClusterCosts, Hardware},
    command::count,
    costs::{CostsError, FullCosts},
    juneberry::DatagramTable,
    rows::Row,
    threads::Threads,
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
    /// What can be set.
    pub parameters: &'static [Parameter],
    run: fn(&Request<'_>) -> Vec<Row>,
}

/// What can be asked of a figure. An empty list, or `None`, is the figure's default.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Options {
    /// Cores, as 8 or 4,8,64.
    #[arg(long, value_delimiter = ',')]
    pub cores: Vec<u16>,
    /// Offered loads as shares of the capacity, as 0.5 or 0.1,0.5,0.9.
    #[arg(long = "load", value_name = "LOAD", value_delimiter = ',')]
    pub loads: Vec<f64>,
    /// Writes, per cent.
    #[arg(long, value_delimiter = ',')]
    pub writes: Vec<f64>,
    /// Exponents of the keys' popularity (Zipf's law); 0 is uniform.
    #[arg(long = "gamma", value_name = "GAMMA", value_delimiter = ',')]
    pub gammas: Vec<f64>,
    /// What a large request costs, in small ones.
    #[arg(long = "k", value_name = "K", value_delimiter = ',')]
    pub ks: Vec<u32>,
    /// Large requests as a share of all: 0.00125 is the paper's 0.125 %.
    #[arg(
        long = "large-fraction",
        value_name = "LARGE_FRACTION",
        value_delimiter = ',',
        value_parser = percent
    )]
    pub large_percents: Vec<f64>,
    /// Minos's system: the longest value in KB, as 500 or 250,500,1000.
    #[arg(long, value_delimiter = ',')]
    pub large_max_kb: Vec<f64>,
    /// Minos's system: the link's speed in Gb/s, in place of the prices' own.
    #[arg(long)]
    pub gigabits: Option<f64>,
    /// Curves; `list` names every figure's.
    #[arg(long, value_delimiter = ',')]
    pub series: Vec<String>,
    /// Requests a point, as 200000, 200k or 5m.
    #[arg(long, value_parser = count)]
    pub requests: Option<u64>,
    /// Replays a run; 1 unless another is given.
    #[arg(long)]
    pub seed: Option<u64>,
    /// C-4: whose rules, where the paper and its authors' simulator differ.
    #[arg(long, value_enum)]
    pub rules: Option<Rules>,
    /// C-4: outstanding requests of a worker that takes no more balanced ones.
    #[arg(long)]
    pub depth: Option<u16>,
    /// C-4: who balances; the network card, as in the paper, or one of the cores.
    #[arg(
        long = "balancer",
        value_name = "BALANCER",
        value_enum,
        value_delimiter = ','
    )]
    pub balancers: Vec<Balancer>,
    /// Whole systems: a file of costs in place of the built-in one, which was measured on our own
    /// store (see crates/simulator/costs.toml).
    #[arg(long, value_parser = file(FullCosts::parse))]
    pub costs: Option<Given<FullCosts>>,
    /// Whole systems: whose costs.
    #[arg(
        long = "calibration",
        value_name = "CALIBRATION",
        value_enum,
        value_delimiter = ','
    )]
    pub calibrations: Vec<Calibration>,
    /// C-4's whole system: sizes of items.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub items: Vec<Items>,
    /// C-4's whole system: limits on the 99th percentile, in mean service times.
    #[arg(long = "limit", value_name = "LIMIT", value_delimiter = ',')]
    pub limits: Vec<u16>,
    /// C-4's whole system with measured costs: requests that share a receive and a send.
    #[arg(long)]
    pub batch: Option<u32>,
    /// Juneberry: a file of prices in place of the built-in one (see
    /// crates/simulator/juneberry.toml).
    #[arg(long, value_parser = file(DatagramTable::parse))]
    pub prices: Option<Given<DatagramTable>>,
    /// Juneberry: work in each execution beside the store, in microseconds.
    #[arg(long)]
    pub work_us: Option<f64>,
    /// Juneberry: Twitter's clusters, of 12, 19, 27 and 31.
    #[arg(long = "cluster", value_name = "CLUSTER", value_delimiter = ',')]
    pub clusters: Vec<u16>,
    /// Juneberry and ccKVS: lengths of values in bytes.
    #[arg(long, value_delimiter = ',')]
    pub value_bytes: Vec<u32>,
    /// Juneberry: entries that a turn of the Ordered Queue executes; with more than one, sets of
    /// one key are folded.
    #[arg(long)]
    pub turn: Option<usize>,
    /// Juneberry: share of the packets that are lost, as 0.001.
    #[arg(long)]
    pub loss: Option<f64>,
    /// ccKVS and `cluster`: nodes, as 9 or 5,9,40.
    #[arg(long, value_delimiter = ',')]
    pub nodes: Vec<u16>,
    /// ccKVS on shared cores: a file of costs in place of the built-in one (see
    /// crates/simulator/cckvs.toml).
    #[arg(long, value_parser = file(ClusterCosts::parse))]
    pub cluster_costs: Option<Given<ClusterCosts>>,
    /// ccKVS simulated: a file of what nodes and network cost in place of the built-in one (see
    /// crates/simulator/cckvs-paper.toml).
    #[arg(long, value_parser = file(Hardware::parse))]
    pub cluster_hardware: Option<Given<Hardware>>,
}

/// What was read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Given<T> {
    /// The file.
    pub path: String,
    /// What is in it.
    pub costs: T,
}

/// Reads a file of costs.
fn file<T>(
    parse: fn(&str) -> Result<T, CostsError>,
) -> impl Fn(&str) -> Result<Given<T>, String> + Clone {
    move |path| {
        let named = |error: &dyn std::error::Error| format!("{path}: {error}");
        let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
        let costs = parse(&text).map_err(|error| named(&error))?;
        let path = path.into();
        Ok(Given { path, costs })
    }
}

/// A share, as per cent.
fn percent(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is no share"))?;
    Ok(share * 100.0)
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
    /// An option, or a value of one, that the figure does not take.
    Refused(&'static Figure, Refused),
    /// These options together leave nothing to draw.
    Nothing(&'static Figure),
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
        let mut series = Vec::new();
        for name in &options.series {
            let known = self.series.iter().find(|known| *known == name);
            let known = known.ok_or_else(|| FigureError::Series(self, name.clone()))?;
            if !series.contains(known) {
                series.push(*known);
            }
        }
        if series.is_empty() {
            series.extend_from_slice(&self.series[..self.series_default]);
        }
        let refused = |refused| FigureError::Refused(self, refused);
        self.check(options, &series).map_err(refused)?;
        let mut rows = (self.run)(&Request {
            figure: self,
            options,
            series,
            threads,
        });
        if rows.is_empty() && !threads.is_stopped() {
            return Err(FigureError::Nothing(self));
        }
        self.complete(&mut rows, options);
        Ok(rows)
    }
}

impl PartialEq for Figure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Figure {}

impl Options {
    /// What is given of a parameter, as rows show it.
    fn given(&self, choice: Choice) -> Vec<Value> {
        fn numbers<T: Copy + Into<f64>>(values: &[T]) -> Vec<Value> {
            let number = |value: &T| Value::Number((*value).into());
            values.iter().map(number).collect()
        }
        fn count(value: Option<u64>) -> Vec<Value> {
            value.iter().map(|n| Value::Number(*n as f64)).collect()
        }
        fn file<T>(file: &Option<Given<T>>) -> Vec<Value> {
            // A row's parameters have these signs between them.
            let name = |file: &Given<T>| Value::Name(file.path.replace([';', ',', '='], "_"));
            file.iter().map(name).collect()
        }
        fn names<T: Copy>(values: &[T], name: fn(T) -> &'static str) -> Vec<Value> {
            let named = |value: &T| Value::Name(name(*value).into());
            values.iter().map(named).collect()
        }
        match choice {
            Choice::Cores => numbers(&self.cores),
            Choice::Load => numbers(&self.loads),
            Choice::Writes => numbers(&self.writes),
            Choice::Gamma => numbers(&self.gammas),
            Choice::K => numbers(&self.ks),
            Choice::LargeFraction => numbers(&self.large_percents),
            Choice::LargeMaxKb => numbers(&self.large_max_kb),
            Choice::Gigabits => numbers(self.gigabits.as_slice()),
            Choice::Requests => count(self.requests),
            Choice::Seed => count(self.seed),
            Choice::Rules => names(self.rules.as_slice(), Rules::name),
            Choice::Depth => numbers(self.depth.as_slice()),
            Choice::Balancer => names(&self.balancers, Balancer::name),
            Choice::Costs => file(&self.costs),
            Choice::Calibration => names(&self.calibrations, Calibration::name),
            Choice::Items => names(&self.items, Items::name),
            Choice::Limit => numbers(&self.limits),
            Choice::Batch => numbers(self.batch.as_slice()),
            Choice::Prices => file(&self.prices),
            Choice::WorkUs => numbers(self.work_us.as_slice()),
            Choice::Cluster => numbers(&self.clusters),
            Choice::ValueBytes => numbers(&self.value_bytes),
            Choice::Turn => count(self.turn.map(|turn| turn as u64)),
            Choice::Loss => numbers(self.loss.as_slice()),
            Choice::Nodes => numbers(&self.nodes),
            Choice::ClusterCosts => file(&self.cluster_costs),
            Choice::ClusterHardware => file(&self.cluster_hardware),
        }
    }

    /// The options that are given, of those that figures take.
    pub(crate) fn choices(&self) -> BTreeSet<&'static str> {
        let given = |choice: &Choice| !self.given(*choice).is_empty();
        let all = Choice::ALL.iter().copied().filter(given);
        all.map(Choice::flag).collect()
    }

    /// The words of the command line that give these options again.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let files = [
            (Choice::Costs, self.costs.as_ref().map(|file| &file.path)),
            (Choice::Prices, self.prices.as_ref().map(|file| &file.path)),
            (
                Choice::ClusterCosts,
                self.cluster_costs.as_ref().map(|file| &file.path),
            ),
            (
                Choice::ClusterHardware,
                self.cluster_hardware.as_ref().map(|file| &file.path),
            ),
        ];
        for &choice in Choice::ALL {
            let file = files.iter().find(|(other, _)| *other == choice);
            let text = |value: &Value| match (value, choice) {
                (Value::Number(percent), Choice::LargeFraction) => (percent / 100.0).to_string(),
                _ => value.to_string(),
            };
            let values: Vec<String> = match file {
                Some((_, path)) => path.iter().map(|path| path.to_string()).collect(),
                None => self.given(choice).iter().map(text).collect(),
            };
            if !values.is_empty() {
                words.push(format!("{} {}", choice.flag(), values.join(",")));
            }
        }
        if !self.series.is_empty() {
            words.push(format!("--series {}", self.series.join(",")));
        }
        words
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
            Self::Refused(figure, refused) => {
                let takes = figure.takes();
                write!(f, "{} {refused}. Its options: {takes}", figure.name)
            }
            Self::Nothing(figure) => write!(
                f,
                "{} has nothing to draw for these options: read what it models in its heading",
                figure.name
            ),
        }
    }
}

impl std::error::Error for FigureError {}

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
    few_cores::BESIDE,
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

#[cfg(test)]
mod tests;
