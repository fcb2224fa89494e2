//! The charts of the page.

use std::fmt::Write as _;

use crate::bench::{
    document::{Document, Point, Step},
    plot::{self, Axis, Chart, Series, escape},
    slo::Verdict,
};

/// Classes that are drawn; more lines than this tell nothing.
const CLASSES_MAX: usize = 8;

/// Points of a line of percentiles.
const NINES_STEPS: u32 = 60;

pub(super) fn put(document: &Document, body: &mut String) {
    let has_curve = document
        .targets
        .iter()
        .any(|target| document.points(&target.label).len() > 1);
    if document.targets.len() > 1 {
        legend(document, body);
    }
    if has_curve {
        against_load(document, body);
    }
    let loads: Vec<String> = document
        .targets
        .iter()
        .filter_map(|target| document.telling_step(&target.label))
        .map(|step| format!("{}/s", plot::rate(step.report.load())))
        .collect();
    let why = if has_curve {
        "The highest load that all kept up with, if there is one. "
    } else {
        ""
    };
    let load = match loads.split_first() {
        Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
        _ => loads.join(" and "),
    };
    let _ = write!(
        body,
        "<h2>The tail at {load}</h2><p class=\"soft\">{why}Left: the share of the requests that \
         were faster; dashed is service time, without the wait for the driver and for a free \
         connection. Right: the 99th percentile of every window of the run.</p>\
         <div class=\"charts\">"
    );
    body.push_str(&percentiles(document).svg());
    body.push_str(&over_time(document).svg());
    body.push_str("</div>");
    by_class(document, has_curve, body);
}

fn legend(document: &Document, body: &mut String) {
    body.push_str("<div class=\"legend\">");
    for (style, target) in document.targets.iter().enumerate() {
        let key = plot::key(style, false);
        let _ = write!(body, "<span>{key}{}</span>", escape(&target.label));
    }
    body.push_str("</div>");
}

fn against_load(document: &Document, body: &mut String) {
    let missed = if document.slo.is_some() {
        " A ring is around what missed the bounds."
    } else {
        ""
    };
    let _ = write!(
        body,
        "<h2>Latency against load</h2><p class=\"soft\">From the instant a request was meant to be \
         sent to its answer; both axes of the four charts are the same. A cross at the upper edge \
         marks what could not be measured, and no line goes across it; point at it for the \
         reason.{missed}</p><div class=\"charts\">",
    );
    let mut charts: Vec<Chart> = ["p50", "p99", "p99.9"]
        .map(|name| quantile_chart(document, name))
        .into();
    charts.push(window_chart(document));
    let load_max = document.load_max();
    let ranges: Vec<(f64, f64)> = charts.iter().filter_map(Chart::y_range).collect();
    let low = ranges.iter().map(|range| range.0).fold(f64::MAX, f64::min);
    let high = ranges.iter().map(|range| range.1).fold(0.0, f64::max);
    for chart in &mut charts {
        chart.y_at_least = (low < high).then_some((low, high));
        chart.x_at_least = load_max;
        body.push_str(&chart.svg());
    }
    body.push_str("</div>");
}

/// One quantile of every target.
fn quantile_chart(document: &Document, name: &'static str) -> Chart {
    let series = document.targets.iter().enumerate().map(|(style, target)| {
        let points = document.points(&target.label);
        let at = |point: &Point<'_>| point.median(|report| report.all.get(name));
        Series {
            name: target.label.clone(),
            style,
            is_marked: true,
            points: points
                .iter()
                .filter_map(|point| Some((point.load, at(point)?)))
                .collect(),
            gaps: without(&points, at, |point| point.reason(name))
                .into_iter()
                .chain(not_run(document, &points))
                .collect(),
            missed: missed(&points),
            ..Series::default()
        }
    });
    let bound = document.bounds.iter().find(|(bound, _)| *bound == name);
    Chart {
        title: format!("{name} of all requests"),
        x_label: "offered requests/s".into(),
        series: series.collect(),
        names_ends: true,
        bound: bound.map(|(_, us)| (*us, format!("{name} < {}", plot::time(*us)))),
        ..Chart::default()
    }
}

/// The points that did not meet what was to be kept, and why.
fn missed(points: &[Point<'_>]) -> Vec<(f64, String)> {
    let why = |point: &Point<'_>| {
        let verdict = point.why_not_met().filter(|_| !point.met())?;
        let why = format!("{}: {}", verdict.name(), verdict.reason());
        matches!(verdict, Verdict::Missed(_)).then_some((point.load, why))
    };
    points.iter().filter_map(why).collect()
}

