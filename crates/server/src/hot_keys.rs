//! The keys that are asked for most, from a sample of the requests.
//!
//! Each worker keeps a sketch of its own: Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005),
//! a fixed number of counters of which the smallest goes to a key that has none, together with its
//! count, which is remembered as that key's error. A key counts for what is certain, its count less
//! its error, so that requests spread evenly make no key look hot.
//!
//! ```text
//!   batch ---> one request in 64, at odd distances ---> sketch --- once a second ---> shown
//!                                                          ^--- everything is halved --+
//! ```
//!
//! Distances are drawn, because pipelines and loops of clients have lengths like 16, which a fixed
//! distance would meet again and again. A turn compares two numbers; only a sampled request costs
//! more. Memory is fixed; nobody else touches it.

use curtail_codec::memcached::{KeyScratch, Request};
use curtail_types::{Key, KeyHash};

use crate::batch::{Batch, Entry, Work};

/// The sketch of one worker.
#[derive(Debug)]
pub(crate) struct HotKeys {
    /// Requests until the next one that is sampled.
    distance: usize,
    /// The state of what draws distances; never 0.
    random: u64,
    /// Requests sampled, halved as the counts are.
    seen: u64,
    hashes: [KeyHash; TRACKED],
    counts: [u32; TRACKED],
    errors: [u32; TRACKED],
    names: Box<[Name; TRACKED]>,
    /// When it was last shown and halved.
    shown_ns: u64,
}

/// A key's bytes, in place.
#[derive(Clone, Copy, Debug)]
struct Name {
    length: u8,
    bytes: [u8; Key::BYTES_MAX],
}

/// What a worker shows, or all of them together.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Hottest {
    /// Requests sampled; counts of keys are of these.
    pub(crate) seen: u64,
    /// Keys and how often each was surely seen, the hottest first.
    pub(crate) keys: Vec<(Box<[u8]>, u64)>,
}

/// Counters of a sketch: a key with more than one request in so many is never missed for long.
const TRACKED: usize = 32;

/// Keys that are shown.
pub(crate) const SHOWN_MAX: usize = 16;

/// A key seen fewer times is not shown: it may be chance.
const SEEN_MIN: u64 = 4;

/// One request in so many is sampled: half the longest distance.
const SAMPLED_EVERY: u64 = 64;

/// How often it is shown and halved.
const SHOWN_EVERY_NS: u64 = 1_000_000_000;

const _: () = assert!(Key::BYTES_MAX <= u8::MAX as usize);

impl HotKeys {
    pub(crate) fn new(worker: usize) -> Self {
        let nothing = Name {
            length: 0,
            bytes: [0; Key::BYTES_MAX],
        };
        Self {
            distance: 0,
            random: 0x9e37_79b9_7f4a_7c15 ^ worker as u64,
            seen: 0,
            hashes: [KeyHash(0); TRACKED],
            counts: [0; TRACKED],
            errors: [0; TRACKED],
            names: Box::new([nothing; TRACKED]),
            shown_ns: 0,
        }
    }

    /// Looks at the requests of a turn.
    #[inline]
    pub(crate) fn look(&mut self, batch: &Batch<'_>, scratch: &mut KeyScratch) {
        let requests = batch.entries().len();
        if self.distance < requests {
            self.sample(batch.entries(), scratch);
        }
        self.distance -= requests;
    }

    #[cold]
    fn sample(&mut self, entries: &[Entry<'_>], scratch: &mut KeyScratch) {
        while let Some(entry) = entries.get(self.distance) {
            self.distance += self.draw();
            let (Work::Request(request) | Work::LargeSet { request, .. }) = &entry.work else {
                continue;
            };
            if let Request::Item { key, .. } | Request::SetHeader { key, .. } = request {
                self.count(entry.hash, key.resolve(scratch).bytes());
            }
        }
    }

    /// 1 to 127, 64 on average.
    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        1 + (self.random >> 32) as usize % (2 * SAMPLED_EVERY as usize - 1)
    }

    fn count(&mut self, hash: KeyHash, key: &[u8]) {
        self.seen += 1;
        // All are looked at without a branch, which takes fewer instructions than to stop early.
        let is_known = self
            .hashes
            .iter()
            .fold(false, |found, known| found | (*known == hash));
        let least = self.counts.iter().copied().fold(u32::MAX, u32::min);
        let place = match is_known {
            true => self.hashes.iter().position(|known| *known == hash),
            false => self.counts.iter().position(|count| *count == least),
        };
        let Some(place) = place else {
            return;
        };
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        if is_known {
            return;
        }
        if let (Some(known), Some(error), Some(name)) = (
            self.hashes.get_mut(place),
            self.errors.get_mut(place),
            self.names.get_mut(place),
        ) {
            (*known, *error) = (hash, least);
            name.set(key);
        }
    }

