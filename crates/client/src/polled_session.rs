//! A session with its sockets, driven by its caller's thread: the poll interface.
//!
//! ```text
//!   submit --> Machine --> SendBatch --> UDP socket    turn: flush, wait, receive, tick, flush
//!                 |  \---> StreamConnection --> TCP, if it is large
//!                 +------> events, each request's once
//! ```
//!
//! Nothing runs but in [`Link::turn`]: a program that has its own loop calls it there, and waits
//! for [`Link::sockets`] until [`Link::deadline`]. [`Session`](crate::Session) does it in a thread
//! of its own, for all the threads of a process.

use std::{
    hash::{BuildHasher, RandomState},
    io::{self, ErrorKind},
    net::{SocketAddr, ToSocketAddrs, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant as Clock},
};

use curtail_codec::native::{Grant, HEADER_BYTES, Head, Malformed, Opcode, Reply, Request, SLOTS};
use curtail_types::{HashSeed, Instant, Key};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    command::Command,
    config::Config,
    datagram_batch::SendBatch,
    error::ClientError,
    machine::{Ask, Counts, Machine, MachineInput, MachineOutput, Transmission},
    outcome::Event,
    stream::StreamConnection,
};

/// A session that the calling thread drives.
///
/// ```no_run
/// use std::time::Duration;
///
/// use curtail_client::{Command, Config, Event, Link};
///
/// # fn main() -> Result<(), curtail_client::ClientError> {
/// let mut link = Link::open("127.0.0.1:11400", Config::default())?;
/// link.submit(&Command::set(b"key", b"value").marked(), 1)?;
/// let mut done = false;
/// while !done {
///     link.turn(Duration::from_millis(1), &mut |event| match event {
///         Event::Accepted { ticket: 1, .. } => done = true,
///         other => println!("{other:?}"),
///     })?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Link {
    server: SocketAddr,
    socket: UdpSocket,
    machine: Machine,
    origin: Clock,
    /// Of the guesses where keys live; no secret of the server's.
    seed: HashSeed,
    frames: Vec<KeptRequest>,
    batch: SendBatch,
    stream: Option<StreamConnection>,
    /// What is to go over the stream once that is not being read.
    for_stream: Vec<Transmission>,
    buffer: Box<[u8]>,
}

/// What a slot's request says, kept until it is answered.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    pub(crate) head: Head,
    pub(crate) key_bytes: usize,
    /// The key, then the value.
    pub(crate) body: Vec<u8>,
}

impl Link {
    /// A session at `server`, which is greeted at the first turn.
    pub fn new(server: SocketAddr, config: Config) -> Result<Self, ClientError> {
        let socket = connect(server).map_err(ClientError::machine("opening a socket"))?;
        Ok(Self::with(server, socket, config))
    }

