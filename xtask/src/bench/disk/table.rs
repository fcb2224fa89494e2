//! What the systems did, as tables and as a chart.

use curtail_report::{Bar, BarChart, BarGroup, Table};

use super::load::Run;
use super::systems::{SYSTEMS, System, memory_text};
use super::{Asked, Row, median};

/// What was measured.
pub(super) fn heading(asked: &Asked) -> String {
    format!(
        "## Data {} times as large as memory\n\n{} MiB for each system, page cache of its files \
         included; {} keys of 16 B with values of {} B ({} MiB); {} rounds of {} s.\n\n",
        asked.times,
        asked.memory_mib,
        asked.keys,
        asked.value_bytes,
        asked.data_mib(),
        asked.rounds,
        asked.seconds
    )
}

/// A run as it ends, for whoever waits.
pub(super) fn line(round: usize, row: &Row) -> String {
    let Row {
        system,
        is_paced,
        run,
    } = row;
    let pace = if *is_paced { "open" } else { "closed" };
    format!(
        "round {round}, {pace}, {}: {:.0} requests/s, {:.1} % found, p99.9 {} us, {:.2} cores, \
         {} errors\n",
        system.name(),
        run.rate,
        100.0 * run.hit_ratio,
        number(run.p999_us),
        run.cores,
        run.errors,
    )
}

/// The tables of all rounds.
pub(super) fn systems(rows: &[Row]) -> String {
    format!(
        "\nClosed loop, Zipf 0.99, 95:5, medians over the rounds (lowest to highest)\n\n{}\n\
         Open loop at {:.0} requests/s, quantiles in windows of 500 ms\n\n{}\n",
        closed(rows).markdown(),
        super::paced_rate(rows),
        open(rows).markdown(),
    )
}

fn closed(rows: &[Row]) -> Table {
    let mut table = Table::default();
    for system in SYSTEMS {
        let rate = |run: &Run| Some(run.rate);
        let of = |what| median(rows, (system, false), what);
        let last = rows.iter().rfind(|row| row.system == system);
        let (own, cache) = memory_text(last.map(|row| row.run.memory).unwrap_or_default());
        table.named(&[
            ("system", system.name().to_owned()),
            ("requests/s", number(of(rate))),
            ("range", range(rows, system)),
            (
                "values/s, times memcached",
                ratio(rows, system, |run| Some(run.values)),
            ),
            ("reads with a value", share(of(|run| Some(run.hit_ratio)))),
            ("values/s", number(of(|run| Some(run.values)))),
            ("p99.9, us", number(of(|run| run.p999_us))),
            ("cores", fraction(of(|run| Some(run.cores)))),
            ("own memory, MiB", own),
            ("page cache, MiB", cache),
            ("errors", errors(rows, system)),
        ]);
    }
    table
}

fn open(rows: &[Row]) -> Table {
    let mut table = Table::default();
    for system in SYSTEMS {
        let of = |what| median(rows, (system, true), what);
        table.named(&[
            ("system", system.name().to_owned()),
            ("requests/s", number(of(|run| Some(run.rate)))),
            ("reads with a value", share(of(|run| Some(run.hit_ratio)))),
            ("p50, us", number(of(|run| run.p50_us))),
            ("p99, us", number(of(|run| run.p99_us))),
            ("p99.9, us", number(of(|run| run.p999_us))),
            ("longest, us", number(of(|run| Some(run.longest_us)))),
        ]);
    }
    table
}

/// Bars of the medians.
pub(super) fn chart(rows: &[Row]) -> String {
    let bars = |is_paced, what: fn(&Run) -> Option<f64>| {
        let bar = |system: System| {
            Some(Bar {
                name: system.name().to_owned(),
                value: median(rows, (system, is_paced), what)?,
                is_ours: system == System::Curtail,
            })
        };
        SYSTEMS.into_iter().filter_map(bar).collect()
    };
    let chart = BarChart {
        title: "Data ten times as large as memory, Zipf 0.99, 95:5".to_owned(),
        groups: vec![
            BarGroup {
                name: "Reads answered with a value, closed loop".to_owned(),
                unit: "values/s".to_owned(),
                less_is_better: false,
                bars: bars(false, |run| Some(run.values)),
            },
            BarGroup {
                name: "p99.9 in windows, open loop at the same rate".to_owned(),
                unit: "microseconds".to_owned(),
                less_is_better: true,
                bars: bars(true, |run| run.p999_us),
            },
        ],
    };
    chart.svg()
}

/// The median of the ratios within each round.
fn ratio(rows: &[Row], system: System, what: fn(&Run) -> Option<f64>) -> String {
    let of = |system| {
        let rows = rows.iter();
        let rows = rows.filter(move |row: &&Row| row.system == system && !row.is_paced);
        rows.filter_map(move |row| what(&row.run))
    };
    let pairs = of(system).zip(of(System::Extstore));
    fraction(super::middle(
        pairs.map(|(one, other)| one / other).collect(),
    ))
}

fn range(rows: &[Row], system: System) -> String {
    let rates = rows
        .iter()
        .filter(|row| row.system == system && !row.is_paced)
        .map(|row| row.run.rate);
    let low = rates.clone().fold(f64::INFINITY, f64::min);
    let high = rates.fold(0.0, f64::max);
    format!("{low:.0} to {high:.0}")
}

fn errors(rows: &[Row], system: System) -> String {
    let of = rows.iter().filter(|row| row.system == system);
    let sum: u64 = of.map(|row| row.run.errors).sum();
    sum.to_string()
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.0}"))
}

fn fraction(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

fn share(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.1} %", 100.0 * value))
}
