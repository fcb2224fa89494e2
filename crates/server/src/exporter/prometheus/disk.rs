//! The disk tier, if there is one.

use curtail_storage::StorageGauges;

use crate::{
    exporter::prometheus::{Family, Row, Source},
    metrics::counters::Count::{self, *},
};

const fn of(count: Count) -> Row {
    (count.name(), Source::DiskCount(count))
}

const fn by(stat: &'static str, read: fn(&StorageGauges) -> u64) -> Row {
    (stat, Source::Disk(read))
}

pub(super) const TABLE: &[Family] = families! {
    Gauge curtail_disk_write_state
        "0: the disk takes writes; 1: the file system is full, writes other than deletions are \
         refused; 2: the disk has failed, writes are refused until a restart; 3: the file system \
         is so full that deletions are refused, too.":
        by("disk:write_state", |disk| disk.write_state);
    Counter curtail_disk_reads_total "Items that workers requested from the disk.":
        of(DiskReads);
    Counter curtail_disk_loaded_total "Items that came from the disk into memory.":
        of(DiskLoaded);
    Counter curtail_disk_waits_total
        "Times that a connection waited for a read of the disk, or for room to write.":
        of(DiskWaits);
    Counter curtail_disk_writes_refused_total
        "Writes refused because the disk was full, had failed, or was behind for 2 s.":
        of(DiskRefused);
    Counter curtail_disk_writes_total "Writes appended to the write log.":
        by("disk:writes", |disk| disk.writes);
    Counter curtail_disk_groups_total
        "Groups of writes that were appended to the write log together.":
        by("disk:groups", |disk| disk.groups);
    Counter curtail_disk_syncs_total "Times that the write log was synced.":
        by("disk:syncs", |disk| disk.syncs);
    Gauge curtail_disk_sync_highest_seconds in Microseconds
        "Duration of the longest sync of the write log since the start.":
        by("disk:sync_us_max", |disk| disk.sync_us_max);
    Gauge curtail_disk_queue_bytes in Bytes "Bytes of writes that are not in the write log yet.":
        by("disk:queue_bytes", |disk| disk.queue_bytes);
    Gauge curtail_disk_unsynced_seconds in Microseconds
        "Time for which the oldest write that is not on stable storage has waited.":
        by("disk:unsynced_us", |disk| disk.unsynced_us);
    Counter curtail_disk_stalls_total
        "Times that writes to the write log waited until a memtable (writes in memory that are in \
         no table yet) was flushed or tables were compacted.":
        by("disk:stalls", |disk| disk.stalls);
    Counter curtail_disk_stalled_seconds_total in Microseconds
        "Time that writes to the write log waited until a memtable was flushed or tables were \
         compacted.":
        by("disk:stalled_us", |disk| disk.stalled_us);
    Counter curtail_disk_table_reads_total "Reads of the tables.":
        by("disk:reads", |disk| disk.reads);
    Counter curtail_disk_read_errors_total "Reads that found damage or an error; must stay 0.":
        by("disk:read_errors", |disk| disk.read_errors);
    Gauge curtail_disk_items_at_most
        "Items in tables and memtables, including overwritten and deleted ones that were not \
         compacted yet.":
        by("disk:items_at_most", |disk| disk.items_at_most);
    Gauge curtail_disk_table_bytes in Bytes "Size of the tables (sorted files with items).":
        by("disk:table_bytes", |disk| disk.table_bytes);
    Gauge curtail_disk_log_files "Number of files of the write log.":
        by("disk:log_files", |disk| disk.log_files);
    Gauge curtail_disk_memtables_waiting
        "Full memtables that wait to be flushed to tables.":
        by("disk:memtables_waiting", |disk| disk.memtables_waiting);
    Gauge curtail_disk_runs_waiting "Sorted runs of tables that wait to be compacted.":
        by("disk:runs_waiting", |disk| disk.runs_waiting);
    Counter curtail_disk_compactions_total "Compactions.":
        by("disk:compactions", |disk| disk.compactions);
};
