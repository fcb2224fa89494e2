//! What the index, the table that finds items, did since the start.

use crate::exporter::prometheus::{Family, Unit::Whole, counter, table::by};

pub(in crate::exporter::prometheus) const TABLE: &[Family] = &[
    counter(
        "curtail_index_splits_total",
        Whole,
        "Buckets that the index added.",
        &[by("", "index_splits", |look| look.index.splits)],
    ),
    counter(
        "curtail_index_paths_total",
        Whole,
        "Writes that displaced other items because both buckets of their key were full.",
        &[by("", "index_paths", |look| look.index.paths.iter().sum())],
    ),
    counter(
        "curtail_index_paths_invalid_total",
        Whole,
        "Displacements that another worker's write made invalid.",
        &[by("", "index_paths_invalid", |look| {
            look.index.paths_invalid
        })],
    ),
    counter(
        "curtail_index_restarts_total",
        Whole,
        "Searches for a displacement that were repeated because of a concurrent write.",
        &[by("", "index_restarts", |look| look.index.restarts)],
    ),
    counter(
        "curtail_index_lock_alls_total",
        Whole,
        "Writes that locked the whole index after 16 restarts; should stay 0.",
        &[by("", "index_lock_alls", |look| look.index.locked_all)],
    ),
    counter(
        "curtail_index_searches_far_total",
        Whole,
        "Writes whose first searches found no displacement, so that a longer search followed.",
        &[by("", "index_searches_far", |look| look.index.searches_far)],
    ),
    counter(
        "curtail_index_refused_total",
        Whole,
        "Writes for which the index had no slot.",
        &[by("", "index_refused", |look| look.index.refused)],
    ),
    counter(
        "curtail_index_read_retries_total",
        Whole,
        "Reads that were repeated because of a concurrent write to their buckets.",
        &[by("", "index_read_retries", |look| look.index.read_retries)],
    ),
    counter(
        "curtail_index_reads_locked_total",
        Whole,
        "Reads that locked their buckets after 64 repetitions; should stay 0.",
        &[by("", "index_reads_locked", |look| look.index.reads_locked)],
    ),
];