/// The places at which a value is missing, and why.
fn without<T>(
    points: &[Point<'_>],
    value: impl Fn(&Point<'_>) -> Option<T>,
    reason: impl Fn(&Point<'_>) -> String,
) -> Vec<(f64, String)> {
    let missing = points.iter().filter(|point| value(point).is_none());
    missing.map(|point| (point.load, reason(point))).collect()
}

/// The loads of other targets at which this one was not run. A search goes its own way for each.
fn not_run(document: &Document, points: &[Point<'_>]) -> Vec<(f64, String)> {
    if !document.searches.is_empty() {
        return Vec::new();
    }
    let has_run = |load: f64| points.iter().any(|point| point.offered() == Some(load));
    let offered = document
        .steps
        .iter()
        .filter_map(|step| step.report.rate_offered);
    let mut loads: Vec<f64> = offered.filter(|load| !has_run(*load)).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
        .into_iter()
        .map(|load| (load, "was not run".into()))
        .collect()
}

/// Why the windows of a load have no quantile.
fn window_reason(point: &Point<'_>) -> String {
    let reason = |step: &&Step| step.report.windows.not_measurable.clone();
    let reason = point.steps.iter().rev().find_map(reason);
    reason.unwrap_or_else(|| "too few windows".into())
}

/// The median over windows of their p99, with a band between the quartiles.
fn window_chart(document: &Document) -> Chart {
    let series = document.targets.iter().enumerate().map(|(style, target)| {
        let points = document.points(&target.label);
        let band = |point: &Point<'_>| {
            let low = point.median(|report| report.windows.p99_lower_quartile_us)?;
            let high = point.median(|report| report.windows.p99_upper_quartile_us)?;
            Some((point.load, low, high))
        };
        let middle = |point: &Point<'_>| {
            let us = point.median(|report| report.windows.p99_us)?;
            Some((point.load, us))
        };
        Series {
            name: target.label.clone(),
            style,
            is_marked: true,
            points: points.iter().filter_map(middle).collect(),
            band: points.iter().filter_map(band).collect(),
            gaps: without(&points, middle, window_reason),
            ..Series::default()
        }
    });
    let window_ms = document
        .steps
        .first()
        .map_or(0.0, |step| step.report.windows.window_ms);
    Chart {
        title: format!("p99 inside windows of {window_ms:.0} ms (median, quartiles)"),
        x_label: "offered requests/s".into(),
        series: series.collect(),
        names_ends: true,
        ..Chart::default()
    }
}

/// Latency by share of the requests, and service time beside it.
fn percentiles(document: &Document) -> Chart {
    let mut chart = Chart {
        title: "latency by share of the requests".into(),
        x_label: "share of the requests that were faster".into(),
        x: Axis::Nines,
        ..Chart::default()
    };
    for (style, target) in document.targets.iter().enumerate() {
        let Some(step) = document.telling_step(&target.label) else {
            continue;
        };
        let recorder = step.report.recorder();
        for is_service in [false, true] {
            if is_service && step.report.service.is_none() {
                continue;
            }
            let Ok(histogram) = recorder.sum(is_service, |_| true) else {
                continue;
            };
            let judge = recorder.judge(!is_service);
            let nines =
                (0..=NINES_STEPS).map(|step| 5.0 * f64::from(step) / f64::from(NINES_STEPS));
            let points = nines.map_while(|nines| {
                let us = judge.quantile(&histogram, 1.0 - 10_f64.powf(-nines)).ok()?;
                Some((nines, us))
            });
            chart.series.push(Series {
                name: target.label.clone(),
                style,
                is_dashed: is_service,
                points: points.collect(),
                ..Series::default()
            });
        }
    }
    chart
}

/// The p99 of every window over the time of a run.
fn over_time(document: &Document) -> Chart {
    let series = document
        .targets
        .iter()
        .enumerate()
        .filter_map(|(style, target)| {
            let step = document.telling_step(&target.label)?;
            Some(Series {
                name: target.label.clone(),
                style,
                points: step.report.recorder().window_each(0.99),
                apart: Some(1.5 * step.report.windows.window_ms / 1000.0),
                ..Series::default()
            })
        });
    Chart {
        title: "p99 of every window over time".into(),
        x_label: "seconds".into(),
        x: Axis::Time,
        series: series.collect(),
        ..Chart::default()
    }
}

/// A chart for each target with a line for each class, where there are several.
fn by_class(document: &Document, has_curve: bool, body: &mut String) {
    let mut names: Vec<String> = Vec::new();
    for class in document.steps.iter().flat_map(|step| &step.report.classes) {
        let name = class_name(class.operation, &class.size);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(CLASSES_MAX);
    if !has_curve || names.len() < 2 {
        return;
    }
    body.push_str(
        "<h2>p99 by operation and size</h2><p class=\"soft\">A class needs 1,000 requests for a \
         p99.</p><div class=\"legend\">",
    );
    // Not the targets' colours.
    let first = document.targets.len();
    for (style, name) in (first..).zip(&names) {
        let _ = write!(
            body,
            "<span>{}{}</span>",
            plot::key(style, false),
            escape(name)
        );
    }
    body.push_str("</div><div class=\"charts\">");
    for target in &document.targets {
        let points = document.points(&target.label);
        let series = (first..).zip(&names).map(|(style, name)| {
            let at = |point: &Point<'_>| {
                let us = point.median(|report| {
                    let own = report.classes.iter();
                    let mut own =
                        own.filter(|class| class_name(class.operation, &class.size) == *name);
                    own.next()?.latency.p99_us
                })?;
                Some((point.load, us))
            };
            Series {
                name: name.clone(),
                style,
                is_marked: true,
                points: points.iter().filter_map(at).collect(),
                gaps: without(&points, at, |_| "not measurable at this load".into()),
                ..Series::default()
            }
        });
        let chart = Chart {
            title: format!("{}: p99 by class", target.label),
            x_label: "offered requests/s".into(),
            series: series.collect(),
            x_at_least: document.load_max(),
            ..Chart::default()
        };
        if !chart.is_empty() {
            body.push_str(&chart.svg());
        }
    }
    body.push_str("</div>");
}

fn class_name(operation: &str, size: &str) -> String {
    format!("{operation} {size}").trim_end().to_string()
}
