//! What is asked for: which key, how long its value is, read or write.
//!
//! A key's number decides everything about it: its bytes and its value's length are functions of
//! the number, so that a reply's length is known before it arrives and a preload agrees with the
//! run that follows it.

use std::{fmt, str::FromStr};

use serde::Serialize;

use crate::{
    error::LoadError,
    protocol::Protocol,
    random::{Random, Zipf, mix},
};

/// How often each key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Popularity {
    /// Every key alike.
    Uniform,
    /// Rank r with weight 1 / r^exponent; ranks are scattered over the key numbers.
    Zipf(f64),
}

/// How long values are: weighted ranges; the key's number picks the range and the length in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizes(Vec<SizeRange>);

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct SizeRange {
    /// Share of the keys, cumulative over the ranges, in 2^-32.
    share_end: u64,
    bytes_min: u32,
    bytes_max: u32,
}

/// The mix of requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// The wire protocol.
    pub protocol: Protocol,
    /// Number of distinct keys.
    pub keys: u64,
    /// Length of every key in bytes, 2 to 250.
    pub key_bytes: usize,
    /// Lengths of values.
    pub sizes: Sizes,
    /// Share of reads, 0 to 1.
    pub get_ratio: f64,
    /// Popularity of keys.
    pub popularity: Popularity,
}

/// Reads or writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Get,
    Set,
}

/// One request before it has bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) key: u64,
    pub(crate) value_bytes: u32,
}

/// Draws requests from a workload.
#[derive(Debug)]
pub(crate) struct Generator {
    workload: Workload,
    zipf: Option<Zipf>,
    random: Random,
    body: Vec<u8>,
}

impl Workload {
    /// Refuses what cannot be driven: no keys, keys too short for their number, a ratio outside
    /// 0..=1, an exponent that is not positive.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |what: String| Err(LoadError::Arguments(what));
        if self.keys == 0 {
            return refuse("at least one key is needed".into());
        }
        let digits = (self.keys - 1).max(1).ilog10() as usize + 1;
        if self.key_bytes <= digits || self.key_bytes > 250 {
            return refuse(format!(
                "{} keys need a key length of {} to 250 bytes, not {}",
                self.keys,
                digits + 1,
                self.key_bytes
            ));
        }
        if !(0.0..=1.0).contains(&self.get_ratio) {
            return refuse(format!("get ratio {} is not in 0..=1", self.get_ratio));
        }
        match self.popularity {
            Popularity::Zipf(exponent) if exponent.is_nan() || exponent <= 0.0 => {
                refuse(format!("Zipf exponent {exponent} is not positive"))
            }
            _ => Ok(()),
        }
    }

    /// Appends the bytes of key `number`: a letter and zero-padded digits.
    pub(crate) fn put_key(&self, number: u64, output: &mut Vec<u8>) {
        let start = output.len();
        output.resize(start + self.key_bytes, b'0');
        let mut rest = number;
        for byte in output[start + 1..].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        output[start] = b'k';
    }

    /// Appends the request that stores key `number` under its own length, cut from `body`.
    pub(crate) fn put_set(&self, number: u64, body: &[u8], output: &mut Vec<u8>) {
        let value = &body[..self.sizes.of(number) as usize];
        let key = |output: &mut Vec<u8>| self.put_key(number, output);
        self.protocol.put_set(self.key_bytes, key, value, output);
    }

    /// Appends the request that reads key `number`.
    pub(crate) fn put_get(&self, number: u64, output: &mut Vec<u8>) {
        let key = |output: &mut Vec<u8>| self.put_key(number, output);
        self.protocol.put_get(self.key_bytes, key, output);
    }

    /// Length of the reply if the key is there and nothing fails.
    pub(crate) fn reply_bytes(&self, request: &Request) -> usize {
        match request.kind {
            Kind::Get => self
                .protocol
                .hit_bytes(self.key_bytes, request.value_bytes as usize),
            Kind::Set => self.protocol.stored_bytes(),
        }
    }

    /// Bytes to cut values from: printable, long enough for the longest, the same for every seed.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut random = Random::new(0x626f_6479);
        (0..self.sizes.bytes_max())
            .map(|_| b'a' + random.below(26) as u8)
            .collect()
    }
}

impl Generator {
    pub(crate) fn new(workload: &Workload, seed: u64) -> Self {
        Self {
            workload: workload.clone(),
            zipf: match workload.popularity {
                Popularity::Uniform => None,
                Popularity::Zipf(exponent) => Some(Zipf::new(workload.keys, exponent)),
            },
            random: Random::new(seed),
            body: workload.body(),
        }
    }

    pub(crate) fn draw(&mut self) -> Request {
        let keys = self.workload.keys;
        let key = match &self.zipf {
            None => self.random.below(keys),
            Some(zipf) => scatter(zipf.rank(&mut self.random), keys),
        };
        let kind = if self.random.chance(self.workload.get_ratio) {
            Kind::Get
        } else {
            Kind::Set
        };
        Request {
            kind,
            key,
            value_bytes: self.workload.sizes.of(key),
        }
    }

    pub(crate) fn put(&self, request: &Request, output: &mut Vec<u8>) {
        match request.kind {
            Kind::Get => self.workload.put_get(request.key, output),
            Kind::Set => self.workload.put_set(request.key, &self.body, output),
        }
    }

