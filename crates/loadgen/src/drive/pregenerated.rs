//! The cheap driver: requests made in advance as blocks of bytes, replies counted by length.
//!
//! A server that answers 3 million requests a second on one core leaves the other core 330 ns a
//! request for the whole client, kernel included. So nothing is drawn, formatted or parsed while
//! the clock runs: a connection sends a block of `pipeline` requests, and when exactly the bytes
//! have come back that all hits and stores would make, the block is answered. Every 64th block,
//! and every one whose length is not as expected (a miss, an error, a cut by the network), is
//! framed reply by reply, so that misses and errors are counted and never hang a connection.
//!
//! ```text
//!   requests  |b0········|b1·······|b2·········|   one arena, read from start to end and again
//!                  ^ next block, for whichever connection is done with its last
//! ```

use std::{collections::VecDeque, time::Duration};

use curtail_workload::Kind;

use super::{
    Clock, Ended, GRACE_NS, Plan,
    framer::{Framer, LINE_BYTES_MAX},
    socket::{Poller, Ready, Socket},
};
use crate::{
    error::LoadError,
    measure::{Class, Operation, Recorder, Times},
    request_source::{Request, Wording},
    text_protocol::Protocol,
};

/// One thread of the cheap driver.
pub(super) struct Pregenerated {
    arena: Arena,
    next_block: usize,
    blocks_answered: u64,
    connections: Vec<Connection>,
    poller: Poller,
    recorder: Recorder,
    buffer: Vec<u8>,
    wording: Wording,
    spin: bool,
}

/// All requests of a thread.
struct Arena {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    /// Command and value length of each request, for the blocks that are framed.
    requests: Vec<(Kind, u32)>,
    /// What each block counts as when all its reads hit and all its changes are made.
    tallies: Vec<(Class, u32)>,
    pipeline: usize,
}

#[derive(Clone, Copy)]
struct Block {
    start: usize,
    end: usize,
    /// Not known where the protocol does not tell.
    reply_bytes: Option<usize>,
    hits: u64,
    stores: u64,
    first_tally: usize,
    tallies: usize,
}

struct Connection {
    socket: Socket,
    block: usize,
    written: usize,
    sent_ns: u64,
    /// Classes of the block's replies that were framed so far.
    framed: Vec<Class>,
    framer: Framer,
}

/// Bytes received at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// An arena stops growing here, whatever the number of requests asked for.
const ARENA_BYTES_MAX: usize = 256 << 20;

/// One block in this many is framed although its length is right; a power of two.
const FRAMED_EVERY: u64 = 64;

impl Arena {
    fn new(
        plan: &Plan,
        thread: usize,
        requests: usize,
        wording: &Wording,
        recorder: &Recorder,
    ) -> Self {
        let mut asker = plan.load.asker(plan.seed, thread, plan.threads);
        let mut arena = Self {
            bytes: Vec::new(),
            blocks: Vec::new(),
            requests: Vec::new(),
            tallies: Vec::new(),
            pipeline: plan.pipeline,
        };
        let mut drawn = VecDeque::new();
        for _ in 0..requests / plan.pipeline {
            while drawn.len() < plan.pipeline {
                let request = asker.draw(0);
                drawn.push_back(request);
                drawn.extend(request.follow_up(true));
            }
            arena.add(drawn.drain(..plan.pipeline), wording, recorder);
            if arena.bytes.len() > ARENA_BYTES_MAX {
                break;
            }
        }
        arena
    }

