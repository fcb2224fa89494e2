//! Collects every mistake of a command line or a configuration file, not only the first.
//!
//! Every message begins with its flag as it is spelled on the command line, so that the place in
//! the configuration file can be found that it came from.

use std::fmt;

use crate::config_file::Origins;

/// Messages for an operator, one for each flag that cannot be.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    /// The value of `result`; or notes its error and goes on with the default.
    pub(crate) fn keep<T: Default>(&mut self, result: anyhow::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            self.0.push(format!("{error:#}"));
            T::default()
        })
    }

    /// An error if there are any; each names the line of the configuration file that it came from.
    pub(crate) fn end(mut self, origins: &Origins) -> Result<(), Self> {
        if self.0.is_empty() {
            return Ok(());
        }
        for fault in &mut self.0 {
            if let Some(place) = origins.place_of(fault) {
                *fault = format!("{place}: {fault}");
            }
        }
        Err(self)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\ncurtail: "))
    }
}

impl std::error::Error for Faults {}
