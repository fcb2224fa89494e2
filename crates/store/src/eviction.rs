//! Which items stay when memory is full: the decisions alone, without any mechanics.
//!
//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023) over segments
//! instead of single items: new items land in a small queue; what was read there before its segment
//! reaches the end moves to the main queue, the rest leaves and is remembered as a ghost. The main
//! queue gives an item another round for each read, up to a bound.
//!
//! ```text
//!   new ---> [ small, 10 % ] --read--> [ main, 90 % ] --read--+
//!    |             |                     ^     ^     |        |
//!    |             +-> ghosts            |     +-----|--------+
//!    +-- known as a ghost ---------------+           +-> gone
//! ```

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
    /// It goes; with `ghost` it is remembered.
    Drop {
        /// Whether to remember it.
        ghost: bool,
    },
}

/// The share of all segments that the small queue may take before it is evicted from.
const SMALL_PERCENT: usize = 10;

/// Reads beyond this many do not count (the paper's two bits).
const MARK_COUNTED_MAX: u8 = 3;

/// The queue of a new item.
pub(crate) fn admit(is_ghost: bool) -> Queue {
    if is_ghost { Queue::Main } else { Queue::Small }
}

/// The queue to evict from, given the segments in each.
pub(crate) fn victim_queue(small: usize, main: usize) -> Queue {
    if main == 0 || small * 100 > (small + main) * SMALL_PERCENT {
        Queue::Small
    } else {
        Queue::Main
    }
}

/// What becomes of an item with `mark` reads in a segment of `queue` that is evicted.
pub(crate) fn fate(queue: Queue, mark: u8) -> Fate {
    match (queue, mark.min(MARK_COUNTED_MAX)) {
        (Queue::Small, 0) => Fate::Drop { ghost: true },
        (Queue::Small, _) => Fate::Keep {
            queue: Queue::Main,
            mark: 0,
        },
        (Queue::Main, 0) => Fate::Drop { ghost: false },
        (Queue::Main, mark) => Fate::Keep {
            queue: Queue::Main,
            mark: mark - 1,
        },
    }
}

/// Whether moving what is left of a segment elsewhere is better than evicting live items.
pub(crate) fn is_sparse(live_words: usize, segment_words: usize) -> bool {
    live_words * 2 <= segment_words
}

/// The same for a store that may not evict: any gain counts.
pub(crate) fn is_worth_compacting(dead_words: usize, segment_words: usize) -> bool {
    dead_words * 16 >= segment_words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_kept_once_for_each_counted_read() {
        assert_eq!(fate(Queue::Small, 0), Fate::Drop { ghost: true });
        let mut fate_now = fate(Queue::Small, 9);
        assert_eq!(
            fate_now,
            Fate::Keep {
                queue: Queue::Main,
                mark: 0
            }
        );
        fate_now = fate(Queue::Main, 15);
        let mut rounds = 0;
        while let Fate::Keep { mark, .. } = fate_now {
            rounds += 1;
            fate_now = fate(Queue::Main, mark);
        }
        assert_eq!(rounds, 3);
        assert_eq!(fate_now, Fate::Drop { ghost: false });
    }

    #[test]
    fn the_small_queue_is_held_at_its_share() {
        assert_eq!(victim_queue(5, 0), Queue::Small);
        assert_eq!(victim_queue(10, 90), Queue::Main);
        assert_eq!(victim_queue(11, 89), Queue::Small);
    }
}
