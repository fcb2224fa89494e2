//! What clients ask of a model, and what their requests are called.

use std::fmt;

use curtail_types::Access;

use crate::judge::Written;

/// What a client asks.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// Reads the value.
    Get,
    /// Writes another, whatever was there.
    Set,
    /// Writes one that holds what was there.
    Append,
    /// Removes what is there, and says whether something was.
    Delete,
}

/// What a request is called: its place among those of the model.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Label(pub(crate) u8);

impl Label {
    /// Of a write that nobody asked for: a value is lost, as it may be.
    pub(crate) const EVICTION: Self = Self(14);

    /// Of what is lost with all nodes that had it.
    pub(crate) const LOSS: Self = Self(12);

    /// Of a `flush_all`.
    pub(crate) const FLUSH: Self = Self(13);
}

impl Kind {
    pub(crate) const fn access(self) -> Access {
        match self {
            Self::Get => Access::Read,
            Self::Set => Access::Replace,
            Self::Append | Self::Delete => Access::Update,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Append => "append",
            Self::Delete => "delete",
        })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.0 + 1)
    }
}

/// An answer as a person reads it.
pub(crate) fn answer_in_words(label: Label, kind: Kind, value: Written) -> String {
    match (kind, value) {
        (Kind::Delete, Written::NOTHING) => format!("{label} is answered: there was no item"),
        (Kind::Delete, _) => format!("{label} is answered: deleted"),
        (Kind::Get, _) => format!("{label} is answered: {value}"),
        (Kind::Set | Kind::Append, _) => format!("{label} is answered: stored"),
    }
}
