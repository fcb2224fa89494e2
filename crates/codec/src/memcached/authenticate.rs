//! The login that `-Y` asks for: a `set` whose value is a name and a password.
//!
//! Before it nothing else is understood, not even where a value ends: every line is answered with
//! an error, as memcached does.

use super::{
    Decoded, Request, Words,
    decode::{LINE_END_BYTES, refused},
    encode::Refusal,
    number,
};

/// The line of a login: how many bytes follow it, their line end counted. `None` for any other
/// line, and for a login that is too long to be one.
pub(super) fn header(line: &[u8]) -> Option<usize> {
    let mut words = Words::new(line);
    if words.next() != Some(b"set") {
        return None;
    }
    let bytes = words.nth(3).and_then(number::unsigned_32)? as usize;
    (bytes <= LOGIN_BYTES_MAX).then_some(bytes + LINE_END_BYTES)
}

/// The `bytes` bytes of a login.
pub(super) fn login(bytes: usize, input: &[u8]) -> Decoded<'_> {
    let Some(body) = input.get(..bytes) else {
        return Decoded::Incomplete {
            consumed: 0,
            needed: bytes,
        };
    };
    let Some(text) = body.strip_suffix(b"\r\n") else {
        return refused(bytes, false, Refusal::BadLoginEnd);
    };
    let mut words = Words::new(text);
    let (Some(user), Some(password)) = (words.next(), words.next()) else {
        return refused(bytes, false, Refusal::BadLogin);
    };
    Decoded::Complete {
        request: Request::Authenticate { user, password },
        consumed: bytes,
    }
}

/// The longest name and password together; memcached reads its own from lines of 1,024 bytes.
const LOGIN_BYTES_MAX: usize = 1024;
