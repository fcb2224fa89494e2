//! The length of each value. A value's length is a function of its key's hash and of nothing else,
//! so that a reply's length is known before it arrives, a preload agrees with the run that follows
//! it, and the most popular key has the same length in every run of a data set.
//!
//! A distribution is a few weighted classes; each class is one length, a range in which all lengths
//! are alike, or a curve (log-normal, Pareto) that is drawn from a table of its quantiles.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    quantity,
    random::{mix, scaled},
};

/// Lengths of values: weighted classes, whose shares (of the keys) sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes(Vec<(SizeClass, f64)>);

/// Lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeClass {
    /// One length.
    Constant(u32),
    /// Every length from the first to the last alike.
    Uniform(u32, u32),
    /// A logarithm that is normally distributed, as the sizes of most caches roughly are.
    LogNormal {
        /// The mean length, above 0.
        mean: f64,
        /// Standard deviation of the logarithm, 0 to 4: 1.2 puts 99 of 100 below 8 times the mean.
        sigma: f64,
    },
    /// A heavy tail: P(longer than x) = (smallest / x)^shape.
    Pareto {
        /// The smallest length, above 0.
        smallest: f64,
        /// Above 1, so that there is a mean; the smaller, the heavier the tail.
        shape: f64,
    },
}

/// Sizes made ready to be looked up. Copies share their tables.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTable {
    /// Class i is chosen below `ends[i]`, of 2^32, and not below the ends before it.
    ends: Arc<[u64]>,
    classes: Arc<[Prepared]>,
    mean: f64,
    bytes_max: u32,
}

/// One of `span` lengths from `first` on, or, if there are any, of the quantiles.
#[derive(Clone, Debug, PartialEq)]
struct Prepared {
    first: u32,
    span: u64,
    quantiles: Box<[u32]>,
}

impl Sizes {
    /// One length for every value.
    pub fn constant(bytes: u32) -> Self {
        Self(vec![(SizeClass::Constant(bytes), 1.0)])
    }

    /// Classes with their shares, which sum to 1; `Err` says what is wrong.
    pub fn new(classes: Vec<(SizeClass, f64)>) -> Result<Self, String> {
        for (class, _) in &classes {
            class.check()?;
        }
        let total: f64 = classes.iter().map(|(_, share)| share).sum();
        let positive = classes.iter().all(|(_, share)| *share >= 0.0);
        if !positive || (total - 1.0).abs() > 1e-6 {
            return Err(format!("shares sum to {total}, not to 1"));
        }
        Ok(Self(classes))
    }

    /// The classes and their shares.
    pub fn classes(&self) -> &[(SizeClass, f64)] {
        &self.0
    }

    /// Ready to be looked up.
    pub fn table(&self) -> SizeTable {
        let mut end = 0.0;
        let mut ends = Vec::new();
        let mut mean = 0.0;
        let classes: Arc<[Prepared]> = self.0.iter().map(|(class, _)| class.prepare()).collect();
        for ((_, share), class) in self.0.iter().zip(classes.iter()) {
            end += share;
            ends.push((end * ONE) as u64);
            mean += share * class.mean();
        }
        // The last class needs no end: what is not below another's is its own.
        ends.pop();
        SizeTable {
            ends: ends.into(),
            bytes_max: classes.iter().map(Prepared::bytes_max).max().unwrap_or(0),
            classes,
            mean,
        }
    }
}

impl SizeTable {
    /// Length of the value whose key has this hash.
    pub fn bytes(&self, hash: u64) -> u32 {
        let word = mix(hash ^ LENGTH);
        // Counted, not searched: no branch depends on the key.
        let class = mix(hash ^ CLASS) >> 32;
        let index: usize = self.ends.iter().map(|end| usize::from(class >= *end)).sum();
        self.classes.get(index).map_or(0, |class| class.bytes(word))
    }

    /// The mean length over all keys.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The longest value there can be.
    pub fn bytes_max(&self) -> u32 {
        self.bytes_max
    }
}

