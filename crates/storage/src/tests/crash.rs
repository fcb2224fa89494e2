//! Crashes of a disk that forgets, tears and reorders what was not synced (`simulated_disk`).
//!
//! The steps of the storage's threads are taken one by one in an order that the seed says, so a
//! seed fails again as it failed. The log is on the simulated disk. The tables are on the real one
//! and count as written when a flush returns: the tree syncs them before that, which only the
//! rounds of kill -9 (`tests/kill.rs`) look at.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use curtail_types::KeyHash;
use curtail_workload::Random;
use tempfile::TempDir;

use crate::{
    Durability, ItemImage, StorageConfig,
    directory::DataDirectory,
    engine::Engine,
    pending_keys::{self, KeyLock},
    planted_fault::{PlantedFault, plant},
    tests::simulated_disk::SimulatedDisk,
};

/// What every write did, by place in the log: the key and its value, or a flush of all.
type History = Vec<(Option<u8>, Option<Vec<u8>>)>;

struct Round {
    engine: Arc<Engine>,
    disk: SimulatedDisk,
    history: History,
    random: Random,
}

const KEYS: u64 = 12;

fn folder() -> TempDir {
    // Memory, where there is such a folder: syncing real files would be most of the time.
    let memory = std::path::Path::new("/dev/shm");
    match memory.is_dir() {
        true => TempDir::new_in(memory).unwrap(),
        false => TempDir::new().unwrap(),
    }
}

fn open(
    folder: &TempDir,
    disk: &SimulatedDisk,
    durability: Durability,
) -> Result<Arc<Engine>, String> {
    let config = StorageConfig {
        dir: folder.path().into(),
        durability,
        memory_bytes: 1 << 20,
        readers: 1,
        reserve_bytes: 0,
    };
    let dir = DataDirectory::take(folder.path(), true).map_err(|error| error.to_string())?;
    let engine = Engine::open_on(Arc::new(disk.clone()), dir, config);
    engine.map(Arc::new).map_err(|error| error.to_string())
}

/// The values that a history leaves.
fn state_after(history: &[(Option<u8>, Option<Vec<u8>>)]) -> BTreeMap<u8, Vec<u8>> {
    let mut state = BTreeMap::new();
    for (key, value) in history {
        match (key, value) {
            (None, _) => state.clear(),
            (Some(key), Some(value)) => _ = state.insert(*key, value.clone()),
            (Some(key), None) => _ = state.remove(key),
        }
    }
    state
}

impl Round {
    fn step(&mut self) {
        let random = &mut self.random;
        match random.below(20) {
            0 => {
                let place = pending_keys::flush_all(&self.engine, 0, || ());
                self.note(place, None, None);
            }
            1 => _ = self.engine.sync(),
            2 => _ = self.engine.rotate_if(0),
            3 => _ = self.engine.flush(),
            4 => _ = self.engine.compact(),
            5..9 => {
                self.engine.commit();
                self.engine.look_at_space();
            }
            _ => self.write(),
        }
    }

    fn write(&mut self) {
        let key = self.random.below(KEYS) as u8;
        let name = [b'k', key];
        let hash = KeyHash(u64::from(key));
        let mut locked = KeyLock::new(&self.engine, hash);
        let (place, value) = match self.random.below(5) {
            0 => (locked.delete(&name, hash), None),
            _ => {
                let bytes = self.random.below(3000) as usize;
                let value = vec![self.random.below(256) as u8; bytes];
                let image = ItemImage {
                    cas: self.history.len() as u64 + 1,
                    ..ItemImage::default()
                };
                (locked.put(&name, hash, &image, &value), Some(value))
            }
        };
        drop(locked);
        self.note(place, Some(key), value);
    }

    fn note(&mut self, place: u64, key: Option<u8>, value: Option<Vec<u8>>) {
        assert_eq!(place, self.history.len() as u64 + 1);
        self.history.push((key, value));
    }

    /// What is read now, by every way: pending writes first, then the tree.
    fn read_all(&self) -> Result<BTreeMap<u8, Vec<u8>>, String> {
        let mut state = BTreeMap::new();
        for key in 0..KEYS as u8 {
            let name = [b'k', key];
            let locked = KeyLock::new(&self.engine, KeyHash(u64::from(key)));
            let item = match locked.latest(&name) {
                crate::Latest::Absent => None,
                crate::Latest::Item(item) => Some(item),
                crate::Latest::OnDisk => {
                    let read = self.engine.read(&name);
                    read.map_err(|fault| format!("a read failed: {fault:?}"))?
                }
            };
            item.and_then(|item| state.insert(key, item.value().to_vec()));
        }
        Ok(state)
    }
}

