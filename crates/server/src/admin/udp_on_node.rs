//! memcached's datagrams at a node of a cluster: workers execute the requests, or have other nodes
//! execute them, and the answer leaves when its last request is answered.
//!
//! ```text
//!   datagram --> place: next request --> worker (`node::requests_of_threads`)
//!     ^            ^   |                          |
//!     |            |   +-- none left: answer      v
//!     |            +------------------------- answered, appended
//! ```
//!
//! The requests of a datagram are executed one after another. What is too much for the places is
//! refused, so that a node that does not answer holds up no more than these.

use std::net::{IpAddr, SocketAddr};

use curtail_codec::{
    memcached::{Decoded, Decoder, Form, KeyScratch, Request, WireKey, encode::Refusal},
    node::{ItemRequest, Shows},
};
use curtail_runtime::{DATAGRAM_SLOT_BYTES, DatagramSocket, Outbox};
use curtail_types::{Get, Operation, Outcome};

use crate::{
    admin::udp::{BATCH, FRAME_BYTES, NUMBER_BYTES, put},
    completion::{Answer, AskingThread, Awaited, Place, ThreadAsker, shows},
    limits::{DATAGRAMS_UNDER_WAY_MAX, REQUESTS_PER_DATAGRAM_MAX},
    node::{Cluster, Completed},
    owned_reply_form::OwnedForm,
    places::Places,
    worker::{context::WorkerContext, shared::Shared},
};

/// Where a datagram came from.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    /// The number of the socket.
    pub(super) socket: usize,
    pub(super) address: SocketAddr,
    /// The address that it was sent to, where the socket has several.
    pub(super) local: Option<IpAddr>,
}

/// The datagrams whose requests are not all answered yet.
pub(super) struct DatagramsUnderWay {
    under_way: Places<Box<UnderWay>>,
    /// Of datagrams that are answered.
    spare: Vec<Box<UnderWay>>,
    /// One for each socket.
    outboxes: Vec<Outbox>,
}

struct UnderWay {
    from: Sender,
    decoder: Decoder,
    datagram: [u8; DATAGRAM_SLOT_BYTES],
    bytes: usize,
    /// Up to where the datagram is decoded.
    consumed: usize,
    /// As the datagram, and no longer: the frame, then what its requests are answered.
    answer: [u8; DATAGRAM_SLOT_BYTES],
    written: usize,
    /// Requests that it had so far.
    requests: usize,
    waits: Option<Waits>,
    /// Memory for the next request, and what it shows.
    spare: [Vec<u8>; 2],
}

/// Answers before they are sent: to all that are under way, or of one receive.
const ANSWERS_MAX: usize = DATAGRAMS_UNDER_WAY_MAX + BATCH;

/// What a request is that is under way.
#[derive(Clone, Copy)]
enum Waits {
    /// The one that is answered so.
    Request(Place),
    /// A look at the length of the value that the request at this offset asks for.
    Look(usize, Decoder),
}

/// What becomes of a datagram.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    /// One of its requests is under way.
    Waits,
    /// Its next request is to be looked at.
    Decode,
    /// It is answered.
    Ends,
}

impl DatagramsUnderWay {
    pub(super) fn new(sockets: usize) -> Self {
        Self {
            under_way: Places::default(),
            spare: Vec::new(),
            outboxes: (0..sockets).map(|_| Outbox::new(ANSWERS_MAX)).collect(),
        }
    }

    /// Begins with the requests of a datagram, if it is whole.
    pub(super) fn begin(&mut self, cx: &mut WorkerContext, datagram: &[u8], from: Sender) {
        let Some(([first, second, 0, 0, 0, 1, _, _], input)) =
            datagram.split_first_chunk::<FRAME_BYTES>()
        else {
            return;
        };
        let head = [*first, *second, 0, 0, 0, 1, 0, 0];
        if self.under_way.len() == DATAGRAMS_UNDER_WAY_MAX {
            return self.refuse(head, datagram.len(), from);
        }
        let mut one = self.spare.pop().unwrap_or_else(|| UnderWay::new(from));
        one.begin(from, head, input);
        let name = self.under_way.keep(one);
        self.go_on(cx, name, Next::Decode);
    }

