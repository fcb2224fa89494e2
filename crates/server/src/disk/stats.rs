//! The disk tier's rows of `stats curtail`.

use curtail_storage::StorageGauges;

/// Shows each number under its name.
pub(crate) fn statistics(gauges: &StorageGauges, mut show: impl FnMut(&str, u64)) {
    show("disk:write_state", gauges.write_state);
    show("disk:writes", gauges.writes);
    show("disk:groups", gauges.groups);
    show("disk:syncs", gauges.syncs);
    show("disk:sync_us_max", gauges.sync_us_max);
    show("disk:queue_bytes", gauges.queue_bytes);
    show("disk:unsynced_us", gauges.unsynced_us);
    show("disk:stalls", gauges.stalls);
    show("disk:stalled_us", gauges.stalled_us);
    show("disk:reads", gauges.reads);
    show("disk:read_errors", gauges.read_errors);
    show("disk:items_at_most", gauges.items_at_most);
    show("disk:table_bytes", gauges.table_bytes);
    show("disk:log_files", gauges.log_files);
    show("disk:memtables_waiting", gauges.memtables_waiting);
    show("disk:runs_waiting", gauges.runs_waiting);
    show("disk:compactions", gauges.compactions);
}