    /// A session at `server` that is open; waits for it as long as the configuration says. Of a
    /// name with several addresses each is tried for its share of that time.
    pub fn open(server: impl ToSocketAddrs, config: Config) -> Result<Self, ClientError> {
        let servers = server.to_socket_addrs();
        let servers: Vec<SocketAddr> = servers
            .map_err(ClientError::machine("resolving"))?
            .collect();
        let share = config.connect_patience / servers.len().max(1) as u32;
        let mut last = ClientError::NoSession(None);
        for server in servers {
            match Self::new(server, config).and_then(|link| link.opened(share)) {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Submits a request, to be sent at the next turn or flush; `ticket` names it in events.
    ///
    /// # Errors
    /// [`ClientError::Busy`] if there is no session, slot or room in the window now: after a turn
    /// there may be. [`ClientError::Command`] if the request makes no sense.
    #[inline]
    pub fn submit(&mut self, command: &Command<'_>, ticket: u64) -> Result<(), ClientError> {
        check(command)?;
        let ask = Ask::new(command, ticket, self.hash(command.key));
        let sent = self
            .machine
            .assign(self.now(), &ask)
            .ok_or(ClientError::Busy)?;
        if let Some(frame) = self.frames.get_mut(usize::from(sent.slot)) {
            frame.head = command.head();
            frame.key_bytes = command.key.len();
            frame.body.clear();
            frame.body.extend_from_slice(command.key);
            frame.body.extend_from_slice(command.value);
        }
        self.begin(&sent)
    }

    /// The same for a request that is written already; its body is exchanged for another's room.
    /// Submits nothing and leaves it as it is if there is no room.
    pub(crate) fn submit_frame(
        &mut self,
        ask: &Ask,
        other: &mut KeptRequest,
    ) -> Result<(), ClientError> {
        let sent = self
            .machine
            .assign(self.now(), ask)
            .ok_or(ClientError::Busy)?;
        if let Some(frame) = self.frames.get_mut(usize::from(sent.slot)) {
            std::mem::swap(frame, other);
        }
        self.begin(&sent)
    }

    /// Sends what was submitted.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.batch
            .flush(&self.socket)
            .map_err(ClientError::machine("sending"))
    }

    /// Sends, waits at most `patience` for something to happen, and tells what did. Zero never
    /// sleeps.
    pub fn turn(
        &mut self,
        patience: Duration,
        on: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        self.flush()?;
        if !patience.is_zero() {
            self.wait(patience, None)?;
        }
        self.serve(on)
    }

    /// Receives what is there, does what is due, and sends.
    pub(crate) fn serve(&mut self, on: &mut impl FnMut(Event<'_>)) -> Result<(), ClientError> {
        self.receive(on)?;
        let now = self.now();
        if self
            .machine
            .deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.step(now, MachineInput::Tick, on);
        }
        // Last, since all of the above may have something for the stream.
        self.serve_stream(on);
        self.flush()
    }

    /// Sleeps until a socket, `other` or the machine has something to do, `patience` at most.
    pub(crate) fn wait(
        &mut self,
        patience: Duration,
        other: Option<BorrowedFd<'_>>,
    ) -> Result<(), ClientError> {
        if !self.for_stream.is_empty() {
            return Ok(());
        }
        let now_ns = self.now().ns;
        let due_ns = self
            .machine
            .deadline()
            .map_or(u64::MAX, |deadline| deadline.ns);
        let patience = patience.min(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
        let timeout = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let sends = match self.batch.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        let mut sockets = vec![PollFd::new(&self.socket, sends)];
        if let Some(stream) = &self.stream {
            sockets.push(PollFd::new(stream.socket(), stream.interest()));
        }
        if let Some(other) = other {
            sockets.push(PollFd::from_borrowed_fd(other, PollFlags::IN));
        }
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ClientError::machine("waiting")(error.into())),
        }
    }

    /// The sockets to wait for, if a program waits itself: datagrams, and the stream if there is
    /// one.
    pub fn sockets(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let stream = self.stream.as_ref().map(|stream| stream.socket().as_fd());
        (self.socket.as_fd(), stream)
    }

    /// Whether a request could have a slot.
    pub(crate) const fn has_free_slot(&self) -> bool {
        self.machine.free_slots() > 0
    }

    /// Whether something has arrived.
    pub(crate) fn is_readable(&self) -> bool {
        let now = Timespec::default();
        let mut sockets = vec![PollFd::new(&self.socket, PollFlags::IN)];
        if let Some(stream) = &self.stream {
            sockets.push(PollFd::new(stream.socket(), stream.interest()));
        }
        poll(&mut sockets, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// When the next turn is due at the latest, as nanoseconds of [`Link::now`].
    pub fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }

    /// The time since the link was made.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant {
            ns: self.origin.elapsed().as_nanos() as u64,
        }
    }

    /// The session and its limits, while it is open.
    pub const fn grant(&self) -> Option<&Grant> {
        self.machine.grant()
    }

    /// What was done so far.
    pub const fn counts(&self) -> Counts {
        self.machine.counts()
    }

