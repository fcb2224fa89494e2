//! Connections of the text protocols: one stream and one pipeline each.

use std::{collections::VecDeque, time::Duration};

use super::{
    Clock, Plan,
    framer::{Framer, LINE_BYTES_MAX},
    generated_when_due::Connections,
    request_accounting::{Answer, Desk, Pending},
    socket::{Poller, Ready, Socket},
};
use crate::error::LoadError;

/// The streams of a thread.
pub(super) struct Streams {
    streams: Vec<Stream>,
    poller: Poller,
    buffer: Vec<u8>,
}

struct Stream {
    socket: Socket,
    output: Vec<u8>,
    written: usize,
    under_way: VecDeque<Pending>,
    framer: Framer,
}

/// Bytes received at a time.
const BUFFER_BYTES: usize = 64 << 10;

impl Streams {
    pub(super) fn open(plan: &Plan, thread: usize) -> Result<Self, LoadError> {
        let poller = Poller::new()?;
        let stream = |socket| Stream {
            socket,
            output: Vec::new(),
            written: 0,
            under_way: VecDeque::with_capacity(plan.pipeline + 1),
            framer: Framer::keeping_bodies(plan.load.verify),
        };
        let sockets = plan.connect(&poller, thread)?;
        Ok(Self {
            streams: sockets.into_iter().map(stream).collect(),
            poller,
            buffer: vec![0; BUFFER_BYTES],
        })
    }
}

impl Connections for Streams {
    fn count(&self) -> usize {
        self.streams.len()
    }

    fn load(&self, index: usize) -> usize {
        self.streams[index].under_way.len()
    }

    #[inline]
    fn push(&mut self, index: usize, pending: Pending, now_ns: u64, desk: &Desk, clock: &Clock) {
        self.streams[index].push(pending, now_ns, desk, clock);
    }

    fn flush(&mut self, index: usize, _: &Desk, _: &Clock) -> Result<(), LoadError> {
        let stream = &mut self.streams[index];
        if stream.output.is_empty() {
            return Ok(());
        }
        let rest = &stream.output[stream.written..];
        stream.written += self.poller.write(&mut stream.socket, rest)?;
        if stream.written == stream.output.len() {
            stream.output.clear();
            stream.written = 0;
        }
        Ok(())
    }

    fn wait(&mut self, patience: Duration) -> Result<usize, LoadError> {
        self.poller.wait(patience)
    }

    fn ready(&self, number: usize) -> Ready {
        self.poller.ready(number)
    }

    fn receive(&mut self, index: usize, desk: &mut Desk, clock: &Clock) -> Result<u64, LoadError> {
        let stream = &mut self.streams[index];
        debug_assert!(self.buffer.len() > LINE_BYTES_MAX);
        let kept = stream.framer.restore(&mut self.buffer);
        let received = stream.socket.read(&mut self.buffer[kept..])?;
        let now_ns = clock.now_ns();
        let input = &self.buffer[..kept + received];
        stream.take_replies(input, now_ns, desk, clock)?;
        Ok(now_ns)
    }

    fn drain(&mut self) -> Vec<Pending> {
        let streams = self.streams.iter_mut();
        streams.flat_map(|one| one.under_way.drain(..)).collect()
    }
}

impl Stream {
    /// Words a request; the caller flushes.
    #[inline]
    fn push(&mut self, mut pending: Pending, now_ns: u64, desk: &Desk, clock: &Clock) {
        desk.begins(&mut pending, now_ns, clock);
        let (request, version) = (&pending.request, pending.proof.version);
        let output = &mut self.output;
        desk.wording.put(request, version, pending.token, output);
        self.under_way.push_back(pending);
    }

    fn take_replies(
        &mut self,
        mut input: &[u8],
        now_ns: u64,
        desk: &mut Desk,
        clock: &Clock,
    ) -> Result<(), LoadError> {
        let protocol = desk.wording.protocol;
        while !input.is_empty() {
            let Some(&pending) = self.under_way.front() else {
                return Err(LoadError::Protocol("a reply that nobody asked for".into()));
            };
            let verb = pending.request.verb;
            let Some(reply) = self.framer.next(protocol, verb, &mut input) else {
                break;
            };
            self.under_way.pop_front();
            let answer = Answer {
                reply,
                value: self.framer.value(reply),
                is_accepted: false,
                is_unknown: false,
            };
            if let Some(next) = desk.answered(&pending, &answer, now_ns) {
                self.push(next, now_ns, desk, clock);
            }
        }
        match self.framer.keep(input) {
            true => Ok(()),
            false => Err(LoadError::Protocol("a line that is too long".into())),
        }
    }
}
