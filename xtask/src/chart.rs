//! The charts of the documents, drawn from measured numbers: `cargo xtask chart`.
//!
//! A number stands in one place: in a table of a page under `docs/research`. The files
//! `docs/research/*.toml` say which cells a drawing shows and which command measured them, the
//! drawings stand beside the texts that show them. Tidy draws them again and compares, so that
//! neither a table nor a drawing changes alone, and a cell that is gone is an error. Every group of
//! bars has its own scale, and every scale starts at zero. The best bar of a group is the coloured
//! one, whoever's it is; curtail's are told by bold names.

mod cells;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tally::Outcome;
use crate::workspace::Workspace;

/// Which cells are drawn, and their drawing.
pub(crate) const CHARTS: [(&str, &str); 2] = [
    ("docs/research/summary.toml", "docs/chart.svg"),
    ("docs/research/policies.toml", "docs/guide/policies.svg"),
];

/// One scale: what was measured, and each server's number.
struct Group {
    name: String,
    /// With the direction: `M requests/s, more is better`.
    unit: String,
    less_is_better: bool,
    bars: Vec<(String, f64)>,
}

pub(crate) fn command(workspace: &Workspace) -> Result<Outcome> {
    for (numbers, drawing) in CHARTS {
        let text = fs::read_to_string(workspace.root.join(numbers)).context(numbers)?;
        let svg = draw(&workspace.root, &text).context(numbers)?;
        fs::write(workspace.root.join(drawing), svg)?;
        println!("drew {drawing}");
    }
    Ok(Outcome::passed())
}

/// Why the drawing is not that of the cells, if it is not; nothing if there is no list of cells.
pub(crate) fn disagreement(root: &Path, numbers: &str, drawing: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(numbers)).ok()?;
    match draw(root, &text) {
        Err(error) => Some(format!("{numbers}: {error:#}")),
        Ok(expected) => {
            let is_same = fs::read_to_string(root.join(drawing)).is_ok_and(|svg| svg == expected);
            (!is_same).then(|| format!("not drawn from {numbers}: run cargo xtask chart"))
        }
    }
}

/// The SVG of the cells that the list names.
fn draw(root: &Path, list: &str) -> Result<String> {
    let table: toml::Table = list.parse()?;
    let title = table
        .get("title")
        .and_then(|title| title.as_str())
        .context("title")?;
    let groups = groups(root, &table)?;
    let names = groups.iter().flat_map(|group| &group.bars);
    let longest = names.map(|(name, _)| name.chars().count()).max();
    let names_width = longest.unwrap_or(0) as f64 * NAME_LETTER_WIDTH + 12.0;
    let mut body = String::new();
    let title_end = lines(&mut body, "title", title, TITLE_LETTERS_MAX, 20.0, 20.0)?;
    let mut top = title_end + 10.0;
    for group in &groups {
        top = group.draw(&mut body, top, names_width)? + GROUP_GAP;
    }
    let height = top;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{0}</title>\n{STYLE}\n\
         {body}</svg>\n",
        escaped(title)
    ))
}

fn groups(root: &Path, table: &toml::Table) -> Result<Vec<Group>> {
    let groups = table.get("group").and_then(|groups| groups.as_array());
    let groups = groups.context("group")?;
    groups.iter().map(|entry| group(root, entry)).collect()
}

fn group(root: &Path, entry: &toml::Value) -> Result<Group> {
    let text = |key: &str| -> Result<&str> {
        let text = entry.get(key).and_then(|value| value.as_str());
        text.with_context(|| format!("a group without {key}"))
    };
    let (name, unit, better) = (text("name")?, text("unit")?, text("better")?);
    let less_is_better = match better {
        "less" => true,
        "more" => false,
        other => bail!("{name}: better is less or more, not {other}"),
    };
    text("command")?; // shown in the documents; a number without its command is no number
    let path = text("page")?;
    let page = fs::read_to_string(root.join(path)).with_context(|| path.to_string())?;
    let number = entry.get("table").and_then(toml::Value::as_integer);
    let source = cells::Source {
        page: &page,
        section: text("section")?,
        table: number.map(|number| number.max(0) as usize),
        column: text("column")?,
    };
    let bars = entry.get("bars").and_then(|bars| bars.as_array());
    let bars = bars.with_context(|| format!("{name}: bars"))?.iter();
    let bar = |bar: &toml::Value| -> Result<(String, f64)> {
        let label = bar.get("name").and_then(|label| label.as_str());
        let label = label.with_context(|| format!("{name}: a bar's name"))?;
        let row = bar.get("row").and_then(|row| row.as_array());
        let row = row.with_context(|| format!("{name}: the row of {label}"))?;
        let row: Vec<&str> = row.iter().filter_map(toml::Value::as_str).collect();
        let value = source.number(&row);
        Ok((
            label.into(),
            value.with_context(|| format!("{path}: {label}"))?,
        ))
    };
    Ok(Group {
        name: name.into(),
        unit: format!("{unit}, {better} is better"),
        less_is_better,
        bars: bars.map(bar).collect::<Result<_>>()?,
    })
}

