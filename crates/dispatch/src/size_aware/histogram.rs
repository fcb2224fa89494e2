//! Requests and cost by value size.
//!
//! One histogram belongs to one core and is written by it alone; at the end of an epoch it is
//! handed to the control, and the core goes on with an empty one. Cost is kept beside the count
//! because the middle of a class is too coarse for it, and because a read and a write of one size
//! may cost differently (Minos, section 3.3, counts network packets).

/// How sizes are grouped.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SizeClasses {
    /// Eight classes for each doubling, so that a threshold is at most an eighth above the
    /// percentile; every size below 16 bytes is its own.
    #[default]
    LogLinear,
    /// The paper's: `[2^(i-1), 2^i)` KB for i of 1 to 10, one class below and one above.
    Paper,
}

/// Counts and costs of the requests of one epoch by the size of their items.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SizeHistogram {
    classes: SizeClasses,
    pub(super) counts: [u64; CLASSES_MAX],
    pub(super) costs: [u64; CLASSES_MAX],
}

impl SizeClasses {
    /// The class of an item of `bytes`.
    #[inline]
    pub const fn class(self, bytes: u32) -> usize {
        match self {
            Self::LogLinear if bytes < 8 => bytes as usize,
            Self::LogLinear => {
                let power = bytes.ilog2();
                let part = bytes >> (power - 3) & 7;
                ((power - 2) * 8 + part) as usize
            }
            Self::Paper => {
                let kilobytes = bytes >> 10;
                let class = u32::BITS - kilobytes.leading_zeros();
                if class > 11 { 11 } else { class as usize }
            }
        }
    }

    /// The smallest size above `class`; `u32::MAX` if there is none.
    pub const fn upper_edge(self, class: usize) -> u32 {
        let next = class as u64 + 1;
        let edge = match self {
            Self::LogLinear if next < 8 => next,
            Self::LogLinear => (8 + next % 8) << (next / 8 - 1),
            Self::Paper if class >= 11 => u32::MAX as u64,
            Self::Paper => 1024 << class,
        };
        if edge > u32::MAX as u64 {
            u32::MAX
        } else {
            edge as u32
        }
    }
}

impl SizeHistogram {
    /// Empty.
    pub const fn new(classes: SizeClasses) -> Self {
        Self {
            classes,
            counts: [0; CLASSES_MAX],
            costs: [0; CLASSES_MAX],
        }
    }

    /// One request for an item of `bytes` (0 if there is none), which cost this much in whatever
    /// unit all of them are counted in: packets, or bytes.
    #[inline]
    pub const fn record(&mut self, bytes: u32, cost: u32) {
        let class = self.classes.class(bytes);
        self.counts[class] += 1;
        self.costs[class] += cost as u64;
    }

    /// The same for `count` requests that cost `cost` together: what one sampled request stands
    /// for.
    #[inline]
    pub const fn record_many(&mut self, bytes: u32, cost: u64, count: u64) {
        let class = self.classes.class(bytes);
        self.counts[class] += count;
        self.costs[class] += cost;
    }

    /// How sizes are grouped.
    pub const fn classes(&self) -> SizeClasses {
        self.classes
    }

    /// Requests recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds another core's.
    pub fn add(&mut self, other: &Self) {
        assert!(self.classes == other.classes);
        let pairs = |own: &mut [u64], others: &[u64]| {
            let both = own.iter_mut().zip(others);
            both.for_each(|(own, other)| *own += other);
        };
        pairs(&mut self.counts, &other.counts);
        pairs(&mut self.costs, &other.costs);
    }

    /// Empty again, for the next epoch.
    pub fn clear(&mut self) {
        *self = Self::new(self.classes);
    }
}

/// Classes of a histogram at most: eight for each of the powers of two of 32 bits.
pub const CLASSES_MAX: usize = 240;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: classes cover all sizes without gaps, in order, and their edges are theirs. Method:
    /// both sides of every edge.
    #[test]
    fn classes_are_contiguous() {
        for (classes, last) in [(SizeClasses::LogLinear, 239), (SizeClasses::Paper, 11)] {
            assert_eq!(classes.class(0), 0);
            for class in 0..last {
                let edge = classes.upper_edge(class);
                assert_eq!(classes.class(edge - 1), class, "{classes:?} {edge}");
                assert_eq!(classes.class(edge), class + 1, "{classes:?} {edge}");
            }
            assert_eq!(classes.class(u32::MAX), last);
            assert_eq!(classes.upper_edge(last), u32::MAX);
        }
    }

    #[test]
    fn what_is_recorded_adds_up() {
        let mut one = SizeHistogram::new(SizeClasses::LogLinear);
        one.record(0, 1);
        one.record(1_000_000, 680);
        let mut other = one.clone();
        other.record(100, 1);
        one.add(&other);
        assert_eq!(one.count(), 5);
        assert_eq!(one.costs.iter().sum::<u64>(), 681 * 2 + 1);
        one.clear();
        assert_eq!(one.count(), 0);
    }
}
