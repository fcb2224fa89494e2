//! Loads of the hottest keys, and the keys that nodes shall replicate.
//!
//! A *load* is how often a key was asked for in a segment of the stream of requests, averaged over
//! segments with weights that fall (Li, dissertation, 2016, section 2.2.2.1). Two loads can be
//! compared only if they were measured alike; a report therefore carries its [`LoadScale`], and
//! reports of different scales are not merged (SwitchKV requirement SW-52, ccKVS CC-78).
//!
//! Every load is a lower bound with an error: the truth lies between `load` and `load + error`,
//! also after merging (Agarwal et al., "Mergeable summaries", PODS 2012).

use alloc::vec::Vec;

use crate::inline_key::KeyName;

/// Requests of a segment, as sampled, in 65,536ths.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Load(pub u64);

/// What loads are measured in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LoadScale {
    /// Length of a segment in nanoseconds.
    pub segment_ns: u64,
    /// The weight of the newest segment, alpha of equation 2.1, of [`LoadScale::ALPHA_ONE`].
    pub alpha: u32,
    /// One request in so many is sampled; 1 is each.
    pub sampled_every: u32,
}

/// How often one key is asked for.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct KeyLoad {
    /// The key.
    pub key: KeyName,
    /// Requests for it that are certain.
    pub load: Load,
    /// How many more it may have been.
    pub error: Load,
    /// Those of `load` that wrote.
    pub writes: Load,
}

/// The hottest keys of one stream of requests, or of several together.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LoadReport {
    /// How it was measured.
    pub scale: LoadScale,
    /// All requests.
    pub total: Load,
    /// A key that is not in the report has at most this load.
    pub absent_max: Load,
    /// The keys, the one with the highest load first, none twice.
    pub keys: Vec<KeyLoad>,
}

/// Reports that were not measured alike: every node must be given the same parameters.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct UnlikeReports {
    /// How the first was measured.
    pub first: LoadScale,
    /// How another was.
    pub other: LoadScale,
}

impl Load {
    /// One request in every segment.
    pub const ONE: Self = Self(1 << Self::FRACTION_BITS);

    const FRACTION_BITS: u32 = 16;

    /// So many requests in every segment; at most 2^48 - 1.
    pub const fn of(requests: u64) -> Self {
        Self(requests.saturating_mul(Self::ONE.0))
    }

