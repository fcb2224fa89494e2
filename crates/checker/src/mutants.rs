//! Planted errors, each of which the search must find.

#[cfg(any(test, feature = "mutants"))]
pub use curtail_consistency::symmetric::Mutant as MachineMutant;
use curtail_types::listed_enum;

/// A planted error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutant {
    /// In the machine.
    #[cfg(any(test, feature = "mutants"))]
    Machine(MachineMutant),
    /// In what drives it.
    Driver(DriverMutant),
}

listed_enum! {
    /// An error of whoever drives the machine.
    pub enum DriverMutant {
        /// The home reads its store without asking the entry (CC-74).
        HomeReadsBesideEntry,
        /// What was written while the key was hot is forgotten (CC-74).
        NoWriteBack,
        /// A reader does not look again after it copied the item.
        ReaderLooksOnce,
        /// A node answers although its lease has ended.
        AnswersWithoutLease,
        /// A new home runs requests before it has the key.
        ServesBeforeArrival,
        /// The old home gives the key away while a thread of it still serves.
        GivesWhileServing,
        /// With one holder, too, the old home keeps what it sent.
        KeepsWhatItSent,
        /// What has moved is taken in although nobody awaits it any more.
        TakesUnawaited,
        /// What was deleted is not remembered until all has moved.
        ForgetsRemoved,
        /// A key is given away while a write of it is under way.
        GivesUnsettled,
        /// A source does not look again at a key of which a write was under way.
        PassesUnsettled,
        /// A source has ended when what it sent is kept back by who has not come to the view.
        EndsUnseen,
        /// What is not to be here is still there when keys move again.
        SweepsNever,
        /// A key becomes hot, or ceases to be, while keys move.
        ChangesHotWhileMoving,
        /// A source takes a key that it shows for one that is everywhere.
        TakesShownForSent,
        /// A request that is sent on does not say what its session has seen (SC, CC-72).
        SendsOnWithoutSeen,
    }
}

impl Mutant {
    /// All that are compiled in.
    pub fn all() -> impl Iterator<Item = Self> {
        let drivers = DriverMutant::ALL.into_iter().map(Self::Driver);
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
        in_words(&name)
    }
}

/// A name in words with dashes.
pub(crate) fn in_words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