    /// Says that there are too many, if there is room for that.
    fn refuse(&mut self, head: [u8; FRAME_BYTES], bytes: usize, from: Sender) {
        let line = Refusal::Busy.reply();
        if bytes >= FRAME_BYTES + line.len() {
            self.post(from, |room| {
                put(room, &head)?;
                Some(FRAME_BYTES + put(room.get_mut(FRAME_BYTES..)?, line)?)
            });
        }
    }

    /// Goes on with the datagrams of which a request is answered; how many were.
    pub(super) fn take_answers(&mut self, cx: &mut WorkerContext, cluster: &Cluster) -> usize {
        let each = &mut |completed| self.take_answer(cx, completed);
        cluster.take_thread_answers(AskingThread::Memcached, each)
    }

    fn take_answer(&mut self, cx: &mut WorkerContext, completed: Completed) {
        let Some((asker, ..)) = completed.of_thread() else {
            return;
        };
        let Some(one) = self.under_way.get(asker.name) else {
            return;
        };
        let next = one.take_answer(cx.shared.config.cas, &completed);
        one.spare = completed.take_memory();
        self.go_on(cx, asker.name, next);
    }

    fn go_on(&mut self, cx: &WorkerContext, name: u64, mut next: Next) {
        while let (Next::Decode, Some(one)) = (next, self.under_way.get(name)) {
            next = one.decode(cx, name);
        }
        if next == Next::Waits {
            return;
        }
        if let Some(one) = self.under_way.take(name) {
            if one.written > FRAME_BYTES {
                self.post(one.from, |room| put(room, one.answer.get(..one.written)?));
            }
            self.spare.push(one);
        }
    }

    fn post(&mut self, to: Sender, write: impl FnOnce(&mut [u8]) -> Option<usize>) {
        if let Some(outbox) = self.outboxes.get_mut(to.socket) {
            outbox.push_from(to.local, to.address, write);
        }
    }

    /// Sends all answers that are ready.
    pub(super) fn send(&mut self, sockets: &[DatagramSocket]) {
        for (outbox, socket) in self.outboxes.iter_mut().zip(sockets) {
            outbox.send(socket);
        }
    }
}

impl UnderWay {
    fn new(from: Sender) -> Box<Self> {
        Box::new(Self {
            from,
            decoder: Decoder::new(false),
            datagram: [0; DATAGRAM_SLOT_BYTES],
            bytes: 0,
            consumed: 0,
            answer: [0; DATAGRAM_SLOT_BYTES],
            written: 0,
            requests: 0,
            waits: None,
            spare: [Vec::new(), Vec::new()],
        })
    }

    fn begin(&mut self, from: Sender, head: [u8; FRAME_BYTES], input: &[u8]) {
        self.from = from;
        self.decoder = Decoder::new(false);
        self.bytes = put(&mut self.datagram, input).unwrap_or(0);
        self.written = put(&mut self.answer, &head).unwrap_or(0);
        (self.consumed, self.requests, self.waits) = (0, 0, None);
    }

    /// Room for answers: what is sent is no longer than what was received.
    fn left(&mut self) -> &mut [u8] {
        let end = FRAME_BYTES + self.bytes;
        self.answer.get_mut(self.written..end).unwrap_or_default()
    }

    /// Adds to the answer; if there is no room, the rest is not looked at, because its answers
    /// would stand in the wrong place.
    fn push(&mut self, bytes: &[u8]) -> Next {
        match put(self.left(), bytes) {
            Some(written) => {
                self.written += written;
                Next::Decode
            }
            None => self.use_tcp(),
        }
    }

    fn use_tcp(&mut self) -> Next {
        let line = Refusal::UseTcp.reply();
        self.written += put(self.left(), line).unwrap_or(0);
        Next::Ends
    }

