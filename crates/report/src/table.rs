//! Tables for a terminal, for Markdown and for a page.

use std::fmt::Write as _;

use crate::page::escape;

/// A header and rows of cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns whose cells begin at the left edge; all others end at the right one.
    left: Vec<usize>,
    /// Rows that stand out on a page.
    marked: Vec<usize>,
}

/// A column: its header, and what it says of a row.
pub type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

/// Blanks between two columns on a terminal.
const GAP: usize = 2;

impl Table {
    /// A table with this header whose columns `left` begin at the left edge.
    pub fn new<C: ToString>(header: &[C], left: &[usize]) -> Self {
        let mut table = Self {
            left: left.to_vec(),
            ..Self::default()
        };
        table.row(header);
        table
    }

    /// A table of these rows; every column begins at the left edge.
    pub fn of<R>(rows: impl IntoIterator<Item = R>, columns: &[Column<'_, R>]) -> Self {
        let header: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let mut table = Self::new(&header, &Vec::from_iter(0..columns.len()));
        for row in rows {
            let cells: Vec<String> = columns.iter().map(|(_, cell)| cell(&row)).collect();
            table.row(&cells);
        }
        table
    }

    /// The same table, of which only these columns begin at the left edge.
    #[must_use]
    pub fn left(mut self, columns: &[usize]) -> Self {
        self.left = columns.to_vec();
        self
    }

    /// Adds a row of cells behind the names of their columns, which are the header of the first
    /// row.
    pub fn named(&mut self, cells: &[(&str, String)]) {
        if self.rows.is_empty() {
            self.row(&Vec::from_iter(cells.iter().map(|(name, _)| name)));
        }
        self.row(&Vec::from_iter(cells.iter().map(|(_, cell)| cell)));
    }

    /// Adds a row; one that is shorter than others ends early.
    pub fn row<C: ToString>(&mut self, cells: &[C]) {
        self.rows.push(cells.iter().map(C::to_string).collect());
    }

    /// The last row stands out on a page.
    pub fn mark(&mut self) {
        self.marked.push(self.rows.len() - 1);
    }

    /// Whether there is only the header.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Lines without blanks at their ends; every column is as wide as its widest cell.
    pub fn text(&self) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line += &" ".repeat(if column == 0 { 0 } else { GAP });
                line += &match self.left.contains(&column) {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// Lines of Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if number == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
            }
        }
        text
    }

    /// A `table` of HTML, on a page that is narrower with a bar to scroll it.
    pub fn html(&self) -> String {
        let mut text = String::from("<div class=\"scroll\"><table>\n");
        for (number, row) in self.rows.iter().enumerate() {
            let tag = if number == 0 { "th" } else { "td" };
            text += match self.marked.contains(&number) {
                true => "<tr class=\"marked\">",
                false => "<tr>",
            };
            for (column, cell) in row.iter().enumerate() {
                let side = if self.left.contains(&column) {
                    " class=\"left\""
                } else {
                    ""
                };
                let _ = write!(text, "<{tag}{side}>{}</{tag}>", escape(cell));
            }
            text += "</tr>\n";
        }
        text + "</table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_table_is_text_markdown_and_html() {
        let mut table = Table::new(&["name", "count", "why"], &[0, 2]);
        assert!(table.is_empty());
        table.row(&["a", "123456789012", "late"]);
        table.row(&["longer than <the> header", "7"]);
        table.mark();
        let expected = "name                             count  why\n\
                        a                         123456789012  late\n\
                        longer than <the> header             7\n";
        assert_eq!(table.text(), expected);
        let expected = "| name | count | why |\n|---|---|---|\n| a | 123456789012 | late |\n\
                        | longer than <the> header | 7 |\n";
        assert_eq!(table.markdown(), expected);
        let columns: [Column<'_, u32>; 2] = [
            ("n", &|n| n.to_string()),
            ("square", &|n| (n * n).to_string()),
        ];
        let mut named = Table::default();
        for n in [2, 3] {
            named.named(&[("n", n.to_string()), ("square", (n * n).to_string())]);
        }
        let squares = Table::of([2, 3], &columns).markdown();
        assert_eq!(named.markdown(), squares);
        assert_eq!(squares, "| n | square |\n|---|---|\n| 2 | 4 |\n| 3 | 9 |\n");
        let html = table.html();
        assert_eq!(html.matches("<tr").count(), 3);
        let marked = "<tr class=\"marked\"><td class=\"left\">longer than &lt;the&gt; header</td>";
        assert!(html.contains(marked), "{html}");
    }
}
