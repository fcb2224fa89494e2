//! Requests: from bytes and to bytes.
//!
//! A datagram is one request, whole: [`Request::decode`]. On TCP a frame is the same bytes, and
//! [`Head::decode`] says from the first 64 of them how many follow, so that a large value can go
//! where it belongs without being gathered first.
//!
//! Invariants: a field that an opcode does not have is zero, so what is decoded encodes to the same
//! bytes; a request that is returned has a class that is not rejected.

use curtail_types::{
    Arithmetic, Cas, Delete, Direction, Exptime, Get, Key, Operation, Set, SetMode,
};

use super::{
    DATAGRAM_BYTES_MAX, HEADER_BYTES, MAGIC, VALUE_BYTES_MAX, VERSION,
    checksum::Checksum,
    early_acknowledgement_table::{Class, RequestClass},
    opcode::{Field, Flags, Opcode, SEQUENCE_MAX, SLOTS},
    words::{self, Words, high, low, pair},
};

/// A request of one client, borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Request<'a> {
    /// What is asked, and every number that belongs to it.
    pub head: Head,
    /// The key; opcodes that have none leave it out.
    pub key: Option<Key<'a>>,
    /// The value; empty for opcodes that have none.
    pub value: &'a [u8],
}

/// The fixed part of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Head {
    /// What is asked.
    pub opcode: Opcode,
    /// How.
    pub flags: Flags,
    /// In whose name.
    pub session: Session,
    /// Which of the session's slots, below [`SLOTS`].
    pub slot: u8,
    /// Which request in that slot: greater than all before, 1 to [`SEQUENCE_MAX`]; 0 in handshakes.
    pub sequence: u64,
    /// The client's own number, echoed: tells it which of its transmissions was answered.
    pub stamp: u32,
    /// When the item ends, in memcached's way: 0 never, up to 30 days from now, else Unix seconds.
    pub exptime: u32,
    /// The 32 bits that memcached's clients keep with an item.
    pub item_flags: u32,
    /// Delta, version to compare, nonce, or queue, by opcode.
    pub argument: u64,
    /// Length of the key in bytes.
    pub key_bytes: u8,
    /// Length of the value in bytes.
    pub value_bytes: u32,
    /// The checksum as it was sent; set by encoding.
    pub checksum: u64,
}

/// A session as a client names it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Session {
    /// Its place in the server's table.
    pub index: u32,
    /// How often that place was given out.
    pub generation: u32,
    /// What proves that it is the client's; the cookie in a CONFIRM.
    pub token: u64,
}

/// What every reply repeats of its request, so that the client finds it again.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Echo {
    /// The session's place.
    pub index: u32,
    /// The session's generation.
    pub generation: u32,
    /// The slot.
    pub slot: u8,
    /// The sequence number.
    pub sequence: u64,
    /// The client's own number.
    pub stamp: u32,
}

/// Why bytes are not a request; always the sender's fault, or the network's.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Malformed {
    /// Fewer bytes than a header; not answered.
    Short,
    /// Not this protocol; not answered.
    Magic,
    /// Another version than [`VERSION`].
    Version,
    /// An opcode that version 1 does not have.
    Opcode,
    /// A flag that is unknown, or that the opcode does not have.
    Flags,
    /// Marked nilext, but it is not.
    NotNilext,
    /// A fragment; large values go over TCP.
    Fragment,
    /// Lengths that do not add up to the datagram, or a key or value that the opcode does not have.
    Length,
    /// A key of no or more than 250 bytes, where there must be one.
    Key,
    /// More than a frame may hold.
    TooLarge,
    /// A field that the opcode does not have is not zero.
    Field,
    /// A slot or sequence number out of range.
    Sequence,
    /// The checksum does not match the bytes.
    Checksum,
}

/// Why a request cannot be written.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The room is too small; nothing was written. Says how much is needed, in bytes.
    Room(usize),
    /// The fields do not make a request; the caller's fault.
    Malformed(Malformed),
}

