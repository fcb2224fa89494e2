//! The models: each shows one thing, as small as it can be shown.

use crate::builder::{cold, hot};
use crate::setup::Kind::{Append, Delete, Get, Set};
use crate::setup::Setup;
use crate::setup::Witness::{self, *};

/// All of them.
pub const MODELS: &[Setup] = &[
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
    // The key moves to a node that comes, or from one that leaves.
    cold("move", &[Set, Get]).comes().slow_threads().sees(MOVED),
    cold("move-pair", &[Set, Set, Get])
        .pair()
        .comes()
        .slow_threads()
        .sees(MOVED),
    cold("move-delete", &[Delete, Set, Get])
        .pair()
        .comes()
        .slow_threads()
        .sees(MOVED_DELETED),
    cold("move-append", &[Append, Append, Get])
        .pair()
        .comes()
        .slow_threads()
        .sees(MOVED),
    cold("move-away", &[Set, Append, Get])
        .lower_pair()
        .goes()
        .slow_threads()
        .sees(LEFT),
    cold("move-wide", &[Set, Append, Get, Get])
        .comes()
        .slow_threads()
        .sees(MOVED)
        .deep(),
    // Either end dies meanwhile.
    cold("move-crash", &[Set, Get, Get])
        .pair()
        .comes()
        .crash_one_of(0b110)
        .slow_threads()
        .sees(MOVED_REFUSED),
    cold("move-crash-delete", &[Set, Delete, Get])
        .pair()
        .comes()
        .crash_one_of(0b110)
        .slow_threads()
        .sees(MOVED_REFUSED)
        .deep(),
    cold("move-crash-wide", &[Set, Delete, Get])
        .comes()
        .crash_one_of(0b110)
        .slow_threads()
        .sees(MOVED_REFUSED)
        .deep(),
    cold("move-away-crash", &[Set, Get])
        .lower_pair()
        .goes()
        .crash_one_of(0b011)
        .slow_threads()
        .sees(LEFT),
    cold("move-away-crash-wide", &[Set, Get])
        .goes()
        .crash_one_of(0b011)
        .slow_threads()
        .sees(LEFT)
        .deep(),
    // The same with several holders, where writes go round meanwhile.
    cold("move-holders", &[Delete, Get])
        .replicas(2)
        .comes()
        .ordered()
        .sees(MOVED_DELETED),
    cold("move-holders-append", &[Append, Set, Get])
        .pair()
        .replicas(2)
        .comes()
        .ordered()
        .sees(MOVED),
    cold("move-holders-append-wide", &[Append, Set, Get])
        .replicas(2)
        .comes()
        .repeating()
        .sees(MOVED)
        .deep(),
    cold("move-holders-set", &[Set, Get])
        .replicas(2)
        .comes()
        .repeating()
        .sees(MOVED)
        .deep(),
    cold("move-holders-away", &[Append])
        .replicas(2)
        .goes()
        .ordered()
        .sees(LEFT),
    cold("move-holders-away-wide", &[Append, Get])
        .replicas(2)
        .goes()
        .sees(LEFT)
        .deep(),
    cold("move-holders-wide", &[Set, Delete, Get])
        .replicas(2)
        .comes()
        .slow_threads()
        .sees(MOVED_DELETED)
        .deep(),
    cold("move-holders-loss", &[Append, Get])
        .pair()
        .replicas(2)
        .comes()
        .losses(1)
        .duplicates(1)
        .sees(MOVED),
    cold("move-holders-loss-wide", &[Append, Get])
        .replicas(2)
        .comes()
        .losses(1)
        .duplicates(1)
        .sees(MOVED)
        .deep(),
    cold("move-holders-crash", &[Delete])
        .replicas(2)
        .comes()
        .ordered()
        .crash(2)
        .sees(REMOVED_UNSEEN),
    cold("move-holders-crash-new", &[Delete, Get])
        .replicas(2)
        .comes()
        .ordered()
        .crash(2)
        .sees(MOVED_DELETED)
        .deep(),
    cold("move-holders-crash-old", &[Append, Get])
        .replicas(2)
        .comes()
        .ordered()
        .crash_one_of(0b011)
        .sees(MOVED)
        .deep(),
    cold("move-holders-crash-wide", &[Set, Delete, Get])
        .replicas(2)
        .comes()
        .repeating()
        .crash_one_of(0b111)
        .sees(MOVED_DELETED)
        .deep(),
    cold("move-holders-away-crash", &[Append, Get])
        .replicas(2)
        .goes()
        .ordered()
        .crash_one_of(0b111)
        .sees(LEFT)
        .deep(),
    // It is hot, so that every node has it, and ceases to be when all has moved.
    hot("move-hot", &[Set, Get])
        .pair()
        .comes()
        .repeating()
        .demotion()
        .sees(MOVED_HOT),
    hot("move-hot-wide", &[Set, Get])
        .comes()
        .ordered()
        .demotion()
        .sees(MOVED_HOT)
        .deep(),
    // It becomes hot, or ceases to be, at that very moment.
    cold("move-promote", &[Set, Get])
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED),
    cold("move-promote-repeats", &[Set, Get])
        .pair()
        .comes()
        .unannounced()
        .repeating()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-promote-delete", &[Delete, Get])
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-promote-wide", &[Set, Get])
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-promote-get", &[Get])
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-promote-set", &[Set])
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-promote-away", &[Set, Get])
        .lower_pair()
        .goes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(LEFT_PROMOTED),
    cold("move-holders-promote", &[Set, Get])
        .pair()
        .replicas(2)
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED),
    cold("move-holders-promote-die", &[Get])
        .replicas(2)
        .dies(0b011)
        .ordered()
        .epochs(1)
        .sees(DIED_PROMOTED)
        .deep(),
    cold("move-holders-promote-wide", &[Set, Get])
        .replicas(2)
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-holders-promote-get", &[Get])
        .replicas(2)
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-holders-promote-set", &[Set])
        .replicas(2)
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    hot("move-hot-meets", &[Set, Get])
        .pair()
        .comes()
        .unannounced()
        .repeating()
        .demotion()
        .sees(MOVED_HOT),
    // The same, and a node dies. What is hot dies with nobody.
    hot("move-hot-crash-pair", &[Set, Get])
        .pair()
        .comes()
        .crash_one_of(0b110)
        .ordered()
        .sees(MOVED_HOT_DIED),
    hot("move-hot-crash-get", &[Get])
        .comes()
        .crash_one_of(0b110)
        .ordered()
        .sees(MOVED_HOT_DIED),
    hot("move-hot-crash-set", &[Set])
        .comes()
        .crash_one_of(0b110)
        .ordered()
        .sees(MOVED_HOT_DIED_UNREAD),
    hot("move-hot-crash", &[Set, Get])
        .comes()
        .crash_one_of(0b110)
        .ordered()
        .sees(MOVED_HOT_DIED)
        .deep(),
    hot("move-hot-crash-demotion", &[Set, Get])
        .pair()
        .comes()
        .unannounced()
        .crash_one_of(0b110)
        .ordered()
        .demotion()
        .sees(MOVED_HOT_DIED),
    cold("move-promote-crash", &[Set, Get])
        .pair()
        .comes()
        .unannounced()
        .crash_one_of(0b110)
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("move-promote-away-crash", &[Set, Get])
        .lower_pair()
        .goes()
        .unannounced()
        .crash_one_of(0b011)
        .ordered()
        .epochs(1)
        .sees(LEFT_PROMOTED)
        .deep(),
    hot("sc-move-hot-crash-pair", &[Set, Get, Get])
        .sc()
        .pair()
        .comes()
        .crash_one_of(0b110)
        .ordered()
        .sees(MOVED_HOT_DIED),
    hot("sc-move-hot-crash-loss", &[Set, Get])
        .sc()
        .pair()
        .comes()
        .crash_one_of(0b110)
        .losses(1)
        .ordered()
        .sees(MOVED_HOT_DIED),
    hot("sc-move-hot-crash", &[Set, Get])
        .sc()
        .comes()
        .crash_one_of(0b110)
        .ordered()
        .sees(MOVED_HOT_DIED)
        .deep(),
    hot("sc-move-hot-crash-demotion", &[Set, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .crash_one_of(0b110)
        .ordered()
        .demotion()
        .sees(MOVED_HOT_DIED)
        .deep(),
    cold("sc-move-promote-crash", &[Set, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .crash_one_of(0b110)
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("sc-move-promote-away-crash", &[Set, Get])
        .sc()
        .lower_pair()
        .goes()
        .unannounced()
        .crash_one_of(0b011)
        .ordered()
        .epochs(1)
        .sees(LEFT_PROMOTED)
        .deep(),
    // The same under SC.
    hot("sc-move-hot", &[Set, Get, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .demotion()
        .sees(MOVED_HOT),
    hot("sc-move-hot-wide", &[Set, Get, Get])
        .sc()
        .comes()
        .unannounced()
        .ordered()
        .demotion()
        .sees(MOVED_HOT)
        .deep(),
    hot("sc-move-hot-set", &[Set])
        .sc()
        .comes()
        .unannounced()
        .ordered()
        .demotion()
        .sees(MOVED_HOT)
        .deep(),
    cold("sc-move-promote-set", &[Set])
        .sc()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("sc-move-promote", &[Set, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED),
    cold("sc-move-promote-gets", &[Set, Get, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("sc-move-promote-away", &[Set, Get])
        .sc()
        .lower_pair()
        .goes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(LEFT_PROMOTED),
    cold("sc-move-promote-away-gets", &[Set, Get, Get])
        .sc()
        .lower_pair()
        .goes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(LEFT_PROMOTED)
        .deep(),
    cold("sc-move-promote-wide", &[Set, Get, Get])
        .sc()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
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
const LOST: &[Witness] = &[AllAnswered, TookOver, Demoted];
const MOVED: &[Witness] = &[AllAnswered, KeyMoved, WaitedForKey, Settled];
const MOVED_DELETED: &[Witness] = &[AllAnswered, KeyMoved, WaitedForKey, Settled, Deleted];
const REMOVED_UNSEEN: &[Witness] = &[AllAnswered, KeyMoved, Settled, Deleted];
const MOVED_REFUSED: &[Witness] = &[AllAnswered, KeyMoved, MoveRefused, Settled, GetAfterView];
const MOVED_HOT: &[Witness] = &[AllAnswered, TookOver, Settled, Demoted];
const MOVED_HOT_DIED_UNREAD: &[Witness] = &[AllAnswered, TookOver, Settled];
const MOVED_HOT_DIED: &[Witness] = &[AllAnswered, TookOver, Settled, GetAfterView];
const MOVED_PROMOTED: &[Witness] = &[AllAnswered, KeyMoved, Promoted, Demoted, TookOver, Settled];
const DIED_PROMOTED: &[Witness] = &[AllAnswered, KeyMoved, Promoted, Demoted, Settled];
const LEFT_PROMOTED: &[Witness] = &[AllAnswered, Promoted, Demoted, TookOver, Settled, Departed];
const LEFT: &[Witness] = &[AllAnswered, Settled, Departed];
const STALE_RACES: &[Witness] = &[AllAnswered, WritesRaced, GetSawOldValue];
const STALE_SURVIVES: &[Witness] = &[AllAnswered, GetSawOldValue, GetAfterView];
