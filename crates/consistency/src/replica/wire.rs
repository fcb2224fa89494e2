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

use curtail_types::{Cas, RouteHash, ViewNumber};

use super::message::{Append, ChangeKind, CopyKind, CopyMessage, ReplicaMessage, SliceChange};
use crate::{byte_reader::ByteReader, slice_view::SliceId};

impl ReplicaMessage {
    /// Appends its bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Append(append) => append.encode(bytes),
            &Self::Applied { slice, term, seq } => {
                put_slice(bytes, APPLIED, slice, term);
                bytes.extend(seq.to_le_bytes());
            }
            &Self::TailWanted { slice, term } => put_slice(bytes, TAIL_WANTED, slice, term),
            Self::Tail {
                slice,
                term,
                keys,
                seen,
                flushed,
            } => {
                put_slice(bytes, TAIL, *slice, *term);
                put(bytes, &[seen.0, flushed.0]);
                bytes.extend(keys.iter().flat_map(|key| key.0.to_le_bytes()));
            }
            &Self::RoomWanted {
                number,
                held,
                wanted,
            } => {
                bytes.push(ROOM_WANTED);
                put(bytes, &[number, held, wanted]);
            }
            &Self::Room {
                number,
                bytes: granted,
                grows,
            } => {
                bytes.push(ROOM);
                put(bytes, &[number, granted]);
                bytes.push(u8::from(grows));
            }
            Self::Copy(copy) => {
                bytes.push(if copy.copies == 0 { COPY } else { COUNTED_COPY });
                bytes.extend(copy.view.0.to_le_bytes());
                put(bytes, &[copy.key.0, copy.version.0]);
                bytes.push(copy.kind as u8);
                bytes.extend((copy.copies != 0).then_some(copy.copies));
            }
            &Self::Entered(view) => {
                bytes.push(ENTERED);
                bytes.extend(view.0.to_le_bytes());
            }
            &Self::EnteredWanted(view) => {
                bytes.push(ENTERED_WANTED);
                bytes.extend(view.0.to_le_bytes());
            }
            &Self::Evict(evicted) => {
                bytes.push(EVICT);
                put(bytes, &[evicted]);
            }
        }
    }

    /// The message that `bytes` are, all of them; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let message = match reader.byte()? {
            APPEND => Self::Append(Append::take(&mut reader)?),
            APPLIED => Self::Applied {
                slice: take_slice(&mut reader)?,
                term: take_view(&mut reader)?,
                seq: reader.u64()?,
            },
            TAIL_WANTED => Self::TailWanted {
                slice: take_slice(&mut reader)?,
                term: take_view(&mut reader)?,
            },
            TAIL => return take_tail(reader),
            ROOM_WANTED => Self::RoomWanted {
                number: reader.u64()?,
                held: reader.u64()?,
                wanted: reader.u64()?,
            },
            ROOM => Self::Room {
                number: reader.u64()?,
                bytes: reader.u64()?,
                grows: reader.flag()?,
            },
            kind @ (COPY | COUNTED_COPY) => Self::Copy(CopyMessage {
                view: take_view(&mut reader)?,
                key: RouteHash(reader.u64()?),
                version: Cas(reader.u64()?),
                kind: CopyKind::from_number(reader.byte()?)?,
                copies: match kind {
                    COPY => 0,
                    _ => reader.byte().filter(|copies| *copies != 0)?,
                },
            }),
            ENTERED => Self::Entered(take_view(&mut reader)?),
            ENTERED_WANTED => Self::EnteredWanted(take_view(&mut reader)?),
            EVICT => Self::Evict(reader.u64()?),
            _ => return None,
        };
        reader.is_empty().then_some(message)
    }
}

impl Append {
    fn encode(&self, bytes: &mut Vec<u8>) {
        put_slice(bytes, APPEND, self.slice, self.term);
        let change = &self.change;
        put(bytes, &[self.prev, self.seq, self.committed, self.asked]);
        put(bytes, &[change.key.0, change.version.0]);
        bytes.extend(change.room.to_le_bytes());
        bytes.push(change.kind as u8);
    }

    fn take(reader: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self {
            slice: take_slice(reader)?,
            term: take_view(reader)?,
            prev: reader.u64()?,
            seq: reader.u64()?,
            committed: reader.u64()?,
            asked: reader.u64()?,
            change: SliceChange {
                key: RouteHash(reader.u64()?),
                version: Cas(reader.u64()?),
                room: reader.u32()?,
                kind: ChangeKind::from_number(reader.byte()?)?,
            },
        })
    }
}

const APPEND: u8 = 1;
const APPLIED: u8 = 2;
const TAIL_WANTED: u8 = 3;
const TAIL: u8 = 4;
const ROOM_WANTED: u8 = 5;
const ROOM: u8 = 6;
const COPY: u8 = 7;
const ENTERED: u8 = 8;
const ENTERED_WANTED: u8 = 9;
const EVICT: u8 = 10;
const COUNTED_COPY: u8 = 11;

fn put(bytes: &mut Vec<u8>, numbers: &[u64]) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn put_slice(bytes: &mut Vec<u8>, kind: u8, slice: SliceId, term: ViewNumber) {
    bytes.push(kind);
    bytes.extend(slice.0.to_le_bytes());
    bytes.extend(term.0.to_le_bytes());
}

fn take_slice(reader: &mut ByteReader<'_>) -> Option<SliceId> {
    reader.u16().map(SliceId)
}

fn take_view(reader: &mut ByteReader<'_>) -> Option<ViewNumber> {
    reader.u32().map(ViewNumber)
}

fn take_tail(mut reader: ByteReader<'_>) -> Option<ReplicaMessage> {
    let (slice, term) = (take_slice(&mut reader)?, take_view(&mut reader)?);
    let (seen, flushed) = (Cas(reader.u64()?), Cas(reader.u64()?));
    let (keys, rest) = reader.rest().as_chunks::<8>();
    let key = |bytes: &[u8; 8]| RouteHash(u64::from_le_bytes(*bytes));
    rest.is_empty().then(|| ReplicaMessage::Tail {
        slice,
        term,
        keys: keys.iter().map(key).collect(),
        seen,
        flushed,
    })
}

#[cfg(test)]
mod tests {
    use curtail_workload::Random;

    use super::*;

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
