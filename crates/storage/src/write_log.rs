//! The log of writes: groups of operations, each appended with one call and synced with one.
//!
//! ```text
//!  file   00000000000000000001.log  [ header | group | group | ... ]
//!  header "curtlog1", number of the first operation
//!  group  magic, bytes, number of the first operation, number up to which all was synced when this
//!         was written, operations, checksum | operation, operation, ...
//! ```
//!
//! A crash may leave any part of what was not synced. The number up to which all was synced tells
//! that from damage: a bad group is the torn end of the log unless a later one says that it had
//! been synced. A file is synced before the next one is begun, so only the last can be torn.

use std::{collections::VecDeque, io, sync::Arc};

use lsm_tree::Slice;
use twox_hash::XxHash3_64;

use crate::{
    log_disk::{LogDisk, LogFile},
    planted_fault::{PlantedFault, planted},
};

/// A write on its way to the tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeWrite {
    /// The key in the tree.
    pub(crate) key: Slice,
    /// What is stored; `None` deletes.
    pub(crate) value: Option<Slice>,
}

/// The log as it is written.
pub(crate) struct WriteLog {
    disk: Arc<dyn LogDisk>,
    file: Box<dyn LogFile>,
    name: String,
    /// Bytes of the file.
    bytes: u64,
    /// The number of the next operation.
    next: u64,
    /// Everything up to this number is on stable storage.
    synced: u64,
    /// Complete files before this one, oldest first: name, and the number of the last operation.
    sealed: VecDeque<(String, u64)>,
    /// Of the groups' checksums.
    seed: u64,
    group: Vec<u8>,
}

/// A group that was read.
#[derive(Debug)]
pub(crate) struct LogGroup<'a> {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) synced: u64,
    /// All of its bytes in the file.
    pub(crate) bytes: usize,
    operations: &'a [u8],
}

/// Why there is no group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoGroup {
    /// The file ends here.
    End,
    /// What stands here is no group.
    Bad(&'static str),
}

pub(crate) const FILE_HEADER_BYTES: usize = 16;
const FILE_MAGIC: [u8; 8] = *b"curtlog1";
const GROUP_HEADER_BYTES: usize = 40;
pub(crate) const GROUP_MAGIC: [u8; 4] = *b"CGR1";
const CHECKED_BYTES: usize = 32;
const SUFFIX: &str = ".log";

impl WriteLog {
    /// Begins a file for the operations from `next` on, behind complete files.
    pub(crate) fn begin(
        disk: Arc<dyn LogDisk>,
        seed: u64,
        next: u64,
        sealed: VecDeque<(String, u64)>,
    ) -> io::Result<Self> {
        let name = name_of(next);
        let file = open_file(&*disk, &name, next)?;
        Ok(Self {
            disk,
            file,
            name,
            bytes: FILE_HEADER_BYTES as u64,
            next,
            synced: next - 1,
            sealed,
            seed,
            group: Vec::new(),
        })
    }

    /// The number of the last operation.
    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Everything up to this number is on stable storage.
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// Appends `writes` as one group. On an error the file is as it was.
    pub(crate) fn append(&mut self, writes: &[TreeWrite]) -> io::Result<()> {
        let numbers = (self.next, self.synced);
        encode_group(&mut self.group, self.seed, numbers, writes);
        if let Err(error) = self.file.append(&self.group) {
            self.file.cut(self.bytes)?;
            return Err(error);
        }
        self.bytes += self.group.len() as u64;
        self.next += writes.len() as u64;
        Ok(())
    }

    /// Returns when everything appended is on stable storage.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.synced = self.last();
        Ok(())
    }

    /// Ends the file, which is synced, and begins the next.
    pub(crate) fn rotate(&mut self) -> io::Result<()> {
        if self.bytes == FILE_HEADER_BYTES as u64 {
            return Ok(());
        }
        assert_eq!(self.synced, self.last(), "only the last file may be torn");
        let name = name_of(self.next);
        self.file = open_file(&*self.disk, &name, self.next)?;
        let last = self.last();
        let before = std::mem::replace(&mut self.name, name);
        self.sealed.push_back((before, last));
        self.bytes = FILE_HEADER_BYTES as u64;
        Ok(())
    }

    /// The number of the last operation in complete files.
    pub(crate) fn sealed_to(&self) -> Option<u64> {
        self.sealed.back().map(|(_, last)| *last)
    }

    /// Deletes the complete files whose operations all have numbers up to `flushed`: the tree has
    /// them on stable storage.
    pub(crate) fn delete_to(&mut self, flushed: u64) -> io::Result<()> {
        while let Some((name, last)) = self.sealed.front()
            && *last <= flushed
        {
            self.disk.remove(name)?;
            self.sealed.pop_front();
        }
        Ok(())
    }

    /// Files there are.
    pub(crate) fn files(&self) -> usize {
        self.sealed.len() + 1
    }

    /// Says at the end of the log that all of it was synced, so that damage to it is found.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        self.sync()?;
        self.append(&[])?;
        self.file.sync()
    }
}