impl<'a> Request<'a> {
    /// The request that a whole datagram is.
    #[inline]
    pub fn decode(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let head = Head::decode(datagram)?;
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return Err(Malformed::TooLarge);
        }
        let body = datagram.get(HEADER_BYTES..).unwrap_or_default();
        if body.len() != head.body_bytes() {
            return Err(Malformed::Length);
        }
        let request = Self::from_parts(head, body)?;
        if Self::checksum(datagram) != Some(head.checksum) {
            return Err(Malformed::Checksum);
        }
        Ok(request)
    }

    /// The request of a head and its body, which the caller has gathered; the checksum is not
    /// looked at.
    #[inline]
    pub fn from_parts(head: Head, body: &'a [u8]) -> Result<Self, Malformed> {
        let split = body.split_at_checked(usize::from(head.key_bytes));
        let (key, value) = split.ok_or(Malformed::Length)?;
        let has_key = head.opcode.shape() & Field::KEY != 0;
        let key = match Key::new(key) {
            Ok(key) if has_key => Some(key),
            Err(_) if !has_key && key.is_empty() => None,
            _ => return Err(Malformed::Key),
        };
        if value.len() as u64 != u64::from(head.value_bytes) {
            return Err(Malformed::Length);
        }
        Ok(Self { head, key, value })
    }

    /// Writes the request, and its lengths and checksum in their places; how many bytes it took.
    /// Of a request that fits no datagram only a TCP stream can make use.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let key = self.key.map_or(&[][..], Key::bytes);
        let mut head = self.head;
        head.key_bytes = key.len() as u8;
        head.value_bytes = u32::try_from(self.value.len())
            .map_err(|_| EncodeError::Malformed(Malformed::TooLarge))?;
        head.check().map_err(EncodeError::Malformed)?;
        if (head.opcode.shape() & Field::KEY != 0) != self.key.is_some() {
            return Err(EncodeError::Malformed(Malformed::Key));
        }
        let bytes = HEADER_BYTES + head.body_bytes();
        let room = out.get_mut(..bytes).ok_or(EncodeError::Room(bytes))?;
        let mut words = head.words();
        words = sealed(words, [key, self.value]);
        let source = words::to_bytes(&words);
        words::gather(room, [&source, key, self.value]);
        Ok(bytes)
    }

    /// The checksum that a frame's bytes should carry; `None` if they are no header.
    pub fn checksum(frame: &[u8]) -> Option<u64> {
        checksum_of(frame)
    }

    /// What the store is asked; `None` for what touches no single item.
    pub fn operation(&self) -> Option<Operation> {
        let head = &self.head;
        let exptime = Exptime(i64::from(head.exptime));
        let compare = head.flags.has(Flags::COMPARE).then_some(Cas(head.argument));
        let set = |mode| {
            Operation::Set(Set {
                mode,
                flags: head.item_flags,
                exptime,
                compare,
                ..Set::default()
            })
        };
        let count = |direction| {
            Operation::Arithmetic(Arithmetic {
                direction,
                delta: head.argument,
                ..Arithmetic::default()
            })
        };
        let touch = (head.opcode != Opcode::Get).then_some(exptime);
        Some(match head.opcode {
            Opcode::Get | Opcode::GetTouch | Opcode::Touch => Operation::Get(Get {
                touch,
                ..Get::default()
            }),
            Opcode::Set => set(SetMode::Set),
            Opcode::Add => set(SetMode::Add),
            Opcode::Replace => set(SetMode::Replace),
            Opcode::Append => set(SetMode::Append),
            Opcode::Prepend => set(SetMode::Prepend),
            Opcode::Delete => Operation::Delete(Delete {
                compare,
                ..Delete::default()
            }),
            Opcode::Increment => count(Direction::Increment),
            Opcode::Decrement => count(Direction::Decrement),
            Opcode::Hello | Opcode::Confirm | Opcode::Close | Opcode::Ping | Opcode::Flush => {
                return None;
            }
        })
    }
}

impl Head {
    /// A request without key, value and expiry; the fields are there to be set.
    pub const fn new(opcode: Opcode, flags: Flags, session: Session) -> Self {
        Self {
            opcode,
            flags,
            session,
            slot: 0,
            sequence: 0,
            stamp: 0,
            exptime: 0,
            item_flags: 0,
            argument: 0,
            key_bytes: 0,
            value_bytes: 0,
            checksum: 0,
        }
    }