    /// The session's machine, to ask how it is.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The client's own hash of a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash(key).0
    }

    /// The seed of that hash.
    pub(crate) const fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Tells of everything outstanding that it will not be heard of any more.
    pub(crate) fn abandon(&mut self, on: &mut impl FnMut(Event<'_>)) {
        self.machine.abandon(&mut |output| {
            if let MachineOutput::Tell(event) = output {
                on(event);
            }
        });
    }

    /// Gives the session back; what is outstanding is abandoned.
    pub fn close(&mut self) {
        if let Some(head) = self.machine.close() {
            let _ = self.batch.push(&bare(head)); // a session that is not closed runs out
            let _ = self.batch.flush(&self.socket);
        }
    }

    fn with(server: SocketAddr, socket: UdpSocket, config: Config) -> Self {
        let random = RandomState::new();
        let frame = || KeptRequest {
            head: Command::flush().head(),
            key_bytes: 0,
            body: Vec::new(),
        };
        Self {
            server,
            socket,
            machine: Machine::new(config, random.hash_one(server)),
            origin: Clock::now(),
            seed: HashSeed([random.hash_one(1), random.hash_one(2)]),
            frames: std::iter::repeat_with(frame)
                .take(usize::from(SLOTS))
                .collect(),
            batch: SendBatch::default(),
            stream: None,
            for_stream: Vec::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        }
    }

    /// The same once its session is open.
    fn opened(mut self, patience: Duration) -> Result<Self, ClientError> {
        let start = Clock::now();
        while self.machine.grant().is_none() {
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(ClientError::NoSession(self.machine.refusal()));
            }
            self.turn(left, &mut |_| {})?;
        }
        Ok(self)
    }

    /// Sends a request that has just got its slot, or takes the slot back.
    fn begin(&mut self, sent: &Transmission) -> Result<(), ClientError> {
        let outcome = match (sent.by_stream, request(&self.frames, sent)) {
            (_, Err(why)) => Err(why),
            (false, Ok(request)) => self.batch.push(&request),
            (true, Ok(_)) => self.feed(sent),
        };
        if let Err(why) = outcome {
            self.machine.withdraw(sent);
            return Err(ClientError::Command(why));
        }
        if self.batch.is_full() {
            // It has its slot: an error of the socket is the next flush's to tell.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Puts a request onto the stream, which is opened if there is none.
    fn feed(&mut self, sent: &Transmission) -> Result<(), Malformed> {
        let request = request(&self.frames, sent)?;
        if self.stream.is_none() {
            self.stream = StreamConnection::open(self.server).ok();
        }
        match &mut self.stream {
            Some(stream) => stream.push(&request),
            // Not a step: nobody is here to be told what else has ended by now.
            None => {
                self.machine.stream_lost(self.now().ns);
                Ok(())
            }
        }
    }

    fn receive(&mut self, on: &mut impl FnMut(Event<'_>)) -> Result<(), ClientError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.receive_into(&mut buffer, on);
        self.buffer = buffer;
        outcome.map_err(ClientError::machine("receiving"))
    }

    fn receive_into(
        &mut self,
        buffer: &mut [u8],
        on: &mut impl FnMut(Event<'_>),
    ) -> io::Result<()> {
        for _ in 0..DATAGRAMS_A_TURN {
            match self.socket.recv(buffer) {
                Ok(bytes) => {
                    let datagram = buffer.get(..bytes).unwrap_or_default();
                    if let Ok(reply) = Reply::decode(datagram) {
                        self.step(self.now(), MachineInput::Reply(reply), on);
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    // Nobody listens there now; the machine sends again.
                    ErrorKind::Interrupted
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn serve_stream(&mut self, on: &mut impl FnMut(Event<'_>)) {
        if let Some(mut stream) = self.stream.take() {
            let now = self.now();
            let read = stream.receive(|reply| self.step(now, MachineInput::Reply(reply), on));
            match read {
                Ok(()) => self.stream = Some(stream),
                Err(_) => self.step(now, MachineInput::StreamLost, on),
            }
        }
        let mut waiting = std::mem::take(&mut self.for_stream);
        for sent in waiting.drain(..) {
            let _ = self.feed(&sent); // it was written before, so it can be written again
        }
        self.for_stream = waiting;
        if self
            .stream
            .as_mut()
            .is_some_and(|stream| stream.flush().is_err())
        {
            self.stream = None;
            self.step(self.now(), MachineInput::StreamLost, on);
        }
    }

    fn step(&mut self, now: Instant, input: MachineInput<'_>, on: &mut impl FnMut(Event<'_>)) {
        let Self {
            machine,
            frames,
            batch,
            for_stream,
            ..
        } = self;
        machine.step(now, input, &mut |output| match output {
            MachineOutput::Send(head) => {
                let _ = batch.push(&bare(head)); // made by the machine, so it can be written
            }
            MachineOutput::Transmit(sent) if sent.by_stream => for_stream.push(sent),
            MachineOutput::Transmit(sent) => {
                // It was written before, so it can be written again.
                let _ = request(frames, &sent).and_then(|request| batch.push(&request));
            }
            MachineOutput::Tell(event) => on(event),
            MachineOutput::Open => {}
        });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// A slot's request as it is sent now.
fn request<'a>(frames: &'a [KeptRequest], sent: &Transmission) -> Result<Request<'a>, Malformed> {
    let frame = frames
        .get(usize::from(sent.slot))
        .ok_or(Malformed::Sequence)?;
    let (key, value) = frame
        .body
        .split_at_checked(frame.key_bytes)
        .ok_or(Malformed::Length)?;
    if key.len() > Key::BYTES_MAX {
        return Err(Malformed::Key);
    }
    Ok(Request {
        head: Head {
            session: sent.session,
            slot: sent.slot,
            sequence: sent.sequence,
            stamp: sent.stamp,
            ..frame.head
        },
        key: Key::new(key).ok(),
        value,
    })
}

/// A request without key and value.
fn bare(head: Head) -> Request<'static> {
    Request {
        head,
        key: None,
        value: &[],
    }
}

/// Sessions are the link's own business.
pub(crate) fn check(command: &Command<'_>) -> Result<(), ClientError> {
    match command.opcode {
        Opcode::Hello | Opcode::Confirm | Opcode::Close => {
            Err(ClientError::Command(Malformed::Opcode))
        }
        _ if command.bytes() > FRAME_BYTES_MAX => Err(ClientError::Command(Malformed::TooLarge)),
        _ => Ok(()),
    }
}

fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(local)?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Longer than any datagram of the protocol, so that one that is too long is seen to be.
const BUFFER_BYTES: usize = 4096;
/// Datagrams received before time is looked at again: every slot's answer, twice.
const DATAGRAMS_A_TURN: usize = 2 * SLOTS as usize;
/// Longest frame, in bytes.
const FRAME_BYTES_MAX: usize =
    HEADER_BYTES + Key::BYTES_MAX + curtail_codec::native::VALUE_BYTES_MAX as usize;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// An open session over a socket that nobody answers; no stream can be opened.
    fn link_without_streams(config: Config) -> Link {
        let deaf = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = connect(deaf.local_addr().unwrap()).unwrap();
        let nowhere = SocketAddr::from((Ipv4Addr::BROADCAST, 1));
        let mut link = Link::with(nowhere, socket, config);
        let mut head = None;
        for _ in 0..2 {
            let now = link.now();
            link.machine.step(now, MachineInput::Tick, &mut |output| {
                if let MachineOutput::Send(sent) = output {
                    head = Some(sent);
                }
            });
            let (nonce, stamp) = head.map(|head: Head| (head.argument, head.stamp)).unwrap();
            let cookie = Reply::Cookie {
                nonce,
                cookie: 7,
                stamp,
            };
            link.step(now, MachineInput::Reply(cookie), &mut |_| {});
            let grant = Reply::Grant(Grant {
                session: curtail_codec::native::Session::default(),
                nonce,
                stamp,
                incarnation: 1,
                slots: SLOTS,
                queues: 1,
                credits: 64,
                lease_ms: 60_000,
                datagram_bytes_max: 1400,
            });
            link.step(now, MachineInput::Reply(grant), &mut |_| {});
        }
        assert!(link.grant().is_some());
        link
    }

    /// Goal: each request's end is told, also one that comes while another finds no stream. Method:
    /// the first write's patience is over when a large one is submitted.
    #[test]
    fn an_end_is_told_while_no_stream_can_be_opened() {
        let config = Config {
            patience: Duration::from_millis(20),
            ..Config::default()
        };
        let mut link = link_without_streams(config);
        link.submit(&Command::set(b"k", b"v").marked(), 1).unwrap();
        std::thread::sleep(2 * config.patience);
        let large = [b'v'; 10_000];
        link.submit(&Command::set(b"k", &large).marked(), 2)
            .unwrap();
        let mut ended = Vec::new();
        while link.machine.outstanding() > 0 {
            let patience = Duration::from_millis(5);
            link.turn(patience, &mut |event| ended.extend(event.ticket()))
                .unwrap();
        }
        assert_eq!(ended, [1, 2]);
    }

    /// Goal: nothing follows a close. Method: a write is under way; whatever time passes and the
    /// server repeats, the session is not opened again, and the write not sent in another one.
    #[test]
    fn nothing_follows_a_close() {
        let mut link = link_without_streams(Config::default());
        link.submit(&Command::set(b"k", b"v").marked(), 1).unwrap();
        let grant = *link.grant().unwrap();
        link.close();
        let inputs = [MachineInput::Tick, MachineInput::Reply(Reply::Grant(grant))];
        for (seconds, input) in (0..20).zip(inputs.into_iter().cycle()) {
            let now = Instant {
                ns: link.now().ns + seconds * 1_000_000_000,
            };
            let emit = &mut |output: MachineOutput<'_>| panic!("{output:?}");
            link.machine.step(now, input, emit);
        }
        assert_eq!((link.machine.outstanding(), link.deadline()), (0, None));
    }

    /// Goal: a request that is not submitted has no slot, so that nothing is told of it later.
    /// Method: the socket takes nothing; a request fills the batch, which is sent at once then.
    #[test]
    fn a_request_is_submitted_although_the_socket_fails() {
        let mut link = link_without_streams(Config::default());
        rustix::net::shutdown(&link.socket, rustix::net::Shutdown::Write).unwrap();
        let submitted = (0..64).filter(|ticket| link.submit(&Command::get(b"k"), *ticket).is_ok());
        assert_eq!(submitted.count(), 64);
        assert_eq!(link.machine.outstanding(), 64);
        assert!(link.turn(Duration::ZERO, &mut |_| {}).is_err());
    }
}
