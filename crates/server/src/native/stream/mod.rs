//! The protocol over TCP, for values that fit no datagram: the same sessions, slots and sequence
//! numbers, so that a retry may change transports.
//!
//! ```text
//!   head, key --> value, straight into the store's room --> checksum --> claim the slot
//!        --> wait until the bucket's queue has come to its stamp --> apply --> answer
//! ```
//!
//! Writes here go past the queues (JB-41): they take the stamp of their bucket when they are
//! complete, and are applied when everything accepted before them is executed. One thread serves
//! all streams, because they are few and move megabytes; small requests belong into datagrams.
//!
//! Invariants. A stream has one request at a time. A value is received into memory that is reserved
//! for it, after its length was found to be allowed; one that stops half-way is given up after
//! [`STALLED_NS`]. A stream that is refused something for its form is closed, since nobody knows
//! where its next request begins.

mod decode;
mod execute;
mod on_node;

use std::{io, time::Duration};

use curtail_runtime::{
    Events, Listener, PeerAddress, Poller, SocketOptions, Token, bind_tcp, monotonic_ns,
};

use crate::{
    completion::AskingThread,
    native::{Host, Native, ShowsEnded, executor::Executor, stream::decode::Line},
    store_context::StoreContext,
};

/// The listeners, with their poller, until the thread begins.
pub(crate) struct Streams {
    poller: Poller,
    listeners: Vec<Listener>,
}

/// Streams at most; further ones wait in the kernel.
const STREAMS_MAX: usize = 256;

/// The tokens of the listeners; streams have the numbers below.
const LISTENERS: usize = 1 << 32;

/// The token of answers of a node.
const WAKER: Token = Token(LISTENERS - 1);

/// How long the thread sleeps at most: it looks then whether the server stops.
const SLEEP: Duration = Duration::from_millis(20);

/// How long a stream may stand still in the middle of a request.
const STALLED_NS: u64 = 30_000_000_000;

/// How long a stream may be idle between requests.
const IDLE_NS: u64 = 600_000_000_000;

/// Events taken in one wait.
const EVENTS_MAX: usize = 64;

impl Streams {
    /// Listens at the addresses of the datagrams.
    pub(crate) fn listen(
        addresses: &[std::net::SocketAddr],
        backlog: i32,
    ) -> Result<Vec<Listener>, (std::net::SocketAddr, curtail_runtime::BindError)> {
        let options = SocketOptions {
            backlog,
            listens: true,
        };
        let listen = |address: &std::net::SocketAddr| {
            bind_tcp(*address, options).map_err(|error| (*address, error))
        };
        addresses.iter().map(listen).collect()
    }

    /// Ready to begin.
    pub(crate) fn new(mut listeners: Vec<Listener>) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (number, listener) in listeners.iter_mut().enumerate() {
            let token = Token(LISTENERS + number);
            listener.watch(&poller, token).map_err(|error| error.0)?;
        }
        Ok(Self { poller, listeners })
    }

    /// Serves streams until the server stops.
    pub(crate) fn run(
        self,
        (host, native): (&dyn Host, &Native),
        store_cx: StoreContext,
        thread: usize,
    ) {
        let mut thread = StreamThread {
            host,
            native,
            poller: self.poller,
            listeners: self.listeners,
            lines: (0..STREAMS_MAX).map(|_| None).collect(),
            store_cx,
            thread,
            executor: Executor::new(thread, native.addresses.len(), 0),
            events: Events::with_capacity(EVENTS_MAX),
            may_accept: true,
            accept_again_ns: None,
            serial: 0,
            spare: Vec::new(),
        };
        if native.is_on_node
            && let Ok(waker) = thread.poller.waker(WAKER)
        {
            host.wake_with(AskingThread::NativeStreams, waker);
        }
        while !host.is_stopping() {
            let is_busy = thread.turn();
            thread.wait(is_busy);
        }
        thread.lines.clear();
        thread.publish();
    }
}

