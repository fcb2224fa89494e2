//! Decodes a stream of bytes into requests; keeps a connection's state between two calls.
//!
//! ```text
//!                       login right
//!   Unauthenticated <------+------> Command --- get of many keys ---> Keys ---+
//!        |    ^            |        |  ^  ^                             |     |
//!      "set"  +-- Login ---+        |  |  +-- line end -----------------+     | bad key in a
//!        +----------^               |  +-- done -- Swallow <-- too large      | long line
//!                                   +-- line end - SkipLine <-----------------+
//! ```
//!
//! Nearly every call finds `Command`, a whole line and, for a write, its whole value: it then
//! keeps nothing. A line that is cut is read again from its start when more has come; only how far
//! the search for its end got is kept. A value that is cut is not looked at again before it is
//! whole, if the caller heeds `needed`.

use curtail_types::Operation;

use super::{
    Decoded, Form, Limits, Request, SetHeader, authenticate, decoder_of_line,
    encode::Refusal,
    fast_path,
    line::{Front, Line},
    multi_key_get::{self, Keys},
};

/// Decodes what one connection sends.
///
/// Call [`decode`](Self::decode) with the bytes that have arrived, drop as many as it says it
/// consumed, and call again; after [`Decoded::Incomplete`] with the bytes that remain and more
/// behind them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Decoder {
    stage: Stage,
    /// How many bytes at the front of the input are known to hold no line end.
    scanned: usize,
}

/// What the next byte of the input is part of.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Stage {
    /// A command.
    Command,
    /// The keys of a `get` that has begun.
    Keys(Keys),
    /// This many bytes that nobody wants.
    Swallow(u64),
    /// The rest of a line of keys that nobody wants; at its end this is answered.
    SkipLine(Refusal),
    /// A command, of which only the login is allowed.
    Unauthenticated,
    /// This many bytes of name, password and line end.
    Login(usize),
}

impl Decoder {
    /// A decoder for a new connection. With `authenticate`, nothing but a login is accepted until
    /// [`authenticated`](Self::authenticated) is called.
    pub const fn new(authenticate: bool) -> Self {
        Self {
            stage: if authenticate {
                Stage::Unauthenticated
            } else {
                Stage::Command
            },
            scanned: 0,
        }
    }

