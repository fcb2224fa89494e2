//! A driver of large requests that costs next to nothing.
//!
//! It runs on the servers' core, at the lowest priority: on the core of the driver that measures
//! small requests, whatever it takes would look like the server's tail. Replies are discarded in
//! the kernel (`MSG_TRUNC`). Its own latencies are not measured.

use std::{
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use curtail_workload::Random;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv, sockopt::set_socket_recv_buffer_size},
};

use crate::{cpu, error::LoadError, exchange, load::Load};

/// Large requests in open loop.
pub(super) struct Large {
    pub(super) load: Load,
    /// Requests a second over all connections.
    pub(super) rate: f64,
    pub(super) core: usize,
}

/// Connections, each with a thread.
const CONNECTIONS: usize = 16;

/// What a connection takes before its thread has looked: a reply of 500 KB goes out at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A silent server is given up after this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest time until a thread notices that it is to stop.
const LOOK: Duration = Duration::from_millis(20);

impl Large {
    /// Sends to `target` until `stop` is set; returns how many requests were answered.
    pub(super) fn drive(&self, target: &str, stop: &AtomicBool) -> Result<u64, LoadError> {
        std::thread::scope(|scope| {
            let one = |index| scope.spawn(move || self.connection(target, index, stop));
            let threads: Vec<_> = (0..CONNECTIONS).map(one).collect();
            let panicked = |_| LoadError::Server("a driver of large requests panicked".into());
            let answered = threads.into_iter().map(|thread| thread.join());
            answered.map(|one| one.map_err(panicked)?).sum()
        })
    }

    /// One connection: a Poisson process of its share of the rate.
    fn connection(&self, target: &str, index: usize, stop: &AtomicBool) -> Result<u64, LoadError> {
        cpu::pin(self.core)?;
        cpu::step_back();
        let doing = || LoadError::network("asking for large values");
        let mut stream = exchange::connect(target)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(doing())?;
        set_socket_recv_buffer_size(&stream, BUFFER_BYTES)
            .map_err(|error| doing()(error.into()))?;
        let wording = self.load.wording();
        let mut asker = self.load.asker(1, index, CONNECTIONS);
        let mut gaps = Random::of_stream(2, index as u64);
        let mean_s = CONNECTIONS as f64 / self.rate;
        let (mut request_bytes, mut answered) = (Vec::new(), 0);
        let mut scratch = vec![0; BUFFER_BYTES];
        let mut due = Instant::now();
        loop {
            due += Duration::from_secs_f64(gaps.exponential(mean_s));
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Ok(answered);
                }
                match due.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => break,
                    left => std::thread::sleep(left.min(LOOK)),
                }
            }
            let request = asker.draw(0);
            let Some(reply_bytes) = wording.expected_bytes(&request) else {
                return Err(LoadError::Arguments("replies of unknown length".into()));
            };
            request_bytes.clear();
            wording.put(&request, 0, 0, &mut request_bytes);
            stream.write_all(&request_bytes).map_err(doing())?;
            discard(&stream, reply_bytes, &mut scratch)?;
            answered += 1;
        }
    }
}

/// Takes a reply of this length off the stream without looking at it.
fn discard(stream: &TcpStream, mut left: usize, scratch: &mut [u8]) -> Result<(), LoadError> {
    while left > 0 {
        let room = left.min(scratch.len());
        match recv(stream, &mut scratch[..room], RecvFlags::TRUNC) {
            Ok((_, 0)) => return Err(LoadError::Protocol("the server hung up".into())),
            Ok((_, bytes)) => left -= bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(LoadError::network("receiving")(error.into())),
        }
    }
    Ok(())
}
