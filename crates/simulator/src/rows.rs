//! The output of a figure: one number a row, in one form for all figures.

use std::fmt::Write as _;

use curtail_report::{Table, number};
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

/// Rows of this figure in a text of that form, as a measurement of the real thing writes it; each
/// series is called `real-` and its name. What is real need not name every parameter of a model:
/// its parameters become those of the first row of `known` that has all that it names, so that both
/// share a chart. A metric that no row of `known` has stays for good.
pub(crate) fn measured(
    text: &str,
    figure: &'static str,
    known: &[Row],
) -> Result<Vec<Row>, String> {
    let mut lines = text.lines().enumerate();
    let heading = lines.next().map_or("", |(_, line)| line.trim_end());
    if heading != "figure,series,params,x,metric,value,paper" {
        return Err(format!("line 1 is {heading:?}"));
    }
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: &str| format!("line {}: {what}", index + 1);
        let fields: Vec<&str> = line.trim_end().split(',').collect();
        let [of, series, params, x, metric, value, paper] = fields[..] else {
            return Err(wrong("not seven fields"));
        };
        if of != figure {
            continue;
        }
        let optional = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| wrong("no number")),
        };
        let same = known.iter().chain(&rows).find(|row| row.metric == metric);
        let metric: &'static str = match same {
            Some(row) => row.metric,
            None => Box::leak(metric.into()),
        };
        rows.push(Row {
            figure,
            series: format!("real-{series}"),
            params: named_alike(params, known).into(),
            x: x.parse().map_err(|_| wrong("no x"))?,
            metric,
            value: optional(value)?,
            paper: optional(paper)?,
        });
    }
    Ok(rows)
}

/// The parameters of the first row that has all of these.
fn named_alike<'a>(params: &'a str, known: &'a [Row]) -> &'a str {
    let has_all = |row: &&Row| words(params).all(|word| words(&row.params).any(|own| own == word));
    known.iter().find(has_all).map_or(params, |row| &row.params)
}

/// The columns of a table of rows.
pub(crate) const HEADER: [&str; 7] = [
    "series", "params", "x", "metric", "value", "paper", "differs",
];

/// A row of such a table, with these parameters.
pub(crate) fn cells(row: &Row, params: String) -> [String; 7] {
    [
        row.series.clone(),
        params,
        number(row.x),
        row.metric.into(),
        optional(row.value),
        optional(row.paper),
        difference(row),
    ]
}

/// Columns for a person, one line a number; what all rows have in common is said once, above.
pub fn table(rows: &[Row]) -> String {
    let shared = shared_params(rows);
    let mut table = Table::new(&HEADER, &[0, 1, 3]);
    for row in rows {
        let own = words(&row.params).filter(|word| !shared.contains(word));
        table.row(&cells(row, own.collect::<Vec<&str>>().join(";")));
    }
    let text = table.text();
    match shared.is_empty() {
        true => text,
        false => format!("everywhere {}\n\n{text}", shared.join(", ")),
    }
}

/// The parameters that all rows have in common.
pub(crate) fn shared_params(rows: &[Row]) -> Vec<&str> {
    let first = rows.first().map_or("", |row| row.params.as_str());
    let everywhere = |word: &&str| {
        rows.iter()
            .all(|row| words(&row.params).any(|w| w == *word))
    };
    words(first).filter(everywhere).collect()
}

/// The parameters of a row, each as `name=value`.
pub(crate) fn words(params: &str) -> impl Iterator<Item = &str> {
    params.split(';').filter(|word| !word.is_empty())
}

/// By how much a number differs from the paper's: `+1.5 %`; empty if either is not known.
fn difference(row: &Row) -> String {
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
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!((lines.len(), lines[0]), (5, "everywhere cores=64"));
        assert!(!lines[3].contains("cores"), "{table}");
    }

    /// Goal: what is written is read again, other figures' rows are left out, and nonsense is told.
    #[test]
    fn measured_rows_are_read_as_they_are_written() {
        let rows = [row(Some(87.5), Some(88.0)), row(None, None)];
        let read = measured(&csv(&rows), "c4-fig3", &rows);
        let named = |row: &Row| Row {
            series: "real-crew".into(),
            ..row.clone()
        };
        assert_eq!(read, Ok(rows.iter().map(named).collect()));
        assert_eq!(measured(&csv(&rows), "c4-fig4", &rows), Ok(Vec::new()));
        let text = csv(&rows).replace("cores=64,", "cores=8,");
        let read = measured(&text, "c4-fig3", &rows).unwrap();
        assert_eq!(read[0].params, "cores=8");
        let more = rows.clone().map(|row| Row {
            params: "gamma=0;cores=64;seed=1".into(),
            ..row
        });
        let read = measured(&csv(&rows), "c4-fig3", &more).unwrap();
        assert_eq!(read[0].params, more[0].params);
        let text = csv(&rows).replace("87.5", "much");
        assert!(measured(&text, "c4-fig3", &rows).is_err());
        assert!(measured("figure,series", "c4-fig3", &rows).is_err());
    }
}
