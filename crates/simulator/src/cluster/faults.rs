//! What may go wrong in a run.

use std::{fmt, str::FromStr};

use clap::ValueEnum;

use crate::command::name_of;

/// The kinds of faults of a run.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Faults(u16);

/// One kind of fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[repr(u8)]
pub enum Fault {
    /// Messages between machines get lost.
    Loss,
    /// They arrive twice.
    Duplicate,
    /// They overtake each other.
    Reorder,
    /// Nodes cannot reach each other, or the store of views, for a while.
    Partition,
    /// A link is slow for a while.
    Slow,
    /// Nodes stop, lose everything, and come back as new members.
    Crash,
    /// Nodes stop for a while and go on.
    Pause,
    /// Clocks run at different speeds and show different times.
    Drift,
    /// Keys become hot and cease to be.
    Churn,
    /// Nodes leave in an orderly way, and come back as new members.
    Leave,
    /// Slices are flushed.
    Flush,
    /// Nodes need room for something else for a while, and stores refuse.
    Room,
}

impl Faults {
    /// No fault.
    pub const NONE: Self = Self(0);

    /// Every fault.
    pub const ALL: Self = Self((1 << (Fault::Room as u8 + 1)) - 1);

    /// Whether this kind is among them.
    pub const fn has(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u8 != 0
    }

    /// These and another.
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u8)
    }

    /// These without one.
    pub const fn without(self, fault: Fault) -> Self {
        Self(self.0 & !(1 << fault as u8))
    }

    fn names(self) -> Vec<String> {
        let all = Fault::value_variants().iter();
        let own = all.filter(|fault| self.has(**fault));
        own.map(name_of).collect()
    }
}

impl FromStr for Faults {
    type Err = String;

    /// Names with commas between; `all` and `none` are lists, and a name behind a minus is taken
    /// out.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Self::NONE;
        for name in text.split(',').filter(|name| !name.is_empty()) {
            let (name, takes_out) = match name.strip_prefix('-') {
                Some(name) => (name, true),
                None => (name, false),
            };
            faults = match (name, Fault::from_str(name, false), takes_out) {
                ("none", ..) => Self::NONE,
                ("all", ..) => Self::ALL,
                (_, Ok(fault), true) => faults.without(fault),
                (_, Ok(fault), false) => faults.with(fault),
                (_, Err(_), _) => {
                    let names = Self::ALL.names().join(", ");
                    return Err(format!("no fault is called {name:?}; there are {names}"));
                }
            };
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL || *self == Self::NONE {
            return f.write_str(if *self == Self::ALL { "all" } else { "none" });
        }
        f.write_str(&self.names().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        for text in ["all", "none", "loss,crash", "duplicate,reorder,churn"] {
            let faults: Faults = text.parse().unwrap();
            assert_eq!(faults.to_string(), text);
        }
        let most: Faults = "all,-crash".parse().unwrap();
        assert!(!most.has(Fault::Crash) && most.has(Fault::Loss));
        assert!("flood".parse::<Faults>().unwrap_err().contains("partition"));
    }
}