    /// Whether it is time to show it again.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.shown_ns) >= SHOWN_EVERY_NS
    }

    /// The hottest keys. Everything is halved, so that what was hot long ago is forgotten.
    pub(crate) fn show(&mut self, now_ns: u64) -> Hottest {
        self.shown_ns = now_ns;
        let counts = self.counts.iter().zip(&self.errors).zip(self.names.iter());
        let keys = counts.map(|((count, error), name)| {
            let sure = u64::from(count.saturating_sub(*error));
            (Box::from(name.get()), sure)
        });
        let mut hottest = Hottest {
            seen: self.seen,
            keys: keys.filter(|key| key.1 > 0).collect(),
        };
        hottest.rank(1);
        self.seen /= 2;
        let halve = |numbers: &mut [u32]| numbers.iter_mut().for_each(|number| *number /= 2);
        halve(&mut self.counts);
        halve(&mut self.errors);
        hottest
    }
}

impl Name {
    fn set(&mut self, key: &[u8]) {
        if let Some(place) = self.bytes.get_mut(..key.len()) {
            place.copy_from_slice(key);
            self.length = key.len() as u8;
        }
    }

    fn get(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }
}

impl Hottest {
    /// All workers' together.
    pub(crate) fn of_all(all: impl Iterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        for one in all {
            sum.seen += one.seen;
            for (key, seen) in one.keys {
                match sum.keys.iter_mut().find(|known| known.0 == key) {
                    Some(known) => known.1 += seen,
                    None => sum.keys.push((key, seen)),
                }
            }
        }
        sum.rank(SEEN_MIN);
        sum
    }

    /// The share of all requests that a key has which was seen so often.
    pub(crate) fn share(&self, seen: u64) -> f64 {
        seen as f64 / self.seen.max(1) as f64
    }

    fn rank(&mut self, seen_min: u64) {
        self.keys.retain(|key| key.1 >= seen_min);
        self.keys
            .sort_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
        self.keys.truncate(SHOWN_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(sketch: &mut HotKeys, key: u64) {
        sketch.count(KeyHash(key | 1 << 63), format!("key{key}").as_bytes());
    }

    /// A stream of keys that looks random: each of `keys` as often.
    fn even(step: u64, keys: u64) -> u64 {
        step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys
    }

    /// Goal: hot keys are found among very many others, with shares that are right within a few
    /// per cent. Method: two keys with a quarter and an eighth of the requests, 10,000 others.
    #[test]
    fn the_hottest_keys_are_found_with_their_shares() {
        let mut sketch = HotKeys::new(0);
        for step in 0..40_000 {
            match step % 8 {
                0 | 4 => asked(&mut sketch, 1_000_001),
                2 => asked(&mut sketch, 1_000_002),
                _ => asked(&mut sketch, even(step, 10_000)),
            }
        }
        let hottest = Hottest::of_all([sketch.show(1)].into_iter());
        let shares: Vec<_> = hottest.keys.iter().take(2).collect();
        assert_eq!(&*shares[0].0, b"key1000001");
        assert_eq!(&*shares[1].0, b"key1000002");
        let share = |at: usize| hottest.share(shares[at].1);
        assert!((0.23..=0.25).contains(&share(0)), "{}", share(0));
        assert!((0.10..=0.125).contains(&share(1)), "{}", share(1));
    }

    #[test]
    fn no_key_is_hot_when_all_are_alike() {
        let mut sketch = HotKeys::new(0);
        (0..40_000).for_each(|step| asked(&mut sketch, even(step, 10_000)));
        let hottest = Hottest::of_all([sketch.show(1)].into_iter());
        let most = hottest.keys.first().map_or(0, |key| key.1);
        assert!(hottest.share(most) < 0.005, "{most}");
    }

    #[test]
    fn workers_are_added_up_and_the_past_is_forgotten() {
        let (mut one, mut other) = (HotKeys::new(0), HotKeys::new(1));
        for _ in 0..10 {
            asked(&mut one, 1);
            asked(&mut other, 1);
            asked(&mut other, 2);
        }
        let hottest = Hottest::of_all([one.show(1), other.show(1)].into_iter());
        assert_eq!(hottest.seen, 30);
        let keys: Vec<_> = hottest.keys.iter().map(|key| (&*key.0, key.1)).collect();
        assert_eq!(keys, [(&b"key1"[..], 20), (&b"key2"[..], 10)]);
        assert!(!one.is_due(SHOWN_EVERY_NS) && one.is_due(1 + SHOWN_EVERY_NS));
        for second in 2..8 {
            one.show(second);
        }
        assert_eq!(one.show(8), Hottest::default());
    }

    /// Goal: one request in 64 is sampled, and pipelines of 16 in which one place has a key of its
    /// own do not fool it. Method: 100,000 draws.
    #[test]
    fn distances_are_64_on_average_and_meet_every_place_of_a_pipeline() {
        let mut sketch = HotKeys::new(3);
        let (mut at, mut places) = (0, [0_u32; 16]);
        for _ in 0..100_000 {
            at += sketch.draw();
            places[at % 16] += 1;
        }
        assert!((6_300_000..6_500_000).contains(&at), "{at}");
        assert!(
            places.iter().all(|&place| (5_900..6_600).contains(&place)),
            "{places:?}"
        );
    }
}
