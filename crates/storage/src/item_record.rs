//! An item as the tree has it: version, bits, flags, expiry, CAS, epoch, checksum, value.
//!
//! ```text
//!  0       1      2       6        10    18      22         30
//!  version bits   flags   expiry   CAS   epoch   checksum   value ...
//! ```
//!
//! The checksum covers the key, the fields before it and the value, so that a value that comes back
//! under another key is as visible as a changed bit. `flush_all` begins a new epoch: an item of an
//! earlier one is as good as deleted.

use twox_hash::XxHash3_64;

/// All there is to an item but its key and its value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ItemImage {
    /// Its version, as clients see it.
    pub cas: u64,
    /// The client's 32 bits.
    pub flags: u32,
    /// When it ends, in Unix seconds; 0 for never.
    pub expiry: u32,
    /// Whether it is stale.
    pub stale: bool,
    /// Whether the right to recache it was given to somebody.
    pub won: bool,
}

/// A record that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ItemRecord<'a> {
    pub(crate) image: ItemImage,
    pub(crate) epoch: u32,
    pub(crate) value: &'a [u8],
}

/// Bytes in front of the value.
pub(crate) const HEADER_BYTES: usize = 30;

const VERSION: u8 = 1;
const STALE: u8 = 1;
const WON: u8 = 2;
const CHECKED_BYTES: usize = 22;

/// The record of an item.
pub(crate) fn encode(key: &[u8], image: &ItemImage, epoch: u32, value: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER_BYTES + value.len());
    let bits = (u8::from(image.stale) * STALE) | (u8::from(image.won) * WON);
    record.extend_from_slice(&[VERSION, bits]);
    record.extend_from_slice(&image.flags.to_le_bytes());
    record.extend_from_slice(&image.expiry.to_le_bytes());
    record.extend_from_slice(&image.cas.to_le_bytes());
    record.extend_from_slice(&epoch.to_le_bytes());
    let checksum = checksum(key, &record, value);
    record.extend_from_slice(&checksum.to_le_bytes());
    record.extend_from_slice(value);
    record
}

/// Reads the record of `key`; what is wrong with it otherwise.
pub(crate) fn decode<'a>(key: &[u8], record: &'a [u8]) -> Result<ItemRecord<'a>, &'static str> {
    let (header, value) = record
        .split_at_checked(HEADER_BYTES)
        .ok_or("a record is shorter than its header")?;
    let (checked, sum) = header.split_at(CHECKED_BYTES);
    if sum != checksum(key, checked, value).to_le_bytes() {
        return Err("a record's checksum does not match");
    }
    let [version, bits, ..] = *checked else {
        return Err("a record is shorter than its header");
    };
    if version != VERSION {
        return Err("a record has an unknown version");
    }
    Ok(ItemRecord {
        image: ItemImage {
            flags: word(checked, 2),
            expiry: word(checked, 6),
            cas: u64::from(word(checked, 10)) | u64::from(word(checked, 14)) << 32,
            stale: bits & STALE != 0,
            won: bits & WON != 0,
        },
        epoch: word(checked, 18),
        value,
    })
}

/// Expiry and epoch of a record, unchecked: for compaction, which keeps what it cannot read.
pub(crate) fn peek(record: &[u8]) -> Option<(u32, u32)> {
    (record.len() >= HEADER_BYTES).then(|| (word(record, 6), word(record, 18)))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

fn checksum(key: &[u8], fields: &[u8], value: &[u8]) -> u64 {
    let of_key = XxHash3_64::oneshot(key);
    let of_both = XxHash3_64::oneshot_with_seed(of_key, fields);
    XxHash3_64::oneshot_with_seed(of_both, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a record is read as it was written, and no changed byte passes. Method: every byte of
    /// one is changed in turn, and its key.
    #[test]
    fn a_changed_record_is_found() {
        let image = ItemImage {
            cas: 0x0123_4567_89ab_cdef,
            flags: 7,
            expiry: 1_900_000_000,
            stale: true,
            won: false,
        };
        let record = encode(b"key", &image, 3, b"value");
        let read = decode(b"key", &record).unwrap();
        assert_eq!(
            (read.image, read.epoch, read.value),
            (image, 3, &b"value"[..])
        );
        assert_eq!(peek(&record), Some((1_900_000_000, 3)));
        assert!(decode(b"kez", &record).is_err());
        for at in 0..record.len() {
            let mut changed = record.clone();
            changed[at] ^= 0x10;
            assert!(decode(b"key", &changed).is_err(), "byte {at}");
        }
        assert!(decode(b"key", &record[..HEADER_BYTES - 1]).is_err());
    }
}
