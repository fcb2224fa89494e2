//! The errors of a cluster's files; each message says what an operator should do.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why a node cannot take part with this configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// The system's error; it stands in the message, so it is no source.
        error: io::Error,
    },
    /// The cluster file contains something impossible.
    #[error("cluster file {path}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What, and what would do.
        reason: String,
    },
    /// The secret is not kept as one.
    #[error("secret file {path}: {reason}")]
    Secret {
        /// Its file.
        path: PathBuf,
        /// What to do.
        reason: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread that keeps the membership: {0}")]
    Thread(io::Error),
    /// The system has no randomness to give.
    #[error("/dev/urandom: {0}")]
    Random(io::Error),
}

impl ClusterError {
    /// What became of reading or writing `path`.
    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::File {
            path: path.to_owned(),
            error,
        }
    }
}
