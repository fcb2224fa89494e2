//! Datagrams of the cache tier: what clients, back ends and cache nodes send each other, and how
//! the network reads from a frame's addresses where it goes (SwitchKV: Li, dissertation, 2016,
//! section 2.2.1; SW-7 to SW-14); `docs/reference/protocol-tiered.md` is the text for people who
//! write a client.
//!
//! ```text
//!  byte   0        1        2        3        4        5        6        7
//!     0 | magic "CT"      | version| opcode | flags  | status | key_byte| load  |  word 0
//!     8 | address: tag in 40 bits, back end in 16, class in 8                   |
//!    16 | seal: XXH64, or a keyed hash between nodes                            |
//!    24 | sender                            | epoch of the partition map        |
//!    32 | sequence                                                              |
//!    40 | version of the item                                                   |
//!    48 | generation                                                            |
//!    56 | number                                                                |
//!    64 | client's IP address                                                   |
//!    72 |                                                                       |
//!    80 | client's UDP port | client's MAC address                              |
//!    88 | value_bytes                       | item_flags                        |
//!    96 | exptime                           | zero                              |
//!   104 | key, then value                                                       |
//! ```
//!
//! The address stands in the header too: a forwarder in user space reads it there, and a server
//! whose socket hides the destination finds it. The network's encodings repeat it: in the IPv6
//! destination, or in the MAC and IPv4 destinations ([`TierAddress`]).
//!
//! Invariants: a field that an opcode does not have is zero, so what is decoded encodes to the same
//! bytes; messages between nodes are taken only with a seal under the cluster's secret; nothing
//! here allocates or panics.

mod address;
mod changes;
mod datagram;
mod frame;
mod get_path;
mod network;
mod opcode;
mod partition_map;
mod replay_window;
mod requests;
mod seal;

pub use address::{AddressClass, HostId, MacAddress, TierAddress};
pub use changes::is_tier_change;
pub use datagram::{MalformedTiered, TieredDatagram, TieredEncodeError, TieredHead};
pub use frame::{FrameEnds, FrameIp, TierFrame, UdpEnd};
pub use get_path::GetPath;
pub use network::{NoTierHost, TierEnd, TierNetwork};
pub use opcode::{TieredFlags, TieredOpcode, TieredStatus};
pub use partition_map::PartitionMap;
pub use replay_window::ReplayWindow;
pub use requests::{TierRequests, TierTarget};
pub use seal::TierSecret;

/// The first two bytes of every datagram, "CT" when read in order.
pub const MAGIC: u16 = u16::from_le_bytes(*b"CT");

/// The version that is spoken here.
pub const VERSION: u8 = 1;

/// Length of the fixed header in bytes.
pub const HEADER_BYTES: usize = 104;

/// Longest datagram in bytes: what an Ethernet frame of the usual size holds over IPv6.
pub const DATAGRAM_BYTES_MAX: usize = 1500 - 40 - 8;

/// Bytes of key and value together at most.
pub const BODY_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

/// Longest value that fits a datagram beside every key, in bytes. Larger values do not go by the
/// cache.
pub const VALUE_BYTES_MAX: usize = BODY_BYTES_MAX - curtail_types::Key::BYTES_MAX;

/// For how long a client repeats a write that is not answered, in nanoseconds; back ends remember
/// what they answered for longer.
pub const WRITE_RETRY_NS: u64 = 2_000_000_000;

const _: () = assert!(HEADER_BYTES.is_multiple_of(8));
const _: () = assert!(VALUE_BYTES_MAX >= 1024);
