//! A figure's report: one HTML file with its charts and its numbers, that loads nothing.

use std::fmt::Write as _;

use crate::{
    figures::Figure,
    plot::{escape, svg},
    rows::{Row, difference, number, shared_params, words},
};

/// The report of a figure; `command` is what produced it.
pub fn html(figure: &Figure, command: &str, rows: &[Row]) -> String {
    let mut charts = String::new();
    let shared = shared_params(rows);
    for (params, metric) in panels(rows) {
        let of_panel = |row: &&Row| row.params == params && row.metric == metric;
        let panel: Vec<&Row> = rows.iter().filter(of_panel).collect();
        if has_curve(&panel) {
            let own = words(params).filter(|word| !shared.contains(word));
            let own: Vec<&str> = own.collect();
            let drawing = svg(metric, &own.join(", "), x_label(figure, metric), &panel);
            let _ = write!(charts, "<figure>{drawing}</figure>");
        }
    }
    let (title, about) = (escape(figure.title), escape(figure.about));
    let (command, numbers) = (escape(command), numbers(rows));
    let shared = match shared.is_empty() {
        true => String::new(),
        false => format!(" Everywhere {}.", escape(&shared.join(", "))),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{about}</p>\n<p><code>{command}</code></p>\n\
         <p class=\"key\">Lines are ours, circles the paper's.{shared}</p>\n\
         <div class=\"charts\">{charts}</div>\n{numbers}</body></html>\n"
    )
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

fn numbers(rows: &[Row]) -> String {
    let mut text = String::from(
        "<table><thead><tr><th>series<th>params<th>x<th>metric<th>value<th>paper<th>differs\
         </tr></thead><tbody>\n",
    );
    let cell = |value: Option<f64>| value.map_or_else(String::new, number);
    for row in rows {
        let fails = row.metric == "within" && row.value == Some(0.0);
        let class = if fails { " class=\"fails\"" } else { "" };
        let _ = writeln!(
            text,
            "<tr{class}><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escape(&row.series),
            escape(&row.params),
            number(row.x),
            row.metric,
            cell(row.value),
            cell(row.paper),
            difference(row),
        );
    }
    text + "</tbody></table>\n"
}

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;color:#1a1a1a;max-width:1180px;margin:2em auto;\
padding:0 1em}\
h1{font-size:1.3em}p{max-width:48em}.key{color:#555}\
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(480px,1fr));gap:1em}\
figure{margin:0;border:1px solid #ddd;border-radius:4px;padding:.5em}\
svg{width:100%;height:auto}.name{font:600 13px system-ui,sans-serif}\
.tick,.label{font:11px system-ui,sans-serif;fill:#444}.grid{stroke:#e6e6e6}\
table{border-collapse:collapse;margin-top:2em;font-size:13px}\
th,td{padding:.15em .8em .15em 0;border-bottom:1px solid #eee;text-align:left}\
.fails td{background:#fdd}code{background:#f4f4f4;padding:.1em .3em}";

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
        let loads = ["src=", "href=", "@import", "url("];
        assert!(loads.iter().all(|word| !report.contains(word)));
    }
}
