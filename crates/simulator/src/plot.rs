//! One chart as SVG: a line for each series, a hollow circle for each number of the paper.
//!
//! The drawing carries its own style and loads nothing, so a report can be read offline. The
//! vertical axis is logarithmic when the numbers span more than a factor of 30.

use std::fmt::Write as _;

use crate::rows::{Row, number};

/// Rows of one metric and one set of parameters, drawn over x; `subtitle` may be empty.
pub(crate) fn svg(title: &str, subtitle: &str, x_label: &str, rows: &[&Row]) -> String {
    let Some(scales) = Scales::of(rows) else {
        return String::new();
    };
    let mut series: Vec<&str> = Vec::new();
    for row in rows {
        if !series.contains(&row.series.as_str()) {
            series.push(&row.series);
        }
    }
    let mut body = String::new();
    scales.grid(&mut body);
    for (index, name) in series.iter().enumerate() {
        let own: Vec<&&Row> = rows.iter().filter(|row| row.series == *name).collect();
        scales.line(&mut body, &own, index);
        legend(&mut body, name, index);
    }
    let (middle, below) = ((LEFT + RIGHT) / 2.0, BOTTOM + 34.0);
    let _ = write!(
        body,
        "<text class=\"label\" x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
        escape(x_label)
    );
    let height = BOTTOM + 56.0 + 18.0 * series.len().div_ceil(LEGEND_COLUMNS) as f64;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>{0}</title><text class=\"name\" x=\"{LEFT}\" y=\"18\">{0}</text>\
         <text class=\"tick\" x=\"{LEFT}\" y=\"34\">{1}</text>{body}</svg>",
        escape(title),
        escape(subtitle)
    )
}

/// Text that cannot end an element.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// From numbers to places.
struct Scales {
    x: (f64, f64),
    y: (f64, f64),
    logarithmic: bool,
}

impl Scales {
    fn of(rows: &[&Row]) -> Option<Self> {
        let values = || rows.iter().flat_map(|row| [row.value, row.paper]).flatten();
        let range = |all: &mut dyn Iterator<Item = f64>| {
            all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let x = range(&mut rows.iter().map(|row| row.x));
        let (low, high) = range(&mut values());
        if !(x.0.is_finite() && low.is_finite()) {
            return None;
        }
        let logarithmic = low > 0.0 && high / low > 30.0;
        let y = match logarithmic {
            true => (
                10_f64.powf(low.log10().floor()),
                10_f64.powf(high.log10().ceil()),
            ),
            false => (0.0_f64.min(low), if high > 0.0 { high * 1.08 } else { 1.0 }),
        };
        let x = if x.0 < x.1 { x } else { (x.0 - 1.0, x.1 + 1.0) };
        Some(Self { x, y, logarithmic })
    }

    fn at_x(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (RIGHT - LEFT)
    }

    fn at_y(&self, y: f64) -> f64 {
        let share = match self.logarithmic {
            true => (y / self.y.0).log10() / (self.y.1 / self.y.0).log10(),
            false => (y - self.y.0) / (self.y.1 - self.y.0),
        };
        BOTTOM - share * (BOTTOM - TOP)
    }

    fn grid(&self, body: &mut String) {
        for value in self.y_ticks() {
            let (y, text_y) = (self.at_y(value), self.at_y(value) + 4.0);
            let (label, text_x) = (number(value), LEFT - 6.0);
            let _ = write!(
                body,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{text_x}\" y=\"{text_y:.1}\" \
                 text-anchor=\"end\">{label}</text>"
            );
        }
        for value in ticks(self.x.0, self.x.1) {
            let (x, y) = (self.at_x(value), BOTTOM + 16.0);
            let label = number(value);
            let _ = write!(
                body,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>"
            );
        }
    }

    fn y_ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return ticks(self.y.0, self.y.1);
        }
        let (low, high) = (
            self.y.0.log10().round() as i32,
            self.y.1.log10().round() as i32,
        );
        (low..=high).map(|power| 10_f64.powi(power)).collect()
    }

    fn line(&self, body: &mut String, rows: &[&&Row], index: usize) {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        let mut dots = String::new();
        // A value that is not known interrupts the line.
        let mut pen = 'M';
        for row in rows {
            let Some(value) = row.value else {
                pen = 'M';
                continue;
            };
            let (x, y) = (self.at_x(row.x), self.at_y(value));
            let _ = write!(path, "{pen}{x:.1} {y:.1}");
            pen = 'L';
            let hint = escape(&format!(
                "{}, {}: {}",
                row.series,
                number(row.x),
                number(value)
            ));
            let _ = write!(
                dots,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\" fill=\"{colour}\">\
                 <title>{hint}</title></circle>"
            );
        }
        let _ = write!(
            body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>{dots}"
        );
        for (row, paper) in rows.iter().filter_map(|row| Some((row, row.paper?))) {
            let (x, y) = (self.at_x(row.x), self.at_y(paper));
            let hint = escape(&format!(
                "paper, {}, {}: {}",
                row.series,
                number(row.x),
                number(paper)
            ));
            let _ = write!(
                body,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\">\
                 <title>{hint}</title></circle>"
            );
        }
    }
}

fn legend(body: &mut String, name: &str, index: usize) {
    let (column, line) = (index % LEGEND_COLUMNS, index / LEGEND_COLUMNS);
    let width = (RIGHT - LEFT) / LEGEND_COLUMNS as f64;
    let (x, y) = (
        LEFT + width * column as f64,
        BOTTOM + 58.0 + 18.0 * line as f64,
    );
    let (bar, text) = (y - 8.0, x + 20.0);
    let colour = COLOURS[index % COLOURS.len()];
    let _ = write!(
        body,
        "<rect x=\"{x:.1}\" y=\"{bar:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
         <text class=\"tick\" x=\"{text:.1}\" y=\"{y:.1}\">{}</text>",
        escape(name)
    );
}

/// About six round numbers between two.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let raw = (high - low) / 6.0;
    let power = 10_f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let fits = steps.iter().find(|step| **step * power >= raw * 0.999);
    let step = fits.copied().unwrap_or(10.0) * power;
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

const WIDTH: f64 = 560.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 544.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 296.0;
const LEGEND_COLUMNS: usize = 3;
/// Told apart in grey and by the colour-blind (after Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(series: &str, x: f64, value: f64) -> Row {
        Row {
            figure: "figure",
            series: series.into(),
            params: String::new(),
            x,
            metric: "p99",
            value: Some(value),
            paper: Some(value * 1.1),
        }
    }

    #[test]
    fn every_series_has_a_line_and_every_paper_number_a_circle() {
        let rows = [
            row("a", 0.0, 1.0),
            row("a", 1.0, 2.0),
            row("b<", 0.5, 900.0),
        ];
        let drawing = svg("p99 & more", "", "load", &rows.iter().collect::<Vec<_>>());
        assert_eq!(drawing.matches("<path").count(), 2);
        assert_eq!(drawing.matches("r=\"5\"").count(), 3);
        assert!(drawing.contains("p99 &amp; more") && drawing.contains("b&lt;"));
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
        assert_eq!(svg("none", "", "x", &[]), "");
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.1, 0.9).len(), 4);
    }
}
