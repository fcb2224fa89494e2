//! One chart: lines over two axes.
//!
//! Every series has a marker of its own, so that nothing depends on telling colours apart. What
//! could not be measured is a cross on the upper edge, never a point, and no line goes across it. A
//! point that missed what was to be kept has a ring; a paper's number is a hollow circle in the
//! colour of ours. The pointer tells the numbers.

use plotters::{prelude::ChartBuilder, style::text_anchor::HPos};

use crate::{
    axis::{Axis, Coordinate, extent},
    colours::{AXIS, GRID, INK, SERIES, SOFT, WARNING},
    svg::{Drawn, Lettering, Pen, Place, at, sheet, stroke, title, units},
};

/// A chart before it is drawn.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What is shown.
    pub title: String,
    /// More about it, in small letters; may be empty.
    pub subtitle: String,
    /// What the horizontal axis has; may be empty.
    pub x_label: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Lines.
    pub series: Vec<Series>,
    /// A horizontal line with its name: a bound to keep.
    pub bound: Option<(f64, String)>,
    /// What stands in the place of the lines if there is no point.
    pub nothing: String,
    /// Whether it is wide and low, as one of several below each other.
    pub is_strip: bool,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name; equal names have one entry in the legend.
    pub name: String,
    /// Which colour and marker.
    pub style: usize,
    /// Whether the line is dashed.
    pub is_dashed: bool,
    /// Whether every point has a marker.
    pub is_marked: bool,
    /// Places and values.
    pub points: Vec<(f64, f64)>,
    /// Places, and the lowest and highest value of a band.
    pub band: Vec<(f64, f64, f64)>,
    /// Places at which there is no value, and why.
    pub gaps: Vec<(f64, String)>,
    /// Places of points that missed what was to be kept, and why.
    pub missed: Vec<(f64, String)>,
    /// Places and values that a paper states.
    pub paper: Vec<(f64, f64)>,
    /// Points that are farther from each other than this are not joined.
    pub apart: Option<f64>,
}

const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 42.0;
/// Height of the numbers below the axis, and of its label.
const NUMBERS: f64 = 24.0;
const LABEL: f64 = 18.0;
const LEGEND_LINE: f64 = 18.0;
/// A line with its marker in the legend.
const KEY: f64 = 30.0;
const LETTERS: f64 = 12.0;

impl Chart {
    /// Whether there is anything to see.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    /// The lowest and highest value of all points, bands and bounds.
    pub fn y_range(&self) -> Option<(f64, f64)> {
        extent(self.values())
    }

    /// The drawing, for a page.
    pub fn svg(&self) -> String {
        let (width, plot) = match self.is_strip {
            true => (900.0, 116.0),
            false => (560.0, 250.0),
        };
        let legend = self.legend(width - LEFT);
        let label = if self.x_label.is_empty() { 0.0 } else { LABEL };
        let below = NUMBERS + label + LEGEND_LINE * legend.len() as f64 + 4.0;
        let size = (width, TOP + plot + below);
        sheet(size, &self.title, false, |pen| {
            pen.text(&self.title, at(LEFT, 12.0), title(15.0))?;
            let soft = Lettering::new(LETTERS, SOFT);
            pen.text(&self.subtitle, at(LEFT, 29.0), soft)?;
            match self.coordinates() {
                Some((x, y)) => self.draw(pen, (x, y), below)?,
                None => pen.text(&self.nothing, at(LEFT, TOP + plot / 2.0), soft)?,
            }
            let middle = at((LEFT + width - RIGHT) / 2.0, size.1 - below + NUMBERS + 8.0);
            pen.text(&self.x_label, middle, soft.align(HPos::Center))?;
            for (number, line) in legend.iter().enumerate() {
                let y = size.1 - LEGEND_LINE * (legend.len() - number) as f64 + 6.0;
                for (column, entry) in line.iter().enumerate() {
                    let across = (width - LEFT) / legend[0].len() as f64;
                    entry.key(pen, LEFT + across * column as f64, y)?;
                }
            }
            Ok(())
        })
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let of_series = |series: &Series| {
            let points = series.points.iter().chain(&series.paper);
            let bands = series.band.iter().flat_map(|(_, low, high)| [*low, *high]);
            points.map(|(_, y)| *y).chain(bands).collect::<Vec<f64>>()
        };
        let bound = self.bound.iter().map(|(y, _)| *y);
        self.series.iter().flat_map(of_series).chain(bound)
    }

    fn coordinates(&self) -> Option<(Coordinate, Coordinate)> {
        let places = self.series.iter().flat_map(|series| {
            let points = series.points.iter().chain(&series.paper);
            let gaps = series.gaps.iter().map(|(x, _)| *x);
            points.map(|(x, _)| *x).chain(gaps)
        });
        let y = self.y.coordinate(self.values())?;
        let has_point = !self.is_empty() || self.series.iter().any(|one| !one.paper.is_empty());
        Some((self.x.coordinate(places)?, y)).filter(|_| has_point)
    }

