//! What stands in the bodies of frames, item behind item.
//!
//! Every item is a head of fixed length, then perhaps a key, then perhaps a *payload* (a value, a
//! request, an answer), which comes last so that it can be written in place by whoever has it in
//! pieces. Lengths stand in the heads; nothing is aligned.

use core::marker::PhantomData;

use curtail_types::{
    Cas, HotEpoch, Key, Message, MessageKind, RouteHash, ViewNumber, numbered_enum,
};

use super::words::{Reader, Writer};

/// An item as it is copied from node to node: what a store keeps of it but for its version.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Image<'a> {
    /// The 32 bits that clients keep with it.
    pub client_flags: u32,
    /// When it ends, in Unix seconds; 0 never.
    pub expiry: u32,
    /// It was marked stale.
    pub stale: bool,
    /// Somebody won the right to refresh it.
    pub won: bool,
    /// The value.
    pub value: &'a [u8],
}

/// A message of the consistency protocol, with the key and the value that go with it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct KeyMessage<'a> {
    /// The key's hash.
    pub route: RouteHash,
    /// What it says.
    pub message: Message,
    /// The key.
    pub key: Key<'a>,
    /// The value; `None` if the kind carries none, or if the key has no item.
    pub image: Option<Image<'a>>,
}

/// A request that another node shall carry out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NodeRequest<'a> {
    /// Which one of its parcel.
    pub number: u32,
    /// How the bytes are to be decoded; the two servers' business.
    pub options: u8,
    /// What is asked: an [`ItemRequest`](super::ItemRequest), or when to flush.
    pub bytes: &'a [u8],
}

/// What came of a [`NodeRequest`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NodeAnswer<'a> {
    /// Which one of its parcel.
    pub number: u32,
    /// How it ended.
    pub status: AnswerStatus,
    /// An [`ItemAnswer`](super::ItemAnswer), or why there is none.
    pub bytes: &'a [u8],
}

numbered_enum! {
    /// How a request to another node ended. The number is what travels.
    pub enum AnswerStatus: u8 {
        /// It was carried out; how it ended is here.
        Done = 0,
        /// The key is elsewhere in the answerer's view; it had no effect.
        Moved = 1,
        /// It has no outcome; one byte says why.
        Failed = 2,
        /// As `Done`; before it stands the version of the write that it shows, 8 bytes.
        Shown = 3,
        /// It was refused; one byte has the replica's reason.
        Refused = 4,
    }
}

/// A key that changes its home, with its item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct KeyMove<'a> {
    /// The key's hash.
    pub route: RouteHash,
    /// The item's version.
    pub ts: Cas,
    /// The key.
    pub key: Key<'a>,
    /// The item; `None` if there is none (any more).
    pub image: Option<Image<'a>>,
}

/// A key that its new home asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct KeyRequest<'a> {
    /// The key's hash.
    pub route: RouteHash,
    /// The key.
    pub key: Key<'a>,
}

/// What stands before the items of a batch.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct BatchHead {
    /// Which batch or parcel, among those of its sender; an answer repeats it.
    pub number: u64,
    /// The view of the sender.
    pub view: ViewNumber,
}

/// Something that stands in bodies, many in one.
pub trait BodyItem<'a>: Sized {
    /// Takes one item off the front; what follows it. `None` if the bytes begin with none.
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])>;
}

/// The items of a body. They were all looked at before, so walking them cannot fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BodyItems<'a, T> {
    bytes: &'a [u8],
    item: PhantomData<T>,
}

impl<'a, T: BodyItem<'a>> BodyItems<'a, T> {
    /// The items that `bytes` are; `None` if they are not whole items, or none.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (_, mut rest) = T::take(bytes)?;
        while !rest.is_empty() {
            (_, rest) = T::take(rest)?;
        }
        let item = PhantomData;
        Some(Self { bytes, item })
    }
}

impl<'a, T: BodyItem<'a>> Iterator for BodyItems<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let (item, rest) = T::take(self.bytes)?;
        self.bytes = rest;
        Some(item)
    }
}

impl<'a> BodyItem<'a> for KeyMessage<'a> {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader::new(bytes);
        let route = RouteHash(reader.u64()?);
        let (ts, epoch) = (Cas(reader.u64()?), HotEpoch(reader.u64()?));
        let view = ViewNumber(reader.u32()?);
        let kind = MessageKind::from_number(reader.byte()?)?;
        let (key, image) = take_key_and_image(&mut reader)?;
        let item = Self {
            route,
            message: Message {
                kind,
                view,
                epoch,
                ts,
            },
            key,
            image,
        };
        Some((item, reader.rest()))
    }
}

impl KeyMessage<'_> {
    pub(super) const HEAD_BYTES: usize = 29 + KEY_HEAD_BYTES;

    pub(super) fn write_head(&self, writer: &mut Writer<'_>, value_bytes: usize) -> Option<()> {
        writer.u64(self.route.0)?;
        writer.u64(self.message.ts.0)?;
        writer.u64(self.message.epoch.0)?;
        writer.u32(self.message.view.0)?;
        writer.byte(self.message.kind as u8)?;
        write_key_and_image(writer, self.key, self.image, value_bytes)
    }
}

