//! The order of reads and writes of one key, with the threads of the storage.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use curtail_types::KeyHash;

use crate::{
    Durability, ItemImage, Latest, ReadAnswer, ReadRequest, ReportLevel, Storage, StorageConfig,
    StorageError, StorageEvents, WriteKind, WriteRefused,
    engine::lock,
    planted_fault::{PlantedFault, plant},
};

struct ToChannel {
    answers: mpsc::Sender<ReadAnswer>,
    progress: mpsc::Sender<()>,
}

impl StorageEvents for ToChannel {
    fn answer(&self, answer: ReadAnswer, _goes_on: bool) {
        let _ = self.answers.send(answer);
    }

    fn progress(&self) {
        let _ = self.progress.send(());
    }

    fn report(&self, _level: ReportLevel, what: &str) {
        panic!("{what}");
    }
}

struct Opened {
    storage: Storage,
    answers: mpsc::Receiver<ReadAnswer>,
    progress: mpsc::Receiver<()>,
}

const KEY: &[u8] = b"key";
const HASH: KeyHash = KeyHash(7);

fn config(dir: &std::path::Path) -> StorageConfig {
    StorageConfig {
        dir: dir.into(),
        durability: Durability::Sync,
        memory_bytes: 8 << 20,
        readers: 1,
        reserve_bytes: 0,
    }
}

fn open(dir: &std::path::Path, durability: Durability) -> Result<Opened, StorageError> {
    let (answers, from_readers) = mpsc::channel();
    let (progress, from_committer) = mpsc::channel();
    let config = StorageConfig {
        durability,
        readers: 2,
        ..config(dir)
    };
    let storage = Storage::open(config, Arc::new(ToChannel { answers, progress }))?;
    Ok(Opened {
        storage,
        answers: from_readers,
        progress: from_committer,
    })
}

impl Opened {
    fn put(&self, value: &[u8]) -> u64 {
        let mut key = self.storage.lock(HASH);
        key.put(KEY, HASH, &ItemImage::default(), value)
    }

    fn wait_for(&self, place: u64) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.storage.durable() < place {
            assert!(
                Instant::now() < until,
                "write {place} does not become durable"
            );
            let _ = self.progress.recv_timeout(Duration::from_millis(100));
        }
    }

    fn submit(&self, number: u64) {
        assert!(self.storage.submit(ReadRequest {
            key: KEY.into(),
            receiver: 0,
            number,
        }));
    }
}

/// Goal: a write is durable and readable in each mode, also after a restart, and a second owner is
/// refused. Method: as said.
#[test]
fn a_write_is_there_after_a_restart() {
    for durability in [
        Durability::Sync,
        Durability::Bounded(Duration::from_millis(50)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), durability).unwrap();
        let place = opened.put(b"one");
        opened.wait_for(place);
        assert!(matches!(
            open(folder.path(), durability),
            Err(StorageError::InUse { pid: Some(_), .. })
        ));
        opened.put(b"two");
        drop(opened);
        let again = open(folder.path(), durability).unwrap();
        assert!(matches!(
            again.storage.lock(HASH).latest(KEY),
            Latest::OnDisk
        ));
        again.submit(5);
        let answer = again.answers.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(answer.request.number, 5);
        assert_eq!(answer.found.unwrap().unwrap().value(), b"two");
        assert_eq!(again.storage.recovered().1, 0);
    }
}

/// Whether a read that was begun before a write may be shown after it.
fn shows_old() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), Durability::Sync).unwrap();
    let place = opened.put(b"old");
    opened.wait_for(place);
    while !matches!(opened.storage.lock(HASH).latest(KEY), Latest::OnDisk) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ticket = opened.storage.lock(HASH).begin_read(HASH);
    opened.submit(1);
    let answer = opened
        .answers
        .recv_timeout(Duration::from_secs(20))
        .unwrap();
    assert_eq!(answer.found.unwrap().unwrap().value(), b"old");
    // The write goes all the way to the tree, and nothing is pending any more.
    let place = opened.put(b"new");
    opened.wait_for(place);
    while !matches!(opened.storage.lock(HASH).latest(KEY), Latest::OnDisk) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut key = opened.storage.lock(HASH);
    let shows = key.is_current(&ticket);
    key.end_read(ticket);
    shows
}

/// Goal: what a read found is not shown once its key was written. Method: a write, settled, between
/// a read's begin and end; and the check left out, to see this fail.
#[test]
fn a_read_is_void_after_a_write() {
    assert!(!shows_old());
    plant(Some(PlantedFault::ShowsVoid));
    let shown = shows_old();
    plant(None);
    assert!(shown);
}

