//! The acceptor: one thread that accepts connections and gives each to the worker with the fewest;
//! among several, to the one that did least in the last epoch.
//!
//! It also keeps the connection limit. By default a client too many is told so and closed at once;
//! without `maxconns_fast` it waits in the kernel's queue until another one leaves.
//!
//! A node of a cluster has its addresses from the start, and takes connections there once it is in
//! service; when it leaves, its listeners are closed first. Who is refused goes to another node.

use std::{sync::Arc, time::Duration};

use curtail_runtime::{ControlEvent, Events, Listener, PeerAddress, Poller, Stream, Token};
use tracing::error;

use crate::{
    connection::registry::Visible,
    limits::ACCEPTS_MAX,
    log::component,
    sync::Relaxed,
    worker::{
        mailbox::{Arrival, Newcomer},
        shared::Shared,
    },
};

/// Takes connections until the server stops.
pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    poller: Poller,
    events: Events,
    doors: Vec<ListeningSocket>,
    disabled_since_ns: Option<u64>,
    /// Whether the listeners are watched.
    is_open: bool,
}

/// A listener and how `stats conns` names it.
struct ListeningSocket {
    listener: Listener,
    name: Arc<str>,
    visible: Arc<Visible>,
    /// There may be connections waiting.
    open: bool,
}

/// The token of the waker; listeners have the numbers below.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// How long to wait when the process is out of descriptors.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

/// How long to wait at most before looking again whether a connection has left.
const FULL: Duration = Duration::from_millis(100);

const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

impl Acceptor {
    pub(crate) fn new(shared: Arc<Shared>, poller: Poller, listeners: Vec<Listener>) -> Self {
        let seconds = shared.started.unix_seconds();
        let doors = listeners
            .into_iter()
            .map(|listener| {
                let name: Arc<str> = name_of(&listener).into();
                let visible = Visible::listener(listener.number(), Arc::clone(&name), seconds);
                let visible = Arc::new(visible);
                shared.registry.add(&visible);
                ListeningSocket {
                    listener,
                    name,
                    visible,
                    open: true,
                }
            })
            .collect();
        Self {
            shared,
            poller,
            events: Events::with_capacity(64),
            doors,
            disabled_since_ns: None,
            is_open: false,
        }
    }

    /// Has the poller watch all listeners, if clients may connect already.
    pub(crate) fn watch(&mut self) -> Result<(), curtail_runtime::WatchError> {
        if !self.shared.doors.is_open() {
            return Ok(());
        }
        for (index, socket) in self.doors.iter_mut().enumerate() {
            socket.listener.watch(&self.poller, Token(index))?;
        }
        self.is_open = true;
        Ok(())
    }

    /// Begins or ends to take connections, as is wanted of it.
    fn open_or_close(&mut self) {
        match (self.is_open, self.shared.doors.is_open()) {
            (false, true) => self.open(),
            (true, false) => self.close(),
            _ => {}
        }
    }

    /// A node whose clients cannot reach it is of no use: it ends and says why.
    fn open(&mut self) {
        let backlog = self.shared.config.backlog;
        let listens = self.doors.iter().try_for_each(|socket| {
            let answer = socket.listener.listen(backlog);
            answer.map_err(|error| format!("{}: {error}", socket.name))
        });
        let watches = listens.and_then(|()| self.watch().map_err(|error| error.0.to_string()));
        if let Err(why) = watches {
            error!(
                target: component::CONNECTIONS,
                "no connections can be accepted: {why}; the server stops"
            );
            (self.shared.ask)(ControlEvent::Stop);
            self.is_open = true;
        }
    }

    fn close(&mut self) {
        for socket in self.doors.drain(..) {
            self.shared.registry.remove(&socket.visible);
        }
        self.is_open = false;
    }

