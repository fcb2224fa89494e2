//! One client: its socket, its incomplete input, and the replies that it has not taken.
//!
//! ```text
//!            readable                  Incomplete or at its limit
//!   idle  ------------->  its turn  ------------------------------>  holds input
//!    ^                      |    ^                                        |
//!    |   all sent           |    +--------- readable, or next turn -------+
//!    +----------------------+
//!                           |  kernel full
//!                           +------------> queued replies: nothing is read until they are gone
//! ```
//!
//! Invariants: a connection belongs to one worker at a time; a large worker that has it gives it
//! back when the large request is done. While `output` is not empty, nothing is received
//! or carried out for it. An idle connection holds no buffer.

pub(crate) mod buffer_pool;
pub(crate) mod close_reason;
pub(crate) mod long_running;
pub(crate) mod move_command;
pub(crate) mod output;
pub(crate) mod registry;
pub(crate) mod slab;

use std::sync::Arc;

use curtail_codec::memcached::{BodyEnd, Decoder, Form, SetHeader, WireKey};
use curtail_runtime::{Readiness, Stream};
use curtail_store::Reservation;
use curtail_types::Set;

use crate::{
    connection::{
        buffer_pool::{Buffer, BufferPool},
        close_reason::CloseReason,
        long_running::LongRunning,
        output::OutputQueue,
        registry::{ConnectionState, Visible},
    },
    metrics::{latency::Pending, slow_log::Label},
    native::Behind,
    owned_reply_form::OwnedForm,
    size_aware::plan_snapshot::PlanSnapshot,
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
    pub(crate) long_running: Option<Box<LongRunning>>,
    /// Replies that the kernel has not taken.
    pub(crate) output: OutputQueue,
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
    /// What its next request waits for, if it was put off for that.
    pub(crate) behind: Option<Behind>,
    /// The rest of its requests in this turn were put off.
    pub(crate) put_off: bool,
    /// It waits for its turn.
    pub(crate) queued: bool,
    /// How many requests its worker had carried out when it began to.
    pub(crate) queued_at: u64,
    /// Requests decoded, and how many those were at the last look.
    pub(crate) requests: u64,
    pub(crate) requests_marked: u64,
    /// Which connection of its worker this is: slots are used again, serials are not.
    pub(crate) serial: u64,
    /// The large worker that it is to be handed to at the end of the turn.
    pub(crate) departs: Option<Departure>,
    /// Where it belongs while a large worker has it.
    pub(crate) loan: Option<Loan>,
    /// The request of a measured turn whose reply has not left.
    pub(crate) pending: Option<Pending>,
    /// What it was handed to a large worker for, while the slow log is on.
    pub(crate) slow: Option<Box<Label>>,
    /// What `stats conns` shows.
    pub(crate) visible: Arc<Visible>,
}

/// A connection is to be handed to a large worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Departure {
    /// Which of the large workers.
    pub(crate) number: u16,
    /// There is a large write to be decoded there; else there are replies to be sent.
    pub(crate) receives: bool,
}

/// A connection that a large worker has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Loan {
    /// The worker it belongs to.
    pub(crate) home: usize,
    /// Its slot there.
    pub(crate) slot: usize,
    /// The large write that it came with is still to be decoded.
    pub(crate) decodes: bool,
    /// It came with a large write.
    pub(crate) receives: bool,
    /// Who hears of its socket.
    pub(crate) watched_by: WatchedBy,
    /// When it came, and when the stage that it is in began.
    pub(crate) begun_ns: u64,
    pub(crate) since_ns: u64,
}

/// Whose poller tells of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WatchedBy {
    /// Its own worker's.
    Home,
    /// The large worker's that has it.
    Host,
    /// Nobody's.
    Nobody,
}

/// A large value that is received straight into the store.
#[derive(Debug)]
pub(crate) struct Body {
    /// Where it goes.
    pub(crate) reservation: Reservation,
    /// The two bytes behind it.
    pub(crate) end: BodyEnd,
    /// It is received, and waits for its connection's own worker: another node may have to store
    /// it, and a large worker knows none.
    pub(crate) is_whole: bool,
    header: Header,
}

