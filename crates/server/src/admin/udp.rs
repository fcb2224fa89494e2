//! memcached's own datagrams (`-U`): its text and meta commands behind a frame of eight bytes.
//!
//! ```text
//!   byte  0          2               4           6          8
//!         | request  | number, of    | how many  | 0        | commands, whole
//! ```
//!
//! Off unless asked for, and only for what cannot be abused: in 2018 memcached's datagrams were
//! used to send strangers fifty thousand times what was sent to the servers. Here an answer is
//! never longer than the datagram that it answers. A request whose answer might be is not carried
//! out, or not answered if it only read; its client asks over TCP. So this serves writes, and reads
//! that say no more than that something is there; the native protocol serves the rest.
//!
//! One thread does it, with a worker context of its own. Administration and large values go over
//! TCP. At a node of a cluster the thread leaves the requests to the workers
//! ([`udp_on_node`](super::udp_on_node)).

use std::{sync::Arc, time::Duration};

use curtail_codec::memcached::{Decoded, Decoder, Request, encode::Refusal};
use curtail_runtime::{DatagramSocket, Events, Inbox, Outbox, Poller, Token};
use curtail_store::{Hint, Writer};
use curtail_types::Operation;

use crate::{
    admin::udp_on_node::{DatagramsUnderWay, Sender},
    completion::{AskingThread, Awaited},
    limits::REQUESTS_PER_DATAGRAM_MAX,
    native::Executor,
    node::Cluster,
    request::reply_buffer::{Content, ROOM_BYTES, Replies},
    sync::Relaxed,
    turn::execute::{self, Item},
    worker::{context::WorkerContext, shared::Shared},
};

/// The thread, until it begins.
pub(crate) struct MemcachedDatagrams {
    poller: Poller,
    sockets: Vec<DatagramSocket>,
}

/// Bytes of the frame.
pub(super) const FRAME_BYTES: usize = 8;

/// Datagrams of one receive.
pub(super) const BATCH: usize = 64;

/// How long it sleeps at most: it looks then whether the server stops.
const SLEEP: Duration = Duration::from_millis(50);

/// Turns with a queue of accepted writes before a datagram is given up: more than 20 ms with the
/// pauses, because the worker that has the queue may have lost its processor.
const TURNS_MAX: usize = 400;

/// Turns after which it pauses between them.
const BUSY_TURNS: usize = 200;

/// How long it pauses.
const PAUSE: Duration = Duration::from_micros(100);

/// The longest answer to arithmetic: a number and a line's end.
pub(super) const NUMBER_BYTES: usize = 22;

impl MemcachedDatagrams {
    /// Ready to begin.
    pub(crate) fn new(mut sockets: Vec<DatagramSocket>) -> std::io::Result<Self> {
        let poller = Poller::new()?;
        for (number, socket) in sockets.iter_mut().enumerate() {
            socket
                .watch(&poller, Token(number))
                .map_err(|error| error.0)?;
        }
        Ok(Self { poller, sockets })
    }

    /// Answers until the server stops.
    pub(crate) fn run(self, shared: &Arc<Shared>, writer: Writer, thread: usize) {
        match &shared.cluster {
            None => self.run_alone(shared, writer, thread),
            Some(cluster) => {
                let cx = WorkerContext::new(thread, Arc::clone(shared), writer);
                self.run_on_node(cx, cluster);
            }
        }
    }

    /// The same at a node of a cluster.
    fn run_on_node(mut self, mut cx: WorkerContext, cluster: &Cluster) {
        let Ok(waker) = self.poller.waker(Token(self.sockets.len())) else {
            return;
        };
        cluster.wake_with(AskingThread::Memcached, waker);
        let mut inbox = Inbox::new(BATCH);
        let mut events = Events::with_capacity(BATCH);
        let mut under_way = DatagramsUnderWay::new(self.sockets.len());
        while !cx.shared.stopping.load(Relaxed) {
            let mut happened = under_way.take_answers(&mut cx, cluster);
            under_way.send(&self.sockets);
            for (number, socket) in self.sockets.iter().enumerate() {
                let count = inbox.receive(socket);
                happened += count;
                for index in 0..count {
                    if let Some((datagram, address)) = inbox.get(index) {
                        let from = Sender {
                            socket: number,
                            address,
                            local: inbox.local(index),
                        };
                        under_way.begin(&mut cx, datagram, from);
                    }
                }
                under_way.send(&self.sockets);
            }
            if happened == 0 {
                // An error is a wait that ends at once.
                let _ = self.poller.wait(&mut events, Some(SLEEP));
            }
        }
    }