    /// Takes connections until the server stops; dropping the listeners then closes them.
    pub(crate) fn run(mut self) {
        while !self.shared.stopping.load(Relaxed) {
            let mut pause = None;
            self.open_or_close();
            for index in 0..self.doors.len() {
                if let Err(error) = self.drain(index) {
                    self.shared.note_accept_error(&error);
                    pause = Some(OUT_OF_DESCRIPTORS);
                }
            }
            if pause.is_none() && self.any_open() {
                // A worker wakes us when a connection leaves; should that cross with our last look
                // at the limit, the pause is the longest that a client waits for it.
                pause = Some(if self.has_room() {
                    Duration::ZERO
                } else {
                    FULL
                });
            }
            if self.poller.wait(&mut self.events, pause).is_err() {
                continue;
            }
            let doors = &mut self.doors;
            self.events.for_each(|token, _| {
                if let Some(socket) = doors.get_mut(token.0) {
                    socket.open = true;
                }
            });
        }
        for socket in &self.doors {
            self.shared.registry.remove(&socket.visible);
        }
    }

    fn any_open(&self) -> bool {
        self.is_open && self.doors.iter().any(|socket| socket.open)
    }

    /// Takes what waits at one listener.
    fn drain(&mut self, index: usize) -> std::io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            let fast = self.shared.config.refuse_connections_fast;
            let room = self.has_room();
            self.note_accepting(room || fast);
            let Some(socket) = self.doors.get_mut(index) else {
                return Ok(());
            };
            if !socket.open || !(room || fast) {
                return Ok(());
            }
            if !self.is_open {
                return Ok(());
            }
            let Some((stream, peer)) = socket.listener.accept()? else {
                socket.open = false;
                return Ok(());
            };
            let name = Arc::clone(&socket.name);
            if room {
                self.place(stream, peer, name);
            } else {
                self.refuse(stream);
            }
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        let now = self.shared.doors.connections_now.load(Relaxed);
        now < self.shared.config.connections_max
    }

    /// Gives the connection to the worker that has fewest, and least to do.
    fn place(&self, stream: Stream, peer: PeerAddress, listener: Arc<str>) {
        let doors = &self.shared.doors;
        let now = doors.connections_now.fetch_add(1, Relaxed) + 1;
        doors.connections_most.fetch_max(now, Relaxed);
        doors.accepted.add(1);
        let fewest = self
            .shared
            .small_workers()
            .iter()
            .min_by_key(|worker| (worker.connections.load(Relaxed), worker.load.load(Relaxed)));
        if let Some(worker) = fewest {
            worker.connections.fetch_add(1, Relaxed);
            worker.mail.send(Arrival::Newcomer(Newcomer {
                stream,
                peer,
                listener,
            }));
        }
    }

    fn refuse(&self, mut stream: Stream) {
        self.shared.doors.refused.add(1);
        // A fresh socket has room for this; whether the client reads it is its business.
        stream.send(TOO_MANY);
    }

    /// Counts how often and how long no connection was taken.
    fn note_accepting(&mut self, accepting: bool) {
        let doors = &self.shared.doors;
        let now_ns = || self.shared.clock.now().instant.ns;
        match (accepting, self.disabled_since_ns) {
            (false, None) => {
                doors.pauses.add(1);
                doors.accepting.store(false, Relaxed);
                self.disabled_since_ns = Some(now_ns());
            }
            (true, Some(since)) => {
                let us = now_ns().saturating_sub(since) / 1000;
                doors.disabled_us.fetch_add(us, Relaxed);
                doors.accepting.store(true, Relaxed);
                self.disabled_since_ns = None;
            }
            _ => {}
        }
    }
}

/// How a listener is named to people and in `stats conns`.
pub(crate) fn name_of(listener: &Listener) -> String {
    match (listener.tcp_address(), listener.path()) {
        (Some(address), _) => format!("tcp:{address}"),
        (None, Some(path)) => format!("unix:{}", path.display()),
        (None, None) => "unknown".to_owned(),
    }
}
