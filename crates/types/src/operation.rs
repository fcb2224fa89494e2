//! What a client asks of one item, and what it is told.
//!
//! These are the union of memcached's text and meta commands, without their spelling: `codec`
//! decodes into them, `store` carries them out. The doc of each field names the meta flag it is.

use crate::{cas::Cas, numbered_enum, time::Exptime};

/// One operation on one key. Values are passed beside it, never inside.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// Read, perhaps with a touch, an autovivification or a stampede token.
    Get(Get),
    /// Write a value that comes with the request.
    Set(Set),
    /// Remove, or mark as stale.
    Delete(Delete),
    /// Add to or subtract from a decimal number.
    Arithmetic(Arithmetic),
}

/// What an operation does to its item, as those tell operations apart who order them: workers, and
/// nodes that have copies.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Looks at it; noting that it was read changes nothing that anybody else sees.
    Read,
    /// Stores a value whatever is there: a `set` without condition. Any node that has a copy may
    /// order it.
    Replace,
    /// Everything else. What it does depends on what is there (`add`, `append`, `incr`, `cas`, a
    /// read that touches), or leaves nothing that would carry its version (`delete`). Of copies,
    /// that of the key's home alone may be asked.
    Update,
}

impl Operation {
    /// Whether it leaves its item as it is.
    #[inline]
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Get(get) if !get.changes())
    }

    /// What it does to its item.
    #[inline]
    pub fn access(&self) -> Access {
        match self {
            _ if self.is_read() => Access::Read,
            Self::Set(set) if set.mode == SetMode::Set && set.compare.is_none() => Access::Replace,
            _ => Access::Update,
        }
    }
}

impl Operation {
    /// The version that it gives instead of the next one of the clock, if it names one.
    #[inline]
    pub const fn new_cas(&self) -> Option<Cas> {
        match self {
            Self::Get(get) => get.new_cas,
            Self::Set(set) => set.new_cas,
            Self::Delete(delete) => delete.new_cas,
            Self::Arithmetic(arithmetic) => arithmetic.new_cas,
        }
    }
}

/// Reads an item.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Get {
    /// Sets a new expiry on a hit: text `gat` and `touch`, meta `T`.
    pub touch: Option<Exptime>,
    /// On a miss creates an empty item with this expiry and wins it: meta `N`.
    pub vivify: Option<Exptime>,
    /// Wins the item for recaching when fewer seconds than this remained before the touch: meta
    /// `R`.
    pub recache: Option<Exptime>,
    /// Leaves access time, fetched mark and eviction rank alone: for debug commands and scans.
    pub quiet_access: bool,
    /// The version to give an item that this read creates: meta `E`.
    pub new_cas: Option<Cas>,
    /// Leaves the right to recache a stale item where it is: text `get`, which cannot tell its
    /// client about it.
    pub keep_token: bool,
}

impl Get {
    /// Whether the read may change its item, beside noting that it was read.
    #[inline]
    pub const fn changes(&self) -> bool {
        self.touch.is_some() || self.vivify.is_some() || self.recache.is_some()
    }
}

numbered_enum! {
    /// How a write treats what is there.
    #[derive(Default)]
    pub enum SetMode: u8 {
        /// Stores whatever is there; meta mode `S`.
        #[default]
        Set = 0,
        /// Stores only when nothing is there; meta mode `E`.
        Add = 1,
        /// Stores only when something is there; meta mode `R`.
        Replace = 2,
        /// Adds the value behind what is there; meta mode `A`.
        Append = 3,
        /// Adds the value before what is there; meta mode `P`.
        Prepend = 4,
    }
}

/// Writes an item; the value comes beside it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Set {
    /// How what is there is treated.
    pub mode: SetMode,
    /// The client's 32 bits: text `<flags>`, meta `F`.
    pub flags: u32,
    /// When the item ends: text `<exptime>`, meta `T`.
    pub exptime: Exptime,
    /// Stores only when the item's version is this: text `cas`, meta `C`.
    pub compare: Option<Cas>,
    /// With `compare` older than the item: stores all the same and marks it stale: meta `I`.
    pub invalidate: bool,
    /// In append and prepend mode creates a missing item with this expiry: meta `N`.
    pub vivify: Option<Exptime>,
    /// The version to give instead of the next one of the clock: meta `E`.
    pub new_cas: Option<Cas>,
}

impl Set {
    /// Whether a value that is too large to be stored removes what is there: the client wanted that
    /// gone.
    pub fn removes_if_too_large(&self) -> bool {
        self.mode == SetMode::Set && self.compare.is_none()
    }
}

/// Removes an item.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Delete {
    /// Removes only when the item's version is this: meta `C`.
    pub compare: Option<Cas>,
    /// Marks the item stale instead of removing it: meta `I`.
    pub invalidate: bool,
    /// With `invalidate`, a new expiry: meta `T`.
    pub touch: Option<Exptime>,
    /// Empties the value and clears the client flags, but leaves the item: meta `x`.
    pub drop_value: bool,
    /// The version to give an item that stays: meta `E`.
    pub new_cas: Option<Cas>,
}

/// The two directions of arithmetic.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Direction {
    /// Wraps at 2^64; text `incr`, meta modes `I` and `+`.
    #[default]
    Increment,
    /// Stops at 0; text `decr`, meta modes `D` and `-`.
    Decrement,
}

