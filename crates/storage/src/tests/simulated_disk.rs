//! A disk that keeps, at a crash, what was synced, and of the rest whatever a seed says: any part
//! of it, sector by sector, in any order, zeros or garbage in between, and files that were deleted.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use curtail_workload::Random;

use crate::{
    engine::lock,
    log_disk::{LogDisk, LogFile},
};

/// The disk; its clones are the same one.
#[derive(Clone)]
pub(super) struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    files: BTreeMap<String, SimulatedFile>,
    /// Deleted since the last crash: nothing says that the disk knows.
    deleted: BTreeMap<String, SimulatedFile>,
    random: Random,
    /// One append in so many finds the disk full, after some of its bytes; 0 for none.
    full_every: u64,
}

#[derive(Clone, Default)]
struct SimulatedFile {
    bytes: Vec<u8>,
    synced: usize,
}

struct OpenFile {
    disk: SimulatedDisk,
    name: String,
}

const SECTOR: usize = 512;

impl SimulatedDisk {
    pub(super) fn new(seed: u64, full_every: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                files: BTreeMap::new(),
                deleted: BTreeMap::new(),
                random: Random::new(seed),
                full_every,
            })),
        }
    }

    /// The power fails.
    pub(super) fn crash(&self) {
        let state = &mut *lock(&self.state);
        let random = &mut state.random;
        for (name, file) in std::mem::take(&mut state.deleted) {
            if random.below(2) == 0 {
                state.files.entry(name).or_insert(file);
            }
        }
        for file in state.files.values_mut() {
            let kept =
                file.synced + random.below((file.bytes.len() - file.synced) as u64 + 1) as usize;
            file.bytes.truncate(kept);
            let first = file.synced;
            for at in (first..kept).step_by(SECTOR) {
                let sector = &mut file.bytes[at..kept.min(at + SECTOR)];
                match random.below(4) {
                    0 => sector.fill(0),
                    1 => sector
                        .iter_mut()
                        .for_each(|byte| *byte = random.below(256) as u8),
                    _ => {}
                }
            }
            file.synced = file.bytes.len();
        }
    }

    fn with<T>(&self, name: &str, run: impl FnOnce(&mut SimulatedFile) -> T) -> io::Result<T> {
        let mut state = lock(&self.state);
        let file = state.files.get_mut(name);
        file.map(run).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl LogDisk for SimulatedDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.state).files.keys().cloned().collect())
    }

    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.with(name, |file| {
            let bytes = file.bytes.iter().take(bytes_max);
            bytes.copied().collect()
        })
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let mut state = lock(&self.state);
        state.files.insert(name.into(), SimulatedFile::default());
        Ok(Box::new(OpenFile {
            disk: self.clone(),
            name: name.into(),
        }))
    }

    fn cut(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.with(name, |file| {
            file.bytes.truncate(bytes as usize);
            file.synced = file.bytes.len();
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let file = state.files.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.deleted.insert(name.into(), file);
        Ok(())
    }
}

impl LogFile for OpenFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.disk.state);
        let is_full = state.full_every > 0 && {
            let every = state.full_every;
            state.random.below(every) == 0
        };
        let taken = match is_full {
            true => state.random.below(bytes.len() as u64 + 1) as usize,
            false => bytes.len(),
        };
        drop(state);
        self.disk.with(&self.name, |file| {
            file.bytes.extend_from_slice(&bytes[..taken]);
        })?;
        match is_full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk
            .with(&self.name, |file| file.synced = file.bytes.len())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.with(&self.name, |file| {
            file.bytes.truncate(bytes as usize);
            file.synced = file.synced.min(file.bytes.len());
        })
    }
}
