//! A client of memcached's protocols that fails the test at an unexpected reply.

use std::{
    fmt::Display,
    io::{ErrorKind, Read},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use curtail_client::memcached::Connection;
use curtail_server::Server;

use crate::{PATIENCE, eventually};

/// A client with patience.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// A client of a server in this process.
    pub fn connect(server: &Server) -> Self {
        Self::connect_to(server.addresses()[0])
    }

    /// A client of the server at `address`, as soon as one listens there.
    #[track_caller]
    pub fn connect_to(address: SocketAddr) -> Self {
        let mut connected = None;
        eventually("somebody listens", || {
            connected = Connection::to(address, PATIENCE).ok();
            connected.is_some()
        });
        let connection = connected.unwrap();
        Self { connection }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        self.connection.stream()
    }

    /// Waits no longer than this for the server from now on.
    pub fn set_patience(&self, patience: Duration) {
        self.stream().set_read_timeout(Some(patience)).unwrap();
    }

    /// Sends these bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.connection.send(bytes).unwrap();
    }

    /// The next line, without its end.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.connection.line().unwrap()
    }

    /// Sends a request and returns the first line of its reply.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> String {
        self.connection.ask(request).unwrap()
    }

    /// Sends a request and demands exactly this answer.
    #[track_caller]
    pub fn demand(&mut self, request: impl AsRef<[u8]>, answer: impl AsRef<[u8]>) {
        let request = request.as_ref();
        self.send(request);
        self.demand_next(answer.as_ref(), request);
    }

    /// Sets a key, with flags 0.
    #[track_caller]
    pub fn set(&mut self, key: impl Display, value: impl AsRef<[u8]>) {
        self.demand(set(key, 0, value), "STORED\r\n");
    }

    /// Demands that a key has this value, with flags 0.
    #[track_caller]
    pub fn demand_value(&mut self, key: impl Display, value: impl AsRef<[u8]>) {
        self.demand(format!("get {key}\r\n"), hit(&key, 0, value));
    }

    /// Demands exactly these bytes next.
    #[track_caller]
    pub fn expect(&mut self, answer: impl AsRef<[u8]>) {
        self.demand_next(answer.as_ref(), b"what was sent before");
    }

    /// Reads as long as it may be the answer, so that a short refusal is shown at once.
    #[track_caller]
    fn demand_next(&mut self, answer: &[u8], request: &[u8]) {
        let mut got = vec![0; answer.len()];
        let mut filled = 0;
        while filled < got.len() && answer.starts_with(&got[..filled]) {
            match self.connection.read(&mut got[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(bytes) => filled += bytes,
            }
        }
        let got = &got[..filled];
        assert!(
            got == answer,
            "expected {}, got {} to {}",
            shown(answer),
            shown(got),
            shown(request)
        );
    }

    /// The next `length` bytes, or fewer when the server closes or nothing comes.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        // What came before an error is what there is.
        let _ = (&mut self.connection)
            .take(length as u64)
            .read_to_end(&mut taken);
        taken
    }

    /// Demands that the server closes the connection without another word.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        match self.connection.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("not closed: {other:?}"),
        }
    }

    /// The value of a key.
    #[track_caller]
    pub fn get(&mut self, key: &str) -> Option<String> {
        match self.ask(format!("mg {key} v\r\n")).as_str() {
            "EN" => None,
            head => {
                assert!(head.starts_with("VA "), "{head}");
                Some(self.line())
            }
        }
    }

    /// All rows of `stats KIND`.
    #[track_caller]
    pub fn rows(&mut self, kind: &str) -> Vec<(String, String)> {
        self.connection.stats(kind).unwrap()
    }

    /// One value of `stats KIND`.
    #[track_caller]
    pub fn row(&mut self, kind: &str, name: &str) -> String {
        let mut rows = self.rows(kind).into_iter();
        let row = rows.find(|(of, _)| of == name);
        row.unwrap_or_else(|| panic!("no {name} in stats {kind}")).1
    }

    /// One number of `stats KIND`.
    #[track_caller]
    pub fn stat(&mut self, kind: &str, name: &str) -> u64 {
        self.row(kind, name).parse().unwrap()
    }

    /// Waits until `stats KIND` has this value.
    #[track_caller]
    pub fn await_stat(&mut self, kind: &str, name: &str, value: u64) {
        eventually(name, || self.stat(kind, name) == value);
    }
}

/// The request that sets a key.
pub fn set(key: impl Display, flags: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let head = format!("set {key} {flags} 0 {}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

/// The answer to a `get` of a key.
pub fn hit(key: impl Display, flags: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let head = format!("VALUE {key} {flags} {}\r\n", value.len());
    [head.as_bytes(), value, b"\r\nEND\r\n"].concat()
}

fn shown(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    text.chars().take(300).collect()
}
