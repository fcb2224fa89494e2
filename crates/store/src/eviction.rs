//! The eviction policy: which items stay when memory is full, without the mechanics.
//!
//! The queues of S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP
//! 2023) made of whole segments, with three changes that `docs/decisions/eviction.md` argues and
//! measures: early hits count for less, ghosts fade as fast as main turns over, and the small
//! queue's share follows two short ghosts of equal length (Cliffhanger, Cidon et al., NSDI 2016).
//!
//! ```text
//! new --> small, young half: a hit raises the mark, three are enough
//!   |       | old half: one hit is enough
//!   |       v oldest segment: enough -> main, mark 0;  else -> ghost
//!   |     main: a hit raises the mark, up to 3
//!   |       | oldest segment: marked -> main's tail, mark - 1;  else -> main's ghost
//!   |       v
//!   +-- in the ghost, dropped less than 0.4 lives of a main segment ago --> main
//!   +-- in main's ghost --> main
//! ```
//!
//! All state is numbers in relaxed atomics: each is a measure that may lag, none guards anything.

use curtail_types::KeyHash;

use crate::{
    ghost::Ghosts,
    sync::{AtomicU64, AtomicUsize, Ordering},
};

/// The two queues of segments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Queue {
    /// Where new items land.
    Small = 0,
    /// Where items go that were read, or that came back.
    Main = 1,
}

impl Queue {
    pub(crate) fn from_index(index: usize) -> Self {
        if index == 0 { Self::Small } else { Self::Main }
    }
}

/// What becomes of a live item whose segment is evicted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// It moves to `queue` and starts there with `mark`.
    Keep {
        /// The queue.
        queue: Queue,
        /// How often it counts as read.
        mark: u8,
    },
    /// It goes, and its queue's ghost remembers it.
    Drop,
}

/// The mark that is enough to leave the small queue for main, and where marks stop.
pub(crate) const MARK_ENOUGH: u8 = 3;

/// Ghosts per item of the store, and of main's ghost, in tenths.
const GHOST_TENTHS: usize = 12;
const MAIN_GHOST_TENTHS: usize = 1;

/// A ghost counts when it was dropped less than this many lives of a main segment ago, in tenths.
const LIVES_TENTHS: u64 = 4;

/// The small queue's share of the item memory at first, and its bounds, in hundredths.
const SMALL_SHARE: u64 = 10;
const SMALL_SHARE_MIN: u64 = 1;
const SMALL_SHARE_MAX: u64 = 90;

/// After so many main segments that together gained no free one, less is kept of the next.
const SCANS_MAX: u32 = 8;

/// After so many on a node of a cluster, also of the items that were read most: there many have a
/// mark although nobody read them, since others see the reads.
const SCANS_MAX_OF_READ: u32 = 32;

/// The state of the policy.
#[derive(Debug)]
pub(crate) struct Eviction {
    ghost: Ghosts,
    main_ghost: Ghosts,
    /// Items that the ghosts are sized for; 0 before the first eviction.
    sized_for: AtomicUsize,
    /// How often something was dropped from the small queue: the clock of main.
    drops: AtomicU64,
    /// Small segments opened so far: the clock of the small queue.
    small_opened: AtomicU64,
    /// The mean of how many drops a main segment lives; `u64::MAX` before one was evicted.
    life: AtomicU64,
    /// How many bytes the small queue should have.
    small_target: AtomicU64,
    /// The bytes that items have in all.
    item_bytes: AtomicU64,
    segment_bytes: u64,
}

