//! Saves the contents to a file and restores them, so that they survive a restart.
//!
//! The file is the segments as they lie in memory, with their numbers, so references stay what they
//! are; the index is rebuilt by walking them. All numbers are little-endian words.
//!
//! ```text
//!   header   8 words magic, version, ... | checksum
//!   record   segment number, notes, words | checksum | the words      (rising numbers)
//!   ...
//!   trailer  a record with number 0: how many there were | checksum
//! ```
//!
//! Checksums are SipHash under a fixed key: against rot and truncation, not against malice. A save
//! writes a temporary file beside the target, syncs it and renames it, so that the target is always
//! a whole save or the one before. Marks of the eviction are not kept.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use curtail_segments::{SegmentId, State};
use curtail_table::Reference;
use curtail_types::{Cas, HashSeed, HybridClock, KeyHash, Now, WriterId};

use crate::{
    Store, StoreConfig, StoreError, Writer,
    counters::Count,
    eviction::Queue,
    item::{HEADER_WORDS, Item, Kind},
    large_values::Value,
    sync::Ordering,
};

/// The first word of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"CURTAIL\n");

/// Raised with every change of the file or of the items' layout.
const VERSION: u64 = 1;

/// The key of the checksums.
const CHECKSUM: HashSeed = HashSeed([0x6375_7274_6169_6c2d, 0x736e_6170_7368_6f74]);

/// Versions that writers may have given since they last noted one: a second of the clock.
const CAS_MARGIN: u64 = HybridClock::TICKS_PER_SECOND << 16;

/// Beside the version: hashes are made from route hashes.
const BY_ROUTE: u64 = 1 << 32;

const HEADER: usize = 10;
const RECORD: usize = 9;

/// Where a segment goes after a restore.
#[derive(Clone, Copy, Debug)]
struct Record {
    id: u32,
    is_whole: bool,
    queue: usize,
    /// Its place in the queue.
    place: u64,
    generation: u32,
    expiry_max: u32,
    words: usize,
    owner_hash: u64,
    owner: u64,
}

impl Store {
    /// Writes everything to `path`, through a temporary file beside it. No writer may be at work
    /// meanwhile; the store stays usable whatever the result.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when a reservation is alive, [`StoreError::Save`] when the disk is full
    /// or the file cannot be written.
    pub fn save(&self, path: &Path, now: Now) -> Result<(), StoreError> {
        self.tick(now);
        // The file says nothing of slices.
        self.finish_clears(&mut self.writer(WriterId(u16::MAX)), now);
        self.park_drains();
        self.room.seal_all();
        let records = self.records();
        let is_busy = |record: &Record| {
            self.segments()
                .segment(record.id)
                .is_some_and(|id| self.segments().pending(id) > 0)
        };
        if records.iter().any(is_busy) {
            return Err(StoreError::Busy);
        }
        let failed = |error| StoreError::Save(path.to_owned(), error);
        refuse_special(path).map_err(failed)?;
        let temporary = temporary_beside(path);
        let written = create_anew(&temporary)
            .and_then(|mut file| {
                self.write_to(&mut file, &records, now)?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, path))
            .and_then(|()| sync_folder(path));
        written.map_err(|error| {
            // The target is untouched; what was written of the temporary file is of no use.
            let _ = fs::remove_file(&temporary);
            failed(error)
        })
    }

    /// What is to be saved, by rising segment number.
    fn records(&self) -> Vec<Record> {
        let segments = self.segments();
        let mut records: Vec<_> = [Queue::Small, Queue::Main]
            .into_iter()
            .flat_map(|queue| {
                let order = segments.queue_order(queue as usize).into_iter();
                order.zip(0..).map(move |(id, place)| (id, queue, place))
            })
            .map(|(id, queue, place)| self.record(id, queue as usize, place, false))
            .collect();
        let wholes = (1..=segments.used_max())
            .filter_map(|number| segments.segment(number))
            .filter(|&id| segments.state(id) == State::Whole && segments.owner(id).1 != 0);
        records.extend(wholes.map(|id| self.record(id, 0, 0, true)));
        records.sort_unstable_by_key(|record| record.id);
        records
    }

    fn record(&self, id: SegmentId, queue: usize, place: u64, is_whole: bool) -> Record {
        let segments = self.segments();
        let (owner_hash, owner) = match is_whole {
            true => segments.owner(id),
            false => (0, 0),
        };
        Record {
            id: id.get(),
            is_whole,
            queue,
            place,
            generation: segments.generation(id),
            expiry_max: segments.expiry_max(id),
            words: segments.filled_words(id),
            owner_hash,
            owner,
        }
    }