    /// Decodes one request from the front of `input`.
    #[inline]
    pub fn decode<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Decoded<'a> {
        if !matches!(self.stage, Stage::Command) {
            return self.resume(input, limits);
        }
        let scanned = core::mem::take(&mut self.scanned);
        fast_path::decode(input, limits, || {
            self.scanned = scanned;
            self.decode_line(input, limits)
        })
    }

    /// The same, for a request of any form.
    #[inline(never)]
    fn decode_line<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Decoded<'a> {
        if input.first() == Some(&BINARY_MAGIC) {
            return closed(input.len(), b"");
        }
        match Line::find(input, self.scanned) {
            Front::Line(line) => {
                self.scanned = 0;
                decoder_of_line::decode(self, line, limits)
            }
            Front::Partial => self.partial(input),
            Front::TooLong => self.too_long(input),
        }
    }

    /// Drops the next `bytes` bytes of the connection: what remains of a value (its line end
    /// counted) that the server could not place.
    pub const fn swallow(&mut self, bytes: u64) {
        if bytes > 0 {
            self.stage = Stage::Swallow(bytes);
        }
    }

    /// Bytes of a refused value that are still to be dropped.
    pub const fn swallowing(&self) -> u64 {
        match self.stage {
            Stage::Swallow(bytes) => bytes,
            _ => 0,
        }
    }

    /// The client has proved who it is: from now on every command is accepted.
    pub const fn authenticated(&mut self) {
        if matches!(self.stage, Stage::Unauthenticated) {
            self.stage = Stage::Command;
        }
    }

    /// Whether the next byte begins a command.
    pub const fn is_between_commands(&self) -> bool {
        matches!(self.stage, Stage::Command | Stage::Unauthenticated)
    }

    /// Goes on to `stage` with the next byte.
    pub(super) const fn enter(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// A write: with its value if that is short and here.
    #[inline]
    pub(super) fn store<'a>(
        &mut self,
        line: Line<'a>,
        header: SetHeader<'a>,
        limits: &Limits,
    ) -> Decoded<'a> {
        let SetHeader {
            key,
            set,
            value_bytes,
            form,
        } = header;
        if value_bytes > limits.inline_value_bytes_max || value_bytes > limits.value_bytes_max {
            return self.store_long(line.bytes, header, limits);
        }
        let value_end = value_bytes as usize;
        let consumed = line.bytes + value_end + LINE_END_BYTES;
        let (Some(value), Some(end)) = (
            line.after.get(..value_end),
            line.after.get(value_end..value_end + LINE_END_BYTES),
        ) else {
            return Decoded::Incomplete {
                consumed: 0,
                needed: consumed,
            };
        };
        if end != b"\r\n" {
            return refused(consumed, form == SILENT, Refusal::BadDataChunk);
        }
        Decoded::Complete {
            request: Request::Item {
                key,
                operation: Operation::Set(set),
                value,
                form,
            },
            consumed,
        }
    }

    fn store_long<'a>(
        &mut self,
        consumed: usize,
        header: SetHeader<'a>,
        limits: &Limits,
    ) -> Decoded<'a> {
        let request = if header.value_bytes > limits.value_bytes_max {
            self.swallow(u64::from(header.value_bytes) + LINE_END_BYTES as u64);
            Request::SetTooLarge(header)
        } else {
            Request::SetHeader(header)
        };
        Decoded::Complete { request, consumed }
    }

    /// Any stage but the usual one.
    #[inline(never)]
    fn resume<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Decoded<'a> {
        match self.stage {
            Stage::Command => self.decode(input, limits),
            Stage::Keys(keys) => multi_key_get::decode(self, keys, input),
            Stage::Swallow(bytes) => self.swallow_more(bytes, input, limits),
            Stage::SkipLine(refusal) => self.skip_line(refusal, input),
            Stage::Unauthenticated => self.unauthenticated(input),
            Stage::Login(bytes) => self.login(bytes, input),
        }
    }

    fn swallow_more<'a>(&mut self, bytes: u64, input: &'a [u8], limits: &Limits) -> Decoded<'a> {
        let dropped = input
            .len()
            .min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let left = bytes - dropped as u64;
        if left > 0 {
            self.stage = Stage::Swallow(left);
            return Decoded::Incomplete {
                consumed: dropped,
                needed: 1,
            };
        }
        self.stage = Stage::Command;
        let rest = input.get(dropped..).unwrap_or_default();
        self.decode(rest, limits).after(dropped)
    }

    /// Drops everything up to the line's end and answers there.
    pub(super) fn skip_line<'a>(&mut self, refusal: Refusal, input: &'a [u8]) -> Decoded<'a> {
        self.stage = Stage::SkipLine(refusal);
        match memchr::memchr(b'\n', input) {
            Some(end) => multi_key_get::end(self, end + 1, Some(refusal)),
            None => Decoded::Incomplete {
                consumed: input.len(),
                needed: 1,
            },
        }
    }

    fn unauthenticated<'a>(&mut self, input: &'a [u8]) -> Decoded<'a> {
        if input.first() == Some(&BINARY_MAGIC) {
            return closed(input.len(), b"");
        }
        match Line::find(input, self.scanned) {
            Front::Line(line) => {
                self.scanned = 0;
                match authenticate::header(line.text) {
                    Some(bytes) => self.login(bytes, line.after).after(line.bytes),
                    None => refused(line.bytes, false, Refusal::Unauthenticated),
                }
            }
            Front::Partial => self.partial(input),
            Front::TooLong => closed(input.len(), Refusal::LineTooLong.reply()),
        }
    }

    fn login<'a>(&mut self, bytes: usize, input: &'a [u8]) -> Decoded<'a> {
        let decoded = authenticate::login(bytes, input);
        self.stage = match decoded {
            Decoded::Incomplete { .. } => Stage::Login(bytes),
            _ => Stage::Unauthenticated,
        };
        decoded
    }

    /// A line whose end has not come.
    #[cold]
    fn partial<'a>(&mut self, input: &'a [u8]) -> Decoded<'a> {
        self.scanned = input.len();
        Decoded::Incomplete {
            consumed: 0,
            needed: input.len() + 1,
        }
    }

    /// A line whose end may be anywhere: only `get` and `gets` may have so many keys.
    #[cold]
    fn too_long<'a>(&mut self, input: &'a [u8]) -> Decoded<'a> {
        self.scanned = 0;
        match multi_key_get::begin_long(input) {
            Some((keys, consumed)) => {
                self.stage = Stage::Keys(keys);
                let rest = input.get(consumed..).unwrap_or_default();
                multi_key_get::decode(self, keys, rest).after(consumed)
            }
            None => closed(input.len(), Refusal::LineTooLong.reply()),
        }
    }
}

impl<'a> Decoded<'a> {
    /// The same, where `before` more bytes in front are done with.
    pub(super) fn after(self, before: usize) -> Self {
        match self {
            Self::Complete { request, consumed } => Self::Complete {
                request,
                consumed: before + consumed,
            },
            Self::Incomplete { consumed, needed } => Self::Incomplete {
                consumed: before + consumed,
                needed,
            },
            Self::Malformed {
                reply,
                consumed,
                close,
            } => Self::Malformed {
                reply,
                consumed: before + consumed,
                close,
            },
        }
    }
}

/// A request that is its line.
#[inline]
pub(super) const fn complete<'a>(line: Line<'a>, request: Request<'a>) -> Decoded<'a> {
    Decoded::Complete {
        request,
        consumed: line.bytes,
    }
}

/// An error after which the connection goes on.
#[cold]
pub(super) const fn refused<'a>(consumed: usize, silent: bool, refusal: Refusal) -> Decoded<'a> {
    Decoded::Malformed {
        reply: if silent { b"" } else { refusal.reply() },
        consumed,
        close: false,
    }
}

/// The end of the connection.
#[cold]
pub(super) const fn closed<'a>(consumed: usize, reply: &'static [u8]) -> Decoded<'a> {
    Decoded::Malformed {
        reply,
        consumed,
        close: true,
    }
}

/// The first byte of memcached's binary protocol, which is not spoken here.
const BINARY_MAGIC: u8 = 0x80;

/// A value is followed by `\r\n`, not by less.
pub(super) const LINE_END_BYTES: usize = 2;

const SILENT: Form<'_> = Form::Line { noreply: true };
