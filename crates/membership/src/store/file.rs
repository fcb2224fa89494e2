//! A roster in a file: for the nodes of one machine, or of a file system that locks and renames as
//! a local one does.
//!
//! A reading opens whatever the last rename put there, so it waits for nobody. A replacement is
//! written beside it first; only the comparison and the rename happen under the lock, so that a
//! process that is stopped hardly ever is stopped with the lock.
//!
//! Nobody waits until the disk has it: a busy one takes seconds, in which a dead node would be
//! missed by all. What is renamed every node of the machine reads, and a view protects living nodes
//! from each other; if the machine goes down all of them are dead. So the file goes to the disk
//! afterwards, and what a power failure leaves there is an earlier view, or one that is cut off.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{StoredText, ViewStore, ViewStoreError};

/// A roster in a file.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    patience: Duration,
}

impl FileStore {
    /// The store in `path`; a lock and a file being written stand beside it. `patience` is how long
    /// a replacement may wait for the lock.
    pub fn new(path: &Path, patience: Duration) -> Self {
        Self {
            path: path.to_owned(),
            patience,
        }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.beside(".lock");
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if start.elapsed() >= self.patience => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another process keeps it locked",
                    ));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            }
        }
    }

    /// A file with `record` beside the one that is read, to be renamed.
    fn write_beside(&self, record: &Record<Value>) -> io::Result<Beside> {
        let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let path = self.beside(&format!(".{}-{count}.new", std::process::id()));
        let file = File::create(&path)?;
        let mut beside = Beside { path, file };
        let text = serde_json::to_string_pretty(record)?;
        beside.file.write_all(text.as_bytes())?;
        Ok(beside)
    }

    fn strange(&self, error: &serde_json::Error) -> ViewStoreError {
        let path = self.path.display();
        let remedy = "restore it or, if the machine lost power and no node runs, remove it";
        ViewStoreError::Strange(format!("{path} holds no valid view: {error}; {remedy}"))
    }

    fn unreachable(&self, error: &io::Error) -> ViewStoreError {
        let path = self.path.display();
        let remedy = match error.kind() {
            // It says that another process keeps it locked.
            io::ErrorKind::TimedOut => "",
            io::ErrorKind::StorageFull => "; make space on its disk",
            _ => {
                "; check that it exists and that the server's user may read and write it and its \
                 folder"
            }
        };
        ViewStoreError::Unreachable(format!("{path}: {error}{remedy}"))
    }
}

impl ViewStore for FileStore {
    fn read(&mut self) -> Result<Option<StoredText>, ViewStoreError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unreachable(&error)),
        };
        let record: Record<&RawValue> =
            serde_json::from_str(&text).map_err(|error| self.strange(&error))?;
        Ok(Some(StoredText {
            revision: record.revision,
            text: record.roster.get().to_owned(),
        }))
    }

    fn replace(&mut self, expected: u64, text: &str) -> Result<Option<u64>, ViewStoreError> {
        let roster = serde_json::from_str(text)
            .map_err(|error| ViewStoreError::Strange(error.to_string()))?;
        let revision = expected.saturating_add(1);
        let record = Record { revision, roster };
        let new = self
            .write_beside(&record)
            .map_err(|error| self.unreachable(&error))?;
        let lock = self.lock().map_err(|error| self.unreachable(&error))?;
        let found = self.read()?.map_or(0, |stored| stored.revision);
        if found != expected {
            return Ok(None);
        }
        fs::rename(&new.path, &self.path).map_err(|error| self.unreachable(&error))?;
        drop(lock);
        new.sync_later();
        Ok(Some(revision))
    }
}

/// A file beside the one that is read; removed unless it was renamed.
struct Beside {
    path: PathBuf,
    file: File,
}

