//! curtail's own datagram protocol: one request a datagram, one answer at most, each with a header
//! of 64 bytes; `docs/reference/protocol.md` is the text for people who write a client.
//!
//! It exists because an XDP program must be able to admit a write without knowing text:
//! every field lies at a fixed place in eight little-endian words, and a table of 256 bytes
//! ([`CLASS_TABLE`]) says which requests may be acknowledged before they are executed (Juneberry,
//! NSDI 2025; JB-2). The same words travel over TCP for values that fit into no datagram.
//!
//! ```text
//!  byte   0        1        2        3        4        5        6        7
//!     0 | magic "CN"      | version| opcode | flags           | slot   |key_byte|  word 0
//!     8 | checksum: XXH64 of bytes 16.., seeded with word 0                     |
//!    16 | session index                     | session generation                |
//!    24 | session token                                                         |
//!    32 | sequence                                                              |
//!    40 | stamp, echoed                     | exptime                           |
//!    48 | value_bytes                       | item_flags                        |
//!    56 | argument: delta, version to compare, cookie's nonce, queue            |
//!    64 | key, then value                                                       |
//! ```
//!
//! Invariants: a datagram of fewer than 64 bytes is never answered, and whatever a stranger can
//! cause to be sent has 64 bytes, so nobody can be made to send more than it was sent. What is
//! decoded is canonical: encoding it again gives the same bytes. Nothing here allocates or panics.

mod checksum;
mod cookie;
mod early_acknowledgement_table;
mod opcode;
mod reply;
mod request;
mod words;

pub use checksum::Checksum;
pub use cookie::{COOKIE_WINDOW_SECONDS, Cookies, Peer};
pub use early_acknowledgement_table::{
    ACTION_BITS_MASK, CLASS_MASK, CLASS_TABLE, Class, QUEUED, RequestClass, class_index,
};
pub use opcode::{Flags, Opcode, SEQUENCE_MAX, SLOTS};
pub use reply::{
    Ack, ErrorCode, Grant, Nack, NackReason, Place, Promise, Reply, ReplyError, Status,
};
pub use request::{Echo, EncodeError, Head, Malformed, Request, Session};

/// The first two bytes of everything, "CN" when read in order.
pub const MAGIC: u16 = u16::from_le_bytes(*b"CN");

/// The version that is spoken here.
pub const VERSION: u8 = 1;

/// Length of the fixed header, of requests and of replies, in bytes.
pub const HEADER_BYTES: usize = 64;

/// Longest datagram, in bytes: what one slot of the Ordered Queue holds beside its own header. The
/// path's MTU is usually the tighter limit; a grant says which holds.
pub const DATAGRAM_BYTES_MAX: usize = 1984;

/// Longest value in a frame over TCP, in bytes.
pub const VALUE_BYTES_MAX: u32 = 1 << 30;

const _: () = assert!(HEADER_BYTES == 8 * 8);
const _: () = assert!(DATAGRAM_BYTES_MAX > HEADER_BYTES + curtail_types::Key::BYTES_MAX);
