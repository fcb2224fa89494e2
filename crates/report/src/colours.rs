//! Colours for light and dark screens.
//!
//! A drawing has the light colours as attributes; a style sheet replaces them on dark screens. The
//! eight of the series are told apart in grey and by the colour-blind (after Okabe and Ito).

use plotters::style::RGBColor;

/// Red, green and blue as `0xRRGGBB`, on light and on dark paper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colour {
    light: u32,
    dark: u32,
}

pub(crate) const PAPER: Colour = colour(0xFFFFFF, 0x14181D);
pub(crate) const INK: Colour = colour(0x1B1F24, 0xE7EBF0);
pub(crate) const SOFT: Colour = colour(0x57606A, 0x9AA5B1);
pub(crate) const GRID: Colour = colour(0xE3E6EA, 0x272E36);
/// Axes, and lines of a grid that have a number.
pub(crate) const AXIS: Colour = colour(0xC3C9D0, 0x3D4752);
/// Bars that are not the best.
pub(crate) const BAR: Colour = colour(0xAFB8C1, 0x57606B);
/// What stands out: a bound that was missed.
pub(crate) const WARNING: Colour = colour(0xD99A00, 0xE6AC1F);
/// The series.
pub(crate) const SERIES: [Colour; 8] = [
    colour(0x0072B2, 0x56B4E9),
    colour(0xD55E00, 0xF08A4B),
    colour(0x009E73, 0x35C79A),
    colour(0xA6447F, 0xE08FC0),
    colour(0xB07D00, 0xE6C13C),
    colour(0x2D8FC4, 0x9AD1F2),
    colour(0x444B54, 0xB8C0C8),
    colour(0x7A5195, 0xC0A3DD),
];

const fn colour(light: u32, dark: u32) -> Colour {
    Colour { light, dark }
}

impl Colour {
    pub(crate) fn light(self) -> RGBColor {
        let [_, red, green, blue] = self.light.to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// The rules that turn the colours of a drawing into those for dark paper.
pub(crate) fn dark_rules(drawing: &str) -> String {
    let all = [PAPER, INK, SOFT, GRID, AXIS, BAR, WARNING];
    let rule = |colour: &Colour| {
        let Colour { light, dark } = colour;
        format!(
            "svg [fill=\"#{light:06X}\"]{{fill:#{dark:06x}}}\
             svg [stroke=\"#{light:06X}\"]{{stroke:#{dark:06x}}}\n"
        )
    };
    let used = |colour: &&Colour| drawing.contains(&format!("=\"#{:06X}\"", colour.light));
    let rules: String = all.iter().chain(&SERIES).filter(used).map(rule).collect();
    format!("@media(prefers-color-scheme:dark){{\n{rules}}}")
}

/// Variables `--paper`, `--ink` and so on, and `--c0` to `--c7`, for a page's own rules.
pub(crate) fn variables() -> String {
    let named = [
        ("paper", PAPER),
        ("ink", INK),
        ("soft", SOFT),
        ("grid", GRID),
        ("warning", WARNING),
    ];
    let named = named.map(|(name, colour)| (name.to_owned(), colour));
    let series = SERIES.iter().enumerate();
    let series = series.map(|(number, colour)| (format!("c{number}"), *colour));
    let all: Vec<(String, Colour)> = named.into_iter().chain(series).collect();
    let values = |of: fn(&Colour) -> u32| -> String {
        let value = |(name, colour): &(String, Colour)| format!("--{name}:#{:06x};", of(colour));
        all.iter().map(value).collect()
    };
    let (light, dark) = (values(|colour| colour.light), values(|colour| colour.dark));
    format!(":root{{{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n")
}
