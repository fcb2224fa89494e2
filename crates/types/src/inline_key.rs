//! A key's bytes stored inline, for code that keeps keys longer than a batch.

use core::fmt;

use crate::key::{Key, KeyError};

/// The bytes of a key, held in place: no allocation, whatever the key; 251 bytes.
///
/// Ordered as the bytes are. The default is the name of no key: it is empty.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyName {
    // Behind the name's end all is 0, so that the derived order is that of the bytes.
    bytes: [u8; Key::BYTES_MAX],
    length: u8,
}

const _: () = assert!(Key::BYTES_MAX <= u8::MAX as usize);

impl KeyName {
    /// The bytes of `key`.
    #[inline]
    pub fn of(key: Key<'_>) -> Self {
        let mut name = Self::default();
        name.set(key);
        name
    }

    /// Holds the bytes of `key` from now on.
    #[inline]
    pub fn set(&mut self, key: Key<'_>) {
        let bytes = key.bytes();
        self.bytes = [0; Key::BYTES_MAX];
        if let Some(place) = self.bytes.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
            self.length = bytes.len() as u8;
        }
    }

    /// The bytes; none for the default.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let length = usize::from(self.length);
        self.bytes.get(..length).unwrap_or_default()
    }

    /// The key; an error for the default.
    #[inline]
    pub const fn key(&self) -> Result<Key<'_>, KeyError> {
        let (bytes, _) = self.bytes.split_at(self.length as usize);
        Key::new(bytes)
    }
}

impl Default for KeyName {
    fn default() -> Self {
        Self {
            bytes: [0; Key::BYTES_MAX],
            length: 0,
        }
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyName({})", self.bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> KeyName {
        KeyName::of(Key::new(bytes).unwrap())
    }

    #[test]
    fn a_name_gives_back_its_key() {
        for bytes in [&b"a"[..], &[0; 3], &[b'k'; Key::BYTES_MAX]] {
            assert_eq!(name(bytes).bytes(), bytes);
            assert_eq!(name(bytes).key().unwrap().bytes(), bytes);
        }
        assert_eq!(KeyName::default().key(), Err(KeyError::Empty));
        let mut again = name(b"a long one");
        again.set(Key::new(b"b").unwrap());
        assert_eq!(again, name(b"b"));
    }

    /// Names are ordered as their bytes are, zeros at the end included.
    #[test]
    fn names_are_ordered_as_bytes() {
        let ordered = [&b"a"[..], b"a\0", b"a\0\0", b"aa", b"ab", b"b"];
        for pair in ordered.windows(2) {
            assert!(name(pair[0]) < name(pair[1]), "{pair:?}");
        }
    }
}
