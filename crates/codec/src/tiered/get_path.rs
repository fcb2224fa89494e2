//! Which way a `get` takes: the network sends it by its key, or the client sends it to a cache node
//! as in systems without content-based routing (SW-67).
//!
//! The baselines exist for comparison. Nothing else depends on them: leases, updates and the choice
//! of keys are the same, because no answer depends on how a request arrives.

use curtail_types::KeyAddress;

use super::{HostId, TierAddress};

/// The way of a `get`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum GetPath {
    /// The network sends it to the cache node that has a rule for its key, or to its back end.
    #[default]
    ByKey,
    /// The client sends it to the cache node of its back end. If that has no copy, it says so, and
    /// the client asks the back end: three transits.
    LookAside {
        /// Cache nodes of the tier, at least one.
        caches: u16,
    },
    /// The client sends it to the cache node of its back end. If that has no copy, it passes the
    /// request on: two transits.
    LookThrough {
        /// Cache nodes of the tier, at least one.
        caches: u16,
    },
}

impl GetPath {
    /// Where a `get` of `key` is sent first.
    pub fn first(self, key: KeyAddress) -> TierAddress {
        match self {
            Self::ByKey => TierAddress::get(key),
            Self::LookAside { caches } | Self::LookThrough { caches } => {
                let cache = key.back_end.0.checked_rem(caches);
                cache.map_or(TierAddress::back_end(key), |cache| {
                    TierAddress::host(HostId(u32::from(cache)))
                })
            }
        }
    }
}
