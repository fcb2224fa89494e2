//! One chart as SVG: lines over a linear axis, latencies on a logarithmic one.
//!
//! Colours are classes (`s0` to `s7`) that the page gives a value to, for light and dark screens;
//! every series also has a marker of its own, so that nothing depends on telling colours apart.
//! What could not be measured is a cross on the upper edge, never a point, and no line goes across
//! it. A point that missed what was to be kept has a ring.

use std::fmt::Write as _;

/// A chart before it is drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) x: Axis,
    pub(super) series: Vec<Series>,
    /// A horizontal line with its name: a bound to keep.
    pub(super) bound: Option<(f64, String)>,
    /// The horizontal axis reaches at least to here.
    pub(super) x_at_least: f64,
    /// Whether the lines' ends carry their names.
    pub(super) names_ends: bool,
    /// The vertical axis reaches at least from here to here, so that charts can be compared.
    pub(super) y_at_least: Option<(f64, f64)>,
}

/// How places on the horizontal axis are named.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Axis {
    /// Requests a second.
    #[default]
    Rate,
    /// Seconds.
    Time,
    /// `-log10(1 - quantile)`: 1 is 90 %, 2 is 99 %.
    Nines,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    pub(super) name: String,
    /// Which colour and marker.
    pub(super) style: usize,
    pub(super) is_dashed: bool,
    /// Whether every point has a marker.
    pub(super) is_marked: bool,
    /// Places and microseconds.
    pub(super) points: Vec<(f64, f64)>,
    /// Places, and the lowest and highest microseconds of a band.
    pub(super) band: Vec<(f64, f64, f64)>,
    /// Places at which nothing could be measured, and why.
    pub(super) gaps: Vec<(f64, String)>,
    /// Places of points that missed what was to be kept, and why.
    pub(super) missed: Vec<(f64, String)>,
    /// Points that are farther from each other than this are not joined.
    pub(super) apart: Option<f64>,
}

/// Colours and markers that there are.
pub(super) const STYLES: usize = 8;

const WIDTH: f64 = 560.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 474.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 290.0;

/// Text that cannot end an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// Microseconds with the unit that keeps them short: `250 us`, `1.5 ms`.
pub(super) fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1.0 => (us * 1000.0, "ns"),
        us if us < 1000.0 => (us, "us"),
        us if us < 1e6 => (us / 1000.0, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", short(value))
}

/// Three digits at most, without zeros behind.
fn short(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

/// Requests a second: `50k`, `1.2m`.
pub(super) fn rate(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}m", short(v / 1e6)),
        v if v >= 1e3 => format!("{}k", short(v / 1e3)),
        v => short(v),
    }
}

/// From numbers to places on the paper.
struct Scales {
    x: (f64, f64),
    y: (f64, f64),
}

impl Chart {
    /// Whether there is anything to see.
    pub(super) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    /// The lowest and highest microseconds of all points.
    pub(super) fn y_range(&self) -> Option<(f64, f64)> {
        let bands = self.series.iter().flat_map(|series| &series.band);
        let bands = bands.flat_map(|(_, low, high)| [*low, *high]);
        let points = self.series.iter().flat_map(|series| &series.points);
        let bound = self.bound.iter().map(|(us, _)| *us);
        extent(
            points
                .map(|(_, us)| *us)
                .chain(bands)
                .chain(bound)
                .filter(|us| *us > 0.0),
        )
    }

