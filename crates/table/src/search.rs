//! Finding a cuckoo path, without any lock.
//!
//! Both of a new key's buckets are full; somebody must move to his other bucket, or somebody else
//! must make room for him there. The search is breadth-first (cuckoo paper, section 3.3.2.2): every
//! slot of a bucket begins a path, so with B slots per bucket and M slots examined a path has about
//! `log_B(M / 2)` moves, at most three for B = 8, where a depth-first walk as in MemC3 has up to
//! 250. A short path is cheap to carry out and is rarely invalid by then. It also knows in advance
//! which buckets it will look at, so it can prefetch them.
//!
//! ```text
//!   roots     b1            b2            queue: bucket, which node and slot it was reached from
//!            / | \         / | \
//!           .  .  .       .  x  .         x has a free slot: the path is b2.slot -> x.slot
//! ```
//!
//! What is read here races with writers, so a path is a guess; `Index::execute` validates it.

use std::mem::MaybeUninit;

use crate::{
    buckets::{Place, Resolver, SLOTS},
    cuckoo_table::Size,
    item_index::Index,
    locks::Locks,
};

/// M of the paper: slots examined before the table is called too full (section 3.3.2.2).
const SLOTS_EXAMINED_MAX: usize = 2000;
/// Buckets examined.
const NODES_MAX: usize = SLOTS_EXAMINED_MAX / SLOTS;
/// Buckets that the far search examines. While a growing table doubles, its buckets that are not
/// split yet are up to 99.7 % full, at any number of them; a path out of there exists, and of some
/// 20,000 such searches at fills of 0.92 to 0.96 the longest examined 7,800 buckets, the median
/// 2,100, with a tail that halves every 400.
const FAR_NODES_MAX: usize = 16_384;
/// Moves of a depth-first walk: as many as MemC3's (section 4.1), which looks at two walks of
/// buckets of four.
const WALK_MOVES_MAX: usize = SLOTS_EXAMINED_MAX / 2 / 4;
/// Places on a path found breadth-first, more than the tree is deep unless keys were crafted.
const PATH_PLACES_MAX: usize = 16;

/// How to look for a path.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Search {
    /// The shortest path first; the default.
    #[default]
    Breadth,
    /// Two random walks, as in MemC3: the baseline of the factor analysis.
    Depth,
}

/// A bucket that the search will look at.
#[derive(Clone, Copy)]
struct Node {
    bucket: u32,
    /// The node whose slot `slot` holds the item that would move here; a root is its own parent.
    parent: u16,
    slot: u8,
}

/// The queue of the breadth-first search: on the stack, and only written where it is used.
struct Queue<const NODES: usize> {
    // INVARIANT: the first `count` nodes are initialised.
    nodes: [MaybeUninit<Node>; NODES],
    count: usize,
}

impl<const NODES: usize> Queue<NODES> {
    #[inline(always)] // not another copy on the stack, in unoptimised builds too
    fn new() -> Self {
        const { assert!(NODES <= u16::MAX as usize, "a parent is 16 bits") };
        Self {
            nodes: [const { MaybeUninit::uninit() }; NODES],
            count: 0,
        }
    }

    #[inline]
    fn push(&mut self, node: Node) {
        self.nodes[self.count].write(node);
        self.count += 1;
    }

    #[inline]
    fn get(&self, index: usize) -> Node {
        assert!(index < self.count, "a node is read after it was pushed");
        // SAFETY: see INVARIANT.
        unsafe { self.nodes[index].assume_init() }
    }

    /// Gives `carry_out` the path from a root to `last`: the places along it, in order, `last` at
    /// the end. `None` if it is too long, as in a tree where few items have another bucket.
    fn follow<T>(
        &self,
        node: usize,
        last: Place,
        carry_out: impl FnOnce(&[Place]) -> T,
    ) -> Option<T> {
        let mut places = [Place::default(); PATH_PLACES_MAX];
        let mut first = PATH_PLACES_MAX - 1;
        places[first] = last;
        let mut index = node;
        loop {
            let at = self.get(index);
            let parent = usize::from(at.parent);
            if parent == index {
                return Some(carry_out(&places[first..]));
            }
            first = first.checked_sub(1)?;
            places[first] = Place {
                bucket: self.get(parent).bucket,
                slot: at.slot,
            };
            index = parent;
        }
    }
}

/// Looks for a path for `hash` and gives it to `carry_out`; `None` if there is none.
pub(crate) fn find<R: Resolver, C: Locks, T>(
    table: &Index<R, C>,
    hash: u64,
    carry_out: impl FnOnce(&[Place]) -> T,
) -> Option<T> {
    match table.tuning.search {
        Search::Breadth => find_shortest(table, hash, carry_out),
        Search::Depth => depth_first(table, hash, carry_out),
    }
}

