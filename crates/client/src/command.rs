//! A request before it has a session, a slot and a sequence number: an opcode and its fields.

use curtail_codec::native::{Class, Flags, HEADER_BYTES, Head, Opcode, RequestClass, Session};

/// One request.
///
/// ```
/// use curtail_client::Command;
///
/// let plain = Command::increment(b"visits", 1);        // answered by the new number
/// let marked = Command::increment(b"visits", 1).marked(); // answered when it is accepted
/// assert!(!plain.is_marked() && marked.is_marked());
/// let lock = Command::set(b"lock", b"mine").expires(30).if_version(7);
/// assert_eq!(lock.argument, 7);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Command<'a> {
    /// What is asked.
    pub opcode: Opcode,
    /// How.
    pub flags: Flags,
    /// The key; empty for an opcode that has none.
    pub key: &'a [u8],
    /// The value; empty for an opcode that has none.
    pub value: &'a [u8],
    /// When the item ends: 0 never, up to 30 days in seconds from when it is accepted, else Unix
    /// seconds.
    pub exptime: u32,
    /// The 32 bits that memcached's clients keep with an item.
    pub item_flags: u32,
    /// Delta, version to compare, or queue, by opcode.
    pub argument: u64,
}

impl<'a> Command<'a> {
    /// A request without a value; the fields are there to be set.
    pub const fn new(opcode: Opcode, key: &'a [u8]) -> Self {
        Self {
            opcode,
            flags: Flags::NONE,
            key,
            value: &[],
            exptime: 0,
            item_flags: 0,
            argument: 0,
        }
    }

    /// Stores.
    pub const fn set(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::new(Opcode::Set, key).with_value(value)
    }

    /// Stores if nothing is there.
    pub const fn add(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::new(Opcode::Add, key).with_value(value)
    }

    /// Stores if something is there.
    pub const fn replace(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::new(Opcode::Replace, key).with_value(value)
    }

    /// Adds the value behind what is there.
    pub const fn append(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::new(Opcode::Append, key).with_value(value)
    }

    /// Adds the value before what is there.
    pub const fn prepend(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::new(Opcode::Prepend, key).with_value(value)
    }

    /// Removes.
    pub const fn delete(key: &'a [u8]) -> Self {
        Self::new(Opcode::Delete, key)
    }

    /// Adds to a decimal number.
    pub const fn increment(key: &'a [u8], delta: u64) -> Self {
        Self::new(Opcode::Increment, key).with_argument(delta)
    }

    /// Subtracts from a decimal number, down to 0.
    pub const fn decrement(key: &'a [u8], delta: u64) -> Self {
        Self::new(Opcode::Decrement, key).with_argument(delta)
    }

    /// Gives an item a new expiry.
    pub const fn touch(key: &'a [u8], exptime: u32) -> Self {
        Self::new(Opcode::Touch, key).expires(exptime)
    }

    /// Reads.
    pub const fn get(key: &'a [u8]) -> Self {
        Self::new(Opcode::Get, key)
    }

    /// Reads, and gives the item a new expiry.
    pub const fn get_touch(key: &'a [u8], exptime: u32) -> Self {
        Self::new(Opcode::GetTouch, key).expires(exptime)
    }

    /// Removes everything.
    pub const fn flush() -> Self {
        Self::new(Opcode::Flush, &[])
    }

    /// Asks how far a queue is.
    pub const fn ping(queue: u16) -> Self {
        Self::new(Opcode::Ping, &[]).with_argument(queue as u64)
    }

    /// The same, to be answered when it is accepted, with every other answer waived. What cannot be
    /// marked (reads, flush) is refused when it is sent.
    #[must_use]
    pub const fn marked(mut self) -> Self {
        let compares = self.flags.has(Flags::COMPARE);
        self.flags = self.flags.with(Flags::NILEXT);
        if !matches!(self.opcode, Opcode::Set) || compares {
            self.flags = self.flags.with(Flags::WAIVE_RESULT);
        }
        self
    }

    /// The same, only if the item has this version.
    #[must_use]
    pub const fn if_version(self, version: u64) -> Self {
        let mut command = self.with_argument(version);
        command.flags = command.flags.with(Flags::COMPARE);
        match self.is_marked() {
            true => command.marked(),
            false => command,
        }
    }

    /// The same with this expiry.
    #[must_use]
    pub const fn expires(mut self, exptime: u32) -> Self {
        self.exptime = exptime;
        self
    }

    /// The same with these 32 bits.
    #[must_use]
    pub const fn with_item_flags(mut self, item_flags: u32) -> Self {
        self.item_flags = item_flags;
        self
    }

    /// Whether it is answered when it is accepted, and never by a result.
    pub const fn is_marked(&self) -> bool {
        self.flags.has(Flags::NILEXT)
    }

    /// What may be done with it before it is executed.
    pub const fn class(&self) -> Class {
        RequestClass::of(self.opcode, self.flags).class()
    }

    /// Its length on the wire, in bytes.
    pub const fn bytes(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.value.len()
    }

    /// Whether it takes a place in a queue.
    pub(crate) const fn is_queued(&self) -> bool {
        RequestClass::of(self.opcode, self.flags).is_queued()
    }

    /// The header, with everything that a session adds left open.
    pub(crate) const fn head(&self) -> Head {
        let mut head = Head::new(
            self.opcode,
            self.flags,
            Session {
                index: 0,
                generation: 0,
                token: 0,
            },
        );
        head.exptime = self.exptime;
        head.item_flags = self.item_flags;
        head.argument = self.argument;
        head
    }

    const fn with_value(mut self, value: &'a [u8]) -> Self {
        self.value = value;
        self
    }

    const fn with_argument(mut self, argument: u64) -> Self {
        self.argument = argument;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: marking always gives flags that the shared table lets through. Method: every write,
    /// with and without a version, against the table.
    #[test]
    fn a_marked_write_is_nilext_in_the_shared_table() {
        let writes = [
            Command::set(b"k", b"v"),
            Command::add(b"k", b"v"),
            Command::replace(b"k", b"v"),
            Command::append(b"k", b"v"),
            Command::prepend(b"k", b"v"),
            Command::delete(b"k"),
            Command::increment(b"k", 1),
            Command::decrement(b"k", 1),
            Command::touch(b"k", 1),
        ];
        for write in writes {
            let class = write.marked().class();
            assert!(
                matches!(class, Class::Nilext | Class::NilextNonidempotent),
                "{write:?}"
            );
            assert_eq!(write.class(), Class::Externalising);
        }
        for compared in [writes[0], writes[2], writes[5]] {
            assert_eq!(compared.if_version(1).marked().class(), Class::Nilext);
            assert_eq!(compared.marked().if_version(1).class(), Class::Nilext);
        }
        assert_eq!(Command::get(b"k").marked().class(), Class::Rejected);
    }
}
