//! Writes a key's number as bytes of a fixed length.
//!
//! Readable where it fits, `k0001234`; where the number needs the room, all bytes are digits to the
//! base 62, `0000zT9q`, so that 8 bytes are enough for 2*10^14 keys. No byte is one that a text
//! protocol would mistake for something else.

/// Writes key numbers as keys of one length.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct KeyText {
    bytes: usize,
    readable: bool,
}

impl KeyText {
    /// Keys of `bytes` bytes (1 to 250, memcached's limit) for at least `count` numbers; `None` if
    /// they do not fit.
    pub fn new(bytes: usize, count: u64) -> Option<Self> {
        let fits = |base: u64, digits: usize| {
            let all = u32::try_from(digits).ok().and_then(|d| base.checked_pow(d));
            all.is_none_or(|all| count <= all)
        };
        if !(1..=BYTES_MAX).contains(&bytes) || !fits(62, bytes) {
            return None;
        }
        Some(Self {
            bytes,
            readable: fits(10, bytes - 1),
        })
    }

    /// Length of every key.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// How many different keys there are; numbers past it are not to be written.
    pub fn capacity(self) -> u64 {
        let (base, digits) = if self.readable {
            (10_u64, self.bytes - 1)
        } else {
            (62, self.bytes)
        };
        base.saturating_pow(u32::try_from(digits).unwrap_or(u32::MAX))
    }

    /// Appends the key with this number.
    pub fn put(self, number: u64, output: &mut Vec<u8>) {
        let start = output.len();
        output.resize(start + self.bytes, b'0');
        self.write(number, &mut output[start..]);
    }

    /// Fills `key`, which has the keys' length, with the key of this number.
    pub fn write(self, number: u64, key: &mut [u8]) {
        key.fill(b'0');
        let mut rest = number;
        if self.readable {
            for byte in key.iter_mut().rev() {
                if rest == 0 {
                    break;
                }
                *byte = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            if let Some(first) = key.first_mut() {
                *first = b'k';
            }
        } else {
            for byte in key.iter_mut().rev() {
                *byte = DIGITS[(rest % 62) as usize];
                rest /= 62;
            }
        }
    }
}

/// memcached's longest key.
const BYTES_MAX: usize = 250;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(bytes: usize, count: u64, number: u64) -> String {
        let mut output = b"get ".to_vec();
        KeyText::new(bytes, count).unwrap().put(number, &mut output);
        String::from_utf8(output.split_off(4)).unwrap()
    }

    #[test]
    fn keys_are_readable_where_they_fit() {
        assert_eq!(key(5, 10_000, 7), "k0007");
        assert_eq!(key(5, 10_000, 9_999), "k9999");
        assert_eq!(key(16, 10_000_000_000, 9_999_999_999), "k000009999999999");
        assert_eq!(key(8, 16_000_000, 61), "0000000z");
        assert_eq!(key(8, 16_000_000, 62), "00000010");
        assert_eq!(key(250, u64::MAX, u64::MAX).len(), 250);
    }

    #[test]
    fn keys_are_distinct_and_have_their_length() {
        for (bytes, count) in [(1, 62), (2, 3_000), (5, 10_000)] {
            let keys: HashSet<String> = (0..count).map(|n| key(bytes, count, n)).collect();
            assert_eq!(keys.len() as u64, count);
            assert!(keys.iter().all(|key| key.len() == bytes));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(KeyText::new(0, 1), None);
        assert_eq!(KeyText::new(251, 1), None);
        assert_eq!(KeyText::new(1, 63), None);
        assert_eq!(KeyText::new(2, 3_845), None);
        assert_eq!(KeyText::new(4, 1_000).map(KeyText::capacity), Some(1_000));
        assert_eq!(
            KeyText::new(8, 16_000_000).map(KeyText::capacity),
            Some(62_u64.pow(8))
        );
        assert_eq!(
            KeyText::new(20, 1).map(KeyText::capacity),
            Some(10_u64.pow(19))
        );
        assert_eq!(KeyText::new(30, 1).map(KeyText::capacity), Some(u64::MAX));
    }
}
