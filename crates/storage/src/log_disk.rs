//! The files of the log, behind a trait: the file system here, a disk that forgets in the tests.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Where log files stand.
pub(crate) trait LogDisk: Send + Sync {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The first bytes of a file, so many at most.
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// Makes an empty file. It is there after a crash.
    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>>;

    /// Shortens a file. It is that short after a crash.
    fn cut(&self, name: &str, bytes: u64) -> io::Result<()>;

    /// Deletes a file, which may be there again after a crash.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A log file that is written.
pub(crate) trait LogFile: Send {
    /// Writes behind the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything appended is on stable storage.
    fn sync(&mut self) -> io::Result<()>;

    /// Takes back what was appended behind `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// The log files in a directory of the file system.
#[derive(Debug)]
pub(crate) struct LogDirectory {
    path: PathBuf,
}

impl LogDirectory {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.into() }
    }
}

impl LogDisk for LogDirectory {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?;
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name());
        let names = entries.map(|entry| Ok(name(entry)?.to_string_lossy().into_owned()));
        names.collect()
    }

    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.path.join(name))?;
        file.take(bytes_max as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).open(path)?;
        file.sync_all()?;
        sync_directory(&self.path)?;
        Ok(Box::new(file))
    }

    fn cut(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path.join(name))?;
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }
}

impl LogFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)?;
        self.seek(SeekFrom::Start(bytes)).map(|_| ())
    }
}

/// Returns when the entries of a directory are on stable storage.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