/// One seed: some crashes with work in between. `Err` says what was lost or wrong.
fn run(seed: u64) -> Result<(), String> {
    let folder = folder();
    let mut random = Random::new(seed);
    let full_every = random.one_of(&[0, 0, 15]);
    let disk = SimulatedDisk::new(random.next(), full_every);
    let bounded = Durability::Bounded(Duration::from_secs(3600));
    let durability = random.one_of(&[Durability::Sync, bounded]);
    let first = open_again(&folder, &disk, durability)?;
    let mut round = Round {
        engine: first,
        disk,
        history: Vec::new(),
        random,
    };
    for _ in 0..4 {
        for _ in 0..round.random.below(120) {
            round.step();
        }
        let seen = round.read_all()?;
        if seen != state_after(&round.history) {
            return Err("a read before the crash is not the last write".into());
        }
        crash(&folder, &mut round, durability)?;
    }
    Ok(())
}

fn open_again(
    folder: &TempDir,
    disk: &SimulatedDisk,
    durability: Durability,
) -> Result<Arc<Engine>, String> {
    // A disk that is full now and then may be so while the log is begun.
    let mut opened = open(folder, disk, durability);
    for _ in 0..20 {
        if opened
            .as_ref()
            .is_err_and(|what| what.contains("cannot be written"))
        {
            opened = open(folder, disk, durability);
        }
    }
    opened
}

fn crash(folder: &TempDir, round: &mut Round, durability: Durability) -> Result<(), String> {
    use std::sync::atomic::Ordering::Relaxed;
    let durable = round.engine.durable.load(Relaxed) as usize;
    let dead = std::mem::replace(&mut round.engine, Arc::new(unopened()?));
    drop(dead);
    round.disk.crash();
    round.engine = open_again(folder, &round.disk, durability)?;
    let kept = round.engine.applied.load(Relaxed) as usize;
    if kept < durable || kept > round.history.len() {
        let written = round.history.len();
        return Err(format!(
            "{kept} of {written} writes were kept, {durable} were durable"
        ));
    }
    round.history.truncate(kept);
    let seen = round.read_all()?;
    if seen != state_after(&round.history) {
        return Err(format!(
            "what is there is not what the first {kept} writes leave"
        ));
    }
    let highest = round.engine.highest_cas.load(Relaxed);
    let writes = round
        .history
        .iter()
        .rposition(|(key, value)| key.is_some() && value.is_some());
    if writes.is_some_and(|place| highest < place as u64 + 1) {
        return Err(format!(
            "the highest CAS is {highest}, and a later one was given"
        ));
    }
    Ok(())
}

/// Something to stand in while the real one is opened again: the directory has one owner.
fn unopened() -> Result<Engine, String> {
    let folder = folder();
    let disk = SimulatedDisk::new(0, 0);
    let dir = DataDirectory::take(folder.path(), true).map_err(|error| error.to_string())?;
    let config = StorageConfig::of_tool(folder.path());
    Engine::open_on(Arc::new(disk), dir, config).map_err(|error| error.to_string())
}

fn run_all(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(what) = run(seed) {
            panic!("seed {seed}: {what}");
        }
    }
}

/// Goal: a crash at any moment leaves exactly what the first writes left, and all that were
/// durable. Method: random work on a disk that forgets; `CURTAIL_CRASH_SEEDS=10000..20000` runs
/// others.
#[test]
fn a_crash_keeps_what_was_durable_and_nothing_torn() {
    let told = std::env::var("CURTAIL_CRASH_SEEDS").ok();
    let told = told.as_deref().and_then(|range| range.split_once(".."));
    let range = told.and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    run_all(range.unwrap_or(0..300));
}

/// The same for 10,000 seeds: minutes.
#[test]
#[ignore = "slow: run with `cargo test -p curtail-storage --release -- --ignored`"]
fn ten_thousand_crashes() {
    run_all(0..10_000);
}

/// Goal: the test above catches what it is there for. Method: faults are planted, and a seed must
/// fail.
#[test]
fn planted_faults_are_caught() {
    for fault in [
        PlantedFault::AcknowledgesEarly,
        PlantedFault::DeletesEarly,
        PlantedFault::ReadsTorn,
    ] {
        plant(Some(fault));
        let caught = (0..200).find_map(|seed| {
            // A torn group that is read may also break an assertion.
            let ran = std::panic::catch_unwind(|| run(seed));
            ran.map_or(Some("a panic".into()), Result::err)
        });
        plant(None);
        assert!(caught.is_some(), "{fault:?} was not caught");
    }
}
