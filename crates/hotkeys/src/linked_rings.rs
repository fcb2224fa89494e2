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
        self.links[at as usize].after
    }

    #[inline]
    pub(crate) fn before(&self, at: u32) -> u32 {
        self.links[at as usize].before
    }

    /// The list whose ends are `end`, from its last member on.
    pub(crate) fn backwards(&self, end: u32) -> impl Iterator<Item = u32> {
        let mut at = end;
        core::iter::from_fn(move || {
            at = self.before(at);
            (at != end).then_some(at)
        })
    }

    /// Puts `item`, which is alone, before `at`.
    #[inline]
    pub(crate) fn insert_before(&mut self, at: u32, item: u32) {
        let before = self.before(at);
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

    fn join(&mut self, one: u32, next: u32) {
        self.links[one as usize].after = next;
        self.links[next as usize].before = one;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_its_order() {
        let mut links = ListLinks::new(5);
        let ring = |links: &ListLinks| {
            let mut members: Vec<_> = links.backwards(4).collect();
            members.reverse();
            members
        };
        [2, 0, 3].iter().for_each(|&at| links.insert_before(4, at));
        assert_eq!(ring(&links), [2, 0, 3]);
        links.remove(0);
        links.insert_before(2, 0);
        assert_eq!(ring(&links), [0, 2, 3]);
        assert_eq!((links.before(4), links.before(0)), (3, 4));
        assert_eq!((links.after(4), links.after(0)), (0, 2));
        links.clear();
        assert_eq!(ring(&links), []);
    }
}