impl SizeClass {
    fn check(self) -> Result<(), String> {
        let fine = match self {
            Self::Constant(bytes) => bytes <= BYTES_MAX,
            Self::Uniform(first, last) => first <= last && last <= BYTES_MAX,
            Self::LogNormal { mean, sigma } => {
                (1.0..=f64::from(BYTES_MAX)).contains(&mean) && (0.0..=4.0).contains(&sigma)
            }
            Self::Pareto { smallest, shape } => {
                (1.0..=f64::from(BYTES_MAX)).contains(&smallest) && shape > 1.0 && shape < 1e6
            }
        };
        let wrong = || format!("{self} are no lengths of values (at most {BYTES_MAX} bytes)");
        fine.then_some(()).ok_or_else(wrong)
    }

    fn prepare(self) -> Prepared {
        match self {
            Self::Constant(bytes) => Prepared::lengths(bytes, bytes),
            Self::Uniform(first, last) => Prepared::lengths(first, last),
            Self::LogNormal { mean, sigma } => {
                let curve: Vec<f64> = normal_quantiles().map(|z| (sigma * z).exp()).collect();
                let scale = mean / (curve.iter().sum::<f64>() / curve.len() as f64);
                Prepared::quantiles(curve.iter().map(|x| x * scale))
            }
            Self::Pareto { smallest, shape } => {
                let above = |index| 1.0 - (index as f64 + 0.5) / QUANTILES as f64;
                let quantile = |index| smallest * f64::powf(above(index), -1.0 / shape);
                Prepared::quantiles((0..QUANTILES).map(quantile))
            }
        }
    }
}

impl Prepared {
    fn lengths(first: u32, last: u32) -> Self {
        Self {
            first,
            span: u64::from(last - first) + 1,
            quantiles: Box::new([]),
        }
    }

    fn quantiles(curve: impl Iterator<Item = f64>) -> Self {
        let quantiles: Box<[u32]> = curve.map(length).collect();
        Self {
            first: 0,
            span: quantiles.len() as u64,
            quantiles,
        }
    }

    fn bytes(&self, word: u64) -> u32 {
        let offset = scaled(word, self.span);
        match self.quantiles.get(offset as usize) {
            Some(&bytes) => bytes,
            None => self.first + offset as u32,
        }
    }

    fn mean(&self) -> f64 {
        if self.quantiles.is_empty() {
            return f64::from(self.first) + (self.span - 1) as f64 / 2.0;
        }
        let sum: f64 = self.quantiles.iter().map(|&bytes| f64::from(bytes)).sum();
        sum / self.quantiles.len() as f64
    }

    fn bytes_max(&self) -> u32 {
        let longest = self.quantiles.last().copied();
        longest.unwrap_or(self.first + (self.span - 1) as u32)
    }
}

fn length(bytes: f64) -> u32 {
    (bytes.round() as u32).clamp(1, BYTES_MAX)
}

/// The quantiles of the standard normal distribution in the middle of each of `QUANTILES` equal
/// parts, ascending: its density is summed up in small steps, and each quantile is where the sum
/// passes.
fn normal_quantiles() -> impl Iterator<Item = f64> {
    const STEP: f64 = 1.0 / 4096.0;
    let density = |z: f64| (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let mut z = -8.0;
    let mut below = 0.0;
    (0..QUANTILES).map(move |index| {
        let wanted = (index as f64 + 0.5) / QUANTILES as f64;
        loop {
            let slice = density(z + STEP / 2.0) * STEP;
            if below + slice >= wanted {
                return z + STEP * (wanted - below) / slice;
            }
            below += slice;
            z += STEP;
        }
    })
}

/// `64`, `64..1400`, `lognormal:230:1.2`, `pareto:100:1.5`, and weighted sums of these:
/// `64..1400@0.995+500k@0.005`.
impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(quantity::weighted(text, class)?)
    }
}

fn class(text: &str) -> Result<SizeClass, String> {
    if let Some((first, last)) = text.split_once("..") {
        return Ok(SizeClass::Uniform(
            quantity::bytes(first)?,
            quantity::bytes(last)?,
        ));
    }
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        ["lognormal", mean, sigma] => Ok(SizeClass::LogNormal {
            mean: quantity::number(mean)?,
            sigma: quantity::number(sigma)?,
        }),
        ["pareto", smallest, shape] => Ok(SizeClass::Pareto {
            smallest: quantity::number(smallest)?,
            shape: quantity::number(shape)?,
        }),
        _ => quantity::bytes(text).map(SizeClass::Constant),
    }
}

