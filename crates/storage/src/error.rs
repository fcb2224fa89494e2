//! Why a data directory cannot be used: which file or process is at fault, and what to do.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why storage could not be opened, or what is wrong with it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another process has the directory.
    #[error(
        "{} is in use{}: stop that process, or name another directory",
        dir.display(),
        by(*pid)
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The other process, if it said so.
        pid: Option<u32>,
    },
    /// Files cannot be made or changed.
    #[error(
        "{} cannot be written ({error}): give this process write access, or name another directory",
        dir.display()
    )]
    NotWritable {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another version of this program wrote it.
    #[error(
        "{} has data format {found}, and this program reads format {known}: use the version of \
         curtail that wrote the data, or export the data with it and import it with this one",
        dir.display()
    )]
    UnknownFormat {
        /// The directory.
        dir: PathBuf,
        /// What its format file says.
        found: String,
        /// What this program reads.
        known: u32,
    },
    /// It holds files of something else.
    #[error("{} has files but no data of curtail: name an empty directory", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no data.
    #[error("{} has no data of curtail", dir.display())]
    NoData {
        /// The directory.
        dir: PathBuf,
    },
    /// A file is not as it was written.
    #[error("{} is damaged at byte {offset}: {what}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The tree's files are not as they were written.
    #[error("the tables in {} cannot be read: {error}", dir.display())]
    Tables {
        /// Their directory.
        dir: PathBuf,
        /// What the tree said.
        error: lsm_tree::Error,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Threads cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}
