//! An SVG sheet, drawn through plotters.
//!
//! Plotters knows whole pixels only. A sheet is therefore drawn ten times as large as it is shown,
//! so that lines stay smooth. What plotters cannot write is added to its text: the drawing's name,
//! its size, and texts that appear under the pointer.

use std::{fmt::Write as _, io};

use plotters::{
    coord::Shift,
    drawing::DrawingAreaErrorKind,
    element::DashedPathElement,
    prelude::{
        Circle, DrawingArea, FontFamily, FontStyle, IntoDrawingArea, IntoFont, PathElement,
        Polygon, Rectangle, SVGBackend, ShapeStyle, TextStyle,
    },
    style::{
        Color,
        text_anchor::{HPos, Pos, VPos},
    },
};

use crate::{
    colours::{Colour, INK, PAPER, SERIES, dark_rules},
    page::escape,
};

/// Drawing never fails on a text; what it returns is asserted in one place.
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// A place on the sheet.
pub(crate) type Place = (i32, i32);

/// Units of a sheet in a pixel of the screen.
const FINENESS: f64 = 10.0;

/// What plotters divides a font's size by.
const FONT_SCALE: f64 = 1.24;

/// Width of a letter over its height, wide fonts included; nobody knows which one a reader has.
const LETTER_WIDTH: f64 = 0.6;

/// Draws on one sheet.
pub(crate) struct Pen<'a> {
    pub(crate) area: DrawingArea<SVGBackend<'a>, Shift>,
    hints: String,
}

/// How a text stands at its place.
#[derive(Clone, Copy)]
pub(crate) struct Lettering {
    pub(crate) size: f64,
    pub(crate) colour: Colour,
    pub(crate) is_bold: bool,
    pub(crate) align: HPos,
}

impl Lettering {
    pub(crate) fn new(size: f64, colour: Colour) -> Self {
        Self {
            size,
            colour,
            is_bold: false,
            align: HPos::Left,
        }
    }

    pub(crate) fn bold(self) -> Self {
        let is_bold = true;
        Self { is_bold, ..self }
    }

    pub(crate) fn align(self, align: HPos) -> Self {
        Self { align, ..self }
    }

    pub(crate) fn style(self) -> TextStyle<'static> {
        let weight = match self.is_bold {
            true => FontStyle::Bold,
            false => FontStyle::Normal,
        };
        let family = FontFamily::Name("system-ui, sans-serif");
        let font = (family, self.size * FONT_SCALE * FINENESS).into_font();
        TextStyle {
            font: font.style(weight),
            color: self.colour.light().to_backend_color(),
            pos: Pos::new(self.align, VPos::Center),
        }
    }

    /// Letters that fit into a width.
    pub(crate) fn letters(self, width: f64) -> usize {
        (width / (self.size * LETTER_WIDTH)) as usize
    }
}

/// Units of the sheet.
pub(crate) fn units(pixels: f64) -> i32 {
    (pixels * FINENESS).round() as i32
}

pub(crate) fn at(x: f64, y: f64) -> Place {
    (units(x), units(y))
}

/// A drawing of this size: for a page, or with size and colours of its own as a file.
pub(crate) fn sheet(
    (width, height): (f64, f64),
    name: &str,
    is_file: bool,
    draw: impl FnOnce(&mut Pen<'_>) -> Drawn,
) -> String {
    let (wide, high) = (units(width), units(height));
    let mut text = String::new();
    let size = (wide.unsigned_abs(), high.unsigned_abs());
    let hints = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let hints = String::new();
        let mut pen = Pen { area, hints };
        let drawn = draw(&mut pen).and_then(|()| pen.area.present());
        assert!(drawn.is_ok(), "a drawing in memory: {drawn:?}");
        pen.hints
    };
    let (_, body) = text.split_once('>').unwrap_or_default();
    // One element a line.
    let body: String = body.lines().collect::<String>().replace("><", ">\n<");
    let body = body.trim_end_matches("</svg>");
    let name = escape(name);
    let more = match is_file {
        true => format!(
            " xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\n\
             <title>{name}</title>\n<style>{}</style",
            dark_rules(body)
        ),
        false => String::new(),
    };
    format!(
        "<svg viewBox=\"0 0 {wide} {high}\" role=\"img\" aria-label=\"{name}\"{more}>\n\
         {body}{hints}</svg>\n"
    )
}

