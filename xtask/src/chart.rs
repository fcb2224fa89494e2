//! The charts of the documents, drawn from measured numbers: `cargo xtask chart`.
//!
//! A number stands in one place: in a table of a page under `docs/research`. The files
//! `docs/research/*.toml` say which cells a drawing shows and which command measured them, the
//! drawings stand beside the texts that show them. Tidy draws them again and compares, so that
//! neither a table nor a drawing changes alone, and a cell that is gone is an error. The names of
//! curtail's bars are bold.

mod markdown_tables;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use curtail_report::{Bar, BarChart, BarGroup};

use crate::check_result::Outcome;
use crate::workspace::Workspace;

/// Which cells are drawn, and their drawing.
pub(crate) const CHARTS: [(&str, &str); 3] = [
    ("docs/research/summary.toml", "docs/chart.svg"),
    ("docs/research/policies.toml", "docs/guide/policies.svg"),
    ("docs/research/tier.toml", "docs/guide/tier.svg"),
];

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
    let title = table.get("title").and_then(|title| title.as_str());
    let chart = BarChart {
        title: title.context("title")?.into(),
        groups: groups(root, &table)?,
    };
    Ok(chart.svg())
}

/// The groups, each with what the one above it has where it says nothing itself.
fn groups(root: &Path, table: &toml::Table) -> Result<Vec<BarGroup>> {
    let groups = table.get("group").and_then(|groups| groups.as_array());
    let mut whole = toml::Table::new();
    let complete = groups.context("group")?.iter().map(|entry| {
        whole.extend(entry.as_table().context("a group")?.clone());
        group(root, &whole)
    });
    complete.collect()
}

fn group(root: &Path, entry: &toml::Table) -> Result<BarGroup> {
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
    let source = markdown_tables::Source {
        page: &page,
        section: text("section")?,
        table: number.map(|number| number.max(0) as usize),
        column: text("column")?,
    };
    let load = entry.get("load").and_then(|load| load.as_array());
    let load = load.with_context(|| format!("{name}: load"))?;
    let bars = entry.get("bars").and_then(|bars| bars.as_array());
    let bars = bars.with_context(|| format!("{name}: bars"))?.iter();
    let bar = |bar: &toml::Value| -> Result<Bar> {
        let label = bar.get("name").and_then(|label| label.as_str());
        let label = label.with_context(|| format!("{name}: a bar's name"))?;
        let row = bar.get("row").and_then(|row| row.as_array());
        let row = row.with_context(|| format!("{name}: the row of {label}"))?;
        let row = load.iter().chain(row).filter_map(toml::Value::as_str);
        let row: Vec<&str> = row.collect();
        let value = source.number(&row);
        Ok(Bar {
            name: label.into(),
            value: value.with_context(|| format!("{path}: {label}"))?,
            is_ours: label.starts_with("curtail"),
        })
    };
    Ok(BarGroup {
        name: name.into(),
        unit: format!("{unit}, {better} is better"),
        less_is_better,
        bars: bars.map(bar).collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "title = \"A < B\"\n[[group]]\nname = \"rate\"\nunit = \"M/s\"\n\
                        better = \"more\"\ncommand = \"cargo xtask bench server\"\n\
                        page = \"page.md\"\nsection = \"Rates\"\ncolumn = \"M/s\"\n\
                        load = [\"small\"]\nbars = [\n\
                        { name = \"curtail\", row = [\"curtail\"] },\n\
                        { name = \"peer\", row = [\"peer\"] },\n]\n\
                        [[group]]\nname = \"rate of large ones\"\nload = [\"large\"]\n";

    const PAGE: &str = "# Page\n\n## Rates\n\n| load | server | M/s |\n|---|---|---|\n\
                        | small | curtail | 1.5 (1-2) |\n|  | peer | **3** |\n\
                        | large | curtail | 1 |\n|  | peer | 2 |\n";

    /// A folder with the page.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("docs/research")).unwrap();
        fs::write(folder.path().join("page.md"), PAGE).unwrap();
        folder
    }

    #[test]
    fn a_number_without_its_command_or_its_cell_is_refused() {
        let folder = folder();
        for (from, to) in [
            ("command", "comment"),
            ("\"Rates\"", "\"Latencies\""),
            ("\"peer\"]", "\"other\"]"),
            ("column = \"M/s\"", "column = \"k/s\""),
        ] {
            assert!(draw(folder.path(), LIST).is_ok());
            assert!(
                draw(folder.path(), &LIST.replace(from, to)).is_err(),
                "{to}"
            );
        }
    }

    // A table that changed without the drawing is seen, and a drawing without the table.
    #[test]
    fn a_stale_number_is_seen() {
        let folder = folder();
        let (numbers, drawing) = CHARTS[0];
        let root = folder.path();
        let agrees = || disagreement(root, numbers, drawing).is_none();
        assert!(agrees(), "no cells, no drawing");
        fs::write(root.join(numbers), LIST).unwrap();
        assert!(!agrees(), "cells without their drawing");
        fs::write(root.join(drawing), draw(root, LIST).unwrap()).unwrap();
        assert!(agrees());
        fs::write(root.join("page.md"), PAGE.replace("1.5", "1.6")).unwrap();
        assert!(!agrees(), "a table's number changed");
        fs::write(root.join("page.md"), PAGE.replace("| small |", "| other |")).unwrap();
        assert!(!agrees(), "a table's row is gone");
    }
}
