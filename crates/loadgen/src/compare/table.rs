//! The comparison as Markdown tables.

use curtail_report::Table;

use super::{
    Comparison, Pooled, Spread,
    memory::Memory,
    small_beside_large::{AheadFigures, Beside},
    start_time::Start,
    tail::Tail,
    throughput::{Asks, Cell, CellPlan},
};

/// All parts that were measured, each under its heading.
pub(crate) fn markdown(comparison: &Comparison) -> String {
    let mut text = match comparison.prioritized {
        true => String::new(),
        false => "Without high priority: expect more noise.\n\n".into(),
    };
    let all_cores = "servers and driver on all cores";
    let tables = [
        throughput(&comparison.cells, "one server core"),
        throughput(&comparison.policies, all_cores),
        throughput(&comparison.compaction, all_cores),
        comparison.tail.as_ref().and_then(tail),
        beside(&comparison.beside),
        memory(&comparison.memory),
        start(&comparison.start),
    ];
    for (heading, table) in tables.into_iter().flatten() {
        text += &format!("{heading}\n\n{}\n", table.markdown());
    }
    text
}

/// A table below its heading; none without a row.
type Part = Option<(String, Table)>;

fn part(heading: String, table: Table) -> Part {
    (!table.is_empty()).then_some((heading, table))
}

fn throughput(cells: &[Cell], cores: &str) -> Part {
    let first = cells.first().and_then(|cell| cell.servers.first());
    let name = first.map_or("", |figures| figures.server.as_str());
    let rows = cells.iter().flat_map(|cell| {
        let servers = cell.servers.iter().enumerate();
        servers.map(move |(index, figures)| (&cell.plan, index, figures))
    });
    let table = Table::of(
        rows,
        &[
            ("load", &|(plan, index, _)| once(*index, || name_of(plan))),
            ("server", &|(_, _, one)| one.server.clone()),
            ("k requests/s", &|(_, _, one)| {
                spread(one.rate, |rate| rate / 1000.0, 0)
            }),
            ("CPU ns/request", &|(_, _, one)| {
                spread(one.server_ns, |ns| ns, 0)
            }),
            ("server, driver cores", &|(_, _, one)| {
                let (server, driver) = (one.server_cores.median, one.driver_cores.median);
                format!("{server:.2}, {driver:.2}")
            }),
            (&format!("{name}'s rate is"), &|(_, index, one)| {
                ratio(*index, one.rate_ratio)
            }),
            (&format!("{name}'s CPU is"), &|(_, index, one)| {
                ratio(*index, one.server_ns_ratio)
            }),
            ("faults", &|(_, _, one)| one.faults.to_string()),
        ],
    );
    let heading = format!(
        "Closed loop, {cores}; median (min-max) over rounds; ratios: {name}'s value divided by \
         the row's, within a round."
    );
    part(heading, table)
}

fn name_of(plan: &CellPlan) -> String {
    match plan.asks {
        Asks::Many => {}
        Asks::OneKey => return format!("pipeline {}, sets of one key", plan.pipeline),
        Asks::OneCounter => return format!("pipeline {}, one counter", plan.pipeline),
    }
    let popularity = match plan.zipf {
        0.0 => "uniform".to_string(),
        exponent => format!("zipf {exponent}"),
    };
    let gets = (plan.get_ratio * 100.0).round();
    format!(
        "pipeline {}, {gets}:{}, {} B, {}",
        plan.pipeline,
        100.0 - gets,
        plan.value_bytes,
        popularity
    )
}

fn tail(tail: &Tail) -> Part {
    let first = tail.servers.first();
    let name = first.map_or("", |figures| figures.server.name());
    let table = Table::of(
        tail.servers.iter().enumerate(),
        &[
            ("server", &|(_, one)| one.server.name().into()),
            ("windows", &|(_, one)| one.pooled.windows.to_string()),
            ("p50", &|(_, one)| whole(one.p50_us)),
            ("p99 median", &|(_, one)| whole(one.pooled.p99_us)),
            ("p99 quartiles", &|(_, one)| quartiles(&one.pooled)),
            ("run p99", &|(_, one)| whole(one.run_p99_us)),
            (&format!("{name}'s p99 is"), &|(index, one)| {
                ratio(*index, one.ratio)
            }),
            (&format!("{name}'s lower quartile is"), &|(index, one)| {
                ratio(*index, one.lower_quartile_ratio)
            }),
            ("unfinished", &|(_, one)| one.unfinished.to_string()),
        ],
    );
    let heading = format!(
        "Open loop at {:.0} k requests/s (half of memcached's peak); 20 ms windows, pooled over \
         rounds; us.",
        tail.rate / 1000.0
    );
    part(heading, table)
}

