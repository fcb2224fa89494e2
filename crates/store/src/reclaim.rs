//! Reclaims memory: empties segments that are expired, flushed, sparse, or next to be evicted.
//!
//! A drain walks one segment from its start: what is dead or gone costs a look, what is kept moves
//! to another segment, the rest leaves the index; then the segment is free (or waits for its last
//! lease). It is resumable after every item, shared by all writers, and works at most
//! [`ITEMS_A_TURN`] items a turn, so that nobody waits for a whole segment. Some segments stay in
//! reserve: relocations may take them, so a drain can always go on.
//!
//! ```text
//!   maintain ---> scan: 64 headers a turn ----> expired, flushed ----+
//!      |                                                             v
//!      +-- fewer free than the low water mark? --> sparse, oldest -> drain -> free
//!   set, no room ----------------------------------------------------^
//! ```
//!
//! Locks: a drain's mutex, then the key's pair, then the directory's; never the other way.

use std::{thread, time::Duration};

use curtail_segments::{SegmentClaim, SegmentId, State};
use curtail_table::{Locked, Reference};
use curtail_types::{KeyHash, Now};

use crate::{
    Store, Writer,
    budget::ItemBudget,
    counters::Count,
    eviction::{self, Fate, Queue, Scans},
    item::{Kind, Meta},
    large_values::{copy_head, give_up, owner_of_tail},
    open_segments::{NoSegment, RESERVE},
    slice_eviction::DropFate,
    store::{Found, Items, Presence},
    sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, lock, try_lock},
};

/// Items that one call handles at most (design: bounded work per turn).
pub(crate) const ITEMS_A_TURN: usize = 64;

/// Drains under way at once.
const DRAINS: usize = 2;

/// Items whose index lines are asked for ahead of use.
const BATCH: usize = 8;

/// A look at a dead item costs this much less than handling a live one.
const LOOKS_PER_ITEM: usize = 16;

/// Headers looked at in one turn.
const SCAN_HEADERS: usize = 64;

/// Headers looked at for a sparse segment when nothing may be evicted.
const SPARSE_HEADERS_MAX: usize = 4096;

/// Gathering this often in a row without any gain, the store evicts all the same.
const IDLE_GATHERS_MAX: usize = 64;

/// Turns without another look after all headers were looked at in vain.
const REST_TURNS: usize = 256;

/// Items that a write handles by itself when little is free, and when nearly nothing is.
const ASSIST_ITEMS: [usize; 2] = [4, 16];

/// Turns of work that one write does at most before it is refused.
const DIRECT_TURNS_MAX: usize = 4096;

/// The same for a write that may not evict anything.
const GATHER_TURNS_MAX: usize = 16;

/// How often a write that needs room yields to the threads that make room, before it sleeps.
const YIELDS_MAX: usize = 64;

/// How long it sleeps each time.
const PAUSE: Duration = Duration::from_micros(100);

/// The state of making room.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    drains: [Mutex<Option<Drain>>; DRAINS],
    scan: Mutex<Scan>,
    sparse_cursor: AtomicUsize,
    scans: Mutex<Scans>,
    /// Whether the last segment chosen was a sparse one.
    was_gathered: AtomicBool,
    /// Choices in a row before which no more was available than before the last.
    idle_gathers: AtomicUsize,
    available_before: AtomicUsize,
    rest_turns: AtomicUsize,
    pub(crate) budget: ItemBudget,
}

/// Why a segment is drained.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    /// To make room at the cost of live items.
    Evict,
    /// To gather what is live; also for what should be gone altogether.
    Compact,
}

/// A segment being drained.
#[derive(Debug)]
pub(crate) struct Drain {
    id: SegmentId,
    queue: Queue,
    purpose: Purpose,
    offset: usize,
    end: usize,
    /// Words of items that were moved elsewhere.
    kept_words: usize,
    /// The mark below which at least half must go.
    must_give_below: u8,
    /// Whether items stay in it that wait for the machines of their slices.
    is_left: bool,
}

