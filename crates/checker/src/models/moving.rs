//! Models of keys that change their holders.

use crate::builder::{cold, hot};
use crate::setup::Kind::{Append, Delete, Get, Set};
use crate::setup::Setup;
use crate::setup::Witness::{self, *};

/// All of them.
pub(super) const MOVING: &[Setup] = &[
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
    hot("sc-move-hot-three", &[Set, Get])
        .sc()
        .comes()
        .unannounced()
        .ordered()
        .demotion()
        .sees(MOVED_HOT)
        .deep(),
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
    cold("sc-move-promote-three", &[Set, Get])
        .sc()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("sc-move-promote-wide", &[Set, Get, Get])
        .sc()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    // Something is deleted meanwhile.
    hot("sc-move-hot-delete", &[Set, Delete, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .demotion()
        .sees(MOVED_HOT_DELETED),
    cold("sc-move-promote-delete", &[Delete, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED_DELETED),
    cold("sc-move-promote-away-delete", &[Delete, Get])
        .sc()
        .lower_pair()
        .goes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(LEFT_PROMOTED_DELETED),
    cold("sc-move-holders-delete", &[Delete, Get])
        .sc()
        .pair()
        .replicas(2)
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED_DELETED),
    cold("sc-move-promote-set-delete", &[Set, Delete, Get])
        .sc()
        .pair()
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED_DELETED)
        .deep(),
    cold("sc-move-holders-set-delete", &[Set, Delete, Get])
        .sc()
        .pair()
        .replicas(2)
        .comes()
        .unannounced()
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED_DELETED)
        .deep(),
    // The key has several holders, and a node dies while it moves.
    hot("sc-move-holders-hot-crash", &[Set, Get])
        .sc()
        .replicas(2)
        .comes()
        .crash_one_of(0b111)
        .ordered()
        .demotion()
        .sees(MOVED_HOT_DIED)
        .deep(),
    cold("sc-move-holders-crash-get", &[Get])
        .sc()
        .replicas(2)
        .comes()
        .unannounced()
        .crash_one_of(0b111)
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("sc-move-holders-crash-set", &[Set])
        .sc()
        .replicas(2)
        .comes()
        .unannounced()
        .crash_one_of(0b111)
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("sc-move-holders-crash", &[Set, Get])
        .sc()
        .replicas(2)
        .comes()
        .unannounced()
        .crash_one_of(0b111)
        .ordered()
        .epochs(1)
        .sees(MOVED_PROMOTED)
        .deep(),
    cold("sc-move-holders-promote-die", &[Get])
        .sc()
        .replicas(2)
        .dies(0b011)
        .ordered()
        .epochs(1)
        .sees(DIED_PROMOTED)
        .deep(),
    cold("sc-move-holders-die", &[Set, Get])
        .sc()
        .replicas(2)
        .dies(0b001)
        .ordered()
        .epochs(1)
        .sees(DIED_PROMOTED),
];

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
