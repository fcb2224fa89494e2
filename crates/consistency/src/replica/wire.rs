//! Messages of replicas as bytes, little-endian, without padding.
//!
//! ```text
//!   kind u8 | 1 slice u16, term u32, prev u64, seq u64, committed u64, asked u64, key u64,
//!           |   version u64, room u32, change kind u8                            Append
//!           | 2 slice u16, term u32, seq u64                                     Applied
//!           | 3 slice u16, term u32                                              TailWanted
//!           | 4 slice u16, term u32, seen u64, flushed u64, keys u64 each        Tail
//!           | 5 number u64, held u64, wanted u64                                 RoomWanted
//!           | 6 number u64, bytes u64, grows u8                                  Room
//!           | 7 view u32, key u64, version u64, copy kind u8                     Copy
//!           | 8 view u32    9 view u32    10 bytes u64           Entered, EnteredWanted, Evict
//!           | 11 as 7, and copies u8, which is not 0                             Copy
//! ```
//!
//! What is decoded is canonical: encoding it again gives the same bytes. Only the keys of a tail
//! are allocated, at most as many as arrived.

use alloc::vec::Vec;

use super::message::{Append, ChangeKind, CopyKind, CopyMessage, ReplicaMessage, SliceChange};
use crate::wire::{Wire, wire_enum, wire_structs};

wire_enum! {
    ReplicaMessage {
        1 = Append(append),
        2 = Applied { slice, term, seq },
        3 = TailWanted { slice, term },
        4 = Tail { slice, term, seen, flushed, keys },
        5 = RoomWanted { number, held, wanted },
        6 = Room { number, bytes, grows },
        7 = Copy(copy),
        8 = Entered(view),
        9 = EnteredWanted(view),
        10 = Evict(evicted),
    }
}

/// A copy message that says how many nodes have the write.
const COUNTED_COPY: u8 = 11;

wire_structs! {
    Append { slice, term, prev, seq, committed, asked, change }
    SliceChange { key, version, room, kind }
}

impl ReplicaMessage {
    /// Appends its bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Copy(copy) if copy.copies != 0 => {
                bytes.push(COUNTED_COPY);
                copy.put(bytes);
                bytes.push(copy.copies);
            }
            _ => self.put(bytes),
        }
    }

    /// The message that `bytes` are, all of them; `None` if they are none.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let message = match bytes.split_first()? {
            (&COUNTED_COPY, counted) => {
                bytes = counted;
                let copy = CopyMessage::take(&mut bytes)?;
                let copies = u8::take(&mut bytes).filter(|copies| *copies != 0)?;
                Self::Copy(CopyMessage { copies, ..copy })
            }
            _ => Self::take(&mut bytes)?,
        };
        bytes.is_empty().then_some(message)
    }
}

/// Without how many nodes have the write.
impl Wire for CopyMessage {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.view.put(bytes);
        self.key.put(bytes);
        self.version.put(bytes);
        self.kind.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let view = Wire::take(bytes)?;
        let of = (Wire::take(bytes)?, Wire::take(bytes)?);
        Some(Self::new(view, of, Wire::take(bytes)?))
    }
}

impl Wire for CopyKind {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push(*self as u8);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Self::from_number(u8::take(bytes)?)
    }
}

impl Wire for ChangeKind {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push(*self as u8);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Self::from_number(u8::take(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{Cas, RouteHash, ViewNumber};
    use curtail_workload::Random;

    use super::*;
    use crate::slice_view::SliceId;

    fn draw(random: &mut Random) -> ReplicaMessage {
        let mut word = |bound: u64| match random.below(4) {
            0 => 0,
            1 => bound - 1,
            _ => random.below(bound),
        };
        let slice = SliceId(word(1 << 16) as u16);
        let (term, version) = (ViewNumber(word(1 << 32) as u32), Cas(word(u64::MAX)));
        let (seq, number) = (word(u64::MAX), word(u64::MAX));
        match word(10) {
            0 => ReplicaMessage::Append(Append {
                slice,
                term,
                prev: number,
                seq,
                committed: word(u64::MAX),
                asked: word(u64::MAX),
                change: SliceChange {
                    key: RouteHash(word(u64::MAX)),
                    kind: ChangeKind::ALL[word(4) as usize],
                    version,
                    room: word(1 << 32) as u32,
                },
            }),
            1 => ReplicaMessage::Applied { slice, term, seq },
            2 => ReplicaMessage::TailWanted { slice, term },
            3 => ReplicaMessage::Tail {
                slice,
                term,
                keys: (0..word(20)).map(|key| RouteHash(key ^ number)).collect(),
                seen: version,
                flushed: Cas(seq),
            },
            4 => ReplicaMessage::RoomWanted {
                number,
                held: seq,
                wanted: word(u64::MAX),
            },
            5 => ReplicaMessage::Room {
                number,
                bytes: seq,
                grows: word(2) == 1,
            },
            6 => ReplicaMessage::Copy(CopyMessage {
                view: term,
                key: RouteHash(number),
                version,
                kind: CopyKind::ALL[word(9) as usize],
                copies: word(64) as u8,
            }),
            7 => ReplicaMessage::Entered(term),
            8 => ReplicaMessage::EnteredWanted(term),
            _ => ReplicaMessage::Evict(number),
        }
    }

    #[test]
    fn a_message_decodes_to_what_was_encoded_and_no_other_length_does() {
        let mut random = Random::new(1);
        let mut kinds = alloc::collections::BTreeSet::new();
        for _ in 0..5000 {
            let message = draw(&mut random);
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            kinds.insert(bytes[0]);
            assert_eq!(ReplicaMessage::decode(&bytes), Some(message));
            assert_eq!(ReplicaMessage::decode(&bytes[..bytes.len() - 1]), None);
            bytes.push(0);
            assert_eq!(ReplicaMessage::decode(&bytes), None);
        }
        assert_eq!(kinds.len(), 11);
        assert_eq!(ReplicaMessage::decode(&[]), None);
    }

    /// Whatever is understood is canonical.
    #[test]
    fn bytes_of_any_kind_are_understood_as_what_they_are_or_not_at_all() {
        let mut random = Random::new(2);
        let mut understood = 0;
        for _ in 0..50_000 {
            let length = random.below(60) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            if let Some(first) = bytes.first_mut() {
                *first %= 13;
            }
            let Some(message) = ReplicaMessage::decode(&bytes) else {
                continue;
            };
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(again, bytes);
            understood += 1;
        }
        assert!(understood > 500, "{understood}");
    }
}
