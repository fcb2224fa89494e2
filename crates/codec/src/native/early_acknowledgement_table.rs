//! The requests that may be acknowledged before they are executed: the table that client, server
//! and XDP program share.
//!
//! A request is *nilext* (nil-externalising; Juneberry, NSDI 2025, section 2) if its answer says
//! nothing but that it is accepted. The client marks it, and nobody trusts the mark (JB-2): the
//! opcode and three flags choose a byte of [`CLASS_TABLE`], and a marked request that the table
//! does not let through is an error, never an acknowledgement.
//!
//! ```text
//! index  = opcode << 3 | flags & 7        (COMPARE 4, WAIVE_RESULT 2, NILEXT 1)
//! byte   = class | 0x80 if the request takes a place in the Ordered Queue
//! ```
//!
//! The table is a constant array of 256 bytes. The program for the network card includes it as a C
//! array that is printed from it; `crates/codec/tests/native/abi.h` is that text, and a test holds
//! it to this file.

use curtail_types::numbered_enum;

use super::opcode::{Flags, Opcode};

numbered_enum! {
    /// What may be done with a request before it is executed.
    pub enum Class: u8 {
        /// An unknown opcode, a flag that the opcode does not have, or an undeserved mark.
        Rejected = 0,
        /// May be acknowledged when it has its place in the queue; executing it twice in its place
        /// does no harm.
        Nilext = 1,
        /// The same, but executing it twice would.
        NilextNonidempotent = 2,
        /// Its answer tells something that only execution can.
        Externalising = 3,
        /// Touches every queue.
        Barrier = 4,
        /// Touches no item; the thread that receives it answers.
        Local = 5,
    }
}

/// A byte of the table, taken apart.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RequestClass(u8);

/// The class of every opcode with every set of flags.
pub const CLASS_TABLE: [u8; 256] = table();

/// The bits of a table's byte that are the class.
pub const CLASS_MASK: u8 = 0x07;

/// The bit of a table's byte that says that the request goes through the Ordered Queue. Reads do
/// not (JB-40).
pub const QUEUED: u8 = 0x80;

/// The flags that choose a row's column.
pub const ACTION_BITS_MASK: u16 = 7;

/// Where in the table a request's byte is; opcodes from [`Opcode::END`] on have none.
#[inline]
pub const fn class_index(opcode: Opcode, flags: Flags) -> u8 {
    (opcode as u8) << 3 | (flags.0 & ACTION_BITS_MASK) as u8
}

impl RequestClass {
    /// The class of a request.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "a byte is always below the table's 256 entries"
    )]
    pub const fn of(opcode: Opcode, flags: Flags) -> Self {
        Self(CLASS_TABLE[class_index(opcode, flags) as usize])
    }

    /// The class.
    #[inline]
    pub const fn class(self) -> Class {
        match Class::from_number(self.0 & CLASS_MASK) {
            Some(class) => class,
            None => Class::Rejected,
        }
    }

    /// Whether it takes a place in the Ordered Queue.
    #[inline]
    pub const fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// Whether it may be acknowledged before it is executed.
    #[inline]
    pub const fn is_nilext(self) -> bool {
        matches!(self.class(), Class::Nilext | Class::NilextNonidempotent)
    }
}

#[allow(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which checks every index"
)]
const fn table() -> [u8; 256] {
    let mut table = [Class::Rejected as u8; 256];
    let mut index = 0;
    while index < table.len() {
        if let Some(opcode) = Opcode::from_number((index >> 3) as u8) {
            table[index] = entry(opcode, Flags(index as u16 & ACTION_BITS_MASK));
        }
        index += 1;
    }
    table
}

/// The rules of JB-2's table, for this protocol's operations.
const fn entry(opcode: Opcode, flags: Flags) -> u8 {
    let compares = flags.has(Flags::COMPARE);
    let (nilext, waived) = (flags.has(Flags::NILEXT), flags.has(Flags::WAIVE_RESULT));
    let takes_compare = matches!(opcode, Opcode::Set | Opcode::Replace | Opcode::Delete);
    if compares && !takes_compare {
        return Class::Rejected as u8;
    }
    match opcode {
        Opcode::Hello | Opcode::Confirm | Opcode::Close | Opcode::Ping => {
            plain(flags, Class::Local)
        }
        Opcode::Flush => plain(flags, Class::Barrier),
        Opcode::Get => plain(flags, Class::Externalising),
        Opcode::GetTouch => match plain(flags, Class::Externalising) {
            0 => 0,
            class => class | QUEUED,
        },
        // "Stored" is all that a set can answer, so that nothing needs waiving.
        Opcode::Set if nilext && (waived || !compares) => Class::Nilext as u8 | QUEUED,
        Opcode::Add | Opcode::Replace | Opcode::Delete | Opcode::Touch if nilext && waived => {
            Class::Nilext as u8 | QUEUED
        }
        Opcode::Append | Opcode::Prepend | Opcode::Increment | Opcode::Decrement
            if nilext && waived =>
        {
            Class::NilextNonidempotent as u8 | QUEUED
        }
        _ if nilext => Class::Rejected as u8,
        _ => Class::Externalising as u8 | QUEUED,
    }
}