/// Counts in an item that holds a decimal number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Arithmetic {
    /// Up or down.
    pub direction: Direction,
    /// By how much: meta `D`.
    pub delta: u64,
    /// On a miss creates the item with `initial` and this expiry: meta `N`.
    pub vivify: Option<Exptime>,
    /// The value of an item that is created: meta `J`.
    pub initial: u64,
    /// A new expiry for an item that is there: meta `T`.
    pub touch: Option<Exptime>,
    /// Counts only when the item's version is this: meta `C`.
    pub compare: Option<Cas>,
    /// The version to give instead of the next one of the clock: meta `E`.
    pub new_cas: Option<Cas>,
}

impl Arithmetic {
    /// The number after `number`.
    #[inline]
    pub const fn next(&self, number: u64) -> u64 {
        match self.direction {
            Direction::Increment => number.wrapping_add(self.delta),
            Direction::Decrement => number.saturating_sub(self.delta),
        }
    }
}

/// What a read tells about an item beside its value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct ItemStatus {
    /// The client's 32 bits.
    pub flags: u32,
    /// The item's version.
    pub cas: Cas,
    /// Length of the value in bytes.
    pub value_bytes: u32,
    /// Seconds until it ends; `None` for never. After the touch, if the read touched.
    pub ttl_seconds: Option<u32>,
    /// Seconds since the last access before this one.
    pub idle_seconds: u32,
    /// Whether the item had been read before: meta `h`.
    pub fetched: bool,
    /// This client won the right to recache: meta `W`.
    pub won: bool,
    /// The item is stale: meta `X`.
    pub stale: bool,
    /// Another client holds the right to recache: meta `Z`.
    pub contended: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SetOutcome {
    /// Stored under this version.
    Stored(Cas),
    /// The mode did not allow it (`add` to an item, `replace` or `append` of nothing).
    NotStored,
    /// `compare` did not match.
    Exists,
    /// `compare` was given and there is no item.
    NotFound,
    /// The value is longer than the limit of the store (`-I`).
    TooLarge,
    /// No room, and eviction was not allowed or could not make any.
    OutOfMemory,
}

/// How a removal ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DeleteOutcome {
    /// Removed, or changed as asked.
    Deleted,
    /// There is no item.
    NotFound,
    /// `compare` did not match.
    Exists,
    /// The change needed room that could not be had.
    OutOfMemory,
}

/// How arithmetic ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ArithmeticOutcome {
    /// The number now there, and what else is known of the item.
    Counted {
        /// The new number.
        number: u64,
        /// The item after the change.
        status: ItemStatus,
        /// Nothing was there before.
        created: bool,
    },
    /// There is no item, and none was asked to be created.
    NotFound,
    /// `compare` did not match.
    Exists,
    /// The item does not hold a decimal number below 2^64.
    NotANumber,
    /// The number needed room that could not be had.
    OutOfMemory,
}

/// How an operation ended, whatever it was. The value that a read found goes beside it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// A read found its item.
    Found(ItemStatus),
    /// A read found nothing.
    Missing,
    /// A write ended so.
    Set(SetOutcome),
    /// A removal ended so.
    Delete(DeleteOutcome),
    /// Arithmetic ended so.
    Arithmetic(ArithmeticOutcome),
}

impl Outcome {
    /// Leaves the item's version out of what is told about it.
    pub fn hide_version(&mut self) {
        if let Self::Found(status) | Self::Arithmetic(ArithmeticOutcome::Counted { status, .. }) =
            self
        {
            status.cas = Cas(0);
        }
    }
}

numbered_enum! {
    /// Why an operation has no outcome that could be told.
    pub enum Failure: u8 {
        /// No room to hold the value until it is sent.
        OutOfMemory = 0,
        /// Too much waits already.
        Busy = 1,
        /// This node of a cluster may not answer.
        OutOfService = 2,
        /// It waited too long; a write may still take effect.
        Late = 3,
        /// The cluster changed meanwhile; a write may have taken effect.
        ViewChanged = 4,
        /// The node of the key cannot be reached.
        Unreachable = 5,
        /// The node of the key was lost; a write may have taken effect.
        NodeLost = 6,
        /// It waited too long, and had no effect.
        NotBegun = 7,
        /// The lease of the node that answered ended meanwhile; a write may have taken effect.
        LeaseEnded = 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nothing that depends on what is there, and no change at all, is taken for less.
    /// Method: each kind of operation, plain and with what makes it depend on its item.
    #[test]
    fn access_is_what_an_operation_does_to_its_item() {
        let get = |get| Operation::Get(get);
        let set = |set| Operation::Set(set);
        let plain = Set::default();
        let touch = Some(Exptime(9));
        let cases = [
            (get(Get::default()), Access::Read),
            (
                get(Get {
                    quiet_access: true,
                    keep_token: true,
                    ..Get::default()
                }),
                Access::Read,
            ),
            (
                get(Get {
                    touch,
                    ..Get::default()
                }),
                Access::Update,
            ),
            (
                get(Get {
                    vivify: touch,
                    ..Get::default()
                }),
                Access::Update,
            ),
            (
                get(Get {
                    recache: touch,
                    ..Get::default()
                }),
                Access::Update,
            ),
            (set(plain), Access::Replace),
            (
                set(Set {
                    compare: Some(Cas(1)),
                    ..plain
                }),
                Access::Update,
            ),
            (Operation::Delete(Delete::default()), Access::Update),
            (Operation::Arithmetic(Arithmetic::default()), Access::Update),
        ];
        let joins = [
            SetMode::Add,
            SetMode::Replace,
            SetMode::Append,
            SetMode::Prepend,
        ];
        let joins = joins.map(|mode| (set(Set { mode, ..plain }), Access::Update));
        for (operation, access) in cases.into_iter().chain(joins) {
            assert_eq!(operation.access(), access, "{operation:?}");
            assert_eq!(operation.is_read(), access == Access::Read);
        }
    }
}
