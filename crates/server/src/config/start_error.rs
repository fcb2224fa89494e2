//! Why a server does not start.

use std::io;

use curtail_runtime::BindError;
use curtail_storage::StorageError;
use curtail_store::StoreError;
use thiserror::Error;

use crate::config::auth::LoginsError;

/// Why a server could not be started; each says what an operator can do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen at the address or path named.
    #[error("cannot listen on {0}: {1}")]
    Bind(String, BindError),
    /// It was told to listen nowhere.
    #[error(
        "the server can listen on none of its addresses; give others with -l or, for a \
         node, as `clients` in the cluster file"
    )]
    NoAddress,
    /// The memory limits do not work out.
    #[error("{0}")]
    Store(StoreError),
    /// The authentication file is of no use.
    #[error("{0}")]
    Logins(LoginsError),
    /// The native datagram path cannot be had as it was asked for.
    #[error("--native: {0}")]
    Native(String),
    /// The server cannot be the node that it is to be.
    #[error("--cluster: {0}")]
    Cluster(String),
    /// The server cannot have a disk tier together with something else.
    #[error("--tier disk: {0}")]
    Disk(&'static str),
    /// The server cannot be a gateway to a cache tier as it was asked for.
    #[error("--tier-file: {0}")]
    Gateway(String),
    /// The data directory is of no use.
    #[error("--data: {0}")]
    Storage(StorageError),
    /// A system call failed that every server needs.
    #[error("cannot {attempt}: {error}; {}", remedy(error))]
    System {
        /// What the server tried to do, as it follows "cannot".
        attempt: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl StartError {
    /// Makes an error of a failed system call by which the server tried to do `attempt`.
    pub(crate) const fn system(attempt: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { attempt, error }
    }

    /// A thread could not be started.
    pub(crate) const fn no_thread(error: io::Error) -> Self {
        let attempt = "start a thread";
        Self::System { attempt, error }
    }

    /// Sockets could not be watched.
    pub(crate) const fn no_epoll(error: io::Error) -> Self {
        let attempt = "watch sockets (epoll)";
        Self::System { attempt, error }
    }

    /// There were no random bytes.
    pub(crate) const fn no_random(error: io::Error) -> Self {
        let attempt = "read random bytes";
        Self::System { attempt, error }
    }
}

/// What an operator can do about a failed system call.
fn remedy(error: &io::Error) -> &'static str {
    match (error.kind(), error.raw_os_error()) {
        (_, Some(FILES_OF_SYSTEM_MAX | FILES_OF_PROCESS_MAX)) => {
            "raise the limit of open files (ulimit -n, LimitNOFILE=)"
        }
        (io::ErrorKind::WouldBlock, _) => {
            "raise the limit of threads and processes (ulimit -u, TasksMax=)"
        }
        (io::ErrorKind::OutOfMemory, _) => "free memory, or raise the memory limit of the service",
        (io::ErrorKind::PermissionDenied, _) => {
            "the service's sandbox (SystemCallFilter=, a container's profile) must allow it"
        }
        _ => "check the limits of the process (ulimit -a) and of its service",
    }
}

/// `ENFILE` and `EMFILE` of Linux.
const FILES_OF_SYSTEM_MAX: i32 = 23;
const FILES_OF_PROCESS_MAX: i32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the error of a failed system call says what the server tried and what to do. Method:
    /// one error of each kind.
    #[test]
    fn a_failed_system_call_has_an_attempt_and_a_remedy() {
        let told = |error| StartError::no_thread(error).to_string();
        let errno = io::Error::from_raw_os_error;
        let cases = [
            (errno(24), "ulimit -n"),
            (errno(23), "ulimit -n"),
            (errno(11), "ulimit -u"),
            (errno(12), "free memory"),
            (errno(1), "sandbox"),
            (errno(22), "ulimit -a"),
        ];
        for (error, remedy) in cases {
            let text = told(error);
            assert!(text.starts_with("cannot start a thread: "), "{text}");
            assert!(text.contains(remedy), "{text}");
        }
    }
}
