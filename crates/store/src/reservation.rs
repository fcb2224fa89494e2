//! Space for a large value that the server receives directly into item memory.

use curtail_types::{Key, KeyHash, Set};

use crate::large_values::Chain;

/// Room for one value; dropping it gives the room back.
#[derive(Debug)]
pub struct Reservation {
    chain: Chain,
    key: OwnedKey,
    hash: KeyHash,
    set: Set,
    received: usize,
}

impl Reservation {
    pub(crate) fn new(chain: Chain, key: Key<'_>, hash: KeyHash, set: Set) -> Self {
        Self {
            chain,
            key: OwnedKey::new(key),
            hash,
            set,
            received: 0,
        }
    }

    pub(crate) fn into_parts(self) -> (Chain, OwnedKey, KeyHash, Set) {
        (self.chain, self.key, self.hash, self.set)
    }

    /// The next contiguous bytes to receive into; empty when the value is complete.
    pub fn spare(&mut self) -> &mut [u8] {
        self.chain.spare(self.received)
    }

    /// Notes that the first `bytes` of [`Reservation::spare`] were received.
    pub fn advance(&mut self, bytes: usize) {
        self.received += bytes;
        assert!(
            self.received <= self.chain.value_bytes,
            "no more than the spare bytes can have been received"
        );
    }

    /// Copies as much of `bytes` as still fits, and returns how much that was.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            let length = self.chain.write(self.received, &bytes[written..]);
            if length == 0 {
                break;
            }
            self.received += length;
            written += length;
        }
        written
    }

    /// Appends what was received to `into`.
    pub fn read(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.resize(start + self.received, 0);
        self.chain.read(into.get_mut(start..).unwrap_or_default());
    }

    /// The length of the value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.chain.value_bytes
    }

    /// Bytes that are still to be received.
    pub fn missing_bytes(&self) -> usize {
        self.chain.value_bytes - self.received
    }

    /// Whether every byte was received.
    pub fn is_full(&self) -> bool {
        self.received == self.chain.value_bytes
    }

    /// The key that the value is for.
    pub fn key(&self) -> Key<'_> {
        self.key.key()
    }

    /// The hash of the key.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }
}

/// A key that outlives the buffer it arrived in.
#[derive(Debug)]
pub(crate) struct OwnedKey {
    bytes: Box<[u8]>,
}

impl OwnedKey {
    fn new(key: Key<'_>) -> Self {
        Self {
            bytes: key.bytes().into(),
        }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        match Key::new(&self.bytes) {
            Ok(key) => key,
            Err(_) => unreachable!("it was made from a key"),
        }
    }
}