impl Eviction {
    /// A policy for segments of this size that may remember up to `ghosts_max` drops.
    pub(crate) fn new(segment_bytes: usize, ghosts_max: usize) -> std::io::Result<Self> {
        Ok(Self {
            ghost: Ghosts::new(ghosts_max)?,
            main_ghost: Ghosts::new(ghosts_max / 10)?,
            sized_for: AtomicUsize::new(0),
            drops: AtomicU64::new(0),
            small_opened: AtomicU64::new(0),
            life: AtomicU64::new(u64::MAX),
            small_target: AtomicU64::new(0),
            item_bytes: AtomicU64::new(0),
            segment_bytes: segment_bytes as u64,
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.ghost.memory_bytes() + self.main_ghost.memory_bytes()
    }

    /// Follows a change of the memory that items have; the small queue's share stays.
    pub(crate) fn set_item_bytes(&self, bytes: u64) {
        let before = self.item_bytes.swap(bytes, Ordering::Relaxed);
        let target = self.small_target.load(Ordering::Relaxed);
        let target = match before {
            0 => bytes / 100 * SMALL_SHARE,
            before => (u128::from(target) * u128::from(bytes) / u128::from(before)) as u64,
        };
        self.aim_at(target);
    }

    /// Moves the share of the small queue, within its bounds.
    fn aim_at(&self, target: u64) {
        let hundredth = self.item_bytes.load(Ordering::Relaxed) / 100;
        let target = target.clamp(hundredth * SMALL_SHARE_MIN, hundredth * SMALL_SHARE_MAX);
        self.small_target.store(target, Ordering::Relaxed);
    }

    // ---- segments ----

    /// What a segment of `queue` notes when it is opened.
    pub(crate) fn clock(&self, queue: Queue) -> u64 {
        match queue {
            Queue::Small => self.small_opened.fetch_add(1, Ordering::Relaxed),
            Queue::Main => self.drops.load(Ordering::Relaxed),
        }
    }

    /// Whether a small segment is in the young half of its queue, given what it noted.
    #[inline]
    fn is_young(&self, clock: u64) -> bool {
        let target = self.small_target.load(Ordering::Relaxed);
        let young = target.div_ceil(self.segment_bytes).div_ceil(2);
        let opened = self.small_opened.load(Ordering::Relaxed);
        opened.saturating_sub(clock) <= young
    }

    /// The queue to evict from, given the bytes of both.
    pub(crate) fn victim_queue(&self, small_bytes: u64, main_bytes: u64) -> Queue {
        let target = self.small_target.load(Ordering::Relaxed);
        if main_bytes == 0 || small_bytes > target {
            Queue::Small
        } else {
            Queue::Main
        }
    }

    /// A segment begins to be evicted from a store of so many items.
    pub(crate) fn evicting(&self, queue: Queue, clock: u64, items: usize) {
        self.size_ghosts(items);
        if queue == Queue::Main {
            let lived = self.drops.load(Ordering::Relaxed).saturating_sub(clock);
            let life = match self.life.load(Ordering::Relaxed) {
                u64::MAX => lived,
                life => (life * 15 + lived) / 16,
            };
            self.life.store(life, Ordering::Relaxed);
        }
    }

    /// Gives the ghosts the size that so many items ask for, when they are far from it.
    fn size_ghosts(&self, items: usize) {
        let sized_for = self.sized_for.load(Ordering::Relaxed);
        if sized_for == 0 || items > sized_for * 2 || items * 2 < sized_for {
            let items = items.max(1);
            self.sized_for.store(items, Ordering::Relaxed);
            self.ghost.resize(items * GHOST_TENTHS / 10);
            self.main_ghost.resize(items * MAIN_GHOST_TENTHS / 10);
        }
    }

    // ---- items ----

    /// The mark after a hit on an item with `mark` in a segment of `queue` with `clock`.
    #[inline]
    pub(crate) fn hit(&self, queue: Queue, clock: u64, mark: u8) -> u8 {
        if queue == Queue::Small && !self.is_young(clock) {
            MARK_ENOUGH
        } else {
            (mark + 1).min(MARK_ENOUGH)
        }
    }

    /// The queue of a new item of so many bytes.
    pub(crate) fn admit(&self, hash: KeyHash, bytes: u64) -> Queue {
        if self.sized_for.load(Ordering::Relaxed) == 0 {
            return Queue::Small;
        }
        let target = self.small_target.load(Ordering::Relaxed);
        if let Some(distance) = self.ghost.take(hash) {
            let short = (self.sized_for.load(Ordering::Relaxed) * MAIN_GHOST_TENTHS / 10) as u64;
            if distance <= short {
                self.aim_at(target + bytes);
            }
            let life = self.life.load(Ordering::Relaxed);
            return match distance <= life / 10 * LIVES_TENTHS {
                true => Queue::Main,
                false => Queue::Small,
            };
        }
        if self.main_ghost.take(hash).is_some() {
            self.aim_at(target.saturating_sub(bytes));
            return Queue::Main;
        }
        Queue::Small
    }

    /// Remembers an item that was dropped from `queue`.
    pub(crate) fn dropped(&self, queue: Queue, hash: KeyHash) {
        match queue {
            Queue::Small => {
                self.drops.fetch_add(1, Ordering::Relaxed);
                self.ghost.insert(hash);
            }
            Queue::Main => self.main_ghost.insert(hash),
        }
    }
}

/// Bytes that the ghosts of so many items take at most.
pub(crate) fn ghost_bytes(items: usize) -> usize {
    // Two bytes each, and each table a line more for the rounding.
    items * (GHOST_TENTHS + MAIN_GHOST_TENTHS) / 10 * 2 + 256
}

/// How far the eviction of main has come since it last gained a segment.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    segments: u32,
    gained_words: usize,
}

impl Scans {
    /// The mark below which main segments must give at least half of what they hold.
    pub(crate) fn must_give_below(&self, is_node: bool) -> u8 {
        match self.segments {
            0..SCANS_MAX => 0,
            SCANS_MAX..SCANS_MAX_OF_READ if is_node => MARK_ENOUGH,
            _ => u8::MAX,
        }
    }

