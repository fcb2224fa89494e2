//! What back ends and caches send each other.

use curtail_types::{Instant, RouteHash};

/// Names a session of a back end with a cache; rises with every session, across restarts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Generation(pub u64);

/// A message between a back end and its cache. It may be lost, doubled and overtaken.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum TierMessage {
    /// The cache wants the lease for its session of this number.
    Renew {
        /// Rises whenever the cache has dropped everything of this back end.
        session: u64,
        /// The cache's clock, which comes back in [`Lease`](Self::Lease).
        sent: Instant,
    },
    /// It is granted.
    Lease {
        /// For this session of the cache.
        session: u64,
        /// In this generation.
        generation: Generation,
        /// What [`Renew`](Self::Renew) said.
        sent: Instant,
    },
    /// About a copy of a key.
    OfKey(KeyMessage),
}

/// What is said of a copy of a key, in a session.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyMessage {
    /// What is said.
    pub kind: KeyMessageKind,
    /// The session.
    pub generation: Generation,
    /// The key.
    pub key: RouteHash,
    /// Of two messages of the session about one key, the higher has the later item; of an answer,
    /// the number of what it answers. 0 with a fetch.
    pub number: u64,
}

/// What is said of a copy.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum KeyMessageKind {
    /// The cache wants a copy.
    Fetch,
    /// The item as it is now, for a cache that may have no copy.
    Item,
    /// The key was written: the item as it is now, or that there is none.
    Update,
    /// The cache shall have no copy any more.
    Revoke,
    /// The cache shows nothing older than the update with this number.
    Applied,
    /// The cache has no copy, and takes none from a message with this number or a lower one.
    Dropped,
}

impl KeyMessageKind {
    /// The message that says it.
    pub const fn message(self, generation: Generation, key: RouteHash, number: u64) -> TierMessage {
        TierMessage::OfKey(KeyMessage {
            kind: self,
            generation,
            key,
            number,
        })
    }
}

impl TierMessage {
    /// The key whose item travels with the message.
    pub fn carries_image(&self) -> Option<RouteHash> {
        self.key_of(KeyMessageKind::Item)
            .or(self.key_of(KeyMessageKind::Update))
    }

    /// Its key, if it says this of one.
    pub fn key_of(&self, kind: KeyMessageKind) -> Option<RouteHash> {
        match self {
            Self::OfKey(message) if message.kind == kind => Some(message.key),
            _ => None,
        }
    }
}
