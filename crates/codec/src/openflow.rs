//! OpenFlow 1.3, as far as a controller of a cache tier's switch needs it (Open Networking
//! Foundation, OpenFlow Switch Specification 1.3.5, section 7; SwitchKV requirement SW-84):
//! greeting, echo, features, flows and their counts, ports, barriers, errors.
//!
//! ```text
//!  byte   0        1        2        3        4        5        6        7
//!     0 | version| type   | length          | transaction                       |
//!     8 | body, big-endian                                                      |
//! ```
//!
//! Both directions of what is used are here, so that what is decoded can be held to what is
//! encoded, and a test can be the switch. What a switch may say beside that is
//! [`OpenFlowMessage::Other`]: its length is known, and it is skipped.
//!
//! Invariants: lengths within a message are checked against the message before they are used;
//! nothing allocates or panics; lists (ports, flows) are walked in the bytes that they came in.

mod bytes;
mod flow;
mod message;

pub use flow::{FlowAction, FlowCommand, FlowMatch, FlowMod, FlowSelection, FlowStat, FlowStats};
pub use message::{
    DecodedOpenFlow, OpenFlowError, OpenFlowMessage, PortChange, PortDescription, PortDescriptions,
    encode,
};

/// The version that is spoken here: 1.3.
pub const VERSION: u8 = 4;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 8;

/// Longest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

/// In a flow's table: all tables; only to delete and to ask.
pub const TABLES_ALL: u8 = 0xff;
