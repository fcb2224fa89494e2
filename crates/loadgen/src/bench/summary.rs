//! The outcome as a person reads it on a terminal.

use std::fmt::{self, Write};

use super::document::{Document, Step};
use crate::report::cell;

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
        return write_searches(text, document);
    }
    write_steps(text, document)?;
    write_searches(text, document)?;
    for warning in &document.warnings {
        writeln!(text, "warning: {warning}")?;
    }
    Ok(())
}

fn write_steps(text: &mut String, document: &Document) -> fmt::Result {
    let label_width = document
        .targets
        .iter()
        .map(|target| target.label.len())
        .max()
        .unwrap_or(0)
        .max("target".len());
    writeln!(
        text,
        "{:<label_width$}{:>10}{:>10}{:>11}{:>11}{:>11}{:>26}{:>10}  slo",
        "target", "offered", "answered", "p50 us", "p99", "p99.9", "windows' p99", "late p99"
    )?;
    let mut notes: Vec<String> = Vec::new();
    for step in &document.steps {
        write_step(text, step, label_width)?;
        for name in ["p50", "p99", "p99.9"] {
            if let Some(reason) = step.report.all.not_measurable.get(name) {
                let load = step.report.load();
                notes.push(format!("{} {load:.0}/s, {name}: {reason}", step.target));
            }
        }
    }
    if !notes.is_empty() {
        writeln!(text, "not measurable (-):")?;
    }
    notes.iter().try_for_each(|note| writeln!(text, "  {note}"))
}

fn write_step(text: &mut String, step: &Step, label_width: usize) -> fmt::Result {
    let report = &step.report;
    let windows = &report.windows;
    let quartiles = match (windows.p99_lower_quartile_us, windows.p99_upper_quartile_us) {
        (Some(low), Some(high)) => format!("{} ({low:.0}-{high:.0})", cell(windows.p99_us)),
        _ => "-".into(),
    };
    let offered = report
        .rate_offered
        .map_or("closed".into(), |rate| format!("{rate:.0}"));
    let late = report.driver_lateness.as_ref().map(|late| late.p99_us);
    writeln!(
        text,
        "{:<label_width$}{offered:>10}{:>10.0}{:>11}{:>11}{:>11}{quartiles:>26}{:>10}  {}",
        step.target,
        report.rate,
        cell(report.all.p50_us),
        cell(report.all.p99_us),
        cell(report.all.p999_us),
        cell(late),
        step.slo.unwrap_or("")
    )
}

fn write_searches(text: &mut String, document: &Document) -> fmt::Result {
    let slo = document.slo.as_deref().unwrap_or("");
    for (label, found) in &document.searches {
        writeln!(text, "path of {label}:")?;
        for probe in &found.path {
            writeln!(
                text,
                "  {:>10.0}/s  {}  {}",
                probe.rate, probe.verdict, probe.reason
            )?;
        }
    }
    for (label, found) in &document.searches {
        match found.rate {
            Some(rate) => {
                writeln!(
                    text,
                    "{label}: {rate:.0} requests/s keep {slo}; {}",
                    found.reason
                )?;
            }
            None => writeln!(text, "{label}: no rate keeps {slo}; {}", found.reason)?,
        }
    }
    Ok(())
}