    pub(crate) fn workload(&self) -> &Workload {
        &self.workload
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}

/// Spreads ranks over key numbers, so that popular keys are not neighbours: a bijection, because
/// the prime factor divides no number of keys in use.
fn scatter(rank: u64, keys: u64) -> u64 {
    const PRIME: u128 = 2_654_435_761;
    ((u128::from(rank) * PRIME) % u128::from(keys)) as u64
}

impl Sizes {
    /// One length for every value.
    pub fn fixed(bytes: u32) -> Self {
        Self(vec![SizeRange {
            share_end: 1 << 32,
            bytes_min: bytes,
            bytes_max: bytes,
        }])
    }

    /// Length of the value of key `number`.
    pub(crate) fn of(&self, number: u64) -> u32 {
        let [range] = self.0.as_slice() else {
            return self.of_many(number);
        };
        range.pick(number)
    }

    fn of_many(&self, number: u64) -> u32 {
        let share = mix(number ^ 0x0073_6861_7265) >> 32;
        let range = self.0.iter().find(|range| share < range.share_end);
        range.map_or(0, |range| range.pick(number))
    }

    /// The longest value there can be.
    pub(crate) fn bytes_max(&self) -> u32 {
        self.0
            .iter()
            .map(|range| range.bytes_max)
            .max()
            .unwrap_or(0)
    }
}

impl SizeRange {
    fn pick(&self, number: u64) -> u32 {
        let span = u64::from(self.bytes_max - self.bytes_min) + 1;
        if span == 1 {
            return self.bytes_min;
        }
        self.bytes_min + (mix(number ^ 0x6c65_6e67_7468) % span) as u32
    }
}

/// `64`, `64..1400`, or weighted: `64..1400@0.995,500000@0.005` (shares of the keys).
impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("{text:?} is not a number of bytes"))
        };
        let mut ranges = Vec::new();
        let mut total = 0.0;
        for part in text.split(',') {
            let (range, share) = part.split_once('@').unwrap_or((part, "1"));
            let (min, max) = range.split_once("..").unwrap_or((range, range));
            let (bytes_min, bytes_max) = (number(min)?, number(max)?);
            if bytes_min > bytes_max || bytes_max > 128 << 20 {
                return Err(format!("{range:?} is not a range of lengths"));
            }
            total += share
                .parse::<f64>()
                .ok()
                .filter(|share| *share > 0.0)
                .ok_or_else(|| format!("{share:?} is not a share"))?;
            ranges.push((total, bytes_min, bytes_max));
        }
        if (total - 1.0).abs() > 1e-6 {
            return Err(format!("shares sum to {total}, not 1"));
        }
        let count = ranges.len();
        let range = |(index, (end, bytes_min, bytes_max)): (usize, (f64, u32, u32))| SizeRange {
            share_end: if index + 1 == count {
                1 << 32
            } else {
                (end * (1_u64 << 32) as f64) as u64
            },
            bytes_min,
            bytes_max,
        };
        Ok(Self(ranges.into_iter().enumerate().map(range).collect()))
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf {exponent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(keys: u64, key_bytes: usize) -> Workload {
        Workload {
            protocol: Protocol::Meta,
            keys,
            key_bytes,
            sizes: Sizes::fixed(64),
            get_ratio: 0.95,
            popularity: Popularity::Zipf(0.99),
        }
    }

    #[test]
    fn keys_have_the_length_asked_for_and_are_distinct() {
        let workload = workload(1000, 5);
        let mut keys: Vec<Vec<u8>> = (0..1000)
            .map(|number| {
                let mut key = Vec::new();
                workload.put_key(number, &mut key);
                key
            })
            .collect();
        assert!(keys.iter().all(|key| key.len() == 5));
        keys.dedup();
        assert_eq!((keys.len(), keys[7].as_slice()), (1000, &b"k0007"[..]));
    }

    #[test]
    fn a_workload_that_cannot_be_driven_is_refused() {
        assert!(workload(1000, 4).check().is_ok());
        assert!(workload(1001, 4).check().is_err());
        assert!(workload(0, 16).check().is_err());
        assert!(workload(10, 251).check().is_err());
        let mut ratio = workload(10, 16);
        ratio.get_ratio = 1.5;
        assert!(ratio.check().is_err());
    }

    #[test]
    fn sizes_follow_their_shares_and_stay_in_their_ranges() {
        let sizes: Sizes = "10..19@0.9,1000@0.1".parse().unwrap();
        let large = (0..10_000).filter(|&key| sizes.of(key) == 1000).count();
        assert!((800..1200).contains(&large), "{large}");
        assert!((0..10_000).all(|key| matches!(sizes.of(key), 10..=19 | 1000)));
        for wrong in ["", "x", "9..3", "5@0.5", "5@0.5,6@0.6", "1@-1,2@2"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn scattered_ranks_are_a_bijection() {
        let mut seen: Vec<u64> = (0..10_000).map(|rank| scatter(rank, 10_000)).collect();
        seen.sort_unstable();
        assert!(seen.iter().enumerate().all(|(i, &key)| i as u64 == key));
    }
}
