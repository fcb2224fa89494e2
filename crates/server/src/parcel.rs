//! Requests on their way to another worker, and their answers on the way back.
//!
//! ```text
//!  origin, one turn                    owner, its next turn              origin
//!  decide: not here -> gather  ----->  carry out, in order  ----->  put the answers where they
//!  (one parcel per owner and turn)     answers into the parcel      are awaited, send
//! ```
//!
//! A parcel has its requests' bytes in memory of its own, because what was received is overwritten
//! in the next turn. It is sealed: whoever opens it first carries it out. That is the owner, unless
//! it does not get to run for so long that the origin takes the parcel back; so nobody waits for a
//! worker that is off its processor.
//!
//! Invariant: a connection has requests in the parcels of one turn at most, and all its requests to
//! one key are in one parcel, in order.

use curtail_codec::memcached::{Form, Request, WireKey};
use curtail_dispatch::Ticket;
use curtail_store::{COPY_BYTES_MAX, Hint};
use curtail_types::{KeyHash, Operation};

use crate::{
    compaction::{Superseded, is_same, overwrites, shows_version},
    execute::{Item, ROOM_BYTES},
    form::{KeptForm, restore_key},
    kit::Kit,
    replies::Replies,
    sync::{Mutex, lock},
};

/// Requests for one owner.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// Who gathered it and gets the answers.
    pub(crate) origin: usize,
    /// Who carries it out.
    pub(crate) owner: u16,
    /// Counts the parcels of its origin.
    pub(crate) number: u64,
    pub(crate) items: Vec<ParcelItem>,
    /// The answers, in order of the items; a piece's slot is the number of its item.
    pub(crate) replies: Replies,
    /// Keys, opaque tokens and values.
    bytes: Vec<u8>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct ParcelItem {
    /// The origin's slot of the connection, and which connection that is.
    pub(crate) slot: usize,
    pub(crate) serial: u64,
    hash: KeyHash,
    hint: Hint,
    operation: Operation,
    form: KeptForm,
    base64: bool,
    key: Span,
    opaque: Span,
    value: Span,
    /// The claim to its partition, given back when it is done.
    ticket: Option<Ticket>,
}

/// A parcel that one of two may open.
#[derive(Debug)]
pub(crate) struct Sealed(Mutex<Option<Box<Parcel>>>);

/// A piece of the parcel's bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
}

/// Bytes of answers that a parcel has room for at first.
const REPLY_BYTES: usize = 16 << 10;

/// Pieces of answers to expect.
const PIECES_EXPECTED: usize = 64;

impl Parcel {
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
        (slot, serial): (usize, u64),
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
        let (form, opaque) = KeptForm::of(form);
        let item = ParcelItem {
            slot,
            serial,
            hash,
            hint: Hint::default(),
            operation: *operation,
            form,
            base64: key.is_base64(),
            key: self.keep(key.text()),
            opaque: self.keep(opaque),
            value: self.keep(value),
            ticket,
        };
        self.items.push(item);
    }

    /// What one of its items is about: key, operation, and bytes of the value that it brought.
    pub(crate) fn about<'p>(
        &'p self,
        item: &'p ParcelItem,
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

impl ParcelItem {
    fn restore<'a>(&self, bytes: &'a [u8]) -> Option<(WireKey<'a>, &'a [u8], Form<'a>)> {
        let of = |span: Span| bytes.get(span.start..span.end);
        let key = restore_key(of(self.key)?, self.base64)?;
        Some((key, of(self.value)?, self.form.restore(of(self.opaque)?)))
    }
}

impl Sealed {
    pub(crate) fn new(parcel: Box<Parcel>) -> Self {
        Self(Mutex::new(Some(parcel)))
    }

    /// The parcel, if nobody has opened it yet.
    pub(crate) fn open(&self) -> Option<Box<Parcel>> {
        lock(&self.0).take()
    }
}

impl Kit {
    /// Carries out all requests of a parcel and gives their claims back.
    pub(crate) fn run_parcel(&mut self, parcel: &mut Parcel) {
        let Parcel {
            items,
            replies,
            bytes,
            ..
        } = parcel;
        items.iter().for_each(|item| self.store.prefetch(item.hash));
        for item in items.iter_mut() {
            item.hint = self.store.prefetch_item(item.hash);
        }
        let superseded = superseded(items, bytes, self.shared.config.evict);
        // Its requests were shown to those who look on where they arrived.
        let noticed = std::mem::take(&mut self.notice.on);
        self.in_parcel = true;
        let large_here = self.large_here.take();
        for (number, kept) in items.iter_mut().enumerate() {
            if replies.remaining() < ROOM_BYTES {
                replies.grow();
            }
            if let Some((key, value, form)) = kept.restore(bytes) {
                let item = Item {
                    slot: number,
                    key: &key,
                    hash: kept.hash,
                    form: &form,
                    hint: kept.hint,
                };
                match superseded.contains(number) {
                    true => self.answer_superseded(replies, &item, value.len()),
                    false => self.run_item_apart(replies, &item, &kept.operation, value),
                }
            }
            if let Some(ticket) = kept.ticket.take() {
                self.release(ticket);
            }
        }
        self.notice.on = noticed;
        self.in_parcel = false;
        // Whoever comes next has waited for it, whichever connection it has.
        self.large_here = large_here.or(self.large_here.map(|_| usize::MAX));
    }
}

/// The writes of a parcel that the next one to their key supersedes: a partition's holder gets what
/// several connections write, so there may be many.
fn superseded(items: &[ParcelItem], bytes: &[u8], evicts: bool) -> Superseded {
    if items.len() < 2 || !evicts {
        return Superseded::default();
    }
    let hash = |number: usize| items.get(number).map_or(KeyHash(0), |item| item.hash);
    let writes =
        |item: &ParcelItem| matches!(&item.operation, Operation::Set(set) if overwrites(set));
    let folds = |first: usize, second: usize| {
        let (Some(first), Some(second)) = (items.get(first), items.get(second)) else {
            return false;
        };
        let (Some((key, value, form)), Some((next_key, ..))) =
            (first.restore(bytes), second.restore(bytes))
        else {
            return false;
        };
        let both_write = writes(first) && writes(second);
        both_write
            && is_same(&key, &next_key)
            && value.len() <= COPY_BYTES_MAX
            && !shows_version(&form)
    };
    Superseded::find(items.len(), hash, folds)
}