impl Pen<'_> {
    pub(crate) fn text(&self, text: &str, place: Place, lettering: Lettering) -> Drawn {
        self.area.draw_text(text, &lettering.style(), place)
    }

    pub(crate) fn line(&self, places: Vec<Place>, colour: Colour, width: f64) -> Drawn {
        self.area
            .draw(&PathElement::new(places, stroke(colour, width)))
    }

    pub(crate) fn dashed(&self, places: Vec<Place>, colour: Colour, width: f64) -> Drawn {
        let (dash, gap) = (units(6.0), units(4.0));
        self.area.draw(&DashedPathElement::new(
            places,
            dash,
            gap,
            stroke(colour, width),
        ))
    }

    /// A filled area; `opacity` of 1 hides what is below.
    pub(crate) fn fill(&self, places: Vec<Place>, colour: Colour, opacity: f64) -> Drawn {
        self.area
            .draw(&Polygon::new(places, colour.light().mix(opacity)))
    }

    pub(crate) fn bar(&self, corners: [Place; 2], colour: Colour) -> Drawn {
        self.area
            .draw(&Rectangle::new(corners, colour.light().filled()))
    }

    pub(crate) fn ring(&self, place: Place, radius: f64, colour: Colour, width: f64) -> Drawn {
        let ring = Circle::new(place, units(radius), stroke(colour, width));
        self.area.draw(&ring)
    }

    /// The shape of a style: each of the eight has its own, so that nothing depends on colours.
    pub(crate) fn marker(&self, (x, y): Place, style: usize) -> Drawn {
        let (corners, turn) = [(16, 0.0), (4, 0.5), (3, 0.0), (4, 0.0)][style % 4];
        let radius = f64::from(units(4.0));
        let corner = |number: usize| {
            let angle = (number as f64 + turn) / corners as f64 * std::f64::consts::TAU;
            let (across, up) = (radius * angle.sin(), radius * angle.cos());
            (x + across.round() as i32, y - up.round() as i32)
        };
        let outline: Vec<Place> = (0..=corners).map(corner).collect();
        let colour = SERIES[style % SERIES.len()];
        let is_hollow = style % SERIES.len() >= 4;
        self.fill(outline.clone(), if is_hollow { PAPER } else { colour }, 1.0)?;
        self.line(outline, colour, 1.5)
    }

    /// A text that appears when the pointer is near this place.
    pub(crate) fn hint(&mut self, (x, y): Place, text: &str) {
        // Writing to a String cannot fail.
        let _ = write!(
            self.hints,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{}\" fill-opacity=\"0\"><title>{}</title></circle>",
            units(7.0),
            escape(text)
        );
    }

    /// A text in as many lines as it needs from `y` on down; where the last one ends.
    pub(crate) fn paragraph(
        &self,
        text: &str,
        width: f64,
        y: f64,
        lettering: Lettering,
    ) -> Result<f64, DrawingAreaErrorKind<io::Error>> {
        let letters_max = lettering.letters(width);
        let height = lettering.size * 1.35;
        let mut rows: Vec<String> = Vec::new();
        for word in text.split(' ') {
            match rows.last_mut() {
                Some(row) if row.chars().count() + 1 + word.chars().count() <= letters_max => {
                    row.push(' ');
                    row.push_str(word);
                }
                _ => rows.push(word.into()),
            }
        }
        for (number, row) in rows.iter().enumerate() {
            let middle = y + height * (number as f64 + 0.5);
            self.text(row, at(0.0, middle), lettering)?;
        }
        Ok(y + height * rows.len() as f64)
    }
}

/// Ink for titles.
pub(crate) fn title(size: f64) -> Lettering {
    Lettering::new(size, INK).bold()
}

pub(crate) fn stroke(colour: Colour, width: f64) -> ShapeStyle {
    colour.light().stroke_width(units(width).unsigned_abs())
}
