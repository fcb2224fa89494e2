//! The protocol between nodes: how two workers greet each other, and the frames they exchange
//! afterwards; `docs/reference/protocol-nodes.md` draws every byte.
//!
//! It is a stream protocol over TCP. A link proves itself first (a [`Greeting`] from either side,
//! then a [`HandshakeProof`] from either side), and then carries frames: a header of 24 bytes, and
//! a body. Frames are numbered and acknowledged, because a link that breaks is made again and goes
//! on where it stopped. A frame holds many items, because what goes to one node in one turn goes in
//! one piece (coalescing; ccKVS, Gavrielatos et al., EuroSys 2018, section 6.2; CC-41).
//!
//! ```text
//!  byte   0        1        2        3        4        5        6        7
//!     0 | length of the frame               | kind   | class  | zero            |
//!     8 | sequence                                                              |
//!    16 | acknowledged                                                          |
//!    24 | body                                                                  |
//! ```
//!
//! Invariants: a body is looked through before it is handed out, so its items can be walked without
//! asking; what is decoded is canonical, encoding it again gives the same bytes. Nothing here
//! allocates or panics, and values are borrowed from the bytes they came in.

mod frame;
mod frame_builder;
mod frame_items;
mod handshake;
mod item_answer;
mod item_request;
mod replica_part;
mod words;

pub use frame::{Body, Class, DecodedFrame, Frame, FrameHeader, FrameKind, MalformedFrame};
pub use frame_builder::{FrameShape, LinkControl, Part};
pub use frame_items::{
    AnswerStatus, BatchHead, BodyItem, BodyItems, Image, NodeAnswer, NodeRequest,
};
pub use handshake::{
    Greeting, HandshakeKind, HandshakeProof, HandshakeRefusal, Nonce, RefusalReason, cluster_hash,
};
pub use item_answer::ItemAnswer;
pub use item_request::{ItemRequest, Shows};
pub use replica_part::{ReplicaItem, ReplicaPart};

/// The first four bytes of every handshake message, "CNOD" when read in order.
pub const MAGIC: u32 = u32::from_le_bytes(*b"CNOD");

/// The oldest version that is spoken here.
pub const VERSION_MIN: u8 = 3;

/// The newest version that is spoken here.
pub const VERSION_MAX: u8 = 4;

/// From this version on a node says how many nodes have what it answers.
pub const VERSION_COPIES: u8 = 4;

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 24;

/// Length of what stands before the items of most kinds: the number of the batch and the view.
pub const BATCH_HEAD_BYTES: usize = 16;

const _: () = assert!(VERSION_MIN <= VERSION_COPIES && VERSION_COPIES <= VERSION_MAX);
