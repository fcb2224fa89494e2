//! Popularity that changes with time: which keys are hot now (Li, "Cloud-scale key-value systems",
//! 2016, section 2.7.4, figures 2.15 to 2.19).
//!
//! A request is drawn as a rank, and the popularity of ranks never changes. What changes is which
//! key a rank means. Keys are numbered here by their rank at the start, their *place*; the three
//! patterns are permutations of places, none of which is stored whole:
//!
//! ```text
//!            ranks 0 1 2 | 3 4 5 6 7      (8 keys, N = 2, K = 3)
//! hot-in           6 7 0   1 2 3 4 5      the N coldest come to the top, all others shift down
//! hot-out          2 3 4   5 6 7 0 1      the N hottest go to the bottom, all others shift up
//! random           0 7 6   3 4 5 2 1      N of the top K change places with cold keys
//! ```
//!
//! The first two are rotations. The third stores the top K and the cold end: cold keys are taken
//! from the bottom rank upwards, and after `COLD_MAX` of them from the bottom again, so memory has
//! a bound; a key that was replaced may then come back.

use std::fmt;

use crate::random::Random;

/// What changes, and how often.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Change {
    /// What one change does.
    pub pattern: Pattern,
    /// When the changes happen; the first one after one period.
    pub period: Period,
}

/// What one change of popularity does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pattern {
    /// The coldest `keys` keys become the hottest.
    HotIn {
        /// How many, N of the source; at most the number of all keys.
        keys: u64,
    },
    /// The hottest `keys` keys become the coldest.
    HotOut {
        /// How many, N of the source; at most the number of all keys.
        keys: u64,
    },
    /// `keys` random ones of the hottest `top` keys are replaced by cold ones.
    Random {
        /// How many, N of the source; at most `top`.
        keys: u64,
        /// Among how many, K of the source, the size of the cache under test; at most 2^24 and
        /// half of all keys.
        top: u64,
    },
}

/// The clock that changes follow.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Period {
    /// A change every so many nanoseconds of virtual time.
    Time {
        /// At least 1.
        ns: u64,
    },
    /// A change every so many requests.
    Requests {
        /// At least 1.
        count: u64,
    },
}

/// The permutation of places that the changes so far have made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HotSet {
    count: u64,
    change: Change,
    /// When the next change is due, on the clock of the period.
    due: u64,
    places: Places,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Places {
    /// Rank r means place r + offset, modulo the count.
    Rotated {
        offset: u64,
        step: u64,
    },
    Replaced(Box<Replaced>),
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Replaced {
    random: Random,
    keys: usize,
    /// The places of the hottest ranks.
    top: Vec<u64>,
    /// The order in which hot ranks are chosen: a permutation, shuffled a little more each time.
    order: Vec<u32>,
    /// The places of the coldest ranks, the coldest first, as far as a change has reached.
    cold: Vec<u64>,
    cold_max: usize,
    /// The cold rank, from the bottom, whose key is the next to become hot.
    next: usize,
}

impl HotSet {
    /// The places of `count` keys before any change; `seed` decides which hot keys are replaced.
    /// The change has passed [`Change::check`] for this count.
    pub fn new(change: Change, count: u64, seed: u64) -> Self {
        assert!(change.check(count).is_ok(), "{change} of {count} keys");
        let places = match change.pattern {
            Pattern::HotIn { keys } => Places::Rotated {
                offset: 0,
                step: (count - keys) % count,
            },
            Pattern::HotOut { keys } => Places::Rotated {
                offset: 0,
                step: keys % count,
            },
            Pattern::Random { keys, top } => Places::Replaced(Box::new(Replaced {
                random: Random::new(seed),
                keys: keys as usize,
                top: (0..top).collect(),
                order: (0..top as u32).collect(),
                cold: Vec::new(),
                cold_max: (count - top).min(COLD_MAX) as usize,
                next: 0,
            })),
        };
        Self {
            count,
            change,
            due: change.period.length(),
            places,
        }
    }

    /// Makes the changes that are due after `requests` requests at `now_ns`; returns how many.
    /// Time that goes backwards changes nothing.
    pub fn advance(&mut self, now_ns: u64, requests: u64) -> u64 {
        let now = match self.change.period {
            Period::Time { .. } => now_ns,
            Period::Requests { .. } => requests,
        };
        if now < self.due {
            return 0;
        }
        let length = self.change.period.length();
        let due = (now - self.due) / length + 1;
        self.due = self.due.saturating_add(due.saturating_mul(length));
        match &mut self.places {
            Places::Rotated { offset, step } => {
                let way = u128::from(due) * u128::from(*step) + u128::from(*offset);
                *offset = (way % u128::from(self.count)) as u64;
            }
            Places::Replaced(replaced) => {
                // After so many every place has long been shuffled: a jump in time is bounded work.
                for _ in 0..due.min(CATCH_UP_MAX) {
                    replaced.change(self.count);
                }
            }
        }
        due
    }

    /// The place of the key that has this rank now; both are below the count.
    pub fn place(&self, rank: u64) -> u64 {
        match &self.places {
            Places::Rotated { offset, .. } => {
                let turned = rank + offset;
                let wrapped = turned.wrapping_sub(self.count);
                if turned < self.count { turned } else { wrapped }
            }
            Places::Replaced(replaced) => replaced.place(rank, self.count),
        }
    }
}

impl Replaced {
    fn change(&mut self, count: u64) {
        for chosen in 0..self.keys {
            let others = (self.order.len() - chosen) as u64;
            let other = chosen + self.random.below(others) as usize;
            self.order.swap(chosen, other);
            if self.next == self.cold_max {
                self.next = 0;
            }
            if self.next == self.cold.len() {
                self.cold.push(count - 1 - self.next as u64);
            }
            let rank = self.order[chosen] as usize;
            std::mem::swap(&mut self.top[rank], &mut self.cold[self.next]);
            self.next += 1;
        }
    }

    fn place(&self, rank: u64, count: u64) -> u64 {
        if let Some(&place) = self.top.get(rank as usize) {
            return place;
        }
        let from_bottom = count - 1 - rank;
        let replaced = self.cold.get(from_bottom as usize);
        replaced.copied().unwrap_or(rank)
    }
}

impl Change {
    /// Refuses what `count` keys cannot do; the text says why.
    pub fn check(&self, count: u64) -> Result<(), String> {
        let (keys, most) = match self.pattern {
            Pattern::HotIn { keys } | Pattern::HotOut { keys } => (keys, count),
            Pattern::Random { keys, top } => {
                if top > TOP_MAX || top > count / 2 {
                    return Err(format!(
                        "the top {top} are more than {TOP_MAX} or half of {count} keys"
                    ));
                }
                (keys, top)
            }
        };
        if keys == 0 || keys > most {
            return Err(format!("{keys} of {most} keys cannot change"));
        }
        if self.period.length() == 0 {
            return Err("changes need a period".into());
        }
        Ok(())
    }
}

impl Period {
    fn length(self) -> u64 {
        match self {
            Self::Time { ns } => ns,
            Self::Requests { count } => count,
        }
    }
}

/// As it is written in a workload: `hot-in@200/10s`, `random@200of10000/50000requests`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pattern {
            Pattern::HotIn { keys } => write!(f, "hot-in@{keys}")?,
            Pattern::HotOut { keys } => write!(f, "hot-out@{keys}")?,
            Pattern::Random { keys, top } => write!(f, "random@{keys}of{top}")?,
        }
        match self.period {
            Period::Time { ns } => write!(f, "/{ns}ns"),
            Period::Requests { count } => write!(f, "/{count}requests"),
        }
    }
}

