//! The report as a page: one file that needs no network, for light and dark screens.
//!
//! From the top: what casts doubt, what came out, latency against load, where the tail comes from
//! (windows, classes), every number, and how it was measured.

mod charts;

use std::fmt::Write as _;

use super::{
    document::{Document, Point, highest_kept},
    plot::{self, escape},
    slo::Verdict,
};

const STYLE: &str = include_str!("page.css");

/// Warnings that are listed; more are only counted.
const WARNINGS_MAX: usize = 12;

/// The whole page.
pub(super) fn page(document: &Document) -> String {
    let mut body = String::new();
    head(document, &mut body);
    warnings(document, &mut body);
    cards(document, &mut body);
    charts::put(document, &mut body);
    table(document, &mut body);
    searches(document, &mut body);
    classes(document, &mut body);
    circumstances(document, &mut body);
    let title = escape(document.load.name_or_workload());
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}: latency against load</title><style>{STYLE}</style></head>\n\
         <body>{body}</body></html>\n"
    )
}

fn head(document: &Document, body: &mut String) {
    let load = &document.load;
    let targets: Vec<String> = document
        .targets
        .iter()
        .map(|target| escape(&target.label))
        .collect();
    let (seconds, warm_up) = (load.seconds, load.warm_up_seconds);
    let _ = write!(
        body,
        "<h1>{}: {}</h1><p class=\"soft\">{} connections, pipeline {}, {} protocol, {} keys; \
         {seconds} s a run after {warm_up} s of warm-up; {}</p>",
        targets.join(" and "),
        escape(load.name_or_workload()),
        load.connections,
        load.pipeline,
        format!("{:?}", load.protocol).to_lowercase(),
        plot::rate(load.keys as f64),
        document.started
    );
}

fn warnings(document: &Document, body: &mut String) {
    if document.warnings.is_empty() && document.partial.is_none() {
        return;
    }
    body.push_str("<div class=\"warn\" role=\"alert\"><b>&#9888; Read this first</b><ul>");
    if let Some(why) = &document.partial {
        let why = escape(why);
        let _ = write!(body, "<li>A part of what was asked for: {why}</li>");
    }
    for warning in document.warnings.iter().take(WARNINGS_MAX) {
        let _ = write!(body, "<li>{}</li>", escape(warning));
    }
    let more = document.warnings.len().saturating_sub(WARNINGS_MAX);
    if more > 0 {
        let _ = write!(body, "<li>and {more} more of this kind</li>");
    }
    body.push_str("</ul></div>");
}

/// One card a target: the one number that its runs were for.
fn cards(document: &Document, body: &mut String) {
    body.push_str("<div class=\"cards\">");
    for (style, target) in document.targets.iter().enumerate() {
        let points = document.points(&target.label);
        let (number, text) = headline(document, &target.label, &points);
        let server = target.server.as_deref().map_or(String::new(), |server| {
            format!(" <span class=\"soft\">{}</span>", escape(server))
        });
        let _ = write!(
            body,
            "<div class=\"card s{}\">{}{server}<b>{}</b>{}</div>",
            style % plot::STYLES,
            escape(&target.label),
            escape(&number),
            escape(&text)
        );
    }
    body.push_str("</div>");
}

fn headline(document: &Document, label: &str, points: &[Point<'_>]) -> (String, String) {
    let slo = document.slo.as_deref().unwrap_or("");
    if let Some(found) = document.searches.get(label) {
        return match found.rate {
            Some(rate) => (
                format!("{}/s", plot::rate(rate)),
                format!("requests keep {slo}; {}", found.reason),
            ),
            None if found.undecided.is_some() => ("no answer".into(), found.headline(slo)),
            None => ("none".into(), found.headline(slo)),
        };
    }
    let latency = |point: &Point<'_>| {
        let at = |name: &str| {
            let median = point.median(|report| report.all.get(name));
            median.map_or("not measurable".into(), plot::time)
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
            (format!("{}/s", plot::rate(rate)), latency(point))
        }
        _ if document.slo.is_some() => {
            let kept = highest_kept(points);
            let stopper = points.iter().find(|point| !point.met());
            let stopper = stopper.map_or("all loads did".into(), |point| {
                let verdict = point.why_not_met();
                let reason = verdict.map_or("not met", Verdict::reason);
                format!("{}/s did not: {reason}", plot::rate(point.load))
            });
            match kept {
                Some(point) => (
                    format!("{}/s", plot::rate(point.load)),
                    format!(
                        "keep {slo}, as all lower loads do; {stopper}; {}",
                        latency(point)
                    ),
                ),
                None => ("none".into(), format!("keeps {slo}; {stopper}")),
            }
        }
        [.., last] => {
            let best = points
                .iter()
                .filter_map(|point| point.median(|report| Some(report.rate)))
                .fold(0.0, f64::max);
            let load = plot::rate(last.load);
            (
                format!("{}/s", plot::rate(best)),
                format!("answered at most; at {load}/s offered: {}", latency(last)),
            )
        }
    }
}

