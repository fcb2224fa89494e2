//! The numbers of the papers, for the figures that have few of them; `complete` takes away those
//! whose run is not the paper's.

use crate::rows::{Row, words};

/// The paper's number at a row's place.
pub(super) fn of(row: &Row) -> Option<f64> {
    let is_of = |known: &&Known| {
        let (figure, series, word, x, metric, _) = **known;
        let same_series = series.is_empty() || series == row.series;
        let has = word.is_empty() || words(&row.params).any(|own| own == word);
        (figure, x, metric) == (row.figure, row.x, row.metric) && same_series && has
    };
    KNOWN.iter().find(is_of).map(|known| known.5)
}

/// Figure, series, one of a row's parameters, x, metric, and the number.
type Known = (
    &'static str,
    &'static str,
    &'static str,
    f64,
    &'static str,
    f64,
);

#[rustfmt::skip]
const KNOWN: &[Known] = &[
    ("c4-fig9", "d-crew", "", 10.0, "mrps_under_limit", 91.0),
    ("c4-fig9", "crew", "", 10.0, "mrps_under_limit", 91.0),
    ("c4-fig9", "erew", "", 10.0, "mrps_under_limit", 76.0),
    ("c4-fig9", "ideal", "", 10.0, "mrps_under_limit", 95.0),
    ("c4-fig9", "comp", "", 10.0, "mrps_under_limit", 87.0),
    ("c4-fig10", "crew", "", 50.0, "mrps_under_limit", 91.0),
    ("c4-fig10", "d-crew", "", 50.0, "mrps_under_limit", 91.0),
    ("c4-fig10", "d-crew", "", 85.0, "mrps_under_limit", 87.0),
    ("c4-fig10", "crew", "", 85.0, "mrps_under_limit", 83.0),
    ("c4-fig10", "crew", "", 85.0, "p99_over_ideal", 5.0),
    ("c4-fig10", "d-crew", "", 50.0, "ewt_mean_at_90", 30.0),
    ("c4-fig10", "d-crew", "", 50.0, "ewt_max_at_90", 64.0),
    ("c4-fig10", "d-crew", "", 85.0, "ewt_mean_at_90", 52.0),
    ("c4-fig10", "d-crew", "", 85.0, "ewt_max_at_90", 90.0),
    ("c4-fig11", "crew", "", 10.0, "mrps_under_limit", 76.0),
    ("c4-fig11", "comp", "", 10.0, "mrps_under_limit", 125.0),
    ("c4-fig11", "comp", "", 20.0, "mrps_under_limit", 142.0),
    ("c4-fig12", "crew", "", 10.0, "hot_mrps", 0.92),
    ("c4-fig12", "crew", "", 10.0, "others_mrps", 1.28),
    ("c4-fig12", "comp", "", 10.0, "hot_mrps", 1.66),
    ("c4-fig12", "comp", "", 10.0, "hot_busy", 0.47),
    ("c4-fig12", "comp", "", 10.0, "others_mrps", 2.3),
    ("c4-fig13", "crew", "", 10.0, "mrps_under_limit", 56.0),
    ("c4-fig13", "comp", "", 10.0, "mrps_under_limit", 58.0),
    ("c4-fig13", "comp", "", 20.0, "mrps_under_limit", 100.0),
    // x is the bytes of a value: tiny, medium and large items.
    ("c4-table2", "crew", "", 8.0, "mrps_under_limit", 266.0),
    ("c4-table2", "crew", "", 128.0, "mrps_under_limit", 142.0),
    ("c4-table2", "crew", "", 512.0, "mrps_under_limit", 76.0),
    ("c4-table2", "comp", "", 8.0, "mrps_under_limit", 363.0),
    ("c4-table2", "comp", "", 128.0, "mrps_under_limit", 190.0),
    ("c4-table2", "comp", "", 512.0, "mrps_under_limit", 125.0),
    ("c4-table2", "comp", "", 8.0, "hot_gain", 1.1),
    ("c4-table2", "comp", "", 8.0, "others_gain", 1.3),
    ("c4-table2", "comp", "", 128.0, "hot_gain", 1.3),
    ("c4-table2", "comp", "", 128.0, "others_gain", 1.3),
    ("c4-table2", "comp", "", 512.0, "hot_gain", 1.6),
    ("c4-table2", "comp", "", 512.0, "others_gain", 1.6),
    // x is a limit in mean service times; 0 is the highest load that queues bear.
    ("minos-fig3", "minos", "", 10.0, "slo_mops", 5.6),
    ("minos-fig3", "hkh-ws", "", 10.0, "slo_mops", 5.6 / 2.4),
    ("minos-fig3", "minos", "", 0.0, "peak_mops", 6.2),
    ("minos-fig3", "hkh", "", 0.0, "peak_mops", 6.2),
    ("minos-fig3", "hkh-ws", "", 0.0, "peak_mops", 6.2),
    ("minos-fig3", "sho", "", 0.0, "peak_mops", 5.6),
    ("minos-fig3", "minos/hkh-ws", "", 10.0, "ratio", 2.4),
    ("minos-fig3", "minos/hkh-ws", "", 20.0, "ratio", 1.75),
    ("minos-fig5", "minos", "", 0.0, "peak_mops", 6.3),
    ("minos-fig5", "hkh", "", 0.0, "peak_mops", 7.0),
    ("minos-fig5", "hkh-ws", "", 0.0, "peak_mops", 7.0),
    ("minos-fig6", "minos", "limit=10", 0.0625, "slo_mops", 6.2),
    ("minos-fig6", "minos", "limit=20", 0.0625, "slo_mops", 6.9),
    ("minos-fig6", "minos", "limit=10", 0.125, "slo_mops", 5.6),
    ("minos-fig6", "minos", "limit=10", 0.75, "slo_mops", 1.7),
    ("minos-fig6", "minos", "limit=20", 0.75, "slo_mops", 2.3),
    ("minos-fig6", "minos/hkh-ws", "limit=10", 0.125, "ratio", 2.4),
    ("minos-fig6", "minos/hkh-ws", "limit=20", 0.125, "ratio", 1.75),
    ("minos-fig6", "minos/hkh-ws", "limit=10", 0.75, "ratio", 7.4),
    ("minos-fig6", "minos/hkh-ws", "limit=20", 0.75, "ratio", 3.9),
    ("minos-fig7", "minos", "limit=10", 250.0, "slo_mops", 6.2),
    ("minos-fig7", "minos", "limit=20", 250.0, "slo_mops", 6.9),
    ("minos-fig7", "minos", "limit=10", 500.0, "slo_mops", 5.6),
    ("minos-fig7", "minos", "", 1_000.0, "slo_mops", 4.7),
    ("minos-fig7", "minos/hkh-ws", "limit=10", 500.0, "ratio", 2.4),
    ("minos-fig7", "minos/hkh-ws", "limit=20", 500.0, "ratio", 1.75),
    ("minos-fig7", "minos/hkh-ws", "limit=20", 250.0, "ratio", 1.34),
    // Saturated, or "almost", whatever the series.
    ("minos-fig8", "", "replies=1", 0.0, "peak_link_busy", 1.0),
    ("minos-fig8", "", "replies=0.75", 0.0, "peak_link_busy", 1.0),
    ("minos-fig8", "", "replies=0.5", 0.0, "peak_link_busy", 1.0),
    ("minos-fig10", "minos", "", 0.75, "median_p99_us", 70.0),
    ("minos-fig10", "hkh-ws", "", 0.75, "median_p99_us", 1_500.0),
    // The limit of a back end: the most loaded one reaches it at every exponent.
    ("switchkv-fig2.9", "no-cache", "", 1.0, "node_kqps", 100.0),
    ("switchkv-fig2.10", "", "", 0.0, "total_mqps", 12.8),
    ("switchkv-fig2.10", "switchkv", "", 0.99, "over_no_cache", 7.0),
    // x is 0 where a number is of the whole curve.
    ("switchkv-fig2.13", "look-aside-mixed", "", 0.0, "peak_mqps", 14.0),
    ("switchkv-fig2.13", "look-through-mixed", "", 0.0, "peak_mqps", 14.0),
    ("switchkv-fig2.13", "switchkv-mixed", "", 0.0, "hits_percent", 38.0),
    ("switchkv-fig2.14", "look-aside", "", 64.0, "total_mqps", 5.0),
    ("switchkv-fig2.14", "look-aside", "", 400.0, "total_mqps", 5.0),
    ("switchkv-fig2.14", "look-through", "", 64.0, "total_mqps", 5.0),
    ("switchkv-fig2.14", "look-through", "", 400.0, "total_mqps", 5.0),
    ("switchkv-fig2.18", "buffered", "", 0.0, "installed_s", 1.5),
    ("switchkv-fig2.18", "unbuffered", "", 0.0, "installed_s", 3.0),
    ("switchkv-fig2.19", "", "", 10_000.0, "over_no_cache", 3.0),
];
