//! A server and clients for tests.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use curtail_server::{Config, Listen, Server};

/// The longest that any single wait may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A configuration for a test: one worker, not pinned, a port of its own.
pub(crate) fn config() -> Config {
    Config {
        listen: vec![Listen {
            address: "127.0.0.1:0".parse().unwrap(),
            optional: false,
        }],
        workers: 1,
        pin: false,
        ..Config::default()
    }
}

/// Starts a server whose `shutdown` requests go nowhere.
pub(crate) fn start(config: Config) -> Server {
    Server::start(config, |_| ()).unwrap()
}

/// A path in the temporary folder that no other test uses.
pub(crate) fn temporary_path(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("curtail-{}-{number}-{name}", std::process::id()))
}

/// A client with patience.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
    /// Where what was not taken yet begins in `received`.
    taken: usize,
    chunk: Box<[u8]>,
}

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

impl Client {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::connect_to(server.addresses()[0])
    }

    pub(crate) fn connect_to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            received: Vec::new(),
            taken: 0,
            chunk: vec![0; CHUNK_BYTES].into(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends and demands exactly this answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>, answer: &str) {
        self.send(request);
        self.expect(answer);
    }

    /// Demands exactly these bytes next.
    #[track_caller]
    pub(crate) fn expect(&mut self, answer: impl AsRef<[u8]>) {
        let answer = answer.as_ref();
        let got = self.take(answer.len());
        assert!(
            got == answer,
            "expected {:?}, got {:?}",
            shown(answer),
            shown(&got)
        );
    }

    /// The next `length` bytes, or fewer when the server closes or nothing comes.
    pub(crate) fn take(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() - self.taken < length && self.receive() {}
        let end = self.received.len().min(self.taken.saturating_add(length));
        let taken = self.received[self.taken..end].to_vec();
        self.taken = end;
        taken
    }

    /// Receives more; false if there is nothing to come.
    fn receive(&mut self) -> bool {
        self.received.drain(..std::mem::take(&mut self.taken));
        let Ok(bytes @ 1..) = self.stream.read(&mut self.chunk) else {
            return false;
        };
        self.received.extend_from_slice(&self.chunk[..bytes]);
        true
    }

    /// The next line, without its end.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut looked = self.taken;
        loop {
            let found = self.received[looked..]
                .iter()
                .position(|&byte| byte == b'\n');
            if let Some(end) = found {
                let line = &self.received[self.taken..looked + end];
                let line = String::from_utf8_lossy(line).trim_end().to_owned();
                self.taken = looked + end + 1;
                return line;
            }
            looked = self.received.len() - self.taken;
            let more = self.receive();
            assert!(more, "no line: {:?}", shown(&self.received));
        }
    }

    /// Whether the server closes the connection without another word.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let rest = self.take(usize::MAX);
        assert!(rest.is_empty(), "before the end came {:?}", shown(&rest));
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("not closed: {other:?}"),
        }
    }

    /// One number of `stats <topic>`.
    #[track_caller]
    pub(crate) fn stat(&mut self, topic: &str, name: &str) -> u64 {
        self.send(format!("stats {topic}\r\n"));
        let mut value = None;
        loop {
            let line = self.line();
            if line == "END" {
                return value.unwrap_or_else(|| panic!("no {name} in stats {topic}"));
            }
            let mut words = line.split(' ').skip(1);
            if words.next() == Some(name) {
                value = words.next().and_then(|word| word.parse().ok());
            }
        }
    }
}

/// Waits until `is` holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says that a test is over when it goes out of scope, whether that went well or not: threads that
/// wait for it end.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What the admin port answers to a request line.
pub(crate) fn http(server: &Server, line: &str) -> String {
    let mut stream = TcpStream::connect(server.admin_address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What a server asked of its control thread.
pub(crate) type Asked = Arc<Mutex<Vec<curtail_runtime::ControlEvent>>>;

/// Starts a server and records its requests to stop.
pub(crate) fn start_recording(config: Config) -> (Server, Asked) {
    let asked = Asked::default();
    let record = Arc::clone(&asked);
    let server = Server::start(config, move |event| record.lock().unwrap().push(event)).unwrap();
    (server, asked)
}

fn shown(bytes: &[u8]) -> String {
    let text: String = bytes.escape_ascii().to_string();
    text.chars().take(300).collect()
}
