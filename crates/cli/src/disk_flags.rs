//! The flags of the disk tier.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use curtail_server::{Durability, StorageConfig};

use crate::ranged_numbers;

/// The flags; see `--help` for what each means.
#[derive(Args, Debug)]
pub(crate) struct DiskFlags {
    /// Where items are kept: only in memory, or on disk with memory as a cache
    #[arg(long, value_enum, default_value_t = Tier::Memory)]
    tier: Tier,
    /// Directory of the disk tier, created if it does not exist; only one process at a time can use
    /// it
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What a reply to a write promises. With "sync" the write is on stable storage. With "bounded"
    /// a crash of the machine or the process can lose the newest writes, all from one
    /// period of --loss-window-ms (default: bounded)
    #[arg(long, value_enum)]
    durability: Option<Promise>,
    /// With --durability bounded: when the oldest write that is not on stable storage is this old,
    /// in milliseconds (10 to 60000), new writes wait. So all writes that a crash loses were
    /// acknowledged within one such period (default: 100)
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    loss_window_ms: Option<u64>,
    /// Memory of the disk tier in addition to -m, in MiB, from 16 to 1048576: half of it for writes
    /// that are in no table (sorted file) yet, half for blocks that were read (default: 128)
    #[arg(long, value_name = "NUM", allow_negative_numbers = true)]
    disk_memory: Option<u64>,
    /// Threads that read from the disk, from 1 to 64 (default: 4)
    #[arg(long, value_name = "NUM", allow_negative_numbers = true)]
    disk_threads: Option<usize>,
    /// Free space in MiB that must remain: with less, or with less than compaction (rewriting
    /// tables) may need, the server refuses writes; with less than half of NUM it refuses
    /// deletions, too (default: 256)
    #[arg(long, value_name = "NUM", allow_negative_numbers = true)]
    disk_reserve: Option<u64>,
}

/// Where items live.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Tier {
    Memory,
    Disk,
}

/// What an acknowledgement promises.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Promise {
    Bounded,
    Sync,
}

const WINDOW_MS: u64 = 100;
const MEMORY_MEGABYTES: u64 = 128;
const THREADS: usize = 4;
const RESERVE_MEGABYTES: u64 = 256;

impl DiskFlags {
    /// What they ask for.
    pub(crate) fn settle(
        &self,
        warnings: &mut Vec<String>,
    ) -> anyhow::Result<Option<StorageConfig>> {
        if self.tier == Tier::Memory {
            let given = [
                ("--data", self.data.is_some()),
                ("--durability", self.durability.is_some()),
                ("--loss-window-ms", self.loss_window_ms.is_some()),
                ("--disk-memory", self.disk_memory.is_some()),
                ("--disk-threads", self.disk_threads.is_some()),
                ("--disk-reserve", self.disk_reserve.is_some()),
            ];
            let given = given.into_iter().filter(|(_, given)| *given);
            warnings
                .extend(given.map(|(flag, _)| format!("{flag}: of no effect without --tier disk")));
            return Ok(None);
        }
        let Some(dir) = self.data.clone() else {
            bail!("--tier disk: give --data DIR, too: the directory of the items");
        };
        let window_ms = self.loss_window_ms.unwrap_or(WINDOW_MS);
        ranged_numbers::check(window_ms, 10..=60_000)
            .with_context(|| format!("--loss-window-ms {window_ms}"))?;
        let memory = self.disk_memory.unwrap_or(MEMORY_MEGABYTES);
        ranged_numbers::check(memory, 16..=1 << 20)
            .with_context(|| format!("--disk-memory {memory}"))?;
        let readers = self.disk_threads.unwrap_or(THREADS);
        ranged_numbers::check(readers, 1..=64)
            .with_context(|| format!("--disk-threads {readers}"))?;
        let reserve = self.disk_reserve.unwrap_or(RESERVE_MEGABYTES);
        ranged_numbers::check(reserve, 0..=1 << 30)
            .with_context(|| format!("--disk-reserve {reserve}"))?;
        let durability = match self.durability {
            Some(Promise::Sync) if self.loss_window_ms.is_some() => {
                bail!("--loss-window-ms: it can only be given with --durability bounded")
            }
            Some(Promise::Sync) => Durability::Sync,
            Some(Promise::Bounded) | None => Durability::Bounded(Duration::from_millis(window_ms)),
        };
        Ok(Some(StorageConfig {
            dir,
            durability,
            memory_bytes: memory << 20,
            readers,
            reserve_bytes: reserve << 20,
        }))
    }
}

/// What a reply to a write promises, for people.
pub(crate) fn promise(durability: Durability) -> String {
    match durability {
        Durability::Sync => {
            "a write is answered when it is on stable storage (--durability sync)".to_owned()
        }
        Durability::Bounded(window) => format!(
            "a write is answered before it is on stable storage: a crash of the machine or the \
             process can lose the newest writes, all from one period of {} ms (with --durability \
             sync it loses none)",
            window.as_millis()
        ),
    }
}
