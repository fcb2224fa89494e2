//! The models: each shows one thing, as small as it can be shown.

mod moving;

use self::moving::MOVING;
use crate::builder::{cold, hot};
use crate::setup::Kind::{Append, Delete, Get, Set};
use crate::setup::Setup;
use crate::setup::Witness::{self, *};

/// All of them.
pub const MODELS: &[Setup] = &joined::<{ STAYING.len() + MOVING.len() }>(STAYING, MOVING);

const fn joined<const COUNT: usize>(first: &[Setup], second: &[Setup]) -> [Setup; COUNT] {
    let mut all = [first[0]; COUNT];
    let mut at = 0;
    while at < COUNT {
        all[at] = if at < first.len() {
            first[at]
        } else {
            second[at - first.len()]
        };
        at += 1;
    }
    all
}

/// Those of keys that stay where they are.
const STAYING: &[Setup] = &[
    // Hot keys under Lin: writes race with writes and with readers that take their time.
    hot("lin", &[Set, Set, Get]).readers().sees(RACES),
    hot("lin-readers", &[Set, Set, Get, Get])
        .readers()
        .sees(RACES)
        .deep(),
    hot("lin-wide", &[Set, Set, Set, Get, Get])
        .sees(RACES)
        .deep(),
    hot("lin-repeats", &[Set, Set, Get, Get])
        .repeating()
        .readers()
        .sees(RACES),
    // Nothing comes between what an update reads and what it writes.
    hot("lin-append", &[Append, Set, Get]).sees(UPDATES),
    hot("lin-append-wide", &[Set, Set, Append, Get])
        .sees(UPDATES)
        .deep(),
    hot("lin-append-pair", &[Append, Set, Get])
        .pair()
        .repeating()
        .early_timers(1)
        .sees(UPDATES),
    hot("lin-appends-pair", &[Append, Append, Set, Get])
        .lower_pair()
        .repeating()
        .sees(UPDATES),
    hot("lin-update-pair", &[Set, Set, Append, Get, Get])
        .pair()
        .repeating()
        .sees(UPDATES),
    hot("lin-appends", &[Append, Append, Set, Get])
        .repeating()
        .sees(UPDATES)
        .deep(),
    // Messages are lost or doubled, timers ring early.
    hot("lin-loss", &[Set, Get])
        .losses(1)
        .early_timers(1)
        .sees(REPLAYS),
    hot("lin-loss-wide", &[Set, Set, Get])
        .losses(1)
        .duplicates(1)
        .sees(REPLAYS)
        .deep(),
    // Nodes die, or live on without a lease.
    hot("lin-crash", &[Set, Get])
        .crash(2)
        .ordered()
        .sees(SURVIVES),
    hot("lin-crash-wide", &[Set, Set, Get])
        .crash(2)
        .sees(SURVIVES)
        .deep(),
    hot("lin-lease", &[Set, Get])
        .lease(2)
        .ordered()
        .sees(FENCED),
    hot("lin-lease-wide", &[Set, Get, Get])
        .lease(2)
        .sees(FENCED)
        .deep(),
    hot("lin-home-crash", &[Append, Get])
        .crash(HOME)
        .ordered()
        .sees(TAKEN_OVER),
    hot("lin-home-crash-wide", &[Set, Append, Get])
        .crash(HOME)
        .sees(TAKEN_OVER)
        .deep(),
    hot("lin-home-lease", &[Append, Get])
        .lease(HOME)
        .ordered()
        .sees(TAKEN_OVER),
    hot("lin-home-lease-wide", &[Append, Append, Get])
        .lease(HOME)
        .sees(TAKEN_OVER)
        .deep(),
    // Nodes come, or come back.
    hot("lin-join-pair", &[Set, Get]).pair().join().sees(JOINED),
    hot("lin-join", &[Set, Get]).join().sees(JOINED).deep(),
    hot("lin-rejoin-pair", &[Set, Get])
        .pair()
        .crash(2)
        .rejoin()
        .sees(REJOINED),
    hot("lin-rejoin", &[Set, Get])
        .ordered()
        .crash(2)
        .rejoin()
        .sees(SURVIVES)
        .deep(),
    // The key becomes hot and cold again.
    cold("promote", &[Get, Set, Set])
        .repeating()
        .epochs(1)
        .sees(CHANGED)
        .deep(),
    cold("promote-once", &[Get, Set, Set])
        .epochs(1)
        .sees(CHANGED)
        .deep(),
    cold("promote-set", &[Get, Set])
        .repeating()
        .epochs(1)
        .sees(CHANGED)
        .deep(),
    cold("promote-gets", &[Get, Get, Set])
        .repeating()
        .epochs(1)
        .sees(CHANGED)
        .deep(),
    cold("promote-links", &[Get, Get, Set])
        .ordered()
        .epochs(1)
        .sees(CHANGED)
        .deep(),
    cold("promote-pair", &[Get, Get, Set])
        .pair()
        .epochs(1)
        .sees(CHANGED),
    cold("promote-twice", &[Get, Set])
        .repeating()
        .epochs(2)
        .sees(CHANGED)
        .deep(),
    cold("promote-twice-once", &[Get, Set])
        .epochs(2)
        .sees(CHANGED)
        .deep(),
    cold("promote-twice-links", &[Get, Set])
        .ordered()
        .epochs(2)
        .sees(CHANGED)
        .deep(),
    cold("promote-again", &[Get, Set])
        .pair()
        .repeating()
        .epochs(2)
        .sees(CHANGED),
    cold("promote-append", &[Append, Get])
        .repeating()
        .epochs(1)
        .sees(CHANGED)
        .deep(),
    cold("promote-loss", &[Set, Get])
        .pair()
        .epochs(1)
        .losses(1)
        .sees(CHANGED),
    cold("promote-loss-wide", &[Set, Get])
        .pair()
        .epochs(1)
        .losses(1)
        .duplicates(1)
        .early_timers(1)
        .sees(CHANGED)
        .deep(),
    cold("promote-home-crash-pair", &[Set, Get])
        .pair()
        .epochs(1)
        .crash(HOME)
        .ordered()
        .sees(LOST),
    cold("promote-home-crash", &[Set, Get])
        .epochs(1)
        .crash(HOME)
        .ordered()
        .sees(LOST)
        .deep(),
    cold("promote-crash", &[Set, Get])
        .repeating()
        .epochs(1)
        .crash(2)
        .sees(CHANGED)
        .deep(),
    cold("promote-lease", &[Set, Get])
        .epochs(1)
        .lease(2)
        .ordered()
        .sees(CHANGED_FENCED)
        .deep(),
    cold("promote-home-lease-pair", &[Set, Get])
        .pair()
        .epochs(1)
        .lease(HOME)
        .ordered()
        .sees(LOST),
    cold("promote-home-lease", &[Set, Get])
        .epochs(1)
        .lease(HOME)
        .ordered()
        .sees(LOST)
        .deep(),
    // A cold key has several holders.
    cold("cold", &[Set, Append, Get])
        .replicas(2)
        .sees(&[AllAnswered, Forwarded]),
    cold("cold-crash", &[Set, Append, Get])
        .replicas(2)
        .crash_one_of(0b011)
        .sees(SURVIVES),
    cold("cold-crash-wide", &[Set, Append, Get, Get])
        .replicas(2)
        .crash_one_of(0b011)
        .losses(1)
        .sees(SURVIVES)
        .deep(),
    cold("cold-lease", &[Set, Append, Get])
        .replicas(2)
        .lease(HOME)
        .ordered()
        .sees(FENCED),
    cold("cold-delete", &[Set, Delete, Get])
        .replicas(2)
        .ordered()
        .early_timers(1)
        .sees(&[AllAnswered, Deleted]),
    cold("cold-delete-three", &[Set, Delete, Get])
        .replicas(3)
        .ordered()
        .early_timers(1)
        .sees(&[AllAnswered, Deleted]),
    cold("cold-promote-delete", &[Set, Delete, Get])
        .pair()
        .ordered()
        .epochs(1)
        .sees(&[AllAnswered, Promoted, Demoted, Deleted]),
    cold("cold-promote", &[Set, Get])
        .repeating()
        .replicas(2)
        .epochs(1)
        .sees(CHANGED)
        .deep(),
    cold("cold-promote-crash-pair", &[Set, Get])
        .pair()
        .replicas(2)
        .epochs(1)
        .crash(HOME)
        .ordered()
        .sees(TAKEN_OVER),
    cold("cold-promote-crash", &[Set, Get])
        .replicas(2)
        .epochs(1)
        .crash(HOME)
        .ordered()
        .sees(TAKEN_OVER)
        .deep(),
    cold("cold-promote-crash-wide", &[Set, Get])
        .replicas(2)
        .epochs(1)
        .crash(HOME)
        .sees(TAKEN_OVER)
        .deep(),
    // Hot keys under SC.
    hot("sc", &[Set, Set, Get]).sc().losses(1).sees(STALE_RACES),
    hot("sc-wide", &[Set, Set, Get, Get])
        .repeating()
        .sc()
        .sees(STALE_RACES)
        .deep(),
    hot("sc-crash-pair", &[Set, Get, Get])
        .sc()
        .pair()
        .crash(2)
        .sees(STALE_SURVIVES),
    hot("sc-crash", &[Set, Get, Get])
        .sc()
        .crash(2)
        .sees(STALE_SURVIVES)
        .deep(),
    hot("sc-crash-wide", &[Set, Set, Get])
        .sc()
        .crash(2)
        .sees(STALE_SURVIVES)
        .deep(),
    hot("sc-lease", &[Set, Get])
        .sc()
        .lease(2)
        .ordered()
        .sees(FENCED),
    hot("sc-home-lease", &[Set, Get])
        .sc()
        .lease(HOME)
        .ordered()
        .sees(TAKEN_OVER),
    hot("sc-home-crash-pair", &[Set, Get])
        .sc()
        .pair()
        .crash(HOME)
        .sees(&[AllAnswered, TookOver]),
    hot("sc-home-crash", &[Set, Get])
        .sc()
        .crash(HOME)
        .sees(&[AllAnswered, TookOver])
        .deep(),
    cold("sc-promote", &[Set, Get, Get])
        .sc()
        .epochs(1)
        .ordered()
        .sees(CHANGED)
        .deep(),
    cold("sc-promote-pair", &[Set, Get, Get])
        .sc()
        .pair()
        .epochs(1)
        .ordered()
        .sees(CHANGED),
    cold("sc-promote-wide", &[Set, Set, Get, Get])
        .sc()
        .epochs(1)
        .ordered()
        .sees(CHANGED)
        .deep(),
];