/// Goal: a flush deletes what was written before it, pending or not, and nothing after; it holds
/// after a restart. Method: as said.
#[test]
fn a_flush_ends_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let durability = Durability::Bounded(Duration::from_millis(20));
    let opened = open(folder.path(), durability).unwrap();
    opened.put(b"before");
    let ticket = opened.storage.lock(HASH).begin_read(HASH);
    let place = opened.storage.flush_all(0, || ());
    assert!(!opened.storage.lock(HASH).is_current(&ticket));
    drop(ticket);
    opened.wait_for(place);
    opened.submit(0);
    let answer = opened
        .answers
        .recv_timeout(Duration::from_secs(20))
        .unwrap();
    assert!(answer.found.unwrap().is_none());
    let after = KeyHash(8);
    let mut key = opened.storage.lock(after);
    key.put(b"after", after, &ItemImage::default(), b"stays");
    drop(key);
    opened.storage.flush_all(2_000_000_000, || ());
    drop(opened);
    let again = open(folder.path(), durability).unwrap();
    assert_eq!(again.storage.flush_at(), 2_000_000_000);
    let found = again.storage.lock(HASH);
    assert!(matches!(found.latest(KEY), Latest::OnDisk));
    drop(found);
    again.submit(1);
    let answer = again.answers.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(answer.found.unwrap().is_none());
    let request = ReadRequest {
        key: b"after".as_slice().into(),
        receiver: 0,
        number: 2,
    };
    assert!(again.storage.submit(request));
    let answer = again.answers.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(answer.found.unwrap().unwrap().value(), b"stays");
}

/// What reads find, and what an operator is told.
struct Reports {
    answers: mpsc::Sender<ReadAnswer>,
    told: mpsc::Sender<(ReportLevel, String)>,
}

impl StorageEvents for Reports {
    fn answer(&self, answer: ReadAnswer, _goes_on: bool) {
        let _ = self.answers.send(answer);
    }

    fn progress(&self) {}

    fn report(&self, level: ReportLevel, what: &str) {
        let _ = self.told.send((level, what.to_owned()));
    }
}

/// Goal: writes are refused while the file system is below its reserve, which is said once, and
/// reads go on. Method: a reserve that no disk has.
#[test]
fn a_full_disk_refuses_writes_and_reads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), Durability::Sync).unwrap();
    let place = opened.put(b"value");
    opened.wait_for(place);
    drop(opened);
    let (answers, from_readers) = mpsc::channel();
    let (told, reports) = mpsc::channel();
    let config = StorageConfig {
        reserve_bytes: u64::MAX,
        ..config(folder.path())
    };
    let storage = Storage::open(config, Arc::new(Reports { answers, told })).unwrap();
    assert_eq!(storage.admit(WriteKind::Store), Err(WriteRefused::Full));
    let request = ReadRequest {
        key: KEY.into(),
        receiver: 0,
        number: 1,
    };
    assert!(storage.submit(request));
    let answer = from_readers.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(answer.found.unwrap().unwrap().value(), b"value");
    let (level, text) = reports.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(level, ReportLevel::Warn);
    assert!(text.contains("--disk-reserve"), "{text}");
    drop(storage);
    assert!(reports.recv().is_err(), "it is said once");
}

/// What the threads that read told, from the first answer on, which waits until it may go on.
struct Gated {
    opens: Mutex<mpsc::Receiver<()>>,
    told: mpsc::Sender<(usize, bool)>,
}

impl StorageEvents for Gated {
    fn answer(&self, answer: ReadAnswer, goes_on: bool) {
        // Only the first finds something to wait for: then the other end is dropped.
        let _ = lock(&self.opens).recv();
        let _ = self.told.send((answer.request.receiver, goes_on));
    }

    fn progress(&self) {}

    fn report(&self, _level: ReportLevel, what: &str) {
        panic!("{what}");
    }
}

/// Goal: an answer says that another follows only if the same thread reads for the same receiver
/// next; so the last one of each receiver does not, and its receiver can be woken for all at once.
/// Method: one thread, held up at its first answer until reads for two receivers wait.
#[test]
fn an_answer_says_whether_another_follows() {
    let folder = tempfile::tempdir().unwrap();
    let (open_gate, opens) = mpsc::channel();
    let (told, answers) = mpsc::channel();
    let config = config(folder.path());
    let opens = Mutex::new(opens);
    let storage = Storage::open(config, Arc::new(Gated { opens, told })).unwrap();
    for (receiver, number) in [0, 0, 1, 1, 1, 0].into_iter().zip(1..) {
        let key = KEY.into();
        assert!(storage.submit(ReadRequest {
            key,
            receiver,
            number,
        }));
    }
    drop(open_gate);
    let answers: Vec<_> = answers.iter().take(6).collect();
    // Whether the second read waited already when the first had ended is chance.
    let rest = [(0, false), (1, true), (1, true), (1, false), (0, false)];
    assert_eq!((answers[0].0, &answers[1..]), (0, &rest[..]));
}
