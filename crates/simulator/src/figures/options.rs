//! What can be asked of figures: every option, declared once.

use std::fmt;

use curtail_workload::WriteGaps;

use super::parameters::Value;
use crate::{
    c4::{
        Balancer, Rules,
        system_costs::{Calibration, Items},
    },
    cckvs::{ClusterCosts, Hardware},
    command::{count, name_of},
    costs::FullCosts,
    juneberry::DatagramTable,
};

/// Declares the options: what each is called on the command line, and in a row.
macro_rules! options {
    ($(
        $(#[$about:meta])*
        $choice:ident $flag:literal $key:literal $field:ident: $type:ty,
    )*) => {
        /// What can be asked of a figure. An empty list, or `None`, is the figure's default.
        #[derive(Clone, Debug, Default, PartialEq, clap::Args)]
        pub struct Options {
            $($(#[$about])* #[arg(long = $flag)] pub $field: $type,)*
            /// Curves to draw; `list` names those of each figure.
            #[arg(long, value_delimiter = ',')]
            pub series: Vec<String>,
        }

        /// An option of the command line that figures may take.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Choice {
            $(#[doc = $flag] $choice,)*
        }

        impl Choice {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$choice,)*];

            /// What it is called on the command line.
            pub fn flag(self) -> &'static str {
                match self {
                    $(Self::$choice => concat!("--", $flag),)*
                }
            }

            pub(super) const fn key(self) -> &'static str {
                match self {
                    $(Self::$choice => $key,)*
                }
            }
        }

        impl Options {
            /// What is given of a parameter, as rows show it.
            pub(super) fn given(&self, choice: Choice) -> Vec<Value> {
                match choice {
                    $(Choice::$choice => self.$field.iter().map(Shown::shown).collect(),)*
                }
            }

            /// Sets one number; where it is none, something that is no figure's default.
            #[cfg(test)]
            pub(super) fn set(&mut self, choice: Choice, number: f64) {
                match choice {
                    $(Choice::$choice => self.$field = Held::of(number),)*
                }
            }
        }
    };
}

options! {
    /// Number of cores: for example 8, or 4,8,64.
    #[arg(value_delimiter = ',')]
    Cores "cores" "cores" cores: Vec<u16>,
    /// Offered load as a share of the capacity: for example 0.5, or 0.1,0.5,0.9.
    #[arg(value_delimiter = ',')]
    Load "load" "load" load: Vec<f64>,
    /// Share of writes, in percent.
    #[arg(value_delimiter = ',')]
    Writes "writes" "writes" writes: Vec<f64>,
    /// Exponent of the keys' popularity by Zipf's law; 0 is uniform.
    #[arg(value_delimiter = ',')]
    Gamma "gamma" "gamma" gamma: Vec<f64>,
    /// Cost of a large request as a multiple of a small one's.
    #[arg(value_delimiter = ',')]
    K "k" "k" k: Vec<u32>,
    /// Large requests as a share of all: 0.00125 is the paper's 0.125 %.
    #[arg(value_delimiter = ',', value_parser = percent)]
    LargeFraction "large-fraction" "large" large_fraction: Vec<f64>,
    /// Minos's system: the longest value in KB: for example 500, or 250,500,1000.
    #[arg(value_delimiter = ',')]
    LargeMaxKb "large-max-kb" "max_kb" large_max_kb: Vec<f64>,
    /// Minos's system: speed of the network link in Gb/s, instead of the one in the file of costs.
    Gigabits "gigabits" "gigabits" gigabits: Option<f64>,
    /// Number of requests for each point, for example 200000, 200k or 5m. SwitchKV: requests that
    /// all back ends together serve in a virtual second.
    #[arg(value_parser = count)]
    Requests "requests" "requests" requests: Option<u64>,
    /// Seed of every random choice (default: 1).
    Seed "seed" "seed" seed: Option<u64>,
    /// C-4: whether to follow the authors' simulator (reference) or the paper, where they differ.
    #[arg(value_enum)]
    Rules "rules" "rules" rules: Option<Rules>,
    /// C-4: maximum number of outstanding requests that the balancer gives a worker.
    Depth "depth" "depth" depth: Option<u16>,
    /// C-4: what distributes requests to workers: the network card, as in the paper, or one of the
    /// cores.
    #[arg(value_enum, value_delimiter = ',')]
    Balancer "balancer" "balancer" balancer: Vec<Balancer>,
    /// Whole systems of C-4 and Minos: file of costs, instead of crates/simulator/costs.toml, whose
    /// costs were measured on curtail's store.
    #[arg(value_parser = file(FullCosts::parse))]
    Costs "costs" "costs_file" costs: Option<Given<FullCosts>>,
    /// Whole systems (figures that include the costs of store and network, not only queues): the
    /// paper's costs or those measured on curtail.
    #[arg(value_enum, value_delimiter = ',')]
    Calibration "calibration" "prices" calibration: Vec<Calibration>,
    /// C-4's whole system: sizes of items.
    #[arg(value_enum, value_delimiter = ',')]
    Items "items" "items" items: Vec<Items>,
    /// C-4's whole system: limit on the 99th percentile, as a multiple of the mean service time.
    #[arg(value_delimiter = ',')]
    Limit "limit" "limit" limit: Vec<u16>,
    /// C-4's whole system with measured costs: number of requests that are received together and
    /// sent together.
    Batch "batch" "batch" batch: Option<u32>,
    /// Juneberry: file of costs, instead of crates/simulator/juneberry.toml.
    #[arg(value_parser = file(DatagramTable::parse))]
    Prices "prices" "prices_file" prices: Option<Given<DatagramTable>>,
    /// Juneberry: processor time added to each execution, in microseconds.
    WorkUs "work-us" "work_us" work_us: Option<f64>,
    /// Juneberry: number of Twitter's cluster: 12, 19, 27 or 31.
    #[arg(value_delimiter = ',')]
    Cluster "cluster" "cluster" cluster: Vec<u16>,
    /// Juneberry, Fig. 2: number of clients that share the requests of a cluster: for
    /// example 1000, or 100,10000.
    #[arg(value_delimiter = ',')]
    Clients "clients" "clients" clients: Vec<u32>,
    /// Juneberry, Fig. 2: file with the published table of Twitter's clusters, or files with traces
    /// in Twitter's format, one for each cluster.
    #[arg(value_delimiter = ',', value_parser = file(WriteGaps::read))]
    Twitter "twitter" "twitter" twitter: Vec<Given<Vec<WriteGaps>>>,
    /// Juneberry and ccKVS: lengths of values in bytes.
    #[arg(value_delimiter = ',')]
    ValueBytes "value-bytes" "value" value_bytes: Vec<u32>,
    /// Juneberry: number of entries that a worker executes at a time from an ordered queue; with
    /// more than one, sets of one key are executed as one.
    Turn "turn" "turn" turn: Option<usize>,
    /// Juneberry: share of the packets that are lost, such as 0.001.
    Loss "loss" "loss" loss: Option<f64>,
    /// ccKVS and `cluster`: number of nodes: for example 9, or 5,9,40.
    #[arg(value_delimiter = ',')]
    Nodes "nodes" "nodes" nodes: Vec<u16>,
    /// SwitchKV: largest change of the client's rate within 10 ms, in per cent.
    ClientStep "client-step" "client_step" client_step: Option<f64>,
    /// `cckvs-cores`: file of costs, instead of crates/simulator/cckvs.toml.
    #[arg(value_parser = file(ClusterCosts::parse))]
    ClusterCosts "cluster-costs" "cluster_costs" cluster_costs: Option<Given<ClusterCosts>>,
    /// ccKVS, names ending in -simulated: file of costs of nodes and network, instead of
    /// crates/simulator/cckvs-paper.toml.
    #[arg(value_parser = file(Hardware::parse))]
    ClusterHardware "cluster-hardware" "cluster_hardware" cluster_hardware: Option<Given<Hardware>>,
}

