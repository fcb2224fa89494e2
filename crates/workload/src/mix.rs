//! The mix of commands.
//!
//! Commands are memcached's, which every trace of caches speaks, and the two that benchmarks add:
//! read-modify-write and the insertion of a key that did not exist.

use std::{fmt, str::FromStr};

use curtail_types::named_enum;

use crate::{quantity, random::Random};

named_enum! {
    /// A command.
    pub enum Kind {
        /// Read a value.
        Get = "get",
        /// Read a value and its version.
        Gets = "gets",
        /// Store a value whether there was one or not.
        Set = "set",
        /// Store a value if there was none.
        Add = "add",
        /// Store a value if there was one.
        Replace = "replace",
        /// Lengthen a value at its end.
        Append = "append",
        /// Lengthen a value at its start.
        Prepend = "prepend",
        /// Store a value if the version is still the one that was read.
        Cas = "cas",
        /// Remove a value.
        Delete = "delete",
        /// Add to a number.
        Increment = "incr",
        /// Subtract from a number.
        Decrement = "decr",
        /// Read a value, then store a new one under the same key: two requests, one operation.
        ReadModifyWrite = "rmw",
        /// Store a value under a key that has not been used before.
        Insert = "insert",
    }
}

/// Commands with their shares, which sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix(Vec<(Kind, f64)>);

/// A mix made ready to draw from, without a branch that would be guessed wrong.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct MixTable {
    /// Command i is drawn below `ends[i]`, of 2^63, and not below the ends before it.
    ends: Box<[u64]>,
    kinds: Box<[Kind]>,
}

impl Mix {
    /// Reads with this share, sets otherwise; `None` outside 0..=1.
    pub fn get_share(share: f64) -> Option<Self> {
        // Twelve decimals: 1 - 0.95 is to read 0.05 in a report.
        let other = ((1.0 - share) * 1e12).round() / 1e12;
        let within = (0.0..=1.0).contains(&share);
        within.then(|| Self::new(&[(Kind::Get, share), (Kind::Set, other)]))?
    }

    /// Commands with weights in any unit (a table's rounded shares); `None` if they are negative or
    /// nothing.
    pub fn new(weights: &[(Kind, f64)]) -> Option<Self> {
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let fine = weights.iter().all(|(_, weight)| *weight >= 0.0);
        let some = weights.iter().filter(|(_, weight)| *weight > 0.0);
        let scaled = some.map(|(kind, weight)| (*kind, weight / total));
        (fine && total > 0.0 && total.is_finite()).then(|| Self(scaled.collect()))
    }

    /// The commands and their shares.
    pub fn shares(&self) -> &[(Kind, f64)] {
        &self.0
    }

    /// Share of the commands that change something.
    pub fn write_share(&self) -> f64 {
        let writes = self.0.iter().filter(|(kind, _)| kind.is_write());
        writes.map(|(_, share)| share).sum::<f64>() + 0.0
    }

    pub(crate) fn table(&self) -> MixTable {
        let mut kinds: Vec<(Kind, f64)> = self.0.clone();
        kinds.retain(|(_, share)| *share > 0.0);
        kinds.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let mut end = 0.0;
        let mut ends: Vec<u64> = Vec::new();
        for (_, share) in &kinds {
            end += share;
            ends.push((end * ONE) as u64);
        }
        // The last command needs no end: what is not below another's is its own.
        ends.pop();
        MixTable {
            ends: ends.into(),
            kinds: kinds.into_iter().map(|(kind, _)| kind).collect(),
        }
    }
}

impl MixTable {
    pub(crate) fn draw(&self, random: &mut Random) -> Kind {
        // 63 bits, so that a share of 1 fits beside a share of 0.
        let word = random.next() >> 1;
        let index: usize = self.ends.iter().map(|end| usize::from(word >= *end)).sum();
        self.kinds.get(index).copied().unwrap_or(Kind::Get)
    }
}

impl Kind {
    /// Whether the command may change what a later one reads.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::Gets)
    }

    /// Whether the command carries a value.
    pub fn has_value(self) -> bool {
        !matches!(self, Self::Get | Self::Gets | Self::Delete) && !self.is_count()
    }

    /// Whether the command changes a number.
    pub fn is_count(self) -> bool {
        matches!(self, Self::Increment | Self::Decrement)
    }
}

/// `get@0.95+set@0.05`.
impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let command = |word: &str| {
            let known = word.parse::<Kind>();
            known.map_err(|why| format!("unknown command: {why}"))
        };
        quantity::weighted(text, command).map(Self)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_weighted(f, &self.0)
    }
}

/// The form that `quantity::weighted` reads.
pub(crate) fn write_weighted<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: &[(T, f64)],
) -> fmt::Result {
    for (index, (item, share)) in items.iter().enumerate() {
        let between = if index == 0 { "" } else { "+" };
        write!(f, "{between}{item}")?;
        if items.len() > 1 {
            write!(f, "@{share}")?;
        }
    }
    Ok(())
}

/// Shares are kept in parts of 2^63.
const ONE: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_shares() {
        let mix: Mix = "get@0.72+incr@0.18+set@0.1+delete@0".parse().unwrap();
        let table = mix.table();
        let mut random = Random::new(6);
        let draws: Vec<Kind> = (0..40_000).map(|_| table.draw(&mut random)).collect();
        for (kind, share) in mix.shares() {
            let seen = draws.iter().filter(|drawn| *drawn == kind).count() as f64;
            let spread = (4e4 * share * (1.0 - share)).sqrt();
            assert!((seen - 4e4 * share).abs() <= 5.0 * spread, "{kind}: {seen}");
        }
        assert!((mix.write_share() - 0.28).abs() < 1e-9);
    }

    #[test]
    fn certain_commands_are_certain() {
        let mut random = Random::new(6);
        for (share, kind) in [(1.0, Kind::Get), (0.0, Kind::Set)] {
            let table = Mix::get_share(share).unwrap().table();
            assert!((0..1000).all(|_| table.draw(&mut random) == kind));
        }
        assert_eq!(Mix::get_share(1.1), None);
        assert_eq!(Mix::get_share(f64::NAN), None);
    }

    #[test]
    fn names_read_back_and_nonsense_is_refused() {
        let text = "get@0.95+set@0.05";
        assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        for text in ["", "scan", "get@0.5", "get@0.9+put@0.1"] {
            assert!(text.parse::<Mix>().is_err(), "{text:?}");
        }
        let refused = "get@0.9+put@0.1".parse::<Mix>().unwrap_err();
        assert!(refused.starts_with("unknown command: 'put' is not get,"));
    }

    #[test]
    fn rounded_shares_are_made_whole() {
        let mix = Mix::new(&[(Kind::Get, 0.93), (Kind::Set, 0.04), (Kind::Add, 0.01)]).unwrap();
        let total: f64 = mix.shares().iter().map(|(_, share)| share).sum();
        assert!((total - 1.0).abs() < 1e-12);
        assert_eq!(Mix::new(&[]), None);
        assert_eq!(Mix::new(&[(Kind::Get, 0.0)]), None);
        assert_eq!(Mix::new(&[(Kind::Get, 1.0), (Kind::Set, -0.5)]), None);
    }
}
