//! The report as a page: one file that needs no network, for light and dark screens.
//!
//! From the top: what casts doubt, what came out, latency against load, where the tail comes from
//! (windows, classes), every number, and how it was measured.

mod charts;

use curtail_report::{Card, Page, Table, count, time};

use super::{
    document::{Document, Point, TargetText, highest_kept},
    slo::Verdict,
};

/// Warnings that are listed; more are only counted.
const WARNINGS_MAX: usize = 12;

/// The whole page.
pub(super) fn page(document: &Document) -> String {
    let load = &document.load;
    let name = load.name_or_workload();
    let mut page = Page::new(&format!("{name}: latency against load"));
    let targets: Vec<&str> = document
        .targets
        .iter()
        .map(|target| target.label.as_str())
        .collect();
    page.top(&format!("{}: {name}", targets.join(" and ")));
    page.soft(&format!(
        "{} connections, pipeline {}, {} protocol, {} keys; {} s a run after {} s of warm-up; {}",
        load.connections,
        load.pipeline,
        format!("{:?}", load.protocol).to_lowercase(),
        count(load.keys as f64),
        load.seconds,
        load.warm_up_seconds,
        document.started
    ));
    warnings(document, &mut page);
    page.cards(&cards(document));
    charts::put(document, &mut page);
    table(document, &mut page);
    searches(document, &mut page);
    classes(document, &mut page);
    circumstances(document, &mut page);
    page.html()
}

fn warnings(document: &Document, page: &mut Page) {
    let partial = document.partial.iter();
    let mut lines: Vec<String> = partial
        .map(|why| format!("The measurement is incomplete: {why}"))
        .collect();
    lines.extend(document.warnings.iter().take(WARNINGS_MAX).cloned());
    let more = document.warnings.len().saturating_sub(WARNINGS_MAX);
    if more > 0 {
        lines.push(format!("and {more} more of this kind"));
    }
    if !lines.is_empty() {
        page.warning("Read this first", &lines);
    }
}

/// One card a target: the one number that its runs were for.
fn cards(document: &Document) -> Vec<Card> {
    let card = |target: &TargetText| {
        let points = document.points(&target.label);
        let (number, text) = headline(document, &target.label, &points);
        Card {
            name: target.label.clone(),
            about: target.server.clone().unwrap_or_default(),
            number,
            text,
        }
    };
    document.targets.iter().map(card).collect()
}

fn headline(document: &Document, label: &str, points: &[Point<'_>]) -> (String, String) {
    let slo = document.slo.as_deref().unwrap_or("");
    if let Some(found) = document.searches.get(label) {
        return match found.rate {
            Some(rate) => (
                format!("{}/s", count(rate)),
                format!("highest rate that meets {slo}; {}", found.reason),
            ),
            None if found.undecided.is_some() => ("undecided".into(), found.headline(slo)),
            None => ("none".into(), found.headline(slo)),
        };
    }
    let latency = |point: &Point<'_>| {
        let at = |name: &str| {
            let median = point.median(|report| report.all.get(name));
            median.map_or("not measurable".into(), time)
        };
        format!(
            "p50 {}, p99 {}, p99.9 {}",
            at("p50"),
            at("p99"),
            at("p99.9")
        )
    };
    match points {
        [] => ("-".into(), "was not run".into()),
        [point] => {
            let rate = point.median(|report| Some(report.rate)).unwrap_or(0.0);
            (format!("{}/s", count(rate)), latency(point))
        }
        _ if document.slo.is_some() => {
            let kept = highest_kept(points);
            let stopper = points.iter().find(|point| !point.met());
            let stopper = stopper.map_or("all loads met it".into(), |point| {
                let verdict = point.why_not_met();
                let reason = verdict.map_or("not met", Verdict::reason);
                format!("{}/s did not meet it: {reason}", count(point.load))
            });
            match kept {
                Some(point) => (
                    format!("{}/s", count(point.load)),
                    format!(
                        "highest load that meets {slo}, as all lower ones do; {stopper}; {}",
                        latency(point)
                    ),
                ),
                None => ("none".into(), format!("meets {slo}; {stopper}")),
            }
        }
        [.., last] => {
            let best = points
                .iter()
                .filter_map(|point| point.median(|report| Some(report.rate)))
                .fold(0.0, f64::max);
            let load = count(last.load);
            (
                format!("{}/s", count(best)),
                format!("answered at most; at {load}/s offered: {}", latency(last)),
            )
        }
    }
}

fn table(document: &Document, page: &mut Page) {
    let mut table = Table::default().left(&[0]);
    let mut notes: Vec<String> = Vec::new();
    for target in &document.targets {
        for point in document.points(&target.label) {
            table.named(&row(&target.label, &point, &mut notes));
        }
    }
    page.heading("Every load");
    page.table(&table);
    page.notes("Not measurable, or a bound that was not met:", &notes);
}

