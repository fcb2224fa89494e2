//! Servers with a disk tier, and more items than their memory holds.

use std::{path::Path, time::Duration};

use curtail_server::{Config, Durability, Server, StorageConfig};
use curtail_testing::{Client, config_with, pattern, start};
use tempfile::TempDir;

/// Bytes of memory: the least that holds a large value of these tests.
const MEMORY_BYTES: usize = 8 << 20;

/// The data directories of a test, in memory where that is possible: syncing would be all its time.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => TempDir::new_in(memory).unwrap(),
        false => TempDir::new().unwrap(),
    }
}

pub(crate) fn disk_config(dir: &Path, durability: Durability) -> Config {
    config_with(|config| {
        config.memory_bytes_max = MEMORY_BYTES;
        config.workers = 2;
        config.huge_pages = false;
        config.disk = Some(StorageConfig {
            dir: dir.into(),
            durability,
            memory_bytes: 16 << 20,
            readers: 2,
            reserve_bytes: 0,
        });
    })
}

pub(crate) fn bounded() -> Durability {
    Durability::Bounded(Duration::from_millis(50))
}

pub(crate) fn serve_disk(dir: &Path, durability: Durability) -> (Server, Client) {
    let server = start(disk_config(dir, durability));
    let client = Client::connect(&server);
    (server, client)
}

/// Items that take some times the memory: all that were there before are evicted.
pub(crate) fn push_out(client: &mut Client, salt: usize) {
    const ITEMS: usize = 2000;
    const BYTES: usize = 8000;
    for number in 0..ITEMS {
        client.send(format!(
            "set filler-{salt}-{number} 0 0 {BYTES} noreply\r\n"
        ));
        client.send(pattern(BYTES, number));
        client.send("\r\n");
    }
    client.demand("mn\r\n", "MN\r\n");
    let evictions = client.stat("", "evictions");
    assert!(evictions > 0, "nothing was evicted: the test shows nothing");
}
