//! The eviction of the store, simulated: S3-FIFO's queues made of whole segments, where early hits
//! count for little, ghosts fade as fast as main turns over, and the small queue's share adapts.
//!
//! ```text
//! miss --> small, young half: a hit marks, three are enough
//!   |        | old half: one hit is enough
//!   |        v oldest segment: enough -> copied to main, unmarked; else -> ghost
//!   |      main: a hit marks (0..3)
//!   |        | oldest segment: marked -> copied to main's tail, mark - 1; else -> main's ghost
//!   |        v
//!   +-- in the ghost, and dropped less than 0.4 lives of a main segment ago --> main
//!   +-- in main's ghost --> main
//! ```
//!
//! Main's ghost is short, a tenth of what fits. A hit there says that main could use more room, a
//! hit among the equally many youngest of the other ghost says that small could (Cliffhanger, Cidon
//! et al., NSDI'16, section 4: shadow queues of equal length compare marginal gains).
//!
//! `Plan` holds the parameters, so that the table of variations that lost can be made again. Space
//! is counted as the store counts it: an open segment costs a whole one, and one segment is always
//! kept free.

use std::collections::VecDeque;

use crate::ghost::Ghost;
use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

/// The parameters.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// How many segments the cache has.
    pub(crate) segments: u64,
    /// The share of the cache that the small queue has; at 0 there is only main.
    pub(crate) small: f64,
    /// The share of the small queue in which a hit is likely to be of the same burst.
    pub(crate) young: f64,
    /// So many hits while young are as good as one later: the object moves to main.
    pub(crate) enough: u8,
    /// Marks saturate here.
    pub(crate) mark_max: u8,
    /// Whether main halves a mark when it copies an object, instead of taking 1.
    pub(crate) halves: bool,
    /// Entries of the ghost per object that fits the cache.
    pub(crate) ghost: f64,
    /// A ghost counts when it was dropped less than this many lives of a main segment ago.
    pub(crate) lives: f64,
    /// After so many main segments without a gain, a main segment keeps half of itself at most.
    pub(crate) scans_max: u32,
    /// Entries of main's ghost per object that fits; at 0 the small queue's share stays.
    pub(crate) balance: f64,
    /// Whether survivors of main stay in their place, as in SIEVE, instead of going to the tail.
    pub(crate) stays: bool,
}

/// What the store does.
pub(crate) const CHOSEN: Plan = Plan {
    segments: 256,
    small: 0.1,
    young: 0.5,
    enough: 3,
    mark_max: 3,
    halves: false,
    ghost: 1.2,
    lives: 0.4,
    scans_max: 8,
    balance: 0.1,
    stays: false,
};

#[derive(Default)]
struct Segment {
    objects: Vec<ObjectId>,
    bytes: u64,
    /// Segments are numbered in the order in which they are opened.
    number: u64,
    drops_at_open: u64,
}

#[derive(Default)]
struct Queue {
    sealed: VecDeque<Segment>,
    open: Segment,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Nowhere,
    Small,
    Main,
}

/// A cache under the store's eviction.
pub(crate) struct Filtered<'t> {
    sizes: &'t [u32],
    plan: Plan,
    budget: u64,
    segment_bytes: u64,
    small: Queue,
    main: Queue,
    places: Vec<Place>,
    marks: Vec<u8>,
    /// The number of the segment that each object is in.
    within: Vec<u64>,
    ghost: Ghost,
    main_ghost: Ghost,
    /// How far back in either ghost a hit moves the small queue's share.
    balance_drops: u64,
    small_target: u64,
    /// Small segments from this number on are young.
    young_from: u64,
    /// The mean of how many drops a main segment lives; infinite until one was evicted.
    life: f64,
    numbered: u64,
    scans: u32,
    /// Where the next main segment is evicted when survivors stay in their place.
    hand: usize,
    copied: u64,
}

