//! The jobs of a slice, with data of their own: they may run later, or on another worker.

use std::{collections::VecDeque, sync::Arc};

use curtail_codec::node::{self, ItemRequest, KeyMessage, KeyMove};
use curtail_consistency::symmetric::Access;
use curtail_links::Endpoint;
use curtail_store::Image;
use curtail_types::{Cas, Failure, Message, NodeId, Outcome, RouteHash, ViewNumber};

use crate::{completion::Token, node::InForce};

/// Something for a slice.
#[derive(Debug)]
pub(super) enum Job {
    /// A request, which is in `bytes`.
    Request {
        origin: Origin,
        key: RouteHash,
        access: Access,
        /// What its session has seen of the key.
        after: Cas,
        bytes: Vec<u8>,
    },
    /// What another node says.
    Message(Said),
    /// A relayed answer shows this write of the key; it goes to its client after that is known.
    Seen(RouteHash, Cas, Box<Completed>),
    /// A key that has moved here, or that there is none.
    Install(Box<Moved>),
    /// Another view is in force.
    View(Arc<InForce>),
    /// The key, whose bytes are there, does not belong here, unless its machine knows it.
    Sweep(RouteHash, Box<[u8]>),
    /// This node is no longer a member: the slice drops its state.
    Forget,
    /// A timer of the machine may have expired.
    Tick,
    /// The key, whose bytes are there, is to become hot: nothing may run past the protocol.
    Prepare(RouteHash, Box<[u8]>),
    /// Nothing does any more.
    Promote(RouteHash),
    /// The key shall cease to be.
    Demote(RouteHash),
}

/// A message, with its key and value.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) from: NodeId,
    pub(super) route: RouteHash,
    pub(super) message: Message,
    /// The item without its value; `None` for none.
    pub(super) image: Option<Image>,
    /// The key, then the value.
    bytes: Vec<u8>,
    key_bytes: usize,
}

/// A key that has come from where it was.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Who had it.
    pub(super) from: NodeId,
    /// The view that its source had come to.
    pub(super) view: ViewNumber,
    pub(super) route: RouteHash,
    pub(super) ts: Cas,
    /// The item without its value; `None` for none.
    pub(super) image: Option<Image>,
    /// The key, then the value.
    bytes: Vec<u8>,
    key_bytes: usize,
}

/// Who waits for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The worker that has it.
    pub(super) worker: usize,
    pub(super) asker: Asker,
}

/// Whom a worker answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asker {
    /// A client: the place in its replies that waits.
    Client(Token),
    /// Another node: which of its requests.
    Peer {
        at: Endpoint,
        delegated: u64,
        number: u32,
    },
}

/// A request that is done, on its way to the worker that has the asker.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(super) origin: Origin,
    pub(super) end: End,
    /// What was asked.
    pub(super) request: Vec<u8>,
    /// What it shows of a value.
    pub(super) value: Vec<u8>,
    /// The write of the key that it shows; 0 for none.
    pub(super) ts: Cas,
}

/// How a request ended here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// It was executed here. A `flush_all` has no outcome.
    Done(Option<Outcome>),
    /// Another node has said how; its lease held.
    Answered(Option<Outcome>),
    /// It is for another node, or for another time; it had no effect.
    Elsewhere,
    /// It has no outcome, or none that may be told.
    Failed(Failure),
}

/// Memory that requests and values are kept in, used again.
#[derive(Debug, Default)]
pub(super) struct Spare(VecDeque<Vec<u8>>);

/// Pieces of memory that are kept.
const SPARE_MAX: usize = 256;

/// A larger piece is given back.
const SPARE_BYTES_MAX: usize = 8 << 10;

impl Moved {
    pub(super) fn new(from: NodeId, view: ViewNumber, moved: &KeyMove<'_>) -> Self {
        let key = moved.key.bytes();
        let mut bytes = key.to_vec();
        let image = moved.image.map(|image| {
            bytes.extend_from_slice(image.value);
            image_of(moved.ts, &image)
        });
        Self {
            from,
            view,
            route: moved.route,
            ts: moved.ts,
            image,
            key_bytes: key.len(),
            bytes,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_bytes).unwrap_or_default()
    }

    pub(super) fn value(&self) -> &[u8] {
        self.bytes.get(self.key_bytes..).unwrap_or_default()
    }
}

/// An item that travelled, without its value.
fn image_of(cas: Cas, image: &node::Image<'_>) -> Image {
    Image {
        cas,
        flags: image.client_flags,
        expiry: image.expiry,
        stale: image.stale,
        won: image.won,
    }
}

impl Moved {
    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }
}

impl End {
    /// How what was executed here ended.
    pub(super) fn of(ended: Result<Outcome, Failure>) -> Self {
        match ended {
            Ok(outcome) => Self::Done(Some(outcome)),
            Err(failure) => Self::Failed(failure),
        }
    }
}

impl Completed {
    /// A request that ended without an outcome, or that had no effect.
    pub(super) fn without_value(origin: Origin, request: Vec<u8>, end: End) -> Self {
        Self {
            origin,
            end,
            request,
            value: Vec::new(),
            ts: Cas(0),
        }
    }

    pub(super) fn failed(origin: Origin, request: Vec<u8>, failure: Failure) -> Self {
        Self::without_value(origin, request, End::Failed(failure))
    }

    /// What the client is told that asked for it, with the request if that is about an item.
    pub(crate) fn of_client(&self) -> Option<(Token, Option<ItemRequest<'_>>, Told<'_>)> {
        let Asker::Client(token) = self.origin.asker else {
            return None;
        };
        let request = ItemRequest::decode(&self.request);
        let told = match self.end {
            End::Done(outcome) | End::Answered(outcome) => {
                Ok(outcome.map(|end| (end, &*self.value)))
            }
            End::Failed(failure) => Err(failure),
            // A client's request that is for another node is sent there.
            End::Elsewhere => Err(Failure::Unreachable),
        };
        Some((token, request, told))
    }
}

/// What a client is told: the outcome, if there is one, and what it shows of a value.
pub(crate) type Told<'a> = Result<Option<(Outcome, &'a [u8])>, Failure>;

impl Said {
    pub(super) fn new(from: NodeId, said: &KeyMessage<'_>, mut bytes: Vec<u8>) -> Self {
        let key = said.key.bytes();
        bytes.clear();
        bytes.extend_from_slice(key);
        let image = said.image.map(|image| {
            bytes.extend_from_slice(image.value);
            image_of(said.message.ts, &image)
        });
        Self {
            from,
            route: said.route,
            message: said.message,
            image,
            key_bytes: key.len(),
            bytes,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_bytes).unwrap_or_default()
    }

    pub(super) fn value(&self) -> &[u8] {
        self.bytes.get(self.key_bytes..).unwrap_or_default()
    }

    /// Bytes of its key and value.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Spare {
    /// An empty piece.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.0.pop_back().unwrap_or_default()
    }

    /// A copy of `bytes`.
    pub(super) fn copied(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.take();
        copy.extend_from_slice(bytes);
        copy
    }

    /// Keeps a piece for the next one who needs it.
    pub(super) fn give(&mut self, mut bytes: Vec<u8>) {
        let bytes_held = bytes.capacity();
        if self.0.len() < SPARE_MAX && bytes_held != 0 && bytes_held <= SPARE_BYTES_MAX {
            bytes.clear();
            self.0.push_back(bytes);
        }
    }
}
