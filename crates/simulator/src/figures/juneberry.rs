//! Juneberry's figures: acknowledgements, commits and reads apart, under every system.
//!
//! Every point also shows what an acknowledgement's latency hides: how much was refused, and how
//! much waits to be executed.

mod curves;
mod overload;
mod read_after_write;
mod requests_after_sets;
mod transport_only;
mod value_sizes;

use curtail_ordered_queue::TURN_MAX;
use curtail_workload::{Mix, Popularity, Sizes, Workload};

use crate::{
    c4::system_costs::Calibration,
    figures::{Choice, Options, Parameter, Request, at_loads},
    histogram::Histogram,
    juneberry::{
        ClientLoad, DatagramPrices, DatagramTable, Datapath, Juneberry, JuneberryOutcome, Reads,
    },
    rows::Row,
};

pub(super) use curves::{FIG7, FIG9};
pub(super) use overload::OVERLOAD;
pub(super) use read_after_write::PATTERN;
pub(super) use requests_after_sets::FIG2;
pub(super) use transport_only::FIG6;
pub(super) use value_sizes::FIG11;

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
        Some(given) => &given.costs,
        None => DatagramTable::built_in(),
    }
}

/// The prices of the figures that are drawn with both sets, and their names.
fn prices(request: &Request<'_>) -> Vec<(&'static str, DatagramPrices)> {
    let options = request.options;
    let table = table(options);
    let named = |calibration: Calibration| {
        let prices = match calibration {
            Calibration::Paper => table.paper.clone(),
            Calibration::Measured => table.measured.clone(),
        };
        (calibration.name(), with_work(prices, options))
    };
    request.calibrations().into_iter().map(named).collect()
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
        workers: request.number(Choice::Cores) as u16,
        turn_max: match series {
            "oq-fold" => options.turn.unwrap_or(16),
            _ => options.turn.unwrap_or(1),
        },
        loss: request.number(Choice::Loss),
        requests: request.requests(),
        seed: request.seed(),
        ..base
    }
}

/// What figures of whole systems have in common. Queues are chosen by the top bits of a hash, so
/// that their number, and that of the workers, is a power of two: the 18 workers of the paper's
/// PMemKV are 16 here.
const fn parameters(requests: &'static [f64]) -> [Parameter; COMMON] {
    [
        Parameter::one(Choice::Cores, (1.0, 64.0), &[16.0])
            .power_of_two()
            .papers(&[16.0]),
        Parameter::file(Choice::Prices),
        Parameter::one(Choice::WorkUs, (0.0, 1e6), &[]).follows(),
        Parameter::one(Choice::Turn, (1.0, TURN_MAX as f64), &[])
            .whole()
            .follows(),
        Parameter::one(Choice::Loss, (0.0, 0.5), &[0.0]),
        Parameter::requests(requests),
        Parameter::seed(),
    ]
}

/// These and others of a figure's own.
const fn with<const N: usize, const ALL: usize>(
    common: [Parameter; COMMON],
    own: [Parameter; N],
) -> [Parameter; ALL] {
    assert!(ALL == COMMON + N);
    let mut all = [common[0]; ALL];
    let mut index = 0;
    while index < ALL {
        all[index] = match index < N {
            true => own[index],
            false => common[index - N],
        };
        index += 1;
    }
    all
}

/// Whose prices.
const CALIBRATIONS: Parameter =
    Parameter::names(Choice::Calibration, &["paper", "measured"]).papers_named(&["paper"]);
const COMMON: usize = 7;
const LOADS: (f64, f64) = (0.001, 10.0);

/// A workload under all series that are asked for; `head` are the parameters of its own.
fn settings(
    request: &Request<'_>,
    head: &str,
    of: impl Fn(&'static str) -> Juneberry,
) -> Vec<Setting> {
    let capacity = of("raw-rpc").capacity_mops();
    let setting = |series: &&'static str| {
        let model = of(series);
        let work_us = model.prices.work_ns / 1e3;
        // Packets are lost only where somebody sends them again: with queues and eRPC.
        let loss = match model.system.survives_loss() {
            true => model.loss,
            false => 0.0,
        };
        let cores = model.workers;
        Setting {
            series,
            params: format!("{head};cores={cores};work_us={work_us};loss={loss}"),
            capacity,
            model: Juneberry { loss, ..model },
        }
    };
    request.series.iter().map(setting).collect()
}

/// All settings at all loads.
fn outcomes<'a>(
    request: &Request<'_>,
    settings: &'a [Setting],
    loads: &[f64],
) -> Vec<(&'a Setting, f64, JuneberryOutcome)> {
    let points = at_loads(settings, loads);
    let name = request.figure.name;
    let outcomes = request
        .threads
        .map(name, &points, |(setting, load)| setting.at(*load));
    let all = points.iter().zip(outcomes);
    all.map(|((setting, load), outcome)| (*setting, *load, outcome))
        .collect()
}

impl Setting {
    fn at(&self, load: f64) -> JuneberryOutcome {
        let mops = load * self.capacity;
        let model = Juneberry {
            load: ClientLoad::Open { mops },
            ..self.model.clone()
        };
        model.run()
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
