//! Segcache's merge-based eviction (Yang, Yue and Rashmi, NSDI'21, section 3.6): four segments that
//! follow each other become one that keeps, of each, the quarter that was asked for most per byte.
//!
//! The frequencies are exact here up to 255 where Segcache counts by chance above 16, and objects
//! that were never asked for are not kept even where there is room. Frequencies of what is kept are
//! halved, which did better on these traces than setting them to zero.

use std::collections::VecDeque;

use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

#[derive(Default)]
struct Segment {
    objects: Vec<ObjectId>,
    bytes: u64,
}

/// A cache under merge-based eviction.
pub(crate) struct Merge<'t> {
    sizes: &'t [u32],
    budget: u64,
    segment_bytes: u64,
    sealed: VecDeque<Segment>,
    open: Segment,
    bytes: u64,
    /// Where the next merge begins.
    hand: usize,
    present: Vec<bool>,
    frequencies: Vec<u8>,
    copied: u64,
}

/// So many segments become one.
const MERGED: usize = 4;

impl<'t> Merge<'t> {
    /// A cache of `capacity` in `segments` segments, of which one is kept free.
    pub(crate) fn new(trace: &'t Trace, capacity: u64, segments: u64) -> Self {
        let objects = trace.sizes.len();
        let segment_bytes = (capacity / segments).max(1);
        Self {
            sizes: &trace.sizes,
            budget: capacity - segment_bytes,
            segment_bytes,
            sealed: VecDeque::new(),
            open: Segment::default(),
            bytes: 0,
            hand: 0,
            present: vec![false; objects],
            frequencies: vec![0; objects],
            copied: 0,
        }
    }

    fn size(&self, object: ObjectId) -> u64 {
        u64::from(self.sizes[object as usize])
    }

    /// The sum of the sizes, where the open segment counts as a whole one.
    fn used(&self) -> u64 {
        match self.open.bytes {
            0 => self.bytes,
            open => self.bytes - open + open.max(self.segment_bytes),
        }
    }

    fn seal(&mut self) {
        let full = std::mem::take(&mut self.open);
        self.sealed.push_back(full);
    }

    fn evict(&mut self) {
        if self.sealed.is_empty() {
            self.seal();
        }
        if self.hand + MERGED > self.sealed.len() {
            self.hand = 0;
        }
        let mut merged = Segment::default();
        for _ in 0..MERGED {
            let Some(segment) = self.sealed.remove(self.hand) else {
                break;
            };
            self.bytes -= segment.bytes;
            self.keep_the_best(segment, &mut merged);
        }
        if merged.bytes > 0 {
            self.bytes += merged.bytes;
            self.copied += merged.bytes;
            self.sealed.insert(self.hand, merged);
            self.hand += 1;
        }
    }

    fn keep_the_best(&mut self, mut segment: Segment, merged: &mut Segment) {
        let mut room = self.segment_bytes / MERGED as u64;
        segment.objects.sort_by(|&one, &other| {
            let worth = |object: ObjectId| {
                f64::from(self.frequencies[object as usize]) / self.size(object) as f64
            };
            worth(other).total_cmp(&worth(one))
        });
        for object in segment.objects {
            let (size, frequency) = (self.size(object), self.frequencies[object as usize]);
            if frequency == 0 || size > room {
                self.present[object as usize] = false;
                continue;
            }
            room -= size;
            self.frequencies[object as usize] = frequency / 2;
            merged.bytes += size;
            merged.objects.push(object);
        }
    }
}

impl Policy for Merge<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let frequency = &mut self.frequencies[object as usize];
        if self.present[object as usize] {
            *frequency = frequency.saturating_add(1);
            return true;
        }
        *frequency = 0;
        let size = self.size(object);
        if size > self.budget {
            return false;
        }
        while self.used() + size > self.budget {
            self.evict();
        }
        self.present[object as usize] = true;
        self.bytes += size;
        self.open.bytes += size;
        self.open.objects.push(object);
        if self.open.bytes >= self.segment_bytes {
            self.seal();
        }
        false
    }

    fn copied(&self) -> u64 {
        self.copied
    }
}