    fn draw(&self, pen: &mut Pen<'_>, (x, y): (Coordinate, Coordinate), below: f64) -> Drawn {
        let soft = Lettering::new(LETTERS, SOFT).style();
        let named = if y.unnamed.is_empty() { GRID } else { AXIS };
        let area = pen.area.clone();
        let mut builder = ChartBuilder::on(&area);
        builder
            .margin_top(units(TOP))
            .margin_right(units(RIGHT))
            .margin_bottom(units(below - NUMBERS))
            .x_label_area_size(units(NUMBERS))
            .y_label_area_size(units(LEFT));
        let mut context = builder.build_cartesian_2d(x, y)?;
        context
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(stroke(named, 1.0))
            .light_line_style(stroke(GRID, 1.0))
            .axis_style(stroke(AXIS, 1.0))
            .set_all_tick_mark_size(units(4.0))
            .label_style(soft)
            .draw()?;
        let place = |(x, y): (f64, f64)| context.backend_coord(&(x, y));
        if let Some((value, name)) = &self.bound {
            let (ends, y) = (context.x_range(), *value);
            let [left, right] = [(ends.start, y), (ends.end, y)].map(place);
            pen.dashed(vec![left, right], INK, 1.5)?;
            let lettering = Lettering::new(LETTERS, INK).align(HPos::Right);
            pen.text(
                name,
                (right.0 - units(4.0), right.1 - units(8.0)),
                lettering,
            )?;
        }
        let top = context.y_range().end;
        for series in &self.series {
            series.draw(
                pen,
                place,
                |value| self.y.unit.name(value),
                |at| self.x.unit.name(at),
            )?;
            series.draw_gaps(pen, |x| place((x, top)))?;
        }
        Ok(())
    }

    /// The lines of the legend: one entry a name, none where there is one series alone.
    fn legend(&self, width: f64) -> Vec<Vec<Series>> {
        let mut entries: Vec<Series> = Vec::new();
        for series in &self.series {
            if !entries.iter().any(|entry| entry.name == series.name) {
                entries.push(series.clone());
            }
        }
        if self.series.iter().any(|series| !series.paper.is_empty()) {
            entries.push(Series {
                name: "the paper's numbers".into(),
                paper: vec![(0.0, 0.0)],
                ..Series::default()
            });
        }
        if entries.len() < 2 {
            return Vec::new();
        }
        let letters = entries.iter().map(|entry| entry.name.chars().count());
        let longest = letters.max().unwrap_or(0) as f64 * LETTERS * 0.55;
        let columns = (width / (longest + KEY + 14.0)).clamp(1.0, 4.0) as usize;
        entries.chunks(columns).map(<[Series]>::to_vec).collect()
    }
}

impl Series {
    fn draw(
        &self,
        pen: &mut Pen<'_>,
        place: impl Fn((f64, f64)) -> Place,
        value: impl Fn(f64) -> String,
        at: impl Fn(f64) -> String,
    ) -> Drawn {
        let colour = SERIES[self.style % SERIES.len()];
        for band in self.parts(&self.band, |point| point.0) {
            let high = band.iter().map(|(x, _, high)| place((*x, *high)));
            let low = band.iter().rev().map(|(x, low, _)| place((*x, *low)));
            pen.fill(high.chain(low).collect(), colour, 0.2)?;
        }
        for part in self.parts(&self.points, |point| point.0) {
            let places: Vec<Place> = part.iter().map(|point| place(*point)).collect();
            match places.as_slice() {
                [only] if !self.is_marked => pen.ring(*only, 1.0, colour, 2.0)?,
                [_] => {}
                _ => self.line(pen, places)?,
            }
        }
        for (x, y) in self.points.iter().filter(|_| self.is_marked) {
            let place = place((*x, *y));
            pen.marker(place, self.style)?;
            pen.hint(
                place,
                &format!("{}: {} at {}", self.name, value(*y), at(*x)),
            );
        }
        for (x, y) in &self.paper {
            let place = place((*x, *y));
            pen.ring(place, 6.5, colour, 1.5)?;
            let hint = format!("{}, the paper: {} at {}", self.name, value(*y), at(*x));
            pen.hint(place, &hint);
        }
        for (missed, reason) in &self.missed {
            let Some(point) = self.points.iter().find(|(x, _)| x == missed) else {
                continue;
            };
            let place = place(*point);
            pen.ring(place, 8.5, WARNING, 2.5)?;
            pen.hint(place, &format!("{} at {} {reason}", self.name, at(*missed)));
        }
        Ok(())
    }