/// A number that is not measurable is the number of its note.
fn row(label: &str, point: &Point<'_>, notes: &mut Vec<String>) -> Vec<(&'static str, String)> {
    let load = count(point.load);
    let answered = point.median(|report| Some(report.rate)).unwrap_or(0.0);
    let offered = point.offered();
    let offered = offered.map_or("closed loop".into(), |rate| format!("{rate:.0}"));
    let mut cells = vec![
        ("target", label.to_owned()),
        ("offered/s", offered),
        ("answered/s", format!("{answered:.0}")),
    ];
    for (_, name) in crate::measure::QUANTILES {
        let us = point.median(|report| report.all.get(name));
        let note = || {
            let reason = point.reason(name);
            notes.push(format!("{label} at {load}/s, {name}: {reason}"));
            format!("\u{2013} ({})", notes.len())
        };
        cells.push((name, us.map_or_else(note, time)));
    }
    let windows = point.median(|report| report.windows.p99_us);
    let service = point.median(|report| report.service.as_ref()?.p99_us);
    let late = point.median(|report| Some(report.driver_lateness.as_ref()?.p99_us));
    let verdicts: Vec<&str> = point.steps.iter().filter_map(|step| step.slo).collect();
    let met = verdicts.iter().filter(|verdict| **verdict == "met").count();
    let slo = match verdicts.as_slice() {
        [] => String::new(),
        [only] => (*only).to_string(),
        all => format!("met {met} of {}", all.len()),
    };
    cells.extend([
        ("windows\u{2019} p99", known(windows)),
        ("service p99", known(service)),
        ("driver late p99", known(late)),
        ("slo", slo),
    ]);
    if let Some(verdict) = point.why_not_met().filter(|_| !point.met()) {
        let (name, reason) = (verdict.name(), verdict.reason());
        notes.push(format!("{label} at {load}/s, {name}: {reason}"));
    }
    cells
}

fn known(us: Option<f64>) -> String {
    us.map_or_else(|| "\u{2013}".into(), time)
}

fn searches(document: &Document, page: &mut Page) {
    for (label, found) in &document.searches {
        let table = Table::of(
            found.path.iter().enumerate(),
            &[
                ("run", &|(number, _)| (number + 1).to_string()),
                ("offered/s", &|(_, probe)| format!("{:.0}", probe.rate)),
                ("verdict", &|(_, probe)| probe.verdict.into()),
                ("why", &|(_, probe)| probe.reason.clone()),
            ],
        );
        let table = table.left(&[0, 2, 3]);
        page.heading(&format!("Path of the search: {label}"));
        page.table(&table);
    }
}

/// Classes of every target at the load whose tail is shown.
fn classes(document: &Document, page: &mut Page) {
    let steps = document.targets.iter();
    let steps = steps.filter_map(|target| document.telling_step(&target.label));
    let table = Table::of(
        steps.flat_map(|step| step.report.classes.iter().map(move |class| (step, class))),
        &[
            ("target", &|(step, _)| step.target.clone()),
            ("load/s", &|(step, _)| count(step.report.load())),
            ("class", &|(_, class)| {
                format!("{} {}", class.operation, class.size)
            }),
            ("count", &|(_, class)| class.latency.count.to_string()),
            ("p50", &|(_, class)| known(class.latency.p50_us)),
            ("p99", &|(_, class)| known(class.latency.p99_us)),
            ("p99.9", &|(_, class)| known(class.latency.p999_us)),
            ("longest", &|(_, class)| time(class.latency.max_us)),
        ],
    );
    let table = table.left(&[0, 2]);
    page.heading("Operations and sizes at that load");
    page.table(&table);
}

fn circumstances(document: &Document, page: &mut Page) {
    let machine = &document.machine;
    page.heading("How it was measured");
    page.verbatim(&document.command);
    page.text(&format!("Workload: {}", document.load.workload));
    page.text(&format!(
        "Driver: {} threads on {} ({} cores, {:.0} GiB, Linux {}), curtail {}{}.",
        document.load.threads,
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.kernel,
        machine.version,
        if document.load.spin { ", spinning" } else { "" }
    ));
    for target in &document.targets {
        let server = target.server.as_deref().unwrap_or("");
        page.text(&format!("{}: {} {server}", target.label, target.address));
    }
    page.soft(
        "In open loop a latency counts from the instant a request was meant to be sent, so that \
         waiting in the client is part of it; service time counts from the real sending. A \
         quantile is not measurable when fewer than ten latencies lie beyond it, when more \
         requests than that were never answered, or when more than half of it may be the \
         driver\u{2019}s own lateness. Windows: the quantile inside each short window, then the \
         median over windows, with quartiles.",
    );
}
