//! The names of policies: which worker may run a request, and whether sizes are separated.
//!
//! A name is one of `erew`, `crew`, `crcw` and `d-crew`, with `size-aware+` or `size-aware-static+`
//! in front if large requests are to be served apart from small ones. What each means is in
//! `curtail_dispatch`; the store is right under all of them.

use std::{fmt, str::FromStr};

use curtail_dispatch::Policy;
use thiserror::Error;

/// What a server decides by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PolicyName {
    /// Which worker may run a request.
    pub policy: Policy,
    /// How large requests are kept apart.
    pub sizes: Sizes,
}

/// How large requests are kept apart from small ones.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Sizes {
    /// They are not.
    Together,
    /// By a threshold that was set.
    Static,
    /// By a threshold that is learned from what is asked for.
    #[default]
    Learned,
}

/// A policy of no name that is known.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "no such policy: use erew, crew, crcw or d-crew, alone or with size-aware+ or \
     size-aware-static+ in front"
)]
pub struct UnknownPolicy;

const POLICIES: [(&str, Policy); 4] = [
    ("erew", Policy::Erew),
    ("crew", Policy::Crew),
    ("crcw", Policy::Crcw),
    ("d-crew", Policy::DynamicCrew),
];

const PREFIXES: [(&str, Sizes); 3] = [
    ("size-aware+", Sizes::Learned),
    ("size-aware-static+", Sizes::Static),
    ("", Sizes::Together),
];

impl PolicyName {
    /// All names there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let with = |(_, sizes)| POLICIES.map(|(_, policy)| Self { policy, sizes });
        PREFIXES.into_iter().flat_map(with)
    }

    /// Whether large requests are served apart.
    pub(crate) fn is_size_aware(self) -> bool {
        self.sizes != Sizes::Together
    }
}

impl Default for PolicyName {
    /// `size-aware+d-crew`.
    fn default() -> Self {
        Self {
            policy: Policy::DynamicCrew,
            sizes: Sizes::Learned,
        }
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::all()
            .find(|name| name.to_string() == text)
            .ok_or(UnknownPolicy)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = PREFIXES.iter().find(|(_, sizes)| *sizes == self.sizes);
        let policy = POLICIES.iter().find(|(_, policy)| *policy == self.policy);
        let (prefix, policy) = (
            prefix.map_or("", |row| row.0),
            policy.map_or("", |row| row.0),
        );
        write!(f, "{prefix}{policy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        assert_eq!(PolicyName::default().to_string(), "size-aware+d-crew");
        assert_eq!(PolicyName::all().count(), 12);
        for name in PolicyName::all() {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for bad in ["", "size-aware+", "d-crew+size-aware", "D-CREW", "ideal"] {
            assert_eq!(bad.parse::<PolicyName>(), Err(UnknownPolicy), "{bad}");
        }
    }
}