/// The class of what takes no flag at all.
const fn plain(flags: Flags, class: Class) -> u8 {
    match flags.0 {
        0 => class as u8,
        _ => Class::Rejected as u8,
    }
}

const _: () = assert!((Opcode::Flush as u8) < Opcode::END);
const _: () = assert!(Opcode::END as usize * 8 == CLASS_TABLE.len());

#[cfg(test)]
mod tests {
    use super::*;

    fn class(opcode: Opcode, flags: u16) -> (Class, bool) {
        let found = RequestClass::of(opcode, Flags(flags));
        (found.class(), found.is_queued())
    }

    /// Goal: the table is the one that `docs/reference/protocol.md` prints. Method: every opcode,
    /// unmarked, marked, marked and waived, and with a compare.
    #[test]
    fn the_table_is_as_printed() {
        use Class::{Barrier, Externalising, Local, Nilext, NilextNonidempotent, Rejected};
        let rows = [
            (Opcode::Hello, [Local, Rejected, Rejected, Rejected]),
            (Opcode::Confirm, [Local, Rejected, Rejected, Rejected]),
            (Opcode::Close, [Local, Rejected, Rejected, Rejected]),
            (Opcode::Ping, [Local, Rejected, Rejected, Rejected]),
            (Opcode::Get, [Externalising, Rejected, Rejected, Rejected]),
            (
                Opcode::GetTouch,
                [Externalising, Rejected, Rejected, Rejected],
            ),
            (Opcode::Set, [Externalising, Nilext, Nilext, Externalising]),
            (Opcode::Add, [Externalising, Rejected, Nilext, Rejected]),
            (
                Opcode::Replace,
                [Externalising, Rejected, Nilext, Externalising],
            ),
            (
                Opcode::Append,
                [Externalising, Rejected, NilextNonidempotent, Rejected],
            ),
            (
                Opcode::Prepend,
                [Externalising, Rejected, NilextNonidempotent, Rejected],
            ),
            (
                Opcode::Delete,
                [Externalising, Rejected, Nilext, Externalising],
            ),
            (
                Opcode::Increment,
                [Externalising, Rejected, NilextNonidempotent, Rejected],
            ),
            (
                Opcode::Decrement,
                [Externalising, Rejected, NilextNonidempotent, Rejected],
            ),
            (Opcode::Touch, [Externalising, Rejected, Nilext, Rejected]),
            (Opcode::Flush, [Barrier, Rejected, Rejected, Rejected]),
        ];
        assert!(rows.map(|(opcode, _)| opcode) == Opcode::ALL);
        for (opcode, classes) in rows {
            let found = [0, 1, 3, 4].map(|flags| class(opcode, flags).0);
            assert_eq!(found, classes, "{opcode:?}");
        }
        assert_eq!(class(Opcode::Set, 5).0, Rejected, "a compare answers");
        assert_eq!(class(Opcode::Set, 7).0, Nilext, "unless that is waived");
    }

    /// Goal: writes of items go through the queue, everything else does not, and only what goes
    /// through it can be nilext. Method: the whole table.
    #[test]
    fn what_is_nilext_is_queued() {
        for opcode in Opcode::ALL {
            for flags in 0..8 {
                let (class, queued) = class(opcode, flags);
                let writes = opcode as u8 >= Opcode::GetTouch as u8 && opcode != Opcode::Flush;
                assert_eq!(queued, writes && class != Class::Rejected);
            }
        }
        let unknown = CLASS_TABLE.chunks(8).enumerate();
        let unknown = unknown.filter(|(number, _)| Opcode::from_number(*number as u8).is_none());
        assert!(unknown.flat_map(|(_, row)| row).all(|byte| *byte == 0));
    }
}