impl Beside {
    /// Brings what was renamed to the disk while nobody waits.
    fn sync_later(&self) {
        if let Ok(file) = self.file.try_clone() {
            // Without a thread the system does it in its own time, and so it does if it fails now.
            let _ = thread::Builder::new()
                .name("view-sync".to_owned())
                .spawn(move || file.sync_all());
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It is not there any more if it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

#[derive(Deserialize, Serialize)]
struct Record<R> {
    revision: u64,
    roster: R,
}

/// Names files apart that several threads write at once.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

const LOCK_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use curtail_consistency::{
        members::{Incarnation, RecordChange},
        replica::Model,
    };
    use curtail_types::NodeId;

    use super::*;
    use crate::{Addresses, Node, Roster, RosterStore, Settings, StoredRoster};

    fn open(path: &Path, patience: Duration) -> RosterStore {
        RosterStore::new(FileStore::new(path, patience))
    }

    fn empty() -> Roster {
        let settings = Settings {
            model: Model::Lin,
            replicas: 1,
            lease_ms: 1000,
        };
        Roster::empty("trial", settings)
    }

    fn joined(roster: &Roster, id: u8) -> Roster {
        let node = Node {
            name: format!("n{id}"),
            addresses: Addresses {
                clients: ([127, 0, 0, 1], 1).into(),
                links: ([127, 0, 0, 1], 2).into(),
            },
            incarnation: Incarnation(0),
        };
        let join = RecordChange::Join(Incarnation(u64::from(id) + 1));
        roster.after(&join, NodeId(id), &node).unwrap()
    }

    #[test]
    fn what_was_replaced_is_read_and_who_is_late_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = open(&folder.path().join("view.json"), Duration::from_secs(1));
        let mut two = open(&folder.path().join("view.json"), Duration::from_secs(1));
        assert_eq!(one.read_roster().unwrap(), None);
        let roster = joined(&empty(), 0);
        assert_eq!(one.replace_roster(0, &roster).unwrap(), Some(1));
        assert_eq!(two.replace_roster(0, &joined(&empty(), 1)).unwrap(), None);
        let stored = two.read_roster().unwrap().unwrap();
        assert_eq!(
            stored,
            StoredRoster {
                revision: 1,
                roster
            }
        );
        assert_eq!(
            two.replace_roster(1, &joined(&stored.roster, 1)).unwrap(),
            Some(2)
        );
        assert_eq!(
            one.replace_roster(1, &joined(&stored.roster, 2)).unwrap(),
            None
        );
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
    }

    #[test]
    fn of_many_at_once_exactly_one_wins_each_revision() {
        // Eight threads add 25 views each; none may be lost, so the last has number 200.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view.json");
        let beaten = AtomicUsize::new(0);
        thread::scope(|scope| {
            for id in 0..8 {
                let (path, beaten) = (&path, &beaten);
                scope.spawn(move || {
                    let mut store = open(path, Duration::from_secs(20));
                    let mut won = 0;
                    while won < 25 {
                        let stored = store.read_roster().unwrap();
                        let revision = stored.as_ref().map_or(0, |stored| stored.revision);
                        let roster = stored.map_or_else(empty, |stored| stored.roster);
                        let again =
                            RecordChange::Join(Incarnation(1 + revision * 8 + u64::from(id)));
                        let node = joined(&empty(), id).node(NodeId(id)).unwrap().clone();
                        let next = roster.after(&again, NodeId(id), &node).unwrap();
                        match store.replace_roster(revision, &next).unwrap() {
                            Some(_) => won += 1,
                            None => _ = beaten.fetch_add(1, Ordering::Relaxed),
                        }
                    }
                });
            }
        });
        let mut store = open(&path, Duration::from_secs(1));
        let stored = store.read_roster().unwrap().unwrap();
        assert_eq!((stored.revision, stored.roster.record.number.0), (200, 200));
        assert!(beaten.into_inner() > 0, "there was no race");
    }

    #[test]
    fn a_view_that_came_back_with_another_content_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view.json");
        let mut reader = open(&path, Duration::from_secs(1));
        for id in 0..3 {
            let roster = joined(&empty(), id);
            let mut writer = open(&path, Duration::from_secs(1));
            assert_eq!(writer.replace_roster(0, &roster).unwrap(), Some(1));
            for _ in 0..2 {
                let stored = reader.read_roster().unwrap().unwrap();
                assert_eq!((stored.revision, stored.roster), (1, roster.clone()));
            }
            fs::write(&path, "{").unwrap();
            assert!(reader.read_roster().is_err());
            fs::remove_file(&path).unwrap();
            assert_eq!(reader.read_roster().unwrap(), None);
        }
    }

    #[test]
    fn a_lock_that_stays_is_no_dead_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view.json");
        let lock = FileStore::new(&path, Duration::from_secs(1))
            .lock()
            .unwrap();
        let mut store = open(&path, Duration::from_millis(20));
        assert!(store.replace_roster(0, &joined(&empty(), 0)).is_err());
        let found = store.read_roster().unwrap();
        assert_eq!(found, None, "readings wait for no lock");
        drop(lock);
        assert_eq!(
            store.replace_roster(0, &joined(&empty(), 0)).unwrap(),
            Some(1)
        );
        fs::write(folder.path().join("view.json"), "{").unwrap();
        assert!(store.read_roster().is_err());
    }
}