    /// The drawing; without a point, a frame that says why.
    pub(super) fn svg(&self) -> String {
        let Some(scales) = self.scales() else {
            return self.nothing();
        };
        let mut body = String::new();
        self.grid(&scales, &mut body);
        if let Some((us, name)) = &self.bound {
            let y = scales.y(*us);
            let _ = write!(
                body,
                "<line class=\"bound\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                RIGHT - 2.0,
                y - 4.0,
                escape(name)
            );
        }
        for series in &self.series {
            series.draw(&scales, self.x, &mut body);
        }
        self.end_labels(&scales, &mut body);
        let (middle, below) = ((LEFT + RIGHT) / 2.0, BOTTOM + 36.0);
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}\">\
             <text class=\"name\" x=\"{LEFT}\" y=\"22\">{title}</text>{body}\
             <text class=\"label\" x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{}</text>\
             </svg>",
            BOTTOM + 46.0,
            escape(&self.x_label),
            title = escape(&self.title)
        )
    }

    fn nothing(&self) -> String {
        let gaps = self.series.iter().flat_map(|series| &series.gaps);
        let reason = gaps
            .map(|(_, reason)| reason.as_str())
            .next()
            .unwrap_or_default();
        let (middle, height) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}\">\
             <text class=\"name\" x=\"{LEFT}\" y=\"22\">{title}</text>\
             <text class=\"label\" x=\"{middle}\" y=\"{height}\" text-anchor=\"middle\">\
             not measurable: {}</text></svg>",
            BOTTOM + 46.0,
            escape(reason),
            title = escape(&self.title)
        )
    }

    fn scales(&self) -> Option<Scales> {
        let places = self.series.iter().flat_map(|series| {
            let gaps = series.gaps.iter().map(|(x, _)| *x);
            series.points.iter().map(|(x, _)| *x).chain(gaps)
        });
        let (mut low, mut high) = extent(places)?;
        high = high.max(self.x_at_least);
        match self.x {
            Axis::Rate => {
                let room = if high > low {
                    0.04 * (high - low)
                } else {
                    0.5 * high.max(1.0)
                };
                (low, high) = ((low - room).max(0.0), high + room);
                if low < 0.35 * high {
                    low = 0.0;
                }
            }
            Axis::Time => low = 0.0,
            Axis::Nines => (low, high) = (0.0, high.max(3.0)),
        }
        let (mut y_low, mut y_high) = self.y_range()?;
        if let Some((least, most)) = self.y_at_least {
            (y_low, y_high) = (y_low.min(least), y_high.max(most));
        }
        Some(Scales {
            x: (low, high),
            y: (step_below(y_low / 1.05), step_above(y_high * 1.05)),
        })
    }

    fn grid(&self, scales: &Scales, body: &mut String) {
        let steps = steps_between(scales.y.0, scales.y.1);
        let sparse = steps.len() > 9;
        for us in steps {
            let y = scales.y(us);
            let is_decade = (us.log10() - us.log10().round()).abs() < 1e-9;
            let class = if is_decade { "grid decade" } else { "grid" };
            let _ = write!(
                body,
                "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            if is_decade || !sparse {
                let _ = write!(
                    body,
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    LEFT - 7.0,
                    y + 4.0,
                    time(us)
                );
            }
        }
        for (x, name) in scales.x_ticks(self.x) {
            let _ = write!(
                body,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}\
                 </text>",
                BOTTOM + 5.0,
                BOTTOM + 18.0
            );
        }
    }

    /// Names behind the lines' ends where there are few lines, moved apart.
    fn end_labels(&self, scales: &Scales, body: &mut String) {
        const APART: f64 = 13.0;
        const NAME_MAX: usize = 11;
        let ends = self.series.iter().filter(|series| series.is_marked);
        let mut ends: Vec<(f64, f64, &Series)> = ends
            .filter_map(|series| {
                let (x, us) = series.points.last()?;
                Some((scales.y(*us), scales.x(*x), series))
            })
            .collect();
        if !self.names_ends || ends.len() < 2 || ends.len() > 6 {
            return;
        }
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut lowest = f64::MIN;
        for (y, x, series) in ends {
            let y = (y + 4.0).max(lowest + APART);
            lowest = y;
            let long = series.name.chars().count() > NAME_MAX;
            let name: String = series.name.chars().take(NAME_MAX).collect();
            let _ = write!(
                body,
                "<text class=\"end s{}\" x=\"{:.1}\" y=\"{y:.1}\">{}{}</text>",
                series.style % STYLES,
                x + 9.0,
                escape(&name),
                if long { "&hellip;" } else { "" }
            );
        }
    }
}

