//! The combinations of small and large requests that are measured.

use std::fmt;

use curtail_workload::{SizeClass, Sizes};
use serde::Serialize;

use crate::{
    compare::{servers::Kind, throughput},
    cpu::StepBack,
    error::LoadError,
    request_source::Load,
    text_protocol::Protocol,
};

/// Large requests, and the small ones that they are beside.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Company {
    amount: Amount,
    large_bytes: u32,
    #[serde(skip)]
    large_keys: u64,
    small_bytes: (u32, u32),
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Amount {
    /// For each small one.
    Share(f64),
    PerSecond(f64),
}

/// The mixes of Minos (paper, section 5.2: 95:5, 500 KB).
pub(super) const LARGE: &[Company] = &[Company::share(0.001_25), Company::share(0.005)];

/// Much longer values beside ordinary ones.
pub(super) const LONG: &[Company] = &[
    Company::per_second(10.0),
    Company::per_second(30.0),
    Company::per_second(100.0),
];

/// Keys of the small values: 140 to 200 MB.
const SMALL_KEYS: u64 = 200_000;

/// Lengths of keys, which keep the two kinds apart.
const KEY_BYTES: [usize; 2] = [16, 20];

impl Company {
    const fn share(share: f64) -> Self {
        Self {
            amount: Amount::Share(share),
            large_bytes: 500_000,
            large_keys: 400,
            small_bytes: (14, 1400),
        }
    }

    const fn per_second(rate: f64) -> Self {
        Self {
            amount: Amount::PerSecond(rate),
            large_bytes: 10_000_000,
            large_keys: 40,
            small_bytes: (1000, 1000),
        }
    }

    /// Large requests a second beside so many small ones.
    pub(super) fn rate(&self, small: f64) -> f64 {
        match self.amount {
            Amount::Share(share) => small * share,
            Amount::PerSecond(rate) => rate,
        }
    }

    /// How far the clients that ask for the large values step back. Values of 10 MB would not come
    /// at the rate that was asked for if they stepped aside.
    pub(super) fn step_back(&self) -> StepBack {
        match self.amount {
            Amount::Share(_) => StepBack::Aside,
            Amount::PerSecond(_) => StepBack::Last,
        }
    }

    /// How many large values there are, and the bytes of each.
    pub(super) fn values(&self) -> (usize, usize) {
        (self.large_keys as usize, self.large_bytes as usize)
    }

    /// The small requests.
    pub(super) fn small(&self, kind: Kind) -> Result<Load, LoadError> {
        let (low, high) = self.small_bytes;
        let sizes = Sizes::new(vec![(SizeClass::Uniform(low, high), 1.0)]);
        let sizes = sizes.map_err(LoadError::Arguments)?;
        loaded(kind, SMALL_KEYS, sizes, 0.99, KEY_BYTES[0])
    }

    /// The large ones.
    pub(super) fn large(&self, kind: Kind) -> Result<Load, LoadError> {
        let sizes = Sizes::constant(self.large_bytes);
        loaded(kind, self.large_keys, sizes, 0.0, KEY_BYTES[1])
    }
}

impl fmt::Display for Company {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilobytes = self.large_bytes / 1000;
        match self.amount {
            Amount::Share(share) => write!(f, "{} % of {kilobytes} KB", share * 100.0),
            Amount::PerSecond(rate) => write!(f, "{rate} a second of {kilobytes} KB"),
        }
    }
}

fn loaded(
    kind: Kind,
    keys: u64,
    sizes: Sizes,
    zipf: f64,
    key_bytes: usize,
) -> Result<Load, LoadError> {
    let protocol = match kind {
        Kind::Redis => Protocol::Resp,
        Kind::Ours | Kind::Memcached => Protocol::Text,
    };
    let mut workload = throughput::workload(keys, sizes, 0.95, zipf)?;
    workload.key_bytes = key_bytes;
    Ok(Load::drawn(protocol, workload))
}