/// What was read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Given<T> {
    /// The file.
    pub path: String,
    /// What is in it.
    pub costs: T,
}

/// One value in the place of a list, or of at most one.
#[cfg(test)]
trait Held {
    fn of(number: f64) -> Self;
}

#[cfg(test)]
impl<T: Shown> Held for Vec<T> {
    fn of(number: f64) -> Self {
        vec![T::of(number)]
    }
}

#[cfg(test)]
impl<T: Shown> Held for Option<T> {
    fn of(number: f64) -> Self {
        Some(T::of(number))
    }
}

/// A value of an option, and how rows show it.
trait Shown {
    fn shown(&self) -> Value;
    #[cfg(test)]
    fn of(number: f64) -> Self;
}

macro_rules! numbers_are_shown {
    ($($number:ty)*) => {$(
        impl Shown for $number {
            fn shown(&self) -> Value {
                Value::Number(*self as f64)
            }
            #[cfg(test)]
            fn of(number: f64) -> Self {
                number as Self
            }
        }
    )*};
}
numbers_are_shown!(u16 u32 u64 usize f64);

macro_rules! names_are_shown {
    ($($name:ty)*) => {$(
        impl Shown for $name {
            fn shown(&self) -> Value {
                Value::Name(name_of(self))
            }
            #[cfg(test)]
            fn of(_: f64) -> Self {
                <$name as clap::ValueEnum>::value_variants()[1]
            }
        }
    )*};
}
names_are_shown!(Rules Balancer Calibration Items);

macro_rules! files_are_shown {
    ($($costs:ty: $built_in:expr,)*) => {$(
        impl Shown for Given<$costs> {
            fn shown(&self) -> Value {
                Value::File(self.path.clone())
            }
            #[cfg(test)]
            fn of(_: f64) -> Self {
                let path = "a-file".into();
                Self { path, costs: $built_in.clone() }
            }
        }
    )*};
}
files_are_shown! {
    FullCosts: FullCosts::measured(),
    DatagramTable: DatagramTable::built_in(),
    ClusterCosts: ClusterCosts::built_in(),
    Hardware: Hardware::paper(),
    Vec<WriteGaps>: [WriteGaps {
        requests_per_s: Some(1e3),
        sets: 0.5,
        recorded: None,
    }].to_vec(),
}

impl Options {
    /// The options that are given, of those that figures take.
    pub(crate) fn choices(&self) -> Vec<&'static str> {
        let given = |choice: &Choice| !self.given(*choice).is_empty();
        let all = Choice::ALL.iter().copied().filter(given);
        all.map(Choice::flag).collect()
    }

    /// The words of the command line that give these options again.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for &choice in Choice::ALL {
            let text = |value: &Value| match (value, choice) {
                (Value::Number(percent), Choice::LargeFraction) => (percent / 100.0).to_string(),
                (Value::File(path), _) => path.clone(),
                _ => value.to_string(),
            };
            let values: Vec<String> = self.given(choice).iter().map(text).collect();
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

/// Reads a file.
fn file<T, E: fmt::Display>(
    parse: fn(&str) -> Result<T, E>,
) -> impl Fn(&str) -> Result<Given<T>, String> + Clone {
    move |path| {
        let named = |error: &dyn fmt::Display| format!("{path}: {error}");
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
