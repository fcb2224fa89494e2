//! The known points at a size that a debug build can afford, with tolerances widened by what fewer
//! requests cost; the figure itself runs them in full.

use super::*;

/// Goal: the model of C-4 is the authors'. Method: the points that are not near saturation, where
/// 30,000 requests suffice; twice the tolerance, and never less than 5 %.
#[test]
fn c4_is_its_authors() {
    for known in all().iter().filter(|known| !known.is_minos()) {
        let stable = known.load() <= 0.9 && known.metric != "max_load" && known.name != "G6";
        if !stable || known.metric == "ewt_max" || known.same_services && known.metric == "p99_ns" {
            continue;
        }
        let measured = known.measure(30_000, 1).unwrap();
        let wider = Known {
            tolerance: (2.0 * known.tolerance).max(0.05),
            ..*known
        };
        assert!(wider.accepts(measured), "{known:?}: {measured}");
    }
}

/// Goal: the model of Minos gives what is known. Method: the tails that do not depend on rare
/// events, with 40,000 requests and 20 % (25 % for the highest load).
#[test]
fn minos_is_what_is_known() {
    for known in all().iter().filter(|known| known.is_minos()) {
        let Point::Minos(series, k, load) = known.point else {
            continue;
        };
        let rare = k >= 100 && !(series == "minos" || series == "minos-steal");
        if rare || load > 0.8 {
            continue;
        }
        let measured = known.measure(40_000, 1).unwrap();
        let wider = Known {
            tolerance: 0.2,
            ..*known
        };
        assert!(wider.accepts(measured), "{known:?}: {measured}");
    }
}