impl Group {
    /// Draws the group below `top`; where it ends.
    fn draw(&self, body: &mut String, top: f64, names_width: f64) -> Result<f64> {
        let top = lines(body, "group", &self.name, LETTERS_MAX, top + 14.0, 17.0)?;
        let top = lines(body, "unit", &self.unit, LETTERS_MAX, top + 14.0, 17.0)? + 6.0;
        let values = || self.bars.iter().map(|(_, value)| *value);
        let largest = values().fold(f64::MIN_POSITIVE, f64::max);
        let best = match self.less_is_better {
            true => values().fold(f64::MAX, f64::min),
            false => largest,
        };
        let scale = (WIDTH - names_width - VALUE_WIDTH) / largest;
        for (number, (name, value)) in self.bars.iter().enumerate() {
            let y = top + BAR_HEIGHT * number as f64;
            let width = (value * scale).max(1.0);
            let class = if *value == best { "best" } else { "other" };
            let ours = match name.starts_with("curtail") {
                true => " ours",
                false => "",
            };
            let text = y + 13.0;
            writeln!(
                body,
                "<text class=\"name{ours}\" x=\"{0:.1}\" y=\"{text}\">{1}</text>\
                 <rect class=\"{class}\" x=\"{names_width:.1}\" y=\"{y}\" width=\"{width:.1}\" \
                 height=\"16\" rx=\"2\"/>\
                 <text class=\"{class}\" x=\"{2:.1}\" y=\"{text}\">{value}</text>",
                names_width - 8.0,
                escaped(name),
                names_width + width + 6.0,
            )?;
        }
        Ok(top + BAR_HEIGHT * self.bars.len() as f64)
    }
}