/// Most hot ranks whose keys are stored.
const TOP_MAX: u64 = 1 << 24;
/// Most cold ranks whose keys are stored.
const COLD_MAX: u64 = 1 << 20;
/// Most random changes made at once when time jumps.
const CATCH_UP_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pattern: Pattern, count: u64) -> HotSet {
        let period = Period::Requests { count: 10 };
        HotSet::new(Change { pattern, period }, count, 1)
    }

    fn places(set: &HotSet) -> Vec<u64> {
        (0..set.count).map(|rank| set.place(rank)).collect()
    }

    #[test]
    fn hot_in_brings_the_coldest_to_the_top() {
        let mut set = set(Pattern::HotIn { keys: 2 }, 8);
        assert_eq!(set.advance(0, 9), 0);
        assert_eq!(places(&set), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(set.advance(0, 10), 1);
        assert_eq!(places(&set), [6, 7, 0, 1, 2, 3, 4, 5]);
        assert_eq!(set.advance(0, 35), 2);
        assert_eq!(places(&set), [2, 3, 4, 5, 6, 7, 0, 1]);
    }

    #[test]
    fn hot_out_sends_the_hottest_to_the_bottom() {
        let mut set = set(Pattern::HotOut { keys: 2 }, 8);
        set.advance(0, 10);
        assert_eq!(places(&set), [2, 3, 4, 5, 6, 7, 0, 1]);
        set.advance(0, 49);
        assert_eq!(places(&set), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    /// Goal: one random change swaps exactly N of the top K for the coldest keys, and the ranks in
    /// between keep theirs; many changes stay a permutation. Method: all places compared.
    #[test]
    fn random_changes_places_between_the_top_and_the_bottom() {
        let mut set = set(Pattern::Random { keys: 3, top: 10 }, 40);
        set.advance(0, 10);
        let found = places(&set);
        let new: Vec<u64> = found[..10].iter().copied().filter(|&p| p >= 10).collect();
        let mut sorted = new.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [37, 38, 39]);
        assert_eq!(found[10..37], (10..37).collect::<Vec<u64>>());
        assert!(found[37..].iter().all(|&place| place < 10));
        for step in 2..200 {
            set.advance(0, 10 * step);
            let mut found = places(&set);
            found.sort_unstable();
            assert!(found.iter().copied().eq(0..40), "after {step} changes");
        }
    }

    #[test]
    fn time_drives_changes_and_jumps_are_made_up_for() {
        let period = Period::Time { ns: 1_000 };
        let pattern = Pattern::HotIn { keys: 1 };
        let mut steps = HotSet::new(Change { pattern, period }, 100, 1);
        let mut jump = steps.clone();
        for now in 0..7_500 {
            steps.advance(now, 0);
        }
        assert_eq!(jump.advance(7_499, 0), 7);
        assert_eq!(steps, jump);
        assert_eq!(jump.advance(0, 0), 0);
        jump.advance(u64::MAX, 0);
    }

    #[test]
    fn impossible_changes_are_refused() {
        let check = |pattern, period: Period| Change { pattern, period }.check(100).is_ok();
        let often = Period::Time { ns: 1 };
        assert!(check(Pattern::HotIn { keys: 100 }, often));
        assert!(!check(Pattern::HotIn { keys: 101 }, often));
        assert!(!check(Pattern::HotOut { keys: 0 }, often));
        assert!(check(Pattern::Random { keys: 50, top: 50 }, often));
        assert!(!check(Pattern::Random { keys: 1, top: 51 }, often));
        assert!(!check(Pattern::Random { keys: 9, top: 8 }, often));
        assert!(!check(Pattern::HotIn { keys: 1 }, Period::Time { ns: 0 }));
    }
}