    fn add(
        &mut self,
        requests: impl Iterator<Item = Request>,
        wording: &Wording,
        recorder: &Recorder,
    ) {
        let mut block = Block {
            start: self.bytes.len(),
            end: 0,
            reply_bytes: Some(0),
            hits: 0,
            stores: 0,
            first_tally: self.tallies.len(),
            tallies: 0,
        };
        for request in requests {
            wording.put(&request, 0, 0, &mut self.bytes);
            self.requests.push((request.verb, request.value_bytes));
            let expected = wording.expected_bytes(&request);
            block.reply_bytes = block.reply_bytes.zip(expected).map(|(sum, own)| sum + own);
            block.hits += u64::from(!request.verb.is_write());
            block.stores += u64::from(request.verb.has_value());
            let class = recorder.class(Operation::hoped(request.verb), request.value_bytes);
            let own = &mut self.tallies[block.first_tally..];
            match own.iter_mut().find(|(other, _)| *other == class) {
                Some((_, count)) => *count += 1,
                None => self.tallies.push((class, 1)),
            }
        }
        block.end = self.bytes.len();
        block.tallies = self.tallies.len() - block.first_tally;
        self.blocks.push(block);
    }

    fn tallies(&self, block: &Block) -> &[(Class, u32)] {
        &self.tallies[block.first_tally..block.first_tally + block.tallies]
    }
}

impl Pregenerated {
    pub(super) fn new(plan: &Plan, thread: usize, requests: usize) -> Result<Self, LoadError> {
        let poller = Poller::new()?;
        let connection = |socket| Connection {
            socket,
            block: 0,
            written: 0,
            sent_ns: 0,
            framed: Vec::with_capacity(plan.pipeline),
            framer: Framer::default(),
        };
        let (wording, recorder) = (plan.load.wording(), plan.recorder()?);
        let arena = Arena::new(plan, thread, requests, &wording, &recorder);
        let sockets = plan.connect(&poller, thread)?;
        Ok(Self {
            arena,
            next_block: 0,
            blocks_answered: 0,
            connections: sockets.into_iter().map(connection).collect(),
            poller,
            recorder,
            buffer: vec![0; BUFFER_BYTES],
            wording,
            spin: plan.spin,
        })
    }

    pub(super) fn run(mut self, clock: &Clock) -> Ended {
        let result = self.drive(clock);
        self.give_up(clock.now_ns());
        clock.ended(result, self.recorder)
    }

    fn drive(&mut self, clock: &Clock) -> Result<(), LoadError> {
        for connection in 0..self.connections.len() {
            self.next(connection, clock.now_ns())?;
        }
        let patience = if self.spin {
            Duration::ZERO
        } else {
            Duration::from_millis(5)
        };
        while clock.now_ns() < clock.end_ns && !clock.is_stopped() {
            for index in 0..self.poller.wait(patience)? {
                let ready = self.poller.ready(index);
                self.serve(ready, clock)?;
            }
        }
        Ok(())
    }

    fn serve(&mut self, ready: Ready, clock: &Clock) -> Result<(), LoadError> {
        if ready.writable {
            self.write(ready.connection)?;
        }
        if !ready.readable {
            return Ok(());
        }
        let connection = &mut self.connections[ready.connection];
        debug_assert!(self.buffer.len() > LINE_BYTES_MAX);
        let kept = connection.framer.restore(&mut self.buffer);
        let received = connection.socket.read(&mut self.buffer[kept..])?;
        let now_ns = clock.now_ns();
        if self.is_as_expected(ready.connection, kept, received) {
            self.count_all(ready.connection, now_ns);
        } else if self.is_framed(ready.connection, kept + received)? {
            self.count_framed(ready.connection, now_ns);
        } else {
            return Ok(());
        }
        self.blocks_answered += 1;
        self.next(ready.connection, now_ns)
    }

    /// Whether the bytes at the buffer's start are a whole block's, by their length; never for the
    /// blocks that are framed as a sample.
    fn is_as_expected(&self, index: usize, kept: usize, received: usize) -> bool {
        let connection = &self.connections[index];
        let block = &self.arena.blocks[connection.block];
        let is_sample = self.blocks_answered.is_multiple_of(FRAMED_EVERY);
        let is_first =
            kept == 0 && connection.framed.is_empty() && connection.framer.is_between_replies();
        is_first
            && !is_sample
            && block.reply_bytes == Some(received)
            && self.buffer[..received].ends_with(b"\r\n")
    }

