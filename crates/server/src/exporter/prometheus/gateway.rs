//! A gateway to a cache tier, if the server is one.

use crate::{
    exporter::prometheus::{Family, Row, Source},
    metrics::counters::Count::{self, *},
};

const fn of(count: Count) -> Row {
    (count.name(), Source::GatewayCount(count))
}

pub(super) const TABLE: &[Family] = families! {
    Counter curtail_tier_from_cache_total "Requests answered by a cache node of the tier.":
        of(TierFromCache);
    Counter curtail_tier_failed_total
        "Requests without a result: the tier did not answer, or was busy, for 2 s.":
        of(TierFailed);
    Counter curtail_tier_repeated_total "Datagrams that were sent to the tier again.":
        of(TierRepeated);
};
