//! S3-FIFO as published (Yang et al., SOSP'23): a small queue that filters what is never asked for
//! again, a main queue with reinsertion, and a ghost queue of what the small queue dropped.
//!
//! ```text
//! miss ---> small --asked twice--> main --> (asked: back to its tail)
//!   \         \--- else: ghost       ^
//!    \--- in the ghost --------------/
//! ```

use crate::list::{Links, List};
use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

/// Where an object is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Nowhere,
    Small,
    Main,
    Ghost,
}

/// A cache under S3-FIFO.
pub(crate) struct S3Fifo<'t> {
    sizes: &'t [u32],
    capacity: u64,
    small_capacity: u64,
    links: Links,
    small: List,
    main: List,
    ghost: List,
    places: Vec<Place>,
    marks: Vec<u8>,
}

/// The counter of an object saturates here.
const MARK_MAX: u8 = 3;
/// An object moves from small to main when it was asked for this often since it came.
const PROMOTE_AT: u8 = 2;

impl<'t> S3Fifo<'t> {
    /// A cache of `capacity` whose small queue has a tenth of it, as in the paper.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Self {
        let objects = trace.sizes.len();
        Self {
            sizes: &trace.sizes,
            capacity,
            small_capacity: capacity / 10,
            links: Links::new(objects),
            small: List::new(),
            main: List::new(),
            ghost: List::new(),
            places: vec![Place::Nowhere; objects],
            marks: vec![0; objects],
        }
    }

    fn evict(&mut self) {
        if self.small.size() > self.small_capacity || self.main.size() == 0 {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        while let Some(object) = self.small.pop(&mut self.links, self.sizes) {
            let size = self.sizes[object as usize];
            if self.marks[object as usize] < PROMOTE_AT {
                self.places[object as usize] = Place::Ghost;
                self.ghost.push(&mut self.links, object, size);
                self.trim_ghost();
                return;
            }
            self.marks[object as usize] = 0;
            self.places[object as usize] = Place::Main;
            self.main.push(&mut self.links, object, size);
        }
    }

    fn trim_ghost(&mut self) {
        while self.ghost.size() > self.capacity - self.small_capacity {
            if let Some(object) = self.ghost.pop(&mut self.links, self.sizes) {
                self.places[object as usize] = Place::Nowhere;
            }
        }
    }

    fn evict_main(&mut self) {
        while let Some(object) = self.main.pop(&mut self.links, self.sizes) {
            if self.marks[object as usize] == 0 {
                self.places[object as usize] = Place::Nowhere;
                return;
            }
            self.marks[object as usize] -= 1;
            self.main
                .push(&mut self.links, object, self.sizes[object as usize]);
        }
    }
}

impl Policy for S3Fifo<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let mark = &mut self.marks[object as usize];
        if matches!(self.places[object as usize], Place::Small | Place::Main) {
            *mark = (*mark + 1).min(MARK_MAX);
            return true;
        }
        *mark = 0;
        let size = self.sizes[object as usize];
        if u64::from(size) > self.capacity {
            return false;
        }
        let was_ghost = self.places[object as usize] == Place::Ghost;
        if was_ghost {
            self.ghost.remove(&mut self.links, object, size);
            self.places[object as usize] = Place::Nowhere;
        }
        while self.small.size() + self.main.size() + u64::from(size) > self.capacity {
            self.evict();
        }
        let (queue, place) = match was_ghost {
            true => (&mut self.main, Place::Main),
            false => (&mut self.small, Place::Small),
        };
        queue.push(&mut self.links, object, size);
        self.places[object as usize] = place;
        false
    }
}