    fn write_to(&self, file: &mut impl Write, records: &[Record], now: Now) -> io::Result<()> {
        let seed = self.config().hash_seed.0;
        let wall = HybridClock::new(WriterId(0), Cas(0)).next(now);
        let header: [u64; HEADER] = [
            MAGIC,
            format_of(self.config()),
            seed[0],
            seed[1],
            self.last_cas().max(wall).0.saturating_add(CAS_MARGIN),
            self.segments().segment_bytes() as u64,
            records.len() as u64,
            u64::from(self.room.generation()),
            u64::from(self.flush_at()),
            u64::from(now.unix_seconds()),
        ];
        write_checked(file, &header, &[])?;
        let mut bytes = Vec::with_capacity(self.segments().segment_bytes());
        for record in records {
            let Some(id) = self.segments().segment(record.id) else {
                continue;
            };
            bytes.clear();
            let words = self.segments().words(self.segments().start(id));
            for word in &words[..record.words] {
                bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            write_checked(file, &record.to_words(), &bytes)?;
        }
        let mut trailer = [0; RECORD];
        trailer[1] = records.len() as u64;
        write_checked(file, &trailer, &[])
    }

    /// A store with what [`Store::save`] wrote; hash seed and version floor come from the file,
    /// the rest from `config`.
    ///
    /// # Errors
    /// [`StoreError::File`], [`StoreError::Corrupt`] or [`StoreError::Mismatch`]; the caller then
    /// starts cold with [`Store::new`].
    pub fn restore(path: &Path, config: StoreConfig, now: Now) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::File)?;
        let mut file = BufReader::with_capacity(1 << 16, file);
        let header: [u64; HEADER] = read_header(&mut file)?;
        if header[1] != format_of(&config) {
            let why = match config.hash_by_route {
                true => "a single server saved it, and this one is a node of a cluster",
                false => "a node of a cluster saved it, and this server is none",
            };
            return Err(StoreError::Mismatch(why));
        }
        let segment_bytes = checked_segment_bytes(&config, header[5])?;
        let config = StoreConfig {
            hash_seed: HashSeed([header[2], header[3]]),
            cas_floor: config.cas_floor.max(Cas(header[4])),
            ..config
        };
        let store = Self::with_segments_of(config, segment_bytes)?;
        let count = header[6] as usize;
        if count > store.segments_allowed() {
            return Err(StoreError::Mismatch(
                "it holds more than the memory limit allows",
            ));
        }
        let mut records = Vec::with_capacity(count);
        let mut bytes = Vec::new();
        for _ in 0..count {
            records.push(store.read_segment(&mut file, &mut bytes)?);
        }
        let mut trailer = [0; RECORD];
        read_checked(&mut file, &mut trailer, 0, &mut bytes)?;
        if trailer[0] != 0 || trailer[1] != header[6] {
            return Err(StoreError::Corrupt("it does not end where it should"));
        }
        store.room.set_generation(header[7] as u32);
        store.set_flush_at(header[8] as u32);
        store.adopt(&mut records)?;
        store.tick(now);
        store.follow_budget();
        Ok(store)
    }

    fn read_segment(
        &self,
        file: &mut impl Read,
        bytes: &mut Vec<u8>,
    ) -> Result<Record, StoreError> {
        let mut words = [0; RECORD];
        read_checked(file, &mut words, self.segments().segment_words(), bytes)?;
        let record =
            Record::from_words(&words).ok_or(StoreError::Corrupt("a record is malformed"))?;
        let id = self
            .segments()
            .restore(record.id, record.words, record.is_whole)
            .ok_or(StoreError::Mismatch("a segment lies beyond the memory"))?;
        let segments = self.segments();
        segments.restore_notes(id, record.queue, record.generation, record.expiry_max);
        if record.is_whole {
            segments.set_owner(id, record.owner_hash, record.owner);
        }
        let places = segments.words(segments.start(id)).iter();
        for (place, chunk) in places.zip(bytes.as_chunks::<8>().0) {
            place.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        Ok(record)
    }

    /// Rebuilds the index from the restored segments, and puts them into their queues.
    fn adopt(&self, records: &mut [Record]) -> Result<(), StoreError> {
        let mut writer = self.writer(WriterId(u16::MAX));
        let ids: Vec<_> = records
            .iter()
            .filter_map(|record| self.segments().segment(record.id).zip(Some(*record)))
            .collect();
        for (id, record) in &ids {
            if !record.is_whole {
                self.adopt_items(&mut writer, *id, record.words)?;
            }
        }
        for (id, record) in &ids {
            if record.is_whole && !self.is_owned(record) {
                self.segments().retire(*id);
            }
        }
        records.sort_unstable_by_key(|record| record.place);
        for record in records.iter().filter(|record| !record.is_whole) {
            if let Some(id) = self.segments().segment(record.id) {
                self.room.note_opened(id, Queue::from_index(record.queue));
                self.segments().enqueue(id, record.queue);
            }
        }
        Ok(())
    }

    fn is_owned(&self, record: &Record) -> bool {
        let mut locked = self.index.lock(KeyHash(record.owner_hash));
        locked.find(|head| head.get() == record.owner).is_some()
    }

    fn adopt_items(
        &self,
        writer: &mut Writer,
        id: SegmentId,
        filled: usize,
    ) -> Result<(), StoreError> {
        let start = self.segments().start(id);
        let mut offset = 0;
        while offset < filled {
            let reference = start + offset as u64;
            let item = self.item(reference);
            let meta = item.meta();
            if offset + meta.words() > filled {
                return Err(StoreError::Corrupt(
                    "an item crosses the end of its segment",
                ));
            }
            match meta.kind() {
                Kind::Inline | Kind::Head => self.adopt_item(writer, reference)?,
                Kind::Piece => {}
                Kind::Dead => self.segments().add_dead(reference, meta.words()),
            }
            offset += meta.words();
        }
        Ok(())
    }

    fn adopt_item(&self, writer: &mut Writer, reference: u64) -> Result<(), StoreError> {
        let item = self.item(reference);
        let meta = item.meta();
        if meta.key_bytes() == 0 || !self.pieces_are_sound(reference, item) {
            return Err(StoreError::Corrupt("an item is malformed"));
        }
        item.set_meta(meta.with_incarnation(0));
        let hash = self.index.resolver().key_hash(reference);
        let inserted = self
            .index
            .lock_with_room(hash)
            .ok()
            .zip(Reference::new(reference))
            .is_some_and(|(mut locked, handle)| locked.insert(handle).is_ok());
        if !inserted {
            return Err(StoreError::Mismatch(
                "its index does not fit the memory limit",
            ));
        }
        self.count_wholes(reference, meta, 1);
        writer.count(Count::ItemsAdded);
        let bytes = self.footprint_words(reference, meta) * 8;
        writer.counters.add(Count::BytesAdded, bytes as u64);
        Ok(())
    }

    /// Whether every piece of an item is in a segment that was restored.
    fn pieces_are_sound(&self, reference: u64, item: Item<'_>) -> bool {
        let meta = item.meta();
        if meta.kind() != Kind::Head {
            return true;
        }
        Value::of(reference, item, meta)
            .pieces()
            .all(|(piece, is_tail)| {
                let Some(id) = self.segments().segment_of(piece) else {
                    return false;
                };
                if is_tail {
                    let tail = self.item(piece);
                    tail.meta().kind() == Kind::Piece && tail.word(HEADER_WORDS) == reference
                } else {
                    self.segments().state(id) == State::Whole
                        && self.segments().owner(id).1 == reference
                }
            })
    }
}

