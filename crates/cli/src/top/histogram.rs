//! Histograms that a server reports, and the difference of two samples of one.

use std::fmt;

use serde::Serialize;

use super::sample::Names;

/// How many were seen in each class, the lowest class first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Histogram(Vec<(Edge, u64)>);

/// Where a class ends: as much as is known of a number in it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Edge {
    /// Less than this.
    Below(u64),
    /// This or less.
    AtMost(u64),
    /// In the last class, which has no end.
    Above,
}

/// What half, nearly all and all of the numbers keep below.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: Option<Edge>,
    pub(crate) p99: Option<Edge>,
    pub(crate) p999: Option<Edge>,
    pub(crate) most: Option<Edge>,
}

impl Histogram {
    /// The rows of `names` that are called `prefix` and then `below_N`, `N`, or `more`.
    pub(crate) fn of(names: &Names, prefix: &str) -> Self {
        let class = |(name, count): (&str, &str)| Some((edge(name)?, count.parse().ok()?));
        let mut classes: Vec<(Edge, u64)> = names.behind(prefix).filter_map(class).collect();
        classes.sort_by_key(|class| class.0);
        Self(classes)
    }

    /// What came after `before`; everything if it does not continue `before`, because the server
    /// started over.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let old = |edge| before.0.iter().find(|class| class.0 == edge);
        let more = |&(edge, count): &(Edge, u64)| {
            let old = old(edge).map_or(0, |class| class.1);
            Some((edge, count.checked_sub(old)?))
        };
        let classes: Option<Vec<(Edge, u64)>> = self.0.iter().map(more).collect();
        classes.map_or_else(|| self.clone(), Self)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|class| class.1).sum()
    }

    pub(crate) fn quantiles(&self) -> Quantiles {
        let mut filled = self.0.iter().filter(|class| class.1 > 0);
        Quantiles {
            p50: self.edge_of(500),
            p99: self.edge_of(990),
            p999: self.edge_of(999),
            most: filled.next_back().map(|class| class.0),
        }
    }

    /// The end of the class up to which there are `per_mille` of the numbers.
    fn edge_of(&self, per_mille: u128) -> Option<Edge> {
        let wanted = (u128::from(self.count()) * per_mille).div_ceil(1000);
        let mut seen = 0;
        let mut reached = self.0.iter().filter(|class| {
            seen += u128::from(class.1);
            class.1 > 0 && seen >= wanted
        });
        reached.next().map(|class| class.0)
    }
}

fn edge(name: &str) -> Option<Edge> {
    if name == "more" {
        return Some(Edge::Above);
    }
    match name.strip_prefix("below_") {
        Some(bound) => bound.parse().ok().map(Edge::Below),
        None => name.parse().ok().map(Edge::AtMost),
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            // Below one is none.
            Self::Below(1) => "0".to_owned(),
            Self::Below(bound) => format!("<{bound}"),
            Self::AtMost(bound) => format!("<={bound}"),
            Self::Above => "more".to_owned(),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(text: &str) -> Histogram {
        Histogram::of(&Names::of(text), "a:")
    }

    #[test]
    fn classes_are_read_in_order_whatever_order_they_came_in() {
        let read = histogram("a:more 1\na:below_16 2\na:below_2 3\nb:below_1 9\na:sum 4\na:x 1");
        let wanted = vec![(Edge::Below(2), 3), (Edge::Below(16), 2), (Edge::Above, 1)];
        assert_eq!(read, Histogram(wanted));
        assert_eq!(read.count(), 6);
    }

    /// Goal: a quantile is the end of the class that holds it. Method: 1000 numbers, of which the
    /// last ten, the last one and none are in the upper classes.
    #[test]
    fn quantiles_are_ends_of_classes() {
        let quantiles = histogram("a:10 990\na:25 9\na:50 1\na:100 0\na:more 0").quantiles();
        assert_eq!(quantiles.p50, Some(Edge::AtMost(10)));
        assert_eq!(quantiles.p99, Some(Edge::AtMost(10)));
        assert_eq!(quantiles.p999, Some(Edge::AtMost(25)));
        assert_eq!(quantiles.most, Some(Edge::AtMost(50)));
        let one_more = histogram("a:10 989\na:25 11").quantiles();
        assert_eq!(one_more.p99, Some(Edge::AtMost(25)));
        assert_eq!(histogram("").quantiles(), Quantiles::default());
    }

    #[test]
    fn only_what_is_new_counts_and_a_new_start_is_all_new() {
        let before = histogram("a:below_2 5");
        let now = histogram("a:below_2 7\na:below_4 1");
        assert_eq!(now.since(&before), histogram("a:below_2 2\na:below_4 1"));
        assert_eq!(before.since(&now), before);
    }

    #[test]
    fn edges_are_short() {
        let shown = [
            Edge::Below(1),
            Edge::Below(8),
            Edge::AtMost(25),
            Edge::Above,
        ];
        assert_eq!(
            shown.map(|edge| edge.to_string()),
            ["0", "<8", "<=25", "more"]
        );
    }
}
