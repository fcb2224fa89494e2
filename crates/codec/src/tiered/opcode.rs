//! What a datagram of the tier says, and which fields each kind has.

use curtail_types::numbered_enum;

use super::address::AddressClass;

numbered_enum! {
    /// What it says. The number is what the wire carries; numbers are never given twice.
    pub enum TieredOpcode: u8 {
        /// A client reads an item.
        Get = 1,
        /// A client stores an item.
        Put = 2,
        /// A client removes an item.
        Delete = 3,
        /// A client has an item changed depending on what is there (`add`, `cas`, `incr`, ...); the
        /// value is an [`ItemRequest`](crate::node::ItemRequest) without its key.
        Change = 4,
        /// A client has a back end remove all of its items; the key is of no account.
        Flush = 5,
        /// What became of a client's request.
        Reply = 8,
        /// A cache node wants a copy.
        Fetch = 16,
        /// A back end gives one: asked for, or because the key bursts (an instant report).
        Item = 17,
        /// A back end has changed an item of which there is a copy.
        Update = 18,
        /// A cache node shows nothing older than the update with this number.
        Applied = 19,
        /// A cache node has no copy, and takes none with this number or a lower one.
        Dropped = 20,
        /// A cache node wants its lease; the number is its clock.
        Renew = 21,
        /// A back end grants it; the version's place has the cache's session.
        Lease = 22,
        /// A back end's hottest keys and their loads, as the value.
        Report = 23,
        /// A cache node shall have no copy of the key any more.
        Revoke = 24,
        /// A cache node's rules that are to be installed and withdrawn, as the value; the version's
        /// place has the life of its rules, once it has named them all in that.
        Rules = 25,
        /// The switch has done that; the version's place has the life of the cache's rules, the
        /// value the numbers of the cache nodes that share, a byte each.
        RulesTaken = 26,
        /// Somebody asks a node for its counters.
        Status = 27,
        /// A node's counters, as the value: lines of text.
        StatusText = 28,
        /// The keys of a cache node of which all cache nodes are to have copies, and their loads,
        /// as the value (CC-81); the number is the list's.
        Shared = 29,
        /// Those of them that a cache node has, and their hits since the last time, as the value.
        SharedHits = 30,
    }
}

numbered_enum! {
    /// What became of a request.
    #[derive(Default)]
    pub enum TieredStatus: u8 {
        /// Done; a `get`'s value is here. What everything but a reply has.
        #[default]
        Done = 0,
        /// There is no such item.
        NotFound = 1,
        /// The key is not this back end's (SW-13): the epoch is the one that it knows.
        WrongPartition = 2,
        /// Not now: too much waits, or the back end restarts. Nothing was changed.
        Busy = 3,
        /// The value fits no datagram: read it from the back end by a stream.
        TooLarge = 4,
        /// The store refused the write, as it is full or its disk fails. Nothing was changed.
        Refused = 5,
        /// The change does not suit what is there: an `add` to an item, a `replace` of none.
        NotStored = 6,
        /// The item has another version than the one that was named.
        Exists = 7,
        /// Arithmetic on what is no number.
        NotANumber = 8,
        /// A cache node has no copy, and the client shall ask the back end (look-aside, SW-67).
        NotCached = 9,
    }
}

/// How it is said: a set of bits.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TieredFlags(pub u8);

impl TieredFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The client sends it again, to the back end (SW-14).
    pub const RETRY: Self = Self(1);
    /// A cache node did not have the key and sent the request on (SW-19): no cache node takes it.
    pub const FROM_CACHE: Self = Self(2);
    /// There is no item any more; of items, updates and reports of them.
    pub const GONE: Self = Self(4);
    /// The item that a `put` stores never expires unless this is set, and `exptime` counts.
    pub const EXPIRES: Self = Self(8);
    /// With this message a cache node has named all its rules in the life that it knows of.
    pub const ALL: Self = Self(16);
    /// Rules that are spread may lead to the cache node (CC-81).
    pub const SHARES: Self = Self(32);

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
}

/// The fields of a datagram that not every opcode has, as bits.
pub(super) struct Field;