impl Record {
    fn to_words(self) -> [u64; RECORD] {
        [
            u64::from(self.id),
            u64::from(self.is_whole),
            self.queue as u64,
            self.place,
            u64::from(self.generation),
            u64::from(self.expiry_max),
            self.words as u64,
            self.owner_hash,
            self.owner,
        ]
    }

    fn from_words(words: &[u64; RECORD]) -> Option<Self> {
        let small = |word: u64| u32::try_from(word).ok();
        Some(Self {
            id: small(words[0]).filter(|&id| id != 0)?,
            is_whole: words[1] != 0,
            queue: usize::try_from(words[2])
                .ok()
                .filter(|&queue| queue < curtail_segments::QUEUES)?,
            place: words[3],
            generation: small(words[4])?,
            expiry_max: small(words[5])?,
            words: small(words[6])? as usize,
            owner_hash: words[7],
            owner: words[8],
        })
    }
}

/// The place of the words' number of payload words in a record.
const PAYLOAD_AT: usize = 6;

fn checksum(words: &[u64], payload: &[u8]) -> u64 {
    let mut bytes = Vec::with_capacity(words.len() * 8 + 8);
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&CHECKSUM.hash(payload).0.to_le_bytes());
    CHECKSUM.hash(&bytes).0
}

fn write_checked(file: &mut impl Write, words: &[u64], payload: &[u8]) -> io::Result<()> {
    for word in words.iter().chain([&checksum(words, payload)]) {
        file.write_all(&word.to_le_bytes())?;
    }
    file.write_all(payload)
}

