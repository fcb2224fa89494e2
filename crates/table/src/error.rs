//! What can go wrong with a table: it cannot be made, or it is full.

use std::{error, fmt, io};

/// Why a table could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum TableError {
    /// The operating system refused the memory: lower the table's limit, or the process's.
    Memory(io::Error),
    /// The configuration asks for more buckets than 32 bits of hash can tell apart.
    TooManySlots,
    /// A value in the configuration is outside its range; the text names it.
    Config(&'static str),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => write!(f, "cannot reserve memory for the table: {error}"),
            Self::TooManySlots => write!(f, "a table has fewer than 2^32 buckets"),
            Self::Config(what) => write!(f, "table configuration out of range: {what}"),
        }
    }
}

impl error::Error for TableError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Memory(error) => Some(error),
            _ => None,
        }
    }
}

/// The table has no room: no cuckoo path leads to a free slot and it may not grow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table is full")
    }
}

impl error::Error for Full {}

/// The two locked buckets have no free slot; unlock and ask for room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("both buckets are full")
    }
}

impl error::Error for NoRoom {}
