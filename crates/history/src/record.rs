//! Recorded operations: one entry each, in any order.

use alloc::{collections::BTreeMap, vec::Vec};
use core::fmt;

use curtail_types::Instant;

/// What was asked of a key. Values are numbers, and a recorder that writes each number at most
/// once gives the checkers the most to go by.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Action {
    /// Read the value.
    Read,
    /// Write a value, whatever is there.
    Write(u64),
    /// Write a value if nothing is there.
    Insert(u64),
    /// Write `new` if `expected` is there.
    CompareAndSet {
        /// The value that must be there.
        expected: u64,
        /// The value to write.
        new: u64,
    },
    /// Remove what is there.
    Delete,
    /// Remove what is there, if anything is: a flush, or a loss that was told.
    Clear,
}

impl Action {
    /// What is there once it was carried out.
    pub const fn leaves(self) -> Option<u64> {
        match self {
            Self::Write(value) | Self::Insert(value) => Some(value),
            Self::CompareAndSet { new, .. } => Some(new),
            Self::Read | Self::Delete | Self::Clear => None,
        }
    }
}

/// What came back.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Outcome {
    /// A read found this.
    Value(u64),
    /// A read, compare-and-set or delete found nothing.
    Missing,
    /// The write, insert, compare-and-set or delete was carried out.
    Done,
    /// An insert found something; a compare-and-set found another value.
    Refused,
    /// It was carried out by then, or never will be: what only an observer of everything can say.
    Perhaps,
}

/// One operation of one client on one key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Entry {
    /// Who asked. A client asks one thing at a time.
    pub client: u32,
    /// Of which key.
    pub key: u64,
    /// When it was asked.
    pub invoked: Instant,
    /// What was asked.
    pub action: Action,
    /// When it returned and with what; `None` if the client never learnt, in which case it may
    /// have happened at any time after, or not at all.
    pub returned: Option<(Instant, Outcome)>,
}

/// Recorded operations.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct History {
    entries: Vec<Entry>,
}

impl History {
    /// An empty history.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// Adds an entry; the order of adding does not matter.
    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries of each key, by time of invocation.
    pub(crate) fn by_key(&self) -> BTreeMap<u64, Vec<Entry>> {
        let mut keys: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
        for entry in &self.entries {
            keys.entry(entry.key).or_default().push(*entry);
        }
        for entries in keys.values_mut() {
            entries.sort_by_key(|entry| entry.invoked);
        }
        keys
    }
}

impl Extend<Entry> for History {
    fn extend<I: IntoIterator<Item = Entry>>(&mut self, entries: I) {
        self.entries.extend(entries);
    }
}

impl FromIterator<Entry> for History {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self {
            entries: entries.into_iter().collect(),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Write(value) => write!(f, "write {value}"),
            Self::Insert(value) => write!(f, "insert {value}"),
            Self::CompareAndSet { expected, new } => write!(f, "set {expected} to {new}"),
            Self::Delete => f.write_str("delete"),
            Self::Clear => f.write_str("clear"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value}"),
            Self::Missing => f.write_str("nothing there"),
            Self::Done => f.write_str("done"),
            Self::Refused => f.write_str("refused"),
            Self::Perhaps => f.write_str("done by then, or never"),
        }
    }
}
