//! The configuration of a tracker.

use core::fmt;

use curtail_types::LoadScale;

/// What a tracker is made with; the crate's page says what the papers take.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Parameters {
    /// What loads are measured in; equal wherever loads are compared.
    pub scale: LoadScale,
    /// Keys that are counted at a time, N: 1 to [`Parameters::COUNTED_MAX`]. A key with more than
    /// one of N sampled requests is never missed. Takes about 340 bytes each.
    pub counted: u32,
    /// Keys of the load list, k: 1 to `counted`.
    pub listed: u32,
    /// Entries of the circular log, at most [`Parameters::LOGGED_MAX`]; without any, nothing
    /// bursts.
    pub logged: u32,
    /// A key that is in the log more often than this bursts.
    pub burst_above: u32,
}

/// Parameters that are within their bounds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CheckedParameters(Parameters);

/// Why parameters cannot be used: the operator's fault, or that of the code that chose them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ParametersError {
    /// The segment has no length.
    Segment,
    /// Alpha is 0 or above 1.
    Alpha,
    /// Sampling is 0, or above [`Parameters::SAMPLED_EVERY_MAX`].
    Sampled,
    /// The counted keys are none or above [`Parameters::COUNTED_MAX`].
    Counted,
    /// The listed keys are none or more than the counted ones.
    Listed,
    /// The log is longer than [`Parameters::LOGGED_MAX`].
    Logged,
}

impl Parameters {
    /// Keys that can be counted at a time.
    pub const COUNTED_MAX: u32 = 1 << 20;

    /// Entries that the circular log can have.
    pub const LOGGED_MAX: u32 = 1 << 16;

    /// The sparsest sampling.
    pub const SAMPLED_EVERY_MAX: u32 = 1 << 20;

    /// As SwitchKV's back ends have it, for a report of five keys.
    pub const fn switchkv() -> Self {
        Self {
            scale: LoadScale {
                segment_ns: 1_000_000_000,
                alpha: LoadScale::ALPHA_ONE / 2,
                sampled_every: 1,
            },
            counted: 20_000,
            listed: 10,
            logged: 200,
            burst_above: 8,
        }
    }

    /// For a thread that sees every request of an in-memory store.
    pub const fn sampled() -> Self {
        let switchkv = Self::switchkv();
        Self {
            scale: LoadScale {
                sampled_every: 64,
                ..switchkv.scale
            },
            counted: 1024,
            listed: 256,
            logged: 0,
            ..switchkv
        }
    }

    /// The same, known to be within their bounds.
    ///
    /// # Errors
    /// The first that is out of its bounds.
    pub const fn check(self) -> Result<CheckedParameters, ParametersError> {
        let scale = self.scale;
        if scale.segment_ns == 0 {
            Err(ParametersError::Segment)
        } else if scale.alpha == 0 || scale.alpha > LoadScale::ALPHA_ONE {
            Err(ParametersError::Alpha)
        } else if scale.sampled_every == 0 || scale.sampled_every > Self::SAMPLED_EVERY_MAX {
            Err(ParametersError::Sampled)
        } else if self.counted == 0 || self.counted > Self::COUNTED_MAX {
            Err(ParametersError::Counted)
        } else if self.listed == 0 || self.listed > self.counted {
            Err(ParametersError::Listed)
        } else if self.logged > Self::LOGGED_MAX {
            Err(ParametersError::Logged)
        } else {
            Ok(CheckedParameters(self))
        }
    }
}

impl CheckedParameters {
    /// What was checked.
    pub const fn get(&self) -> &Parameters {
        &self.0
    }
}

impl fmt::Display for ParametersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Segment => "hot keys: a segment needs a length above 0 ns",
            Self::Alpha => "hot keys: alpha must be above 0 and at most 1",
            Self::Sampled => "hot keys: one request in N is sampled, with N from 1 to 1,048,576",
            Self::Counted => "hot keys: 1 to 1,048,576 keys can be counted",
            Self::Listed => "hot keys: the list has from 1 key to as many as are counted",
            Self::Logged => "hot keys: the circular log has at most 65,536 entries",
        })
    }
}

impl core::error::Error for ParametersError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_bounds_is_named() {
        assert!(Parameters::switchkv().check().is_ok());
        let sampled = Parameters::sampled();
        assert_eq!(sampled.check().map(|checked| *checked.get()), Ok(sampled));
        let refused = |change: fn(&mut Parameters)| {
            let mut parameters = Parameters::sampled();
            change(&mut parameters);
            parameters.check().unwrap_err()
        };
        use ParametersError::*;
        assert_eq!(refused(|wrong| wrong.scale.segment_ns = 0), Segment);
        assert_eq!(refused(|wrong| wrong.scale.alpha = 0), Alpha);
        assert_eq!(refused(|wrong| wrong.scale.alpha = 65_537), Alpha);
        assert_eq!(refused(|wrong| wrong.scale.sampled_every = 0), Sampled);
        assert_eq!(refused(|wrong| wrong.counted = 0), Counted);
        assert_eq!(refused(|wrong| wrong.listed = 0), Listed);
        assert_eq!(refused(|wrong| wrong.listed = 1025), Listed);
        assert_eq!(refused(|wrong| wrong.logged = 65_537), Logged);
    }
}
