//! Every error that this protocol knows, word for word: clients match on these texts.

use curtail_types::{Failure, worded_enum};

worded_enum! {
    /// An error that a client is told: its name is the line that tells it.
    #[non_exhaustive]
    pub enum Refusal {
        /// There is no such command, or it has the wrong number of words.
        Error = "ERROR\r\n",
        /// A command line that makes no sense.
        BadFormat = "CLIENT_ERROR bad command line format\r\n",
        /// `delete` with words that it does not know.
        BadDelete = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
        /// The value was not followed by its line end.
        BadDataChunk = "CLIENT_ERROR bad data chunk\r\n",
        /// A line without end.
        LineTooLong = "CLIENT_ERROR line too long\r\n",
        /// A time that is not a number.
        BadExptime = "CLIENT_ERROR invalid exptime argument\r\n",
        /// An `incr` or `decr` by something that is not a number.
        BadDelta = "CLIENT_ERROR invalid numeric delta argument\r\n",
        /// Arithmetic on a value that is not a number.
        NotANumber = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        /// A meta flag that is not known.
        InvalidFlag = "CLIENT_ERROR invalid flag\r\n",
        /// A meta flag given twice.
        DuplicateFlag = "CLIENT_ERROR duplicate flag\r\n",
        /// What `md` and `ma` say to any flag that they do not like.
        InvalidOrDuplicateFlag = "CLIENT_ERROR invalid or duplicate flag\r\n",
        /// Too many flags for `mg`.
        TooManyFlags = "CLIENT_ERROR options flags are too long\r\n",
        /// Too many flags for the other meta commands, in slightly other words.
        TooManyFlagsOther = "CLIENT_ERROR options flags too long\r\n",
        /// A meta flag whose token is not a number.
        BadToken = "CLIENT_ERROR bad token in command line format\r\n",
        /// An `M` whose token is not one letter.
        BadModeLength = "CLIENT_ERROR incorrect length for M token\r\n",
        /// A mode that `ms` does not know.
        BadSetMode = "CLIENT_ERROR invalid mode for ms M token\r\n",
        /// A mode that `ma` does not know.
        BadArithmeticMode = "CLIENT_ERROR invalid mode for ma M token\r\n",
        /// `J` with something that is not a number.
        BadInitial = "CLIENT_ERROR invalid numeric initial value\r\n",
        /// `D` with something that is not a number.
        BadMetaDelta = "CLIENT_ERROR invalid numeric delta value\r\n",
        /// A key that is not base64 although `b` says so.
        BadBase64 = "CLIENT_ERROR error decoding key\r\n",
        /// An opaque token above [`OPAQUE_BYTES_MAX`](crate::memcached::OPAQUE_BYTES_MAX).
        OpaqueTooLong = "CLIENT_ERROR opaque token too long\r\n",
        /// A value above the limit.
        TooLarge = "SERVER_ERROR object too large for cache\r\n",
        /// No room for a value.
        OutOfMemoryStoring = "SERVER_ERROR out of memory storing object\r\n",
        /// No room for another change.
        OutOfMemory = "SERVER_ERROR out of memory\r\n",
        /// No room for the replies of a `get`.
        OutOfMemoryGet = "SERVER_ERROR out of memory writing get response\r\n",
        /// No room for the lines of `stats`.
        OutOfMemoryStats = "SERVER_ERROR out of memory writing stats\r\n",
        /// Too many large requests at once.
        Busy = "SERVER_ERROR busy\r\n",
        /// A node of a cluster that may not answer.
        OutOfService = "SERVER_ERROR this node is not in service\r\n",
        /// A request that waited too long on a node of a cluster.
        Late = "SERVER_ERROR timed out; a write may still take effect\r\n",
        /// A request during which the cluster changed.
        ViewChanged =
            "SERVER_ERROR the cluster changed meanwhile; a write may have taken effect\r\n",
        /// A request for a node that cannot be reached.
        Unreachable = "SERVER_ERROR the node of this key cannot be reached\r\n",
        /// A request whose node was lost.
        NodeLost = "SERVER_ERROR the node of this key was lost; a write may have happened\r\n",
        /// A request that waited too long on a node of a cluster, and had no effect.
        NotBegun = "SERVER_ERROR timed out before it began\r\n",
        /// A request during which a node's lease ended.
        LeaseEnded =
            "SERVER_ERROR this node's lease ended meanwhile; a write may have taken effect\r\n",
        /// A write while the file system of the disk tier is full.
        DiskFull = "SERVER_ERROR the disk is full\r\n",
        /// A write after the disk of the tier has failed.
        DiskFailed = "SERVER_ERROR the disk has failed\r\n",
        /// A write while the disk of the tier is behind for long.
        DiskBehind = "SERVER_ERROR the disk is too slow for so many writes\r\n",
        /// A read that the disk of the tier answered with an error, or with damaged data.
        DiskUnreadable = "SERVER_ERROR the disk cannot read this item\r\n",
        /// What a cache tier does not offer.
        NotAtTier = "CLIENT_ERROR a cache tier does not offer this\r\n",
        /// A datagram whose answer has no room in one.
        UseTcp = "SERVER_ERROR use TCP\r\n",
        /// A command before the login.
        Unauthenticated = "CLIENT_ERROR unauthenticated\r\n",
        /// A login without a name and a password.
        BadLogin = "CLIENT_ERROR bad authentication token format\r\n",
        /// A login whose value was not followed by its line end.
        BadLoginEnd = "CLIENT_ERROR bad command line termination\r\n",
        /// A wrong name or password.
        LoginFailed = "CLIENT_ERROR authentication failure\r\n",
        /// `flush_all` where it is switched off.
        FlushNotAllowed = "CLIENT_ERROR flush_all not allowed\r\n",
        /// `shutdown` where it is switched off.
        ShutdownNotEnabled = "ERROR: shutdown not enabled\r\n",
        /// `shutdown` in a mode that there is not.
        BadShutdownMode = "CLIENT_ERROR invalid shutdown mode\r\n",
        /// `watch` where it is switched off.
        WatchNotAllowed = "CLIENT_ERROR watch commands not allowed\r\n",
        /// `stats detail` with a word that it does not know.
        BadStatsDetail = "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
        /// `cache_memlimit` below 8 MiB.
        MemlimitTooSmall = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        /// `cache_memlimit` with what must be bytes.
        MemlimitInBytes = "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        /// `cache_memlimit` that cannot be had.
        MemlimitFailed = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
    }
}

impl Refusal {
    /// The line that tells it, line end included.
    pub const fn reply(self) -> &'static [u8] {
        self.name().as_bytes()
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
            Failure::NotBegun => Self::NotBegun,
            Failure::LeaseEnded => Self::LeaseEnded,
        }
    }
}
