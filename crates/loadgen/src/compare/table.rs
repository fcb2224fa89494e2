//! The comparison as Markdown tables.

use std::fmt::{self, Write};

use super::{
    Comparison, Spread,
    beside::{AheadFigures, Beside},
    memory::Memory,
    start::Start,
    tail::Tail,
    throughput::{Asks, Cell, CellPlan},
};

/// All parts that were measured, each under its heading.
pub(crate) fn markdown(comparison: &Comparison) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, comparison);
    text
}

fn write_all(text: &mut String, comparison: &Comparison) -> fmt::Result {
    if !comparison.prioritized {
        writeln!(text, "Without high priority: expect more noise.\n")?;
    }
    if !comparison.cells.is_empty() {
        write_cells(text, &comparison.cells, "one server core")?;
    }
    let cores = "servers and driver on all cores";
    for cells in [&comparison.policies, &comparison.compaction] {
        if !cells.is_empty() {
            write_cells(text, cells, cores)?;
        }
    }
    if let Some(tail) = &comparison.tail {
        write_tail(text, tail)?;
    }
    if !comparison.beside.is_empty() {
        write_beside(text, &comparison.beside)?;
    }
    if !comparison.memory.is_empty() {
        write_memory(text, &comparison.memory)?;
    }
    if !comparison.start.is_empty() {
        write_start(text, &comparison.start)?;
    }
    Ok(())
}

fn write_cells(text: &mut String, cells: &[Cell], cores: &str) -> fmt::Result {
    let first = cells.first().and_then(|cell| cell.servers.first());
    let name = first.map_or("", |figures| figures.server.as_str());
    writeln!(
        text,
        "Closed loop, {cores}; median (min-max) over rounds; ratios are {name}'s within \
         rounds.\n\n\
         | load | server | k requests/s | CPU ns/request | server, driver cores | \
         {name}'s rate is | {name}'s CPU is | faults |\n|---|---|---|---|---|---|---|---|"
    )?;
    for cell in cells {
        for (index, figures) in cell.servers.iter().enumerate() {
            let load = if index == 0 {
                name_of(&cell.plan)
            } else {
                String::new()
            };
            let thousands = |rate: f64| rate / 1000.0;
            writeln!(
                text,
                "| {load} | {} | {} | {} | {:.2}, {:.2} | {} | {} | {} |",
                figures.server,
                spread(figures.rate, thousands, 0),
                spread(figures.server_ns, |ns| ns, 0),
                figures.server_cores.median,
                figures.driver_cores.median,
                ratio(index, figures.rate_ratio),
                ratio(index, figures.server_ns_ratio),
                figures.faults
            )?;
        }
    }
    writeln!(text)
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

fn write_tail(text: &mut String, tail: &Tail) -> fmt::Result {
    let name = tail
        .servers
        .first()
        .map_or("", |figures| figures.server.name());
    writeln!(
        text,
        "Open loop at {:.0} k requests/s (half of memcached's peak); 20 ms windows, pooled over \
         rounds; us.\n\n\
         | server | windows | p50 | p99 median | p99 quartiles | run p99 | \
         {name}'s p99 is | {name}'s lower quartile is | unfinished |\n\
         |---|---|---|---|---|---|---|---|---|",
        tail.rate / 1000.0
    )?;
    for (index, figures) in tail.servers.iter().enumerate() {
        writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.0}-{:.0} | {:.0} | {} | {} | {} |",
            figures.server.name(),
            figures.windows,
            figures.p50_us,
            figures.p99_us,
            figures.p99_lower_quartile_us,
            figures.p99_upper_quartile_us,
            figures.run_p99_us,
            ratio(index, figures.ratio),
            ratio(index, figures.lower_quartile_ratio),
            figures.unfinished
        )?;
    }
    writeln!(text)
}

fn write_beside(text: &mut String, all: &[Beside]) -> fmt::Result {
    writeln!(
        text,
        "Small requests (95:5, zipf 0.99) in open loop beside large ones; windows of \
         20 ms; us; ratios within rounds.\n\n\
         | load | server | windows | p99 alone | p99 beside | quartiles | beside : alone | \
         driver late, p99 | large/s | unfinished | same bytes without a server, p99 | \
         that : alone | beside : that | ahead alone, p99 | ahead beside, p99 | ahead with \
         the same bytes without a server, p99 |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for one in all {
        let quiet = one.quiet;
        let quiet = quiet.map(|[rounds, all]| format!("; {rounds} of {all} rounds begun quiet"));
        for (index, figures) in one.servers.iter().enumerate() {
            let load = if index == 0 {
                format!(
                    "{:.0} % of peak ({:.0} k/s), {}{}",
                    one.load * 100.0,
                    one.rate / 1000.0,
                    one.company,
                    quiet.as_deref().unwrap_or("")
                )
            } else {
                String::new()
            };
            let control = figures.control.as_ref().map(|one| {
                let (above, left) = (times(one.ratio), times(one.beside));
                format!("{:.0} | {above} | {left}", one.p99_us)
            });
            let ahead = figures.ahead.map(|one| one.map_or_else(String::new, ahead));
            writeln!(
                text,
                "| {load} | {} | {} | {:.0} | {:.0} | {:.0}-{:.0} | {} | \
                 {:.0}, {:.0} | {:.0} | {} | {} | {} |",
                figures.server,
                figures.windows,
                figures.alone_p99_us,
                figures.p99_us,
                figures.p99_lower_quartile_us,
                figures.p99_upper_quartile_us,
                times(figures.ratio),
                figures.late_us[0],
                figures.late_us[1],
                figures.large_rate,
                figures.unfinished,
                control.as_deref().unwrap_or("| |"),
                ahead.join(" | ")
            )?;
        }
    }
    writeln!(text)
}

/// Work ahead of small requests, and that over the work that is ahead of them alone.
fn ahead(figures: AheadFigures) -> String {
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
}

fn times(Spread { median, min, max }: Spread) -> String {
    format!("{median:.2}x ({min:.2}-{max:.2})")
}

fn write_memory(text: &mut String, memory: &[Memory]) -> fmt::Result {
    writeln!(
        text,
        "Items of 16 B + 32 B.\n\n\
         | server | -m, MiB | items | RSS, MiB | B/item | B/item less the empty server | \
         found | refused |\n|---|---|---|---|---|---|---|---|"
    )?;
    for one in memory {
        writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.1} | {:.1} | {:.2} % | {} |",
            one.server.name(),
            one.limit_mib,
            one.items,
            one.resident_mib,
            one.bytes_per_item,
            one.bytes_per_item_net,
            one.found * 100.0,
            one.refused
        )?;
    }
    writeln!(text)
}

fn write_start(text: &mut String, starts: &[Start]) -> fmt::Result {
    writeln!(
        text,
        "From start to first answer, -m 64.\n\n| server | ms |\n|---|---|"
    )?;
    for start in starts {
        let ms = spread(start.ms, |ms| ms, 1);
        writeln!(text, "| {} | {ms} |", start.server.name())?;
    }
    writeln!(text)
}

fn spread(values: Spread, scale: impl Fn(f64) -> f64, digits: usize) -> String {
    let [median, min, max] = [values.median, values.min, values.max].map(scale);
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

/// A ratio to oneself says nothing.
fn ratio(index: usize, values: Spread) -> String {
    match index {
        0 => String::new(),
        _ => times(values),
    }
}