    /// Frames the bytes at the buffer's start; whether the block is answered by them.
    fn is_framed(&mut self, index: usize, length: usize) -> Result<bool, LoadError> {
        let protocol: Protocol = self.wording.protocol;
        let connection = &mut self.connections[index];
        let mut input = &self.buffer[..length];
        let first_request = connection.block * self.arena.pipeline;
        while connection.framed.len() < self.arena.pipeline && !input.is_empty() {
            let number = first_request + connection.framed.len();
            let (verb, value_bytes) = self.arena.requests[number];
            let Some(reply) = connection.framer.next(protocol, verb, &mut input) else {
                break;
            };
            let known = self.wording.lengths_are_known;
            let class = self.recorder.reply(verb, reply, value_bytes, known);
            connection.framed.push(class);
        }
        let is_answered = connection.framed.len() == self.arena.pipeline;
        if is_answered && !input.is_empty() {
            return Err(LoadError::Protocol("a reply that nobody asked for".into()));
        }
        if !connection.framer.keep(input) {
            return Err(LoadError::Protocol("a line that is too long".into()));
        }
        Ok(is_answered)
    }

    /// All requests of a block were answered as hoped.
    fn count_all(&mut self, index: usize, now_ns: u64) {
        let connection = &self.connections[index];
        let block = &self.arena.blocks[connection.block];
        let times = times(connection.sent_ns, now_ns);
        let counts = &mut self.recorder.counts;
        counts.hits += block.hits;
        counts.stored += block.stores;
        counts.changed += self.arena.pipeline as u64 - block.hits - block.stores;
        for &(class, count) in self.arena.tallies(block) {
            self.recorder.latency(class, times, count.into());
        }
    }

    /// The framed replies of a block count when the last of them is there, as in other blocks.
    fn count_framed(&mut self, index: usize, now_ns: u64) {
        let connection = &mut self.connections[index];
        let times = times(connection.sent_ns, now_ns);
        for class in connection.framed.drain(..) {
            self.recorder.latency(class, times, 1);
        }
    }

    /// What has not been answered for long when the run ends counts with the time it has waited.
    fn give_up(&mut self, now_ns: u64) {
        let overdue = |connection: &&Connection| now_ns - connection.sent_ns >= GRACE_NS;
        for connection in self.connections.iter().filter(overdue) {
            let times = times(connection.sent_ns, now_ns);
            let first = connection.block * self.arena.pipeline;
            let block = &self.arena.requests[first..first + self.arena.pipeline];
            for &(verb, value_bytes) in &block[connection.framed.len()..] {
                let class = self.recorder.class(Operation::hoped(verb), value_bytes);
                self.recorder.unfinished(class, times);
            }
        }
    }

    /// Gives a connection the next block and sends what the kernel takes of it.
    fn next(&mut self, index: usize, now_ns: u64) -> Result<(), LoadError> {
        let connection = &mut self.connections[index];
        connection.block = self.next_block;
        connection.written = 0;
        connection.sent_ns = now_ns;
        self.next_block += 1;
        if self.next_block == self.arena.blocks.len() {
            self.next_block = 0;
        }
        self.write(index)
    }

    fn write(&mut self, index: usize) -> Result<(), LoadError> {
        let connection = &mut self.connections[index];
        let block = self.arena.blocks[connection.block];
        let rest = &self.arena.bytes[block.start + connection.written..block.end];
        connection.written += self.poller.write(&mut connection.socket, rest)?;
        Ok(())
    }
}

/// In closed loop a request is meant to be sent when it is.
fn times(sent_ns: u64, now_ns: u64) -> Times {
    Times {
        intended_ns: sent_ns,
        sent_ns,
        now_ns,
    }
}
