//! Reading the log after a stop or a crash: every operation that the tree has not flushed is
//! applied again, the torn end is cut off, and damage is told apart from it.

use std::{collections::VecDeque, io, path::Path};

use crate::{
    error::StorageError,
    log_disk::LogDisk,
    planted_fault::{PlantedFault, planted},
    write_log::{
        FILE_HEADER_BYTES, GROUP_MAGIC, LogGroup, NoGroup, TreeWrite, first_in, has_header,
    },
};

/// What the log had.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// The number of the next operation.
    pub(crate) next: u64,
    /// The files, oldest first: name, and the number of the last operation.
    pub(crate) files: VecDeque<(String, u64)>,
    /// Bytes that were cut off because they had not been synced before the crash.
    pub(crate) torn_bytes: u64,
}

/// Applies every operation with a number above `flushed`, in order. With `repairs`, cuts off the
/// torn end.
pub(crate) fn replay(
    disk: &dyn LogDisk,
    (folder, seed): (&Path, u64),
    flushed: u64,
    repairs: bool,
    mut apply: impl FnMut(u64, TreeWrite),
) -> Result<Replayed, StorageError> {
    let names = files_of(disk, folder, repairs)?;
    let mut replayed = Replayed {
        next: flushed + 1,
        files: VecDeque::new(),
        torn_bytes: 0,
    };
    for (place, (first, name)) in names.iter().enumerate() {
        let follower = names.get(place + 1);
        // The next file begins in what was flushed, so all of this one was: a crash came before it
        // was deleted.
        if let Some((next, _)) = follower
            && *next <= flushed + 1
        {
            replayed.files.push_back((name.clone(), next - 1));
            continue;
        }
        if *first > replayed.next {
            return Err(damaged(
                folder,
                name,
                0,
                "the file of the write log before this one is missing",
            ));
        }
        let bytes = disk.read(name, usize::MAX);
        let bytes = bytes.map_err(|error| file_error(folder, name, error))?;
        let (end, fault) = read_file(&bytes, seed, &mut replayed.next, &mut apply);
        if let Some(what) = fault {
            let rest = bytes.get(end..).unwrap_or_default();
            // A file is begun when all before its first operation is synced. One that could not be
            // begun for want of room says nothing of what came behind that.
            let is_vouched = follower.is_some_and(|(first, _)| *first > replayed.next);
            let is_damage = is_vouched || was_synced(rest, seed, replayed.next);
            if is_damage && !planted(PlantedFault::CutsDamage) {
                return Err(damaged(folder, name, end as u64, what));
            }
            replayed.torn_bytes = rest.len() as u64;
            if repairs {
                let cut = disk.cut(name, end as u64);
                cut.map_err(|error| file_error(folder, name, error))?;
            }
        }
        let last = replayed.next - 1;
        match last < *first {
            // It has no operations, and the next file to begin has its name.
            true if repairs => remove(disk, folder, name)?,
            _ => replayed.files.push_back((name.clone(), last)),
        }
    }
    Ok(replayed)
}

/// Reads the groups of a file. Returns where it ended, and what was wrong there.
fn read_file(
    bytes: &[u8],
    seed: u64,
    next: &mut u64,
    apply: &mut impl FnMut(u64, TreeWrite),
) -> (usize, Option<&'static str>) {
    let mut at = FILE_HEADER_BYTES;
    loop {
        let group = match LogGroup::read(bytes.get(at..).unwrap_or_default(), seed) {
            Ok(group) => group,
            Err(NoGroup::End) => return (at, None),
            Err(NoGroup::Bad(what)) => return (at, Some(what)),
        };
        if group.first > *next {
            return (at, Some("operations are missing before this group"));
        }
        for (number, write) in group.operations() {
            if number >= *next {
                apply(number, write);
            }
        }
        *next = (*next).max(group.last() + 1);
        at += group.bytes;
    }
}

/// Whether a later group says that operation `number` had been synced, so that its group cannot be
/// torn.
fn was_synced(bytes: &[u8], seed: u64, number: u64) -> bool {
    let starts = bytes.windows(GROUP_MAGIC.len()).enumerate();
    let mut groups = starts
        .filter(|(_, four)| *four == GROUP_MAGIC)
        .filter_map(|(at, _)| LogGroup::read(bytes.get(at..)?, seed).ok());
    groups.any(|group| group.synced >= number)
}

/// The files of the log, oldest first. A file is begun when its header is synced; one that is not
/// is no file of the log yet.
fn files_of(
    disk: &dyn LogDisk,
    folder: &Path,
    repairs: bool,
) -> Result<Vec<(u64, String)>, StorageError> {
    let names = disk.names();
    let names = names.map_err(|error| file_error(folder, "", error))?;
    let mut files = Vec::new();
    for name in names {
        let Some(first) = first_in(&name) else {
            continue;
        };
        let head = disk.read(&name, FILE_HEADER_BYTES + 1);
        let head = head.map_err(|error| file_error(folder, &name, error))?;
        match (has_header(&head, first), head.len() > FILE_HEADER_BYTES) {
            (true, _) => files.push((first, name)),
            (false, true) => return Err(damaged(folder, &name, 0, "the file has no header")),
            (false, false) if repairs => remove(disk, folder, &name)?,
            (false, false) => {}
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn remove(disk: &dyn LogDisk, folder: &Path, name: &str) -> Result<(), StorageError> {
    let removed = disk.remove(name);
    removed.map_err(|error| file_error(folder, name, error))
}

fn damaged(folder: &Path, name: &str, offset: u64, what: &'static str) -> StorageError {
    StorageError::Damaged {
        file: folder.join(name),
        offset,
        what,
    }
}

fn file_error(folder: &Path, name: &str, error: io::Error) -> StorageError {
    StorageError::File {
        file: folder.join(name),
        error,
    }
}