impl Series {
    fn draw(&self, scales: &Scales, axis: Axis, body: &mut String) {
        let style = self.style % STYLES;
        let bands = self.parts(&self.band, |point| point.0);
        for band in bands.filter(|band| band.len() > 1) {
            let high = band
                .iter()
                .map(|(x, _, high)| (scales.x(*x), scales.y(*high)));
            let low = band.iter().rev();
            let low = low.map(|(x, low, _)| (scales.x(*x), scales.y(*low)));
            let path: Vec<String> = high
                .chain(low)
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let _ = write!(
                body,
                "<polygon class=\"band s{style}\" points=\"{}\"/>",
                path.join(" ")
            );
        }
        let dashed = if self.is_dashed { " dashed" } else { "" };
        for part in self.parts(&self.points, |point| point.0) {
            let path: Vec<String> = part
                .iter()
                .map(|(x, us)| format!("{:.1},{:.1}", scales.x(*x), scales.y(*us)))
                .collect();
            let path = path.join(" ");
            let _ = match part {
                [(x, us)] if !self.is_marked => write!(
                    body,
                    "<circle class=\"mark s{style}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.5\"/>",
                    scales.x(*x),
                    scales.y(*us)
                ),
                [_] => Ok(()),
                _ => write!(
                    body,
                    "<polyline class=\"line s{style}{dashed}\" points=\"{path}\"/>"
                ),
            };
        }
        self.draw_missed(scales, body);
        if self.is_marked {
            for (x, us) in &self.points {
                let place = axis.name(*x);
                let title = format!("{}: {} at {place}", self.name, time(*us));
                marker(scales.x(*x), scales.y(*us), style, &title, body);
            }
        }
        for (x, reason) in &self.gaps {
            // Crosses of several series stand beside each other.
            let (x, y) = (scales.x(*x) + 5.0 * style as f64 - 5.0, TOP + 4.0);
            let title = format!("{} not measurable: {reason}", self.name);
            let _ = write!(
                body,
                "<path class=\"gap s{style}\" d=\"M{:.1} {:.1}l7 7m0 -7l-7 7\">\
                 <title>{}</title></path>",
                x - 3.5,
                y - 3.5,
                escape(&title)
            );
        }
    }
}

impl Series {
    /// The parts of some points that a line may join: between none of them is a place that is known
    /// not to have been measured.
    fn parts<'a, P>(
        &self,
        points: &'a [P],
        place: impl Fn(&P) -> f64,
    ) -> impl Iterator<Item = &'a [P]> {
        points.chunk_by(move |one, other| {
            let (from, to) = (place(one), place(other));
            let is_near = self.apart.is_none_or(|apart| to - from <= apart);
            is_near && !self.gaps.iter().any(|(gap, _)| (from..=to).contains(gap))
        })
    }

    /// A ring around every point that missed.
    fn draw_missed(&self, scales: &Scales, body: &mut String) {
        for (place, reason) in &self.missed {
            let Some((x, us)) = self.points.iter().find(|(x, _)| x == place) else {
                continue;
            };
            let title = format!("{} at {}/s {reason}", self.name, rate(*x));
            let _ = write!(
                body,
                "<circle class=\"missed\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"8.5\">\
                 <title>{}</title></circle>",
                scales.x(*x),
                scales.y(*us),
                escape(&title)
            );
        }
    }
}

impl Axis {
    fn name(self, x: f64) -> String {
        match self {
            Self::Rate => format!("{}/s", rate(x)),
            Self::Time => format!("{} s", short(x)),
            Self::Nines => quantile_name(x),
        }
    }
}

impl Scales {
    fn x(&self, x: f64) -> f64 {
        let span = (self.x.1 - self.x.0).max(f64::MIN_POSITIVE);
        LEFT + (x - self.x.0) / span * (RIGHT - LEFT)
    }

    fn y(&self, us: f64) -> f64 {
        let span = (self.y.1 / self.y.0).ln().max(f64::MIN_POSITIVE);
        let share = (us.max(self.y.0) / self.y.0).ln() / span;
        BOTTOM - share.min(1.0) * (BOTTOM - TOP)
    }

    fn x_ticks(&self, axis: Axis) -> Vec<(f64, String)> {
        let values: Vec<f64> = if axis == Axis::Nines {
            (0..=self.x.1 as u32).map(f64::from).collect()
        } else {
            let step = nice_step((self.x.1 - self.x.0) / 5.0);
            let first = (self.x.0 / step).ceil() as u64;
            let last = (self.x.1 / step).floor() as u64;
            (first..=last.min(first + 20))
                .map(|n| n as f64 * step)
                .collect()
        };
        let name = |x: f64| match axis {
            Axis::Rate => rate(x),
            Axis::Time => short(x),
            Axis::Nines => quantile_name(x),
        };
        values.into_iter().map(|x| (self.x(x), name(x))).collect()
    }
}

/// `99.9 %` of 3.
fn quantile_name(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let digits = (nines - 2.0).max(0.0).ceil() as usize;
    match percent {
        p if p < 1.0 => "0 %".into(),
        p => format!("{p:.digits$} %"),
    }
}

/// A shape for each style, with a text for the pointer.
fn marker(x: f64, y: f64, style: usize, title: &str, body: &mut String) {
    let shape = match style % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\""),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"",
            x - 3.5,
            y - 3.5
        ),
        2 => format!("<path d=\"M{:.1} {:.1}l4.6 8h-9.2z\"", x, y - 5.0),
        _ => format!("<path d=\"M{:.1} {:.1}l5 5l-5 5l-5 -5z\"", x, y - 5.0),
    };
    let hollow = if style >= 4 { " hollow" } else { "" };
    let title = escape(title);
    let _ = write!(
        body,
        "{shape} class=\"mark s{style}{hollow}\"><title>{title}</title>"
    );
    let end = match style % 4 {
        0 => "</circle>",
        1 => "</rect>",
        _ => "</path>",
    };
    body.push_str(end);
}

