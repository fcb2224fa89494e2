//! Messages of replicas, with the item that travels with them.
//!
//! ```text
//!  byte   0        2       3           4               8
//!     0 | stage  | flags | key_bytes | message_bytes | version | numbers of the image |   with an
//!    28 | message | key | value                                                           item
//!
//!     0 | stage  | 0     | 0         | message_bytes | message                            without
//! ```
//!
//! What the message says is the machines' business (`consistency::replica`); a value comes last, so
//! that it can be written in place.

use curtail_types::{Cas, Key};

use super::{
    frame_items::{BodyItem, Image},
    words::{Reader, Writer},
};

/// A message from the machine of one node to that of another.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReplicaPart<'a> {
    /// Which of a node's machines it is from, and for.
    pub stage: u16,
    /// What it says; never empty.
    pub message: &'a [u8],
    /// The item that travels with it. A change without one removes its key.
    pub item: Option<ReplicaItem<'a>>,
}

/// A key with its item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReplicaItem<'a> {
    /// The version of the item, which may be later than that of the message.
    pub version: Cas,
    /// The key.
    pub key: Key<'a>,
    /// What else there is to the item.
    pub image: Image<'a>,
}

impl<'a> BodyItem<'a> for ReplicaPart<'a> {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader::new(bytes);
        let (stage, flags, key_bytes) = (reader.u16()?, reader.byte()?, reader.byte()?);
        let message_bytes = reader.length().filter(|&bytes| bytes > 0)?;
        if flags & PRESENT == 0 {
            let message = reader.bytes(message_bytes)?;
            let part = Self {
                stage,
                message,
                item: None,
            };
            return (flags == 0 && key_bytes == 0).then_some((part, reader.rest()));
        }
        if flags & !(PRESENT | STALE | WON) != 0 {
            return None;
        }
        let version = Cas(reader.u64()?);
        let (client_flags, expiry, value_bytes) = (reader.u32()?, reader.u32()?, reader.length()?);
        let message = reader.bytes(message_bytes)?;
        let key = Key::new(reader.bytes(usize::from(key_bytes))?).ok()?;
        let image = Image {
            client_flags,
            expiry,
            stale: flags & STALE != 0,
            won: flags & WON != 0,
            value: reader.bytes(value_bytes)?,
        };
        let item = ReplicaItem {
            version,
            key,
            image,
        };
        let part = Self {
            stage,
            message,
            item: Some(item),
        };
        Some((part, reader.rest()))
    }
}

impl ReplicaPart<'_> {
    /// Its bytes but for the value.
    #[inline]
    pub(super) const fn head_bytes(&self) -> usize {
        let item_bytes = match &self.item {
            Some(item) => ITEM_HEAD_BYTES + item.key.bytes().len(),
            None => 0,
        };
        HEAD_BYTES + self.message.len() + item_bytes
    }

    pub(super) fn write_head(&self, writer: &mut Writer<'_>, value_bytes: usize) -> Option<()> {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let (flags, key) = match &self.item {
            Some(ReplicaItem { key, image, .. }) => {
                let marks = bit(image.stale, STALE) | bit(image.won, WON);
                (PRESENT | marks, key.bytes())
            }
            None => (0, &[][..]),
        };
        if self.message.is_empty() {
            return None;
        }
        writer.u16(self.stage)?;
        writer.bytes(&[flags, u8::try_from(key.len()).ok()?])?;
        writer.length(self.message.len())?;
        if let Some(item) = &self.item {
            writer.u64(item.version.0)?;
            writer.u32(item.image.client_flags)?;
            writer.u32(item.image.expiry)?;
            writer.length(value_bytes)?;
        }
        writer.bytes(self.message)?;
        writer.bytes(key)
    }
}

/// What every part begins with.
const HEAD_BYTES: usize = 8;

/// What one with an item has before its message.
const ITEM_HEAD_BYTES: usize = 20;

/// Bits of the flags.
const PRESENT: u8 = 1;
const STALE: u8 = 2;
const WON: u8 = 4;