/// The same, whatever way is configured: a path that comes to no slot twice if nobody writes.
pub(crate) fn find_shortest<R: Resolver, C: Locks, T>(
    table: &Index<R, C>,
    hash: u64,
    carry_out: impl FnOnce(&[Place]) -> T,
) -> Option<T> {
    breadth_first::<R, C, T, NODES_MAX>(table, hash, carry_out)
}

/// As [`find`], looking much further: the last resort of a table that may still grow.
#[cold]
#[inline(never)] // its queue takes 128 KiB of stack
pub(crate) fn find_far<R: Resolver, C: Locks, T>(
    table: &Index<R, C>,
    hash: u64,
    carry_out: impl FnOnce(&[Place]) -> T,
) -> Option<T> {
    breadth_first::<R, C, T, FAR_NODES_MAX>(table, hash, carry_out)
}

fn breadth_first<R: Resolver, C: Locks, T, const NODES: usize>(
    table: &Index<R, C>,
    hash: u64,
    carry_out: impl FnOnce(&[Place]) -> T,
) -> Option<T> {
    let size = table.size();
    let mut queue = Queue::<NODES>::new();
    let [first, second] = size.pair(hash);
    queue.push(Node {
        bucket: first as u32,
        parent: 0,
        slot: 0,
    });
    if second != first {
        queue.push(Node {
            bucket: second as u32,
            parent: 1,
            slot: 0,
        });
    }
    let mut head = 0;
    while head < queue.count {
        let bucket = queue.get(head).bucket as usize;
        if let Some(slot) = free_slot(table.buckets.occupied(bucket)) {
            return queue.follow(head, Place::new(bucket, slot), carry_out);
        }
        if table.tuning.prefetch {
            prefetch_ahead(table, &queue, head);
        }
        expand(table, &mut queue, head, size);
        head += 1;
    }
    None
}

/// The residents of this node, if it is the first, and of the next: their hashes come soon.
#[inline]
fn prefetch_ahead<R: Resolver, C: Locks, const NODES: usize>(
    table: &Index<R, C>,
    queue: &Queue<NODES>,
    head: usize,
) {
    if head == 0 {
        table
            .buckets
            .prefetch_residents(queue.get(0).bucket as usize);
    }
    if head + 1 < queue.count {
        table
            .buckets
            .prefetch_residents(queue.get(head + 1).bucket as usize);
    }
}

/// Queues the other buckets of a full bucket's residents.
#[inline]
fn expand<R: Resolver, C: Locks, const NODES: usize>(
    table: &Index<R, C>,
    queue: &mut Queue<NODES>,
    head: usize,
    size: Size,
) {
    let bucket = queue.get(head).bucket as usize;
    // Another start in each bucket, so that searches that run at once part ways.
    let start = bucket ^ bucket >> 5;
    for turn in 0..SLOTS {
        if queue.count == NODES {
            return;
        }
        let slot = (start + turn) % SLOTS;
        let hash = table.buckets.hash_at(Place::new(bucket, slot));
        let Some(other) = other_bucket(size.pair(hash), bucket) else {
            continue;
        };
        queue.push(Node {
            bucket: other as u32,
            parent: head as u16,
            slot: slot as u8,
        });
        if table.tuning.prefetch {
            table.buckets.prefetch(other);
        }
    }
}

/// Two random walks, a step of each in turn, until one meets a free slot.
fn depth_first<R: Resolver, C: Locks, T>(
    table: &Index<R, C>,
    hash: u64,
    carry_out: impl FnOnce(&[Place]) -> T,
) -> Option<T> {
    let size = table.size();
    let mut walks = [[Place::default(); WALK_MOVES_MAX + 1]; 2];
    let mut at = size.pair(hash);
    let mut random = hash | 1;
    for step in 0..=WALK_MOVES_MAX {
        for (walk, bucket) in walks.iter_mut().zip(&mut at) {
            if let Some(slot) = free_slot(table.buckets.occupied(*bucket)) {
                walk[step] = Place::new(*bucket, slot);
                return Some(carry_out(&walk[..=step]));
            }
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let start = (random >> 33) as usize;
            let victim = (0..SLOTS).find_map(|turn| {
                let place = Place::new(*bucket, (start + turn) % SLOTS);
                let pair = size.pair(table.buckets.hash_at(place));
                other_bucket(pair, *bucket).map(|other| (place, other))
            });
            let (place, other) = victim?;
            walk[step] = place;
            *bucket = other;
        }
    }
    None
}

#[inline]
fn free_slot(occupied: u32) -> Option<usize> {
    let free = !occupied & ((1 << SLOTS) - 1);
    (free != 0).then(|| free.trailing_zeros() as usize)
}

/// The bucket of `pair` that is not `bucket`; `None` if there is none, or if the pair was read
/// from a slot that changed meanwhile.
#[inline]
fn other_bucket(pair: [usize; 2], bucket: usize) -> Option<usize> {
    let [first, second] = pair;
    match (first == bucket, second == bucket) {
        (true, false) => Some(second),
        (false, true) => Some(first),
        _ => None,
    }
}