    /// Whole requests, rounded down.
    pub const fn requests(self) -> u64 {
        self.0 >> Self::FRACTION_BITS
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This without `other`; none if that is more.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl LoadScale {
    /// The weight of a segment when earlier ones do not count.
    pub const ALPHA_ONE: u32 = 1 << 16;
}

impl KeyLoad {
    /// The most that its load may be.
    pub const fn load_max(&self) -> Load {
        self.load.plus(self.error)
    }

    /// Orders by load, the highest first; equal ones by name.
    pub fn hotter_first(one: &Self, other: &Self) -> core::cmp::Ordering {
        (other.load, &one.key).cmp(&(one.load, &other.key))
    }
}

impl LoadReport {
    /// A report of nothing.
    pub const fn empty(scale: LoadScale) -> Self {
        Self {
            scale,
            total: Load(0),
            absent_max: Load(0),
            keys: Vec::new(),
        }
    }

    /// The reports of streams that have no request in common, as one of at most `keys_max` keys;
    /// `None` if there is none. Allocates: not for the path of requests.
    ///
    /// # Errors
    /// When two were not measured alike.
    pub fn merged<'a>(
        reports: impl IntoIterator<Item = &'a Self>,
        keys_max: usize,
    ) -> Result<Option<Self>, UnlikeReports> {
        let mut reports = reports.into_iter();
        let Some(first) = reports.next() else {
            return Ok(None);
        };
        let mut sum = Self::empty(first.scale);
        let mut parts = Vec::new();
        for report in core::iter::once(first).chain(reports) {
            if report.scale != sum.scale {
                return Err(UnlikeReports {
                    first: sum.scale,
                    other: report.scale,
                });
            }
            sum.total = sum.total.plus(report.total);
            sum.absent_max = sum.absent_max.plus(report.absent_max);
            parts.extend(report.keys.iter().map(|key| (key, report.absent_max)));
        }
        parts.sort_unstable_by_key(|part| part.0.key);
        let same_key = |one: &(&KeyLoad, Load), other: &(&KeyLoad, Load)| one.0.key == other.0.key;
        let absent_max = sum.absent_max;
        let keys = parts
            .chunk_by(same_key)
            .map(|of_key| add(of_key, absent_max));
        sum.keys.extend(keys);
        sum.rank(keys_max);
        Ok(Some(sum))
    }

    /// Puts the keys in order and keeps `keys_max` of them.
    pub fn rank(&mut self, keys_max: usize) {
        self.keys.sort_unstable_by(KeyLoad::hotter_first);
        let beyond = self.keys.get(keys_max..).unwrap_or_default();
        let most = beyond.iter().map(KeyLoad::load_max).max();
        self.absent_max = self.absent_max.max(most.unwrap_or_default());
        self.keys.truncate(keys_max);
    }

    /// The share of all requests that `load` is, in millionths; at most one million.
    pub fn share_millionths(&self, load: Load) -> u32 {
        let total = u128::from(self.total.0.max(1));
        let share = u128::from(load.0.min(self.total.0)) * 1_000_000 / total;
        share as u32
    }
}

/// What several reports say of one key; a report that does not name it may have missed as much of
/// it as is beyond that report.
fn add(of_key: &[(&KeyLoad, Load)], absent_max: Load) -> KeyLoad {
    let mut sum = KeyLoad {
        error: absent_max,
        ..KeyLoad::default()
    };
    for (part, named_max) in of_key {
        sum.key = part.key;
        sum.load = sum.load.plus(part.load);
        sum.writes = sum.writes.plus(part.writes);
        sum.error = sum.error.minus(*named_max).plus(part.error);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    const SCALE: LoadScale = LoadScale {
        segment_ns: 1_000_000_000,
        alpha: LoadScale::ALPHA_ONE / 2,
        sampled_every: 1,
    };

    fn key(name: &str, load: u64, error: u64) -> KeyLoad {
        KeyLoad {
            key: KeyName::of(Key::new(name.as_bytes()).unwrap()),
            load: Load::of(load),
            error: Load::of(error),
            writes: Load::of(load / 2),
        }
    }

    fn report(absent_max: u64, keys: &[KeyLoad]) -> LoadReport {
        LoadReport {
            total: Load::of(100),
            absent_max: Load::of(absent_max),
            keys: keys.to_vec(),
            ..LoadReport::empty(SCALE)
        }
    }

    /// Loads are added up, and who does not name a key may have seen as much of it as it says.
    #[test]
    fn merged_reports_bound_every_key() {
        let one = report(3, &[key("a", 20, 1), key("b", 10, 2)]);
        let other = report(4, &[key("b", 30, 0), key("c", 5, 0)]);
        let sum = LoadReport::merged([&one, &other], 10).unwrap().unwrap();
        assert_eq!((sum.total, sum.absent_max), (Load::of(200), Load::of(7)));
        assert_eq!(
            sum.keys,
            [key("b", 40, 2), key("a", 20, 5), {
                let c = key("c", 5, 3);
                KeyLoad {
                    writes: Load::of(2),
                    ..c
                }
            }]
        );
        let fewer = LoadReport::merged([&one, &other], 1).unwrap().unwrap();
        assert_eq!(fewer.keys.len(), 1);
        assert_eq!(fewer.absent_max, Load::of(25));
    }

    #[test]
    fn unlike_reports_are_refused() {
        for scale in [
            LoadScale {
                segment_ns: 1,
                ..SCALE
            },
            LoadScale { alpha: 1, ..SCALE },
            LoadScale {
                sampled_every: 64,
                ..SCALE
            },
        ] {
            let other = LoadReport::empty(scale);
            let refused = LoadReport::merged([&report(0, &[]), &other], 10);
            assert_eq!(
                refused,
                Err(UnlikeReports {
                    first: SCALE,
                    other: scale
                })
            );
        }
        assert_eq!(LoadReport::merged([], 10), Ok(None));
    }

    #[test]
    fn shares_are_of_all_requests() {
        let report = report(0, &[]);
        assert_eq!(report.share_millionths(Load::of(25)), 250_000);
        assert_eq!(report.share_millionths(Load::of(101)), 1_000_000);
        assert_eq!(LoadReport::empty(SCALE).share_millionths(Load::ONE), 0);
    }
}
