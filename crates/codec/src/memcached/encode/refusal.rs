//! Every error that this protocol knows, word for word: clients match on these texts.

use curtail_types::Failure;

/// An error that a client is told.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such command, or it has the wrong number of words.
    Error,
    /// A command line that makes no sense.
    BadFormat,
    /// `delete` with words that it does not know.
    BadDelete,
    /// The value was not followed by its line end.
    BadDataChunk,
    /// A line without end.
    LineTooLong,
    /// A time that is not a number.
    BadExptime,
    /// An `incr` or `decr` by something that is not a number.
    BadDelta,
    /// Arithmetic on a value that is not a number.
    NotANumber,
    /// A meta flag that is not known.
    InvalidFlag,
    /// A meta flag given twice.
    DuplicateFlag,
    /// What `md` and `ma` say to any flag that they do not like.
    InvalidOrDuplicateFlag,
    /// Too many flags for `mg`.
    TooManyFlags,
    /// Too many flags for the other meta commands, in slightly other words.
    TooManyFlagsOther,
    /// A meta flag whose token is not a number.
    BadToken,
    /// An `M` whose token is not one letter.
    BadModeLength,
    /// A mode that `ms` does not know.
    BadSetMode,
    /// A mode that `ma` does not know.
    BadArithmeticMode,
    /// `J` with something that is not a number.
    BadInitial,
    /// `D` with something that is not a number.
    BadMetaDelta,
    /// A key that is not base64 although `b` says so.
    BadBase64,
    /// An opaque token above [`OPAQUE_BYTES_MAX`](crate::memcached::OPAQUE_BYTES_MAX).
    OpaqueTooLong,
    /// A value above the limit.
    TooLarge,
    /// No room for a value.
    OutOfMemoryStoring,
    /// No room for another change.
    OutOfMemory,
    /// No room for the replies of a `get`.
    OutOfMemoryGet,
    /// No room for the lines of `stats`.
    OutOfMemoryStats,
    /// Too many large requests at once.
    Busy,
    /// A node of a cluster that may not answer.
    OutOfService,
    /// A request that waited too long on a node of a cluster.
    Late,
    /// A request during which the cluster changed.
    ViewChanged,
    /// A request for a node that cannot be reached.
    Unreachable,
    /// A request whose node was lost.
    NodeLost,
    /// A request for a key that moves to another node.
    NotArrived,
    /// A request during which a node's lease ended.
    LeaseEnded,
    /// A datagram whose answer has no room in one.
    UseTcp,
    /// A command before the login.
    Unauthenticated,
    /// A login without a name and a password.
    BadLogin,
    /// A login whose value was not followed by its line end.
    BadLoginEnd,
    /// A wrong name or password.
    LoginFailed,
    /// `flush_all` where it is switched off.
    FlushNotAllowed,
    /// `shutdown` where it is switched off.
    ShutdownNotEnabled,
    /// `shutdown` in a mode that there is not.
    BadShutdownMode,
    /// `watch` where it is switched off.
    WatchNotAllowed,
    /// `stats detail` with a word that it does not know.
    BadStatsDetail,
    /// `cache_memlimit` below 8 MiB.
    MemlimitTooSmall,
    /// `cache_memlimit` with what must be bytes.
    MemlimitInBytes,
    /// `cache_memlimit` that cannot be had.
    MemlimitFailed,
}

impl Refusal {
    /// The line that tells it, line end included.
    #[rustfmt::skip]
    pub const fn reply(self) -> &'static [u8] {
        match self {
            Self::Error => b"ERROR\r\n",
            Self::BadFormat => b"CLIENT_ERROR bad command line format\r\n",
            Self::BadDelete =>
                b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            Self::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Self::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            Self::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Self::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::NotANumber =>
                b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            Self::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::InvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Self::TooManyFlagsOther => b"CLIENT_ERROR options flags too long\r\n",
            Self::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Self::BadModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
            Self::BadSetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::BadArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::BadInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Self::BadMetaDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Self::BadBase64 => b"CLIENT_ERROR error decoding key\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Self::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
            Self::OutOfMemoryStoring => b"SERVER_ERROR out of memory storing object\r\n",
            Self::OutOfMemory => b"SERVER_ERROR out of memory\r\n",
            Self::OutOfMemoryGet => b"SERVER_ERROR out of memory writing get response\r\n",
            Self::OutOfMemoryStats => b"SERVER_ERROR out of memory writing stats\r\n",
            Self::Busy => b"SERVER_ERROR busy\r\n",
            Self::OutOfService => b"SERVER_ERROR this node is not in service\r\n",
            Self::Late => b"SERVER_ERROR timed out; a write may still take effect\r\n",
            Self::ViewChanged =>
                b"SERVER_ERROR the cluster changed meanwhile; a write may have taken effect\r\n",
            Self::Unreachable => b"SERVER_ERROR the node of this key cannot be reached\r\n",
            Self::NodeLost =>
                b"SERVER_ERROR the node of this key was lost; a write may have happened\r\n",
            Self::NotArrived => b"SERVER_ERROR this key is still on its way to another node\r\n",
            Self::LeaseEnded => {
                b"SERVER_ERROR this node's lease ended meanwhile; \
                a write may have taken effect\r\n"
            }
            Self::UseTcp => b"SERVER_ERROR use TCP\r\n",
            Self::Unauthenticated => b"CLIENT_ERROR unauthenticated\r\n",
            Self::BadLogin => b"CLIENT_ERROR bad authentication token format\r\n",
            Self::BadLoginEnd => b"CLIENT_ERROR bad command line termination\r\n",
            Self::LoginFailed => b"CLIENT_ERROR authentication failure\r\n",
            Self::FlushNotAllowed => b"CLIENT_ERROR flush_all not allowed\r\n",
            Self::ShutdownNotEnabled => b"ERROR: shutdown not enabled\r\n",
            Self::BadShutdownMode => b"CLIENT_ERROR invalid shutdown mode\r\n",
            Self::WatchNotAllowed => b"CLIENT_ERROR watch commands not allowed\r\n",
            Self::BadStatsDetail => b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
            Self::MemlimitTooSmall =>
                b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
            Self::MemlimitInBytes =>
                b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
            Self::MemlimitFailed =>
                b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OutOfMemory => Self::OutOfMemoryGet,
            Failure::Busy => Self::Busy,
            Failure::OutOfService => Self::OutOfService,
            Failure::Late => Self::Late,
            Failure::ViewChanged => Self::ViewChanged,
            Failure::Unreachable => Self::Unreachable,
            Failure::NodeLost => Self::NodeLost,
            Failure::NotArrived => Self::NotArrived,
            Failure::LeaseEnded => Self::LeaseEnded,
        }
    }
}
