//! A datagram from bytes and to bytes; its fields are those of SW-12, and the client's address
//! stands in it (SW-9).
//!
//! Invariants: a field that an opcode does not have is zero, so what is decoded encodes to the same
//! bytes; the seal is checked before anything is returned.

use curtail_types::{Cas, Key};

use super::address::{MacAddress, TierAddress};
use super::opcode::{Field, TieredFlags, TieredOpcode, TieredStatus};
use super::seal::{self, TierSecret};
use super::{DATAGRAM_BYTES_MAX, HEADER_BYTES, MAGIC, VERSION};

/// One message of the tier, borrowed from the bytes that it came in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TieredDatagram<'a> {
    /// Every number of it.
    pub head: TieredHead,
    /// The key; opcodes that have none leave it out.
    pub key: Option<Key<'a>>,
    /// The value; empty for opcodes that have none.
    pub value: &'a [u8],
}

/// The fixed part. A field that the opcode does not have is zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TieredHead {
    /// What it says.
    pub opcode: TieredOpcode,
    /// How.
    pub flags: TieredFlags,
    /// What became of the request; of replies.
    pub status: TieredStatus,
    /// How loaded the sender is, in 255ths of what it can do; of replies.
    pub load: u8,
    /// Where it goes.
    pub address: TierAddress,
    /// The sender, which a reply repeats from its request: a client's number, a back end's or
    /// a cache node's.
    pub sender: u32,
    /// The partition map that the client used, or that the replier knows (SW-13); of an item that
    /// the cache did not ask for, the key's load in requests of a segment.
    pub epoch: u32,
    /// Which of the sender's messages it is; a reply has its request's.
    pub sequence: u64,
    /// The version of the item; in a lease the cache's session; of rules that were taken, which
    /// life of the cache's rules it is: it changes when the switch has lost them.
    pub version: Cas,
    /// The session of a cache node with a back end.
    pub generation: u64,
    /// Orders messages of a session about a key; in renewals the cache's clock.
    pub number: u64,
    /// Where the client receives: IPv6, or IPv4 mapped into it.
    pub client_ip: [u8; 16],
    /// Its UDP port.
    pub client_port: u16,
    /// Its MAC address; for encoding `mac`, else zero.
    pub client_mac: MacAddress,
    /// The 32 bits that memcached's clients keep with an item.
    pub item_flags: u32,
    /// When the item ends, in Unix seconds; only with [`TieredFlags::EXPIRES`].
    pub exptime: u32,
}

/// Why bytes are no message; always the sender's fault, or the network's. None is answered.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MalformedTiered {
    /// Fewer bytes than a header.
    Short,
    /// Not this protocol.
    Magic,
    /// Another version than [`VERSION`].
    Version,
    /// An opcode that version 1 does not have.
    Opcode,
    /// A status that version 1 does not have.
    Status,
    /// A flag that is unknown, or that the opcode does not have.
    Flags,
    /// An address that is none, or of a class that the opcode does not go to.
    Address,
    /// Lengths that do not add up to the datagram, or more than a datagram may have.
    Length,
    /// A key of no or more than 250 bytes where there must be one, or one where there is none.
    Key,
    /// A field that the opcode does not have is not zero.
    Field,
    /// The checksum does not match the bytes, or a message between nodes is not sealed under the
    /// cluster's secret.
    Seal,
}

/// Why a message cannot be written.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum TieredEncodeError {
    /// The room is too small; nothing was written. Says how much is needed, in bytes.
    Room(usize),
    /// The fields do not make a message; the caller's fault.
    Malformed(MalformedTiered),
    /// A message between nodes needs the secret.
    NoSecret,
}

/// The header, word by word.
type Words = [u64; HEADER_BYTES / 8];

impl TieredHead {
    /// A head with nothing but this.
    pub const fn new(opcode: TieredOpcode, address: TierAddress) -> Self {
        Self {
            opcode,
            flags: TieredFlags::NONE,
            status: TieredStatus::Done,
            load: 0,
            address,
            sender: 0,
            epoch: 0,
            sequence: 0,
            version: Cas(0),
            generation: 0,
            number: 0,
            client_ip: [0; 16],
            client_port: 0,
            client_mac: [0; 6],
            item_flags: 0,
            exptime: 0,
        }
    }