impl<'t> Filtered<'t> {
    /// A cache that holds objects of `capacity` in sum, less what the segments waste.
    pub(crate) fn new(trace: &'t Trace, capacity: u64, plan: Plan) -> Self {
        let objects = trace.sizes.len();
        let fitting = capacity as f64 * objects as f64 / trace.footprint() as f64;
        let segment_bytes = (capacity / plan.segments).max(1);
        Self {
            sizes: &trace.sizes,
            plan,
            budget: capacity - segment_bytes,
            segment_bytes,
            small: Queue::default(),
            main: Queue::default(),
            places: vec![Place::Nowhere; objects],
            marks: vec![0; objects],
            within: vec![0; objects],
            ghost: Ghost::new((fitting * plan.ghost) as u64),
            main_ghost: Ghost::new((fitting * plan.balance) as u64),
            balance_drops: (fitting * plan.balance) as u64,
            small_target: (plan.small * capacity as f64) as u64,
            young_from: 0,
            life: f64::INFINITY,
            numbered: 0,
            scans: 0,
            hand: 0,
            copied: 0,
        }
    }

    fn size(&self, object: ObjectId) -> u64 {
        u64::from(self.sizes[object as usize])
    }

    fn hit(&mut self, object: ObjectId) {
        let index = object as usize;
        let young = self.within[index] >= self.young_from;
        let mark = &mut self.marks[index];
        *mark = match self.places[index] {
            Place::Small if young => (*mark + 1).min(self.plan.enough),
            Place::Small => self.plan.enough,
            _ => (*mark + 1).min(self.plan.mark_max),
        };
    }

    /// Whether `object` was dropped so lately that main would have kept it until now.
    fn was_dropped_too_early(&mut self, object: ObjectId) -> bool {
        let size = self.size(object);
        if let Some(distance) = self.ghost.take(object) {
            if distance <= self.balance_drops {
                self.aim_at(self.small_target + size);
            }
            return distance as f64 <= self.life * self.plan.lives;
        }
        let main_was_short = self.balance_drops > 0 && self.main_ghost.take(object).is_some();
        if main_was_short {
            self.aim_at(self.small_target.saturating_sub(size));
        }
        main_was_short
    }

    /// Moves the share of the small queue, within 1 and 90 percent.
    fn aim_at(&mut self, small_target: u64) {
        self.small_target = small_target.clamp(self.budget / 100, self.budget / 10 * 9);
    }

    fn append(&mut self, object: ObjectId, place: Place) {
        let size = self.size(object);
        if self.queue(place).open.bytes == 0 {
            self.open(place);
        }
        let segment_bytes = self.segment_bytes;
        let queue = self.queue(place);
        queue.open.objects.push(object);
        queue.open.bytes += size;
        queue.bytes += size;
        let number = queue.open.number;
        if queue.open.bytes >= segment_bytes {
            let full = std::mem::take(&mut queue.open);
            queue.sealed.push_back(full);
        }
        self.places[object as usize] = place;
        self.within[object as usize] = number;
    }

    fn open(&mut self, place: Place) {
        self.numbered += 1;
        let (number, drops_at_open) = (self.numbered, self.ghost.drops());
        let queue = self.queue(place);
        queue.open.number = number;
        queue.open.drops_at_open = drops_at_open;
        if place == Place::Small {
            let young = self.plan.young * self.small_target as f64 / self.segment_bytes as f64;
            let sealed = &self.small.sealed;
            let oldest = (sealed.len() + 1).saturating_sub(young.ceil() as usize);
            self.young_from = match young {
                0.0 => u64::MAX,
                _ => sealed.get(oldest).map_or(number, |segment| segment.number),
            };
        }
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        if place == Place::Small {
            &mut self.small
        } else {
            &mut self.main
        }
    }

    fn used(&self) -> u64 {
        let of = |queue: &Queue| match queue.open.bytes {
            0 => queue.bytes,
            open => queue.bytes - open + open.max(self.segment_bytes),
        };
        of(&self.small) + of(&self.main)
    }

