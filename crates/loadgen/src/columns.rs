//! Tables for a terminal: every column is as wide as its widest cell, so that none runs into the
//! next one, whatever the numbers.

/// Rows of cells; the first row is the header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
    /// Columns whose cells begin at the left edge; all others end at the right one.
    left: Vec<usize>,
}

/// Blanks between two columns.
const GAP: usize = 2;

impl Columns {
    /// A table with this header whose columns `left` begin at the left edge.
    pub(crate) fn new(header: &[&str], left: &[usize]) -> Self {
        let mut columns = Self {
            rows: Vec::new(),
            left: left.to_vec(),
        };
        columns.row(header);
        columns
    }

    /// Adds a row; one that is shorter than others ends early.
    pub(crate) fn row<C: ToString>(&mut self, cells: &[C]) {
        self.rows.push(cells.iter().map(C::to_string).collect());
    }

    /// The lines of the table, without blanks at their ends.
    pub(crate) fn text(&self) -> String {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut columns = Columns::new(&["name", "count", "why"], &[0, 2]);
        columns.row(&["a", "123456789012", "late"]);
        columns.row(&["longer than the header", "7"]);
        let expected = "name                           count  why\n\
                        a                       123456789012  late\n\
                        longer than the header             7\n";
        assert_eq!(columns.text(), expected);
    }
}
