//! The charts of the page.

use curtail_report::{Axis, Chart, Page, Scale, Series, Unit, count, time};

use crate::bench::{
    document::{Document, Point, Step},
    slo::Verdict,
};

/// Classes that are drawn; more lines than this tell nothing.
const CLASSES_MAX: usize = 8;

/// Points of a line of percentiles.
const NINES_STEPS: u32 = 60;

pub(super) fn put(document: &Document, page: &mut Page) {
    let has_curve = document
        .targets
        .iter()
        .any(|target| document.points(&target.label).len() > 1);
    if has_curve {
        against_load(document, page);
    }
    let loads: Vec<String> = document
        .targets
        .iter()
        .filter_map(|target| document.telling_step(&target.label))
        .map(|step| format!("{}/s", count(step.report.load())))
        .collect();
    let why = if has_curve {
        "The highest load that every target kept up with, if there is one. "
    } else {
        ""
    };
    let load = match loads.split_first() {
        Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
        _ => loads.join(" and "),
    };
    page.heading(&format!("The tail at {load}"));
    page.soft(&format!(
        "{why}Left: the share of the requests that were faster; dashed is service time, without \
         the wait for the driver and for a free connection. Right: the 99th percentile of every \
         window of the run."
    ));
    page.charts(&[percentiles(document), over_time(document)]);
    if has_curve {
        by_class(document, page);
    }
}

fn against_load(document: &Document, page: &mut Page) {
    let missed = if document.slo.is_some() {
        " A ring is around what missed the bounds."
    } else {
        ""
    };
    page.heading("Latency against load");
    page.soft(&format!(
        "From the instant a request was meant to be sent to its answer; both axes of the four \
         charts are the same. A cross at the upper edge marks what could not be measured, and no \
         line goes across it; point at it for the reason.{missed}"
    ));
    let mut charts: Vec<Chart> = ["p50", "p99", "p99.9"]
        .map(|name| quantile_chart(document, name))
        .into();
    charts.push(window_chart(document));
    let ranges: Vec<(f64, f64)> = charts.iter().filter_map(Chart::y_range).collect();
    let low = ranges.iter().map(|range| range.0).fold(f64::MAX, f64::min);
    let high = ranges.iter().map(|range| range.1).fold(0.0, f64::max);
    for chart in &mut charts {
        chart.y.at_least = (low < high).then_some((low, high));
    }
    page.charts(&charts);
}

/// A chart of latencies; where there is none, it says why.
fn latencies(title: String, x_label: &str, x: Axis, series: Vec<Series>) -> Chart {
    let reason = series.iter().flat_map(|series| &series.gaps).next();
    let reason = reason.map_or("", |(_, reason)| reason);
    Chart {
        nothing: format!("not measurable: {reason}"),
        title,
        x_label: x_label.into(),
        x,
        y: Axis::new(Unit::Micros, Scale::Logarithmic),
        series,
        ..Chart::default()
    }
}

/// A chart of latencies over offered load, as wide as all others.
fn over_load(document: &Document, title: String, series: Vec<Series>) -> Chart {
    let loads = document.steps.iter().map(|step| step.report.load());
    let load_min = loads.fold(f64::MAX, f64::min);
    let x = Axis {
        unit: Unit::Count,
        scale: Scale::Fitted,
        at_least: Some((load_min, document.load_max())),
    };
    latencies(title, "offered requests/s", x, series)
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
        bound: bound.map(|(_, us)| (*us, format!("{name} < {}", time(*us)))),
        ..over_load(
            document,
            format!("{name} of all requests"),
            series.collect(),
        )
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
    let title = format!("p99 inside windows of {window_ms:.0} ms (median, quartiles)");
    over_load(document, title, series.collect())
}

/// Latency by share of the requests, and service time beside it.
fn percentiles(document: &Document) -> Chart {
    let mut series = Vec::new();
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
            let what = if is_service { ", service time" } else { "" };
            series.push(Series {
                name: format!("{}{what}", target.label),
                style,
                is_dashed: is_service,
                points: points.collect(),
                ..Series::default()
            });
        }
    }
    latencies(
        "latency by share of the requests".into(),
        "share of the requests that were faster",
        Axis {
            unit: Unit::Nines,
            scale: Scale::FromZero,
            at_least: Some((0.0, 3.0)),
        },
        series,
    )
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
    latencies(
        "p99 of every window over time".into(),
        "time into the run",
        Axis::new(Unit::Seconds, Scale::FromZero),
        series.collect(),
    )
}

/// A chart for each target with a line for each class, where there are several.
fn by_class(document: &Document, page: &mut Page) {
    let mut names: Vec<String> = Vec::new();
    for class in document.steps.iter().flat_map(|step| &step.report.classes) {
        let name = class_name(class.operation, &class.size);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(CLASSES_MAX);
    if names.len() < 2 {
        return;
    }
    page.heading("p99 by operation and size");
    page.soft("A class needs 1,000 requests for a p99.");
    let charts = document.targets.iter().map(|target| {
        let points = document.points(&target.label);
        // Not the targets' colours.
        let series = (document.targets.len()..).zip(&names).map(|(style, name)| {
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
                style: style % CLASSES_MAX,
                is_marked: true,
                points: points.iter().filter_map(at).collect(),
                gaps: without(&points, at, |_| "not measurable at this load".into()),
                ..Series::default()
            }
        });
        let title = format!("{}: p99 by class", target.label);
        over_load(document, title, series.collect())
    });
    let charts: Vec<Chart> = charts.filter(|chart| !chart.is_empty()).collect();
    page.charts(&charts);
}

fn class_name(operation: &str, size: &str) -> String {
    format!("{operation} {size}").trim_end().to_string()
}
