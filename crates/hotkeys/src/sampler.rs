//! Chooses the requests that are counted: one in so many, at random distances.
//!
//! Pipelines and loops of clients have lengths like 16, which a fixed distance would meet again and
//! again. A batch without a sampled request costs one comparison and one subtraction.

/// Draws the distances.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Sampler {
    /// Requests until the next one that is sampled.
    distance: usize,
    /// Distances are 1 to this; their mean is what is asked for.
    longest: u64,
    /// The state of what draws them; never 0.
    random: u64,
}

impl Sampler {
    /// Samples one request in `every` on average; 0 is taken as 1, each.
    pub fn new(every: u32, seed: u64) -> Self {
        let random = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut sampler = Self {
            distance: 0,
            longest: 2 * u64::from(every.max(1)) - 1,
            random: if random == 0 { 1 } else { random },
        };
        sampler.distance = sampler.draw() - 1;
        sampler
    }

    /// The place of the next sampled request among `requests` that arrived together; `None` ends
    /// them. Asked with the same number until then.
    #[inline]
    pub fn next_in(&mut self, requests: usize) -> Option<usize> {
        if self.distance < requests {
            return Some(self.take());
        }
        self.distance -= requests;
        None
    }

    #[cold]
    fn take(&mut self) -> usize {
        let place = self.distance;
        self.distance += self.draw();
        place
    }

    /// At least 1. Marsaglia's xorshift, scaled by a multiplication.
    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        1 + (((self.random >> 32) * self.longest) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one request in 64 is sampled, and pipelines of 16 in which one place has a key of its
    /// own do not fool it. Method: the places of 100,000 samples.
    #[test]
    fn distances_are_64_on_average_and_meet_every_place_of_a_pipeline() {
        let mut sampler = Sampler::new(64, 3);
        let (mut at, mut places) = (0, [0_u32; 16]);
        for _ in 0..100_000 {
            at += sampler.draw();
            places[at % 16] += 1;
        }
        assert!((6_300_000..6_500_000).contains(&at), "{at}");
        assert!(
            places.iter().all(|&place| (5_900..6_600).contains(&place)),
            "{places:?}"
        );
    }

    /// Goal: how requests fall into batches does not matter. Method: the same requests in batches
    /// of every length, and one by one.
    #[test]
    fn batches_do_not_change_what_is_sampled() {
        let sampled = |lengths: &[usize]| {
            let (mut sampler, mut begin, mut places) = (Sampler::new(5, 9), 0, Vec::new());
            for &length in lengths.iter().cycle().take(1000 / lengths.len()) {
                while let Some(place) = sampler.next_in(length) {
                    places.push(begin + place);
                }
                begin += length;
            }
            places
        };
        let one_by_one = sampled(&[1]);
        let batches = sampled(&[1, 0, 7, 30, 2]);
        let both = one_by_one.len().min(batches.len());
        assert!(both > 100);
        assert_eq!(one_by_one[..both], batches[..both]);
    }

    #[test]
    fn each_is_sampled_if_asked_for() {
        let mut sampler = Sampler::new(1, 7);
        let places: Vec<_> = core::iter::from_fn(|| sampler.next_in(5)).collect();
        assert_eq!(places, [0, 1, 2, 3, 4]);
    }

    use alloc::vec::Vec;
}
