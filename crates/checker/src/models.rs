//! The models: each is the smallest that shows one property.

use crate::setup::Kind::{Append, Delete, Get, Set};
use crate::setup::Setup;
use crate::setup::Witness::{self, *};
use crate::setup_builder::{cold, hot};

/// A table of setups: name, what the key is at first, what is asked, what else there is (methods of
/// [`Setup`]) and what must be seen.
macro_rules! models {
    ($($name:literal: $start:ident [$($kind:ident),*]
        $($word:ident $(($argument:expr))?),* => $sees:expr;)*) => {
        &[$($start($name, &[$($kind),*])$(.$word($($argument)?))*.sees($sees)),*]
    };
}

/// All of them.
pub const MODELS: &[Setup] = models! {
    // Hot keys under Lin: writes race with writes and with readers that take their time.
    "lin": hot [Set, Set, Get] readers => RACES;
    "lin-readers": hot [Set, Set, Get, Get] readers, deep => RACES;
    "lin-wide": hot [Set, Set, Set, Get, Get] deep => RACES;
    "lin-repeats": hot [Set, Set, Get, Get] repeating, readers => RACES;
    // Nothing comes between what an update reads and what it writes.
    "lin-append": hot [Append, Set, Get] => UPDATES;
    "lin-append-wide": hot [Set, Set, Append, Get] deep => UPDATES;
    "lin-append-pair": hot [Append, Set, Get] pair, repeating, early_timers(1) => UPDATES;
    "lin-appends-pair": hot [Append, Append, Set, Get] lower_pair, repeating => UPDATES;
    "lin-update-pair": hot [Set, Set, Append, Get, Get] pair, repeating => UPDATES;
    "lin-appends": hot [Append, Append, Set, Get] repeating, deep => UPDATES;
    // Messages are lost or doubled, timers ring early.
    "lin-loss": hot [Set, Get] losses(1), early_timers(1) => REPLAYS;
    "lin-loss-wide": hot [Set, Set, Get] losses(1), duplicates(1), deep => REPLAYS;
    // Nodes die, or live on without a lease.
    "lin-crash": hot [Set, Get] crash(2), ordered => SURVIVES;
    "lin-crash-wide": hot [Set, Set, Get] crash(2), deep => SURVIVES;
    "lin-lease": hot [Set, Get] lease(2), ordered => FENCED;
    "lin-lease-wide": hot [Set, Get, Get] lease(2), deep => FENCED;
    "lin-home-crash": hot [Append, Get] crash(HOME), ordered => TAKEN_OVER;
    "lin-home-crash-wide": hot [Set, Append, Get] crash(HOME), deep => TAKEN_OVER;
    "lin-home-lease": hot [Append, Get] lease(HOME), ordered => TAKEN_OVER;
    "lin-home-lease-wide": hot [Append, Append, Get] lease(HOME), deep => TAKEN_OVER;
    // Nodes come, or come back.
    "lin-join-pair": hot [Set, Get] pair, join => JOINED;
    "lin-join": hot [Set, Get] join, deep => JOINED;
    "lin-rejoin-pair": hot [Set, Get] pair, crash(2), rejoin => REJOINED;
    "lin-rejoin": hot [Set, Get] ordered, crash(2), rejoin, deep => SURVIVES;
    // The key becomes hot and cold again.
    "promote": cold [Get, Set, Set] repeating, epochs(1), deep => CHANGED;
    "promote-once": cold [Get, Set, Set] epochs(1), deep => CHANGED;
    "promote-set": cold [Get, Set] repeating, epochs(1), deep => CHANGED;
    "promote-gets": cold [Get, Get, Set] repeating, epochs(1), deep => CHANGED;
    "promote-links": cold [Get, Get, Set] ordered, epochs(1), deep => CHANGED;
    "promote-pair": cold [Get, Get, Set] pair, epochs(1) => CHANGED;
    "promote-twice": cold [Get, Set] repeating, epochs(2), deep => CHANGED;
    "promote-twice-once": cold [Get, Set] epochs(2), deep => CHANGED;
    "promote-twice-links": cold [Get, Set] ordered, epochs(2), deep => CHANGED;
    "promote-again": cold [Get, Set] pair, repeating, epochs(2) => CHANGED;
    "promote-append": cold [Append, Get] repeating, epochs(1), deep => CHANGED;
    "promote-loss": cold [Set, Get] pair, epochs(1), losses(1) => CHANGED;
    "promote-loss-wide": cold [Set, Get] pair, epochs(1), losses(1), duplicates(1), early_timers(1),
        deep => CHANGED;
    "promote-home-crash-pair": cold [Set, Get] pair, epochs(1), crash(HOME), ordered => LOST;
    "promote-home-crash": cold [Set, Get] epochs(1), crash(HOME), ordered, deep => LOST;
    "promote-crash": cold [Set, Get] repeating, epochs(1), crash(2), deep => CHANGED;
    "promote-lease": cold [Set, Get] epochs(1), lease(2), ordered, deep => CHANGED_FENCED;
    "promote-home-lease-pair": cold [Set, Get] pair, epochs(1), lease(HOME), ordered => LOST;
    "promote-home-lease": cold [Set, Get] epochs(1), lease(HOME), ordered, deep => LOST;
    // A cold key has several holders.
    "cold": cold [Set, Append, Get] replicas(2) => &[AllAnswered, Forwarded];
    "cold-crash": cold [Set, Append, Get] replicas(2), crash_one_of(0b011) => SURVIVES;
    "cold-crash-wide": cold [Set, Append, Get, Get] replicas(2), crash_one_of(0b011), losses(1),
        deep => SURVIVES;
    "cold-lease": cold [Set, Append, Get] replicas(2), lease(HOME), ordered => FENCED;
    "cold-delete": cold [Set, Delete, Get] replicas(2), ordered, early_timers(1)
        => &[AllAnswered, Deleted];
    "cold-delete-three": cold [Set, Delete, Get] replicas(3), ordered, early_timers(1)
        => &[AllAnswered, Deleted];
    "cold-promote-delete": cold [Set, Delete, Get] pair, ordered, epochs(1)
        => &[AllAnswered, Promoted, Demoted, Deleted];
    "cold-promote": cold [Set, Get] repeating, replicas(2), epochs(1), deep => CHANGED;
    "cold-promote-crash-pair": cold [Set, Get] pair, replicas(2), epochs(1), crash(HOME), ordered
        => TAKEN_OVER;
    "cold-promote-crash": cold [Set, Get] replicas(2), epochs(1), crash(HOME), ordered, deep
        => TAKEN_OVER;
    "cold-promote-crash-wide": cold [Set, Get] replicas(2), epochs(1), crash(HOME), deep
        => TAKEN_OVER;
    // Hot keys under SC.
    "sc": hot [Set, Set, Get] sc, losses(1) => STALE_RACES;
    "sc-wide": hot [Set, Set, Get, Get] repeating, sc, deep => STALE_RACES;
    "sc-crash-pair": hot [Set, Get, Get] sc, pair, crash(2) => STALE_SURVIVES;
    "sc-crash": hot [Set, Get, Get] sc, crash(2), deep => STALE_SURVIVES;
    "sc-crash-wide": hot [Set, Set, Get] sc, crash(2), deep => STALE_SURVIVES;
    "sc-lease": hot [Set, Get] sc, lease(2), ordered => FENCED;
    "sc-home-lease": hot [Set, Get] sc, lease(HOME), ordered => TAKEN_OVER;
    "sc-home-crash-pair": hot [Set, Get] sc, pair, crash(HOME) => &[AllAnswered, TookOver];
    "sc-home-crash": hot [Set, Get] sc, crash(HOME), deep => &[AllAnswered, TookOver];
    "sc-promote": cold [Set, Get, Get] sc, epochs(1), ordered, deep => CHANGED;
    "sc-promote-pair": cold [Set, Get, Get] sc, pair, epochs(1), ordered => CHANGED;
    "sc-promote-wide": cold [Set, Set, Get, Get] sc, epochs(1), ordered, deep => CHANGED;
    // The key moves to a node that comes, or from one that leaves.
    "move": cold [Set, Get] comes, slow_threads => MOVED;
    "move-pair": cold [Set, Set, Get] pair, comes, slow_threads => MOVED;
    "move-delete": cold [Delete, Set, Get] pair, comes, slow_threads => MOVED_DELETED;
    "move-append": cold [Append, Append, Get] pair, comes, slow_threads => MOVED;
    "move-away": cold [Set, Append, Get] lower_pair, goes, slow_threads => LEFT;
    "move-wide": cold [Set, Append, Get, Get] comes, slow_threads, deep => MOVED;
    // Either end dies meanwhile.
    "move-crash": cold [Set, Get, Get] pair, comes, crash_one_of(0b110), slow_threads
        => MOVED_REFUSED;
    "move-crash-delete": cold [Set, Delete, Get] pair, comes, crash_one_of(0b110), slow_threads,
        deep => MOVED_REFUSED;
    "move-crash-wide": cold [Set, Delete, Get] comes, crash_one_of(0b110), slow_threads, deep
        => MOVED_REFUSED;
    "move-away-crash": cold [Set, Get] lower_pair, goes, crash_one_of(0b011), slow_threads => LEFT;
    "move-away-crash-wide": cold [Set, Get] goes, crash_one_of(0b011), slow_threads, deep => LEFT;
    // The same with several holders, where writes go round meanwhile.
    "move-holders": cold [Delete, Get] replicas(2), comes, ordered => MOVED_DELETED;
    "move-holders-append": cold [Append, Set, Get] pair, replicas(2), comes, ordered => MOVED;
    "move-holders-append-wide": cold [Append, Set, Get] replicas(2), comes, repeating, deep
        => MOVED;
    "move-holders-set": cold [Set, Get] replicas(2), comes, repeating, deep => MOVED;
    "move-holders-away": cold [Append] replicas(2), goes, ordered => LEFT;
    "move-holders-away-wide": cold [Append, Get] replicas(2), goes, deep => LEFT;
    "move-holders-wide": cold [Set, Delete, Get] replicas(2), comes, slow_threads, deep
        => MOVED_DELETED;
    "move-holders-loss": cold [Append, Get] pair, replicas(2), comes, losses(1), duplicates(1)
        => MOVED;
    "move-holders-loss-wide": cold [Append, Get] replicas(2), comes, losses(1), duplicates(1), deep
        => MOVED;
    "move-holders-crash": cold [Delete] replicas(2), comes, ordered, crash(2) => REMOVED_UNSEEN;
    "move-holders-crash-new": cold [Delete, Get] replicas(2), comes, ordered, crash(2), deep
        => MOVED_DELETED;
    "move-holders-crash-old": cold [Append, Get] replicas(2), comes, ordered, crash_one_of(0b011),
        deep => MOVED;
    "move-holders-crash-wide": cold [Set, Delete, Get] replicas(2), comes, repeating,
        crash_one_of(0b111), deep => MOVED_DELETED;
    "move-holders-away-crash": cold [Append, Get] replicas(2), goes, ordered, crash_one_of(0b111),
        deep => LEFT;
    // It is hot, so that every node has it, and ceases to be when all has moved.
    "move-hot": hot [Set, Get] pair, comes, repeating, demotion => MOVED_HOT;
    "move-hot-wide": hot [Set, Get] comes, ordered, demotion, deep => MOVED_HOT;
    // It becomes hot, or ceases to be, at that very moment.
    "move-promote": cold [Set, Get] pair, comes, unannounced, ordered, epochs(1) => MOVED_PROMOTED;
    "move-promote-repeats": cold [Set, Get] pair, comes, unannounced, repeating, epochs(1), deep
        => MOVED_PROMOTED;
    "move-promote-delete": cold [Delete, Get] pair, comes, unannounced, ordered, epochs(1), deep
        => MOVED_PROMOTED;
    "move-promote-wide": cold [Set, Get] comes, unannounced, ordered, epochs(1), deep
        => MOVED_PROMOTED;
    "move-promote-get": cold [Get] comes, unannounced, ordered, epochs(1), deep => MOVED_PROMOTED;
    "move-promote-set": cold [Set] comes, unannounced, ordered, epochs(1), deep => MOVED_PROMOTED;
    "move-promote-away": cold [Set, Get] lower_pair, goes, unannounced, ordered, epochs(1)
        => LEFT_PROMOTED;
    "move-holders-promote": cold [Set, Get] pair, replicas(2), comes, unannounced, ordered,
        epochs(1) => MOVED_PROMOTED;
    "move-holders-promote-die": cold [Get] replicas(2), dies(0b011), ordered, epochs(1), deep
        => DIED_PROMOTED;
    "move-holders-promote-wide": cold [Set, Get] replicas(2), comes, unannounced, ordered,
        epochs(1), deep => MOVED_PROMOTED;
    "move-holders-promote-get": cold [Get] replicas(2), comes, unannounced, ordered, epochs(1), deep
        => MOVED_PROMOTED;
    "move-holders-promote-set": cold [Set] replicas(2), comes, unannounced, ordered, epochs(1), deep
        => MOVED_PROMOTED;
    "move-hot-meets": hot [Set, Get] pair, comes, unannounced, repeating, demotion => MOVED_HOT;
    // The same, and a node dies. What is hot dies with nobody.
    "move-hot-crash-pair": hot [Set, Get] pair, comes, crash_one_of(0b110), ordered
        => MOVED_HOT_DIED;
    "move-hot-crash-get": hot [Get] comes, crash_one_of(0b110), ordered => MOVED_HOT_DIED;
    "move-hot-crash-set": hot [Set] comes, crash_one_of(0b110), ordered => MOVED_HOT_DIED_UNREAD;
    "move-hot-crash": hot [Set, Get] comes, crash_one_of(0b110), ordered, deep => MOVED_HOT_DIED;
    "move-hot-crash-demotion": hot [Set, Get] pair, comes, unannounced, crash_one_of(0b110),
        ordered, demotion => MOVED_HOT_DIED;
    "move-promote-crash": cold [Set, Get] pair, comes, unannounced, crash_one_of(0b110), ordered,
        epochs(1), deep => MOVED_PROMOTED;
    "move-promote-away-crash": cold [Set, Get] lower_pair, goes, unannounced, crash_one_of(0b011),
        ordered, epochs(1), deep => LEFT_PROMOTED;
    "sc-move-hot-crash-pair": hot [Set, Get, Get] sc, pair, comes, crash_one_of(0b110), ordered
        => MOVED_HOT_DIED;
    "sc-move-hot-crash-loss": hot [Set, Get] sc, pair, comes, crash_one_of(0b110), losses(1),
        ordered => MOVED_HOT_DIED;
    "sc-move-hot-crash": hot [Set, Get] sc, comes, crash_one_of(0b110), ordered, deep
        => MOVED_HOT_DIED;
    "sc-move-hot-crash-demotion": hot [Set, Get] sc, pair, comes, unannounced, crash_one_of(0b110),
        ordered, demotion, deep => MOVED_HOT_DIED;
    "sc-move-promote-crash": cold [Set, Get] sc, pair, comes, unannounced, crash_one_of(0b110),
        ordered, epochs(1), deep => MOVED_PROMOTED;
    "sc-move-promote-away-crash": cold [Set, Get] sc, lower_pair, goes, unannounced,
        crash_one_of(0b011), ordered, epochs(1), deep => LEFT_PROMOTED;
    // The same under SC.
    "sc-move-hot": hot [Set, Get, Get] sc, pair, comes, unannounced, ordered, demotion => MOVED_HOT;
    "sc-move-hot-three": hot [Set, Get] sc, comes, unannounced, ordered, demotion, deep
        => MOVED_HOT;
    "sc-move-hot-wide": hot [Set, Get, Get] sc, comes, unannounced, ordered, demotion, deep
        => MOVED_HOT;
    "sc-move-hot-set": hot [Set] sc, comes, unannounced, ordered, demotion, deep => MOVED_HOT;
    "sc-move-promote-set": cold [Set] sc, comes, unannounced, ordered, epochs(1), deep
        => MOVED_PROMOTED;
    "sc-move-promote": cold [Set, Get] sc, pair, comes, unannounced, ordered, epochs(1)
        => MOVED_PROMOTED;
    "sc-move-promote-gets": cold [Set, Get, Get] sc, pair, comes, unannounced, ordered, epochs(1),
        deep => MOVED_PROMOTED;
    "sc-move-promote-away": cold [Set, Get] sc, lower_pair, goes, unannounced, ordered, epochs(1)
        => LEFT_PROMOTED;
    "sc-move-promote-away-gets": cold [Set, Get, Get] sc, lower_pair, goes, unannounced, ordered,
        epochs(1), deep => LEFT_PROMOTED;
    "sc-move-promote-three": cold [Set, Get] sc, comes, unannounced, ordered, epochs(1), deep
        => MOVED_PROMOTED;
    "sc-move-promote-wide": cold [Set, Get, Get] sc, comes, unannounced, ordered, epochs(1), deep
        => MOVED_PROMOTED;
    // Something is deleted meanwhile.
    "sc-move-hot-delete": hot [Set, Delete, Get] sc, pair, comes, unannounced, ordered, demotion
        => MOVED_HOT_DELETED;
    "sc-move-promote-delete": cold [Delete, Get] sc, pair, comes, unannounced, ordered, epochs(1)
        => MOVED_PROMOTED_DELETED;
    "sc-move-promote-away-delete": cold [Delete, Get] sc, lower_pair, goes, unannounced, ordered,
        epochs(1) => LEFT_PROMOTED_DELETED;
    "sc-move-holders-delete": cold [Delete, Get] sc, pair, replicas(2), comes, unannounced, ordered,
        epochs(1) => MOVED_PROMOTED_DELETED;
    "sc-move-promote-set-delete": cold [Set, Delete, Get] sc, pair, comes, unannounced, ordered,
        epochs(1), deep => MOVED_PROMOTED_DELETED;
    "sc-move-holders-set-delete": cold [Set, Delete, Get] sc, pair, replicas(2), comes, unannounced,
        ordered, epochs(1), deep => MOVED_PROMOTED_DELETED;
    // The key has several holders, and a node dies while it moves.
    "sc-move-holders-hot-crash": hot [Set, Get] sc, replicas(2), comes, crash_one_of(0b111),
        ordered, demotion, deep => MOVED_HOT_DIED;
    "sc-move-holders-crash-get": cold [Get] sc, replicas(2), comes, unannounced,
        crash_one_of(0b111), ordered, epochs(1), deep => MOVED_PROMOTED;
    "sc-move-holders-crash-set": cold [Set] sc, replicas(2), comes, unannounced,
        crash_one_of(0b111), ordered, epochs(1), deep => MOVED_PROMOTED;
    "sc-move-holders-crash": cold [Set, Get] sc, replicas(2), comes, unannounced,
        crash_one_of(0b111), ordered, epochs(1), deep => MOVED_PROMOTED;
    "sc-move-holders-promote-die": cold [Get] sc, replicas(2), dies(0b011), ordered, epochs(1), deep
        => DIED_PROMOTED;
    "sc-move-holders-die": cold [Set, Get] sc, replicas(2), dies(0b001), ordered, epochs(1)
        => DIED_PROMOTED;
};

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
const MOVED_HOT_DELETED: &[Witness] = &[AllAnswered, TookOver, Settled, Demoted, Deleted];
const MOVED_PROMOTED_DELETED: &[Witness] = &[
    AllAnswered,
    KeyMoved,
    Promoted,
    Demoted,
    TookOver,
    Settled,
    Deleted,
];
const LEFT_PROMOTED_DELETED: &[Witness] = &[
    AllAnswered,
    Promoted,
    Demoted,
    TookOver,
    Settled,
    Departed,
    Deleted,
];
const LEFT: &[Witness] = &[AllAnswered, Settled, Departed];
