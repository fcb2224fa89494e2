//! Why a connection was closed.

/// Why a connection was closed, as memcached calls it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum CloseReason {
    /// The client left.
    #[default]
    Normal,
    /// It said something that is no protocol.
    Error,
    /// Nothing came from it for too long.
    Idle,
    /// The server stops.
    Shutdown,
}

impl CloseReason {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error => "error",
            Self::Idle => "idle_timeout",
            Self::Shutdown => "shutdown",
        }
    }
}
