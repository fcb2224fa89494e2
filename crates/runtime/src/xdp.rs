//! The XDP program: loaded, attached, pinned, and its memory as atomic words.
//!
//! Juneberry (NSDI 2025) lets a network card order and acknowledge writes; here a program in the
//! kernel's receive path does (XDP), which outlives the server process. The program is C, in
//! `bpf/`; what its words mean is `ordered_queue`'s to say. This module brings it into the kernel
//! and gives the server the memory that both share.
//!
//! ```text
//!  Xdp (attached) ── lock, pins, link        one server for an interface
//!   └── Nic (program) ── settings, counts    what it is told, what it tells
//!        └── SharedWords                     queues, stamps, sessions
//! ```
//!
//! `switch` is another program: the switch of a cache tier, with maps of its own.

mod attached;
mod error;
mod program;
mod settings;
mod shared_words;
mod switch;

pub use attached::{Attach, Xdp, XdpOptions};
pub use error::XdpError;
pub use program::{MapsOrigin, Nic, NicOptions, PacketFate, Ran};
pub use shared_words::SharedWords;
pub use switch::{SwitchFate, SwitchNetwork, SwitchProgram, SwitchRule};
