//! Doubly linked rings in a fixed array, for orders whose members move.
//!
//! Every number is in exactly one ring, alone at first. A list is a ring with one number that
//! stands for its ends; so linking and unlinking have no special cases.

use alloc::{boxed::Box, vec::Vec};

/// The neighbours of every number below a bound.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ListLinks {
    links: Box<[Link]>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Link {
    before: u32,
    after: u32,
}

impl ListLinks {
    /// `count` numbers, each alone.
    pub(crate) fn new(count: u32) -> Self {
        let alone = |at| Link {
            before: at,
            after: at,
        };
        let links: Vec<_> = (0..count).map(alone).collect();
        Self {
            links: links.into_boxed_slice(),
        }
    }

    /// Every number alone again.
    pub(crate) fn clear(&mut self) {
        for (at, link) in self.links.iter_mut().enumerate() {
            (link.before, link.after) = (at as u32, at as u32);
        }
    }

    #[inline]
    pub(crate) fn after(&self, at: u32) -> u32 {
        self.links.get(at as usize).map_or(at, |link| link.after)
    }

    #[inline]
    pub(crate) fn before(&self, at: u32) -> u32 {
        self.links.get(at as usize).map_or(at, |link| link.before)
    }

    /// Puts `item`, which is alone, before `at`.
    #[inline]
    pub(crate) fn insert_before(&mut self, at: u32, item: u32) {
        let before = self.before(at);
        self.set(item, Link { before, after: at });
        self.join(before, item);
        self.join(item, at);
    }

    /// Takes `item` out of its ring. Its own neighbours are left as they were; it is put somewhere
    /// else next.
    #[inline]
    pub(crate) fn remove(&mut self, item: u32) {
        let (before, after) = (self.before(item), self.after(item));
        self.join(before, after);
    }

    fn set(&mut self, at: u32, new: Link) {
        if let Some(link) = self.links.get_mut(at as usize) {
            *link = new;
        }
    }

    fn join(&mut self, one: u32, next: u32) {
        if let Some(link) = self.links.get_mut(one as usize) {
            link.after = next;
        }
        if let Some(link) = self.links.get_mut(next as usize) {
            link.before = one;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_its_order() {
        let mut links = ListLinks::new(5);
        let ring = |links: &ListLinks| {
            let mut at = 4;
            let members = core::iter::from_fn(|| {
                at = links.after(at);
                (at != 4).then_some(at)
            });
            members.collect::<Vec<_>>()
        };
        [2, 0, 3].iter().for_each(|&at| links.insert_before(4, at));
        assert_eq!(ring(&links), [2, 0, 3]);
        links.remove(0);
        links.insert_before(2, 0);
        assert_eq!(ring(&links), [0, 2, 3]);
        assert_eq!((links.before(4), links.before(0)), (3, 4));
        links.clear();
        assert_eq!(ring(&links), []);
    }
}
