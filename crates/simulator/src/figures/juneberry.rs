//! Juneberry's figures: acknowledgements, commits and reads apart, under every system.
//!
//! Every point also shows what an acknowledgement's latency hides: how much was refused, and how
//! much waits to be executed.

mod curves;
mod micro;
mod overload;
mod pattern;
mod sizes;

use curtail_workload::{Mix, Popularity, Sizes, Workload};

use crate::{
    figures::{Options, Request, or},
    full::Calibration,
    histogram::Histogram,
    juneberry::{
        ClientLoad, DatagramPrices, DatagramTable, Datapath, Juneberry, JuneberryOutcome, Reads,
    },
    rows::Row,
};

pub(super) use curves::{FIG7, FIG9};
pub(super) use micro::FIG6;
pub(super) use overload::OVERLOAD;
pub(super) use pattern::PATTERN;
pub(super) use sizes::FIG11;

/// One curve of one setting, of which the load is still open.
#[derive(Clone, Debug)]
struct Setting {
    series: &'static str,
    params: String,
    /// What RawRPC could carry, in millions of requests a second.
    capacity: f64,
    model: Juneberry,
}

/// The system of a series.
fn system(series: &str) -> Datapath {
    match series {
        "raw-rpc" => Datapath::RawRpc,
        "deferred-exec" => Datapath::DeferredExec,
        "erpc" => Datapath::Erpc,
        "io-ack" => Datapath::IoAck(Reads::Forwarded),
        "io-ack-paper" => Datapath::IoAck(Reads::InOrder),
        "oq-paper" => Datapath::Card(Reads::InOrder),
        "oq-stamps" => Datapath::Card(Reads::Stamped),
        "oq-shared" => Datapath::Card(Reads::Shared),
        _ => Datapath::Card(Reads::Forwarded),
    }
}

/// A workload of 10 million keys.
fn workload(name: &str, key_bytes: usize, value_bytes: u32, writes: f64, zipf: f64) -> Workload {
    let plain = curtail_workload::Catalogue::new().workload("uniform");
    let plain = plain.unwrap_or_else(|error| unreachable!("{error}"));
    let Some(mix) = Mix::get_share(1.0 - writes / 100.0) else {
        unreachable!("{writes} % has been checked");
    };
    Workload {
        name: name.into(),
        keys: KEYS,
        key_bytes,
        sizes: Sizes::constant(value_bytes),
        mix,
        popularity: match zipf {
            0.0 => Popularity::Uniform,
            exponent => Popularity::Zipf { exponent },
        },
        ..plain
    }
}

/// The table of prices that is asked for.
fn table(options: &Options) -> &DatagramTable {
    match &options.prices {
        Some(table) => table,
        None => DatagramTable::built_in(),
    }
}

/// The prices of the figures that are drawn with both sets, and their names.
fn prices(options: &Options) -> Vec<(&'static str, DatagramPrices)> {
    let both = [Calibration::Paper, Calibration::Measured];
    let table = table(options);
    let named = |calibration: Calibration| {
        let prices = match calibration {
            Calibration::Paper => table.paper.clone(),
            Calibration::Measured => table.measured.clone(),
        };
        (calibration.name(), with_work(prices, options))
    };
    let wanted = or(&options.calibrations, &both);
    wanted.into_iter().map(named).collect()
}

fn with_work(prices: DatagramPrices, options: &Options) -> DatagramPrices {
    let work_ns = options.work_us.map_or(prices.work_ns, |us| us * 1e3);
    DatagramPrices { work_ns, ..prices }
}

/// A model with the options that all figures take.
fn model(
    request: &Request<'_>,
    series: &str,
    prices: DatagramPrices,
    workload: Workload,
) -> Juneberry {
    let options = request.options;
    let base = Juneberry::new(system(series), prices, workload);
    Juneberry {
        workers: workers(options).first().copied().unwrap_or(base.workers),
        turn_max: match series {
            "oq-fold" => options.turn.unwrap_or(16),
            _ => options.turn.unwrap_or(1),
        },
        loss: options.loss.unwrap_or(0.0),
        requests: options.requests.unwrap_or(base.requests),
        seed: options.seed,
        ..base
    }
}

/// Workers: queues go by the top bits of a hash, so that their number is a power of two.
fn workers(options: &Options) -> Vec<u16> {
    let cores = or(&options.cores, &[16]);
    let power = |cores: &u16| cores.next_power_of_two().min(256);
    cores.iter().map(power).collect()
}

/// What prices, workers and losses add to a row's parameters.
fn tail_params(model: &Juneberry) -> String {
    let mut text = format!(";cores={}", model.workers);
    if model.loss > 0.0 {
        text += &format!(";loss={}", model.loss);
    }
    text
}

impl Setting {
    fn at(&self, load: f64) -> JuneberryOutcome {
        let model = Juneberry {
            load: ClientLoad::Open {
                mops: load * self.capacity,
            },
            ..self.model.clone()
        };
        model.run()
    }

    fn like(&self, series: &'static str) -> Self {
        Self {
            series,
            model: Juneberry {
                system: system(series),
                ..self.model.clone()
            },
            ..self.clone()
        }
    }

    fn row(
        &self,
        request: &Request<'_>,
        x: f64,
        value: (&'static str, Option<f64>),
        paper: Option<f64>,
    ) -> Row {
        request.row((self.series, &self.params), x, value, paper)
    }
}

/// The numbers of a point, in the order of the report: acknowledgements, reads, commits and
/// executions apart, then what these do not show.
fn measured(outcome: &JuneberryOutcome) -> Vec<(&'static str, Option<f64>)> {
    let counts = &outcome.counts;
    let us = |histogram: &Histogram, share| outcome.quantile_us(histogram, share);
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let depth = |quantile| outcome.backlog.quantile(quantile).map(|depth| depth as f64);
    let mut all = vec![
        ("ack_p50_us", us(&outcome.ack, 0.5)),
        ("ack_p99_us", us(&outcome.ack, 0.99)),
        ("ack_p999_us", us(&outcome.ack, 0.999)),
        ("read_p50_us", us(&outcome.read, 0.5)),
        ("read_p99_us", us(&outcome.read, 0.99)),
        ("read_p999_us", us(&outcome.read, 0.999)),
        ("commit_p50_us", us(&outcome.commit, 0.5)),
        ("commit_p99_us", us(&outcome.commit, 0.99)),
        ("commit_p999_us", us(&outcome.commit, 0.999)),
        ("executed_p50_us", us(&outcome.executed, 0.5)),
        ("executed_p99_us", us(&outcome.executed, 0.99)),
        ("nack_share", Some(outcome.refused_share())),
        ("backlog_p50", depth(0.5)),
        ("backlog_p99", depth(0.99)),
        ("early_share", share(counts.early, counts.writes)),
        ("done_mops", Some(outcome.done_mops)),
    ];
    let reads = counts.requests - counts.writes;
    for (metric, part, whole) in [
        ("forwarded_share", counts.forwarded, reads),
        ("parked_share", counts.parked, reads),
        ("folded_share", counts.folded, counts.writes),
        ("given_up_share", counts.given_up, counts.requests),
    ] {
        if part > 0 {
            all.push((metric, share(part, whole)));
        }
    }
    all
}

const KEYS: u64 = 10_000_000;