fn table(document: &Document, body: &mut String) {
    body.push_str(
        "<h2>Every load</h2><div class=\"scroll\"><table><tr><th>target</th><th>offered/s</th>\
         <th>answered/s</th><th>p50</th><th>p90</th><th>p95</th><th>p99</th><th>p99.9</th>\
         <th>p99.99</th><th>windows&rsquo; p99</th><th>service p99</th>\
         <th>driver late p99</th><th>slo</th></tr>",
    );
    let mut notes: Vec<String> = Vec::new();
    for target in &document.targets {
        for point in document.points(&target.label) {
            row(&target.label, &point, &mut notes, body);
        }
    }
    body.push_str("</table></div>");
    if !notes.is_empty() {
        body.push_str("<p class=\"soft\">Not measurable:</p><ol class=\"soft\">");
        for note in &notes {
            let _ = write!(body, "<li>{}</li>", escape(note));
        }
        body.push_str("</ol>");
    }
}

fn row(label: &str, point: &Point<'_>, notes: &mut Vec<String>, body: &mut String) {
    let offered = point
        .steps
        .first()
        .and_then(|step| step.report.rate_offered);
    let answered = point.median(|report| Some(report.rate)).unwrap_or(0.0);
    let _ = write!(
        body,
        "<tr><td>{}</td><td>{}</td><td>{answered:.0}</td>",
        escape(label),
        offered.map_or("closed loop".into(), |rate| format!("{rate:.0}"))
    );
    for (_, name) in crate::measure::QUANTILES {
        match point.median(|report| report.all.get(name)) {
            Some(us) => {
                let _ = write!(body, "<td>{}</td>", plot::time(us));
            }
            None => {
                let reason = point.reason(name);
                let note = format!("{label} at {}/s, {name}: {reason}", plot::rate(point.load));
                notes.push(note);
                let _ = write!(
                    body,
                    "<td title=\"{}\">&ndash; <sup>{}</sup></td>",
                    escape(&reason),
                    notes.len()
                );
            }
        }
    }
    let optional = |value: Option<f64>| value.map_or("&ndash;".into(), plot::time);
    let windows = point.median(|report| report.windows.p99_us);
    let service = point.median(|report| report.service.as_ref()?.p99_us);
    let late = point.median(|report| Some(report.driver_lateness.as_ref()?.p99_us));
    let verdicts: Vec<&str> = point.steps.iter().filter_map(|step| step.slo).collect();
    let met = verdicts.iter().filter(|verdict| **verdict == "met").count();
    let verdict = match verdicts.as_slice() {
        [] => String::new(),
        [only] => (*only).to_string(),
        all => format!("met {met} of {}", all.len()),
    };
    let _ = write!(
        body,
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        optional(windows),
        optional(service),
        optional(late),
        escape(&verdict)
    );
}

fn searches(document: &Document, body: &mut String) {
    for (label, found) in &document.searches {
        let _ = write!(
            body,
            "<h2>Path of the search: {}</h2><div class=\"scroll\"><table><tr><th>run</th>\
             <th>offered/s</th><th>verdict</th><th>why</th></tr>",
            escape(label)
        );
        for (number, probe) in found.path.iter().enumerate() {
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{:.0}</td><td>{}</td><td>{}</td></tr>",
                number + 1,
                probe.rate,
                probe.verdict,
                escape(&probe.reason)
            );
        }
        body.push_str("</table></div>");
    }
}

/// Classes of every target at the load whose tail is shown.
fn classes(document: &Document, body: &mut String) {
    let mut rows = String::new();
    for target in &document.targets {
        let Some(step) = document.telling_step(&target.label) else {
            continue;
        };
        for class in &step.report.classes {
            let cell = |name: &str| class.latency.get(name).map_or("&ndash;".into(), plot::time);
            let _ = write!(
                rows,
                "<tr><td>{}</td><td>{}</td><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td></tr>",
                escape(&target.label),
                plot::rate(step.report.load()),
                class.operation,
                escape(&class.size),
                class.latency.count,
                cell("p50"),
                cell("p99"),
                cell("p99.9"),
                plot::time(class.latency.max_us)
            );
        }
    }
    let _ = write!(
        body,
        "<h2>Operations and sizes at that load</h2><div class=\"scroll\"><table><tr>\
         <th>target</th><th>load/s</th><th>class</th><th>count</th><th>p50</th><th>p99</th>\
         <th>p99.9</th><th>longest</th></tr>{rows}</table></div>"
    );
}

fn circumstances(document: &Document, body: &mut String) {
    let machine = &document.machine;
    let _ = write!(
        body,
        "<h2>How it was measured</h2><pre>{}</pre><p>Workload: <code>{}</code></p>\
         <p>Driver: {} threads on {} ({} cores, {:.0} GiB, Linux {}), curtail {}{}.</p>",
        escape(&document.command),
        escape(&document.load.workload),
        document.load.threads,
        escape(&machine.processor),
        machine.cores,
        machine.memory_gib,
        escape(&machine.kernel),
        machine.version,
        if document.load.spin { ", spinning" } else { "" }
    );
    for target in &document.targets {
        let _ = write!(
            body,
            "<p>{}: {} {}</p>",
            escape(&target.label),
            escape(&target.address),
            escape(target.server.as_deref().unwrap_or(""))
        );
    }
    body.push_str(
        "<p class=\"soft\">In open loop a latency counts from the instant a request was meant to \
         be sent, so that waiting in the client is part of it; service time counts from the real \
         sending. A quantile is not measurable when fewer than ten latencies lie beyond it, when \
         more requests than that were never answered, or when more than half of it may be the \
         driver&rsquo;s own lateness. Windows: the quantile inside each short window, then the \
         median over windows, with quartiles.</p>",
    );
}
