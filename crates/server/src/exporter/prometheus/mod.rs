//! `/metrics`: every number of `stats`, in Prometheus's text format, under names that stay.
//!
//! ```text
//!   table    name, kind, unit, help, rows of `stats` ----+
//!   sources  the server's numbers, looked at once -------+--> page
//! ```
//!
//! `stats reset` starts `stats` over and no counter here: a scraper computes its own differences.
//! The longest turn, a gauge, starts over with it and says so.

use std::fmt::Write;

use curtail_storage::StorageGauges;

use crate::{
    exporter::prometheus::{native::NativeLook, sources::Look},
    metrics::{counters::Count, stage_histograms::StageName},
    native::NativeCount,
    worker::shared::{Shared, WorkerHandle},
};

/// A table of families: kind, name, unit (`Whole` if none is named) and help of each, and its rows
/// behind the colon, each with its labels as far as they are fixed.
macro_rules! families {
    ($($kind:ident $name:ident $(in $unit:ident)? $help:literal:
        $($({$first:ident = $value:literal $(, $next:ident = $text:literal)*})?
            $read:ident($($argument:expr),+)),+;
    )+) => {
        &[$($crate::exporter::prometheus::Family {
            name: stringify!($name),
            kind: $crate::exporter::prometheus::Kind::$kind,
            // The first of these.
            unit: [
                $($crate::exporter::prometheus::Unit::$unit,)?
                $crate::exporter::prometheus::Unit::Whole,
            ][0],
            help: $help,
            rows: &[$((
                concat!($(
                    stringify!($first), "=\"", $value, "\""
                    $(, ",", stringify!($next), "=\"", $text, "\"")*
                )?),
                $read($($argument),+),
            )),+],
        }),+]
    };
}

mod cluster;
mod disk;
mod gateway;
mod native;
mod sources;
mod table;

/// The whole page; `is_ready` is what `/readyz` would say.
pub(crate) fn page(shared: &Shared, is_ready: bool) -> String {
    let look = Look::new(shared, is_ready);
    let mut page = String::with_capacity(PAGE_BYTES);
    for family in table::families() {
        family.write(&look, &mut page);
    }
    page
}

/// Which rows of `stats`, `stats memory`, `stats curtail` and `stats settings` which family
/// carries: patterns with `*` for any text, and the family's name and labels as far as they are
/// fixed.
pub(crate) fn carried() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut carried = Vec::new();
    for family in table::families() {
        for (labels, (stats, _)) in family.rows {
            let stats = stats.split_ascii_whitespace();
            carried.extend(stats.map(|stat| (stat, family.name, *labels)));
        }
    }
    carried
}

/// One family of the page.
pub(crate) struct Family {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    /// Labels, and what stands behind them.
    rows: &'static [(&'static str, Row)],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// What a number of a source counts; the page shows base units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Unit {
    Whole,
    Bytes,
    Microseconds,
    Nanoseconds,
    /// Ten thousandths.
    Ratio,
}

/// Which rows of `stats` a row carries, and where its numbers come from.
type Row = (&'static str, Source);

#[derive(Clone, Copy)]
enum Source {
    /// A counter of the workers, all together.
    Count(Count),
    Number(fn(&Look<'_>) -> u64),
    /// A counter of the workers of a node.
    NodeCount(Count),
    /// What a node tells under the name of its row of `stats curtail`.
    NodeNumber,
    /// A counter of the native path, if it is on.
    NativeCount(NativeCount),
    /// Another number of it.
    Native(fn(&NativeLook) -> u64),
    /// A counter of the workers of a server with a disk tier.
    DiskCount(Count),
    /// A counter of the workers of a gateway to a cache tier.
    GatewayCount(Count),
    /// A number of the disk tier, if there is one.
    Disk(fn(&StorageGauges) -> u64),
    /// One of each worker.
    Each(fn(&WorkerHandle) -> u64),
    /// The histogram of a stage.
    Stage(StageName),
    /// As many as there are.
    Found(fn(&Look<'_>, &mut Samples<'_>)),
}

/// Takes the samples of a family; the first one brings the heading.
struct Samples<'a> {
    family: &'a Family,
    page: &'a mut String,
    is_headed: bool,
}

/// A histogram to be shown: how many in each class, the classes' upper bounds in the family's unit
/// (none for the last), and the sum of all.
struct Histogram<'a> {
    classes: &'a [u64],
    bound: &'a dyn Fn(usize) -> Option<u64>,
    sum: u64,
}

/// What a page takes at first.
const PAGE_BYTES: usize = 64 << 10;

const fn of(count: Count) -> Row {
    (count.name(), Source::Count(count))
}

const fn by(stats: &'static str, read: fn(&Look<'_>) -> u64) -> Row {
    (stats, Source::Number(read))
}

