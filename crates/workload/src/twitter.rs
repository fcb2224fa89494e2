//! Twitter's 54 cache clusters by their statistics (Yang, Yue and Rashmi, "A large scale analysis
//! of hundreds of in-memory cache clusters at Twitter", OSDI 2020; the table is that of the
//! published traces, March 2020).
//!
//! The table's text comes from the caller. A row says how large keys and values are, which
//! commands there are, how skewed, and how long items live; a workload with the same statistics
//! follows from it. What a row does not say (`N/A`) stays unknown, and a workload that would need
//! it is refused, unless the missing number is given by hand.

use std::fmt;

use crate::{items::seconds, mix::Kind, quantity};

/// One cluster: one row of the table. `None` is `N/A`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cluster {
    /// `cluster1` and so on.
    pub(crate) name: String,
    /// Mean length of keys.
    pub(crate) key_bytes: Option<u32>,
    /// Mean length of values.
    pub(crate) value_bytes: Option<u32>,
    /// The commonest times to live in seconds, and their shares; need not sum to 1.
    pub(crate) ttls: Vec<(u32, f64)>,
    /// Thousands of requests per second of an instance.
    pub(crate) kilo_requests_per_s: Option<f64>,
    /// Megabytes of all items of the trace, as if none expired.
    pub(crate) all_megabytes: Option<f64>,
    /// Megabytes of the items that live at once.
    pub(crate) live_megabytes: Option<f64>,
    /// Commands and their rounded shares.
    pub(crate) commands: Vec<(Kind, f64)>,
    /// The exponent of Zipf's law that fits the popularity.
    pub(crate) zipf_exponent: Option<f64>,
}

/// A row that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterError {
    /// Counted from one; the heading is line 1.
    pub(crate) line: usize,
    /// The column's name, or what is wrong with the row as a whole.
    pub(crate) column: &'static str,
    /// What was found instead of what.
    pub(crate) reason: String,
}

/// Reads the table.
pub(crate) fn clusters(text: &str) -> Result<Vec<Cluster>, ClusterError> {
    let mut lines = text.lines().enumerate();
    let heading = lines.next().map_or("", |(_, line)| line);
    if !is_heading(heading) {
        return Err(ClusterError {
            line: 1,
            column: "heading",
            reason: format!("the columns are not {}", COLUMNS.join(",")),
        });
    }
    let rows = lines.filter(|(_, line)| !line.trim().is_empty());
    rows.map(|(index, line)| row(line.trim_end()).map_err(|fault| fault.at(index + 1)))
        .collect()
}

/// Whether a line is the table's heading.
pub(crate) fn is_heading(line: &str) -> bool {
    line.trim_end().split(',').eq(COLUMNS)
}

/// What is wrong in a row that does not know its line yet.
struct RowFault(&'static str, String);

impl RowFault {
    fn at(self, line: usize) -> ClusterError {
        ClusterError {
            line,
            column: self.0,
            reason: self.1,
        }
    }
}

fn row(line: &str) -> Result<Cluster, RowFault> {
    let fields = fields(line)?;
    let field = |index: usize| (COLUMNS[index], fields[index].trim());
    let number = |index| {
        let (column, text) = field(index);
        optional(text, quantity::number).map_err(|reason| RowFault(column, reason))
    };
    let whole = |index| {
        let (column, text) = field(index);
        optional(text, quantity::bytes).map_err(|reason| RowFault(column, reason))
    };
    let (name_column, name) = field(0);
    if name.is_empty() {
        return Err(RowFault(name_column, "no name".into()));
    }
    // No workload needs these, but a row in which one is malformed is not the row it seems.
    for index in [1, 6, 7, 8] {
        number(index)?;
    }
    let (category_column, category) = field(2);
    optional(category, |text| match text.parse::<u8>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{text:?} is not a category")),
    })
    .map_err(|reason| RowFault(category_column, reason))?;
    let (ttl_column, ttls) = field(9);
    let (command_column, commands) = field(12);
    Ok(Cluster {
        name: name.into(),
        key_bytes: whole(3)?,
        value_bytes: whole(4)?,
        ttls: shares(ttls, ", ", seconds).map_err(|reason| RowFault(ttl_column, reason))?,
        kilo_requests_per_s: number(5)?,
        all_megabytes: number(10)?,
        live_megabytes: number(11)?,
        commands: shares(commands, " ", str::parse)
            .map_err(|reason| RowFault(command_column, reason))?,
        zipf_exponent: number(13)?,
    })
}

/// The fields of a line of CSV; quotes protect commas.
fn fields(line: &str) -> Result<Vec<&str>, RowFault> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, more) = if let Some(quoted) = rest.strip_prefix('"') {
            let (field, more) = quoted
                .split_once('"')
                .ok_or_else(|| RowFault("row", "a quote is not closed".into()))?;
            (field, more)
        } else {
            rest.split_at(rest.find(',').unwrap_or(rest.len()))
        };
        fields.push(field);
        if more.is_empty() {
            break;
        }
        rest = more
            .strip_prefix(',')
            .ok_or_else(|| RowFault("row", "text follows a quoted field".into()))?;
    }
    if fields.len() != COLUMNS.len() {
        let reason = format!("{} fields, not {}", fields.len(), COLUMNS.len());
        return Err(RowFault("row", reason));
    }
    Ok(fields)
}

fn optional<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    match text {
        "N/A" | "NA" | "" => Ok(None),
        _ => read(text).map(Some),
    }
}

