//! The numbers that ccKVS's text has, each with how near ours must come and why not nearer.

use crate::{
    figures::{Choice, Options, Request, figure},
    rows::Row,
};

/// A number of the paper: where it stands (figure, series, what a row's parameters must contain,
/// place), the metric, the number, and the relative tolerance.
type Stated = (
    (&'static str, &'static str, &'static str, f64),
    &'static str,
    f64,
    f64,
);

/// The paper's number for a row, if it has one.
pub(super) fn of(figure: &str, series: &str, params: &str, x: f64, metric: &str) -> Option<f64> {
    let found = find(figure, series, params, x, metric);
    found.map(|(_, _, value, _)| *value)
}

fn find(figure: &str, series: &str, params: &str, x: f64, metric: &str) -> Option<&'static Stated> {
    STATED
        .iter()
        .find(|((of, own, wanted, place), own_metric, ..)| {
            let same = (*of, *own, *own_metric) == (figure, series, metric);
            let has = |word: &str| params.split(';').any(|own| own == word);
            same && (place - x).abs() < 1e-9 && wanted.split(';').all(has)
        })
}

/// Every stated number beside ours, and whether ours is near enough.
pub(in crate::figures) fn points(request: &Request<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut names: Vec<&str> = STATED.iter().map(|((figure, ..), ..)| *figure).collect();
    names.dedup();
    let drawn = names.iter().filter_map(|name| {
        let figure = figure(name).ok()?;
        let takes = |choice| figure.parameter(choice).is_some();
        let options = Options {
            seed: request.options.seed.filter(|_| takes(Choice::Seed)),
            requests: request.options.requests.filter(|_| takes(Choice::Requests)),
            ..stated_only(name)
        };
        figure.rows(&options, request.threads).ok()
    });
    for ours in drawn.flatten() {
        let (series, params) = (&ours.series, &ours.params);
        let Some(stated) = find(ours.figure, series, params, ours.x, ours.metric) else {
            continue;
        };
        let within = ours.value.map(|value| accepts(stated, value));
        let within = within.map(|within| f64::from(u8::from(within)));
        let params = format!("series={series};{params}");
        let row = |number, paper| request.row((ours.figure, &params), ours.x, number, paper);
        rows.push(row((ours.metric, ours.value), Some(stated.2)));
        rows.push(row(("within", within), Some(1.0)));
    }
    rows
}

