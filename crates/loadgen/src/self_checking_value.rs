//! Self-checking values: every byte is a function of key, version and length.
//!
//! ```text
//!   | key 8 | version 8 | length 4 | check 4 | word 0 | word 1 | ...
//! ```
//!
//! Each word depends on the version, so that a value torn between two versions shows; the head
//! says whose value it is, so that one that belongs to another key, or to the past, can be named.
//! Values shorter than the head are words only: only a caller that knows what was written can check
//! them.

use curtail_workload::mix;

/// What was written at once: a whole value, or what an append added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    pub(crate) key: u64,
    pub(crate) version: u64,
    pub(crate) bytes: u32,
}

/// Bytes of the head that makes a piece identify itself.
pub(crate) const HEAD_BYTES: u32 = 24;

impl Piece {
    /// Appends the piece's bytes.
    pub(crate) fn put(&self, output: &mut Vec<u8>) {
        let end = output.len() + self.bytes as usize;
        if self.bytes >= HEAD_BYTES {
            output.extend_from_slice(&self.key.to_le_bytes());
            output.extend_from_slice(&self.version.to_le_bytes());
            output.extend_from_slice(&self.bytes.to_le_bytes());
            output.extend_from_slice(&self.check().to_le_bytes());
        }
        for word in self.words() {
            let room = end - output.len();
            if room == 0 {
                break;
            }
            let bytes = word.to_le_bytes();
            output.extend_from_slice(&bytes[..room.min(8)]);
        }
    }

    /// Whether `bytes` are exactly this piece.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        if bytes.len() != self.bytes as usize {
            return false;
        }
        let body = if self.bytes >= HEAD_BYTES {
            if Self::identify(bytes) != Some(*self) {
                return false;
            }
            &bytes[HEAD_BYTES as usize..]
        } else {
            bytes
        };
        let matches = |(chunk, word): (&[u8], u64)| word.to_le_bytes().starts_with(chunk);
        body.chunks(8).zip(self.words()).all(matches)
    }

    /// What the head of some bytes says they are, if it is a head.
    pub(crate) fn identify(bytes: &[u8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (check, _) = rest.split_first_chunk::<4>()?;
        let piece = Self {
            key: u64::from_le_bytes(*key),
            version: u64::from_le_bytes(*version),
            bytes: u32::from_le_bytes(*length),
        };
        (piece.check() == u32::from_le_bytes(*check)).then_some(piece)
    }

    fn seed(&self) -> u64 {
        mix(self.key ^ mix(self.version ^ mix(u64::from(self.bytes))))
    }

    fn check(&self) -> u32 {
        (self.seed() >> 32) as u32
    }

    fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let seed = self.seed();
        (1_u64..)
            .map(move |index| mix(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(version: u64, bytes: u32) -> (Piece, Vec<u8>) {
        let piece = Piece {
            key: 77,
            version,
            bytes,
        };
        let mut output = Vec::new();
        piece.put(&mut output);
        (piece, output)
    }

    #[test]
    fn a_piece_is_itself_at_every_length() {
        for length in (0..70).chain([1000, 4096, 65_537]) {
            let (piece, bytes) = piece(5, length);
            assert!(piece.is(&bytes), "{length}");
            let identified = (length >= HEAD_BYTES).then_some(piece);
            assert_eq!(Piece::identify(&bytes), identified, "{length}");
        }
    }

    /// Goal: no mixture of two versions passes. Method: every cut between two values of one length.
    #[test]
    fn every_torn_value_is_noticed() {
        for length in [16, 24, 31, 200] {
            let ((old, old_bytes), (new, new_bytes)) = (piece(5, length), piece(6, length));
            for cut in 1..length as usize {
                let torn: Vec<u8> = [&new_bytes[..cut], &old_bytes[cut..]].concat();
                // Inside the bytes that both have in common a cut changes nothing.
                let is_whole = torn == old_bytes || torn == new_bytes;
                assert_eq!(new.is(&torn) || old.is(&torn), is_whole, "{length} {cut}");
                assert!(
                    !is_whole || cut <= 8 || cut >= length as usize - 1,
                    "{length} {cut}"
                );
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let (piece, bytes) = piece(5, 100);
        for bit in 0..800 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!piece.is(&flipped), "{bit}");
        }
    }
}
