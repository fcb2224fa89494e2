//! Planted errors, which the judges must find: those of the machine, and drivers that are wrong.

use std::{fmt, str::FromStr};

use curtail_consistency::replica::ReplicaMutant;
use curtail_types::dashed;

/// A planted error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutant {
    /// A node serves on when its lease has ended.
    Unfenced,
    /// A primary is not told the truth about requests beside the machine: they may still run.
    ClosedEarly,
    /// A set is answered as if it were a read, and does nothing.
    ReadsForSet,
    /// The machine errs; needs the feature `mutants`.
    Replica(ReplicaMutant),
}

impl Mutant {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let are_there = cfg!(any(test, feature = "mutants"));
        let machines = ReplicaMutant::ALL.into_iter().filter(move |_| are_there);
        let machines = machines.map(Self::Replica);
        let drivers = [Self::Unfenced, Self::ClosedEarly, Self::ReadsForSet];
        drivers.into_iter().chain(machines)
    }

    /// The error that the machine makes.
    pub(super) const fn of_machine(self) -> Option<ReplicaMutant> {
        match self {
            Self::Replica(mutant) => Some(mutant),
            Self::Unfenced | Self::ClosedEarly | Self::ReadsForSet => None,
        }
    }

    /// What it is called on the command line.
    pub fn name(self) -> String {
        match self {
            Self::Replica(mutant) => dashed(&mutant),
            other => dashed(&other),
        }
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|one| one.name() == text).ok_or_else(|| {
            let names: Vec<String> = Self::all().map(Self::name).collect();
            let names = names.join(", ");
            format!("no planted error is called {text:?}; there are {names}")
        })
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