    /// Has the next request executed.
    fn decode(&mut self, cx: &WorkerContext, name: u64) -> Next {
        let (shared, limits) = (&*cx.shared, &cx.decoding.limits);
        let (from, before) = (self.consumed, self.decoder);
        if from >= self.bytes || self.requests >= REQUESTS_PER_DATAGRAM_MAX {
            return Next::Ends;
        }
        self.requests += 1;
        // The decoder is used on a copy of what is left, so that the answer can be written.
        let datagram = self.datagram;
        let input = datagram.get(from..self.bytes).unwrap_or_default();
        let (request, consumed) = match self.decoder.decode(input, limits) {
            Decoded::Complete { request, consumed } => (request, consumed),
            Decoded::Malformed {
                reply, consumed, ..
            } => {
                self.consumed += consumed;
                return self.push(reply);
            }
            Decoded::Incomplete { .. } => return Next::Ends,
        };
        self.consumed += consumed;
        match request {
            Request::EndOfKeys { refusal } => self.push(refusal.map_or(b"END\r\n", Refusal::reply)),
            Request::Item {
                key,
                operation,
                value,
                form,
            } => {
                let look = Waits::Look(from, before);
                self.ask(shared, name, (key, form), (operation, value), look)
            }
            _ => self.use_tcp(),
        }
    }

    /// Has a worker execute a request. One that shows a value is preceded by a look at the value's
    /// length: a node must not move a long value that cannot be sent.
    fn ask(
        &mut self,
        shared: &Shared,
        name: u64,
        (key, form): (WireKey<'_>, Form<'_>),
        (operation, value): (Operation, &[u8]),
        look: Waits,
    ) -> Next {
        let Some(cluster) = shared.cluster.as_deref() else {
            return Next::Ends;
        };
        let is_counting = matches!(operation, Operation::Arithmetic(_));
        if is_counting && self.left().len() < NUMBER_BYTES {
            return self.use_tcp();
        }
        let shown = shows(&operation, &form);
        let is_looked_at = match (self.waits, look) {
            (Some(Waits::Look(looked, _)), Waits::Look(at, _)) => looked == at,
            _ => false,
        };
        let looks = shown == Shows::Value && !is_looked_at;
        let (operation, shown) = match looks {
            true => (LOOK, Shows::Nothing),
            false => (operation, shown),
        };
        self.waits = Some(match looks {
            true => look,
            false => Waits::Request(Place {
                number: name as u32,
                what: Awaited::of(&form),
                form: Some(OwnedForm::new(&key, &form)),
            }),
        });
        let mut scratch = KeyScratch::default();
        let request = ItemRequest {
            key: key.resolve(&mut scratch),
            operation,
            shows: shown,
            value,
        };
        let asker = ThreadAsker {
            thread: AskingThread::Memcached,
            name,
        };
        let spare = std::mem::take(&mut self.spare);
        cluster.ask(shared, asker, Some(&request), spare);
        Next::Waits
    }

    /// Takes in how the request ended that is under way.
    fn take_answer(&mut self, shows_versions: bool, completed: &Completed) -> Next {
        let (Some((_, request, told)), Some(waits)) = (completed.of_thread(), self.waits) else {
            return Next::Ends;
        };
        let place = match waits {
            Waits::Request(place) => place,
            Waits::Look(at, before) => {
                return match told {
                    Ok(Some((Outcome::Found(found), _)))
                        if found.value_bytes as usize > self.left().len() =>
                    {
                        self.use_tcp()
                    }
                    Ok(_) => {
                        // Now the request itself.
                        (self.consumed, self.decoder) = (at, before);
                        self.requests -= 1;
                        Next::Decode
                    }
                    Err(failure) => {
                        self.push(Refusal::from(failure).reply());
                        Next::Ends
                    }
                };
            }
        };
        self.waits = None;
        let key = request.as_ref().map(|request| request.key.bytes());
        match place.spell(Answer::of(told, key, shows_versions)) {
            Ok(spelt) => {
                let pieces = spelt.pieces();
                let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
                if bytes > self.left().len() {
                    return self.use_tcp();
                }
                for piece in pieces {
                    self.push(piece);
                }
                Next::Decode
            }
            // A part cannot fail before the line that ends its request: this is that line.
            Err(line) => {
                self.push(line);
                Next::Ends
            }
        }
    }
}

/// Finds an item and leaves everything about it as it is.
const LOOK: Operation = Operation::Get(Get {
    touch: None,
    vivify: None,
    recache: None,
    quiet_access: true,
    new_cas: None,
    keep_token: true,
});