impl fmt::Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(bytes) => write!(f, "{bytes}"),
            Self::Uniform(first, last) => write!(f, "{first}..{last}"),
            Self::LogNormal { mean, sigma } => write!(f, "lognormal:{mean}:{sigma}"),
            Self::Pareto { smallest, shape } => write!(f, "pareto:{smallest}:{shape}"),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::mix::write_weighted(f, &self.0)
    }
}

/// The longest value of any workload: 128 MiB.
pub const BYTES_MAX: u32 = 128 << 20;
/// Parts of a curve's table.
const QUANTILES: usize = 4096;
/// Shares are kept in parts of this.
const ONE: f64 = 4_294_967_296.0;
/// Set the words for a key's class, length and time to live apart.
const CLASS: u64 = 0x0073_6861_7265;
const LENGTH: u64 = 0x6c65_6e67_7468;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> SizeTable {
        text.parse::<Sizes>().unwrap().table()
    }

    fn mean_of(table: &SizeTable, keys: u64) -> f64 {
        let sum: f64 = (0..keys).map(|key| f64::from(table.bytes(mix(key)))).sum();
        sum / keys as f64
    }

    #[test]
    fn lengths_follow_their_shares_and_stay_in_their_ranges() {
        let sizes = table("10..19@0.9+1000@0.1");
        let large = (0..10_000)
            .filter(|&key| sizes.bytes(mix(key)) == 1000)
            .count();
        // Five standard deviations of 10,000 at 0.1.
        assert!(large.abs_diff(1_000) < 150, "{large}");
        assert!((0..10_000).all(|key| matches!(sizes.bytes(key), 10..=19 | 1000)));
        assert_eq!(
            (sizes.bytes_max(), sizes.mean()),
            (1000, 0.9 * 14.5 + 100.0)
        );
    }

    /// Goal: every form has the mean it says, and the mean asked for. Method: 200,000 keys, 2 %.
    #[test]
    fn means_are_right() {
        for (text, mean) in [
            ("64", 64.0),
            ("0..9", 4.5),
            ("lognormal:230:1.2", 230.0),
            ("lognormal:500:0", 500.0),
            ("pareto:100:3", 150.0),
        ] {
            let table = table(text);
            assert!(
                (table.mean() / mean - 1.0).abs() < 0.01,
                "{text}: {}",
                table.mean()
            );
            let found = mean_of(&table, 200_000);
            assert!((found / table.mean() - 1.0).abs() < 0.02, "{text}: {found}");
        }
    }

    /// Goal: the normal quantiles are right. Method: those that every table prints.
    #[test]
    fn normal_quantiles_are_the_known_ones() {
        let quantiles: Vec<f64> = normal_quantiles().collect();
        let at = |share: f64| quantiles[(share * 4096.0) as usize];
        for (share, z) in [(0.5, 0.0), (0.841_345, 1.0), (0.975, 1.96), (0.01, -2.3263)] {
            assert!((at(share) - z).abs() < 0.01, "{share}: {}", at(share));
        }
        assert!(quantiles.is_sorted());
    }

    #[test]
    fn lengths_are_a_function_of_the_hash() {
        let (one, other) = (
            table("1..1000@0.5+lognormal:9:2@0.5"),
            table("1..1000@0.5+lognormal:9:2@0.5"),
        );
        assert!((0..1000).all(|hash| one.bytes(hash) == other.bytes(hash)));
    }

    #[test]
    fn what_is_written_reads_back_and_nonsense_is_refused() {
        for text in [
            "64",
            "1..13@0.4+14..1400@0.6",
            "lognormal:230:1.2",
            "pareto:100:1.5",
        ] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        let wrong = [
            "",
            "x",
            "9..3",
            "5@0.5",
            "1@-1+2@2",
            "200mi",
            "lognormal:0:1",
            "lognormal:5",
            "lognormal:5:9",
            "pareto:5:1",
            "pareto::2",
            "1..",
            "..",
            "5@0.5+@0.5",
        ];
        for text in wrong {
            assert!(text.parse::<Sizes>().is_err(), "{text:?}");
        }
    }
}
