//! The errors of driving load, worded for the user.

use std::{fmt, io};

/// Why a load run could not be made or finished.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The arguments contradict each other; the caller's fault.
    Arguments(String),
    /// The server could not be reached or closed a connection; look at the server.
    Network {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server answered something that is not a reply of this protocol; the server's fault or a
    /// wrong `--protocol`.
    Protocol(String),
    /// The server cannot take the offered load by far; offer less.
    Overload(String),
    /// The driver cannot tell what it was asked on this machine; its own fault.
    Driver(String),
    /// A server to compare with could not be started or did not answer in time.
    Server(String),
    /// Something of this machine (affinity, `/proc`, files) was refused.
    Machine {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl LoadError {
    pub(crate) fn network(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Network { doing, source }
    }

    /// The same with what was being done in front.
    pub(crate) fn while_doing(self, more: &str) -> Self {
        match self {
            Self::Network { doing, source } => Self::Network {
                doing: format!("{more}: {doing}"),
                source,
            },
            other => other,
        }
    }

    pub(crate) fn machine(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Machine { doing, source }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(what) => write!(f, "arguments: {what}"),
            Self::Network { doing, source } => write!(f, "{doing}: {source}"),
            Self::Protocol(what) => write!(f, "unexpected reply: {what}"),
            Self::Server(what) => write!(f, "server: {what}"),
            Self::Overload(what) | Self::Driver(what) => f.write_str(what),
            Self::Machine { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Network { source, .. } | Self::Machine { source, .. } => Some(source),
            _ => None,
        }
    }
}