    /// The head that `bytes` begin with. The checksum is not looked at, since it covers what may
    /// not have arrived yet.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (words, _) = words::split(bytes).ok_or(Malformed::Short)?;
        let [
            first,
            checksum,
            name,
            token,
            sequence,
            stamp,
            lengths,
            argument,
        ] = words;
        if first as u16 != MAGIC {
            return Err(Malformed::Magic);
        }
        if (first >> 16) as u8 != VERSION {
            return Err(Malformed::Version);
        }
        let head = Self {
            opcode: Opcode::from_number((first >> 24) as u8).ok_or(Malformed::Opcode)?,
            flags: Flags((first >> 32) as u16),
            session: Session {
                index: low(name),
                generation: high(name),
                token,
            },
            slot: (first >> 48) as u8,
            sequence,
            stamp: low(stamp),
            exptime: high(stamp),
            item_flags: high(lengths),
            argument,
            key_bytes: (first >> 56) as u8,
            value_bytes: low(lengths),
            checksum,
        };
        head.check()?;
        Ok(head)
    }

    /// Its class; never rejected.
    #[inline]
    pub const fn class(&self) -> RequestClass {
        RequestClass::of(self.opcode, self.flags)
    }

    /// Bytes that follow the header: the key, then the value.
    #[inline]
    pub const fn body_bytes(&self) -> usize {
        self.key_bytes as usize + self.value_bytes as usize
    }

    /// What a reply to it repeats.
    #[inline]
    pub const fn echo(&self) -> Echo {
        Echo {
            index: self.session.index,
            generation: self.session.generation,
            slot: self.slot,
            sequence: self.sequence,
            stamp: self.stamp,
        }
    }

    /// The checksum of its header, to be given the key and the value as they come; it has to end as
    /// [`Head::checksum`] says.
    pub fn start_checksum(&self) -> Checksum {
        start_checksum(&self.words())
    }

    #[inline]
    fn check(&self) -> Result<(), Malformed> {
        let flags = self.flags;
        if flags.0 & !Flags::KNOWN != 0 {
            return Err(Malformed::Flags);
        }
        if flags.has(Flags::FRAGMENT) {
            return Err(Malformed::Fragment);
        }
        if self.class().class() == Class::Rejected {
            let unmarked = RequestClass::of(self.opcode, Flags(flags.0 & !Flags::NILEXT.0));
            return Err(match unmarked.class() {
                Class::Rejected => Malformed::Flags,
                _ if flags.has(Flags::NILEXT) => Malformed::NotNilext,
                _ => Malformed::Flags,
            });
        }
        self.check_lengths()?;
        self.check_fields()
    }

    #[inline]
    fn check_lengths(&self) -> Result<(), Malformed> {
        let shape = self.opcode.shape();
        let key_bytes = usize::from(self.key_bytes);
        let key_fits = match shape & Field::KEY {
            0 => key_bytes == 0,
            _ => (1..=Key::BYTES_MAX).contains(&key_bytes),
        };
        if !key_fits {
            return Err(Malformed::Key);
        }
        if self.value_bytes > 0 && shape & Field::VALUE == 0 {
            return Err(Malformed::Length);
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return Err(Malformed::TooLarge);
        }
        Ok(())
    }

    #[inline]
    fn check_fields(&self) -> Result<(), Malformed> {
        let compares = self.flags.has(Flags::COMPARE);
        let shape = self.opcode.shape() | if compares { Field::ARGUMENT } else { 0 };
        let has = |field: u8| shape & field == field;
        let zero = (has(Field::EXPTIME) || self.exptime == 0)
            && (has(Field::ITEM_FLAGS) || self.item_flags == 0)
            && (has(Field::ARGUMENT) || self.argument == 0)
            && (has(Field::TOKEN) || self.session.token == 0)
            && (has(Field::SESSION) || (self.session.index == 0 && self.session.generation == 0));
        if !zero {
            return Err(Malformed::Field);
        }
        let numbered = self.slot < SLOTS && (1..=SEQUENCE_MAX).contains(&self.sequence);
        let handshake = self.slot == 0 && self.sequence == 0;
        match has(Field::SESSION) {
            true if numbered => Ok(()),
            false if handshake => Ok(()),
            _ => Err(Malformed::Sequence),
        }
    }

    #[inline]
    fn words(&self) -> Words {
        let first = u64::from(MAGIC)
            | u64::from(VERSION) << 16
            | (self.opcode as u64) << 24
            | u64::from(self.flags.0) << 32
            | u64::from(self.slot) << 48
            | u64::from(self.key_bytes) << 56;
        [
            first,
            self.checksum,
            pair(self.session.index, self.session.generation),
            self.session.token,
            self.sequence,
            pair(self.stamp, self.exptime),
            pair(self.value_bytes, self.item_flags),
            self.argument,
        ]
    }
}

impl Echo {
    /// What to repeat of a datagram that could not be decoded; `None` for what is not answered.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let (words, _) = words::split(datagram)?;
        let [first, _, name, _, sequence, stamp, ..] = words;
        (first as u16 == MAGIC).then_some(Self {
            index: low(name),
            generation: high(name),
            slot: (first >> 48) as u8,
            sequence,
            stamp: low(stamp),
        })
    }
}

/// The checksum that a whole frame should carry, request or reply; `None` if it has no header.
pub(super) fn checksum_of(frame: &[u8]) -> Option<u64> {
    let (words, body) = words::split(frame)?;
    let mut checksum = start_checksum(&words);
    checksum.update(body);
    Some(checksum.finish())
}

/// The words with the checksum of themselves and of what follows them.
pub(super) fn sealed(words: Words, body: [&[u8]; 2]) -> Words {
    let mut checksum = start_checksum(&words);
    for part in body {
        checksum.update(part);
    }
    let [first, _, rest @ ..] = words;
    let [a, b, c, d, e, f] = rest;
    [first, checksum.finish(), a, b, c, d, e, f]
}

/// The checksum after the header: seeded with word 0, fed with words 2 to 7.
fn start_checksum(words: &Words) -> Checksum {
    let [first, ..] = words;
    let mut checksum = Checksum::new(*first);
    let head = words::to_bytes(words);
    checksum.update(head.get(16..).unwrap_or_default());
    checksum
}