    /// Crosses along the upper edge; those of several series stand beside each other.
    fn draw_gaps(&self, pen: &mut Pen<'_>, top: impl Fn(f64) -> Place) -> Drawn {
        let style = self.style % SERIES.len();
        for (x, reason) in &self.gaps {
            let (x, y) = top(*x);
            let (x, arm) = (x + units(6.0 * style as f64 - 6.0), units(3.5));
            for rise in [arm, -arm] {
                pen.line(
                    vec![(x - arm, y - rise), (x + arm, y + rise)],
                    SERIES[style],
                    2.0,
                )?;
            }
            pen.hint((x, y), &format!("{} not measurable: {reason}", self.name));
        }
        Ok(())
    }

    fn line(&self, pen: &Pen<'_>, places: Vec<Place>) -> Drawn {
        let colour = SERIES[self.style % SERIES.len()];
        // More series than colours: the next round is dashed.
        match self.is_dashed || self.style >= SERIES.len() {
            true => pen.dashed(places, colour, 2.0),
            false => pen.line(places, colour, 2.0),
        }
    }

    /// The entry of the legend.
    fn key(&self, pen: &Pen<'_>, x: f64, y: f64) -> Drawn {
        let text = Lettering::new(LETTERS, INK);
        pen.text(&self.name, at(x + KEY + 6.0, y), text)?;
        let middle = at(x + KEY / 2.0, y);
        if !self.paper.is_empty() && self.points.is_empty() {
            return pen.ring(middle, 6.5, SOFT, 1.5);
        }
        self.line(pen, vec![at(x, y), at(x + KEY, y)])?;
        match self.is_marked {
            true => pen.marker(middle, self.style),
            false => Ok(()),
        }
    }

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::{Scale, Unit};

    fn chart() -> Chart {
        Chart {
            title: "p99 <of> all".into(),
            x_label: "offered".into(),
            x: Axis::new(Unit::Count, Scale::Fitted),
            y: Axis::new(Unit::Micros, Scale::Logarithmic),
            series: vec![Series {
                name: "a".into(),
                is_marked: true,
                points: vec![(1e4, 80.0), (2e4, 120.0), (3e4, 5e3)],
                gaps: vec![(4e4, "late".into())],
                paper: vec![(2e4, 100.0)],
                ..Series::default()
            }],
            bound: Some((1e3, "p99 < 1 ms".into())),
            nothing: "not measurable: late".into(),
            ..Chart::default()
        }
    }

    /// Numbers of attributes of this name.
    fn attributes(svg: &str, name: &str) -> Vec<f64> {
        let start = format!(" {name}=\"");
        let parts = svg.split(&start).skip(1);
        let numbers = parts.filter_map(|part| part.split('"').next()?.parse().ok());
        numbers.collect()
    }

    /// Goal: every point, gap, paper's number and text is in the drawing, inside of its frame.
    #[test]
    fn a_chart_shows_all_that_it_is_given() {
        let svg = chart().svg();
        for text in [
            "p99 &lt;of&gt; all",
            "offered",
            "p99 &lt; 1 ms",
            "a: 5 ms at 30k",
            "a, the paper: 100 us at 20k",
            "a not measurable: late",
            "the paper&apos;s numbers",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<title>").count(), 5);
        let (across, down) = (attributes(&svg, "cx"), attributes(&svg, "cy"));
        assert!(
            across.iter().all(|x| (620.0..=5460.0).contains(x)),
            "{across:?}"
        );
        assert!(
            down.iter().all(|y| (420.0..=3600.0).contains(y)),
            "{down:?}"
        );
        assert_eq!(svg, chart().svg(), "the same bytes again");
        let twice = sheet((10.0, 10.0), "n", true, |pen| {
            pen.text("t", (0, 0), title(9.0))
        });
        assert!(twice.contains("width=\"10\" height=\"10\"") && twice.contains("prefers-color"));
    }

    /// Goal: no line goes across a place that could not be measured, and what missed is marked.
    #[test]
    fn lines_end_where_nothing_was_measured() {
        let lines = |chart: &Chart| {
            let series = &chart.series[0];
            series.parts(&series.points, |point| point.0).count()
        };
        let mut chart = chart();
        chart.series[0].gaps = Vec::new();
        assert_eq!(lines(&chart), 1);
        chart.series[0].gaps = vec![(1.5e4, "late".into())];
        chart.series[0].missed = vec![(3e4, "missed: p99".into())];
        chart.series[0].band = vec![(1e4, 70.0, 90.0), (2e4, 110.0, 130.0)];
        assert_eq!(lines(&chart), 2);
        assert!(chart.svg().contains("a at 30k missed: p99"));
        chart.series[0].gaps = Vec::new();
        chart.series[0].apart = Some(0.5e4);
        assert_eq!(lines(&chart), 3);
    }

    #[test]
    fn a_chart_without_points_says_why() {
        assert!(Chart::default().is_empty());
        let mut chart = chart();
        chart.series[0].paper.clear();
        chart.series[0].points.clear();
        assert!(chart.svg().contains("not measurable: late"));
    }
}
