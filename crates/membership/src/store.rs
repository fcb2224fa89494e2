//! Where a cluster's roster is kept: somewhere that answers who was first.
//!
//! A store keeps text and does not look into it.

mod etcd;
mod file;

pub use etcd::EtcdStore;
pub use file::FileStore;
use thiserror::Error;

use crate::stored_view::{Roster, RosterError};

/// Keeps one roster, and replaces it only for a caller that has read it (compare and swap).
///
/// A reading returns what the last replacement before its start wrote, or something newer: leases
/// count on that.
pub trait ViewStore: Send {
    /// What is there; nothing before the first replacement.
    ///
    /// # Errors
    /// When the store does not answer in its time, or what it answers is not understood.
    fn read(&mut self) -> Result<Option<StoredText>, ViewStoreError>;

    /// Puts `text`, which is JSON, in place of the one with revision `expected` (0: of nothing),
    /// and says which revision it has now; nothing if another is there.
    ///
    /// # Errors
    /// When nobody knows whether it was written.
    fn replace(&mut self, expected: u64, text: &str) -> Result<Option<u64>, ViewStoreError>;
}

/// A view store, and the roster that was last in it. A reading that finds nothing new compares
/// texts and parses none.
pub struct RosterStore {
    store: Box<dyn ViewStore>,
    last: Option<(StoredText, Roster)>,
}

impl RosterStore {
    /// What is in `store`.
    pub fn new(store: impl ViewStore + 'static) -> Self {
        Self {
            store: Box::new(store),
            last: None,
        }
    }

    /// The roster that is there.
    ///
    /// # Errors
    /// When the store does not answer in its time, or what it holds is not understood.
    pub fn read_roster(&mut self) -> Result<Option<StoredRoster>, ViewStoreError> {
        let Some(stored) = self.store.read()? else {
            return Ok(None);
        };
        let last = self.last.take().filter(|(last, _)| *last == stored);
        let (stored, roster) = match last {
            Some(last) => last,
            None => {
                let roster = Roster::from_json(&stored.text)?;
                (stored, roster)
            }
        };
        let revision = stored.revision;
        self.last = Some((stored, roster.clone()));
        Ok(Some(StoredRoster { revision, roster }))
    }

    /// [Replaces](ViewStore::replace) a roster.
    ///
    /// # Errors
    /// When nobody knows whether it was written.
    pub fn replace_roster(
        &mut self,
        expected: u64,
        roster: &Roster,
    ) -> Result<Option<u64>, ViewStoreError> {
        self.store.replace(expected, &roster.to_json())
    }
}

/// A text, and which state of the store it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredText {
    /// Grows with every replacement; never 0.
    pub revision: u64,
    /// What is there.
    pub text: String,
}

/// A roster, and which state of the store it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredRoster {
    /// Grows with every replacement; never 0.
    pub revision: u64,
    /// What is there.
    pub roster: Roster,
}

/// Why a store could not be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ViewStoreError {
    /// It did not answer, or not in time.
    #[error("the view store cannot be used: {0}")]
    Unreachable(String),
    /// It answered, but does not do what it was asked.
    #[error("the view store refuses requests: {0}")]
    Refused(String),
    /// Others changed what it holds during each attempt to change it.
    #[error("the view changed during each of {0} attempts; try again")]
    Changing(usize),
    /// It answered something that is not understood.
    #[error("the view store gave no valid answer: {0}")]
    Strange(String),
    /// What it holds is not a roster of this version.
    #[error("the view in the store is {0}")]
    Roster(RosterError),
}

impl From<RosterError> for ViewStoreError {
    fn from(error: RosterError) -> Self {
        Self::Roster(error)
    }
}
