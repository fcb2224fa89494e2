//! What the index, the table that finds items, did since the start.

use crate::exporter::prometheus::{Family, by};

pub(in crate::exporter::prometheus) const TABLE: &[Family] = families! {
    Counter curtail_index_splits_total "Buckets that were added to the index as it grew.":
        by("index_splits", |look| look.index.splits);
    Counter curtail_index_paths_total
        "Writes that moved other items to their alternate bucket because both buckets of the key \
         were full.":
        by("index_paths", |look| look.index.paths.iter().sum());
    Counter curtail_index_paths_invalid_total
        "Planned moves of items that were not executed, because another worker had changed a \
         bucket.":
        by("index_paths_invalid", |look| look.index.paths_invalid);
    Counter curtail_index_restarts_total
        "Repeated searches for an item to move, each because of a concurrent write.":
        by("index_restarts", |look| look.index.restarts);
    Counter curtail_index_lock_alls_total
        "Writes that locked the whole index after 16 restarts; should stay 0.":
        by("index_lock_alls", |look| look.index.locked_all);
    Counter curtail_index_searches_far_total
        "Writes whose first searches found no item to move, so that a longer search followed.":
        by("index_searches_far", |look| look.index.searches_far);
    Counter curtail_index_refused_total "Writes that were refused because the index had no free \
                                         slot.":
        by("index_refused", |look| look.index.refused);
    Counter curtail_index_read_retries_total
        "Reads that were repeated because of a concurrent write to their buckets.":
        by("index_read_retries", |look| look.index.read_retries);
    Counter curtail_index_reads_locked_total
        "Reads that locked their buckets after 64 repetitions; should stay 0.":
        by("index_reads_locked", |look| look.index.reads_locked);
};
