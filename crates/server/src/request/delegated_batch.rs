//! Requests on their way to another worker, and their answers on the way back.
//!
//! ```text
//!  origin, one turn            owner, its next turn             origin
//!  route: not here -> gather   execute, in order; answers into  fill the places that
//!  (one batch per owner) --->  the same batch ----------------> wait for them, send
//! ```
//!
//! A delegated batch has its requests' bytes in memory of its own, because what was received is
//! overwritten in the next turn. It is sealed: whoever opens it first carries it out. That is the
//! owner, unless it does not get to run for so long that the origin takes the delegated batch back;
//! so nobody waits for a worker that is off its processor.
//!
//! Invariant: a connection has requests in the delegated batches of one turn at most, and all its
//! requests to one key are in one delegated batch, in order.

use curtail_codec::memcached::{Form, Request, WireKey, encode::Refusal};
use curtail_dispatch::Ticket;
use curtail_store::Hint;
use curtail_types::{KeyHash, Now, Operation};

use crate::{
    completion::Token,
    memcached::event_log,
    request::{owned_form::OwnedForm, reply_buffer::Replies},
    sync::{Mutex, lock},
    turn::{
        compaction::{self, Kind, Run, is_same, room_for},
        delegate,
        execute::{self, Item, ROOM_BYTES},
    },
    worker::context::WorkerContext,
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
    bytes: Vec<u8>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct DelegatedRequest {
    /// The origin's slot of the connection, and which connection that is.
    pub(crate) slot: usize,
    pub(crate) serial: u64,
    /// The number of the connection, for those who look on.
    pub(crate) connection: i32,
    hash: KeyHash,
    hint: Hint,
    /// Where its answer belongs, and the error that it is, if it is one.
    pub(crate) place: u32,
    pub(crate) refused: Option<Refusal>,
    operation: Operation,
    form: OwnedForm,
    key: Span,
    value: Span,
    /// The claim to its partition, given back when it is done.
    ticket: Option<Ticket>,
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
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        Span { start, end }
    }
}

impl DelegatedRequest {
    fn restore<'a>(&'a self, bytes: &'a [u8]) -> Option<(WireKey<'a>, &'a [u8], Form<'a>)> {
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

/// Neighbours in a delegated batch.
struct DelegatedRun<'r> {
    /// The number of the first.
    first: usize,
    items: &'r [DelegatedRequest],
    bytes: &'r [u8],
}

/// Carries out all requests of a delegated batch and gives their claims back.
pub(crate) fn run_delegated(cx: &mut WorkerContext, delegated: &mut DelegatedBatch) {
    let DelegatedBatch {
        items,
        replies,
        bytes,
        ..
    } = delegated;
    items
        .iter()
        .for_each(|item| cx.store_cx.store.prefetch(item.hash));
    for item in items.iter_mut() {
        item.hint = cx.store_cx.store.prefetch_item(item.hash);
    }
    let mut first = 0;
    while first < items.len() {
        let run = DelegatedRun::starting_at(first, items, bytes, cx);
        while replies.remaining() < room_for(run.length()) {
            replies.grow();
        }
        let length = run.length();
        if length == 1 || !compaction::fold(cx, replies, &run) {
            for number in first..first + length {
                let refused = run_delegated_alone(cx, replies, items, bytes, number);
                if let (Some(_), Some(item)) = (refused, items.get_mut(number)) {
                    item.refused = refused;
                }
            }
        }
        let next = first + length;
        for item in items.get_mut(first..next).unwrap_or_default() {
            if let Some(ticket) = item.ticket.take() {
                delegate::release(cx, ticket);
            }
        }
        first = next;
    }
}

/// Carries out one request of a delegated batch by itself.
fn run_delegated_alone(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    items: &[DelegatedRequest],
    bytes: &[u8],
    number: usize,
) -> Option<Refusal> {
    if replies.remaining() < ROOM_BYTES {
        replies.grow();
    }
    let request = items.get(number)?;
    let (key, value, form) = request.restore(bytes)?;
    let operation = &request.operation;
    if cx.event_log.on {
        event_log::log_request(cx, request.connection, &key, operation, value.len());
        if cx.shared.cluster.is_none() {
            event_log::log_fetch(cx, &key, request.hash);
        }
    }
    let item = Item {
        slot: number,
        key: &key,
        hash: request.hash,
        form: &form,
        hint: request.hint,
    };
    execute::run_item_apart(cx, replies, &item, operation, value)
}

impl<'r> DelegatedRun<'r> {
    fn starting_at(
        first: usize,
        items: &'r [DelegatedRequest],
        bytes: &'r [u8],
        cx: &WorkerContext,
    ) -> Self {
        let rest = items.get(first..).unwrap_or_default();
        let length = match cx.shared.config.compaction {
            true => run_length(rest, bytes, cx.store_cx.now),
            false => 1,
        };
        Self {
            first,
            items: rest.get(..length).unwrap_or_default(),
            bytes,
        }
    }
}

impl Run for DelegatedRun<'_> {
    fn length(&self) -> usize {
        self.items.len()
    }

    fn at<T>(
        &self,
        number: usize,
        look: impl FnOnce(&Item<'_, '_>, &Operation, &[u8]) -> T,
    ) -> Option<T> {
        let kept = self.items.get(number)?;
        let (key, value, form) = kept.restore(self.bytes)?;
        let item = Item {
            slot: self.first + number,
            key: &key,
            hash: kept.hash,
            form: &form,
            hint: kept.hint,
        };
        Some(look(&item, &kept.operation, value))
    }

    fn operation(&self, number: usize) -> Option<&Operation> {
        Some(&self.items.get(number)?.operation)
    }

    fn connection(&self, number: usize) -> i32 {
        self.items.get(number).map_or(0, |item| item.connection)
    }
}

/// How many requests of a delegated batch make a run, from the first on, and at least that one.
fn run_length(items: &[DelegatedRequest], bytes: &[u8], now: Now) -> usize {
    let [first, second, ..] = items else {
        return 1;
    };
    if first.hash != second.hash {
        return 1;
    }
    let Some((key, kind)) = member(first, bytes, now) else {
        return 1;
    };
    let belongs = |item: &&DelegatedRequest| {
        let found = member(item, bytes, now);
        found.is_some_and(|(other, other_kind)| other_kind == kind && is_same(&key, &other))
    };
    items.iter().take_while(belongs).count()
}

/// The key of a request that may be one of a run, and how.
fn member<'a>(
    item: &'a DelegatedRequest,
    bytes: &'a [u8],
    now: Now,
) -> Option<(WireKey<'a>, Kind)> {
    let (key, value, form) = item.restore(bytes)?;
    let kind = Kind::of(&item.operation, &form, value.len(), now)?;
    Some((key, kind))
}