impl<'a> BodyItem<'a> for KeyMove<'a> {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader::new(bytes);
        let (route, ts) = (RouteHash(reader.u64()?), Cas(reader.u64()?));
        let (key, image) = take_key_and_image(&mut reader)?;
        let item = Self {
            route,
            ts,
            key,
            image,
        };
        Some((item, reader.rest()))
    }
}

impl KeyMove<'_> {
    pub(super) const HEAD_BYTES: usize = 16 + KEY_HEAD_BYTES;

    pub(super) fn write_head(&self, writer: &mut Writer<'_>, value_bytes: usize) -> Option<()> {
        writer.u64(self.route.0)?;
        writer.u64(self.ts.0)?;
        write_key_and_image(writer, self.key, self.image, value_bytes)
    }
}

impl<'a> BodyItem<'a> for KeyRequest<'a> {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader::new(bytes);
        let route = RouteHash(reader.u64()?);
        let (key, image) = take_key_and_image(&mut reader)?;
        let item = Self { route, key };
        image.is_none().then_some((item, reader.rest()))
    }
}

impl KeyRequest<'_> {
    pub(super) const HEAD_BYTES: usize = 8 + KEY_HEAD_BYTES;

    pub(super) fn write_head(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u64(self.route.0)?;
        write_key_and_image(writer, self.key, None, 0)
    }
}

impl<'a> BodyItem<'a> for NodeRequest<'a> {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (number, options, bytes, rest) = take_numbered(bytes)?;
        let item = Self {
            number,
            options,
            bytes,
        };
        Some((item, rest))
    }
}

impl<'a> BodyItem<'a> for NodeAnswer<'a> {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (number, status, bytes, rest) = take_numbered(bytes)?;
        let status = AnswerStatus::from_number(status)?;
        let item = Self {
            number,
            status,
            bytes,
        };
        Some((item, rest))
    }
}

impl BatchHead {
    pub(super) fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let (number, view) = (reader.u64()?, ViewNumber(reader.u32()?));
        reader.zero::<4>()?;
        Some(Self { number, view })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u64(self.number)?;
        writer.u32(self.view.0)?;
        writer.u32(0)
    }
}

/// The head of a [`NodeRequest`] or a [`NodeAnswer`].
pub(super) const NUMBERED_HEAD_BYTES: usize = 12;

#[inline]
fn take_numbered(bytes: &[u8]) -> Option<(u32, u8, &[u8], &[u8])> {
    let mut reader = Reader::new(bytes);
    let (number, length, byte) = (reader.u32()?, reader.length()?, reader.byte()?);
    reader.zero::<3>()?;
    let payload = reader.bytes(length)?;
    Some((number, byte, payload, reader.rest()))
}

pub(super) fn write_numbered(
    writer: &mut Writer<'_>,
    (number, byte): (u32, u8),
    payload_bytes: usize,
) -> Option<()> {
    writer.u32(number)?;
    writer.length(payload_bytes)?;
    writer.bytes(&[byte, 0, 0, 0])
}

/// Length of a key and what is known of its item.
const KEY_HEAD_BYTES: usize = 3;

/// What an image has before its value.
pub(super) const IMAGE_HEAD_BYTES: usize = 12;

/// Bits of an item's flags.
const PRESENT: u8 = 1;
const STALE: u8 = 2;
const WON: u8 = 4;

/// `key_bytes u8, flags u8, zero u8`, the image's numbers if there is one, the key, the value.
#[inline]
fn take_key_and_image<'a>(reader: &mut Reader<'a>) -> Option<(Key<'a>, Option<Image<'a>>)> {
    let (key_bytes, flags) = (reader.byte()?, reader.byte()?);
    reader.zero::<1>()?;
    if flags & PRESENT == 0 {
        let key = Key::new(reader.bytes(usize::from(key_bytes))?).ok()?;
        return (flags == 0).then_some((key, None));
    }
    if flags & !(PRESENT | STALE | WON) != 0 {
        return None;
    }
    let (client_flags, expiry, value_bytes) = (reader.u32()?, reader.u32()?, reader.length()?);
    let key = Key::new(reader.bytes(usize::from(key_bytes))?).ok()?;
    let image = Image {
        client_flags,
        expiry,
        stale: flags & STALE != 0,
        won: flags & WON != 0,
        value: reader.bytes(value_bytes)?,
    };
    Some((key, Some(image)))
}

fn write_key_and_image(
    writer: &mut Writer<'_>,
    key: Key<'_>,
    image: Option<Image<'_>>,
    value_bytes: usize,
) -> Option<()> {
    let key = key.bytes();
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    let flags = image.map_or(0, |image| {
        PRESENT | bit(image.stale, STALE) | bit(image.won, WON)
    });
    writer.byte(u8::try_from(key.len()).ok()?)?;
    writer.bytes(&[flags, 0])?;
    if let Some(image) = image {
        writer.u32(image.client_flags)?;
        writer.u32(image.expiry)?;
        writer.length(value_bytes)?;
    }
    writer.bytes(key)
}
