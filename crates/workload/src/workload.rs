//! A whole workload: keys, value lengths, operations, popularity and arrival times.
//!
//! A workload is plain data. It is written as a name and what differs from the name's defaults,
//! `etc:p-large=0.25,s-large=1m`, and prints itself in full as `custom:...`, which reads back as
//! the same workload. [`Workload::check`] says whether it can be driven; [`Workload::items`] and
//! [`Workload::generator`] make it so.

use std::{fmt, str::FromStr};

use crate::{
    arrivals::Arrivals,
    catalogue::{Catalogue, NAMES, PARAMETERS},
    generator::{Generator, Stream},
    items::{Items, Ttls},
    keys::KeyText,
    mix::{Kind, Mix},
    popularity_change::Change,
    rank_sampler::Popularity,
    stepped_value::Phases,
    value_sizes::Sizes,
    zipf_sums::{COUNT_MAX, EXPONENT_MAX},
};

/// A description of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it was called when it was asked for; for reports.
    pub name: String,
    /// Number of keys, large ones included: key numbers are 0..`keys`.
    pub keys: u64,
    /// Length of every key in bytes, 1 to 250.
    pub key_bytes: usize,
    /// Lengths of the values (of keys that are not large).
    pub sizes: Sizes,
    /// A class of large items, drawn on their own.
    pub large: Option<Large>,
    /// What is asked.
    pub mix: Mix,
    /// How often each key is asked for (large keys are uniform).
    pub popularity: Popularity,
    /// How popularity changes.
    pub change: Option<Change>,
    /// How long items live.
    pub ttls: Ttls,
    /// How requests arrive.
    pub arrivals: Arrivals,
    /// Requests a second; a driver's own setting goes before it.
    pub rate: Option<Phases>,
    /// Seed of the data set: lengths, times to live, and which keys are popular.
    pub layout: u64,
}

/// Large items: the last `keys` key numbers, asked for uniformly with a share of their own
/// (Didona and Zwaenepoel, "Size-aware sharding", NSDI 2019, section 5.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Large {
    /// How many there are.
    pub keys: u64,
    /// Per cent of the requests that are for them, the paper's p_L; may change with time.
    pub percent: Phases,
    /// Lengths of their values.
    pub sizes: Sizes,
}

/// Why a text is no workload.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WorkloadError {
    /// No workload has this name.
    Name(String),
    /// A workload that a store of keys without order cannot run.
    NotApplicable(&'static str),
    /// A Twitter cluster was asked for, and its table was not given.
    NoClusters,
    /// The table of clusters has no such row, or the row does not say enough.
    Cluster(String),
    /// No parameter has this name.
    Parameter(String),
    /// A parameter's value is not understood.
    Value {
        /// The parameter's name.
        parameter: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// The parts do not fit together.
    Impossible(String),
}

impl Workload {
    /// Refuses what cannot be driven.
    pub fn check(&self) -> Result<(), WorkloadError> {
        self.checked().map(drop)
    }

    /// The data set; a workload that [`Workload::check`] refuses panics.
    pub fn items(&self) -> Items {
        match self.checked() {
            Ok(key_text) => Items::new(self, key_text),
            Err(error) => panic!("{error}"),
        }
    }

    /// A generator of requests for one stream (a thread, a connection) of a run with this seed; a
    /// workload that [`Workload::check`] refuses panics.
    pub fn generator(&self, seed: u64, stream: Stream) -> Generator {
        Generator::new(self, self.items(), seed, stream)
    }

    /// Keys that are not large.
    pub fn small_keys(&self) -> u64 {
        self.keys - self.large.as_ref().map_or(0, |large| large.keys)
    }

    fn checked(&self) -> Result<KeyText, WorkloadError> {
        let refuse = |reason: String| Err(WorkloadError::Impossible(reason));
        if !(1..=COUNT_MAX).contains(&self.keys) {
            return refuse(format!("{} keys are not 1 to 2^51", self.keys));
        }
        let Some(key_text) = KeyText::new(self.key_bytes, self.keys) else {
            let bytes = self.key_bytes;
            return refuse(format!(
                "{} keys do not fit in {bytes} bytes each",
                self.keys
            ));
        };
        if let Some(large) = &self.large {
            if large.keys == 0 || large.keys >= self.keys {
                return refuse(format!("{} of {} keys are large", large.keys, self.keys));
            }
            if large
                .percent
                .values()
                .iter()
                .any(|p| !(0.0..=100.0).contains(p))
            {
                return refuse(format!("{} % of the requests are large", large.percent));
            }
        }
        self.check_popularity()?;
        if let Some(change) = self.change {
            let checked = change.check(self.small_keys());
            checked.map_err(WorkloadError::Impossible)?;
        }
        Ok(key_text)
    }

    fn check_popularity(&self) -> Result<(), WorkloadError> {
        let refuse = |reason: String| Err(WorkloadError::Impossible(reason));
        let (exponent, latest) = match self.popularity {
            Popularity::Uniform => (0.0, false),
            Popularity::Zipf { exponent } => (exponent, false),
            Popularity::Latest { exponent } => (exponent, true),
        };
        if !(0.0..=EXPONENT_MAX).contains(&exponent) {
            return refuse(format!(
                "the Zipf exponent {exponent} is not 0 to {EXPONENT_MAX}"
            ));
        }
        if latest && (self.change.is_some() || self.large.is_some()) {
            return refuse("`latest` excludes `change` and large keys".into());
        }
        let inserts = self
            .mix
            .shares()
            .iter()
            .any(|(kind, _)| *kind == Kind::Insert);
        if inserts && self.large.is_some() {
            return refuse("new keys cannot be inserted among large ones".into());
        }
        Ok(())
    }
}

/// Without the table of Twitter's clusters: see [`Catalogue`].
impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        Catalogue::new().workload(text)
    }
}

