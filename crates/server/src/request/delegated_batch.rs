//! A delegated batch: requests on their way to another worker, and their replies on the way back.
//!
//! ```text
//!  origin, one turn            owner, its next turn             origin
//!  route: not here -> gather   execute, in order; answers into  fill the places that
//!  (one batch per owner) --->  the same batch ----------------> wait for them, send
//! ```
//!
//! A delegated batch has its requests' bytes in memory of its own, because what was received is
//! overwritten in the next turn. Only one worker can open it, and executes it: the owner, unless
//! the owner does not run for so long that the origin reclaims the batch. So no client waits for a
//! worker that is off its processor.
//!
//! Invariant: a connection has requests in the delegated batches of one turn at most, and all its
//! requests to one key are in one delegated batch, in order.

use curtail_codec::memcached::{Form, Request, WireKey, encode::Refusal};
use curtail_dispatch::Ticket;
use curtail_store::Hint;
use curtail_types::{KeyHash, Operation};

use crate::{
    completion::Token,
    owned_reply_form::OwnedForm,
    request::reply_buffer::Replies,
    sync::{Mutex, lock},
};

/// Requests for one owner.
#[derive(Debug)]
pub(crate) struct DelegatedBatch {
    /// Who gathered it and gets the answers.
    pub(crate) origin: usize,
    /// Who carries it out.
    pub(crate) owner: u16,
    /// Counts the delegated batches of its origin.
    pub(crate) number: u64,
    pub(crate) items: Vec<DelegatedRequest>,
    /// The answers, in order of the items; a piece's slot is the number of its item.
    pub(crate) replies: Replies,
    /// Keys, opaque tokens and values.
    pub(crate) bytes: Vec<u8>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct DelegatedRequest {
    /// The origin's slot of the connection, and which connection that is.
    pub(crate) slot: usize,
    pub(crate) serial: u64,
    /// The number of the connection, for watching clients.
    pub(crate) connection: i32,
    pub(crate) hash: KeyHash,
    pub(crate) hint: Hint,
    /// Where its answer belongs, and the error that it is, if it is one.
    pub(crate) place: u32,
    pub(crate) refused: Option<Refusal>,
    pub(crate) operation: Operation,
    form: OwnedForm,
    key: Span,
    value: Span,
    /// The claim to its partition, given back when it is done.
    pub(crate) ticket: Option<Ticket>,
}

/// A delegated batch that one of two may open.
#[derive(Debug)]
pub(crate) struct Sealed(Mutex<Option<Box<DelegatedBatch>>>);

/// A piece of the delegated batch's bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
}

/// Bytes of answers that a delegated batch has room for at first.
const REPLY_BYTES: usize = 16 << 10;

/// Pieces of answers to expect.
const PIECES_EXPECTED: usize = 64;

impl DelegatedBatch {
    /// An empty one.
    pub(crate) fn new(origin: usize) -> Box<Self> {
        Box::new(Self {
            origin,
            owner: 0,
            number: 0,
            items: Vec::new(),
            replies: Replies::with_room(REPLY_BYTES, PIECES_EXPECTED),
            bytes: Vec::new(),
        })
    }

    /// Empty again, with its memory.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.bytes.clear();
        self.replies.clear();
        self.replies.begin_turn();
    }

    /// Adds a request; only those about one item can be added.
    pub(crate) fn push(
        &mut self,
        Token {
            slot,
            serial,
            place,
        }: Token,
        connection: i32,
        hash: KeyHash,
        request: &Request<'_>,
        ticket: Option<Ticket>,
    ) {
        let Request::Item {
            key,
            operation,
            value,
            form,
        } = request
        else {
            return;
        };
        let item = DelegatedRequest {
            slot,
            serial,
            connection,
            hash,
            hint: Hint::default(),
            place,
            refused: None,
            operation: *operation,
            form: OwnedForm::new(key, form),
            key: self.keep(key.text()),
            value: self.keep(value),
            ticket,
        };
        self.items.push(item);
    }

    /// What one of its items is about: key, operation, and bytes of the value that it brought.
    pub(crate) fn about<'p>(
        &'p self,
        item: &'p DelegatedRequest,
    ) -> Option<(WireKey<'p>, &'p Operation, usize)> {
        let (key, value, _) = item.restore(&self.bytes)?;
        Some((key, &item.operation, value.len()))
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len();
        if !bytes.is_empty() {
            self.bytes.extend_from_slice(bytes);
        }
        let end = self.bytes.len();
        Span { start, end }
    }
}

impl DelegatedRequest {
    pub(crate) fn restore<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> Option<(WireKey<'a>, &'a [u8], Form<'a>)> {
        let of = |span: Span| bytes.get(span.start..span.end);
        Some((
            self.form.key(of(self.key)?)?,
            of(self.value)?,
            self.form.form(),
        ))
    }
}

impl Sealed {
    pub(crate) fn new(delegated: Box<DelegatedBatch>) -> Self {
        Self(Mutex::new(Some(delegated)))
    }

    /// The delegated batch, if nobody has opened it yet.
    pub(crate) fn open(&self) -> Option<Box<DelegatedBatch>> {
        lock(&self.0).take()
    }
}
