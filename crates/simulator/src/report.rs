//! A figure's report: one HTML file with its charts and its numbers, that loads nothing.

use curtail_report::{Axis, Chart, Page, Scale, Series, Table, Unit};

use crate::{
    figures::Figure,
    rows::{HEADER, Row, cells, shared_params, words},
};

/// The report of a figure; `command` is what produced it.
pub fn html(figure: &Figure, command: &str, rows: &[Row]) -> String {
    let shared = shared_params(rows);
    let charts = panels(rows).into_iter().filter_map(|(params, metric)| {
        let of_panel = |row: &&Row| row.params == params && row.metric == metric;
        let panel: Vec<&Row> = rows.iter().filter(of_panel).collect();
        let own: Vec<&str> = words(params)
            .filter(|word| !shared.contains(word))
            .collect();
        has_curve(&panel).then(|| Chart {
            title: metric.into(),
            subtitle: own.join(", "),
            x_label: x_label(figure, metric).into(),
            y: Axis::new(Unit::Number, Scale::Spanned),
            series: series(&panel),
            ..Chart::default()
        })
    });
    let mut page = Page::new(figure.title);
    page.top(figure.title);
    page.text(figure.about);
    page.verbatim(command);
    page.soft("Lines are ours, hollow circles the paper's.");
    if !shared.is_empty() {
        page.soft(&format!("Everywhere {}.", shared.join(", ")));
    }
    page.charts(&charts.collect::<Vec<Chart>>());
    page.heading("Every number");
    page.table(&numbers(rows));
    page.html()
}

/// A line for each series of a panel, in order of first appearance.
fn series(rows: &[&Row]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows {
        let index = all.iter().position(|one| one.name == row.series);
        let index = index.unwrap_or_else(|| {
            all.push(Series {
                name: row.series.clone(),
                style: all.len(),
                is_marked: true,
                ..Series::default()
            });
            all.len() - 1
        });
        match row.value {
            Some(value) => all[index].points.push((row.x, value)),
            None => all[index].gaps.push((row.x, "there is no number".into())),
        }
        all[index]
            .paper
            .extend(row.paper.map(|paper| (row.x, paper)));
    }
    all
}

/// What x is: in a figure over load, what was searched for is drawn over the limit that it keeps.
fn x_label(figure: &Figure, metric: &str) -> &'static str {
    let searched = ["slo_", "peak_", "over_best"];
    let is_searched =
        metric.ends_with("under_limit") || searched.iter().any(|prefix| metric.starts_with(prefix));
    match figure.x.contains("load") && is_searched {
        true => "limit of p99 in mean service times (0: none)",
        false => figure.x,
    }
}

/// Every pair of parameters and metric, in order of first appearance.
fn panels(rows: &[Row]) -> Vec<(&str, &str)> {
    let mut panels: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let panel = (row.params.as_str(), row.metric);
        if !panels.contains(&panel) {
            panels.push(panel);
        }
    }
    panels
}

/// Whether there are two places to draw a line between.
fn has_curve(rows: &[&Row]) -> bool {
    let known = |row: &&&Row| row.value.is_some();
    let first = rows.iter().find(known).map(|row| row.x);
    first.is_some_and(|first| rows.iter().filter(known).any(|row| row.x != first))
}

fn numbers(rows: &[Row]) -> Table {
    let mut table = Table::new(&HEADER, &[0, 1, 3]);
    for row in rows {
        let params = row.params.clone();
        table.row(&cells(row, params));
        if row.metric == "within" && row.value == Some(0.0) {
            table.mark();
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::figures;

    #[test]
    fn a_report_draws_every_panel_and_loads_nothing() {
        let row = |metric, x| Row {
            figure: "c4-curve",
            series: "crew".into(),
            params: "cores=64".into(),
            x,
            metric,
            value: Some(x),
            paper: None,
        };
        let rows = [row("p50_ns", 1.0), row("p50_ns", 2.0), row("ewt_max", 1.0)];
        let report = html(&figures()[0], "curtail simulate <x>", &rows);
        // One place is no line.
        assert_eq!(report.matches("<svg").count(), 1);
        assert_eq!(report.matches("<tr>").count(), 4);
        assert!(report.contains("&lt;x&gt;"));
        let loads = ["src=", "href=", "@import", "url(", "http:"];
        assert!(loads.iter().all(|word| !report.contains(word)));
    }
}
