//! The jobs of a stage, with data of their own: they may come from another worker.

use std::{collections::VecDeque, sync::Arc};

use curtail_codec::node::{self, ItemAnswer, ItemRequest, ReplicaItem, ReplicaPart};
use curtail_consistency::{
    replica::ReplicaMessage,
    slice_view::{RowStep, SliceId, SliceView},
};
use curtail_links::Endpoint;
use curtail_store::Image;
use curtail_types::{Access, Cas, Failure, NodeId, Outcome, RouteHash};

use crate::{
    completion::{ThreadAsker, Token, Told},
    node::inbox::ForwardAnswer,
};

/// Something for the machine of a stage.
#[derive(Debug)]
pub(in crate::node) enum Job {
    /// A request, which is in `bytes`.
    Request {
        origin: Origin,
        key: RouteHash,
        access: Access,
        bytes: Vec<u8>,
    },
    /// What another node says, with the item that travels with it.
    Message(NodeId, ReplicaMessage, Option<Carried>),
    /// What another node answers to the request that waits at this place.
    Answered(u32, ForwardAnswer),
    /// Another view is in force.
    View(Arc<SliceView>),
    /// This node is no longer a member: the machine forgets everything.
    Forget,
    /// What the placement wants of a slice of this primary.
    Wanted(SliceId, RowStep),
    /// A key shall be hot, or no more.
    Heat(RouteHash, bool),
    /// Empty a slice of what is there.
    Flush(SliceId, Origin),
}

/// An item that travelled.
#[derive(Debug)]
pub(in crate::node) struct Carried {
    pub(super) image: Image,
    /// The key, then the value.
    bytes: Vec<u8>,
    key_bytes: usize,
}

/// Who waits for a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Origin {
    /// The worker that has it.
    pub(in crate::node) worker: usize,
    pub(in crate::node) asker: Asker,
}

/// Whom a worker answers.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) enum Asker {
    /// A client: the place in its replies that waits.
    Client(Token),
    /// Another node: which of its requests.
    Peer {
        at: Endpoint,
        delegated: u64,
        number: u32,
    },
    /// A thread of this server that is no worker.
    Thread(ThreadAsker),
    /// A flush of the worker's slices, with this number: one of them.
    Flush(u64, SliceId),
    /// A flush that a client of the worker ordered, with this number.
    Order(u64),
    /// Nobody: the node itself wants it done.
    Nobody,
}

/// A request that is done, on its way to the worker that has the asker.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(in crate::node) origin: Origin,
    pub(in crate::node) end: End,
    /// What was asked.
    pub(in crate::node) request: Vec<u8>,
    /// What it shows of a value.
    pub(in crate::node) value: Vec<u8>,
    /// The write of the key that it shows; 0 for none.
    pub(in crate::node) shown: Cas,
    /// How many nodes in sync have what it shows; 0 if that is not known.
    pub(crate) copies: u8,
}

/// How a request ended here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::node) enum End {
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
pub(in crate::node) struct Spare(VecDeque<Vec<u8>>);

/// Pieces of memory that are kept.
const SPARE_MAX: usize = 256;

/// A larger piece is given back.
const SPARE_BYTES_MAX: usize = 8 << 10;

impl Job {
    /// What another node says; `None` if it is not understood.
    pub(in crate::node) fn message(
        from: NodeId,
        part: &ReplicaPart<'_>,
        spare: &mut Spare,
    ) -> Option<Self> {
        let message = ReplicaMessage::decode(part.message)?;
        let item = part.item.map(|item| Carried::new(&item, spare.take()));
        Some(Self::Message(from, message, item))
    }
}

impl Carried {
    fn new(item: &ReplicaItem<'_>, mut bytes: Vec<u8>) -> Self {
        let node::Image {
            client_flags,
            expiry,
            stale,
            won,
            value,
        } = item.image;
        let key = item.key.bytes();
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        let image = Image {
            cas: item.version,
            flags: client_flags,
            expiry,
            stale,
            won,
        };
        Self {
            image,
            bytes,
            key_bytes: key.len(),
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_bytes).unwrap_or_default()
    }

    pub(super) fn value(&self) -> &[u8] {
        self.bytes.get(self.key_bytes..).unwrap_or_default()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl End {
    /// How what was executed here ended.
    pub(in crate::node) fn of(ended: Result<Outcome, Failure>) -> Self {
        match ended {
            Ok(outcome) => Self::Done(Some(outcome)),
            Err(failure) => Self::Failed(failure),
        }
    }

    /// Whether a reply is of the request's kind: another would corrupt the client's reply stream.
    pub(in crate::node) fn answers(&self, request: &[u8], value: &[u8]) -> bool {
        let Self::Answered(outcome) = *self else {
            return true;
        };
        let request = ItemRequest::decode(request);
        request.zip(outcome).is_some_and(|(request, outcome)| {
            request.is_answered_by(&ItemAnswer { outcome, value })
        })
    }
}

impl Completed {
    /// A request that ended without an outcome, or that had no effect.
    pub(in crate::node) fn without_value(origin: Origin, request: Vec<u8>, end: End) -> Self {
        Self {
            origin,
            end,
            request,
            value: Vec::new(),
            shown: Cas(0),
            copies: 0,
        }
    }

    pub(in crate::node) fn failed(origin: Origin, request: Vec<u8>, failure: Failure) -> Self {
        Self::without_value(origin, request, End::Failed(failure))
    }

    /// What the client is told that asked for it, with the request if that is about an item.
    pub(crate) fn of_client(&self) -> Option<(Token, Option<ItemRequest<'_>>, Told<'_>)> {
        let Asker::Client(token) = self.origin.asker else {
            return None;
        };
        Some((token, ItemRequest::decode(&self.request), self.told()))
    }

    /// The same for a thread's request.
    pub(crate) fn of_thread(&self) -> Option<(ThreadAsker, Option<ItemRequest<'_>>, Told<'_>)> {
        let Asker::Thread(asker) = self.origin.asker else {
            return None;
        };
        Some((asker, ItemRequest::decode(&self.request), self.told()))
    }

    fn told(&self) -> Told<'_> {
        match self.end {
            End::Done(outcome) | End::Answered(outcome) => {
                Ok(outcome.map(|end| (end, &*self.value)))
            }
            End::Failed(failure) => Err(failure),
            // A client's request that is for another node is sent there.
            End::Elsewhere => Err(Failure::Unreachable),
        }
    }

    /// The memory of a request and its value that nobody needs any more.
    pub(crate) fn take_memory(self) -> [Vec<u8>; 2] {
        [self.request, self.value]
    }
}

/// The bytes of a request, in memory that is used again.
pub(in crate::node) fn written(request: &ItemRequest<'_>, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes.resize(ItemRequest::HEAD_BYTES_MAX + request.value.len(), 0);
    let length = request.encode(&mut bytes);
    bytes.truncate(length.unwrap_or_default());
    bytes
}

impl Spare {
    /// An empty piece.
    pub(in crate::node) fn take(&mut self) -> Vec<u8> {
        self.0.pop_back().unwrap_or_default()
    }

    /// A copy of `bytes`.
    pub(in crate::node) fn copied(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.take();
        copy.extend_from_slice(bytes);
        copy
    }

    /// Keeps a piece for the next job that needs it.
    pub(in crate::node) fn give(&mut self, mut bytes: Vec<u8>) {
        let bytes_held = bytes.capacity();
        if self.0.len() < SPARE_MAX && bytes_held != 0 && bytes_held <= SPARE_BYTES_MAX {
            bytes.clear();
            self.0.push_back(bytes);
        }
    }
}