struct StreamThread<'a> {
    host: &'a dyn Host,
    native: &'a Native,
    poller: Poller,
    listeners: Vec<Listener>,
    lines: Vec<Option<Box<Line>>>,
    store_cx: StoreContext,
    thread: usize,
    executor: Executor,
    events: Events,
    may_accept: bool,
    /// When to accept again what could not be accepted.
    accept_again_ns: Option<u64>,
    /// Counts what the node of a cluster was asked.
    serial: u32,
    /// Memory of what it has answered, until the end of a turn.
    spare: Vec<Vec<u8>>,
}

impl StreamThread<'_> {
    /// Every stream's next step; whether one can go on at once.
    fn turn(&mut self) -> bool {
        let now_ns = monotonic_ns();
        if self.may_accept || self.accept_again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.accept(now_ns);
        }
        let mut is_busy = false;
        self.store_cx.now = self.host.now();
        if self.native.is_on_node {
            self.take_from_node();
        }
        let store_cx = &mut self.store_cx;
        for (number, place) in self.lines.iter_mut().enumerate() {
            let Some(line) = place else {
                continue;
            };
            let went_on = line.go_on(self.native, &mut self.executor, store_cx, now_ns);
            if self.native.is_on_node {
                let name = (number as u32, &mut self.serial);
                line.ask_node((self.host, self.native), store_cx, name);
            }
            let limit_ns = if line.is_between() {
                IDLE_NS
            } else {
                STALLED_NS
            };
            let is_late = now_ns.saturating_sub(line.moved_ns) > limit_ns;
            match went_on {
                Some(can_go_on) if !is_late => is_busy |= can_go_on,
                _ => {
                    line.give_up(self.native);
                    store_cx.store.account(-LINE_BYTES);
                    *place = None;
                    self.may_accept = true;
                }
            }
        }
        self.native.hand_back(self.host, &mut self.executor);
        self.publish();
        is_busy
    }

    /// Answers what the node has executed.
    fn take_from_node(&mut self) {
        let (native, lines) = (self.native, &mut self.lines);
        let counts = &mut self.executor.state().counts;
        let show: &mut ShowsEnded<'_> = &mut |name, told, copies| {
            if let Some(Some(line)) = lines.get_mut(name as u32 as usize) {
                line.take_from_node(native, counts, name, (told, copies));
            }
        };
        let thread = AskingThread::NativeStreams;
        self.host.take_from_node(thread, &mut self.spare, show);
        self.spare.clear();
    }

    fn accept(&mut self, now_ns: u64) {
        self.may_accept = false;
        self.accept_again_ns = None;
        for listener in &self.listeners {
            loop {
                let Some(slot) = self.lines.iter().position(Option::is_none) else {
                    return;
                };
                let (mut stream, address) = match listener.accept() {
                    Ok(Some((stream, PeerAddress::Tcp(address)))) => (stream, address),
                    Ok(_) => break,
                    Err(error) => {
                        // The poller does not tell again of what waits already.
                        self.host.note_accept_error(&error);
                        self.accept_again_ns = Some(now_ns + SLEEP.as_nanos() as u64);
                        break;
                    }
                };
                if stream.watch(&self.poller, Token(slot)).is_err() {
                    continue;
                }
                let line = Box::new(Line::new(stream, address, monotonic_ns()));
                self.store_cx.store.account(LINE_BYTES);
                if let Some(place) = self.lines.get_mut(slot) {
                    *place = Some(line);
                }
            }
        }
    }

    fn wait(&mut self, is_busy: bool) {
        let timeout = if is_busy { Duration::ZERO } else { SLEEP };
        // An error is a wait that ends at once.
        let _ = self.poller.wait(&mut self.events, Some(timeout));
        let (lines, may_accept) = (&mut self.lines, &mut self.may_accept);
        self.events.for_each(|token, readiness| {
            if token.0 >= LISTENERS {
                *may_accept = true;
            } else if let Some(Some(line)) = lines.get_mut(token.0) {
                line.note(readiness);
            }
        });
        if is_busy {
            // Whoever executes the queue that is waited for needs a processor, too.
            std::thread::yield_now();
        }
    }

    fn publish(&mut self) {
        self.native
            .publish(self.thread, &self.executor.state().counts);
    }
}

/// What a stream takes beside a value on its way.
const LINE_BYTES: isize = (size_of::<Line>() + decode::INPUT_BYTES).cast_signed();
