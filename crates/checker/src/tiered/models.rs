//! The models of tiers: each is the smallest that shows one property.
//!
//! The deep ones combine what the others have one at a time. Where two concerns multiply, they are
//! two models, so that each is searched to its end: at most six million states.

use curtail_consistency::lease::LeaseTerms;
use curtail_types::RouteHash;

use super::{
    ANSWERED, DETOUR, DROPPED, ENDED, FLUSHED, HIT, REFUSED, SECOND, TierFaults, TierSetup, WAITED,
};
use crate::requests::Kind::{self, Append, Delete, Get, Set};

/// A model with nothing that goes wrong.
const fn model(name: &'static str) -> TierSetup {
    TierSetup {
        name,
        caches: 1,
        is_group: false,
        keys: ONE_KEY,
        operations: READS,
        entries_max: 4,
        faults: NOTHING,
        sees: USUAL,
        is_deep: false,
        terms: LEASE,
        mutant: None,
    }
}

/// The cache nodes are a group.
const fn group(name: &'static str) -> TierSetup {
    model(name)
        .caches(2)
        .is_group(true)
        .sees(USUAL | DROPPED | SECOND)
}

/// One copy is fetched, and nothing goes wrong.
const NOTHING: TierFaults = TierFaults::NOTHING.fetches(1);

/// What every model shows.
const USUAL: u32 = ANSWERED | HIT | WAITED;

/// Two units of time; the clocks of a model do not drift.
const LEASE: LeaseTerms = LeaseTerms {
    length_ns: 2,
    margin_ns: 0,
};

const ONE_KEY: &[RouteHash] = &[RouteHash(1)];
const TWO_KEYS: &[RouteHash] = &[RouteHash(1), RouteHash(2)];

const READS: &[(Kind, usize)] = &[(Set, 0), (Get, 0), (Get, 0)];
const FEW: &[(Kind, usize)] = &[(Set, 0), (Get, 0)];
const UPDATES: &[(Kind, usize)] = &[(Set, 0), (Append, 0), (Get, 0), (Get, 0)];
const DELETES: &[(Kind, usize)] = &[(Set, 0), (Delete, 0), (Get, 0), (Get, 0)];
const TWO: &[(Kind, usize)] = &[(Set, 0), (Set, 1), (Get, 0), (Get, 0)];

