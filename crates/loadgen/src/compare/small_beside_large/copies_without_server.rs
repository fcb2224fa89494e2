//! Copies of large values without a server: what threads that move as many bytes do to small
//! requests.
//!
//! Towards the driver of large requests this stands in for a server: for each connection a thread
//! that steps back as far as that driver does, which answers with as many bytes as a server would,
//! out of as much memory, and does nothing else. What small requests lose beside it no server can
//! save them.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::cpu::{self, StepBack};

/// What answers; ends when it is dropped.
pub(super) struct Transfers {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// The values, one after the other.
struct Values {
    bytes: Vec<u8>,
    each: usize,
}

/// Bytes in one call, as our server sends them.
const CALL_BYTES: usize = 64 << 10;

impl Transfers {
    /// Answers on loopback with one of `values` values of `each` bytes at a time, on `core` or on
    /// any, by threads that step back so far.
    pub(super) fn start(
        values: usize,
        each: usize,
        core: Option<usize>,
        step_back: StepBack,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let bytes = vec![b'v'; values * each];
        let values = Arc::new(Values { bytes, each });
        let stopping = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stopping);
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stops.load(Ordering::Relaxed) {
                    return;
                }
                let values = Arc::clone(&values);
                // The driver finds out if it ended in an error: its reply does not come.
                thread::spawn(move || values.answer(stream, core, step_back));
            }
        });
        Ok(Self {
            address,
            stopping,
            acceptor: Some(acceptor),
        })
    }

    /// Where it listens.
    pub(super) fn target(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // It sleeps in `accept`; a thread that nobody can wake is left behind.
        if TcpStream::connect(self.address).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            let _ = acceptor.join();
        }
    }
}

impl Values {
    fn answer(
        &self,
        mut stream: TcpStream,
        core: Option<usize>,
        step_back: StepBack,
    ) -> io::Result<()> {
        // Elsewhere it would only measure something else.
        let _ = core.map_or(Ok(()), cpu::pin);
        cpu::step_back(step_back);
        stream.set_nodelay(true)?;
        let mut requests = BufReader::with_capacity(CALL_BYTES, stream.try_clone()?);
        let (mut line, mut scratch) = (String::new(), vec![0; CALL_BYTES]);
        let mut which = 0;
        while requests.read_line(&mut line)? > 0 {
            let mut words = line.split_ascii_whitespace();
            if words.next() == Some("get") {
                let key = words.next().unwrap_or_default();
                write!(stream, "VALUE {key} 0 {}\r\n", self.each)?;
                let from = which * self.each % self.bytes.len();
                for part in self.bytes[from..from + self.each].chunks(CALL_BYTES) {
                    stream.write_all(part)?;
                }
                stream.write_all(b"\r\nEND\r\n")?;
                which += 1;
            } else {
                let bytes = words.next_back().and_then(|bytes| bytes.parse().ok());
                let bytes: usize = bytes.ok_or(io::ErrorKind::InvalidData)?;
                let mut left = bytes + "\r\n".len();
                while left > 0 {
                    let part = left.min(scratch.len());
                    requests.read_exact(&mut scratch[..part])?;
                    left -= part;
                }
                stream.write_all(b"STORED\r\n")?;
            }
            line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: it answers what the driver of large requests counts on, and ends. Method: a write and
    /// two reads on one connection.
    #[test]
    fn as_many_bytes_are_answered_as_a_server_would() {
        let transfers = Transfers::start(2, 100_000, None, StepBack::Last).unwrap();
        let mut stream = TcpStream::connect(transfers.target()).unwrap();
        stream.write_all(b"set k 0 0 5\r\nabcde\r\n").unwrap();
        let mut stored = [0; 8];
        stream.read_exact(&mut stored).unwrap();
        assert_eq!(&stored, b"STORED\r\n");
        for _ in 0..3 {
            stream.write_all(b"get k\r\n").unwrap();
            let mut reply = vec![0; "VALUE k 0 100000\r\n".len() + 100_000 + 7];
            stream.read_exact(&mut reply).unwrap();
            assert!(reply.starts_with(b"VALUE k 0 100000\r\nvv"));
            assert!(reply.ends_with(b"vv\r\nEND\r\n"));
        }
        drop(transfers);
    }
}