const fn each(stats: &'static str, read: fn(&WorkerHandle) -> u64) -> Row {
    (stats, Source::Each(read))
}

const fn stage(stats: &'static str, name: StageName) -> Row {
    (stats, Source::Stage(name))
}

const fn found(stats: &'static str, read: fn(&Look<'_>, &mut Samples<'_>)) -> Row {
    (stats, Source::Found(read))
}

impl Family {
    fn write(&self, look: &Look<'_>, page: &mut String) {
        let mut samples = Samples {
            family: self,
            page,
            is_headed: false,
        };
        for (labels, (stats, source)) in self.rows {
            match *source {
                Source::Each(read) => {
                    for (labels, worker) in look.workers() {
                        samples.add(&labels, read(worker));
                    }
                }
                Source::Stage(name) => sources::stage(look, &mut samples, labels, name),
                Source::Found(read) => read(look, &mut samples),
                _ => {
                    if let Some(value) = source.read(look, stats) {
                        samples.add(labels, value);
                    }
                }
            }
        }
    }
}

impl Source {
    /// A single number, if there is one.
    fn read(self, look: &Look<'_>, stat: &str) -> Option<u64> {
        let (node, native) = (look.cluster.as_ref(), look.native.as_ref());
        let disk = look.disk.as_ref();
        match self {
            Self::Count(count) => Some(look.counts.get(count)),
            Self::Number(read) => Some(read(look)),
            Self::NodeCount(count) => node.map(|_| look.counts.get(count)),
            Self::NodeNumber => node?.number(stat),
            Self::NativeCount(count) => native.map(|native| native.counts.get(count)),
            Self::Native(read) => native.map(read),
            Self::DiskCount(count) => disk.map(|_| look.counts.get(count)),
            Self::GatewayCount(count) => look.is_gateway.then(|| look.counts.get(count)),
            Self::Disk(read) => disk.map(read),
            Self::Each(_) | Self::Stage(_) | Self::Found(_) => None,
        }
    }
}

