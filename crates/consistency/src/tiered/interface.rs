//! What a back end and a cache are told, and what they ask of their hosts.

use curtail_types::{Access, BackEndId, CacheId, Instant, RouteHash};

use super::message::TierMessage;
use crate::lease::LeaseTerms;
use crate::replica::Ticket;

/// What a back end is made with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BackEndConfig {
    /// How leases are counted; the same at the caches.
    pub terms: LeaseTerms,
    /// Above every incarnation that this back end had before, below 2^32.
    pub incarnation: u64,
    /// Keys that the cache may have of it.
    pub entries_max: usize,
    /// Requests that may wait at a time; beyond, they are refused.
    pub waiting_max: usize,
    /// After how long without an answer an update is sent again.
    pub retransmit_ns: u64,
    /// After how long without an answer to an update the lease is renewed no more.
    pub patience_ns: u64,
}

impl BackEndConfig {
    /// A lease of `lease_ns` and what goes well with it: updates are repeated every 10 ms, and the
    /// lease is renewed no more after half a lease without an answer.
    pub const fn with_lease(incarnation: u64, lease_ns: u64) -> Self {
        Self {
            terms: LeaseTerms::of(lease_ns),
            incarnation,
            entries_max: 65_536,
            waiting_max: 1024,
            retransmit_ns: 10_000_000,
            patience_ns: lease_ns / 2,
        }
    }
}

/// What a cache is made with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CacheConfig {
    /// How leases are counted; the same at the back ends.
    pub terms: LeaseTerms,
    /// Above every incarnation that this cache had before, below 2^32.
    pub incarnation: u64,
    /// Between two renewals of a lease.
    pub renew_ns: u64,
}

impl CacheConfig {
    /// A lease of `lease_ns`, renewed five times in that time.
    pub const fn with_lease(incarnation: u64, lease_ns: u64) -> Self {
        Self {
            terms: LeaseTerms::of(lease_ns),
            incarnation,
            renew_ns: lease_ns / 5,
        }
    }
}

/// A request, as a back end sees it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TierRequest {
    /// What the host calls it.
    pub ticket: Ticket,
    /// The key.
    pub key: RouteHash,
    /// What it does.
    pub access: Access,
}

/// Why a request was refused. It had no effect.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum TierRefusal {
    /// Too much waits already.
    Busy,
    /// The back end has restarted, and leases that it granted before may still hold.
    Restarted,
}

/// Something that happened at a back end.
#[derive(Clone, Copy, Debug)]
pub enum BackEndEvent<'a> {
    /// Time has come (its deadline).
    Tick,
    /// A request.
    Request(TierRequest),
    /// A message of a cache.
    Message(CacheId, &'a TierMessage),
    /// This key bursts: an instant report (SW-58).
    Report(RouteHash),
    /// The store has changed this key without a request.
    Changed(RouteHash),
    /// It reports to this cache from now on (SW-41, SW-65).
    Assign(CacheId),
    /// This cache may have copies besides the one that it reports to (CC-81).
    Join(CacheId),
    /// Every item is to be removed.
    Flush(Ticket),
}

/// What a back end asks of its host. The host performs each call before it returns.
pub trait BackEndHost {
    /// Runs a request on the store and keeps its answer; whether it changed the item.
    fn run(&mut self, request: &TierRequest) -> bool;

    /// Removes every item, and keeps the answer to these flushes.
    fn clear(&mut self, asked: &[Ticket]);

    /// The answer that [`run`](Self::run) or [`clear`](Self::clear) left goes to the requester.
    fn respond(&mut self, ticket: Ticket);

    /// The requester is told why there is no answer.
    fn refuse(&mut self, ticket: Ticket, refusal: TierRefusal);

    /// Whether there is an item.
    fn has(&self, key: RouteHash) -> bool;

    /// Sends a message; one that [carries an image](TierMessage::carries_image) with the item as it
    /// is now, once that is as durable as answers promise.
    fn send(&mut self, to: CacheId, message: &TierMessage);

    /// The time.
    fn now(&self) -> Instant;
}

/// Something that happened at a cache.
#[derive(Clone, Copy, Debug)]
pub enum CacheEvent<'a> {
    /// Time has come (its deadline).
    Tick,
    /// A message of a back end; its image, if its kind carries one, is the host's *incoming* one.
    Message(BackEndId, &'a TierMessage),
    /// This back end reports here from now on.
    Join(BackEndId),
    /// It does not any more.
    Leave(BackEndId),
    /// A copy is wanted.
    Fetch(BackEndId, RouteHash),
    /// A copy is wanted no more.
    Evict(BackEndId, RouteHash),
}

/// What a cache asks of its host. The host performs each call before it returns.
pub trait CacheHost {
    /// Sends a message.
    fn send(&mut self, to: BackEndId, message: &TierMessage);

    /// Whether the item that came is wanted and there is room for it.
    fn admits(&mut self, from: BackEndId, key: RouteHash) -> bool;

    /// Whether the message that came has an item; else the key is gone.
    fn has_incoming(&self) -> bool;

    /// The incoming item is the copy that readers see from now on.
    fn store(&mut self, from: BackEndId, key: RouteHash);

    /// Readers find no copy of this key from now on. It is asked for copies only.
    fn remove(&mut self, from: BackEndId, key: RouteHash);

    /// The time.
    fn now(&self) -> Instant;
}
