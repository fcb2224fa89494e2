//! A server with the native path, and clients for tests that speak the protocol byte by byte, so
//! that nothing stands between a test and what is sent.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use curtail_codec::native::{
    DATAGRAM_BYTES_MAX, ErrorCode, Flags, Grant, HEADER_BYTES, Head, NackReason, Opcode, Reply,
    Request, Session, Status,
};
use curtail_server::{Config, NativeConfig, NativeMode, Server};
use curtail_testing::{PATIENCE, connect, native_address, native_config, start};
use curtail_types::Key;

/// After so long without an answer the same bytes are sent again.
pub(crate) const RESEND: Duration = Duration::from_millis(30);

/// What tests start, with changes to its native part.
pub(crate) fn config_with(mode: NativeMode, change: impl FnOnce(&mut NativeConfig)) -> Config {
    let mut config = native_config(mode);
    change(config.native.as_mut().unwrap());
    config
}

/// A request to be sent: everything but the session's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) flags: Flags,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) exptime: u32,
    pub(crate) item_flags: u32,
    pub(crate) argument: u64,
}

impl<'a> Ask<'a> {
    pub(crate) const fn new(opcode: Opcode, key: &'a [u8]) -> Self {
        Self {
            opcode,
            flags: Flags::NONE,
            key,
            value: b"",
            exptime: 0,
            item_flags: 0,
            argument: 0,
        }
    }

    pub(crate) const fn get(key: &'a [u8]) -> Self {
        Self::new(Opcode::Get, key)
    }

    pub(crate) const fn set(key: &'a [u8], value: &'a [u8]) -> Self {
        Self::store(Opcode::Set, key, value)
    }

    /// A request that brings a value.
    pub(crate) const fn store(opcode: Opcode, key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            value,
            ..Self::new(opcode, key)
        }
    }

    /// The same, marked.
    pub(crate) const fn nilext(self) -> Self {
        let flags = match self.opcode {
            Opcode::Set => Flags::NILEXT,
            _ => Flags::NILEXT.with(Flags::WAIVE_RESULT),
        };
        Self { flags, ..self }
    }

    pub(crate) const fn argument(self, argument: u64) -> Self {
        Self { argument, ..self }
    }

    /// The bytes in a session.
    pub(crate) fn bytes(&self, session: Session, slot: u8, sequence: u64) -> Vec<u8> {
        let head = Head {
            slot,
            sequence,
            exptime: self.exptime,
            item_flags: self.item_flags,
            argument: self.argument,
            stamp: sequence as u32,
            ..Head::new(self.opcode, self.flags, session)
        };
        let key = (!self.key.is_empty()).then(|| Key::new(self.key).unwrap());
        let request = Request {
            head,
            key,
            value: self.value,
        };
        let mut bytes = vec![0; 64 + self.key.len() + self.value.len()];
        let length = request.encode(&mut bytes).unwrap();
        assert_eq!(length, bytes.len());
        bytes
    }
}

/// A reply that owns its bytes.
#[derive(Clone)]
pub(crate) struct Answer(pub(crate) Vec<u8>);