/// The series and the places of a figure that numbers are stated of, and what these are over.
fn stated_only(name: &str) -> Options {
    let of_figure = STATED.iter().filter(|((figure, ..), ..)| *figure == name);
    let mut series: Vec<String> = Vec::new();
    let mut places: Vec<f64> = Vec::new();
    for ((_, own, _, place), metric, ..) in of_figure {
        let base = own
            .split_once('-')
            .map(|(_, ending)| format!("base-{ending}"));
        let base = base.filter(|_| *metric == "over_base");
        for own in std::iter::once((*own).to_owned()).chain(base) {
            if !series.contains(&own) {
                series.push(own);
            }
        }
        // Numbers below read only are over the place without writes.
        for place in std::iter::once(*place).chain((*metric == BELOW).then_some(0.0)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    let mut options = Options {
        series,
        ..Options::default()
    };
    match name {
        "cckvs-fig10" => options.writes = places,
        "cckvs-fig12" | "cckvs-fig13" => {
            options.value_bytes = places.iter().map(|place| *place as _).collect();
        }
        "cckvs-fig14" | "cckvs-fig15" => {
            options.nodes = places.iter().map(|place| *place as _).collect();
        }
        _ => {}
    }
    options
}

/// Whether ours is near enough; what is below a bound is right as well.
fn accepts((_, metric, stated, tolerance): &Stated, value: f64) -> bool {
    let over = value / stated - 1.0;
    over <= *tolerance && (*metric == BELOW || over >= -tolerance)
}

const MRPS: &str = "throughput_mrps";
/// The paper's "within" is a bound.
const BELOW: &str = "below_read_only_percent";

#[rustfmt::skip]
const STATED: &[Stated] = &[
    // "Over 7 times": one draw of a hash; the second most popular key may join the first.
    (("cckvs-fig1", "load", "gamma=0.99;servers=128", 1.0), "load_over_mean", 7.0, 0.12),
    // The paper's are not exact (CC-45).
    (("cckvs-fig3", "cache", "gamma=0.9", 0.1), "hit_percent", 46.0, 0.09),
    (("cckvs-fig3", "cache", "gamma=0.99", 0.1), "hit_percent", 65.0, 0.04),
    (("cckvs-fig3", "cache", "gamma=1.01", 0.1), "hit_percent", 69.0, 0.03),
    // Set by this number.
    (("cckvs-fig8", "base-erew", "nodes=9", 0.99), MRPS, 95.0, 0.001),
    (("cckvs-fig8", "base", "nodes=9", 0.99), MRPS, 215.0, 0.12),
    (("cckvs-fig8", "base-packets", "nodes=9", 0.99), MRPS, 215.0, 0.06),
    (("cckvs-fig8", "uniform", "nodes=9", 0.99), MRPS, 240.0, 0.01),
    (("cckvs-fig8", "uniform-packets", "nodes=9", 0.99), MRPS, 240.0, 0.01),
    (("cckvs-fig8", "cckvs", "hits=exact", 0.99), MRPS, 690.0, 0.07),
    (("cckvs-fig8", "cckvs", "hits=stated", 0.99), MRPS, 690.0, 0.01),
    (("cckvs-fig8", "cckvs-packets", "hits=exact", 0.99), MRPS, 690.0, 0.07),
    (("cckvs-fig8", "cckvs-packets", "hits=stated", 0.99), MRPS, 690.0, 0.01),
    // Whole nodes in virtual time; the first of these, and Uniform's, set costs (cckvs-paper.toml).
    (("cckvs-fig8", "base-erew-simulated", "nodes=9", 0.99), MRPS, 95.0, 0.08),
    (("cckvs-fig8", "uniform-simulated", "nodes=9", 0.99), MRPS, 240.0, 0.03),
    (("cckvs-fig8", "base-simulated", "nodes=9", 0.99), MRPS, 215.0, 0.06),
    (("cckvs-fig8", "cckvs-simulated", "hits=exact", 0.99), MRPS, 690.0, 0.09),
    (("cckvs-fig8", "cckvs-simulated", "hits=stated", 0.99), MRPS, 690.0, 0.04),
    // "Equal to the entire throughput of Uniform", at every exponent.
    (("cckvs-fig9", "cckvs-simulated", "nodes=9", 0.90), "misses_mrps", 240.0, 0.03),
    (("cckvs-fig9", "cckvs-simulated", "nodes=9", 0.99), "misses_mrps", 240.0, 0.03),
    (("cckvs-fig9", "cckvs-simulated", "nodes=9", 1.01), "misses_mrps", 240.0, 0.03),
    (("cckvs-fig9", "cckvs", "nodes=9", 0.90), "misses_mrps", 240.0, 0.01),
    (("cckvs-fig9", "cckvs", "nodes=9", 0.99), "misses_mrps", 240.0, 0.01),
    (("cckvs-fig9", "cckvs", "nodes=9", 1.01), "misses_mrps", 240.0, 0.01),
    (("cckvs-fig9", "cckvs", "nodes=9", 0.99), "hits_mrps", 450.0, 0.09),
    (("cckvs-fig10", "sc", "hits=0.650", 1.0), MRPS, 639.0, 0.05),
    (("cckvs-fig10", "lin", "hits=0.650", 1.0), MRPS, 554.0, 0.03),
    (("cckvs-fig10", "sc-packets", "hits=0.650", 1.0), MRPS, 639.0, 0.01),
    (("cckvs-fig10", "lin-packets", "hits=0.650", 1.0), MRPS, 554.0, 0.01),
    (("cckvs-fig10", "sc", "hits=0.630", 1.0), MRPS, 639.0, 0.10),
    (("cckvs-fig10", "lin", "hits=0.630", 1.0), MRPS, 554.0, 0.08),
    (("cckvs-fig10", "sc-packets", "hits=0.630", 1.0), MRPS, 639.0, 0.06),
    (("cckvs-fig10", "lin-packets", "hits=0.630", 1.0), MRPS, 554.0, 0.06),
    // Ours is slower under SC: a write goes to its key's primary and back, and each update is
    // acknowledged, 17.8 messages for a write of 9 nodes in place of 8.
    (("cckvs-fig10", "sc-simulated", "hits=0.650", 1.0), MRPS, 639.0, 0.12),
    (("cckvs-fig10", "lin-simulated", "hits=0.650", 1.0), MRPS, 554.0, 0.06),
    (("cckvs-fig10", "sc-simulated", "hits=0.630", 1.0), MRPS, 639.0, 0.17),
    (("cckvs-fig10", "lin-simulated", "hits=0.630", 1.0), MRPS, 554.0, 0.10),
    // "Within 3 %" for both: a bound. Lin is not: by the paper's own equations it is 5.1 % below,
    // and its 554 of 690 at 1 % is 20 %, of which a fifth at 0.2 % is 4. Ours under SC is not.
    (("cckvs-fig10", "sc-simulated", "hits=0.650", 0.2), BELOW, 3.0, 0.6),
    (("cckvs-fig10", "lin-simulated", "hits=0.650", 0.2), BELOW, 3.0, 1.5),
    (("cckvs-fig10", "sc-packets", "hits=0.650", 0.2), BELOW, 3.0, 0.0),
    (("cckvs-fig10", "lin-packets", "hits=0.650", 0.2), BELOW, 3.0, 0.6),
    // "Over 3 times" Base at every size, 3.2 times at 40 bytes; the long replies of the hottest
    // server fill its link.
    (("cckvs-fig12", "cckvs-packets", "hits=0.650", 40.0), "over_base", 3.2, 0.05),
    (("cckvs-fig12", "cckvs-packets", "hits=0.650", 1024.0), "over_base", 3.0, 0.25),
    (("cckvs-fig12", "cckvs-simulated", "hits=0.650", 40.0), "over_base", 3.2, 0.06),
    (("cckvs-fig12", "cckvs-simulated", "hits=0.650", 1024.0), "over_base", 3.0, 0.25),
    // Threads that send at once what a turn has put 3 to 4 requests into a packet; the paper's
    // throughput needs 4.4 of Base.
    (("cckvs-fig13", "base-simulated", "hits=0.650", 40.0), MRPS, 950.0, 0.25),
    (("cckvs-fig13", "cckvs-simulated", "hits=0.650", 40.0), MRPS, 2000.0, 0.17),
    // Under SC our acknowledgements do not share packets.
    (("cckvs-fig13", "sc-simulated", "hits=0.650", 40.0), "over_alone", 2.6, 0.27),
    (("cckvs-fig13", "lin-simulated", "hits=0.650", 40.0), "over_alone", 2.0, 0.20),
    // Two of these are what the degrees of coalescing are set by.
    (("cckvs-fig13", "base-packets", "hits=0.650", 40.0), MRPS, 950.0, 0.09),
    (("cckvs-fig13", "cckvs-packets", "hits=0.650", 40.0), MRPS, 2000.0, 0.01),
    (("cckvs-fig13", "sc-packets", "hits=0.650", 40.0), "over_alone", 2.6, 0.05),
    (("cckvs-fig13", "lin-packets", "hits=0.650", 40.0), "over_alone", 2.0, 0.06),
    // The text's estimates need 66 % of hits; the measurements are in packets.
    (("cckvs-fig14", "sc", "hits=0.660", 9.0), MRPS, 628.0, 0.001),
    (("cckvs-fig14", "lin", "hits=0.660", 9.0), MRPS, 554.0, 0.005),
    (("cckvs-fig14", "sc", "hits=0.650", 9.0), MRPS, 628.0, 0.025),
    (("cckvs-fig14", "lin", "hits=0.650", 9.0), MRPS, 554.0, 0.025),
    (("cckvs-fig14", "uniform-packets", "hits=0.650", 9.0), MRPS, 240.0, 0.01),
    (("cckvs-fig14", "sc-packets", "hits=0.650", 9.0), MRPS, 639.0, 0.01),
    (("cckvs-fig14", "lin-packets", "hits=0.650", 9.0), MRPS, 554.0, 0.01),
    (("cckvs-fig14", "uniform-simulated", "hits=0.650", 9.0), MRPS, 240.0, 0.03),
    (("cckvs-fig14", "sc-simulated", "hits=0.650", 9.0), MRPS, 639.0, 0.12),
    (("cckvs-fig14", "lin-simulated", "hits=0.650", 9.0), MRPS, 554.0, 0.06),
    // Read off a drawing, 10 to 18 % above its own equations (CC-55).
    (("cckvs-fig15", "sc", "value=40", 20.0), "break_even_percent", 8.0, 0.16),
    (("cckvs-fig15", "sc", "value=40", 40.0), "break_even_percent", 4.0, 0.16),
    (("cckvs-fig15", "lin", "value=40", 40.0), "break_even_percent", 1.7, 0.10),
    (("cckvs-fig15", "lin-packets", "value=40", 40.0), "break_even_percent", 1.7, 0.02),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{figures::Options, parallel_points::Threads};

    /// Goal: every number of the paper is drawn by some figure and ours is near enough. Method: all
    /// series of all figures at their defaults; a number that no row carries fails too.
    #[test]
    fn stated_numbers_are_met() {
        let options = Options {
            requests: Some(30_000),
            series: vec!["cckvs".into()],
            ..Options::default()
        };
        let reference = figure("reference-points").unwrap();
        let rows = reference.rows(&options, &Threads::new(2)).unwrap();
        for row in rows.iter().step_by(2) {
            let (ours, paper) = (row.value.unwrap(), row.paper.unwrap());
            println!("{} {}: {ours:.3} of {paper}", row.series, row.params);
        }
        // A number of ours, and whether it is near enough.
        let is_wrong = |pair: &&[Row]| pair[1].value != Some(1.0);
        let wrong: Vec<&[Row]> = rows.chunks(2).filter(is_wrong).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        for stated @ ((figure, series, params, x), metric, ..) in STATED {
            let series = format!("series={series};");
            let carried = rows.iter().any(|row| {
                (row.series.as_str(), row.metric, row.x) == (*figure, *metric, *x)
                    && params.split(';').all(|word| row.params.contains(word))
                    && row.params.starts_with(&series)
            });
            assert!(carried, "{stated:?}");
        }
    }

    /// Goal: the check can fail.
    #[test]
    fn a_number_that_is_off_is_told() {
        let stated = STATED.iter().find(|stated| stated.2 == 639.0).unwrap();
        assert!(accepts(stated, 639.0) && !accepts(stated, 700.0) && !accepts(stated, 580.0));
    }
}
