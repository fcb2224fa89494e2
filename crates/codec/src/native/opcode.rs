//! What a request asks for, and how: opcodes, flags, and which fields each opcode has.

use curtail_types::numbered_enum;

numbered_enum! {
    /// What is asked. The number is what the wire carries; numbers are never given twice.
    pub enum Opcode: u8 {
        /// Asks for a cookie; the argument is the client's nonce.
        Hello = 1,
        /// Returns the cookie in the token's place, and asks for a session.
        Confirm = 2,
        /// Gives the session back.
        Close = 3,
        /// Asks how far the queue in the argument is; renews the session's lease.
        Ping = 4,
        /// Reads an item.
        Get = 5,
        /// Reads an item and gives it a new expiry.
        GetTouch = 6,
        /// Stores.
        Set = 8,
        /// Stores if nothing is there.
        Add = 9,
        /// Stores if something is there.
        Replace = 10,
        /// Adds the value behind what is there.
        Append = 11,
        /// Adds the value before what is there.
        Prepend = 12,
        /// Removes.
        Delete = 13,
        /// Adds the argument to a decimal number.
        Increment = 14,
        /// Subtracts the argument from a decimal number, down to 0.
        Decrement = 15,
        /// Gives an item a new expiry.
        Touch = 16,
        /// Removes everything.
        Flush = 17,
    }
}

/// How it is asked: a set of bits.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Flags(pub u16);

/// Slots of a session: requests that a client may have outstanding in it.
pub const SLOTS: u8 = 64;

/// The greatest sequence number: what the session table's words have room for. At a million
/// requests a second in one slot it lasts two years; then the client opens a new session.
pub const SEQUENCE_MAX: u64 = (1 << 46) - 1;

impl Opcode {
    /// Opcodes are below this.
    pub const END: u8 = 32;

    /// Which fields it has; the others are zero.
    #[inline]
    pub(super) const fn shape(self) -> u8 {
        use Field as F;
        match self {
            Self::Hello => F::ARGUMENT,
            Self::Confirm => F::ARGUMENT | F::TOKEN,
            Self::Close => F::SESSION,
            Self::Ping => F::SESSION | F::ARGUMENT,
            Self::Get => F::SESSION | F::KEY,
            Self::GetTouch | Self::Touch => F::SESSION | F::KEY | F::EXPTIME,
            Self::Set | Self::Add | Self::Replace => {
                F::SESSION | F::KEY | F::VALUE | F::EXPTIME | F::ITEM_FLAGS
            }
            Self::Append | Self::Prepend => F::SESSION | F::KEY | F::VALUE,
            Self::Delete => F::SESSION | F::KEY,
            Self::Increment | Self::Decrement => F::SESSION | F::KEY | F::ARGUMENT,
            Self::Flush => F::SESSION,
        }
    }
}

/// The fields of a request that not every opcode has, as bits.
pub(super) struct Field;

impl Field {
    pub(super) const KEY: u8 = 1;
    pub(super) const VALUE: u8 = 2;
    pub(super) const EXPTIME: u8 = 4;
    pub(super) const ITEM_FLAGS: u8 = 8;
    pub(super) const ARGUMENT: u8 = 16;
    /// Index, generation, slot and sequence; comes with a token.
    pub(super) const SESSION: u8 = 32 | Self::TOKEN;
    pub(super) const TOKEN: u8 = 64;
}

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The client asks to be told that the request is accepted, before it is executed.
    pub const NILEXT: Self = Self(1);
    /// The client waives every answer but that (JB-5).
    pub const WAIVE_RESULT: Self = Self(2);
    /// The argument is the version that the item must have.
    pub const COMPARE: Self = Self(4);
    /// Part of a larger request; no version 1 server takes it, it says that TCP does.
    pub const FRAGMENT: Self = Self(8);

    /// Whether all of `bits` are set.
    #[inline]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn with(self, bits: Self) -> Self {
        Self(self.0 | bits.0)
    }

    /// The bits that mean something; the others are zero.
    pub(super) const KNOWN: u16 = 15;
}