    /// The head of the reply to this request, to the client's host address; the status, and what
    /// an item has, are the caller's to add.
    pub const fn reply(&self, to: TierAddress, status: TieredStatus) -> Self {
        let mut reply = Self::new(TieredOpcode::Reply, to);
        reply.status = status;
        reply.sender = self.sender;
        reply.epoch = self.epoch;
        reply.sequence = self.sequence;
        reply
    }

    /// The same request on its way to the back end, after a cache node had no copy (SW-19).
    #[must_use]
    pub const fn passed_on(mut self) -> Self {
        self.flags = self.flags.with(TieredFlags::FROM_CACHE);
        self.address = TierAddress::back_end(self.address.key);
        self
    }

    fn words(&self, key_bytes: u8, value_bytes: u32) -> Words {
        let [a, b, c, d, e, f] = self.client_mac;
        let mac = u64::from_le_bytes([0, 0, a, b, c, d, e, f]);
        let bytes = [self.flags.0, self.status as u8, key_bytes, self.load];
        let ip = u128::from_le_bytes(self.client_ip);
        [
            u64::from(MAGIC)
                | u64::from(VERSION) << 16
                | u64::from(self.opcode as u8) << 24
                | u64::from(u32::from_le_bytes(bytes)) << 32,
            self.address.to_word(),
            0,
            pair(self.sender, self.epoch),
            self.sequence,
            self.version.0,
            self.generation,
            self.number,
            ip as u64,
            (ip >> 64) as u64,
            mac | u64::from(self.client_port),
            pair(value_bytes, self.item_flags),
            pair(self.exptime, 0),
        ]
    }

    /// The head of some words, and the lengths of key and value.
    fn from_words(words: &Words) -> Result<(Self, usize, usize), MalformedTiered> {
        use MalformedTiered as M;
        let [
            first,
            address,
            _,
            ids,
            sequence,
            version,
            generation,
            number,
            ..,
        ] = *words;
        let [.., ip_low, ip_high, ports, item, last] = *words;
        if first as u16 != MAGIC {
            return Err(M::Magic);
        }
        let [_, _, spoken, opcode, flags, status, key_bytes, load] = first.to_le_bytes();
        if spoken != VERSION {
            return Err(M::Version);
        }
        let [_, _, mac @ ..] = ports.to_le_bytes();
        if high(last) != 0 {
            return Err(M::Field);
        }
        let ip = u128::from(ip_low) | u128::from(ip_high) << 64;
        let head = Self {
            opcode: TieredOpcode::from_number(opcode).ok_or(M::Opcode)?,
            flags: TieredFlags(flags),
            status: TieredStatus::from_number(status).ok_or(M::Status)?,
            load,
            address: TierAddress::from_word(address).ok_or(M::Address)?,
            sender: ids as u32,
            epoch: high(ids),
            sequence,
            version: Cas(version),
            generation,
            number,
            client_ip: ip.to_le_bytes(),
            client_port: ports as u16,
            client_mac: mac,
            item_flags: high(item),
            exptime: last as u32,
        };
        let value_bytes = usize::try_from(item as u32).map_err(|_| M::Length)?;
        Ok((head, usize::from(key_bytes), value_bytes))
    }

    /// Whether the fields are those of the opcode.
    fn check(&self, key_bytes: usize, value_bytes: usize) -> Result<(), MalformedTiered> {
        use MalformedTiered as M;
        if self.flags.0 & !self.opcode.flags().0 != 0 {
            return Err(M::Flags);
        }
        if !self.opcode.may_go(self.address.class, self.flags) {
            return Err(M::Address);
        }
        let has = |field| self.opcode.fields() & field != 0;
        if has(Field::KEY) != (key_bytes > 0) || key_bytes > Key::BYTES_MAX {
            return Err(M::Key);
        }
        // The switch names the cache nodes that share whatever became of the changes.
        let is_told = self.status == TieredStatus::Done || self.opcode == TieredOpcode::RulesTaken;
        let is_empty = self.flags.has(TieredFlags::GONE) || !is_told;
        if value_bytes > 0 && (!has(Field::VALUE) || is_empty) {
            return Err(M::Length);
        }
        let expires = has(Field::ITEM) && self.flags.has(TieredFlags::EXPIRES);
        let zeros = [
            has(Field::STATUS) || (self.load == 0 && self.status == TieredStatus::Done),
            has(Field::CLIENT)
                || (self.client_port == 0
                    && self.client_ip == [0; 16]
                    && self.client_mac == [0; 6]),
            has(Field::GENERATION) || self.generation == 0,
            has(Field::NUMBER) || self.number == 0,
            has(Field::VERSION) || self.version.0 == 0,
            has(Field::EPOCH) || self.epoch == 0,
            has(Field::ITEM) || self.item_flags == 0,
            expires || self.exptime == 0,
        ];
        match zeros.contains(&false) {
            true => Err(M::Field),
            false => Ok(()),
        }
    }
}

