//! Commands that are not about one item, as far as the protocol defines them.
//!
//! Where memcached's own words decide (what `stats` or `slabs` accept depends on how it was built
//! and started), the words are handed on as they are: the server knows what it offers.

use core::fmt;

use curtail_types::Exptime;

use super::{
    Decoded, Request,
    decode::{complete, refused},
    encode::Refusal,
    line::{Line, split_word},
    number,
};

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
    /// `policy [name]`: this server's own.
    Policy(Words<'a>),
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
        let (word, rest) = split_word(self.0)?;
        self.0 = rest;
        Some(word)
    }
}

impl fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.0.escape_ascii())
    }
}

/// A command of this family, or `None`.
pub(super) fn decode<'a>(line: Line<'a>, name: &[u8], words: &'a [u8]) -> Option<Decoded<'a>> {
    let words = Words::new(words);
    let command = match name {
        b"version" => Admin::Version,
        b"quit" => Admin::Quit,
        b"stats" => Admin::Stats(words),
        b"shutdown" => Admin::Shutdown(words),
        b"slabs" => Admin::Slabs(words),
        b"lru_crawler" => Admin::LruCrawler(words),
        b"watch" => Admin::Watch(words),
        b"policy" => Admin::Policy(words),
        b"misbehave" => Admin::Misbehave,
        b"refresh_certs" => Admin::RefreshCerts,
        b"flush_all" => return Some(flush_all(line, words)),
        b"verbosity" => return Some(verbosity(line, words)),
        b"cache_memlimit" => return Some(cache_memlimit(line, words)),
        b"lru" | b"extstore" | b"debugtime" if words.count() == 0 => {
            return Some(refused(line.bytes, false, Refusal::Error));
        }
        b"lru" => Admin::Lru(words),
        b"extstore" => Admin::Extstore(words),
        b"debugtime" => Admin::DebugTime(words),
        _ => return None,
    };
    Some(complete(line, Request::Admin(command)))
}

/// `flush_all [delay] [noreply]`
fn flush_all<'a>(line: Line<'a>, words: Words<'a>) -> Decoded<'a> {
    let noreply = words.noreply();
    let mut parts = words;
    let delay = match words.count() {
        0 => Some(Exptime::NEVER),
        1 if noreply => Some(Exptime::NEVER),
        1 | 2 => parts.next().and_then(number::signed).map(Exptime),
        _ => return refused(line.bytes, false, Refusal::Error),
    };
    match delay {
        Some(delay) => complete(line, Request::Admin(Admin::FlushAll { delay, noreply })),
        None => refused(line.bytes, noreply, Refusal::BadExptime),
    }
}

/// `verbosity <level> [noreply]`
fn verbosity<'a>(line: Line<'a>, words: Words<'a>) -> Decoded<'a> {
    let noreply = words.noreply();
    match one_number(words) {
        Some(Some(level)) => complete(line, Request::Admin(Admin::Verbosity { level, noreply })),
        Some(None) => refused(line.bytes, noreply, Refusal::BadFormat),
        None => refused(line.bytes, false, Refusal::Error),
    }
}

/// `cache_memlimit <megabytes> [noreply]`
fn cache_memlimit<'a>(line: Line<'a>, words: Words<'a>) -> Decoded<'a> {
    let noreply = words.noreply();
    match one_number(words) {
        Some(Some(megabytes)) => {
            let command = Admin::CacheMemlimit { megabytes, noreply };
            complete(line, Request::Admin(command))
        }
        Some(None) => refused(line.bytes, noreply, Refusal::Error),
        None => refused(line.bytes, false, Refusal::Error),
    }
}

/// The number that one or two words begin with, at most what 32 bits hold. The outer `None` is a
/// wrong count of words, the inner one is not a number.
fn one_number(mut words: Words<'_>) -> Option<Option<u32>> {
    if !(1..=2).contains(&words.count()) {
        return None;
    }
    let number = words.next().and_then(number::unsigned);
    Some(number.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
}
