//! Reads numbers from the tables of a Markdown page.

use anyhow::{Context, Result, bail};

/// Where a group's numbers stand: a column of a table below a heading.
pub(super) struct Source<'a> {
    pub(super) page: &'a str,
    /// The heading's text.
    pub(super) section: &'a str,
    /// Which table below it, counted from 1, where several have the column.
    pub(super) table: Option<usize>,
    pub(super) column: &'a str,
}

impl Source<'_> {
    /// The number in the row whose first cells are these. A table leaves a first cell empty that is
    /// the same as above.
    pub(super) fn number(&self, row: &[&str]) -> Result<f64> {
        let tables = self.tables()?;
        let (header, rows) = match (tables.as_slice(), self.table) {
            (tables, Some(number)) => {
                let table = number.checked_sub(1).and_then(|index| tables.get(index));
                table.with_context(|| format!("no table {number} in {:?}", self.section))?
            }
            ([table], None) => table,
            (tables, None) => bail!(
                "{} tables in {:?} have a column {:?}",
                tables.len(),
                self.section,
                self.column
            ),
        };
        let column = header.iter().position(|name| *name == self.column);
        let column = column.with_context(|| format!("no column {:?}", self.column))?;
        let mut matching = rows.iter().filter(|cells| cells.starts_with(row));
        let cells = matching.next().with_context(|| format!("no row {row:?}"))?;
        if matching.next().is_some() || row.is_empty() {
            bail!("several rows {row:?}");
        }
        let cell = cells.get(column).copied().unwrap_or_default();
        let number = cell.trim_matches('*').split(' ').next();
        let number = number.and_then(|number| number.trim_matches('*').parse().ok());
        number.with_context(|| format!("no number at the start of {cell:?}"))
    }

    /// Headers and rows of the section's tables that have the column.
    fn tables(&self) -> Result<Vec<Table<'_>>> {
        let is_heading = |line: &&str| line.starts_with('#');
        let is_ours =
            |line: &&str| line.starts_with('#') && line.trim_matches(['#', ' ']) == self.section;
        let mut lines = self.page.lines();
        lines
            .by_ref()
            .find(is_ours)
            .with_context(|| format!("no heading {:?}", self.section))?;
        let section: Vec<&str> = lines.take_while(|line| !is_heading(line)).collect();
        let is_row = |line: &&str| line.starts_with('|');
        let blocks = section.split(|line| !is_row(line));
        let tables = blocks.filter(|block| block.len() > 2).map(table);
        Ok(tables
            .filter(|(header, _)| header.contains(&self.column))
            .collect())
    }
}

/// A header and rows.
type Table<'a> = (Vec<&'a str>, Vec<Vec<&'a str>>);

fn table<'a>(block: &[&'a str]) -> Table<'a> {
    let mut rows: Vec<Vec<&str>> = block[2..].iter().map(|line| cells(line)).collect();
    for index in 1..rows.len() {
        if rows[index].first() == Some(&"") {
            rows[index][0] = rows[index - 1][0];
        }
    }
    (cells(block[0]), rows)
}

fn cells(line: &str) -> Vec<&str> {
    let inner = line.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# P\n## A\n| x | y |\n|---|---|\n| 1 | 2 |\n|  | 3 |\n\ntext\n\n\
                        | x | y |\n|---|---|\n| 1 | 4.5 (4-5) |\n\
                        ## B\n| x | y |\n|--|--|\n| 1 | 9 |\n";

    fn source(section: &'static str, table: Option<usize>) -> Source<'static> {
        Source {
            page: PAGE,
            section,
            table,
            column: "y",
        }
    }

    #[test]
    fn a_cell_is_named_by_heading_table_row_and_column() {
        assert_eq!(source("B", None).number(&["1"]).unwrap(), 9.0);
        assert_eq!(source("A", Some(2)).number(&["1"]).unwrap(), 4.5);
        assert_eq!(source("A", Some(1)).number(&["1", "3"]).unwrap(), 3.0);
    }

    // Anything that names two cells or none is refused.
    #[test]
    fn what_names_no_single_cell_is_refused() {
        assert!(source("A", None).number(&["1"]).is_err(), "two tables");
        assert!(source("A", Some(1)).number(&["1"]).is_err(), "two rows");
        assert!(source("A", Some(3)).number(&["1"]).is_err(), "no table");
        assert!(source("C", None).number(&["1"]).is_err(), "no heading");
        assert!(source("B", None).number(&["2"]).is_err(), "no row");
    }
}
