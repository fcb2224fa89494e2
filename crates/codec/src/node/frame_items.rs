//! What stands in the bodies of frames, item behind item.
//!
//! Every item is a head of fixed length, then perhaps a key, then perhaps a *payload* (a value, a
//! request, an answer), which comes last so that a caller that has it in
//! pieces can write it in place. Lengths stand in the heads; nothing is aligned.

use core::marker::PhantomData;

use curtail_types::{ViewNumber, numbered_enum};

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
    /// How many nodes in sync have what it shows; 0 if the answering node does not say.
    pub copies: u8,
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

impl<'a> BodyItem<'a> for NodeRequest<'a> {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (number, [options, 0], (bytes, rest)) = take_numbered(bytes)? else {
            return None;
        };
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
        let (number, [status, copies], (bytes, rest)) = take_numbered(bytes)?;
        let status = AnswerStatus::from_number(status)?;
        let item = Self {
            number,
            status,
            copies,
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

/// A payload, and what follows it.
type Payload<'a> = (&'a [u8], &'a [u8]);

#[inline]
fn take_numbered(bytes: &[u8]) -> Option<(u32, [u8; 2], Payload<'_>)> {
    let mut reader = Reader::new(bytes);
    let (number, length) = (reader.u32()?, reader.length()?);
    let words = [reader.byte()?, reader.byte()?];
    reader.zero::<2>()?;
    let payload = reader.bytes(length)?;
    Some((number, words, (payload, reader.rest())))
}

pub(super) fn write_numbered(
    writer: &mut Writer<'_>,
    (number, [first, second]): (u32, [u8; 2]),
    payload_bytes: usize,
) -> Option<()> {
    writer.u32(number)?;
    writer.length(payload_bytes)?;
    writer.bytes(&[first, second, 0, 0])
}
