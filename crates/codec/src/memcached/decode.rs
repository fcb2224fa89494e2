//! Bytes to requests, one at a time.

use super::{Decoded, Limits};

/// Decodes what one connection sends.
///
/// Call [`decode`](Self::decode) with the bytes that have arrived, drop as many as it says it
/// consumed, and call again; after [`Decoded::Incomplete`] with the same bytes and more behind.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Decoder {
    authenticated: bool,
    swallow_bytes: u64,
}

impl Decoder {
    /// A decoder for a new connection. With `authenticate`, nothing but a login is accepted until
    /// [`authenticated`](Self::authenticated) is called.
    pub const fn new(authenticate: bool) -> Self {
        Self {
            authenticated: !authenticate,
            swallow_bytes: 0,
        }
    }

    /// Decodes one request from the front of `input`.
    pub fn decode<'a>(&mut self, input: &'a [u8], _limits: &Limits) -> Decoded<'a> {
        Decoded::Incomplete {
            consumed: 0,
            needed: input.len() + 1,
        }
    }

    /// Drops the next `bytes` bytes of the connection: the rest of a value (its line end counted)
    /// that the server could not place.
    pub const fn swallow(&mut self, bytes: u64) {
        self.swallow_bytes += bytes;
    }

    /// The client has proved who it is: from now on every command is accepted.
    pub const fn authenticated(&mut self) {
        self.authenticated = true;
    }
}