impl Drain {
    /// What becomes of a live item with this mark at the drain's offset.
    fn fate(&self, mark: u8) -> Fate {
        let must_go =
            mark < self.must_give_below && !eviction::may_keep(mark, self.offset, self.kept_words);
        match self.purpose {
            Purpose::Evict if must_go => Fate::Drop,
            Purpose::Evict => eviction::fate(self.queue, mark),
            Purpose::Compact => Fate::Keep {
                queue: self.queue,
                mark,
            },
        }
    }
}

/// A walk over all headers, a few at a time.
#[derive(Debug, Default)]
struct Scan {
    /// The next header, from 1; 0 between two walks.
    cursor: u32,
    generation: u32,
    saw_old: bool,
    /// It came upon a segment that was gone.
    found: bool,
    /// When the last walk ended, in Unix seconds.
    ended_seconds: u32,
}

/// How a call went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// It handled so many items.
    Worked(usize),
    /// Other threads are at it.
    Busy,
    /// There is nothing to gain.
    Nothing,
}

/// What a look for the next segment to drain came to.
pub(crate) enum NextDrain {
    Found(Drain),
    Nothing,
    /// Another thread has made room meanwhile, or has taken what was found: look again.
    Again,
}

/// What walking part of a segment came to.
enum Walked {
    Partly(usize),
    Whole(usize),
    /// No room to move what must be kept.
    Stuck,
}

impl Store {
    /// Bounded background work, called by every worker: keeps a reserve of free segments, takes
    /// back expired ones, follows changes of the limit. Handles at most `items_max` items and
    /// returns how many it handled. To be called in every turn while that is not 0 or while
    /// [`Store::is_short_of_room`], else now and then.
    pub fn maintain(&self, writer: &mut Writer, now: Now, items_max: usize) -> usize {
        self.tick(now);
        self.follow_budget();
        self.follow_promises();
        self.segments().release(2);
        self.sweep(writer, now);
        let items_max = items_max.clamp(1, ITEMS_A_TURN);
        if let Some(id) = self.scan_now_and_then(now)
            && self.segments().take_sealed(id)
        {
            self.start(id, Purpose::Compact);
        }
        match self.reclaim(writer, now, items_max, 0) {
            Progress::Worked(items) => items,
            Progress::Busy | Progress::Nothing => 0,
        }
    }

    /// A little work after a write, when less is free than should be.
    #[inline]
    pub(crate) fn assist(&self, writer: &mut Writer, now: Now) {
        if self.index.is_over_target() {
            // One bucket has room for more items than one write adds.
            self.index.grow(1);
            self.follow_budget();
        }
        let available = self.segments().available();
        let low_water = self.reclaim.budget.low_water();
        if available * 2 < low_water + RESERVE {
            let urgent = usize::from(available <= RESERVE + 1);
            self.reclaim(writer, now, ASSIST_ITEMS[urgent], 0);
        }
    }