/// A text in as many lines as it needs, the first with its baseline at `y`; where the last ends.
fn lines(
    body: &mut String,
    class: &str,
    text: &str,
    letters_max: usize,
    y: f64,
    line_height: f64,
) -> Result<f64> {
    let mut rows = vec![String::new()];
    for word in text.split(' ') {
        let is_full = |row: &String| {
            !row.is_empty() && row.chars().count() + 1 + word.chars().count() > letters_max
        };
        match rows.last_mut() {
            Some(row) if !is_full(row) => {
                row.push_str(if row.is_empty() { "" } else { " " });
                row.push_str(word);
            }
            _ => rows.push(word.into()),
        }
    }
    for (number, row) in rows.iter().enumerate() {
        let y = y + line_height * number as f64;
        let row = escaped(row);
        writeln!(
            body,
            "<text class=\"{class}\" x=\"0\" y=\"{y}\">{row}</text>"
        )?;
    }
    Ok(y + line_height * (rows.len() - 1) as f64 + 4.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const WIDTH: f64 = 720.0;
const GROUP_GAP: f64 = 18.0;
const BAR_HEIGHT: f64 = 20.0;
/// Room for a number behind the longest bar.
const VALUE_WIDTH: f64 = 64.0;
/// A wide letter of a bold name; nobody knows which font a reader has.
const NAME_LETTER_WIDTH: f64 = 8.8;
/// Letters that fit into the width in the widest of the usual fonts.
const LETTERS_MAX: usize = 88;
const TITLE_LETTERS_MAX: usize = 74;

/// Readable on a light and on a dark page.
const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.unit, .name, text.other { fill: #57606a }
.name { text-anchor: end }
.name.ours { fill: #24292f; font-weight: 600 }
rect.other { fill: #afb8c1 }
rect.best { fill: #1f6feb }
text.best { font-weight: 600 }
@media (prefers-color-scheme: dark) {
text, .name.ours { fill: #e6edf3 }
.unit, .name, text.other { fill: #9198a1 }
.name.ours { fill: #e6edf3 }
rect.other { fill: #57606a }
}
</style>";

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "title = \"A < B\"\n[[group]]\nname = \"rate\"\nunit = \"M/s\"\n\
                        better = \"more\"\ncommand = \"cargo xtask bench server\"\n\
                        page = \"page.md\"\nsection = \"Rates\"\ncolumn = \"M/s\"\nbars = [\n\
                        { name = \"curtail\", row = [\"small\", \"curtail\"] },\n\
                        { name = \"peer\", row = [\"small\", \"peer\"] },\n]\n";

    const PAGE: &str = "# Page\n\n## Rates\n\n| load | server | M/s |\n|---|---|---|\n\
                        | small | curtail | 1.5 (1-2) |\n|  | peer | **3** |\n";

    /// A folder with the page; it is gone with the test.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("xtask-chart-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(folder.join("docs/research")).unwrap();
            fs::write(folder.join("page.md"), PAGE).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    // The longest bar is as wide as the scale, half its value half as wide; the best one has the
    // colour although it is the peer's; text is escaped.
    #[test]
    fn bars_are_in_proportion_and_the_best_is_coloured() {
        let folder = Folder::new("draw");
        let drawing = draw(&folder.0, LIST).unwrap();
        let longest = WIDTH - (7.0 * NAME_LETTER_WIDTH + 12.0) - VALUE_WIDTH;
        for (class, width) in [("best", longest), ("other", longest / 2.0)] {
            let width = format!("width=\"{width:.1}\" height=\"16\"");
            let has_both = |line: &str| line.contains(class) && line.contains(&width);
            assert!(drawing.lines().any(has_both), "{class} {width}: {drawing}");
        }
        assert!(drawing.contains("A &lt; B"));
        let less = draw(&folder.0, &LIST.replace("\"more\"", "\"less\"")).unwrap();
        let best = less
            .lines()
            .find(|line| line.contains("<rect class=\"best\""));
        assert!(
            best.is_some_and(|line| line.contains(">curtail<")),
            "{less}"
        );
    }

    #[test]
    fn a_number_without_its_command_or_its_cell_is_refused() {
        let folder = Folder::new("refused");
        for (from, to) in [
            ("command", "comment"),
            ("\"Rates\"", "\"Latencies\""),
            ("\"peer\"]", "\"other\"]"),
            ("column = \"M/s\"", "column = \"k/s\""),
        ] {
            assert!(draw(&folder.0, LIST).is_ok());
            assert!(draw(&folder.0, &LIST.replace(from, to)).is_err(), "{to}");
        }
    }

    // No text is wider than the drawing, nor does a line hold more than fits.
    #[test]
    fn long_texts_take_several_lines() {
        let folder = Folder::new("long");
        let name = "a word ".repeat(30);
        let list = LIST.replace("\"rate\"", &format!("{name:?}"));
        let drawing = draw(&folder.0, &list).unwrap();
        let texts = drawing
            .lines()
            .filter(|line| line.contains("class=\"group\""));
        assert!(texts.clone().count() > 2);
        assert!(texts.map(str::len).all(|length| length < LETTERS_MAX + 50));
    }

    // A table that changed without the drawing is seen, and a drawing without the table.
    #[test]
    fn a_stale_number_is_seen() {
        let folder = Folder::new("stale");
        let (numbers, drawing) = CHARTS[0];
        let root = &folder.0;
        let agrees = || disagreement(root, numbers, drawing).is_none();
        assert!(agrees(), "no cells, no drawing");
        fs::write(root.join(numbers), LIST).unwrap();
        assert!(!agrees(), "cells without their drawing");
        fs::write(root.join(drawing), draw(root, LIST).unwrap()).unwrap();
        assert!(agrees());
        fs::write(root.join("page.md"), PAGE.replace("1.5", "1.6")).unwrap();
        assert!(!agrees(), "a table's number changed");
        fs::write(root.join("page.md"), PAGE.replace("| small |", "| large |")).unwrap();
        assert!(!agrees(), "a table's row is gone");
    }
}
