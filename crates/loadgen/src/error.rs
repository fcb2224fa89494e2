//! The errors of driving load, worded for the user.

use std::io;

use thiserror::Error;

/// Why a load run could not be made or finished.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The arguments contradict each other; the caller's fault.
    #[error("arguments: {0}")]
    Arguments(String),
    /// The server could not be reached or closed a connection; look at the server.
    #[error("{doing}: {error}")]
    Network {
        /// What was being done.
        doing: String,
        /// What the system said.
        error: io::Error,
    },
    /// The server answered something that is not a reply of this protocol; the server's fault or a
    /// wrong `--protocol`.
    #[error("unexpected reply: {0}")]
    Protocol(String),
    /// The server cannot take the offered load by far; offer less.
    #[error("{0}")]
    Overload(String),
    /// The driver cannot tell what it was asked on this machine; its own fault.
    #[error("{0}")]
    Driver(String),
    /// A server to compare with could not be started or did not answer in time.
    #[error("server: {0}")]
    Server(String),
    /// Something of this machine (affinity, `/proc`, files) was refused.
    #[error("{doing}: {error}")]
    Machine {
        /// What was being done.
        doing: String,
        /// What the system said.
        error: io::Error,
    },
}

impl LoadError {
    pub(crate) fn network(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Network { doing, error }
    }

    /// The same with what was being done in front.
    pub(crate) fn while_doing(self, more: &str) -> Self {
        match self {
            Self::Network { doing, error } => Self::Network {
                doing: format!("{more}: {doing}"),
                error,
            },
            other => other,
        }
    }

    pub(crate) fn machine(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Machine { doing, error }
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, io};

    use super::*;

    /// Goal: a program that prints an error with its causes does not repeat what the system said.
    #[test]
    fn what_the_system_said_is_no_further_cause() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = LoadError::network("connecting to 127.0.0.1:1")(refused);
        assert!(error.to_string().contains("connection refused"), "{error}");
        assert!(error.source().is_none());
    }
}
