//! The timeline as a page: one chart below the other over the same seconds.
//!
//! Latencies stand on a logarithmic axis, everything else on a linear one from 0. One file, no
//! network, for light and dark screens.

use std::fmt::Write as _;

use super::{Cell, Second, table};
use crate::{
    bench::plot::{self, escape},
    drive::Plan,
};

/// A chart: its title, its lines, and how its axis is named.
struct Strip {
    title: &'static str,
    lines: Vec<Line>,
    axis: Axis,
}

/// A line: its name, its colour, and its value in a second.
type Line = (&'static str, usize, Cell);

/// How a vertical axis is drawn.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Axis {
    /// Microseconds, logarithmic.
    Time,
    /// From 0, linear.
    Number,
}

const STYLE: &str = include_str!("../page.css");

const WIDTH: f64 = 900.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 880.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 150.0;
const HEIGHT: f64 = 178.0;

/// The whole page.
pub(super) fn page(plan: &Plan, label: &str, rows: &[Second]) -> String {
    let mut body = String::new();
    let load = escape(&plan.load.describe());
    let title = escape(label);
    let _ = write!(
        body,
        "<h1>{title}: second by second</h1><p class=\"soft\">{load}; {} connections. Latencies \
         from the instant a request was meant to be sent, of the requests of one second; the plan \
         is the one at the second's end.</p>",
        plan.connections
    );
    for strip in strips() {
        strip.draw(rows, &mut body);
    }
    let _ = write!(
        body,
        "<h2>Every number</h2><pre>{}</pre>",
        escape(&table(rows))
    );
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}: timeline</title><style>{STYLE}</style></head>\n\
         <body>{body}</body></html>\n"
    )
}

fn strips() -> [Strip; 5] {
    [
        Strip {
            title: "Requests for large values, per cent of all",
            lines: vec![("offered", 6, |row| row.large_percent)],
            axis: Axis::Number,
        },
        Strip {
            title: "Small requests",
            lines: vec![
                ("p99", 1, |row| row.small_p99_us),
                ("p50", 0, |row| row.small_p50_us),
            ],
            axis: Axis::Time,
        },
        Strip {
            title: "Other requests",
            lines: vec![
                ("p99", 1, |row| row.large_p99_us),
                ("p50", 0, |row| row.large_p50_us),
            ],
            axis: Axis::Time,
        },
        Strip {
            title: "Workers by role (with 0 for large values, one stands by)",
            lines: vec![
                ("small", 2, |row| row.small_cores),
                ("large", 3, |row| row.large_cores),
            ],
            axis: Axis::Number,
        },
        Strip {
            title: "Threshold in bytes: from here on values are large",
            lines: vec![("threshold", 4, |row| row.threshold)],
            axis: Axis::Number,
        },
    ]
}

impl Strip {
    fn draw(&self, rows: &[Second], body: &mut String) {
        let values = |line: &Line| -> Vec<(f64, f64)> {
            let value = line.2;
            let known = rows.iter().filter_map(|row| Some((row, value(row)?)));
            known.map(|(row, y)| (row.second as f64 + 0.5, y)).collect()
        };
        let all: Vec<f64> = self
            .lines
            .iter()
            .flat_map(values)
            .map(|point| point.1)
            .collect();
        let _ = write!(
            body,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\
             <text class=\"title\" x=\"{LEFT}\" y=\"18\">{title}</text>",
            title = self.title
        );
        let most = all.iter().copied().fold(f64::MIN, f64::max);
        let least = all.iter().copied().fold(f64::MAX, f64::min);
        if all.is_empty() {
            let _ = write!(
                body,
                "<text class=\"tick\" x=\"{LEFT}\" y=\"{TOP}\">\
                 the server does not tell</text></svg>"
            );
            return;
        }
        let place = |y: f64| self.axis.place(y, (least, most));
        for y in self.axis.ticks((least, most)) {
            let name = match self.axis {
                Axis::Time => plot::time(y),
                Axis::Number => plot::rate(y),
            };
            let _ = write!(
                body,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>\
                 <text class=\"tick\" x=\"{1:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{name}</text>",
                place(y),
                LEFT - 6.0,
                place(y) + 4.0
            );
        }
        let seconds = rows.len().max(1) as f64;
        let across = |x: f64| LEFT + x / seconds * (RIGHT - LEFT);
        for step in 0..=10 {
            let second = (seconds * f64::from(step) / 10.0).round();
            let _ = write!(
                body,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">\
                 {second} s</text>",
                across(second),
                BOTTOM + 18.0
            );
        }
        for (number, line) in self.lines.iter().enumerate() {
            let place = |(second, y): (f64, f64)| (across(second), place(y));
            draw_line(line.1, &values(line), place, body);
            let (name, style) = (line.0, line.1);
            let _ = write!(
                body,
                "<text class=\"end s{style}\" x=\"{:.1}\" y=\"18\" text-anchor=\"end\">\
                 {name}</text>",
                RIGHT - 70.0 * number as f64
            );
        }
        body.push_str("</svg>");
    }
}

