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
    /// The cache wants a copy.
    Fetch {
        /// The session.
        generation: Generation,
        /// The key.
        key: RouteHash,
    },
    /// The item as it is now, for a cache that may have no copy.
    Item {
        /// The session.
        generation: Generation,
        /// The key.
        key: RouteHash,
        /// Of two messages of the session about one key, the higher has the later item.
        number: u64,
    },
    /// The key was written: the item as it is now, or that there is none.
    Update {
        /// The session.
        generation: Generation,
        /// The key.
        key: RouteHash,
        /// Counted like that of an item.
        number: u64,
    },
    /// The cache shall have no copy any more.
    Revoke {
        /// The session.
        generation: Generation,
        /// The key.
        key: RouteHash,
        /// Counted like that of an item.
        number: u64,
    },
    /// The cache shows nothing older than the update with this number.
    Applied {
        /// The session.
        generation: Generation,
        /// The key.
        key: RouteHash,
        /// The update's.
        number: u64,
    },
    /// The cache has no copy, and takes none from a message with this number or a lower one.
    Dropped {
        /// The session.
        generation: Generation,
        /// The key.
        key: RouteHash,
        /// The number.
        number: u64,
    },
}

impl TierMessage {
    /// The key whose item travels with the message.
    pub const fn carries_image(&self) -> Option<RouteHash> {
        match self {
            Self::Item { key, .. } | Self::Update { key, .. } => Some(*key),
            _ => None,
        }
    }
}