const HOME: u8 = Setup::HOME.0;
const RACES: &[Witness] = &[AllAnswered, WritesRaced, GetAnsweredElsewhere];
const UPDATES: &[Witness] = &[AllAnswered, UpdateRanAgain];
const REPLAYS: &[Witness] = &[AllAnswered, Replayed];
const SURVIVES: &[Witness] = &[AllAnswered, Replayed, GetAfterView];
const REJOINED: &[Witness] = &[AllAnswered, GetAfterView, JoinerGoesOn];
const FENCED: &[Witness] = &[AllAnswered, LateMessage, GetAfterView];
const TAKEN_OVER: &[Witness] = &[AllAnswered, TookOver];
const JOINED: &[Witness] = &[AllAnswered, GetAnsweredByJoiner, JoinerGoesOn];
const CHANGED: &[Witness] = &[AllAnswered, Promoted, Demoted, GetAnsweredElsewhere];
const CHANGED_FENCED: &[Witness] = &[AllAnswered, Promoted, Demoted, LateMessage, GetAfterView];
const LOST: &[Witness] = &[AllAnswered, TookOver, Demoted];
const STALE_RACES: &[Witness] = &[AllAnswered, WritesRaced, GetSawOldValue];
const STALE_SURVIVES: &[Witness] = &[AllAnswered, GetSawOldValue, GetAfterView];