impl<'a> TieredDatagram<'a> {
    /// The message that a datagram is. Without a secret, as clients have none, no message between
    /// nodes is taken.
    pub fn decode(
        datagram: &'a [u8],
        secret: Option<&TierSecret>,
    ) -> Result<Self, MalformedTiered> {
        use MalformedTiered as M;
        let (words, body) = split(datagram).ok_or(M::Short)?;
        let (head, key_bytes, value_bytes) = TieredHead::from_words(&words)?;
        let split = body.split_at_checked(key_bytes);
        let (key, value) = split.ok_or(M::Length)?;
        if value.len() != value_bytes || datagram.len() > DATAGRAM_BYTES_MAX {
            return Err(M::Length);
        }
        head.check(key_bytes, value_bytes)?;
        let [_, _, seal, ..] = words;
        if seal_of(datagram, head.opcode, secret) != Some(seal) {
            return Err(M::Seal);
        }
        let key = match key.is_empty() {
            true => None,
            false => Some(Key::new(key).map_err(|_| M::Key)?),
        };
        Ok(Self { head, key, value })
    }

    /// Writes the message, its lengths and its seal; how many bytes it took.
    pub fn encode(
        &self,
        out: &mut [u8],
        secret: Option<&TierSecret>,
    ) -> Result<usize, TieredEncodeError> {
        use TieredEncodeError as E;
        let key = self.key.map_or(&[][..], Key::bytes);
        let bytes = HEADER_BYTES + key.len() + self.value.len();
        if bytes > DATAGRAM_BYTES_MAX {
            return Err(E::Malformed(MalformedTiered::Length));
        }
        let checked = self.head.check(key.len(), self.value.len());
        checked.map_err(E::Malformed)?;
        let room = out.get_mut(..bytes).ok_or(E::Room(bytes))?;
        // Both lengths were checked: they fit.
        let words = self.head.words(key.len() as u8, self.value.len() as u32);
        let (head, body) = room
            .split_at_mut_checked(HEADER_BYTES)
            .ok_or(E::Room(bytes))?;
        for (chunk, word) in head.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        let (key_room, value_room) = body.split_at_mut_checked(key.len()).ok_or(E::Room(bytes))?;
        key_room.copy_from_slice(key);
        value_room.copy_from_slice(self.value);
        let seal = seal_of(room, self.head.opcode, secret).ok_or(E::NoSecret)?;
        if let Some(place) = room.as_chunks_mut::<8>().0.get_mut(2) {
            *place = seal.to_le_bytes();
        }
        Ok(bytes)
    }

    /// Where a datagram goes, without a look at the rest of it: what a forwarder needs.
    #[inline]
    pub fn address(datagram: &[u8]) -> Option<TierAddress> {
        let (words, _) = split(datagram)?;
        let [first, address, ..] = words;
        let is_ours = first as u16 == MAGIC && (first >> 16) as u8 == VERSION;
        is_ours.then_some(())?;
        TierAddress::from_word(address)
    }
}

/// The seal that a datagram of this kind has; `None` if that needs the secret.
fn seal_of(datagram: &[u8], opcode: TieredOpcode, secret: Option<&TierSecret>) -> Option<u64> {
    match opcode.is_between_nodes() {
        true => seal::keyed(datagram, secret?),
        false => seal::checksum(datagram),
    }
}

fn split(bytes: &[u8]) -> Option<(Words, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let mut words = Words::default();
    for (word, chunk) in words.iter_mut().zip(head.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    Some((words, rest))
}

/// Two numbers of 32 bits in one word, the first in the lower half.
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
