//! The errors of a cluster's files; each message says what an operator should do.

use std::{fmt, io, path::PathBuf};

/// Why a node cannot take part with this configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClusterError {
    /// A file cannot be read or written.
    File {
        /// Which one.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The cluster file contains something impossible.
    Invalid {
        /// The file.
        path: PathBuf,
        /// What, and what would do.
        reason: String,
    },
    /// The secret is not kept as one.
    Secret {
        /// Its file.
        path: PathBuf,
        /// What to do.
        reason: String,
    },
    /// A thread could not be started.
    Thread(io::Error),
    /// The system has no randomness to give.
    Random(io::Error),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Invalid { path, reason } => {
                write!(f, "cluster file {}: {reason}", path.display())
            }
            Self::Secret { path, reason } => {
                write!(f, "secret file {}: {reason}", path.display())
            }
            Self::Thread(source) => write!(f, "no thread for the membership: {source}"),
            Self::Random(source) => write!(f, "/dev/urandom: {source}"),
        }
    }
}

// The system's error stands in the message already.
impl std::error::Error for ClusterError {}
