//! The load list: the hottest keys of the latest segments, with weights that fall (Li 2016,
//! equation 2.1: L = alpha f + (1 - alpha) L').
//!
//! At the end of a segment the list becomes the segment's top k; a key that was not in the list
//! before begins with L' = 0, and one that is not in the new top k is forgotten (SW-45). What that
//! may have dropped of a key's load is kept as its error, so that the average of the *true*
//! frequencies stays between `load` and `load + error`.

use alloc::vec::Vec;

use curtail_types::{KeyHash, KeyLoad, Load, LoadReport, LoadScale};

use crate::{
    hash_index::HashIndex,
    space_saving::{CountedKey, Counter},
};

/// The load list.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Loads {
    listed_max: usize,
    listed: Vec<Listed>,
    /// The list before, whose memory the next one takes.
    before: Vec<Listed>,
    /// From a hash to its place in `before`, plus one.
    index: HashIndex,
    total: Load,
    absent_max: Load,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Listed {
    hash: KeyHash,
    known: KeyLoad,
    /// Whether the next list has it too.
    stays: bool,
}

/// How a segment is averaged in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// What its counts are scaled with: the length that it should have, over the one it had.
    nominal_ns: u64,
    taken_ns: u64,
    /// The weights of it and of all before it, together [`LoadScale::ALPHA_ONE`].
    newest: u64,
    before: u64,
}

impl Loads {
    pub(crate) fn new(listed_max: u32) -> Self {
        Self {
            listed_max: listed_max as usize,
            listed: Vec::with_capacity(listed_max as usize),
            before: Vec::with_capacity(listed_max as usize),
            index: HashIndex::new(listed_max),
            total: Load(0),
            absent_max: Load(0),
        }
    }

    /// The list after a segment that was counted.
    pub(crate) fn end_segment(&mut self, counter: &Counter, segment: Segment) {
        core::mem::swap(&mut self.listed, &mut self.before);
        self.listed.clear();
        self.index.clear();
        for (number, listed) in (1..).zip(&mut self.before) {
            listed.stays = false;
            self.index.set(listed.hash.0, number);
        }
        let mut hottest = counter.hottest();
        for counted in hottest.by_ref().take(self.listed_max) {
            self.list(&counted, segment);
        }
        let next = hottest.next().map(|counted| counted.count);
        let absent_max = next.unwrap_or_else(|| counter.absent_max());
        let dropped = self.before.iter().filter(|listed| !listed.stays);
        let dropped_max = dropped.map(|listed| listed.known.load_max()).max();
        let before_max = self.absent_max.max(dropped_max.unwrap_or_default());
        self.absent_max = segment.high(absent_max, before_max);
        self.total = segment.low(counter.seen(), self.total);
    }

    /// Takes a key of the segment's top into the list.
    fn list(&mut self, counted: &CountedKey<'_>, segment: Segment) {
        let number = self.index.get(counted.hash.0);
        let at = (number as usize).wrapping_sub(1);
        let (before, before_max) = match self.before.get_mut(at) {
            Some(listed) => {
                listed.stays = true;
                (listed.known, listed.known.load_max())
            }
            None => (KeyLoad::default(), self.absent_max),
        };
        let load = segment.low(counted.count - counted.error, before.load);
        let load_max = segment.high(counted.count, before_max);
        self.listed.push(Listed {
            hash: counted.hash,
            known: KeyLoad {
                key: *counted.name,
                load,
                error: load_max.minus(load),
                writes: segment.low(counted.writes, before.writes),
            },
            stays: false,
        });
    }

    /// Writes the list into `report`, which allocates if it has never held as many keys.
    pub(crate) fn report(&self, report: &mut LoadReport) {
        (report.total, report.absent_max) = (self.total, self.absent_max);
        report.keys.clear();
        let known = self.listed.iter().map(|listed| listed.known);
        report.keys.extend(known);
        report.rank(self.listed_max);
    }
}

impl Segment {
    /// A segment that took `taken_ns`. If that is several lengths, its requests count as spread
    /// evenly over as many segments, so that a thread that slept forgets as one that did not.
    pub(crate) fn new(scale: &LoadScale, taken_ns: u64) -> Self {
        let (nominal_ns, taken_ns) = (scale.segment_ns.max(1), taken_ns.max(1));
        let rest = ONE - u64::from(scale.alpha).min(ONE);
        let segments = taken_ns.saturating_add(nominal_ns / 2) / nominal_ns;
        let before = power(rest, segments.max(1));
        Self {
            nominal_ns,
            taken_ns,
            newest: ONE - before,
            before,
        }
    }

    /// The average of a count and the load before, rounded down.
    fn low(self, count: u64, before: Load) -> Load {
        let scaled = self.scaled(count) / u128::from(self.taken_ns);
        self.average(scaled, before, 0)
    }

    /// The same, rounded up.
    fn high(self, count: u64, before: Load) -> Load {
        let scaled = self.scaled(count).div_ceil(u128::from(self.taken_ns));
        self.average(scaled, before, ONE - 1)
    }

    /// What a count is as a load, times what the segment took; counts are below 2^48.
    fn scaled(self, count: u64) -> u128 {
        u128::from(Load::of(count).0) * u128::from(self.nominal_ns)
    }

    fn average(self, scaled: u128, before: Load, round: u64) -> Load {
        let newest = scaled.min(u128::from(u64::MAX)) * u128::from(self.newest);
        let before = u128::from(before.0) * u128::from(self.before);
        Load(((newest + before + u128::from(round)) / u128::from(ONE)) as u64)
    }
}

const ONE: u64 = LoadScale::ALPHA_ONE as u64;

/// `weight`, of [`ONE`], to a power, by squaring.
fn power(weight: u64, exponent: u64) -> u64 {
    let (mut result, mut square, mut exponent) = (ONE, weight, exponent);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * square / ONE;
        }
        square = square * square / ONE;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_several_segments_are_powers() {
        let scale = LoadScale {
            segment_ns: 100,
            alpha: LoadScale::ALPHA_ONE / 4,
            sampled_every: 1,
        };
        let before = |taken_ns| Segment::new(&scale, taken_ns).before as f64 / ONE as f64;
        for (taken_ns, expected) in [(0, 0.75), (100, 0.75), (149, 0.75), (150, 0.5625)] {
            assert!((before(taken_ns) - expected).abs() < 1e-4, "{taken_ns}");
        }
        assert!((before(1000) - 0.75_f64.powi(10)).abs() < 1e-3);
        assert!(before(u64::MAX) < 1e-9);
    }
}
