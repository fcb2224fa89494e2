//! A data directory: which process has it, and in which format it is.
//!
//! ```text
//!  DIR/FORMAT   "curtail-data 1", and the secret of the log's checksums, with a checksum
//!  DIR/LOCK     locked by the process that has it, which writes its number there
//!  DIR/log/     the log
//!  DIR/tables/  the tree
//! ```

use std::{
    collections::hash_map::RandomState,
    fs::{self, File, OpenOptions},
    hash::BuildHasher,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use twox_hash::XxHash3_64;

use crate::{FORMAT_VERSION, error::StorageError, log_disk::sync_directory};

/// A directory that this process has.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    /// The secret of the log's checksums.
    pub(crate) seed: u64,
    /// Locked as long as this is there.
    _lock: File,
}

const FORMAT: &str = "FORMAT";
const LOCK: &str = "LOCK";
const NAME: &str = "curtail-data";

impl DataDirectory {
    /// Takes a directory; makes it, if need be, when it `creates`.
    pub(crate) fn take(path: &Path, creates: bool) -> Result<Self, StorageError> {
        let dir = path.to_path_buf();
        let denied = |error| StorageError::NotWritable {
            dir: dir.clone(),
            error,
        };
        if !path.join(FORMAT).exists() {
            if !creates {
                return Err(StorageError::NoData { dir });
            }
            fs::create_dir_all(path).map_err(denied)?;
        }
        let lock = lock(path)?;
        let seed = match fs::read_to_string(path.join(FORMAT)) {
            Ok(text) => read_format(path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => begin(path)?,
            Err(error) => return Err(denied(error)),
        };
        Ok(Self {
            path: dir,
            seed,
            _lock: lock,
        })
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks the directory, and leaves the number of this process for processes that come later.
fn lock(path: &Path) -> Result<File, StorageError> {
    let dir = path.to_path_buf();
    let denied = |error| StorageError::NotWritable {
        dir: dir.clone(),
        error,
    };
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(path.join(LOCK)).map_err(denied)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut text = String::new();
        let pid = file.read_to_string(&mut text).ok();
        let pid = pid.and_then(|_| text.trim().parse().ok());
        return Err(StorageError::InUse { dir, pid });
    }
    let told = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    told.map_err(denied)?;
    Ok(file)
}

/// Makes what a directory begins with. The format file comes last: without it, nothing is there.
fn begin(path: &Path) -> Result<u64, StorageError> {
    let dir = path.to_path_buf();
    let denied = |error| StorageError::NotWritable {
        dir: dir.clone(),
        error,
    };
    if has_other_files(path).map_err(denied)? {
        return Err(StorageError::Foreign { dir });
    }
    // Keys of the standard library's hash maps are random.
    let seed = RandomState::new().hash_one(std::process::id());
    let make = || {
        fs::create_dir_all(path.join("log"))?;
        let beside = path.join("FORMAT.new");
        let mut file = File::create(&beside)?;
        write!(file, "{}", format_text(seed))?;
        file.sync_all()?;
        fs::rename(beside, path.join(FORMAT))?;
        sync_directory(path)
    };
    make().map_err(denied)?;
    Ok(seed)
}

/// Whether there is anything that a start which was interrupted does not leave.
fn has_other_files(path: &Path) -> io::Result<bool> {
    const OURS: [&str; 3] = [LOCK, "FORMAT.new", "log"];
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        // A file system's own folder stands in the root of every ext4.
        if name != "lost+found" && !OURS.iter().any(|ours| name == *ours) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_format(path: &Path, text: &str) -> Result<u64, StorageError> {
    let mut words = text.split_whitespace();
    let version = words.next().filter(|name| *name == NAME);
    let version = version.and_then(|_| words.next()).unwrap_or("(unreadable)");
    let unknown = || StorageError::UnknownFormat {
        dir: path.into(),
        found: version.into(),
        known: FORMAT_VERSION,
    };
    if version.parse() != Ok(FORMAT_VERSION) {
        return Err(unknown());
    }
    // A changed seed would make all of the log look torn.
    let seed = words.nth(1);
    let seed = seed.and_then(|seed| u64::from_str_radix(seed, 16).ok());
    let seed = seed.filter(|seed| format_text(*seed) == text);
    seed.ok_or_else(|| StorageError::Damaged {
        file: path.join(FORMAT),
        offset: 0,
        what: "the seed and its checksum do not match",
    })
}

fn format_text(seed: u64) -> String {
    let lines = format!("{NAME} {FORMAT_VERSION}\nseed {seed:016x}\n");
    let check = XxHash3_64::oneshot(lines.as_bytes());
    format!("{lines}check {check:016x}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each way a directory can be unusable has an error of its own that names it. Method:
    /// each is made.
    #[test]
    fn every_unusable_directory_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("data");
        assert!(matches!(
            DataDirectory::take(&dir, false),
            Err(StorageError::NoData { .. })
        ));
        let taken = DataDirectory::take(&dir, true).unwrap();
        let error = DataDirectory::take(&dir, true).unwrap_err().to_string();
        let by = format!("in use by process {}", std::process::id());
        assert!(error.contains(&by), "{error}");
        let seed = taken.seed;
        drop(taken);
        assert_eq!(DataDirectory::take(&dir, false).unwrap().seed, seed);

        fs::write(dir.join(FORMAT), "curtail-data 7\nseed 1\n").unwrap();
        let error = DataDirectory::take(&dir, true).unwrap_err().to_string();
        assert!(error.contains("format 7"), "{error}");
        fs::write(dir.join(FORMAT), "curtail-data 1\n").unwrap();
        assert!(matches!(
            DataDirectory::take(&dir, true),
            Err(StorageError::Damaged { .. })
        ));

        let other = folder.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("holiday.jpg"), "").unwrap();
        assert!(matches!(
            DataDirectory::take(&other, true),
            Err(StorageError::Foreign { .. })
        ));
        assert!(matches!(
            DataDirectory::take(&other.join("holiday.jpg").join("data"), true),
            Err(StorageError::NotWritable { .. })
        ));
    }
}