/// All of them.
pub(crate) const TIER_MODELS: &[TierSetup] = &[
    model("tiered-updates")
        .operations(UPDATES)
        .faults(NOTHING.fetches(2).evictions(1))
        .sees(USUAL | DROPPED),
    model("tiered-deletes")
        .operations(DELETES)
        .faults(NOTHING.fetches(2).expiries(1))
        .sees(USUAL | DROPPED),
    model("tiered-full")
        .keys(TWO_KEYS)
        .operations(TWO)
        .entries_max(1)
        .faults(NOTHING.fetches(3))
        .sees(USUAL | DROPPED),
    model("tiered-late")
        .operations(UPDATES)
        .faults(NOTHING.duplicates(1)),
    model("tiered-loss").faults(NOTHING.losses(1).duplicates(1)),
    model("tiered-reports")
        .faults(NOTHING.reports(2).evictions(2))
        .sees(USUAL | DROPPED),
    model("tiered-cache-crash")
        .faults(NOTHING.time(2).cache_crashes(1))
        .sees(USUAL | DETOUR | ENDED),
    // The cache node comes back and has a copy again while an acknowledgement of its earlier
    // session is under way.
    model("tiered-cache-return")
        .operations(FEW)
        .faults(NOTHING.fetches(2).evictions(1).cache_crashes(1))
        .sees(USUAL | DETOUR | ENDED),
    model("tiered-lease")
        .faults(NOTHING.time(3).losses(1))
        .sees(USUAL | DETOUR | ENDED),
    model("tiered-lease-losses")
        .faults(NOTHING.time(2).losses(2).fetches(2).evictions(1))
        .sees(USUAL | DETOUR | ENDED | DROPPED),
    model("tiered-back-end-crash")
        .faults(NOTHING.time(3).back_end_crashes(1))
        .sees(USUAL | DETOUR | REFUSED),
    model("tiered-crashes")
        .operations(FEW)
        .faults(
            NOTHING
                .time(1)
                .fetches(2)
                .cache_crashes(1)
                .back_end_crashes(1),
        )
        .sees(USUAL | DETOUR | ENDED | REFUSED),
    group("tiered-group").faults(NOTHING.fetches(3)),
    // Two writes, the second of which depends on the first, two reads and an eviction. Bounds: no
    // loss, and no time, so no lease ends.
    group("tiered-group-deep")
        .operations(UPDATES)
        .faults(NOTHING.fetches(3).evictions(1))
        .is_deep(true),
    group("tiered-group-loss").faults(NOTHING.fetches(2).losses(1).duplicates(1)),
    // A copy is evicted and comes again: an acknowledgement of what was sent before the last
    // revocation is under way.
    group("tiered-group-evictions")
        .operations(FEW)
        .faults(NOTHING.fetches(3).evictions(1)),
    group("tiered-group-restart")
        .operations(FEW)
        .faults(NOTHING.fetches(2).time(1).back_end_crashes(1))
        .sees(USUAL | DETOUR | REFUSED | SECOND),
    group("tiered-group-flush")
        .operations(FEW)
        .faults(NOTHING.fetches(2).time(1).flushes(1))
        .sees(USUAL | DETOUR | ENDED | FLUSHED | SECOND),
    group("tiered-group-crash")
        .operations(FEW)
        .faults(NOTHING.fetches(2).time(1).cache_crashes(1))
        .sees(USUAL | ENDED | SECOND),
    // Leases of a group end, and a message is lost. Bounds: one read, as much time as one lease, no
    // duplicates.
    group("tiered-group-lease-deep")
        .operations(FEW)
        .faults(NOTHING.fetches(2).time(2).losses(1))
        .sees(USUAL | DETOUR | ENDED | SECOND)
        .is_deep(true),
    model("tiered-flush")
        .faults(NOTHING.time(2).flushes(1))
        .sees(USUAL | DETOUR | ENDED | FLUSHED),
    model("tiered-flush-crash")
        .operations(FEW)
        .faults(NOTHING.time(3).flushes(1).back_end_crashes(1))
        .sees(USUAL | DETOUR | REFUSED | FLUSHED),
    model("tiered-other-cache")
        .caches(2)
        .operations(FEW)
        .faults(NOTHING.time(2).fetches(2).reassigns(1))
        .sees(USUAL | DETOUR | ENDED | SECOND),
    // A message of before the crash of a cache node arrives late, and once more. Bounds: one fetch,
    // as much time as one lease.
    model("tiered-cache-crash-deep")
        .faults(NOTHING.time(2).cache_crashes(1).duplicates(1))
        .sees(USUAL | DETOUR | ENDED)
        .is_deep(true),
    // The back end gets another cache node, and two reads compare what the two show. Bounds: as
    // much time as one lease.
    model("tiered-other-cache-deep")
        .caches(2)
        .faults(NOTHING.time(2).fetches(2).reassigns(1))
        .sees(USUAL | DETOUR | ENDED | SECOND)
        .is_deep(true),
    // The same with time that goes on after the lease. Bounds: one read, one copy is fetched.
    model("tiered-other-lease-deep")
        .caches(2)
        .operations(FEW)
        .faults(NOTHING.time(3).reassigns(1))
        .sees(USUAL | DETOUR | ENDED | SECOND)
        .is_deep(true),
    // Two messages are lost and one arrives twice, between two writes, two reads and an eviction.
    // Bounds: no time, so no lease ends; the next two models have that.
    model("tiered-loss-deep")
        .operations(UPDATES)
        .faults(NOTHING.losses(2).duplicates(1).fetches(2).evictions(1))
        .sees(USUAL | DROPPED)
        .is_deep(true),
    // The same faults while leases end. Bounds: one write, one read, as much time as one lease.
    model("tiered-loss-lease-deep")
        .operations(FEW)
        .faults(
            NOTHING
                .time(2)
                .losses(2)
                .duplicates(1)
                .fetches(2)
                .evictions(1),
        )
        .sees(USUAL | DETOUR | ENDED | DROPPED)
        .is_deep(true),
    // Two reads while leases end, and a message arrives twice. Bounds: one write, one loss, as much
    // time as one lease.
    model("tiered-late-lease-deep")
        .faults(
            NOTHING
                .time(2)
                .losses(1)
                .duplicates(1)
                .fetches(2)
                .evictions(1),
        )
        .sees(USUAL | DETOUR | ENDED | DROPPED)
        .is_deep(true),
    // Cache node and back end die, and a message is lost; two reads. Bounds: one unit of time, half
    // a lease, besides what a process waits for.
    model("tiered-crashes-deep")
        .faults(
            NOTHING
                .time(1)
                .losses(1)
                .fetches(2)
                .cache_crashes(1)
                .back_end_crashes(1),
        )
        .sees(USUAL | DETOUR | ENDED | REFUSED)
        .is_deep(true),
    // The same while a lease ends. Bounds: one read, as much time as one lease, besides what a
    // process waits for.
    model("tiered-crashes-lease-deep")
        .operations(FEW)
        .faults(
            NOTHING
                .time(2)
                .losses(1)
                .fetches(2)
                .cache_crashes(1)
                .back_end_crashes(1),
        )
        .sees(USUAL | DETOUR | ENDED | REFUSED)
        .is_deep(true),
];