impl Answer {
    pub(crate) fn reply(&self) -> Reply<'_> {
        Reply::decode(&self.0).unwrap()
    }

    /// The status and the value of a result.
    #[track_caller]
    pub(crate) fn result(&self) -> (Status, Vec<u8>) {
        match self.reply() {
            Reply::Result { status, value, .. } => (status, value.to_vec()),
            other => panic!("no result: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Status {
        self.result().0
    }

    #[track_caller]
    pub(crate) fn number(&self) -> u64 {
        match self.reply() {
            Reply::Result {
                number,
                status: Status::Done,
                ..
            } => number,
            other => panic!("no number: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn version(&self) -> u64 {
        match self.reply() {
            Reply::Result { version, .. } => version,
            other => panic!("no result: {other:?}"),
        }
    }

    /// The position of an acknowledgement.
    #[track_caller]
    pub(crate) fn accepted(&self) -> u64 {
        match self.reply() {
            Reply::Ack(ack) => ack.place.pos,
            other => panic!("not acknowledged: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn error(&self) -> ErrorCode {
        match self.reply() {
            Reply::Error(error) => {
                assert_eq!(self.0.len(), 64);
                error.code
            }
            other => panic!("no error: {other:?}"),
        }
    }

    pub(crate) fn nack(&self) -> Option<NackReason> {
        match self.reply() {
            Reply::Nack(nack) => Some(nack.reason),
            _ => None,
        }
    }

    pub(crate) fn slot_and_sequence(&self) -> (u8, u64) {
        let echo = match self.reply() {
            Reply::Ack(ack) => ack.echo,
            Reply::Nack(nack) => nack.echo,
            Reply::Pong { echo, .. } | Reply::Result { echo, .. } => echo,
            Reply::Error(error) => error.echo,
            Reply::Cookie { .. } | Reply::Grant(_) => return (0, 0),
        };
        (echo.slot, echo.sequence)
    }
}

/// Starts a server, with a client.
pub(crate) fn serve(config: Config) -> (Server, Client) {
    let server = start(config);
    let client = Client::connect(&server);
    (server, client)
}

/// A client with a session.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) socket: UdpSocket,
    pub(crate) to: SocketAddr,
    pub(crate) grant: Grant,
    sequences: [u64; 64],
}

impl Client {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::connect_to(native_address(server))
    }

    pub(crate) fn connect_to(to: SocketAddr) -> Self {
        Self::over(socket_towards(to), to)
    }

    /// One that takes answers only from where it sends to.
    pub(crate) fn connect_strictly(to: SocketAddr) -> Self {
        let socket = socket_towards(to);
        socket.connect(to).unwrap();
        Self::over(socket, to)
    }

    fn over(socket: UdpSocket, to: SocketAddr) -> Self {
        let grant = handshake(&socket, to, nonce());
        Self::with(socket, to, grant.unwrap())
    }

    /// One whose session was granted to this socket.
    pub(crate) const fn with(socket: UdpSocket, to: SocketAddr, grant: Grant) -> Self {
        Self {
            socket,
            to,
            grant,
            sequences: [0; 64],
        }
    }

    pub(crate) fn next(&mut self, slot: u8) -> u64 {
        let sequence = &mut self.sequences[usize::from(slot)];
        *sequence += 1;
        *sequence
    }

    /// The bytes of a new request in `slot`.
    pub(crate) fn bytes(&mut self, slot: u8, ask: Ask<'_>) -> Vec<u8> {
        let sequence = self.next(slot);
        ask.bytes(self.grant.session, slot, sequence)
    }

    /// Asks in slot 0, sending again until there is an answer; what is refused for now is asked
    /// again.
    #[track_caller]
    pub(crate) fn ask(&mut self, ask: Ask<'_>) -> Answer {
        let bytes = self.bytes(0, ask);
        self.exchange(&bytes)
    }

    /// Changes a key with a marked request, and returns the position of its acknowledgement.
    #[track_caller]
    pub(crate) fn accept(&mut self, ask: Ask<'_>) -> u64 {
        self.ask(ask.nilext()).accepted()
    }

    /// The error that answers these bytes, sent again until there is an answer.
    #[track_caller]
    pub(crate) fn error(&self, bytes: &[u8]) -> ErrorCode {
        exchange(&self.socket, self.to, bytes).error()
    }

    /// Sets a key with a marked request, and returns the position of its acknowledgement.
    #[track_caller]
    pub(crate) fn write(&mut self, key: &[u8], value: &[u8]) -> u64 {
        self.accept(Ask::set(key, value))
    }

    #[track_caller]
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Answer {
        let started = Instant::now();
        loop {
            self.socket.send_to(bytes, self.to).unwrap();
            if let Some(answer) = self.receive_for(bytes) {
                if answer.nack().is_none() {
                    return answer;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(started.elapsed() < PATIENCE, "no answer");
        }
    }

    /// The answer to these bytes, if it comes soon.
    pub(crate) fn receive_for(&self, bytes: &[u8]) -> Option<Answer> {
        let head = Head::decode(bytes).unwrap();
        loop {
            let answer = self.receive()?;
            if answer.slot_and_sequence() == (head.slot, head.sequence) {
                return Some(answer);
            }
        }
    }

    /// Whatever comes next, if it comes soon.
    pub(crate) fn receive(&self) -> Option<Answer> {
        receive(&self.socket)
    }

    #[track_caller]
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let (status, value) = self.ask(Ask::get(key)).result();
        match status {
            Status::Value => Some(value),
            Status::NotFound => None,
            other => panic!("{other:?}"),
        }
    }
}

/// A stream of a client's session.
pub(crate) struct Line(TcpStream);

impl Line {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::connect_to(native_address(server))
    }

    pub(crate) fn connect_to(to: SocketAddr) -> Self {
        Self(connect(to, PATIENCE).unwrap())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let mut frame = vec![0; HEADER_BYTES];
        self.0.read_exact(&mut frame).unwrap();
        if frame[3] == 134 {
            frame.resize(88, 0);
            self.0.read_exact(&mut frame[64..]).unwrap();
            let bytes = u32::from_le_bytes(frame[80..84].try_into().unwrap()) as usize;
            frame.resize(88 + bytes, 0);
            self.0.read_exact(&mut frame[88..]).unwrap();
        }
        Answer(frame)
    }

    pub(crate) fn exchange(&mut self, bytes: &[u8]) -> Answer {
        self.send(bytes);
        self.answer()
    }

    pub(crate) fn ask(&mut self, client: &mut Client, ask: Ask<'_>) -> Answer {
        let bytes = client.bytes(0, ask);
        self.exchange(&bytes)
    }

    pub(crate) fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = self.0.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{} bytes", rest.len());
    }
}

pub(crate) fn socket() -> UdpSocket {
    socket_at(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// A socket that reaches `to`.
pub(crate) fn socket_towards(to: SocketAddr) -> UdpSocket {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    match to.ip().is_loopback() {
        true => socket(),
        false => socket_at(any),
    }
}

pub(crate) fn socket_at(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(RESEND)).unwrap();
    socket
}

pub(crate) fn nonce() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn receive(socket: &UdpSocket) -> Option<Answer> {
    let mut buffer = [0; DATAGRAM_BYTES_MAX + 100];
    let bytes = socket.recv(&mut buffer).ok()?;
    Some(Answer(buffer[..bytes].to_vec()))
}

/// Sends until there is an answer.
#[track_caller]
pub(crate) fn exchange(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> Answer {
    let started = Instant::now();
    loop {
        socket.send_to(bytes, to).unwrap();
        if let Some(answer) = receive(socket) {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "no answer");
    }
}

/// HELLO and CONFIRM.
#[track_caller]
pub(crate) fn handshake(
    socket: &UdpSocket,
    to: SocketAddr,
    nonce: u64,
) -> Result<Grant, ErrorCode> {
    let hello = Ask::new(Opcode::Hello, b"").argument(nonce);
    let answer = exchange(socket, to, &hello.bytes(Session::default(), 0, 0));
    let Reply::Cookie { cookie, .. } = answer.reply() else {
        panic!("no cookie: {:?}", answer.reply());
    };
    let session = Session {
        token: cookie,
        ..Session::default()
    };
    let confirm = Ask::new(Opcode::Confirm, b"").argument(nonce);
    let bytes = confirm.bytes(session, 0, 0);
    loop {
        let answer = exchange(socket, to, &bytes);
        match answer.reply() {
            Reply::Grant(grant) => return Ok(grant),
            Reply::Error(error) => return Err(error.code),
            Reply::Cookie { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
