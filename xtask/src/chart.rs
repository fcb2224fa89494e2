//! The charts of the documents, drawn from measured numbers: `cargo xtask chart`.
//!
//! The numbers, and the commands that measured them, stand in `docs/benchmarks/*.toml`, the
//! drawings beside the texts that show them. Tidy checks that each drawing is that of its numbers,
//! so neither changes alone. Every group of bars has its own scale, and every scale starts at zero.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tally::Outcome;
use crate::workspace::Workspace;

/// Where numbers are, and their drawing.
pub(crate) const CHARTS: [(&str, &str); 2] = [
    ("docs/benchmarks/summary.toml", "docs/chart.svg"),
    ("docs/benchmarks/policies.toml", "docs/guide/policies.svg"),
];

/// One scale: what was measured, and each server's number.
struct Group {
    name: String,
    /// With the direction: `M requests/s, more is better`.
    unit: String,
    bars: Vec<(String, f64)>,
}

pub(crate) fn command(workspace: &Workspace) -> Result<Outcome> {
    for (numbers, drawing) in CHARTS {
        let text = fs::read_to_string(workspace.root.join(numbers)).context(numbers)?;
        fs::write(workspace.root.join(drawing), draw(&text)?)?;
        println!("drew {drawing}");
    }
    Ok(Outcome::passed())
}

/// Whether the drawing is that of the numbers; also if there are no numbers yet.
pub(crate) fn agrees(root: &Path, numbers: &str, drawing: &str) -> Result<bool> {
    let (Ok(numbers), drawing) = (
        fs::read_to_string(root.join(numbers)),
        fs::read_to_string(root.join(drawing)),
    ) else {
        return Ok(true);
    };
    Ok(drawing.is_ok_and(|drawing| draw(&numbers).is_ok_and(|expected| expected == drawing)))
}

/// The SVG of the numbers.
fn draw(numbers: &str) -> Result<String> {
    let table: toml::Table = numbers.parse()?;
    let title = table["title"].as_str().context("title")?;
    let groups = groups(&table)?;
    let mut body = String::new();
    let mut top = HEADER_HEIGHT;
    for group in &groups {
        group.draw(&mut body, top)?;
        top += GROUP_HEADER_HEIGHT + BAR_HEIGHT * group.bars.len() as f64 + GROUP_GAP;
    }
    let height = top;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{0}</title>\n{STYLE}\n\
         <text class=\"title\" x=\"0\" y=\"20\">{0}</text>\n{body}</svg>\n",
        escaped(title)
    ))
}

fn groups(table: &toml::Table) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for group in table["group"].as_array().context("group")? {
        let text = |key: &str| -> Result<String> {
            let text = group.get(key).and_then(|value| value.as_str());
            Ok(text
                .with_context(|| format!("a group without {key}"))?
                .to_string())
        };
        let mut bars = Vec::new();
        for bar in group
            .get("bars")
            .and_then(|bars| bars.as_array())
            .context("bars")?
        {
            let name = bar
                .get("name")
                .and_then(|name| name.as_str())
                .context("a bar's name")?;
            let value = bar.get("value").context("a bar's value")?;
            let value = value
                .as_float()
                .or(value.as_integer().map(|whole| whole as f64));
            bars.push((
                name.to_string(),
                value.context("a bar's value is a number")?,
            ));
        }
        text("command")?; // shown in the documents; a number without its command is no number
        groups.push(Group {
            name: text("name")?,
            unit: text("unit")?,
            bars,
        });
    }
    Ok(groups)
}

impl Group {
    fn draw(&self, body: &mut String, top: f64) -> Result<()> {
        let (name, unit) = (escaped(&self.name), escaped(&self.unit));
        let baseline = top + 14.0;
        writeln!(
            body,
            "<text x=\"0\" y=\"{baseline}\">{name} <tspan class=\"unit\">({unit})</tspan></text>"
        )?;
        let largest = self
            .bars
            .iter()
            .map(|(_, value)| *value)
            .fold(f64::MIN_POSITIVE, f64::max);
        for (number, (name, value)) in self.bars.iter().enumerate() {
            let y = top + GROUP_HEADER_HEIGHT + BAR_HEIGHT * number as f64;
            let width = (value / largest * BAR_WIDTH_MAX).max(1.0);
            let class = if name.starts_with("curtail") {
                "ours"
            } else {
                "peer"
            };
            let text = y + 13.0;
            writeln!(
                body,
                "<text class=\"name\" x=\"{0}\" y=\"{text}\">{1}</text>\
                 <rect class=\"{class}\" x=\"{NAME_WIDTH}\" y=\"{y}\" width=\"{width:.1}\" \
                 height=\"16\" rx=\"2\"/>\
                 <text class=\"{class} value\" x=\"{2:.1}\" y=\"{text}\">{value}</text>",
                NAME_WIDTH - 8.0,
                escaped(name),
                NAME_WIDTH + width + 6.0,
            )?;
        }
        Ok(())
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const WIDTH: f64 = 720.0;
const HEADER_HEIGHT: f64 = 36.0;
const GROUP_HEADER_HEIGHT: f64 = 24.0;
const GROUP_GAP: f64 = 14.0;
const BAR_HEIGHT: f64 = 20.0;
const NAME_WIDTH: f64 = 100.0;
const BAR_WIDTH_MAX: f64 = 540.0;

/// Readable on a light and on a dark page.
const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.unit, .name, text.peer { fill: #57606a }
.name { text-anchor: end }
rect.peer { fill: #afb8c1 }
rect.ours { fill: #1f6feb }
text.ours { font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.unit, .name, text.peer { fill: #9198a1 }
rect.peer { fill: #57606a }
}
</style>";

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = "title = \"A < B\"\n[[group]]\nname = \"rate\"\nunit = \"M/s\"\n\
                           command = \"cargo xtask bench server\"\nbars = [\n\
                           { name = \"curtail\", value = 2.0 },\n\
                           { name = \"peer\", value = 1 },\n]\n";

    // The longest bar is as wide as the scale, half its value half as wide; text is escaped.
    #[test]
    fn bars_are_in_proportion() {
        let drawing = draw(NUMBERS).unwrap();
        assert!(
            drawing.contains("class=\"ours\" x=\"100\" y=\"60\" width=\"540.0\""),
            "{drawing}"
        );
        assert!(
            drawing.contains("class=\"peer\" x=\"100\" y=\"80\" width=\"270.0\""),
            "{drawing}"
        );
        assert!(drawing.contains("A &lt; B"));
    }

    #[test]
    fn a_number_without_its_command_is_refused() {
        assert!(draw(&NUMBERS.replace("command", "comment")).is_err());
    }

    // A drawing that is not that of the numbers is seen.
    #[test]
    fn a_changed_number_is_seen() {
        let root = std::env::temp_dir().join(format!("xtask-chart-{}", std::process::id()));
        let (numbers, drawing) = CHARTS[0];
        let agrees = || agrees(&root, numbers, drawing).unwrap();
        fs::create_dir_all(root.join("docs/benchmarks")).unwrap();
        assert!(agrees(), "no numbers, no drawing");
        fs::write(root.join(numbers), NUMBERS).unwrap();
        assert!(!agrees(), "numbers without their drawing");
        fs::write(root.join(drawing), draw(NUMBERS).unwrap()).unwrap();
        assert!(agrees());
        fs::write(root.join(numbers), NUMBERS.replace("2.0", "3.0")).unwrap();
        assert!(!agrees());
        fs::remove_dir_all(root).unwrap();
    }
}
