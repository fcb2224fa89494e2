//! W-TinyLFU (Einziger, Friedman and Manes, TOS 2017): a window of 1 % under LRU, a main of 99 %
//! under segmented LRU, and an admission that compares frequencies.
//!
//! The frequencies here are exact (saturating at 15, all halved every ten times the number of
//! objects that fit) where the real thing has a sketch, so this flatters it a little.

use crate::list::{Links, List};
use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

/// The three lists, and none.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Window = 0,
    Probation = 1,
    Protected = 2,
    Nowhere = 3,
}

/// A cache under W-TinyLFU.
pub(crate) struct TinyLfu<'t> {
    sizes: &'t [u32],
    capacity: u64,
    links: Links,
    lists: [List; 3],
    places: Vec<Place>,
    frequencies: Vec<u8>,
    until_halving: u64,
    period: u64,
}

impl<'t> TinyLfu<'t> {
    /// A cache that holds objects of `capacity` in sum.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Self {
        let objects = trace.sizes.len();
        let period = 10 * (capacity * objects as u64 / trace.footprint()).max(1);
        Self {
            sizes: &trace.sizes,
            capacity,
            links: Links::new(objects),
            lists: [List::new(), List::new(), List::new()],
            places: vec![Place::Nowhere; objects],
            frequencies: vec![0; objects],
            until_halving: period,
            period,
        }
    }

    fn count(&mut self, object: ObjectId) {
        let frequency = &mut self.frequencies[object as usize];
        *frequency = (*frequency + 1).min(15);
        self.until_halving -= 1;
        if self.until_halving == 0 {
            self.until_halving = self.period;
            self.frequencies
                .iter_mut()
                .for_each(|frequency| *frequency /= 2);
        }
    }

    fn size(&self, place: Place) -> u64 {
        self.lists[place as usize].size()
    }

    fn take(&mut self, object: ObjectId) {
        let size = self.sizes[object as usize];
        let place = std::mem::replace(&mut self.places[object as usize], Place::Nowhere);
        self.lists[place as usize].remove(&mut self.links, object, size);
    }

    fn put(&mut self, object: ObjectId, place: Place) {
        let size = self.sizes[object as usize];
        self.places[object as usize] = place;
        self.lists[place as usize].push(&mut self.links, object, size);
    }

    fn hit(&mut self, object: ObjectId) {
        let place = self.places[object as usize];
        self.take(object);
        self.put(
            object,
            if place == Place::Window {
                place
            } else {
                Place::Protected
            },
        );
        while self.size(Place::Protected) > (self.capacity - self.capacity / 100) * 4 / 5 {
            let oldest = self.lists[Place::Protected as usize].oldest();
            self.take(oldest);
            self.put(oldest, Place::Probation);
        }
    }

    /// Lets the oldest of the window compete with the victims of the main.
    fn admit(&mut self) {
        let main_capacity = self.capacity - self.capacity / 100;
        while self.size(Place::Window) > (self.capacity / 100).max(1) {
            let candidate = self.lists[Place::Window as usize].oldest();
            self.take(candidate);
            let size = u64::from(self.sizes[candidate as usize]);
            loop {
                let main = self.size(Place::Probation) + self.size(Place::Protected);
                if main + size <= main_capacity {
                    self.put(candidate, Place::Probation);
                    break;
                }
                let empty = self.size(Place::Probation) == 0;
                let from = if empty {
                    Place::Protected
                } else {
                    Place::Probation
                };
                let victim = self.lists[from as usize].oldest();
                if main == 0 || self.frequency(candidate) <= self.frequency(victim) {
                    break;
                }
                self.take(victim);
            }
        }
    }

    fn frequency(&self, object: ObjectId) -> u8 {
        self.frequencies[object as usize]
    }
}

impl Policy for TinyLfu<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        self.count(object);
        if self.places[object as usize] != Place::Nowhere {
            self.hit(object);
            return true;
        }
        self.put(object, Place::Window);
        self.admit();
        false
    }
}