impl<'a> LogGroup<'a> {
    /// Reads the group at the front of `bytes`.
    pub(crate) fn read(bytes: &'a [u8], seed: u64) -> Result<Self, NoGroup> {
        if bytes.is_empty() {
            return Err(NoGroup::End);
        }
        let header = bytes.split_at_checked(GROUP_HEADER_BYTES);
        let (header, rest) = header.ok_or(NoGroup::Bad("a group ends in its header"))?;
        if !header.starts_with(&GROUP_MAGIC) {
            return Err(NoGroup::Bad("no group begins here"));
        }
        let length = word(header, 4) as usize;
        let operations = rest.get(..length);
        let operations = operations.ok_or(NoGroup::Bad("a group is cut off"))?;
        let (checked, sum) = header.split_at(CHECKED_BYTES);
        let is_right = sum == checksum(seed, checked, operations).to_le_bytes();
        if !is_right && !planted(PlantedFault::ReadsTorn) {
            return Err(NoGroup::Bad("a group's checksum does not match"));
        }
        Ok(Self {
            first: long(header, 8),
            synced: long(header, 16),
            count: word(header, 24),
            bytes: GROUP_HEADER_BYTES + length,
            operations,
        })
    }

    /// The number of its last operation, or of the one before it if it has none.
    pub(crate) fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }

    /// Its operations with their numbers; ends early if they are not as many as it says.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (u64, TreeWrite)> {
        let mut rest = self.operations;
        (0..u64::from(self.count)).map_while(move |number| {
            let write;
            (write, rest) = read_operation(rest)?;
            Some((self.first + number, write))
        })
    }
}

/// The number of a file's first operation, by its name; `None` if it is no file of the log.
pub(crate) fn first_in(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// Whether a file begins as the one of operation `first` does.
pub(crate) fn has_header(bytes: &[u8], first: u64) -> bool {
    bytes.get(..FILE_HEADER_BYTES) == Some(&header_of(first)[..])
}

fn name_of(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

fn header_of(first: u64) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    let (magic, number) = header.split_at_mut(FILE_MAGIC.len());
    magic.copy_from_slice(&FILE_MAGIC);
    number.copy_from_slice(&first.to_le_bytes());
    header
}

fn open_file(disk: &dyn LogDisk, name: &str, first: u64) -> io::Result<Box<dyn LogFile>> {
    let begin = || {
        let mut file = disk.create(name)?;
        file.append(&header_of(first))?;
        file.sync()?;
        Ok(file)
    };
    begin().inspect_err(|_| {
        // It is of no use, and harms nothing if it stays.
        let _ = disk.remove(name);
    })
}

fn encode_group(group: &mut Vec<u8>, seed: u64, (first, synced): (u64, u64), writes: &[TreeWrite]) {
    group.clear();
    group.resize(GROUP_HEADER_BYTES, 0);
    for write in writes {
        let value = write.value.as_deref().unwrap_or_default();
        group.push(u8::from(write.value.is_some()));
        group.extend_from_slice(&(write.key.len() as u32).to_le_bytes());
        group.extend_from_slice(&(value.len() as u32).to_le_bytes());
        group.extend_from_slice(&write.key);
        group.extend_from_slice(value);
    }
    let (header, operations) = group.split_at_mut(GROUP_HEADER_BYTES);
    let fields = [
        &GROUP_MAGIC[..],
        &(operations.len() as u32).to_le_bytes(),
        &first.to_le_bytes(),
        &synced.to_le_bytes(),
        &(writes.len() as u32).to_le_bytes(),
        &[0; 4],
    ];
    let (checked, sum) = header.split_at_mut(CHECKED_BYTES);
    let places = checked.iter_mut();
    places
        .zip(fields.into_iter().flatten())
        .for_each(|(place, byte)| *place = *byte);
    sum.copy_from_slice(&checksum(seed, checked, operations).to_le_bytes());
}

fn read_operation(bytes: &[u8]) -> Option<(TreeWrite, &[u8])> {
    const FIELDS_BYTES: usize = 9;
    let (fields, rest) = bytes.split_at_checked(FIELDS_BYTES)?;
    let (key, rest) = rest.split_at_checked(word(fields, 1) as usize)?;
    let (value, rest) = rest.split_at_checked(word(fields, 5) as usize)?;
    let value = (*fields.first()? == 1).then(|| Slice::from(value));
    let key = Slice::from(key);
    Some((TreeWrite { key, value }, rest))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// The seed is a secret of the directory: no client can store a value that reads as a group.
fn checksum(seed: u64, fields: &[u8], operations: &[u8]) -> u64 {
    let of_fields = XxHash3_64::oneshot_with_seed(seed, fields);
    XxHash3_64::oneshot_with_seed(of_fields, operations)
}
