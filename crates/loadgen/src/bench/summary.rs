//! The outcome as a person reads it on a terminal.

use std::fmt::{self, Write};

use curtail_report::Table;

use super::document::Document;
use crate::{measure::WindowQuantiles, report::cell};

/// Tables for all runs; a single run in full.
pub(super) fn text(document: &Document) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, document);
    text
}

fn write_all(text: &mut String, document: &Document) -> fmt::Result {
    let load = &document.load;
    writeln!(
        text,
        "{}; {} connections, {} threads, pipeline {}, {} keys",
        load.name_or_workload(),
        load.connections,
        load.threads,
        load.pipeline,
        load.keys
    )?;
    if let [step] = document.steps.as_slice() {
        match step.report.rate_offered {
            Some(rate) => writeln!(text, "open loop, {rate:.0} requests/s offered")?,
            None => writeln!(text, "closed loop")?,
        }
        text.push_str(&step.report.table());
        write_searches(text, document)?;
        return write_partial(text, document);
    }
    write_steps(text, document)?;
    write_searches(text, document)?;
    write_partial(text, document)?;
    for warning in &document.warnings {
        writeln!(text, "warning: {warning}")?;
    }
    Ok(())
}

fn write_partial(text: &mut String, document: &Document) -> fmt::Result {
    match &document.partial {
        Some(why) => writeln!(text, "PARTIAL: {why}"),
        None => Ok(()),
    }
}

fn write_steps(text: &mut String, document: &Document) -> fmt::Result {
    let table = Table::of(
        &document.steps,
        &[
            ("target", &|step| step.target.clone()),
            ("offered/s", &|step| {
                let offered = step.report.rate_offered;
                offered.map_or("closed".into(), |rate| format!("{rate:.0}"))
            }),
            ("answered/s", &|step| format!("{:.0}", step.report.rate)),
            ("p50 us", &|step| cell(step.report.all.p50_us)),
            ("p99", &|step| cell(step.report.all.p99_us)),
            ("p99.9", &|step| cell(step.report.all.p999_us)),
            ("windows' p99", &|step| quartiles(&step.report.windows)),
            ("late p99", &|step| {
                let late = step.report.driver_lateness.as_ref();
                cell(late.map(|late| late.p99_us))
            }),
            ("slo", &|step| step.slo.unwrap_or("").into()),
        ],
    );
    let mut notes: Vec<String> = Vec::new();
    for step in &document.steps {
        for name in ["p50", "p99", "p99.9"] {
            if let Some(reason) = step.report.all.not_measurable.get(name) {
                let load = step.report.load();
                notes.push(format!("{} {load:.0}/s, {name}: {reason}", step.target));
            }
        }
    }
    text.push_str(&table.left(&[0, 8]).text());
    if !notes.is_empty() {
        writeln!(text, "not measurable (-):")?;
    }
    notes.iter().try_for_each(|note| writeln!(text, "  {note}"))
}

fn quartiles(windows: &WindowQuantiles) -> String {
    match (windows.p99_lower_quartile_us, windows.p99_upper_quartile_us) {
        (Some(low), Some(high)) => format!("{} ({low:.0}-{high:.0})", cell(windows.p99_us)),
        _ => "-".into(),
    }
}

fn write_searches(text: &mut String, document: &Document) -> fmt::Result {
    let slo = document.slo.as_deref().unwrap_or("");
    for (label, found) in &document.searches {
        writeln!(text, "path of {label}:")?;
        let table = Table::of(
            &found.path,
            &[
                ("  offered/s", &|probe| format!("{:.0}", probe.rate)),
                ("verdict", &|probe| probe.verdict.into()),
                ("why", &|probe| probe.reason.clone()),
            ],
        );
        text.push_str(&table.left(&[1, 2]).text());
    }
    for (label, found) in &document.searches {
        writeln!(text, "{label}: {}", found.headline(slo))?;
    }
    Ok(())
}
