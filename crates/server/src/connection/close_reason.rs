//! Why a connection was closed.

use curtail_types::worded_enum;

worded_enum! {
    /// Why a connection was closed, as memcached calls it.
    #[derive(Default)]
    pub(crate) enum CloseReason {
        /// The client left.
        #[default]
        Normal = "normal",
        /// It said something that is no protocol.
        Error = "error",
        /// Nothing came from it for too long.
        Idle = "idle_timeout",
        /// The server stops.
        Shutdown = "shutdown",
    }
}
