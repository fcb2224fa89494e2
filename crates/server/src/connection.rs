//! One client: its socket, what it sent by halves, and what it has not taken yet.
//!
//! ```text
//!            readable                  Incomplete or at its limit
//!   idle  ------------->  its turn  ------------------------------>  holds input
//!    ^                      |    ^                                        |
//!    |   all sent           |    +--------- readable, or next turn -------+
//!    +----------------------+
//!                           |  kernel full
//!                           +------------> unsent replies: nothing is read until they are gone
//! ```
//!
//! Invariants: a connection belongs to one worker. While `unsent` is not empty, nothing is received
//! or carried out for it. An idle connection holds no buffer.

use std::sync::Arc;

use curtail_codec::memcached::{BodyEnd, Decoder, Form, Meta, Request, Returns, WireKey};
use curtail_runtime::Stream;
use curtail_store::Reservation;
use curtail_types::{Key, Set};

use crate::{
    buffers::{Buffer, BufferPool},
    errand::Errand,
    notice::CloseReason,
    registry::{ConnectionState, Visible},
    unsent::Unsent,
};

/// One client.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) decoder: Decoder,
    /// Input that was received but not decoded.
    pub(crate) held: Option<Buffer>,
    /// Whether `held` may contain a whole request, so that it need not wait for more.
    pub(crate) held_whole: bool,
    /// A large value on its way.
    pub(crate) body: Option<Box<Body>>,
    /// What it is busy with before anything else is decoded.
    pub(crate) errand: Option<Box<Errand>>,
    /// Replies that the kernel has not taken.
    pub(crate) unsent: Unsent,
    /// The kernel may have bytes for us.
    pub(crate) readable: bool,
    /// The kernel may take bytes from us.
    pub(crate) writable: bool,
    /// The peer has finished sending: receive until the end is seen.
    pub(crate) ending: bool,
    /// Close when everything is sent.
    pub(crate) closing: bool,
    /// Why, when it comes to that.
    pub(crate) close_reason: CloseReason,
    /// The rest of its requests in this turn were put off.
    pub(crate) put_off: bool,
    /// It waits for its turn.
    pub(crate) queued: bool,
    /// What `stats conns` shows.
    pub(crate) visible: Arc<Visible>,
}

/// A large value that is received straight into the store.
#[derive(Debug)]
pub(crate) struct Body {
    /// Where it goes.
    pub(crate) reservation: Reservation,
    /// The two bytes behind it.
    pub(crate) end: BodyEnd,
    header: Header,
}

/// How to answer the write, copied from a request whose bytes are gone by then.
#[derive(Debug)]
struct Header {
    /// The key's text, then the opaque token.
    bytes: Buffer,
    key_bytes: usize,
    base64: bool,
    set: Set,
    value_bytes: u32,
    spelling: Spelling,
}

#[derive(Clone, Copy, Debug)]
enum Spelling {
    Line {
        noreply: bool,
    },
    Meta {
        returns: Returns,
        value: bool,
        quiet: bool,
    },
}

impl Connection {
    pub(crate) fn new(stream: Stream, authenticate: bool, visible: Arc<Visible>) -> Self {
        Self {
            stream,
            decoder: Decoder::new(authenticate),
            held: None,
            held_whole: false,
            body: None,
            errand: None,
            unsent: Unsent::default(),
            readable: true,
            writable: true,
            ending: false,
            closing: false,
            close_reason: CloseReason::default(),
            put_off: false,
            queued: false,
            visible,
        }
    }

    /// Whether there is something to do for it now.
    #[inline]
    pub(crate) fn wants_turn(&self) -> bool {
        if self.unsent.is_empty() {
            self.closing
                || match &self.errand {
                    None => self.readable || self.held_whole,
                    Some(errand) => errand.wants_turn(self.readable),
                }
        } else {
            self.writable
        }
    }