/// Draws the values of seconds; no line goes across a second of which nothing is known.
fn draw_line(
    style: usize,
    values: &[(f64, f64)],
    place: impl Fn((f64, f64)) -> (f64, f64),
    body: &mut String,
) {
    for part in values.chunk_by(|one, next| next.0 - one.0 < 1.5) {
        let places = part.iter().map(|value| place(*value));
        let points: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = match part {
            [only] => {
                let (x, y) = place(*only);
                write!(
                    body,
                    "<circle class=\"mark s{style}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>"
                )
            }
            _ => write!(
                body,
                "<polyline class=\"line s{style}\" points=\"{}\"/>",
                points.join(" ")
            ),
        };
    }
}

impl Axis {
    /// Where `y` stands on the paper between the least and the most.
    fn place(self, y: f64, (least, most): (f64, f64)) -> f64 {
        let share = match self {
            Self::Number => y / (most * 1.1).max(1e-9),
            Self::Time => {
                let (low, high) = (least.max(1.0) / 1.5, most.max(2.0) * 1.5);
                (y.max(low) / low).ln() / (high / low).ln()
            }
        };
        BOTTOM - share.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn ticks(self, (least, most): (f64, f64)) -> Vec<f64> {
        match self {
            Self::Number if most <= 0.0 => vec![0.0],
            Self::Number => vec![0.0, most / 2.0, most],
            Self::Time => {
                let powers = (0..9).map(|power| 10_f64.powi(power));
                let within = |us: &f64| *us >= least / 1.5 && *us <= most * 1.5;
                let decades: Vec<f64> = powers.filter(within).collect();
                match decades.len() {
                    0 => vec![least, most],
                    _ => decades,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strip_has_its_lines_and_silence_is_said() {
        let row = |second| Second {
            second,
            small_p99_us: Some(80.0 + second as f64),
            small_p50_us: Some(20.0),
            small_cores: Some(2.0),
            large_cores: Some(0.0),
            ..Second::default()
        };
        let rows: Vec<Second> = (0..5).map(row).collect();
        let mut body = String::new();
        strips()
            .iter()
            .for_each(|strip| strip.draw(&rows, &mut body));
        assert_eq!(body.matches("<svg").count(), 5);
        // Two of small requests, two of cores; the others are not known.
        assert_eq!(body.matches("<polyline").count(), 4);
        assert_eq!(body.matches("the server does not tell").count(), 3);
        // A second without a number ends the line.
        let mut holes = rows.clone();
        holes[3].small_p99_us = None;
        let mut broken = String::new();
        strips()[1].draw(&holes, &mut broken);
        assert_eq!(broken.matches("<polyline").count(), 2);
        assert_eq!(broken.matches("<circle").count(), 1);
        for axis in [Axis::Time, Axis::Number] {
            for y in [20.0, 50.0, 84.0] {
                assert!((TOP..=BOTTOM).contains(&axis.place(y, (20.0, 84.0))));
            }
            assert!(axis.place(84.0, (20.0, 84.0)) < axis.place(20.0, (20.0, 84.0)));
        }
    }
}