    /// A main segment was evicted, of which so many words were kept.
    pub(crate) fn note(&mut self, segment_words: usize, kept_words: usize) {
        self.segments += 1;
        self.gained_words += segment_words.saturating_sub(kept_words);
        if self.gained_words >= segment_words {
            *self = Self::default();
        }
    }
}

/// What becomes of an item with `mark` in a segment of `queue` that is evicted.
pub(crate) fn fate(queue: Queue, mark: u8) -> Fate {
    match (queue, mark.min(MARK_ENOUGH)) {
        (Queue::Small, MARK_ENOUGH) => Fate::Keep {
            queue: Queue::Main,
            mark: 0,
        },
        (Queue::Small, _) | (Queue::Main, 0) => Fate::Drop,
        (Queue::Main, mark) => Fate::Keep {
            queue: Queue::Main,
            mark: mark - 1,
        },
    }
}

/// Whether a main segment that must give may keep an item, given the words it has walked and kept:
/// half of them, the higher marks first; a mark of 1 gets a quarter.
pub(crate) fn may_keep(mark: u8, walked_words: usize, kept_words: usize) -> bool {
    kept_words * if mark > 1 { 2 } else { 4 } < walked_words
}

/// Whether moving what is left of a segment elsewhere is better than evicting live items.
pub(crate) fn is_sparse(live_words: usize, segment_words: usize) -> bool {
    live_words * 2 <= segment_words
}

/// Whether so much is dead, half or more, that gathering it comes before evicting anything. Where
/// large values take whole segments up to a third is dead at any time, and gathering gains little.
pub(crate) fn is_much_dead(live: usize, in_use: usize) -> bool {
    live * 2 <= in_use
}

/// The same for the store of a node: the sparsest of all segments is taken, if an eighth is dead.
pub(crate) fn is_worth_gathering(dead_words: usize, segment_words: usize) -> bool {
    dead_words * 8 >= segment_words
}

/// The same for a store that may not evict: any gain counts.
pub(crate) fn is_worth_compacting(dead_words: usize, segment_words: usize) -> bool {
    dead_words * 16 >= segment_words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 1 << 16;

    fn eviction() -> Eviction {
        let eviction = Eviction::new(SEGMENT, 100_000).unwrap();
        eviction.set_item_bytes(100 * SEGMENT as u64);
        eviction
    }

    #[test]
    fn an_item_in_main_is_kept_once_for_each_counted_read() {
        let mut fate_now = fate(Queue::Main, 15);
        let mut rounds = 0;
        while let Fate::Keep { mark, queue } = fate_now {
            assert_eq!(queue, Queue::Main);
            rounds += 1;
            fate_now = fate(Queue::Main, mark);
        }
        assert_eq!(rounds, 3);
    }

    #[test]
    fn early_hits_count_one_of_three_and_later_ones_are_enough() {
        let eviction = eviction();
        let first = eviction.clock(Queue::Small);
        assert_eq!(eviction.hit(Queue::Small, first, 0), 1);
        assert_eq!(eviction.hit(Queue::Small, first, 2), 3);
        // The target is ten segments, so five opened ones make the half.
        for _ in 0..4 {
            eviction.clock(Queue::Small);
        }
        assert_eq!(eviction.hit(Queue::Small, first, 0), 1);
        eviction.clock(Queue::Small);
        assert_eq!(eviction.hit(Queue::Small, first, 0), MARK_ENOUGH);
        assert_eq!(eviction.hit(Queue::Main, first, 0), 1);
        assert_eq!(fate(Queue::Small, 2), Fate::Drop);
    }

    #[test]
    fn ghosts_fade_with_the_life_of_main() {
        let eviction = eviction();
        let key = |n: u64| KeyHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert_eq!(eviction.admit(key(1), 100), Queue::Small);
        let opened = eviction.clock(Queue::Main);
        eviction.evicting(Queue::Small, 0, 10_000);
        for n in 0..5000 {
            eviction.dropped(Queue::Small, key(n));
        }
        // Before any main segment was evicted every ghost counts.
        assert_eq!(eviction.admit(key(100), 100), Queue::Main);
        eviction.evicting(Queue::Main, opened, 10_000);
        // A main segment lived 5000 drops: 2000 drops ago is recent enough, 4900 is not.
        assert_eq!(eviction.admit(key(4500), 100), Queue::Main);
        assert_eq!(eviction.admit(key(99), 100), Queue::Small);
    }

    #[test]
    fn the_small_share_follows_the_short_ghosts_within_bounds() {
        let eviction = eviction();
        let all = 100 * SEGMENT as u64;
        eviction.evicting(Queue::Small, 0, 10_000);
        let target = || eviction.small_target.load(Ordering::Relaxed);
        assert_eq!(target(), all / 100 * 10);
        eviction.dropped(Queue::Small, KeyHash(7 << 40));
        eviction.admit(KeyHash(7 << 40), 1000);
        assert_eq!(target(), all / 100 * 10 + 1000);
        eviction.dropped(Queue::Main, KeyHash(9 << 40));
        assert_eq!(eviction.admit(KeyHash(9 << 40), all), Queue::Main);
        assert_eq!(target(), all / 100);
        eviction.set_item_bytes(all * 2);
        assert_eq!(target(), all / 100 * 2);
        assert_eq!(eviction.victim_queue(all / 100 * 2, 1), Queue::Main);
        assert_eq!(eviction.victim_queue(all / 100 * 2 + 1, 1), Queue::Small);
        assert_eq!(eviction.victim_queue(0, 0), Queue::Small);
    }

    #[test]
    fn main_must_give_after_eight_segments_without_a_gain() {
        let mut scans = Scans::default();
        for _ in 0..8 {
            assert_eq!(scans.must_give_below(true), 0);
            scans.note(1000, 900);
        }
        assert_eq!(scans.must_give_below(false), u8::MAX);
        for _ in 8..32 {
            assert_eq!(scans.must_give_below(true), MARK_ENOUGH);
            scans.note(1000, 1000);
        }
        assert_eq!(scans.must_give_below(true), u8::MAX);
        scans.note(1000, 500);
        assert_eq!(scans.must_give_below(true), 0);
        assert!(may_keep(3, 100, 40) && !may_keep(3, 100, 50));
        assert!(may_keep(1, 100, 20) && !may_keep(1, 100, 25));
    }
}
