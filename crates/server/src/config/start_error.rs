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
    #[error("the server can listen on none of its addresses")]
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
    /// The system refused threads, descriptors or randomness.
    #[error("the system refused: {0}")]
    System(io::Error),
}
