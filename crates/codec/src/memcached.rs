//! memcached's text and meta protocols, as memcached 1.6.18 speaks them.
//!
//! ```text
//!             input bytes                                     room in a reply buffer
//!                  |                                                    ^
//!          Decoder::decode                                        encode::{hit, miss,
//!                  v                                               set, delete, ...}
//!   Request { key, operation, value, form } ----- form, key ----------->|
//!                  |                                                    |
//!                  +------- key, operation ---> store ---- outcome -----+
//! ```
//!
//! A request carries its [`Form`]: how the client wants the answer spelt. The store never sees it,
//! the encoder sees nothing else of the request. Each command family has a file: `text` (get, set,
//! incr, ...), `meta` (mg, ms, md, ma, me, mn), `admin` (stats, flush_all, version, ...) and
//! `authenticate` (the login that `-Y` asks for); their replies are in `encode`.
//!
//! Where we differ from memcached on purpose:
//! - A key that holds control characters or a NUL is refused, as protocol.txt demands.
//! - Numbers must fit: memcached cuts client flags, lengths and times down to 32 bits in silence.
//! - A line may have [`LINE_BYTES_MAX`] bytes however it arrives; memcached's limit depends on how
//!   the line was cut into packets. `get` and `gets` are unlimited, as there, and beyond that
//!   length are answered key by key while they arrive.
//! - A line that is too long is told so before the connection closes.

pub mod encode;

mod admin;
mod authenticate;
mod base64;
mod body_end;
mod decode;
mod decoder_of_line;
mod fast_path;
mod flags;
mod line;
mod meta;
mod multi_key_get;
mod number;
mod reply_sink;
mod request;
mod text;

pub use admin::{Admin, Words};
pub use body_end::{BodyEnd, BodyEndState};
pub use decode::Decoder;
pub use reply_sink::Sink;
pub use request::{
    Decoded, Form, KeyScratch, LINE_BYTES_MAX, Limits, Meta, OPAQUE_BYTES_MAX, Request, Return,
    Returns, SetHeader, WireKey,
};