    fn evict(&mut self) {
        let small = self.small.bytes;
        if self.main.bytes == 0 || (small > 0 && small > self.small_target) {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        for object in self.small.pop(0).objects {
            if self.marks[object as usize] >= self.plan.enough {
                self.marks[object as usize] = 0;
                self.copied += self.size(object);
                self.append(object, Place::Main);
            } else {
                self.places[object as usize] = Place::Nowhere;
                self.ghost.insert(object);
            }
        }
    }

    fn evict_main(&mut self) {
        if self.hand >= self.main.sealed.len() {
            self.hand = 0;
        }
        let segment = self.main.pop(self.hand);
        self.measure_life(&segment);
        let mut least = self.least_kept(&segment);
        self.scans += 1;
        let mut staying = Vec::new();
        for object in segment.objects {
            let mark = self.marks[object as usize];
            if !least.keeps(mark, self.size(object)) {
                self.places[object as usize] = Place::Nowhere;
                if self.balance_drops > 0 {
                    self.main_ghost.insert(object);
                }
                continue;
            }
            self.marks[object as usize] = if self.plan.halves { mark / 2 } else { mark - 1 };
            self.copied += self.size(object);
            match self.plan.stays {
                true => staying.push(object),
                false => self.append(object, Place::Main),
            }
        }
        self.put_back(staying);
    }

    fn measure_life(&mut self, segment: &Segment) {
        let lived = (self.ghost.drops() - segment.drops_at_open) as f64;
        match self.life.is_finite() {
            true => self.life += (lived - self.life) / 16.0,
            false => self.life = lived,
        }
    }

    /// What an object needs to survive in main: a mark, and after too many segments without a
    /// gain, a place among the better half.
    fn least_kept(&self, segment: &Segment) -> Least {
        if self.scans < self.plan.scans_max {
            return Least {
                mark: 1,
                room: u64::MAX,
            };
        }
        let mut bytes = [0; 256];
        for &object in &segment.objects {
            bytes[self.marks[object as usize] as usize] += self.size(object);
        }
        let mut room = segment.bytes / 2;
        let mut mark = u8::MAX;
        while mark > 1 && bytes[mark as usize] <= room {
            room -= bytes[mark as usize];
            mark -= 1;
        }
        Least { mark, room }
    }

    /// Puts what survived where it was, into the older neighbour if it fits.
    fn put_back(&mut self, objects: Vec<ObjectId>) {
        let bytes: u64 = objects.iter().map(|&object| self.size(object)).sum();
        if bytes == 0 {
            return;
        }
        self.main.bytes += bytes;
        if self.hand > 0 && self.main.sealed[self.hand - 1].bytes + bytes <= self.segment_bytes {
            let older = &mut self.main.sealed[self.hand - 1];
            older.bytes += bytes;
            older.objects.extend(objects);
            return;
        }
        let drops_at_open = self.ghost.drops();
        let segment = Segment {
            objects,
            bytes,
            number: 0,
            drops_at_open,
        };
        self.main.sealed.insert(self.hand, segment);
        self.hand += 1;
    }
}

/// What survives: marks above `mark`, and of that mark itself `room` bytes.
struct Least {
    mark: u8,
    room: u64,
}

impl Least {
    fn keeps(&mut self, mark: u8, size: u64) -> bool {
        if mark == self.mark && size <= self.room {
            self.room -= size;
            return true;
        }
        mark > self.mark
    }
}

impl Queue {
    /// Takes the sealed segment at `index` out, or the open one if none is sealed.
    fn pop(&mut self, index: usize) -> Segment {
        let segment = self.sealed.remove(index);
        let segment = segment.unwrap_or_else(|| std::mem::take(&mut self.open));
        self.bytes -= segment.bytes;
        segment
    }
}

impl Policy for Filtered<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        if self.places[object as usize] != Place::Nowhere {
            self.hit(object);
            return true;
        }
        let size = self.size(object);
        if size > self.budget {
            return false;
        }
        let to_main = self.was_dropped_too_early(object) || self.plan.small == 0.0;
        self.scans = 0;
        while self.used() + size > self.budget {
            self.evict();
        }
        self.marks[object as usize] = 0;
        self.append(object, if to_main { Place::Main } else { Place::Small });
        false
    }

    fn copied(&self) -> u64 {
        self.copied
    }
}