    /// Keeps `input` for the next turn; `whole` says that it may contain a request.
    pub(crate) fn hold(&mut self, pool: &mut BufferPool, input: &[u8], whole: bool) {
        if !input.is_empty() {
            self.held = Some(pool.hold(input));
            self.held_whole = whole;
        }
    }

    /// Bytes of buffers that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let held = self.held.as_ref().map_or(0, Buffer::capacity);
        held + self.unsent.held_bytes()
    }

    /// Shows in `stats conns` what it waits for.
    pub(crate) fn show_waiting(&self) {
        let receives = self.body.is_some()
            || self
                .held
                .as_ref()
                .is_some_and(|held| held.content().contains(&b'\n'));
        self.visible.show(match (self.unsent.is_empty(), receives) {
            (false, _) => ConnectionState::Send,
            (true, true) => ConnectionState::Receive,
            (true, false) => ConnectionState::Read,
        });
    }

    /// Gives all buffers back; the socket closes when the connection is dropped.
    pub(crate) fn dissolve(mut self, pool: &mut BufferPool) {
        self.unsent.discard(pool);
        if let Some(held) = self.held.take() {
            pool.release(held);
        }
        if let Some(body) = self.body.take() {
            pool.release(body.header.bytes);
        }
    }
}

impl Body {
    /// A body for `request`, a large write, into `reservation`.
    pub(crate) fn new(
        pool: &mut BufferPool,
        request: &Request<'_>,
        reservation: Reservation,
    ) -> Option<Box<Self>> {
        let Request::SetHeader {
            key,
            set,
            value_bytes,
            form,
        } = request
        else {
            return None;
        };
        let (opaque, spelling): (&[u8], _) = match form {
            Form::Meta(meta) => (
                meta.opaque,
                Spelling::Meta {
                    returns: meta.returns,
                    value: meta.value,
                    quiet: meta.quiet,
                },
            ),
            Form::Line { noreply } => (b"", Spelling::Line { noreply: *noreply }),
            Form::Value { .. } | Form::Debug => (b"", Spelling::Line { noreply: false }),
        };
        let mut bytes = pool.hold(key.text());
        pool.append(&mut bytes, opaque);
        Some(Box::new(Self {
            reservation,
            end: BodyEnd::default(),
            header: Header {
                bytes,
                key_bytes: key.text().len(),
                base64: key.is_base64(),
                set: *set,
                value_bytes: *value_bytes,
                spelling,
            },
        }))
    }

    /// What is written, and how many bytes.
    pub(crate) fn write(&self) -> Option<(WireKey<'_>, Set, usize)> {
        let (key, _) = self.header.restore()?;
        Some((key, self.header.set, self.header.value_bytes as usize))
    }

    /// Hands the reservation and everything that the reply needs to `answer`, and gives the buffer
    /// back.
    pub(crate) fn finish<T>(
        self,
        pool: &mut BufferPool,
        answer: impl FnOnce(Reservation, WireKey<'_>, Form<'_>, bool) -> T,
    ) -> Option<T> {
        let Self {
            reservation,
            header,
            ..
        } = self;
        let result = header
            .restore()
            .map(|(key, form)| answer(reservation, key, form, header.set.compare.is_some()));
        pool.release(header.bytes);
        result
    }
}

impl Header {
    fn restore(&self) -> Option<(WireKey<'_>, Form<'_>)> {
        let (text, opaque) = self.bytes.content().split_at_checked(self.key_bytes)?;
        let text = Key::new(text).ok()?;
        let key = if self.base64 {
            WireKey::plain(text).as_base64()?
        } else {
            WireKey::plain(text)
        };
        let form = match self.spelling {
            Spelling::Line { noreply } => Form::Line { noreply },
            Spelling::Meta {
                returns,
                value,
                quiet,
            } => Form::Meta(Meta {
                returns,
                opaque,
                value,
                quiet,
            }),
        };
        Some((key, form))
    }
}
