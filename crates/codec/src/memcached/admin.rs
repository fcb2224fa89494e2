//! The commands that are not about one item: as much of their meaning as the protocol fixes.
//!
//! Where memcached's own words decide (what `stats` or `slabs` accept depends on how it was built
//! and started), the words are handed on as they are: the server knows what it offers.

use core::fmt;

use curtail_types::Exptime;

/// A command that is not about one item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admin<'a> {
    /// `version`.
    Version,
    /// `quit`: close once everything before it is answered.
    Quit,
    /// `stats [...]`.
    Stats(Words<'a>),
    /// `flush_all [delay] [noreply]`; without a delay it is [`Exptime::NEVER`], which means now. A
    /// negative delay means now too.
    FlushAll {
        /// When: seconds from now, or beyond 30 days a Unix time.
        delay: Exptime,
        /// Send no reply.
        noreply: bool,
    },
    /// `verbosity <level> [noreply]`.
    Verbosity {
        /// The level asked for.
        level: u32,
        /// Send no reply.
        noreply: bool,
    },
    /// `cache_memlimit <megabytes> [noreply]`.
    CacheMemlimit {
        /// The new limit in units of 2^20 bytes.
        megabytes: u32,
        /// Send no reply.
        noreply: bool,
    },
    /// `shutdown [graceful]`; other words are an invalid mode.
    Shutdown(Words<'a>),
    /// `slabs ...`.
    Slabs(Words<'a>),
    /// `lru ...`, with at least one word.
    Lru(Words<'a>),
    /// `lru_crawler ...`.
    LruCrawler(Words<'a>),
    /// `watch ...`.
    Watch(Words<'a>),
    /// `extstore ...`, with at least one word.
    Extstore(Words<'a>),
    /// `misbehave`: memcached's debug builds only.
    Misbehave,
    /// `debugtime ...`: memcached's debug builds only.
    DebugTime(Words<'a>),
    /// `refresh_certs`.
    RefreshCerts,
}

/// The words that follow a command, separated by spaces; an iterator over them.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The words of `line`.
    pub const fn new(line: &'a [u8]) -> Self {
        Self(line)
    }

    /// Whether the last word is `noreply`.
    pub fn noreply(self) -> bool {
        self.last() == Some(b"noreply")
    }

    /// The bytes from the next word on.
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|&byte| byte != b' ')?;
        let from = self.0.get(start..)?;
        let (word, rest) = match memchr::memchr(b' ', from) {
            Some(end) => from.split_at(end),
            None => (from, [].as_slice()),
        };
        self.0 = rest;
        Some(word)
    }
}

impl fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.0.escape_ascii())
    }
}
