//! The folder of a report.
//!
//! ```text
//!   index.html      to look at; one file, needs no network
//!   bench.json      every number
//!   LABEL.hlog      interval log of HDR histograms for HdrHistogram's HistogramLogProcessor and
//!                   HistogramLogAnalyzer; one interval a run, tags name operation and size class
//!   LABEL-RATE.hgrm percentile distribution for HdrHistogram's plotter (plotFiles.html), in us
//! ```

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use hdrhistogram::{
    Histogram,
    serialization::{
        V2DeflateSerializer, interval_log::IntervalLogWriterBuilder, interval_log::Tag,
    },
};

use super::{
    document::{Document, Step},
    html,
};
use crate::error::LoadError;

/// The page to look at.
pub(super) const PAGE: &str = "index.html";

/// Writes all files.
pub(super) fn write(folder: &Path, document: &Document) -> Result<(), LoadError> {
    let save = |name: &str, bytes: &[u8]| save(folder, name, bytes);
    save("bench.json", document.json()?.as_bytes())?;
    save(PAGE, html::page(document).as_bytes())?;
    for target in &document.targets {
        let name = file_name(&target.label);
        let steps: Vec<&Step> = document
            .steps
            .iter()
            .filter(|step| step.target == target.label)
            .collect();
        save(&format!("{name}.hlog"), &interval_log(&steps)?)?;
        for (number, step) in steps.iter().enumerate() {
            let load = step.report.rate_offered.map_or(0.0, |rate| rate);
            let text = percentiles(&step.report.recorder().sum(false, |_| true)?);
            let file = format!("{name}-{number:03}-{load:.0}.hgrm");
            save(&file, text.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes a file; the folder is made if there is none.
pub(super) fn save(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), LoadError> {
    let making = format!("making the folder {}", folder.display());
    fs::create_dir_all(folder).map_err(LoadError::machine(making))?;
    let path = folder.join(name);
    let doing = format!("writing {}", path.display());
    fs::write(path, bytes).map_err(LoadError::machine(doing))
}

/// A label without anything that a path could mistake.
fn file_name(label: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || "-_.".contains(c) {
        true => c,
        false => '_',
    };
    label.chars().map(plain).collect()
}

/// One interval a run: all requests without a tag, then each class with its own.
fn interval_log(steps: &[&Step]) -> Result<Vec<u8>, LoadError> {
    let odd = |_| LoadError::Arguments("a histogram cannot be written".into());
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[latencies in ns from the intended instant; one interval a run]")
        .with_base_time(SystemTime::UNIX_EPOCH)
        .with_max_value_divisor(1_000_000.0);
    let mut log = builder
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(LoadError::machine("writing an interval log"))?;
    let mut start = Duration::ZERO;
    for step in steps {
        let length = Duration::from_secs_f64(step.report.seconds);
        let all = step.report.recorder().sum(false, |_| true)?;
        log.write_histogram(&all, start, length, None)
            .map_err(odd)?;
        for class in step.report.recorder().classes() {
            let name = format!("{} {}", class.operation.name(), class.size);
            let name = name.trim_end().replace([' ', ','], "-");
            let tag = Tag::new(&name);
            log.write_histogram(class.response, start, length, tag)
                .map_err(odd)?;
        }
        start += length;
    }
    Ok(bytes)
}

/// The text form that HdrHistogram's plotter reads, in microseconds.
fn percentiles(histogram: &Histogram<u64>) -> String {
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    for step in histogram.iter_quantiles(5) {
        let (us, quantile) = (
            step.value_iterated_to() as f64 / 1000.0,
            step.quantile_iterated_to(),
        );
        let count = histogram.count_between(0, step.value_iterated_to());
        // Writing to a String cannot fail.
        let _ = if quantile < 1.0 {
            let nines = 1.0 / (1.0 - quantile);
            writeln!(text, "{us:12.3} {quantile:.12} {count:10} {nines:14.2}")
        } else {
            writeln!(text, "{us:12.3} {quantile:.12} {count:10}")
        };
    }
    let (mean, deviation) = (histogram.mean() / 1000.0, histogram.stdev() / 1000.0);
    let (max, count) = (histogram.max() as f64 / 1000.0, histogram.len());
    let _ = writeln!(
        text,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]\n\
         #[Max     = {max:12.3}, Total count    = {count:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]",
        27, 2048
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram() -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).unwrap();
        for value in 1..=10_000 {
            histogram.record(value * 1000).unwrap();
        }
        histogram
    }

    /// Goal: the text says what the histogram holds, in the columns that the plotter splits at
    /// blanks. Method: 10,000 latencies of 1 to 10,000 us.
    #[test]
    fn percentiles_are_four_columns_and_ascend() {
        let text = percentiles(&histogram());
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                line.split_whitespace()
                    .map(|word| word.parse().unwrap())
                    .collect()
            })
            .collect();
        assert!(rows.len() > 20);
        assert!(
            rows.windows(2)
                .all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1])
        );
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!((median[0] - 5000.0).abs() < 10.0 && (median[2] - 5000.0).abs() < 10.0);
        assert_eq!(rows.last().map(|row| row[2]), Some(10_000.0));
    }

    #[test]
    fn labels_become_plain_file_names() {
        assert_eq!(file_name("a/../b:1 x"), "a_.._b_1_x");
    }
}
