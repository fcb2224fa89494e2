//! Cookies of our flows: by them a controller finds its flows again, and deletes those of one cache
//! node with one message (SW-43).
//!
//! ```text
//!   0xc2 | cache (8) | back end (16) | generation (32)     rule of a key
//!   0xca | the same                                        spread rule of a key
//!   0xc3 |     0     | back end (16) |        0            route to a back end
//!   0xc4 |         0 (24)            | host (32)           route to a host
//!   0xc6 | cache (8) |           slot (48)                 slot of senders
//!   0xc5                                                   addressed to nobody
//!   0xc1                                                   from table to table
//! ```

use curtail_codec::tiered::HostId;
use curtail_types::{BackEndId, CacheId, RuleCookie};

use crate::network::Destination;

pub(crate) const KEY: u64 = 0xc2 << 56;
const SPREAD: u64 = 0x08 << 56;
const SLOT: u64 = 0xc6 << 56;
const BACK_END: u64 = 0xc3 << 56;
const HOST: u64 = 0xc4 << 56;
pub(crate) const UNKNOWN: u64 = 0xc5 << 56;
pub(crate) const STRUCTURE: u64 = 0xc1 << 56;
/// The bits that say what kind of flow it is.
const KIND_MASK: u64 = 0xff << 56;
/// Those that all rules of keys have in common.
pub(crate) const KEY_MASK: u64 = KIND_MASK & !SPREAD;
/// Those and the cache node's.
pub(crate) const CACHE_MASK: u64 = KEY_MASK | 0xff << 48;

/// The cookie of a key's rule.
pub(crate) const fn of_rule(cookie: RuleCookie, back_end: BackEndId) -> u64 {
    let kind = if cookie.is_spread { KEY | SPREAD } else { KEY };
    kind | (cookie.cache.0 as u64) << 48 | (back_end.0 as u64) << 32 | cookie.generation as u64
}

/// All rules of a cache node, under [`CACHE_MASK`].
pub(crate) const fn of_cache(cache: CacheId) -> u64 {
    KEY | (cache.0 as u64) << 48
}

/// What [`of_rule`] was given, if it is such a cookie.
pub(crate) const fn to_rule(word: u64) -> Option<(RuleCookie, BackEndId)> {
    if word & KEY_MASK != KEY {
        return None;
    }
    let cookie = RuleCookie {
        cache: CacheId((word >> 48) as u8),
        generation: word as u32,
        is_spread: word & SPREAD != 0,
    };
    Some((cookie, BackEndId((word >> 32) as u16)))
}

/// The cookie of a slot that this cache node has.
pub(crate) const fn of_slot(cache: CacheId, slot: u16) -> u64 {
    SLOT | (cache.0 as u64) << 48 | slot as u64
}

/// The cookie of a route.
pub(crate) const fn of_route(destination: Destination) -> u64 {
    match destination {
        Destination::BackEnd(id) => BACK_END | (id.0 as u64) << 32,
        Destination::Host(id) => HOST | id.0 as u64,
    }
}

/// The route's destination, if it is such a cookie.
pub(crate) const fn to_route(word: u64) -> Option<Destination> {
    match word & KIND_MASK {
        BACK_END => Some(Destination::BackEnd(BackEndId((word >> 32) as u16))),
        HOST => Some(Destination::Host(HostId(word as u32))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: cookies lead back to what they were made of, and a masked one finds its cache's rules
    /// and no others. Method: all kinds beside each other.
    #[test]
    fn cookies_lead_back() {
        let cookie = RuleCookie {
            cache: CacheId(0xab),
            generation: 0xdead_beef,
            is_spread: false,
        };
        let word = of_rule(cookie, BackEndId(0x1234));
        assert_eq!(word, 0xc2ab_1234_dead_beef);
        assert_eq!(to_rule(word), Some((cookie, BackEndId(0x1234))));
        assert_eq!(to_route(word), None);
        assert_eq!(word & CACHE_MASK, of_cache(cookie.cache));
        let spread = RuleCookie {
            is_spread: true,
            ..cookie
        };
        let word = of_rule(spread, BackEndId(0x1234));
        assert_eq!(to_rule(word), Some((spread, BackEndId(0x1234))));
        assert_eq!(word & CACHE_MASK, of_cache(cookie.cache));
        let slot = of_slot(cookie.cache, 63);
        assert_eq!((to_rule(slot), to_route(slot)), (None, None));
        let other = RuleCookie {
            cache: CacheId(0xac),
            ..cookie
        };
        assert_ne!(
            of_rule(other, BackEndId(0)) & CACHE_MASK,
            of_cache(cookie.cache)
        );
        for route in [
            Destination::BackEnd(BackEndId(0xfffd)),
            Destination::Host(HostId(u32::MAX)),
        ] {
            assert_eq!(to_route(of_route(route)), Some(route));
            assert_eq!(to_rule(of_route(route)), None);
        }
    }
}