/// How to answer the write, copied from a request whose bytes are gone by then.
#[derive(Debug)]
struct Header {
    /// The key's text.
    key: Buffer,
    set: Set,
    value_bytes: u32,
    form: OwnedForm,
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        authenticate: bool,
        visible: Arc<Visible>,
        serial: u64,
    ) -> Self {
        Self {
            stream,
            decoder: Decoder::new(authenticate),
            held: None,
            held_whole: false,
            body: None,
            long_running: None,
            output: OutputQueue::default(),
            readable: true,
            writable: true,
            ending: false,
            closing: false,
            close_reason: CloseReason::default(),
            behind: None,
            put_off: false,
            queued: false,
            queued_at: 0,
            requests: 0,
            requests_marked: 0,
            serial,
            departs: None,
            loan: None,
            pending: None,
            slow: None,
            visible,
        }
    }

    /// Whether there is something to do for it now.
    #[inline]
    pub(crate) fn wants_turn(&self) -> bool {
        if self.output.is_empty() {
            self.closing
                || match &self.long_running {
                    None => self.readable || self.held_whole || self.has_whole_body(),
                    Some(long_running) => long_running.wants_turn(self.readable),
                }
        } else {
            self.writable && !self.output.is_awaiting()
        }
    }

    /// Whether a large write has come back from a large worker to be executed here.
    fn has_whole_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.is_whole)
    }

    /// Notes what its socket reports.
    #[inline]
    pub(crate) fn note(&mut self, readiness: Readiness) {
        self.readable |= readiness.read;
        self.writable |= readiness.write;
        self.ending |= readiness.closed;
    }

    /// Whether it is away from its worker and `by` hears of its socket.
    pub(crate) fn is_watched_by(&self, by: WatchedBy) -> bool {
        self.loan.is_some_and(|loan| loan.watched_by == by)
    }

    /// Whether nothing of it is under way anywhere.
    pub(crate) fn rests(&self) -> bool {
        let stands = self.queued || self.departs.is_some() || self.loan.is_some();
        let ends = self.closing || self.ending;
        let holds = self.held.is_some() || self.body.is_some() || self.long_running.is_some();
        !(stands || ends || holds) && self.output.is_empty()
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
        held + self.output.held_bytes()
    }

    /// Has it handed to the large worker of a value of so many bytes, at the end of the turn.
    pub(crate) fn departs_with(&mut self, snapshot: &PlanSnapshot, value_bytes: usize) {
        let bytes = u32::try_from(value_bytes).unwrap_or(u32::MAX);
        // Any number that differs from connection to connection divides a size that two share.
        let hash = self.serial.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(number) = snapshot.large_number(bytes, hash) {
            self.departs.get_or_insert(Departure {
                number,
                receives: false,
            });
        }
    }

    /// The large worker that it is to be handed to now: not while others still owe it answers.
    pub(crate) fn departure(&self) -> Option<Departure> {
        self.departs.filter(|_| !self.output.is_awaiting())
    }

    /// How many buffers it holds, and their bytes, whatever they are for.
    pub(crate) fn buffers(&self) -> (usize, usize) {
        let of_body = self.body.as_ref().map(|body| &body.header.key);
        let own = self.held.iter().chain(of_body);
        let (count, bytes) = self.output.buffers();
        own.fold((count, bytes), |(count, bytes), buffer| {
            (count + 1, bytes + buffer.capacity())
        })
    }

    /// Shows in `stats conns` what it waits for.
    pub(crate) fn show_waiting(&self) {
        let receives = self.body.is_some()
            || self
                .held
                .as_ref()
                .is_some_and(|held| held.content().contains(&b'\n'));
        self.visible.show(match (self.output.is_empty(), receives) {
            (false, _) => ConnectionState::Send,
            (true, true) => ConnectionState::Receive,
            (true, false) => ConnectionState::Read,
        });
    }

    /// Gives all buffers back; the socket closes when the connection is dropped.
    pub(crate) fn dissolve(mut self, pool: &mut BufferPool) {
        self.output.discard(pool);
        if let Some(held) = self.held.take() {
            pool.release(held);
        }
        if let Some(body) = self.body.take() {
            pool.release(body.header.key);
        }
    }
}

impl Body {
    /// A body for a large write into `reservation`.
    pub(crate) fn new(
        pool: &mut BufferPool,
        header: &SetHeader<'_>,
        reservation: Reservation,
    ) -> Box<Self> {
        Box::new(Self {
            reservation,
            end: BodyEnd::default(),
            is_whole: false,
            header: Header {
                key: pool.hold(header.key.text()),
                set: header.set,
                value_bytes: header.value_bytes,
                form: OwnedForm::new(&header.key, &header.form),
            },
        })
    }

    /// Bytes of the value.
    pub(crate) fn value_bytes(&self) -> usize {
        self.header.value_bytes as usize
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
        pool.release(header.key);
        result
    }
}

impl Header {
    fn restore(&self) -> Option<(WireKey<'_>, Form<'_>)> {
        Some((self.form.key(self.key.content())?, self.form.form()))
    }
}