/// A line with its marker, for a legend.
pub(super) fn key(style: usize, is_dashed: bool) -> String {
    let style = style % STYLES;
    let dashed = if is_dashed { " dashed" } else { "" };
    let mut body = format!("<polyline class=\"line s{style}{dashed}\" points=\"0,8 30,8\"/>");
    marker(15.0, 8.0, style, "", &mut body);
    format!("<svg class=\"key\" viewBox=\"0 0 30 16\" aria-hidden=\"true\">{body}</svg>")
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|value| value.is_finite())
        .fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((low.min(value), high.max(value))),
        })
}

/// 1, 2 or 5 times a power of ten, not below.
fn nice_step(rough: f64) -> f64 {
    let rough = rough.max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

fn step_above(value: f64) -> f64 {
    nice_step(value)
}

fn step_below(value: f64) -> f64 {
    let value = value.max(1e-3);
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps
        .into_iter()
        .rev()
        .find(|step| *step <= value)
        .unwrap_or(power)
}

/// 1, 2 and 5 times every power of ten between two of them, both included.
fn steps_between(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|f| f * 10_f64.powi(power)));
    all.filter(|us| *us >= low * 0.999 && *us <= high * 1.001)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "p99 <of> all".into(),
            x_label: "offered".into(),
            series: vec![Series {
                name: "a".into(),
                is_marked: true,
                points: vec![(1e4, 80.0), (2e4, 120.0), (3e4, 5e3)],
                gaps: vec![(4e4, "late".into())],
                ..Series::default()
            }],
            ..Chart::default()
        }
    }

    #[test]
    fn every_point_is_drawn_inside_and_every_gap_is_told() {
        let svg = chart().svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("not measurable: late") && svg.contains("p99 &lt;of&gt; all"));
        let scales = chart().scales().unwrap();
        for (x, us) in &chart().series[0].points {
            assert!((LEFT..=RIGHT).contains(&scales.x(*x)));
            assert!((TOP..=BOTTOM).contains(&scales.y(*us)));
        }
        assert!(scales.x(4e4) <= RIGHT);
        assert_eq!(scales.y, (50.0, 10_000.0));
    }

    /// Goal: no line goes across a load that could not be measured, and what missed is marked.
    /// Method: four points with a gap in the middle, then seconds far apart.
    #[test]
    fn lines_end_where_nothing_was_measured() {
        let mut chart = chart();
        let series = &mut chart.series[0];
        series.points = vec![(1e4, 80.0), (2e4, 90.0), (4e4, 95.0), (5e4, 99.0)];
        series.band = series
            .points
            .iter()
            .map(|(x, us)| (*x, *us, us * 2.0))
            .collect();
        series.gaps = Vec::new();
        assert_eq!(chart.svg().matches("<polyline").count(), 1);
        chart.series[0].gaps = vec![(3e4, "late".into())];
        chart.series[0].missed = vec![(5e4, "missed: p99".into())];
        let svg = chart.svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<polygon").count(), 2);
        assert_eq!(svg.matches("class=\"missed\"").count(), 1);
        assert!(svg.contains("a at 50k/s missed: p99"));
        chart.series[0].gaps = Vec::new();
        chart.series[0].apart = Some(1.5e4);
        assert_eq!(chart.svg().matches("<polyline").count(), 2);
    }

    #[test]
    fn a_chart_without_points_is_nothing() {
        assert!(Chart::default().is_empty());
        let mut chart = chart();
        chart.series[0].points.clear();
        assert!(chart.svg().contains("not measurable: late"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.25, 80.0, 1500.0, 2e6].map(time),
            ["250 ns", "80 us", "1.5 ms", "2 s"]
        );
        assert_eq!([500.0, 5e4, 1.25e6].map(rate), ["500", "50k", "1.25m"]);
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0].map(quantile_name),
            ["0 %", "90 %", "99 %", "99.9 %"]
        );
        assert_eq!(
            steps_between(50.0, 1000.0),
            [50.0, 100.0, 200.0, 500.0, 1000.0]
        );
        assert_eq!((nice_step(30.0), nice_step(0.7)), (50.0, 1.0));
        assert_eq!((step_below(80.0), step_above(80.0)), (50.0, 100.0));
    }
}
