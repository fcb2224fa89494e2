//! A driver of large requests that uses almost no processor time.
//!
//! It runs on the servers' core, behind all others: on the core of the driver that measures small
//! requests, whatever it takes would look like the server's tail. A thread is woken once for a
//! reply, when all of it is there (`SO_RCVLOWAT`; woken for each part it took the core from the
//! servers as often), and discards it in the kernel (`MSG_TRUNC`). Its own latencies are not
//! measured.

use std::{
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use curtail_runtime::wait_for_bytes;
use curtail_workload::Random;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, recv},
};

use crate::{
    blocking_connection,
    cpu::{self, StepBack},
    error::LoadError,
    request_source::Load,
};

/// Large requests in open loop.
pub(super) struct Large {
    pub(super) load: Load,
    /// Requests a second over all connections.
    pub(super) rate: f64,
    /// Where its threads stay; any core if none.
    pub(super) core: Option<usize>,
    pub(super) step_back: StepBack,
}

/// Connections, each with a thread.
const CONNECTIONS: usize = 16;

/// A whole reply at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A silent server is given up after this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes in one call: many kernels let nobody in between while they copy.
const CALL_BYTES: usize = 64 << 10;

impl Large {
    /// Sends to `target` until `stop` is set and this thread unparked; returns how many requests
    /// were answered.
    pub(super) fn drive(&self, target: &str, stop: &AtomicBool) -> Result<u64, LoadError> {
        thread::scope(|scope| {
            let one = |index| scope.spawn(move || self.connection(target, index, stop));
            let threads: Vec<_> = (0..CONNECTIONS).map(one).collect();
            while !stop.load(Ordering::Relaxed) {
                thread::park();
            }
            for thread in &threads {
                thread.thread().unpark();
            }
            let panicked = |_| LoadError::Server("a driver of large requests panicked".into());
            let answered = threads.into_iter().map(|thread| thread.join());
            answered.map(|one| one.map_err(panicked)?).sum()
        })
    }

    /// One connection: a Poisson process of its share of the rate.
    fn connection(&self, target: &str, index: usize, stop: &AtomicBool) -> Result<u64, LoadError> {
        self.core.map_or(Ok(()), cpu::pin)?;
        cpu::step_back(self.step_back);
        let doing = || LoadError::network("asking for large values");
        let mut stream = blocking_connection::connect(target, None)?.into_stream();
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
                    // Until then, or until it is to stop.
                    left => thread::park_timeout(left),
                }
            }
            let request = asker.draw(0);
            let Some(reply_bytes) = wording.expected_bytes(&request) else {
                return Err(LoadError::Arguments("replies of unknown length".into()));
            };
            request_bytes.clear();
            wording.put(&request, 0, 0, &mut request_bytes);
            for part in request_bytes.chunks(CALL_BYTES) {
                stream.write_all(part).map_err(doing())?;
            }
            discard(&stream, reply_bytes, &mut scratch)?;
            answered += 1;
        }
    }
}

/// Takes a reply of this length off the stream without looking at it, when all of it is there.
fn discard(stream: &TcpStream, mut left: usize, scratch: &mut [u8]) -> Result<(), LoadError> {
    let doing = || LoadError::network("receiving");
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    while left > 0 {
        let room = left.min(scratch.len());
        // Less than was waited for wakes nobody: what is left is waited for anew. A receive that
        // waits would take the first part and then wait for as much again.
        wait_for_bytes(stream, room as i32).map_err(doing())?;
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&patience)) {
            Ok(0) => return Err(LoadError::Server("a large value does not come".into())),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(doing()(error.into())),
        }
        let how = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
        match recv(stream, &mut scratch[..room], how) {
            Ok((_, 0)) => return Err(LoadError::Protocol("the server hung up".into())),
            Ok((_, bytes)) => left -= bytes,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(doing()(error.into())),
        }
    }
    Ok(())
}
