//! What waits for an answer: each has a place, and a name that tells it from all that were there
//! before. An answer that comes too late finds nothing.

use std::ops::Range;

/// See the head of this file. The low half of a name is the place, the other half how often that
/// was used before.
#[derive(Debug)]
pub(crate) struct Places<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Places<T> {
    /// Keeps something; its name.
    pub(crate) fn keep(&mut self, kept: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        let Some((uses, free)) = self.places.get_mut(place as usize) else {
            return u64::MAX;
        };
        *free = Some(kept);
        name_of(place, *uses)
    }

    pub(crate) fn get(&mut self, name: u64) -> Option<&mut T> {
        let (found, kept) = self.at(name as u32)?;
        (found == name).then_some(kept)
    }

    /// What is at a place, and its name.
    pub(crate) fn at(&mut self, place: u32) -> Option<(u64, &mut T)> {
        let (uses, kept) = self.places.get_mut(place as usize)?;
        Some((name_of(place, *uses), kept.as_mut()?))
    }

    pub(crate) fn take(&mut self, name: u64) -> Option<T> {
        self.get(name)?;
        let (uses, kept) = self.places.get_mut(name as u32 as usize)?;
        *uses = uses.wrapping_add(1);
        self.free.push(name as u32);
        kept.take()
    }

    /// All places there are, also those where nothing is.
    pub(crate) fn all(&self) -> Range<u32> {
        0..self.places.len() as u32
    }

    /// How many things are kept.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

const fn name_of(place: u32, uses: u32) -> u64 {
    (uses as u64) << 32 | place as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_used_up_names_nothing() {
        let mut places = Places::default();
        let (first, second) = (places.keep(1), places.keep(2));
        assert_eq!(places.take(first), Some(1));
        let third = places.keep(3);
        assert!(places.get(first).is_none() && places.take(first).is_none());
        assert_ne!(first, third);
        assert_eq!(places.get(second), Some(&mut 2));
        assert_eq!(places.len(), 2);
        let all = places.all().filter_map(|place| Some(*places.at(place)?.1));
        assert_eq!(all.collect::<Vec<_>>(), [3, 2]);
    }
}