    fn run_alone(mut self, shared: &Arc<Shared>, writer: Writer, thread: usize) {
        let mut inbox = Inbox::new(BATCH);
        let mut outbox = Outbox::new(BATCH);
        let mut events = Events::with_capacity(BATCH);
        let mut datagram_cx = DatagramContext {
            cx: WorkerContext::new(thread, Arc::clone(shared), writer),
            replies: Replies::with_room(2 * ROOM_BYTES, REQUESTS_PER_DATAGRAM_MAX),
            executor: shared.native.as_deref().map(|native| {
                // What it helps to execute may have to be answered.
                Executor::new(thread, native.addresses().len(), 0)
            }),
        };
        while !shared.stopping.load(Relaxed) {
            let mut received = 0;
            for socket in &self.sockets {
                let count = inbox.receive(socket);
                received += count;
                if count > 0 {
                    datagram_cx.cx.store_cx.now = shared.now();
                }
                for number in 0..count {
                    if let Some((datagram, from)) = inbox.get(number) {
                        let local = inbox.local(number);
                        outbox.push_from(local, from, |room| datagram_cx.answer(datagram, room));
                    }
                }
                outbox.send(socket);
            }
            if received == 0 {
                // An error is a wait that ends at once.
                let _ = self.poller.wait(&mut events, Some(SLEEP));
            }
        }
    }
}

struct DatagramContext {
    cx: WorkerContext,
    replies: Replies,
    /// For the requests that wait for accepted writes, if there are any.
    executor: Option<Executor>,
}

impl DatagramContext {
    /// Carries out what a datagram asks and writes the answer into `room`; how long it is, `None`
    /// for none. It is no longer than the datagram.
    fn answer(&mut self, datagram: &[u8], room: &mut [u8]) -> Option<usize> {
        let (frame, mut input) = datagram.split_first_chunk::<FRAME_BYTES>()?;
        let [first, second, 0, 0, 0, 1, _, _] = *frame else {
            return None;
        };
        let room = room.get_mut(..datagram.len().min(room.len()))?;
        let (head, body) = room.split_first_chunk_mut::<FRAME_BYTES>()?;
        *head = [first, second, 0, 0, 0, 1, 0, 0];
        let mut written = 0;
        let mut decoder = Decoder::new(false);
        for _ in 0..REQUESTS_PER_DATAGRAM_MAX {
            if input.is_empty() {
                break;
            }
            let left = body.get_mut(written..).unwrap_or_default();
            let (consumed, bytes) = match decoder.decode(input, &self.cx.decoding.limits) {
                Decoded::Complete { request, consumed } => {
                    (consumed, self.carry_out(&request, left))
                }
                Decoded::Malformed {
                    reply, consumed, ..
                } => (consumed, put(left, reply)),
                Decoded::Incomplete { .. } => break,
            };
            let Some(bytes) = bytes else {
                // The rest is not looked at: its answers would stand in the wrong place.
                written += put(body.get_mut(written..)?, Refusal::UseTcp.reply()).unwrap_or(0);
                break;
            };
            written += bytes;
            input = input.get(consumed..).unwrap_or_default();
        }
        (written > 0).then_some(FRAME_BYTES + written)
    }

    /// Carries a request out and writes its answer; `None` if there is no room for that.
    fn carry_out(&mut self, request: &Request<'_>, left: &mut [u8]) -> Option<usize> {
        if let Request::EndOfKeys { refusal } = request {
            return put(left, refusal.map_or(b"END\r\n", Refusal::reply));
        }
        let Request::Item {
            key,
            operation,
            value,
            form,
        } = request
        else {
            return None;
        };
        if matches!(operation, Operation::Arithmetic(_)) && left.len() < NUMBER_BYTES {
            return None;
        }
        let hash = self.cx.hash(key);
        if !self.reach(hash.0) {
            return None;
        }
        let item = Item {
            slot: 0,
            key,
            hash,
            form,
            hint: Hint::default(),
        };
        let refused =
            execute::run_item_apart(&mut self.cx, &mut self.replies, &item, operation, value);
        let (area, pieces) = self.replies.take();
        let mut written = Some(0);
        for piece in pieces.iter() {
            let bytes = match &piece.content {
                Content::Area { start, end } => area.get(*start..*end),
                Content::Owned(bytes) => Some(&bytes[..]),
                Content::Lease(_) | Content::Awaited(..) | Content::Final { .. } => None,
            };
            written = written.and_then(|before| {
                let bytes = put(left.get_mut(before..)?, bytes?)?;
                Some(before + bytes)
            });
        }
        self.replies.clear();
        self.replies.begin_turn();
        // A part that fails cannot say so before the line that ends its request.
        written.filter(|_| refused.is_none() || Awaited::of(form) != Awaited::Part)
    }

    /// Has what was accepted before a request executed; false if that takes too long.
    fn reach(&mut self, key_hash: u64) -> bool {
        let shared = Arc::clone(&self.cx.shared);
        let (Some(native), Some(executor)) = (shared.native.as_deref(), &mut self.executor) else {
            return true;
        };
        let Some((number, stamp)) = native.behind(key_hash) else {
            return true;
        };
        let cx = &mut self.cx;
        let store_cx = &mut cx.store_cx;
        let is_reached = (0..TURNS_MAX).any(|turn| {
            let is_reached = executor.reach(native, store_cx, number, stamp, 1);
            match (is_reached, turn < BUSY_TURNS) {
                (true, _) => {}
                (false, true) => std::thread::yield_now(),
                (false, false) => std::thread::sleep(PAUSE),
            }
            is_reached
        });
        native.hand_back(&*shared, executor);
        is_reached
    }
}

/// Writes `bytes` to the front of `room` if they fit.
pub(super) fn put(room: &mut [u8], bytes: &[u8]) -> Option<usize> {
    room.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}