/// `get:0.98 set:0.02`, `4d:0.59, 2d:0.41`.
fn shares<T>(
    text: &str,
    between: &str,
    item: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(T, f64)>, String> {
    if optional(text, |_| Ok(()))?.is_none() {
        return Ok(Vec::new());
    }
    let one = |part: &str| {
        let (what, share) = part
            .split_once(':')
            .ok_or_else(|| format!("{part:?} has no share"))?;
        Ok((item(what)?, quantity::share(share)?))
    };
    text.split(between).map(one).collect()
}

impl Cluster {
    /// How many keys live at once: the live megabytes (if the table says none, all megabytes)
    /// divided by the mean item. `None` if the row does not say.
    pub(crate) fn keys(&self) -> Option<u64> {
        let item = f64::from(self.key_bytes?) + f64::from(self.value_bytes?);
        let sizes = [self.live_megabytes, self.all_megabytes];
        let megabytes = sizes
            .into_iter()
            .flatten()
            .find(|megabytes| *megabytes > 0.0)?;
        (item > 0.0).then(|| ((megabytes * 1e6 / item) as u64).max(1))
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, {}: {}", self.line, self.column, self.reason)
    }
}

impl std::error::Error for ClusterError {}

const COLUMNS: [&str; 14] = [
    "cluster",
    "production_miss_ratio",
    "category",
    "key_size",
    "value_size",
    "request_rate_(kqps)",
    "mean_freq",
    "one-hit-wonder_ratio_(%)",
    "compulsory_miss_ratio_(%)",
    "common_ttl",
    "wss_in_mb_(not_considering_ttl)",
    "wss_in_mb_(working_set_size)",
    "operation",
    "zipf_alpha",
];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::random::Random;

    /// A table in the published form, with the forms of rows that occur in it.
    pub(crate) fn table() -> String {
        let mut text = COLUMNS.join(",");
        for row in ROWS {
            text.push('\n');
            text.push_str(row);
        }
        text.push('\n');
        text
    }

    const ROWS: [&str; 5] = [
        "cluster12,0.0058,2,44,1030,4.36,1.3,81.43,79.45,\"300s:0.98, 299s:0.02\",612397,986,\
         set:0.80 get:0.20,0.3048",
        "cluster5,0.7124,3,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,NA",
        "cluster43,0.1263,2,44,304,14.54,18.4,0,5.43,8h:1.00,10687,1391,set:0.50 get:0.50,NA",
        "cluster11,0.0047,1,24,170,4.16,45.7,6.18,2.19,\"5d:0.97, 1.5h:0.03\",449,0,\
         get:0.96 add:0.02 gets:0.01 cas:0.01,1.4891",
        "cluster1,0.0043,2,80,267,11.40,26574.9,0.01,0,240s:1.00,0,0,get:0.99,2.6774",
    ];

    #[test]
    fn rows_are_read() {
        let clusters = clusters(&table()).unwrap();
        let [twelve, five, _, eleven, one] = clusters.as_slice() else {
            panic!("{} rows", clusters.len());
        };
        assert_eq!(twelve.name, "cluster12");
        assert_eq!(
            (twelve.key_bytes, twelve.value_bytes),
            (Some(44), Some(1030))
        );
        assert_eq!(twelve.ttls, [(300, 0.98), (299, 0.02)]);
        assert_eq!(twelve.commands, [(Kind::Set, 0.8), (Kind::Get, 0.2)]);
        assert_eq!(twelve.keys(), Some(986_000_000 / 1074));
        assert_eq!((five.key_bytes, five.keys()), (None, None));
        assert!(five.commands.is_empty() && five.ttls.is_empty());
        assert_eq!(eleven.keys(), Some(449_000_000 / 194));
        assert_eq!(eleven.ttls, [(432_000, 0.97), (5_400, 0.03)]);
        assert_eq!((one.zipf_exponent, one.keys()), (Some(2.6774), None));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let broken = |from: &str, to: &str| {
            let error = clusters(&table().replacen(from, to, 1)).unwrap_err();
            (error.line, error.column)
        };
        assert_eq!(broken("cluster,", "klaster,"), (1, "heading"));
        assert_eq!(broken(",0.3048", ""), (2, "row"));
        assert_eq!(broken("0.3048", "steep"), (2, "zipf_alpha"));
        assert_eq!(broken("299s:0.02\"", "299s:0.02"), (2, "row"));
        assert_eq!(broken("299s:0.02\"", "299s:0.02\"x"), (2, "row"));
        assert_eq!(broken("299s", "299"), (2, "common_ttl"));
        assert_eq!(broken(",1030,", ",-1,"), (2, "value_size"));
        assert_eq!(broken("0.0058,", "few,"), (2, "production_miss_ratio"));
        assert_eq!(broken(",2,44,", ",two,44,"), (2, "category"));
        assert_eq!(broken("4.36,", "fast,"), (2, "request_rate_(kqps)"));
        assert_eq!(broken("1.3,", "once,"), (2, "mean_freq"));
        assert_eq!(broken("81.43,", "most,"), (2, "one-hit-wonder_ratio_(%)"));
        assert_eq!(broken("79.45,", "most,"), (2, "compulsory_miss_ratio_(%)"));
        assert_eq!(broken("get:0.99", "get"), (6, "operation"));
        assert_eq!(broken("cas:0.01", "scan:0.01"), (5, "operation"));
        assert_eq!(clusters("").unwrap_err().line, 1);
    }

    /// Goal: no text panics. Method: 2,000 tables with a few bytes changed.
    #[test]
    fn mutated_tables_do_not_panic() {
        let mut random = Random::new(21);
        let mut failed = 0;
        for _ in 0..2_000 {
            let mut bytes = table().into_bytes();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = b"\",:\n 9aN\xc3"[random.below(9) as usize];
            }
            failed += u32::from(clusters(&String::from_utf8_lossy(&bytes)).is_err());
        }
        assert!(failed > 500, "{failed} of 2,000 were refused");
    }
}