/// In full, so that a report says what was run; reads back as the same workload but for the name.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, key, sizes) = (self.keys, self.key_bytes, &self.sizes);
        write!(
            f,
            "custom:keys={keys},key={key},value={sizes},mix={}",
            self.mix
        )?;
        if let Some(large) = &self.large {
            let Large {
                keys,
                percent,
                sizes,
            } = large;
            write!(
                f,
                ",large-keys={keys},p-large={percent},large-value={sizes}"
            )?;
        }
        match self.popularity {
            Popularity::Uniform => write!(f, ",zipf=0")?,
            Popularity::Zipf { exponent } => write!(f, ",zipf={exponent}")?,
            Popularity::Latest { exponent } => write!(f, ",latest={exponent}")?,
        }
        if let Some(change) = self.change {
            write!(f, ",change={change}")?;
        }
        if !self.ttls.shares().is_empty() {
            write!(f, ",ttl={}", self.ttls)?;
        }
        match self.arrivals {
            Arrivals::Poisson => write!(f, ",arrivals=poisson")?,
            Arrivals::Constant => write!(f, ",arrivals=constant")?,
            Arrivals::Closed { think_ns } => write!(f, ",arrivals=closed:{think_ns}ns")?,
        }
        if let Some(rate) = &self.rate {
            write!(f, ",rate={rate}")?;
        }
        write!(f, ",layout={}", self.layout)
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                let names = NAMES.join(", ");
                write!(f, "no workload is called {name:?}; there are {names}")
            }
            Self::NotApplicable(reason) => f.write_str(reason),
            Self::NoClusters => f.write_str("the table of Twitter's clusters has not been given"),
            Self::Cluster(reason) | Self::Impossible(reason) => f.write_str(reason),
            Self::Parameter(name) => {
                let names = PARAMETERS.join(", ");
                write!(f, "no parameter is called {name:?}; there are {names}")
            }
            Self::Value { parameter, reason } => write!(f, "{parameter}: {reason}"),
        }
    }
}

impl std::error::Error for WorkloadError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        text.parse().unwrap()
    }

    /// Goal: what a workload prints is the workload. Method: every named one, and every parameter.
    #[test]
    fn what_is_printed_reads_back() {
        let parameters = [
            "zipf:1.25,writes=0.05",
            "custom:value=1..13@0.4+lognormal:230:1.2@0.6,ttl=1h@0.5+2d@0.5,layout=7",
            "zipf:0.99,change=random@200of10k/1s,rate=1m/2m@10s,arrivals=constant",
            "uniform:change=hot-in@5/100requests,arrivals=closed:10us",
            "etc:p-large=0.125/0.75@20s,s-large=250k",
        ];
        for text in NAMES.iter().copied().chain(parameters) {
            if text == "twitter" {
                continue;
            }
            let first = workload(text);
            let mut second = workload(&first.to_string());
            assert_eq!(second.name, first.to_string());
            second.name.clone_from(&first.name);
            assert_eq!(first, second, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_driven_is_refused() {
        let wrong = [
            "uniform:keys=0",
            "uniform:keys=9999999g",
            "uniform:key=0",
            "uniform:key=251",
            "uniform:key=3,keys=1m",
            "zipf:20.5",
            "etc:keys=10k",
            "etc:large-keys=0",
            "etc:p-large=101",
            "zipf:change=random@5of4/1s",
            "zipf:change=hot-in@2m/1s",
            "ycsb-d:change=hot-in@2/1s",
            "ycsb-d:p-large=1",
        ];
        for text in wrong {
            let error = text.parse::<Workload>().unwrap_err();
            assert!(
                matches!(error, WorkloadError::Impossible(_)),
                "{text}: {error}"
            );
        }
    }
}
