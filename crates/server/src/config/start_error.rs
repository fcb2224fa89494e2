//! Why a server does not start.

use std::io;

use curtail_runtime::BindError;
use curtail_store::StoreError;

use crate::config::auth::LoginsError;

/// Why a server could not be started; each says what an operator can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen at the address or path named.
    Bind(String, BindError),
    /// It was told to listen nowhere.
    NoAddress,
    /// The memory limits do not work out.
    Store(StoreError),
    /// The authentication file is of no use.
    Logins(LoginsError),
    /// The native datagram path cannot be had as it was asked for.
    Native(String),
    /// The server cannot be the node that it is to be.
    Cluster(String),
    /// The system refused threads, descriptors or randomness.
    System(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bind(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::NoAddress => write!(f, "none of the addresses can be listened on"),
            Self::Store(error) => write!(f, "{error}"),
            Self::Logins(error) => write!(f, "{error}"),
            Self::Native(why) => write!(f, "--native: {why}"),
            Self::Cluster(why) => write!(f, "--cluster: {why}"),
            Self::System(error) => write!(f, "the system refused: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
