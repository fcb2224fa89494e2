//! Groups of bars, as a file of its own: every group has its own scale, and every scale starts at
//! zero. The best bar of a group is the coloured one.

use plotters::style::text_anchor::HPos;

use crate::{
    colours::{BAR, INK, SERIES, SOFT},
    svg::{Drawn, Lettering, Pen, at, sheet, title},
};

/// Groups of bars below each other.
#[derive(Clone, Debug, Default)]
pub struct BarChart {
    /// What is shown.
    pub title: String,
    /// From the top down.
    pub groups: Vec<BarGroup>,
}

/// Bars of one scale.
#[derive(Clone, Debug, Default)]
pub struct BarGroup {
    /// What was measured.
    pub name: String,
    /// In what.
    pub unit: String,
    /// Whether the smallest is the best.
    pub less_is_better: bool,
    /// From the top down.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Whose.
    pub name: String,
    /// How long.
    pub value: f64,
    /// Whether the name is bold.
    pub is_ours: bool,
}

const WIDTH: f64 = 720.0;
const GROUP_GAP: f64 = 18.0;
const BAR_HEIGHT: f64 = 20.0;
/// Room for a number behind the longest bar.
const VALUE_WIDTH: f64 = 64.0;
const LETTERS: f64 = 13.0;

impl BarChart {
    /// The drawing, as a file.
    pub fn svg(&self) -> String {
        // Texts take as many lines as they need: how high the drawing is shows when it is drawn.
        let mut height = 0.0;
        sheet((WIDTH, 1.0), "", true, |pen| self.draw(pen, &mut height));
        let size = (WIDTH, height);
        sheet(size, &self.title, true, |pen| self.draw(pen, &mut height))
    }

    fn draw(&self, pen: &Pen<'_>, height: &mut f64) -> Drawn {
        let names = self.groups.iter().flat_map(|group| &group.bars);
        let letters = names.map(|bar| bar.name.chars().count()).max();
        let names_width = letters.unwrap_or(0) as f64 * 0.68 * LETTERS + 14.0;
        let mut top = pen.paragraph(&self.title, WIDTH, 4.0, title(16.0))? + 14.0;
        for group in &self.groups {
            top = pen.paragraph(&group.name, WIDTH, top, Lettering::new(LETTERS, INK))?;
            top = pen.paragraph(&group.unit, WIDTH, top, Lettering::new(LETTERS, SOFT))? + 6.0;
            group.draw(pen, top, names_width)?;
            top += BAR_HEIGHT * group.bars.len() as f64 + GROUP_GAP;
        }
        *height = top.ceil();
        Ok(())
    }
}

impl BarGroup {
    fn draw(&self, pen: &Pen<'_>, top: f64, names_width: f64) -> Drawn {
        let values = || self.bars.iter().map(|bar| bar.value);
        let largest = values().fold(f64::MIN_POSITIVE, f64::max);
        let best = match self.less_is_better {
            true => values().fold(f64::MAX, f64::min),
            false => largest,
        };
        let scale = (WIDTH - names_width - VALUE_WIDTH) / largest;
        for (number, bar) in self.bars.iter().enumerate() {
            let y = top + BAR_HEIGHT * (number as f64 + 0.5);
            let end = names_width + (bar.value * scale).max(1.0);
            let is_best = bar.value == best;
            let lettering = |is_bold: bool| match is_bold {
                true => title(LETTERS),
                false => Lettering::new(LETTERS, SOFT),
            };
            let name = lettering(bar.is_ours).align(HPos::Right);
            pen.text(&bar.name, at(names_width - 8.0, y), name)?;
            let colour = if is_best { SERIES[0] } else { BAR };
            pen.bar([at(names_width, y - 8.0), at(end, y + 8.0)], colour)?;
            let value = format!("{}", bar.value);
            pen.text(&value, at(end + 6.0, y), lettering(is_best))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(less_is_better: bool) -> BarChart {
        let bar = |name: &str, value| Bar {
            name: name.into(),
            value,
            is_ours: name == "curtail",
        };
        BarChart {
            title: "A < B".into(),
            groups: vec![BarGroup {
                name: "a word ".repeat(30),
                unit: "M/s".into(),
                less_is_better,
                bars: vec![bar("curtail", 1.5), bar("peer", 3.0)],
            }],
        }
    }

    /// The bars: length and colour.
    fn bars(svg: &str) -> Vec<(f64, String)> {
        let attribute = |line: &str, name: &str| {
            let part = line.split(&format!(" {name}=\"")).nth(1)?;
            Some(part.split('"').next()?.to_owned())
        };
        let bars = svg.lines().filter(|line| line.starts_with("<rect"));
        let bar = |line| {
            Some((
                attribute(line, "width")?.parse().ok()?,
                attribute(line, "fill")?,
            ))
        };
        bars.filter_map(bar).collect()
    }

    /// Goal: half the value is half as long, the best bar has the colour although it is the peer's,
    /// long texts take several lines, and text is escaped.
    #[test]
    fn bars_are_in_proportion_and_the_best_is_coloured() {
        let svg = chart(false).svg();
        let [(ours, other), (peer, best)] = &bars(&svg)[..] else {
            panic!("two bars: {svg}");
        };
        assert!((peer / ours - 2.0).abs() < 0.01 && other != best, "{svg}");
        assert!(svg.contains("A &lt; B") && svg.matches("word").count() == 30);
        assert!(svg.matches("<text").count() > 7);
        let less = chart(true).svg();
        assert_eq!([&bars(&less)[0].1, &bars(&less)[1].1], [best, other]);
    }
}