impl Samples<'_> {
    fn add(&mut self, labels: &str, value: u64) {
        let value = self.family.unit.shown(value);
        self.row("", labels, &value);
    }

    fn add_histogram(&mut self, labels: &str, histogram: &Histogram<'_>) {
        let unit = self.family.unit;
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (class, number) in histogram.classes.iter().enumerate() {
            below += number;
            let bound = (histogram.bound)(class);
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| unit.shown(bound));
            let labels = format!("{labels}{comma}le=\"{bound}\"");
            self.row("_bucket", &labels, &below.to_string());
        }
        self.row("_sum", labels, &unit.shown(histogram.sum));
        self.row("_count", labels, &below.to_string());
    }

    fn row(&mut self, suffix: &str, labels: &str, value: &str) {
        let Family {
            name, kind, help, ..
        } = self.family;
        // Writing to a string cannot fail.
        if !self.is_headed {
            self.is_headed = true;
            let kind = kind.name();
            let _ = write!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        let _ = match labels {
            "" => writeln!(self.page, "{name}{suffix} {value}"),
            _ => writeln!(self.page, "{name}{suffix}{{{labels}}} {value}"),
        };
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Unit {
    /// A number in the base unit.
    fn shown(self, value: u64) -> String {
        let digits = match self {
            Self::Whole | Self::Bytes => return value.to_string(),
            Self::Microseconds => 6,
            Self::Nanoseconds => 9,
            Self::Ratio => 4,
        };
        let one = 10_u64.pow(digits as u32);
        let text = format!("{}.{:0digits$}", value / one, value % one);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// A label whose value is anybody's text.
fn label(name: &str, value: &str) -> String {
    let mut text = format!("{name}=\"");
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Goal: the table keeps Prometheus's conventions, and its helps tell families apart. Method:
    /// every family is looked at.
    #[test]
    fn families_keep_the_conventions() {
        let (mut names, mut helps) = (HashSet::new(), HashSet::new());
        for family in table::families() {
            let (name, help) = (family.name, family.help);
            assert!(names.insert(name), "{name} twice");
            assert!(helps.insert(help), "{name} shares its help: {help}");
            let fits =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(
                name.starts_with("curtail_") && name.bytes().all(fits),
                "{name}"
            );
            assert!(
                help.ends_with('.') && !help.contains(['\n', '\\']),
                "{name}: {help}"
            );
            let base = name.trim_end_matches("_total");
            assert_eq!(base != name, family.kind == Kind::Counter, "{name}");
            let is_time = matches!(family.unit, Unit::Microseconds | Unit::Nanoseconds);
            assert!(!is_time || base.ends_with("_seconds"), "{name}");
            assert_eq!(
                family.unit == Unit::Bytes,
                base.ends_with("_bytes"),
                "{name}"
            );
            assert_eq!(
                family.unit == Unit::Ratio,
                base.ends_with("_ratio"),
                "{name}"
            );
            for odd in [
                "_us",
                "_ms",
                "_ns",
                "_kb",
                "_kilobytes",
                "_count",
                "_sum",
                "_bucket",
            ] {
                assert!(!base.ends_with(odd), "{name}");
            }
        }
        assert!(names.len() > 100, "{}", names.len());
    }

    /// Goal: `docs/reference/metrics.md` is this table; `cargo xtask reference` writes it.
    #[test]
    fn the_reference_page_has_every_metric() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        );
        let mut page = HEAD.to_owned();
        for family in table::families() {
            let cell = |(labels, (stats, _)): &(&str, Row)| {
                let stats = stats.split_ascii_whitespace();
                let stats = stats.map(|stat| format!("`{stat}`")).collect::<Vec<_>>();
                match *labels {
                    "" => stats.join(" "),
                    labels => format!("`{labels}` {}", stats.join(" ")),
                }
            };
            let stats = family.rows.iter().map(cell).collect::<Vec<_>>().join(", ");
            let (name, kind, help) = (family.name, family.kind.name(), family.help);
            let _ = writeln!(page, "| `{name}` | {kind} | {help} | {} |", stats.trim());
        }
        if std::env::var_os("CURTAIL_REFERENCE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(kept == page, "{path}: run `cargo xtask reference`");
    }

    const HEAD: &str = "# Metrics

Written by `cargo xtask reference` from the table that `/metrics` is made of. The last column names
the rows of [`stats`](stats.md) that show the same value. Some of these rows use another unit;
some show only the total over all workers or queues, or the lowest or highest value of all native
queues. If a metric has labels, the last column names for each set of labels the rows of `stats`.
`*` stands for any text. `stats reset` changes one metric, `curtail_turn_cpu_highest_seconds`, and
[many of the rows](stats.md). Metrics that begin with `curtail_cluster_` exist only on nodes of a
cluster, those that begin with `curtail_native_` only with `--native`, those that begin with
`curtail_disk_` only with `--tier disk`, and those that begin with `curtail_tier_` only with
`--tier-file`.

| metric | type | meaning | rows of stats |
|---|---|---|---|
";

    #[test]
    fn numbers_are_shown_in_base_units() {
        for (unit, value, shown) in [
            (Unit::Whole, 20, "20"),
            (Unit::Bytes, 0, "0"),
            (Unit::Microseconds, 1_500_000, "1.5"),
            (Unit::Microseconds, 10, "0.00001"),
            (Unit::Nanoseconds, 3_000_000_001, "3.000000001"),
            (Unit::Nanoseconds, 20_000_000_000, "20"),
            (Unit::Ratio, 693, "0.0693"),
            (Unit::Ratio, 0, "0"),
        ] {
            assert_eq!(unit.shown(value), shown);
        }
    }

    #[test]
    fn labels_cannot_break_out() {
        assert_eq!(label("name", "a\"b\\c\nd"), "name=\"a\\\"b\\\\c\\nd\"");
    }

    /// Goal: buckets are cumulative, end in +Inf, and agree with the count.
    #[test]
    fn a_histogram_is_cumulative() {
        const FAMILIES: &[Family] = families! {
            Histogram x_seconds in Microseconds "X.":
                found("", |_, _| ());
        };
        let mut page = String::new();
        let mut samples = Samples {
            family: &FAMILIES[0],
            page: &mut page,
            is_headed: false,
        };
        let shown = Histogram {
            classes: &[2, 0, 3],
            bound: &|class| (class < 2).then(|| 1 << class),
            sum: 40,
        };
        samples.add_histogram("size=\"small\"", &shown);
        let expected = "# HELP x_seconds X.\n# TYPE x_seconds histogram\n\
            x_seconds_bucket{size=\"small\",le=\"0.000001\"} 2\n\
            x_seconds_bucket{size=\"small\",le=\"0.000002\"} 2\n\
            x_seconds_bucket{size=\"small\",le=\"+Inf\"} 5\n\
            x_seconds_sum{size=\"small\"} 0.00004\n\
            x_seconds_count{size=\"small\"} 5\n";
        assert_eq!(page, expected);
    }
}
