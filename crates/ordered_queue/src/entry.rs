//! What a slot holds: read by the executor of the queue, and by reads that are answered from it.

use curtail_types::numbered_enum;

use crate::{
    layout::{self, FRONT_PAYLOAD_BYTES, SLOT_HEADER_WORDS, slot},
    sessions::{Peer, SessionName},
    sync::{AtomicU64, Ordering},
};

/// A published entry. Its words stay as they are until head has passed it.
#[derive(Clone, Copy, Debug)]
pub struct QueueEntry<'a> {
    pub(crate) front: &'a [AtomicU64],
    pub(crate) rest: &'a [AtomicU64],
    pub(crate) pos: u64,
}

numbered_enum! {
    /// What an entry does to its key.
    pub enum EntryKind: u8 {
        /// Nothing: a place whose request was lost.
        Noop = 0,
        /// Stores a value whatever is there; a later one of the same key makes it invisible.
        Set = 1,
        /// Something else that may depend on what is there.
        Write = 2,
    }
}

impl QueueEntry<'_> {
    /// Its position.
    #[inline]
    pub const fn pos(&self) -> u64 {
        self.pos
    }

    /// What it does.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        let number = (self.meta() >> KIND_SHIFT & 0x7f) as u8;
        EntryKind::from_number(number).unwrap_or(EntryKind::Noop)
    }

    /// Whether it was acknowledged, or is about to be, by who admitted it; otherwise its executor
    /// answers.
    #[inline]
    pub fn is_accepted(&self) -> bool {
        self.meta() & ACCEPTED_BIT != 0
    }

    /// The receive queue that it came by.
    #[inline]
    pub fn rx_queue(&self) -> u8 {
        (self.meta() >> 56) as u8
    }

    /// The opcode and flags of its request.
    #[inline]
    pub fn opcode_and_flags(&self) -> (u8, u8) {
        let meta = self.meta();
        ((meta >> 32) as u8, (meta >> 40) as u8)
    }

    /// The hash of its key.
    #[inline]
    pub fn key_hash(&self) -> u64 {
        self.word(slot::KEY_HASH)
    }

    /// When it was accepted, in nanoseconds of wall time; relative expiry counts from here (JB-4).
    #[inline]
    pub fn arrived_ns(&self) -> u64 {
        self.word(slot::ARRIVED_NS)
    }

    /// Whose it is; the low 16 bits of the generation.
    #[inline]
    pub fn session(&self) -> SessionName {
        SessionName {
            index: self.word(slot::SESSION) as u32,
            generation: (self.word(slot::SEQUENCE) >> 48) as u32,
            token: 0,
        }
    }

    /// The session's slot.
    #[inline]
    pub fn session_slot(&self) -> u8 {
        (self.word(slot::SESSION) >> 32) as u8
    }

    /// The sequence number.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.word(slot::SEQUENCE) & SEQUENCE_MASK
    }

    /// Where the answer goes.
    pub fn peer(&self) -> Peer {
        Peer {
            address: [self.word(slot::ADDRESS), self.word(slot::ADDRESS + 1)],
            port: (self.word(slot::SESSION) >> 48) as u16,
        }
    }

    /// Length of the payload in bytes.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        let bytes = (self.meta() & 0xffff) as usize;
        bytes.min(layout::PAYLOAD_BYTES_MAX)
    }

    /// The bytes that were taken of the queue's memory credits for it.
    #[inline]
    pub(crate) fn accepted_bytes(&self) -> u64 {
        match self.is_accepted() {
            true => self.payload_bytes() as u64,
            false => 0,
        }
    }

    /// Copies the payload; its length, or `None` if `out` is too short.
    #[inline]
    pub fn copy_payload(&self, out: &mut [u8]) -> Option<usize> {
        let bytes = self.payload_bytes();
        let out = out.get_mut(..bytes)?;
        let (first, others) = out.split_at_mut(bytes.min(FRONT_PAYLOAD_BYTES));
        copy_words(&self.front[SLOT_HEADER_WORDS..], first);
        copy_words(self.rest, others);
        Some(bytes)
    }

    /// Whether its key is `key`.
    pub fn has_key(&self, key: &[u8]) -> bool {
        self.key().eq(key.iter().copied())
    }

    /// Whether both have the same key: the hash first, then every byte.
    #[inline]
    pub fn same_key(&self, other: &Self) -> bool {
        self.key_hash() == other.key_hash() && self.key().eq(other.key())
    }

    fn key(&self) -> impl Iterator<Item = u8> {
        let meta = self.meta();
        let start = (meta >> 16 & 0xff) as usize;
        let bytes = (meta >> 24 & 0xff) as usize;
        let end = (start + bytes).min(layout::PAYLOAD_BYTES_MAX);
        (start..end).map(|at| self.payload_word(at / 8).to_le_bytes()[at % 8])
    }

    #[inline]
    fn meta(&self) -> u64 {
        self.word(slot::META)
    }

    #[inline]
    fn payload_word(&self, index: usize) -> u64 {
        let words = &self.front[SLOT_HEADER_WORDS..];
        let word = words.get(index);
        let word = word.unwrap_or_else(|| &self.rest[index - words.len()]);
        word.load(Ordering::Relaxed)
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.front[index].load(Ordering::Relaxed)
    }
}

#[inline]
fn copy_words(words: &[AtomicU64], out: &mut [u8]) {
    let (whole, rest) = out.as_chunks_mut::<8>();
    for (place, word) in whole.iter_mut().zip(words) {
        *place = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get(whole.len())) {
        let last = word.load(Ordering::Relaxed).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Where in the meta word the kind is.
pub(crate) const KIND_SHIFT: u32 = 48;
/// The bit of the meta word that says that the entry is acknowledged by who admitted it.
pub(crate) const ACCEPTED_BIT: u64 = 0x80 << KIND_SHIFT;
/// The bits of a sequence number, where it lies at the bottom of a word.
pub(crate) const SEQUENCE_MASK: u64 = (1 << 46) - 1;
