//! Every metric: name, kind, unit, help, labels, where its numbers come from, and which rows of
//! `stats` it carries.
//!
//! A new counter is one entry here. Tests hold this table against what `stats`, `stats memory` and
//! `stats curtail` print: a number that no row here carries fails them, and so do two families with
//! one help text.
//!
//! Names follow Prometheus's conventions: base units, `_total` for what only grows, no unit that a
//! label changes.

mod index;
mod requests;
mod store;
mod workers;

use crate::exporter::prometheus::{Family, cluster, disk, gateway, native};

/// All families, in the order of the page.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    let parts = [requests::TABLE, store::TABLE, index::TABLE, workers::TABLE];
    let more = [cluster::TABLE, native::TABLE, disk::TABLE, gateway::TABLE];
    parts.into_iter().chain(more).flatten()
}
