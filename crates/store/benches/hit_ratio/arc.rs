//! ARC (Megiddo and Modha, FAST'03): two LRU lists whose shares adapt by the hits in the ghosts of
//! either. It is here because two of the traces are its authors' and because it adapts.

use crate::list::{Links, List};
use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

/// The four lists, and none.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Once = 0,
    Often = 1,
    OnceGhost = 2,
    OftenGhost = 3,
    Nowhere = 4,
}

/// A cache under ARC.
pub(crate) struct Arc<'t> {
    sizes: &'t [u32],
    capacity: u64,
    once_target: u64,
    links: Links,
    lists: [List; 4],
    places: Vec<Place>,
}

impl<'t> Arc<'t> {
    /// A cache that holds objects of `capacity` in sum.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Self {
        let objects = trace.sizes.len();
        Self {
            sizes: &trace.sizes,
            capacity,
            once_target: 0,
            links: Links::new(objects),
            lists: [List::new(), List::new(), List::new(), List::new()],
            places: vec![Place::Nowhere; objects],
        }
    }

    fn size(&self, place: Place) -> u64 {
        self.lists[place as usize].size()
    }

    fn take(&mut self, object: ObjectId) {
        let place = self.places[object as usize];
        if place != Place::Nowhere {
            let size = self.sizes[object as usize];
            self.lists[place as usize].remove(&mut self.links, object, size);
        }
    }

    fn put(&mut self, object: ObjectId, place: Place) {
        self.places[object as usize] = place;
        if place != Place::Nowhere {
            let size = self.sizes[object as usize];
            self.lists[place as usize].push(&mut self.links, object, size);
        }
    }

    fn shift(&mut self, from: Place, to: Place) {
        if let Some(object) = self.lists[from as usize].pop(&mut self.links, self.sizes) {
            self.put(object, to);
        }
    }

    fn replace(&mut self, from_often_ghost: bool) {
        let once = self.size(Place::Once);
        let over = once > self.once_target || (from_often_ghost && once == self.once_target);
        if once > 0 && (over || self.size(Place::Often) == 0) {
            self.shift(Place::Once, Place::OnceGhost);
        } else {
            self.shift(Place::Often, Place::OftenGhost);
        }
    }

    fn adapt(&mut self, place: Place, size: u64) {
        let (once, often) = (self.size(Place::OnceGhost), self.size(Place::OftenGhost));
        match place {
            Place::OnceGhost => {
                let step = size * (often / once.max(1)).max(1);
                self.once_target = (self.once_target + step).min(self.capacity);
            }
            Place::OftenGhost => {
                let step = size * (once / often.max(1)).max(1);
                self.once_target = self.once_target.saturating_sub(step);
            }
            _ => {}
        }
    }

    fn trim_ghosts(&mut self) {
        while self.size(Place::Once) + self.size(Place::OnceGhost) > self.capacity
            && self.size(Place::OnceGhost) > 0
        {
            self.shift(Place::OnceGhost, Place::Nowhere);
        }
        while self.lists.iter().map(List::size).sum::<u64>() > 2 * self.capacity
            && self.size(Place::OftenGhost) > 0
        {
            self.shift(Place::OftenGhost, Place::Nowhere);
        }
    }
}

impl Policy for Arc<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let place = self.places[object as usize];
        let size = u64::from(self.sizes[object as usize]);
        if matches!(place, Place::Once | Place::Often) {
            self.take(object);
            self.put(object, Place::Often);
            return true;
        }
        if size > self.capacity {
            return false;
        }
        self.adapt(place, size);
        self.take(object);
        self.places[object as usize] = Place::Nowhere;
        while self.size(Place::Once) + self.size(Place::Often) + size > self.capacity {
            self.replace(place == Place::OftenGhost);
        }
        self.put(
            object,
            if place == Place::Nowhere {
                Place::Once
            } else {
                Place::Often
            },
        );
        self.trim_ghosts();
        false
    }
}