/// Reads words, their checksum, and as many payload words as they say, at most `payload_max`.
fn read_checked(
    file: &mut impl Read,
    words: &mut [u64],
    payload_max: usize,
    payload: &mut Vec<u8>,
) -> Result<(), StoreError> {
    for word in words.iter_mut() {
        *word = read_word(file)?;
    }
    let expected = read_word(file)?;
    let length = words.get(PAYLOAD_AT).map_or(0, |&word| word as usize);
    let length = if words.len() == RECORD { length } else { 0 };
    if length > payload_max {
        return Err(StoreError::Corrupt("a record is too long"));
    }
    payload.resize(length * 8, 0);
    file.read_exact(payload).map_err(read_error)?;
    if checksum(words, payload) != expected {
        return Err(StoreError::Corrupt("a checksum is wrong"));
    }
    Ok(())
}

fn read_word(file: &mut impl Read) -> Result<u64, StoreError> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).map_err(read_error)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_error(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => StoreError::Corrupt("it ends too early"),
        _ => StoreError::File(error),
    }
}

fn format_of(config: &StoreConfig) -> u64 {
    match config.hash_by_route {
        true => VERSION | BY_ROUTE,
        false => VERSION,
    }
}

fn read_header(file: &mut impl Read) -> Result<[u64; HEADER], StoreError> {
    let mut header = [0; HEADER];
    for word in &mut header[..2] {
        *word = read_word(file)?;
    }
    if header[0] != MAGIC {
        return Err(StoreError::Corrupt("curtail did not write it"));
    }
    if header[1] & !BY_ROUTE != VERSION {
        return Err(StoreError::Mismatch("it is of another format version"));
    }
    for word in &mut header[2..] {
        *word = read_word(file)?;
    }
    if read_word(file)? != checksum(&header, &[]) {
        return Err(StoreError::Corrupt("the header's checksum is wrong"));
    }
    Ok(header)
}

/// The saved segment size, if this memory can be cut that way.
fn checked_segment_bytes(config: &StoreConfig, saved: u64) -> Result<usize, StoreError> {
    const SEGMENTS_LEAST: usize = 32;
    let segment_bytes = usize::try_from(saved).unwrap_or(usize::MAX);
    if !segment_bytes.is_power_of_two() || !(16 << 10..=1 << 20).contains(&segment_bytes) {
        return Err(StoreError::Corrupt("its segment size is not possible"));
    }
    if config.memory_bytes_max / segment_bytes < SEGMENTS_LEAST {
        return Err(StoreError::Mismatch(
            "it was saved with a much higher memory limit",
        ));
    }
    Ok(segment_bytes)
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    path.with_file_name(name)
}

/// A rename would replace a device or a folder by the saved file: an operator's slip, not a wish.
fn refuse_special(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it exists and is not a regular file",
        )),
        _ => Ok(()),
    }
}

/// A new file, never one that somebody else laid out, readable by the owner alone: it holds the
/// secret of the hash.
fn create_anew(path: &Path) -> io::Result<File> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a rename last.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use curtail_types::{Key, Set, SetOutcome};

    use super::*;

    /// A disk with room for so many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            match taken {
                0 => Err(io::ErrorKind::StorageFull.into()),
                taken => Ok(taken),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Goal: a disk that fills up at any point gives an error, and the store still answers.
    #[test]
    fn a_full_disk_is_an_error() {
        let store = Store::new(StoreConfig::default()).unwrap();
        let mut writer = store.writer(WriterId(0));
        let now = Now::default();
        let hash = store.hash(b"key");
        let key = Key::new(b"key").unwrap();
        let stored = store.set(&mut writer, now, key, hash, &Set::default(), &[7; 3000]);
        assert!(matches!(stored, SetOutcome::Stored(_)));
        store.room.seal_all();
        let records = store.records();
        assert_eq!(records.len(), 1);
        let needed = 8 * (HEADER + 1 + 2 * (RECORD + 1) + records[0].words);
        for room in (0..needed).step_by(97) {
            let result = store.write_to(&mut Disk(room), &records, now);
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        store.write_to(&mut Disk(needed), &records, now).unwrap();
        let get = curtail_types::Get::default();
        let length = store.get(&mut writer, now, key, hash, &get, |view| view.value_bytes());
        assert_eq!(length, Some(3000));
    }
}