impl Field {
    pub(super) const KEY: u16 = 1;
    pub(super) const VALUE: u16 = 2;
    /// Version, flags and expiry of an item.
    pub(super) const ITEM: u16 = 4;
    /// Where the reply goes.
    pub(super) const CLIENT: u16 = 8;
    pub(super) const STATUS: u16 = 16;
    pub(super) const GENERATION: u16 = 32;
    pub(super) const NUMBER: u16 = 64;
    pub(super) const VERSION: u16 = 128;
    pub(super) const EPOCH: u16 = 256;
}

impl TieredOpcode {
    /// Which fields it has; the others are zero.
    pub(super) const fn fields(self) -> u16 {
        use Field as F;
        match self {
            Self::Get | Self::Delete | Self::Flush => F::KEY | F::CLIENT | F::EPOCH,
            Self::Change => F::KEY | F::CLIENT | F::EPOCH | F::VALUE,
            Self::Put => F::KEY | F::CLIENT | F::EPOCH | F::VALUE | F::ITEM,
            Self::Reply => F::KEY | F::STATUS | F::EPOCH | F::VALUE | F::ITEM | F::VERSION,
            Self::Fetch => F::KEY | F::GENERATION,
            Self::Item => {
                F::KEY | F::VALUE | F::ITEM | F::VERSION | F::GENERATION | F::NUMBER | F::EPOCH
            }
            Self::Update => F::KEY | F::VALUE | F::ITEM | F::VERSION | F::GENERATION | F::NUMBER,
            Self::Applied | Self::Dropped | Self::Revoke => F::KEY | F::GENERATION | F::NUMBER,
            Self::Renew => F::GENERATION | F::NUMBER,
            Self::Lease => F::GENERATION | F::NUMBER | F::VERSION,
            Self::Report => F::VALUE | F::GENERATION | F::NUMBER,
            Self::Shared | Self::SharedHits => F::VALUE | F::NUMBER,
            Self::Rules => F::VALUE | F::GENERATION | F::NUMBER | F::VERSION,
            Self::RulesTaken => F::VALUE | F::GENERATION | F::NUMBER | F::VERSION | F::STATUS,
            Self::Status => F::CLIENT,
            Self::StatusText => F::VALUE,
        }
    }

    /// The flags that it may have.
    pub(super) const fn flags(self) -> TieredFlags {
        use TieredFlags as F;
        match self {
            Self::Get => F::RETRY.with(F::FROM_CACHE),
            Self::Put => F::RETRY.with(F::EXPIRES),
            Self::Delete | Self::Change | Self::Flush => F::RETRY,
            Self::Reply => F::FROM_CACHE.with(F::EXPIRES),
            Self::Rules => F::ALL.with(F::SHARES),
            Self::Item | Self::Update => F::GONE.with(F::EXPIRES),
            _ => F::NONE,
        }
    }

    /// Whether it may have an address of this class. A `get` that is flagged has left the class
    /// that leads to a cache node.
    pub(super) const fn may_go(self, class: AddressClass, flags: TieredFlags) -> bool {
        match self {
            Self::Get => match class {
                // To a host in the baselines: a cache node (SW-67).
                AddressClass::CachedGet | AddressClass::Host => flags.0 == 0,
                AddressClass::BackEnd => true,
            },
            Self::Put | Self::Delete | Self::Change | Self::Flush | Self::Fetch => {
                matches!(class, AddressClass::BackEnd)
            }
            Self::Applied | Self::Dropped | Self::Renew => matches!(class, AddressClass::BackEnd),
            Self::Reply | Self::Item | Self::Update | Self::Lease | Self::Report | Self::Revoke => {
                matches!(class, AddressClass::Host)
            }
            Self::Rules | Self::RulesTaken | Self::StatusText | Self::Shared | Self::SharedHits => {
                matches!(class, AddressClass::Host)
            }
            Self::Status => matches!(class, AddressClass::BackEnd | AddressClass::Host),
        }
    }

    /// Whether nodes alone say it, under the cluster's secret.
    pub const fn is_between_nodes(self) -> bool {
        self as u8 >= Self::Fetch as u8
    }
}
