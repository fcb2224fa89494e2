//! The timeline as a page: one chart below the other over the same seconds.
//!
//! Latencies stand on a logarithmic axis, everything else on a linear one from 0.

use curtail_report::{Axis, Chart, Page, Scale, Series, Unit};

use super::{Second, table};
use crate::drive::Plan;

/// A line: its name, its colour, and its column.
type Line = (&'static str, usize, &'static str);

/// The whole page.
pub(super) fn page(plan: &Plan, label: &str, rows: &[Second]) -> String {
    let mut page = Page::new(&format!("{label}: timeline"));
    page.top(&format!("{label}: second by second"));
    page.soft(&format!(
        "{}; {} connections. Latencies from the instant a request was meant to be sent, of the \
         requests of one second; the plan is the one at the second's end.",
        plan.load.describe(),
        plan.connections
    ));
    for strip in strips(rows) {
        page.charts(&[strip]);
    }
    page.heading("Every number");
    page.table(&table(rows));
    page.html()
}

fn strips(rows: &[Second]) -> [Chart; 5] {
    let latency = Axis::new(Unit::Micros, Scale::Logarithmic);
    let number = Axis::new(Unit::Count, Scale::FromZero);
    let strip = |title: &str, y: &Axis, lines: &[Line]| Chart {
        title: title.into(),
        x: Axis {
            unit: Unit::Seconds,
            scale: Scale::FromZero,
            at_least: Some((0.0, rows.len() as f64)),
        },
        y: y.clone(),
        series: lines.iter().map(|line| series(line, rows)).collect(),
        nothing: "no values".into(),
        is_strip: true,
        ..Chart::default()
    };
    [
        strip(
            "Requests for large values, per cent of all",
            &number,
            &[("offered", 6, "large_percent")],
        ),
        strip(
            "Small requests",
            &latency,
            &[("p99", 1, "small_p99_us"), ("p50", 0, "small_p50_us")],
        ),
        strip(
            "Other requests",
            &latency,
            &[("p99", 1, "large_p99_us"), ("p50", 0, "large_p50_us")],
        ),
        strip(
            "Workers by role (if 0 serve large values, one is on standby)",
            &number,
            &[("small", 2, "small_cores"), ("large", 3, "large_cores")],
        ),
        strip(
            "Threshold in bytes: from here on values are large",
            &number,
            &[("threshold", 4, "threshold_bytes")],
        ),
    ]
}

/// The values of seconds; no line goes across a second of which nothing is known.
fn series((name, style, column): &Line, rows: &[Second]) -> Series {
    let known = rows.iter().filter_map(|row| Some((row, row.get(column)?)));
    Series {
        name: (*name).into(),
        style: *style,
        points: known.map(|(row, y)| (row.second as f64 + 0.5, y)).collect(),
        apart: Some(1.5),
        ..Series::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strip_has_its_lines_and_silence_is_said() {
        let row = |second| {
            let mut row = Second::new(second);
            row.set("small_p99_us", Some(80.0 + second as f64));
            row.set("small_p50_us", Some(20.0));
            row.set("small_cores", Some(2.0));
            row.set("large_cores", Some(0.0));
            row
        };
        let rows: Vec<Second> = (0..5).map(row).collect();
        let lines = |rows: &[Second]| strips(rows).map(|strip| strip.series).concat();
        let known = lines(&rows);
        let known = known.iter().filter(|line| line.points.len() == 5);
        assert_eq!(known.count(), 4, "two of small requests, two of cores");
        let drawn = strips(&rows).map(|strip| strip.svg()).concat();
        assert_eq!(drawn.matches("no values").count(), 3);
        let mut holes = rows.clone();
        holes[3].numbers.remove("small_p99_us");
        let line = &lines(&holes)[1];
        let apart = line.points[3].0 - line.points[2].0;
        assert!(line.apart.is_some_and(|most| most < apart), "{line:?}");
    }
}
