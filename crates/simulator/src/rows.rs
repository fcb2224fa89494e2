//! What a figure gives: one number a row, in a form that is the same for every figure.

use std::fmt::Write as _;

use serde::Serialize;

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The figure's name.
    pub figure: &'static str,
    /// The curve.
    pub series: String,
    /// What is fixed along the curve, as `name=value;name=value`.
    pub params: String,
    /// Where on the curve.
    pub x: f64,
    /// What was measured, with its unit.
    pub metric: &'static str,
    /// The number; `None` where there is none, such as a percentile of nothing.
    pub value: Option<f64>,
    /// What the paper, or its authors' simulator, has there.
    pub paper: Option<f64>,
}

/// `figure,series,params,x,metric,value,paper`, with a head line.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from("figure,series,params,x,metric,value,paper\n");
    for row in rows {
        let Row {
            figure,
            series,
            params,
            metric,
            ..
        } = row;
        let (x, value, paper) = (number(row.x), optional(row.value), optional(row.paper));
        let _ = writeln!(
            text,
            "{figure},{series},{params},{x},{metric},{value},{paper}"
        );
    }
    text
}

/// Columns for a person, one line a number.
pub fn table(rows: &[Row]) -> String {
    let head = [
        "series", "params", "x", "metric", "value", "paper", "differs",
    ];
    let mut lines = vec![head.map(String::from)];
    for row in rows {
        lines.push([
            row.series.clone(),
            row.params.clone(),
            number(row.x),
            row.metric.into(),
            optional(row.value),
            optional(row.paper),
            difference(row),
        ]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let widths: Vec<usize> = (0..head.len()).filter_map(width).collect();
    let mut text = String::new();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 | 1 | 3 => write!(text, "{cell:width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// By how much a number differs from the paper's: `+1.5 %`; empty if either is not known.
pub(crate) fn difference(row: &Row) -> String {
    match (row.value, row.paper) {
        (Some(value), Some(paper)) if paper != 0.0 => {
            format!("{:+.1} %", (value / paper - 1.0) * 100.0)
        }
        _ => String::new(),
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, number)
}

/// Four significant digits behind the point at most, and no zeros that say nothing.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0..1.0 => 5,
        1.0..100.0 => 3,
        _ => 1,
    };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: Option<f64>, paper: Option<f64>) -> Row {
        Row {
            figure: "c4-fig3",
            series: "crew".into(),
            params: "cores=64".into(),
            x: 50.0,
            metric: "throughput_mrps",
            value,
            paper,
        }
    }

    #[test]
    fn rows_are_long_form() {
        let rows = [row(Some(87.654_3), Some(88.0)), row(None, None)];
        assert_eq!(
            csv(&rows),
            "figure,series,params,x,metric,value,paper\n\
             c4-fig3,crew,cores=64,50,throughput_mrps,87.654,88\n\
             c4-fig3,crew,cores=64,50,throughput_mrps,,\n"
        );
        assert_eq!(difference(&rows[0]), "-0.4 %");
        assert_eq!(table(&rows).lines().count(), 3);
    }

    #[test]
    fn numbers_are_short_and_keep_their_zeros() {
        let all = [0.0, 100.0, 0.958_7, 1781.0, 6350.25, 1.5].map(number);
        assert_eq!(all, ["0", "100", "0.9587", "1781", "6350.2", "1.5"]);
    }
}