    /// Makes room for a write that found none: `needed` segments beyond the reserve. Whether there
    /// are now.
    #[cold]
    pub(crate) fn make_room(&self, writer: &mut Writer, now: Now, needed: usize) -> bool {
        writer.count(Count::DirectReclaims);
        self.follow_budget();
        let wanted = RESERVE + needed;
        if wanted > self.reclaim.budget.segments_allowed() {
            // Nothing is evicted for what will not fit in the end.
            return false;
        }
        let mut yields = 0;
        // Who may not evict waits for no more than what gathering makes at once.
        let turns_max = match self.evicts_for(writer) || !self.config().evict {
            true => DIRECT_TURNS_MAX,
            false => GATHER_TURNS_MAX,
        };
        for _ in 0..turns_max {
            if self.segments().available() >= wanted {
                return true;
            }
            match self.reclaim(writer, now, ITEMS_A_TURN, wanted) {
                Progress::Worked(_) => {}
                Progress::Busy if yields < YIELDS_MAX => {
                    yields += 1;
                    thread::yield_now();
                }
                // Who is at it may have stepped aside for everybody: yielding does not let it run.
                Progress::Busy => thread::sleep(PAUSE),
                Progress::Nothing => {
                    // What is left may be in open segments. Without eviction sealing them gains
                    // nothing.
                    if !self.evicts_for(writer) || self.room.seal_all() == 0 {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// Handles up to `items_max` items of the drain under way, or else of the next one, if fewer
    /// than `wanted` segments are available, or fewer than there should always be.
    pub(crate) fn reclaim(
        &self,
        writer: &mut Writer,
        now: Now,
        items_max: usize,
        wanted: usize,
    ) -> Progress {
        let evicts = self.evicts_for(writer);
        self.drain_on(writer, now, items_max, || self.choose(now, wanted, evicts))
    }

    /// The same of the drain under way or of the one that `choose` gives.
    pub(crate) fn drain_on(
        &self,
        writer: &mut Writer,
        now: Now,
        items_max: usize,
        choose: impl FnOnce() -> NextDrain,
    ) -> Progress {
        let mut is_busy = false;
        for turn in 0..DRAINS {
            let index = (writer.group() + turn) % DRAINS;
            let Some(mut drain) = try_lock(&self.reclaim.drains[index]) else {
                is_busy = true;
                continue;
            };
            if drain.is_none() && turn == 0 {
                // Rather help the other drain than begin a second one.
                match try_lock(&self.reclaim.drains[(index + 1) % DRAINS]) {
                    Some(mut other) if other.is_some() => {
                        return self.advance(writer, now, &mut other, items_max);
                    }
                    Some(_) => {}
                    None => is_busy = true,
                }
            }
            if drain.is_none() {
                match choose() {
                    NextDrain::Found(next) => *drain = Some(next),
                    // What the other drain gives is still to come.
                    NextDrain::Nothing if is_busy => break,
                    NextDrain::Nothing => return Progress::Nothing,
                    NextDrain::Again => break,
                }
            }
            return self.advance(writer, now, &mut drain, items_max);
        }
        Progress::Busy
    }

    fn advance(
        &self,
        writer: &mut Writer,
        now: Now,
        slot: &mut Option<Drain>,
        items_max: usize,
    ) -> Progress {
        let Some(drain) = slot else {
            return Progress::Nothing;
        };
        match self.walk(writer, now, drain, items_max) {
            Walked::Partly(items) => Progress::Worked(items),
            Walked::Whole(items) => {
                match drain.is_left {
                    true => self.segments().enqueue(drain.id, drain.queue as usize),
                    false => _ = self.segments().retire(drain.id),
                }
                if drain.purpose == Purpose::Evict && drain.queue == Queue::Main {
                    let words = self.segments().segment_words();
                    lock(&self.reclaim.scans).note(words, drain.kept_words);
                }
                *slot = None;
                Progress::Worked(items)
            }
            Walked::Stuck => {
                self.segments().enqueue(drain.id, drain.queue as usize);
                *slot = None;
                if !self.evicts_for(writer) {
                    return Progress::Nothing;
                }
                // What cannot be gathered for want of room has to give way to eviction.
                let idle = &self.reclaim.idle_gathers;
                idle.store(IDLE_GATHERS_MAX, Ordering::Relaxed);
                self.reclaim
                    .available_before
                    .store(usize::MAX, Ordering::Relaxed);
                Progress::Worked(1)
            }
        }
    }

    /// Puts the segments that are being drained back into their queues.
    pub(crate) fn park_drains(&self) {
        for place in &self.reclaim.drains {
            if let Some(drain) = lock(place).take() {
                self.segments().enqueue(drain.id, drain.queue as usize);
            }
        }
    }

    // ---- choosing ----

    /// The next segment to drain, taken out of its queue, if less is available than should be.
    fn choose(&self, now: Now, wanted: usize, evicts: bool) -> NextDrain {
        let available = self.segments().available();
        let is_urgent = available < wanted.max(RESERVE + 1);
        let wanted = wanted.max(self.reclaim.budget.low_water());
        if available >= wanted {
            return NextDrain::Again;
        }
        if let Some(id) = self.scan_for_gone(now)
            && self.segments().take_sealed(id)
        {
            return NextDrain::Found(self.drain_of(id, Purpose::Compact));
        }
        // A look at every header that found nothing is not repeated in every turn.
        let rests = &self.reclaim.rest_turns;
        let resting = rests.load(Ordering::Relaxed);
        if resting > 0 && !is_urgent {
            rests.store(resting - 1, Ordering::Relaxed);
            return NextDrain::Nothing;
        }
        let is_much_dead = self.is_much_dead();
        if self.should_gather(is_much_dead, is_urgent, evicts)
            && let Some(id) = self.sparsest()
        {
            if !self.segments().take_sealed(id) {
                return NextDrain::Again;
            }
            self.reclaim.was_gathered.store(true, Ordering::Relaxed);
            return NextDrain::Found(self.drain_of(id, Purpose::Compact));
        }
        if is_much_dead && !is_urgent {
            rests.store(REST_TURNS, Ordering::Relaxed);
            return NextDrain::Nothing;
        }
        match evicts {
            true => self.choose_victim(),
            false => NextDrain::Nothing,
        }
    }

    /// Whether to gather a sparse segment rather than to evict. Gathering fills another segment: it
    /// gains little by itself, and a store that preferred it always might never evict. So the two
    /// take turns; but nothing live is evicted while much of the memory is dead, unless somebody
    /// waits for room and gathering has not gained any for a long time.
    fn should_gather(&self, is_much_dead: bool, is_urgent: bool, evicts: bool) -> bool {
        let was_gathered = self.reclaim.was_gathered.swap(false, Ordering::Relaxed);
        if !evicts {
            return true;
        }
        let available = self.segments().available();
        let before = self
            .reclaim
            .available_before
            .swap(available, Ordering::Relaxed);
        if available > before {
            self.reclaim.idle_gathers.store(0, Ordering::Relaxed);
        }
        let idle = self.reclaim.idle_gathers.fetch_add(1, Ordering::Relaxed);
        if idle >= IDLE_GATHERS_MAX && is_urgent {
            self.reclaim.idle_gathers.store(0, Ordering::Relaxed);
            return false;
        }
        !was_gathered || is_much_dead
    }

    /// Whether half of the memory of segments in use, or more, is dead.
    fn is_much_dead(&self) -> bool {
        let (resident, free, _) = self.segments().resident();
        let in_use_bytes = (resident - free) * self.segments().segment_bytes();
        eviction::is_much_dead(self.ledger.bytes_now(), in_use_bytes)
    }

    /// The next segment that the policy gives up.
    pub(crate) fn choose_victim(&self) -> NextDrain {
        let policy = &self.room.eviction;
        let (small, main) = (
            self.room.queue_bytes(Queue::Small),
            self.room.queue_bytes(Queue::Main),
        );
        let first = policy.victim_queue(small, main);
        let second = match first {
            Queue::Small => Queue::Main,
            Queue::Main => Queue::Small,
        };
        self.room.seal_if_oldest(first);
        let oldest = |queue: Queue| self.segments().take_oldest(queue as usize, |_| true);
        let Some(id) = oldest(first).or_else(|| oldest(second)) else {
            return NextDrain::Nothing;
        };
        let mut drain = self.drain_of(id, Purpose::Evict);
        let (_, clock) = self.segments().opened(id);
        policy.evicting(drain.queue, clock, self.ledger.items_now());
        self.follow_budget();
        if drain.queue == Queue::Main {
            let is_node = self.slices.get().is_some();
            drain.must_give_below = lock(&self.reclaim.scans).must_give_below(is_node);
        }
        NextDrain::Found(drain)
    }

    /// Begins a drain if there is a free place for one, else puts the segment back.
    fn start(&self, id: SegmentId, purpose: Purpose) {
        for place in &self.reclaim.drains {
            if let Some(mut drain) = try_lock(place)
                && drain.is_none()
            {
                *drain = Some(self.drain_of(id, purpose));
                return;
            }
        }
        self.segments().enqueue(id, self.segments().queue(id));
    }

    fn drain_of(&self, id: SegmentId, purpose: Purpose) -> Drain {
        Drain {
            id,
            queue: Queue::from_index(self.segments().queue(id)),
            purpose,
            offset: 0,
            end: self.segments().filled_words(id),
            kept_words: 0,
            must_give_below: 0,
            is_left: false,
        }
    }

    /// The same as [`Store::scan_for_gone`], but when nobody is short of segments and a walk found
    /// nothing, the next one begins in another second: that is how fine expiry is, and looking at
    /// headers in every turn costs more than a request.
    fn scan_now_and_then(&self, now: Now) -> Option<SegmentId> {
        let scan = try_lock(&self.reclaim.scan)?;
        let rests = scan.cursor == 0
            && scan.ended_seconds == now.unix_seconds()
            && scan.generation == self.room.generation()
            && !(scan.saw_old || scan.found);
        if rests {
            return None;
        }
        self.scan_headers(scan, now, self.room.is_flush_settled(now))
    }

    /// Looks at the next headers for a segment whose items are all expired or flushed.
    fn scan_for_gone(&self, now: Now) -> Option<SegmentId> {
        self.scan_headers(try_lock(&self.reclaim.scan)?, now, true)
    }

    /// Looks at the next headers, to the end of the walk at most. Flushed segments count as gone
    /// if `flushed_too`.
    fn scan_headers(
        &self,
        mut scan: MutexGuard<'_, Scan>,
        now: Now,
        flushed_too: bool,
    ) -> Option<SegmentId> {
        let last = self.segments().used_max();
        if scan.cursor == 0 {
            scan.cursor = 1;
            scan.generation = self.room.generation();
            scan.saw_old = false;
            scan.found = false;
        }
        for _ in 0..SCAN_HEADERS {
            if scan.cursor > last {
                if !scan.saw_old {
                    self.room.none_is_old(scan.generation);
                }
                scan.cursor = 0;
                scan.ended_seconds = now.unix_seconds();
                return None;
            }
            let id = self.segments().segment(scan.cursor)?;
            scan.cursor += 1;
            let is_old = self.room.is_in_use(id) && self.room.is_old(id);
            scan.saw_old |= is_old;
            if self.segments().state(id) == State::Sealed
                && self.segments().pending(id) == 0
                && ((is_old && flushed_too) || self.segments().expiry_max(id) <= now.unix_seconds())
            {
                scan.found = true;
                return Some(id);
            }
        }
        None
    }

    /// The sparsest of the next sealed segments that is worth gathering.
    fn sparsest(&self) -> Option<SegmentId> {
        let last = self.segments().used_max() as usize;
        let is_node = self.slices.get().is_some();
        let is_thorough = is_node || !self.config().evict || self.is_much_dead();
        let looks = match is_thorough {
            true => SPARSE_HEADERS_MAX,
            false => SCAN_HEADERS,
        };
        let looks = looks.min(last);
        let start = self
            .reclaim
            .sparse_cursor
            .fetch_add(looks, Ordering::Relaxed);
        (0..looks)
            .filter_map(|look| self.segments().segment(((start + look) % last + 1) as u32))
            .filter(|&id| self.segments().state(id) == State::Sealed)
            .filter(|&id| self.is_worth_gathering(id))
            // Neither what cannot be taken yet nor what would not be free afterwards: what is live
            // there takes room elsewhere first.
            .filter(|&id| self.segments().pending(id) == 0 && !self.segments().is_leased(id))
            .min_by_key(|&id| self.segments().live_words(id))
    }

    fn is_worth_gathering(&self, id: SegmentId) -> bool {
        let capacity = self.segments().segment_words();
        let live = self.segments().live_words(id);
        let dead = self.segments().filled_words(id).saturating_sub(live);
        let counts_little = match self.slices.get() {
            // What other nodes have evicted lies scattered: no eviction here would gather it.
            Some(_) => eviction::is_worth_gathering(dead, capacity),
            None => false,
        };
        eviction::is_sparse(live, capacity)
            || counts_little
            || (!self.config().evict && eviction::is_worth_compacting(dead, capacity))
    }

    // ---- walking ----

    fn walk(&self, writer: &mut Writer, now: Now, drain: &mut Drain, items_max: usize) -> Walked {
        let start = self.segments().start(drain.id);
        let (mut handled, mut looked) = (0, 0);
        while drain.offset < drain.end {
            let mut batch = [(0, KeyHash(0)); BATCH];
            let mut count = 0;
            let mut next = drain.offset;
            while count < BATCH.min(items_max - handled) && next < drain.end {
                let item = self.item(start + next as u64);
                let meta = item.meta();
                if meta.kind() != Kind::Dead {
                    let hash = match meta.kind() {
                        Kind::Piece => KeyHash(item.word(0)),
                        _ => self.index.resolver().key_hash(start + next as u64),
                    };
                    self.index.prefetch(hash);
                    batch[count] = (next, hash);
                    count += 1;
                }
                next += meta.words();
                looked += 1;
                if looked >= items_max * LOOKS_PER_ITEM {
                    break;
                }
            }
            for &(offset, hash) in &batch[..count] {
                drain.offset = offset;
                if self.drain_one(writer, now, drain, hash).is_err() {
                    return Walked::Stuck;
                }
            }
            drain.offset = next;
            handled += count;
            if handled >= items_max || looked >= items_max * LOOKS_PER_ITEM {
                break;
            }
        }
        let items = handled.max(1);
        if drain.offset < drain.end {
            Walked::Partly(items)
        } else {
            Walked::Whole(items)
        }
    }

    /// Decides about the item or piece at the drain's offset.
    fn drain_one(
        &self,
        writer: &mut Writer,
        now: Now,
        drain: &mut Drain,
        hash: KeyHash,
    ) -> Result<(), NoSegment> {
        let here = self.segments().start(drain.id) + drain.offset as u64;
        let mut locked = self.index.lock(hash);
        // Under the lock: a moved head may have changed the owner, a writer may have been faster.
        let item = self.item(here);
        let (head, is_tail) = match item.meta().kind() {
            Kind::Dead => return Ok(()),
            Kind::Piece => (owner_of_tail(self.segments().words(here)), true),
            Kind::Inline | Kind::Head => (here, false),
        };
        let Some(position) = locked.find(|found| found.get() == head) else {
            return Ok(());
        };
        let found = Found {
            position,
            reference: head,
            meta: self.item(head).meta(),
        };
        let extension = self.item(head).extension(found.meta);
        let presence = self.presence(head, extension, now);
        if presence != Presence::Here {
            self.remove_gone(writer, &mut locked, found, presence);
            return Ok(());
        }
        let mark = locked.mark(position);
        let is_kept = drain.purpose == Purpose::Evict && self.is_kept(hash);
        let fate = match is_kept {
            true => Fate::Keep {
                queue: Queue::Main,
                mark,
            },
            false => drain.fate(mark),
        };
        let fate = match fate {
            Fate::Drop => match self.drop_fate(hash, head, mark) {
                DropFate::Drop => Fate::Drop,
                DropFate::Waits => {
                    drain.is_left = true;
                    return Ok(());
                }
                DropFate::Stays => Fate::Keep {
                    queue: drain.queue,
                    mark,
                },
            },
            kept => kept,
        };
        match fate {
            Fate::Drop => {
                self.evict(writer, now, &mut locked, found);
                self.room.eviction.dropped(drain.queue, hash);
                Ok(())
            }
            Fate::Keep { queue, mark } => {
                let tail = is_tail.then_some(here);
                drain.kept_words += found.meta.words();
                let moved = self.relocate(writer, now, &mut locked, found, queue, mark, tail);
                match (moved, drain.purpose) {
                    (Err(NoSegment), Purpose::Evict) if !is_kept && self.may_drop(head) => {
                        self.evict(writer, now, &mut locked, found);
                        Ok(())
                    }
                    (moved, _) => moved,
                }
            }
        }
    }

    pub(crate) fn evict(
        &self,
        writer: &mut Writer,
        now: Now,
        locked: &mut Locked<'_, Items>,
        found: Found,
    ) {
        self.note_evicted(writer, now, &found);
        writer.count(Count::Evictions);
        if !found.meta.fetched() {
            writer.count(Count::EvictedUnfetched);
        }
        self.unlink(writer, locked, found);
    }

    /// Moves a locked item (with `tail`, the tail of a large one and its head) to another segment.
    #[allow(clippy::too_many_arguments)] // the decision and its subject, passed through once
    pub(crate) fn relocate(
        &self,
        writer: &Writer,
        now: Now,
        locked: &mut Locked<'_, Items>,
        found: Found,
        queue: Queue,
        mark: u8,
        tail: Option<u64>,
    ) -> Result<(), NoSegment> {
        let expiry = self.item(found.reference).extension(found.meta).expiry;
        let slot = self.room.slot(writer.group(), queue, expiry, now);
        let new = self
            .room
            .allocate(slot, found.meta.words(), expiry, SegmentClaim::Any)?;
        let new_tail = match tail {
            None => None,
            Some(old) => {
                let words = self.item(old).meta().words();
                match self.room.allocate(slot, words, expiry, SegmentClaim::Any) {
                    Ok(allocation) => Some((old, words, allocation)),
                    Err(NoSegment) => {
                        give_up(self.segments(), new);
                        return Err(NoSegment);
                    }
                }
            }
        };
        // A flush between the check and the allocation would let the item survive it.
        if self.is_flushed(found.reference) {
            for allocation in [Some(new), new_tail.map(|(.., tail)| tail)]
                .into_iter()
                .flatten()
            {
                give_up(self.segments(), allocation);
            }
            self.remove_gone(writer, locked, found, Presence::Flushed);
            return Ok(());
        }
        let mut exchange = None;
        if let Some((old, words, allocation)) = new_tail {
            self.item(allocation.reference())
                .copy_from(&self.item(old), words);
            self.bury_words(old, self.item(old).meta());
            exchange = Some((old, allocation.reference()));
            // Its segment may be drained from now on; that drain waits for the key's lock.
            self.segments().finish(allocation);
        }
        self.count_wholes(found.reference, found.meta, -1);
        self.copy_item(found.reference, new.reference(), found.meta, exchange);
        self.count_wholes(new.reference(), found.meta, 1);
        if let Some(handle) = Reference::new(new.reference()) {
            locked.replace(found.position, handle);
            locked.set_mark(found.position, mark);
        }
        self.bury_words(found.reference, found.meta);
        self.segments().finish(new);
        writer.count(Count::Moved);
        Ok(())
    }

    fn copy_item(&self, from: u64, to: u64, meta: Meta, exchange: Option<(u64, u64)>) {
        match meta.kind() {
            Kind::Head => copy_head(self.segments(), from, to, exchange),
            _ => self.item(to).copy_from(&self.item(from), meta.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{Key, Set, SetOutcome, WriterId};

    use super::*;
    use crate::{StoreConfig, sync::Arc};

    /// Goal: a write that needs room waits for the threads that make it, also when they get no turn
    /// for a while. Method: both drains are held for 50 ms while memory runs out.
    #[test]
    fn a_write_waits_for_those_who_make_room() {
        let store = Arc::new(
            Store::new(StoreConfig {
                memory_bytes_max: 8 << 20,
                ..StoreConfig::default()
            })
            .expect("a store"),
        );
        let holder = Arc::clone(&store);
        let (mut writer, now) = (store.writer(WriterId(0)), Now::default());
        let (held, holds) = std::sync::mpsc::channel();
        let holder = thread::spawn(move || {
            let drains = holder.reclaim.drains.each_ref().map(lock);
            held.send(()).expect("somebody waits");
            thread::sleep(Duration::from_millis(50));
            drop(drains);
        });
        holds.recv().expect("the drains are held");
        for number in 0..20_000_u64 {
            let bytes = number.to_le_bytes();
            let hash = store.hash(&bytes);
            let key = Key::new(&bytes).expect("a key");
            let outcome = store.set(&mut writer, now, key, hash, &Set::default(), &[1; 1000]);
            assert!(matches!(outcome, SetOutcome::Stored(_)), "{number}");
        }
        holder.join().expect("no panic");
    }
}
