//! The plan of one epoch: which sizes are small, which cores serve them, and which large core
//! serves which sizes.
//!
//! Small cores come first (`0..small`), large ones after them, in order of size. The large sizes
//! are laid on a line by their cost, and the line is cut into equal pieces, one for each large
//! core. A class that lies on a cut is shared by both sides by the key's hash, because one size
//! alone may cost more than a core can serve:
//!
//! ```text
//! cost of size:  |--10K--|---------100K----------|-1M-|
//! large core:    |------ 5 ------|------ 6 ------|-- 7 --   (pieces of equal cost)
//! ```

use crate::{
    request::Worker,
    size_aware::histogram::{CLASSES_MAX, SizeClasses, SizeHistogram},
};

/// Who serves what, until the next plan.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SizePlan {
    /// Counts plans from 0, the one before anything was measured.
    pub epoch: u64,
    /// Items below this many bytes are small.
    pub threshold: u32,
    /// All cores.
    pub cores: u16,
    /// Small cores: `0..small`. At least one.
    pub small: u16,
    /// Whether there is one large core more than the costs ask for, which takes single requests
    /// from small cores when it has nothing to do (section 6.4's proposal).
    pub extra_large: bool,
    classes: SizeClasses,
    /// Whether a class may be shared by neighbouring large cores.
    split: bool,
    /// Where each class begins on the line, in large cores, with 32 bits behind the point.
    starts: [u64; CLASSES_MAX + 1],
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Route {
    /// It is served where it is.
    Here,
    /// It is handed to this core's ring.
    Ring(Worker),
}

impl SizePlan {
    /// Everything is small: the plan before anything was measured.
    pub fn all_small(cores: u16, classes: SizeClasses) -> Self {
        assert!(cores > 0);
        Self {
            epoch: 0,
            threshold: u32::MAX,
            cores,
            small: cores,
            extra_large: false,
            classes,
            split: true,
            starts: [0; CLASSES_MAX + 1],
        }
    }

    /// A plan for measured costs: `small` cores for what is below the threshold, the others (or the
    /// standby core) for the rest. With `split`, a class may be shared by neighbouring cores.
    pub(super) fn new(
        epoch: u64,
        threshold: u32,
        (cores, small): (u16, u16),
        measured: &SizeHistogram,
        split: bool,
    ) -> Self {
        assert!((1..=cores).contains(&small));
        let mut plan = Self {
            epoch,
            threshold,
            small,
            split,
            ..Self::all_small(cores, measured.classes())
        };
        let first = plan.first_large_class();
        let total: u128 = measured.costs[first..]
            .iter()
            .map(|cost| u128::from(*cost))
            .sum();
        let pieces = u128::from(plan.large_cores()) << 32;
        let mut before = 0_u128;
        for class in first..CLASSES_MAX {
            let cost = u128::from(measured.costs[class]);
            let (from, to) = match split {
                true => (before, before + cost),
                // The whole class goes where its middle is.
                false => (before + cost / 2, before + cost / 2),
            };
            plan.starts[class] = (from * pieces).checked_div(total).unwrap_or(0) as u64;
            plan.starts[class + 1] = (to * pieces).checked_div(total).unwrap_or(0) as u64;
            before += cost;
        }
        plan
    }

    /// Where a request for an item of `bytes` is served, on a core that serves small requests.
    /// `hash` is the key's and divides classes that two cores share.
    #[inline]
    pub fn route(&self, bytes: u32, hash: u64) -> Route {
        if bytes < self.threshold {
            return Route::Here;
        }
        let class = self.classes.class(bytes);
        let part = (u128::from(self.width(class)) * u128::from(hash >> 32)) >> 32;
        let large = self.core_at(self.starts[class] + part as u64);
        Route::Ring(Worker(self.first_large().0 + large))
    }

    /// Cores that serve large requests; at least one, the standby core if none is set aside.
    pub fn large_cores(&self) -> u16 {
        (self.cores - self.small).max(1)
    }

    /// Which of the large cores, from 0, serves an item of `bytes`; `None` if it is small.
    #[inline]
    pub fn large_number(&self, bytes: u32, hash: u64) -> Option<u16> {
        match self.route(bytes, hash) {
            Route::Here => None,
            Route::Ring(core) => Some(core.0 - self.first_large().0),
        }
    }

    /// The smallest size that each large core serves, in order; class edges, and where a class is
    /// shared, its edge stands for both.
    pub fn ranges(&self) -> impl Iterator<Item = u32> + '_ {
        let first = self.first_large_class();
        (0..self.large_cores()).map(move |large| {
            let begins = |class: &usize| self.cores_of(*class).1 >= large;
            let class = (first..CLASSES_MAX).find(begins);
            class.map_or(u32::MAX, |class| match class {
                0 => self.threshold,
                class => self.classes.upper_edge(class - 1).max(self.threshold),
            })
        })
    }

    /// Whether under this plan no large core has over 10 % more than its share of these costs.
    pub(super) fn is_balanced(&self, measured: &SizeHistogram) -> bool {
        let first = self.first_large_class();
        let cores = u128::from(self.large_cores());
        let costs = &measured.costs[first..];
        let total: u128 = costs.iter().map(|cost| u128::from(*cost)).sum();
        let (mut core, mut own) = (0, 0_u128);
        // Classes and cores are both in the order of their sizes, so a core's cost is complete
        // when the next core's begins.
        for (class, cost) in (first..).zip(costs) {
            let (start, end) = (self.starts[class], self.starts[class + 1]);
            let width = self.width(class);
            let (first_core, last_core) = self.cores_of(class);
            for at in first_core..=last_core {
                let part = match width {
                    0 => u128::from(*cost),
                    width => {
                        let (from, to) = (u64::from(at) << 32, u64::from(at + 1) << 32);
                        let inside = end.min(to).saturating_sub(start.max(from));
                        u128::from(*cost) * u128::from(inside) / u128::from(width)
                    }
                };
                own = if at == core { own + part } else { part };
                core = at;
                if own * cores * 10 > total * 11 {
                    return false;
                }
            }
        }
        true
    }

    /// The core that serves small requests until a large one comes, if no core is set aside for
    /// them; it then serves the large one at once, and others drain its RX queue meanwhile.
    pub fn standby(&self) -> Option<Worker> {
        (self.small == self.cores).then_some(Worker(self.cores - 1))
    }

    /// Whether `core` serves small requests under this plan.
    #[inline]
    pub fn is_small(&self, core: Worker) -> bool {
        core.0 < self.small
    }

    /// Which of the large cores, from 0, has this place on the line.
    #[inline]
    fn core_at(&self, place: u64) -> u16 {
        ((place >> 32) as u16).min(self.large_cores() - 1)
    }

    /// The piece of the line over which the requests of a class are spread.
    #[inline]
    fn width(&self, class: usize) -> u64 {
        match self.split {
            true => self.starts[class + 1] - self.starts[class],
            false => 0,
        }
    }

    /// The first and the last of the large cores, from 0, that serve a class.
    fn cores_of(&self, class: usize) -> (u16, u16) {
        let start = self.starts[class];
        let last = start + self.width(class).saturating_sub(1);
        (self.core_at(start), self.core_at(last))
    }

    fn first_large(&self) -> Worker {
        Worker(self.small.min(self.cores - 1))
    }

    fn first_large_class(&self) -> usize {
        match self.threshold {
            u32::MAX => CLASSES_MAX,
            threshold => self.classes.class(threshold),
        }
    }
}
