//! What is in a data directory that no server has open, and whether it is whole.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use twox_hash::XxHash3_128;

use crate::{
    directory::DataDirectory,
    engine::{Durability, Engine, StorageConfig},
    error::StorageError,
    item_record,
    item_tree::ItemTree,
    log_disk::LogDirectory,
    pending_keys,
    replay::replay,
};

/// What is in a data directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StorageInfo {
    /// Items that are neither expired nor flushed.
    pub items: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Items that have ended or were flushed, and wait for compaction.
    pub gone: u64,
    /// Files of tables.
    pub tables: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// Operations in the log that no table has.
    pub log_operations: u64,
    /// Bytes at the end of the log that a crash had torn; opening cut them off.
    pub torn_bytes: u64,
    /// The highest CAS that any item ever had.
    pub highest_cas: u64,
    /// When everything is to be flushed, in Unix seconds; 0 if that is not planned.
    pub flush_at: u32,
}

/// What verification found.
#[derive(Debug)]
pub struct VerifyReport {
    /// Files whose checksums match.
    pub files: u64,
    /// Records that were read.
    pub records: u64,
    /// What is damaged: each names its file.
    pub damage: Vec<StorageError>,
}

/// Memory for tools that read everything once.
const MEMORY_BYTES: u64 = 64 << 20;

impl StorageConfig {
    /// The configuration of a tool.
    pub(crate) fn of_tool(dir: &Path) -> Self {
        Self {
            dir: dir.into(),
            durability: Durability::Sync,
            memory_bytes: MEMORY_BYTES,
            readers: 1,
            reserve_bytes: 0,
        }
    }
}

/// Opens a directory for a tool, and carries out a planned flush whose time has come, as a server
/// would.
pub(crate) fn open_for_tool(
    dir: &Path,
    creates: bool,
    now_seconds: u32,
) -> Result<Engine, StorageError> {
    let engine = Engine::open(StorageConfig::of_tool(dir), creates)?;
    if pending_keys::flush_due(&engine, now_seconds, || ()).is_some() {
        engine.commit();
    }
    Ok(engine)
}

/// Tells what is in the directory. It is locked meanwhile.
///
/// # Errors
/// It has no data, is in use, or is damaged.
pub fn info(dir: &Path, now_seconds: u32) -> Result<StorageInfo, StorageError> {
    let engine = open_for_tool(dir, false, now_seconds)?;
    let mut info = StorageInfo {
        items: 0,
        key_bytes: 0,
        value_bytes: 0,
        gone: 0,
        tables: engine.tree.tables().len() as u64,
        table_bytes: engine.tree.disk_bytes(),
        log_operations: engine.replayed,
        torn_bytes: engine.torn_bytes,
        highest_cas: engine
            .highest_cas
            .load(std::sync::atomic::Ordering::Relaxed),
        flush_at: engine.flush_at.load(std::sync::atomic::Ordering::Relaxed),
    };
    each_item(&engine, now_seconds, |key, item| {
        match item {
            Some((_, value)) => {
                info.items += 1;
                info.key_bytes += key.len() as u64;
                info.value_bytes += value.len() as u64;
            }
            None => info.gone += 1,
        }
        Ok(())
    })?;
    engine.seal();
    Ok(info)
}

/// Reads every byte of the directory and compares every checksum. Nothing is changed.
///
/// # Errors
/// It has no data, or is in use. Damage is in the report.
pub fn verify(dir: &Path) -> Result<VerifyReport, StorageError> {
    let directory = DataDirectory::take(dir, false)?;
    let mut report = VerifyReport {
        files: 0,
        records: 0,
        damage: Vec::new(),
    };
    let tree = match ItemTree::open(&directory.tables(), MEMORY_BYTES) {
        Ok(tree) => tree,
        Err(error) => {
            report.damage.push(error);
            return Ok(report);
        }
    };
    for (file, checksum) in tree.tables() {
        match checksum_of(&file) {
            Ok(found) if found == checksum => report.files += 1,
            Ok(_) => report.damage.push(StorageError::Damaged {
                file,
                offset: 0,
                what: "the file's checksum does not match the one in the manifest",
            }),
            Err(error) => report.damage.push(StorageError::File { file, error }),
        }
    }
    verify_records(&tree, &directory, &mut report);
    let flushed = match tree.checkpoint() {
        Ok(checkpoint) => checkpoint.operation,
        Err(error) => {
            report.damage.push(tree.error(error));
            return Ok(report);
        }
    };
    let log = directory.log();
    let disk = LogDirectory::new(&log);
    let place = (log.as_path(), directory.seed);
    let mut damaged = 0;
    let replayed = replay(&disk, place, flushed, false, |_, write| {
        report.records += 1;
        let record = ItemTree::item_key(&write.key).zip(write.value.as_deref());
        damaged += u64::from(record.is_some_and(|(key, it)| item_record::decode(key, it).is_err()));
    });
    match replayed {
        Ok(replayed) => report.files += replayed.files.len() as u64,
        Err(error) => report.damage.push(error),
    }
    if damaged > 0 {
        report.damage.push(record_damage(
            log,
            "the write log has records that cannot be read",
        ));
    }
    Ok(report)
}

fn verify_records(tree: &ItemTree, directory: &DataDirectory, report: &mut VerifyReport) {
    for entry in tree.scan() {
        let (key, record) = match entry {
            Ok(entry) => entry,
            Err(error) => {
                report.damage.push(tree.error(error));
                return;
            }
        };
        report.records += 1;
        if let Some(key) = ItemTree::item_key(&key)
            && let Err(what) = item_record::decode(key, &record)
        {
            report.damage.push(record_damage(directory.tables(), what));
        }
    }
}

fn record_damage(file: PathBuf, what: &'static str) -> StorageError {
    StorageError::Damaged {
        file,
        offset: 0,
        what,
    }
}

/// Shows every item, by key; `None` for one that has ended or was flushed.
pub(crate) fn each_item<E: From<StorageError>>(
    engine: &Engine,
    now_seconds: u32,
    mut show: impl FnMut(&[u8], Option<(crate::ItemImage, &[u8])>) -> Result<(), E>,
) -> Result<(), E> {
    let epoch = engine.epoch.load(std::sync::atomic::Ordering::Relaxed);
    for entry in engine.tree.scan() {
        let (key, record) = entry.map_err(|error| engine.tree.error(error))?;
        let Some(key) = ItemTree::item_key(&key) else {
            continue;
        };
        let record = item_record::decode(key, &record);
        let record = record.map_err(|what| record_damage(engine.path().join("tables"), what))?;
        let ended = record.image.expiry != 0 && record.image.expiry <= now_seconds;
        let is_gone = ended || record.epoch < epoch;
        show(key, (!is_gone).then_some((record.image, record.value)))?;
    }
    Ok(())
}

fn checksum_of(path: &Path) -> io::Result<u128> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(XxHash3_128::oneshot(&bytes))
}
