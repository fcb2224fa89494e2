//! What every key number stands for: its bytes, its value's length, its time to live.
//!
//! All of it is a function of the number and the data set's seed (`layout`), so that a preload, the
//! run after it, every thread of it and a verifying reader agree without asking each other.

use std::{fmt, ops::Range, str::FromStr, sync::Arc};

use crate::{
    alias::Alias, keys::KeyText, mix::write_weighted, quantity, random::mix, sizes::SizeTable,
    workload::Workload,
};

/// The data set of a workload. Copies share their tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Items {
    key_text: KeyText,
    layout: u64,
    sizes: SizeTable,
    /// Numbers of the large keys and their lengths; empty without large keys.
    large: Range<u64>,
    large_sizes: SizeTable,
    ttls: Option<(Alias, Arc<[u32]>)>,
}

/// What belongs to one key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Item {
    /// Length of the value in bytes.
    pub value_bytes: u32,
    /// Seconds to live after every store; 0 is for ever.
    pub ttl_s: u32,
    /// Whether it is one of the workload's large items.
    pub large: bool,
}

/// Times to live: seconds and their shares of the keys. No entry: items live for ever.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ttls(Vec<(u32, f64)>);

impl Items {
    /// The data set of a workload that has passed its check; keys of a length that cannot tell the
    /// numbers apart panic.
    pub(crate) fn new(workload: &Workload, key_text: KeyText) -> Self {
        let small = workload.keys - workload.large.as_ref().map_or(0, |large| large.keys);
        let sizes = workload.sizes.table();
        let large_sizes = workload.large.as_ref().map(|large| large.sizes.table());
        Self {
            key_text,
            layout: mix(workload.layout),
            large: small..workload.keys,
            large_sizes: large_sizes.unwrap_or_else(|| sizes.clone()),
            sizes,
            ttls: workload.ttls.table(),
        }
    }

    /// What belongs to the key with this number.
    pub fn item(&self, number: u64) -> Item {
        let hash = mix(number ^ self.layout);
        let large = self.large.contains(&number);
        let sizes = if large {
            &self.large_sizes
        } else {
            &self.sizes
        };
        Item {
            value_bytes: sizes.bytes(hash),
            ttl_s: match &self.ttls {
                None => 0,
                Some((alias, seconds)) => seconds[alias.pick(mix(hash ^ TTL)) as usize],
            },
            large,
        }
    }

    /// How keys are written.
    pub fn key_text(&self) -> KeyText {
        self.key_text
    }

    /// The numbers of the large keys.
    pub fn large(&self) -> Range<u64> {
        self.large.clone()
    }

    /// The longest value there can be.
    pub fn value_bytes_max(&self) -> u32 {
        self.sizes.bytes_max().max(self.large_sizes.bytes_max())
    }
}

impl Ttls {
    /// Items live for ever.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Seconds with weights in any unit; `None` if they are negative or nothing.
    pub fn new(weights: &[(u32, f64)]) -> Option<Self> {
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let fine = weights.iter().all(|(_, weight)| *weight >= 0.0);
        let scaled = weights
            .iter()
            .map(|(seconds, weight)| (*seconds, weight / total));
        (fine && total > 0.0 && total.is_finite()).then(|| Self(scaled.collect()))
    }

    /// The seconds and their shares.
    pub fn shares(&self) -> &[(u32, f64)] {
        &self.0
    }

    fn table(&self) -> Option<(Alias, Arc<[u32]>)> {
        if self.0.is_empty() {
            return None;
        }
        let shares: Vec<f64> = self.0.iter().map(|(_, share)| *share).collect();
        let seconds = self.0.iter().map(|(seconds, _)| *seconds).collect();
        Some((Alias::new(&shares), seconds))
    }
}

/// `300s@0.98+299s@0.02`, `1h`, `none`.
impl FromStr for Ttls {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::none());
        }
        quantity::weighted(text, seconds).map(Self)
    }
}

/// Whole seconds of a time such as `1.5h`.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let seconds = quantity::ns(text)? / 1_000_000_000;
    u32::try_from(seconds).map_err(|_| format!("{text:?} is too long a time to live"))
}

impl fmt::Display for Ttls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let texts: Vec<(String, f64)> = self
            .0
            .iter()
            .map(|(seconds, share)| (format!("{seconds}s"), *share))
            .collect();
        write_weighted(f, &texts)
    }
}

/// Sets the word for a key's time to live apart from those for its length.
const TTL: u64 = 0x7474_6c00;

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Items {
        text.parse::<Workload>().unwrap().items()
    }

    #[test]
    fn items_are_functions_of_number_and_layout() {
        let text = "custom:keys=10k,value=1..1000,ttl=10s@0.5+20s@0.5";
        let (one, again) = (items(text), items(text));
        let other = items(&format!("{text},layout=1"));
        assert!((0..10_000).all(|n| one.item(n) == again.item(n)));
        let same = (0..10_000).filter(|&n| one.item(n).value_bytes == other.item(n).value_bytes);
        assert!(same.count() < 50);
    }

    #[test]
    fn large_items_are_the_last_numbers() {
        let items = items("custom:keys=1000,value=5,p-large=1,large-keys=10,large-value=2k..3k");
        assert_eq!(items.large(), 990..1000);
        assert!((0..990).all(|n| items.item(n).value_bytes == 5 && !items.item(n).large));
        let is_large = |n| items.item(n).large && items.item(n).value_bytes >= 2000;
        assert!((990..1000).all(is_large));
        assert_eq!(
            (items.item(1000).large, items.value_bytes_max()),
            (false, 3000)
        );
    }

    /// Goal: times to live have their shares. Method: 40,000 keys, five standard deviations.
    #[test]
    fn times_to_live_have_their_shares() {
        let items = items("custom:keys=40k,ttl=300s@0.98+299s@0.02");
        let short = (0..40_000).filter(|&n| items.item(n).ttl_s == 299).count();
        assert!(short.abs_diff(800) < 140, "{short}");
        assert!((0..40_000).all(|n| matches!(items.item(n).ttl_s, 299 | 300)));
        assert_eq!(Ttls::none().to_string().parse(), Ok(Ttls::none()));
        let text = "300s@0.98+299s@0.02";
        assert_eq!(text.parse::<Ttls>().unwrap().to_string(), text);
        assert!("5".parse::<Ttls>().is_err() && "99999d".parse::<Ttls>().is_err());
    }
}
