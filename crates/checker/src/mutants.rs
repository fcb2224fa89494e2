//! Planted errors: what a checker that finds nothing must find.

#[cfg(any(test, feature = "mutants"))]
pub use curtail_consistency::symmetric::Mutant as MachineMutant;

/// A planted error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutant {
    /// In the machine.
    #[cfg(any(test, feature = "mutants"))]
    Machine(MachineMutant),
    /// In what drives it.
    Driver(DriverMutant),
}

/// An error of whoever drives the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DriverMutant {
    /// The home reads its store without asking the entry (CC-74).
    HomeReadsBesideEntry,
    /// What was written while the key was hot is forgotten (CC-74).
    NoWriteBack,
    /// A reader does not look again after it copied the item.
    ReaderLooksOnce,
    /// A node answers although its lease has ended.
    AnswersWithoutLease,
}

impl Mutant {
    /// All that are compiled in.
    pub fn all() -> impl Iterator<Item = Self> {
        let drivers = [
            DriverMutant::HomeReadsBesideEntry,
            DriverMutant::NoWriteBack,
            DriverMutant::ReaderLooksOnce,
            DriverMutant::AnswersWithoutLease,
        ];
        let drivers = drivers.into_iter().map(Self::Driver);
        #[cfg(any(test, feature = "mutants"))]
        let drivers = MachineMutant::ALL
            .into_iter()
            .map(Self::Machine)
            .chain(drivers);
        drivers
    }

    /// What to call it: its name in words with dashes.
    pub fn name(self) -> String {
        let name = match self {
            #[cfg(any(test, feature = "mutants"))]
            Self::Machine(mutant) => format!("{mutant:?}"),
            Self::Driver(mutant) => format!("{mutant:?}"),
        };
        let mut words = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !words.is_empty() {
                words.push('-');
            }
            words.push(letter.to_ascii_lowercase());
        }
        words
    }
}
