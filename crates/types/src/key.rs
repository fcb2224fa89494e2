//! A key: 1 to 250 bytes, as the protocols carry it.

use core::fmt;

/// A key as a client sent it, borrowed from the bytes it arrived in.
///
/// Holds 1 to [`Key::BYTES_MAX`] bytes. Which bytes are allowed is the protocol's business: text
/// protocols exclude white space and control characters, meta's base64 form and RESP do not.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key<'a>(&'a [u8]);

/// Why some bytes are not a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum KeyError {
    /// No byte at all; the client's fault.
    Empty,
    /// More than [`Key::BYTES_MAX`] bytes; the client's fault.
    TooLong,
}

impl<'a> Key<'a> {
    /// The longest key, in bytes: memcached's limit.
    pub const BYTES_MAX: usize = 250;

    /// Takes `bytes` as a key, or says why they cannot be one.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, KeyError> {
        match bytes.len() {
            0 => Err(KeyError::Empty),
            1..=Self::BYTES_MAX => Ok(Self(bytes)),
            _ => Err(KeyError::TooLong),
        }
    }

    /// The bytes of the key; never empty, never longer than [`Key::BYTES_MAX`].
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_250_bytes() {
        assert_eq!(Key::new(b""), Err(KeyError::Empty));
        assert!(Key::new(b"a").is_ok());
        assert!(Key::new(&[b'k'; 250]).is_ok());
        assert_eq!(Key::new(&[b'k'; 251]), Err(KeyError::TooLong));
    }
}