fn beside(all: &[Beside]) -> Part {
    let rows = all.iter().flat_map(|load| {
        let servers = load.servers.iter().enumerate();
        servers.map(move |(index, figures)| (load, index, figures))
    });
    let table = Table::of(
        rows,
        &[
            ("load", &|(load, index, _)| once(*index, || company(load))),
            ("server", &|(_, _, one)| one.server.clone()),
            ("windows", &|(_, _, one)| one.pooled.windows.to_string()),
            ("p99 alone", &|(_, _, one)| whole(one.alone_p99_us)),
            ("p99 beside", &|(_, _, one)| whole(one.pooled.p99_us)),
            ("quartiles", &|(_, _, one)| quartiles(&one.pooled)),
            ("beside : alone", &|(_, _, one)| times(one.ratio)),
            ("driver late, p99", &|(_, _, one)| {
                one.late_us.map(whole).join(", ")
            }),
            ("large/s", &|(_, _, one)| whole(one.large_rate)),
            ("unfinished", &|(_, _, one)| one.unfinished.to_string()),
            ("same bytes without a server, p99", &|(_, _, one)| {
                let control = one.control.as_ref();
                control.map_or_else(String::new, |control| whole(control.p99_us))
            }),
            ("that : alone", &|(_, _, one)| {
                let control = one.control.as_ref();
                control.map_or_else(String::new, |control| times(control.ratio))
            }),
            ("beside : that", &|(_, _, one)| {
                let control = one.control.as_ref();
                control.map_or_else(String::new, |control| times(control.beside))
            }),
            ("ahead alone, p99", &|(_, _, one)| ahead(one.ahead[0])),
            ("ahead beside, p99", &|(_, _, one)| ahead(one.ahead[1])),
            (
                "ahead with the same bytes without a server, p99",
                &|(_, _, one)| ahead(one.ahead[2]),
            ),
        ],
    );
    let heading = "Small requests (95:5, zipf 0.99) in open loop beside large ones; windows of \
                   20 ms; us; ratios within rounds.";
    part(heading.into(), table)
}

fn company(load: &Beside) -> String {
    let quiet = load.quiet.map_or_else(String::new, |[rounds, all]| {
        format!("; {rounds} of {all} rounds begun quiet")
    });
    format!(
        "{:.0} % of peak ({:.0} k/s), {}{quiet}",
        load.load * 100.0,
        load.rate / 1000.0,
        load.company
    )
}

/// Work ahead of small requests, and that over the work that is ahead of them alone.
fn ahead(figures: Option<AheadFigures>) -> String {
    figures.map_or_else(String::new, |figures| {
        let AheadFigures {
            median,
            requests_ratio,
            kilobytes_ratio,
        } = figures;
        format!(
            "{:.1} requests, {}; {:.1} KB, {}; {:.2} % some",
            median.requests,
            times(requests_ratio),
            median.kilobytes,
            times(kilobytes_ratio),
            100.0 * median.share
        )
    })
}

fn memory(memory: &[Memory]) -> Part {
    let table = Table::of(
        memory,
        &[
            ("server", &|one| one.server.name().into()),
            ("-m, MiB", &|one| one.limit_mib.to_string()),
            ("items", &|one| one.items.to_string()),
            ("RSS, MiB", &|one| whole(one.resident_mib)),
            ("B/item", &|one| format!("{:.1}", one.bytes_per_item)),
            ("B/item less the empty server", &|one| {
                format!("{:.1}", one.bytes_per_item_net)
            }),
            ("found", &|one| format!("{:.2} %", one.found * 100.0)),
            ("refused", &|one| one.refused.to_string()),
        ],
    );
    part("Items of 16 B + 32 B.".into(), table)
}

fn start(starts: &[Start]) -> Part {
    let table = Table::of(
        starts,
        &[
            ("server", &|one| one.server.name().into()),
            ("ms", &|one| spread(one.ms, |ms| ms, 1)),
        ],
    );
    part("From start to first answer, -m 64.".into(), table)
}

/// Said in the first of several rows alone.
fn once(index: usize, text: impl Fn() -> String) -> String {
    match index {
        0 => text(),
        _ => String::new(),
    }
}

/// A ratio to oneself says nothing.
fn ratio(index: usize, values: Spread) -> String {
    match index {
        0 => String::new(),
        _ => times(values),
    }
}

fn times(Spread { median, min, max }: Spread) -> String {
    format!("{median:.2}x ({min:.2}-{max:.2})")
}

fn spread(values: Spread, scale: impl Fn(f64) -> f64, digits: usize) -> String {
    let [median, min, max] = [values.median, values.min, values.max].map(scale);
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn quartiles(pooled: &Pooled) -> String {
    let (lower, upper) = (pooled.p99_lower_quartile_us, pooled.p99_upper_quartile_us);
    format!("{lower:.0}-{upper:.0}")
}
