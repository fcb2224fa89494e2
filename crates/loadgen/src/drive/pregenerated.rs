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

use std::time::Duration;

use super::{
    Clock, Plan,
    framer::{Framer, LINE_BYTES_MAX},
    socket::{Poller, Ready, Socket},
};
use crate::{
    error::LoadError,
    measure::Recorder,
    protocol::Protocol,
    workload::{Generator, Kind, Request},
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
    protocol: Protocol,
    spin: bool,
}

/// All requests of a thread.
struct Arena {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    /// Kind and value length of each request, for the blocks that are framed.
    requests: Vec<(Kind, u32)>,
    pipeline: usize,
}

#[derive(Clone, Copy)]
struct Block {
    start: usize,
    end: usize,
    reply_bytes: usize,
    gets: u64,
}

struct Connection {
    socket: Socket,
    block: usize,
    written: usize,
    sent_ns: u64,
    /// Replies of the block that were framed so far.
    framed: usize,
    framer: Framer,
}

/// Bytes received at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// An arena stops growing here, whatever the number of requests asked for.
const ARENA_BYTES_MAX: usize = 256 << 20;

/// One block in this many is framed although its length is right; a power of two.
const FRAMED_EVERY: u64 = 64;

impl Arena {
    fn new(plan: &Plan, thread: usize, requests: usize) -> Self {
        let mut generator = Generator::new(&plan.workload, plan.seed ^ (thread as u64) << 32);
        let mut arena = Self {
            bytes: Vec::new(),
            blocks: Vec::new(),
            requests: Vec::new(),
            pipeline: plan.pipeline,
        };
        for _ in 0..requests / plan.pipeline {
            let start = arena.bytes.len();
            let block: Vec<Request> = (0..plan.pipeline).map(|_| generator.draw()).collect();
            for request in &block {
                generator.put(request, &mut arena.bytes);
                arena.requests.push((request.kind, request.value_bytes));
            }
            let reply_bytes = |request| plan.workload.reply_bytes(request);
            let is_get = |request: &&Request| request.kind == Kind::Get;
            arena.blocks.push(Block {
                start,
                end: arena.bytes.len(),
                reply_bytes: block.iter().map(reply_bytes).sum(),
                gets: block.iter().filter(is_get).count() as u64,
            });
            if arena.bytes.len() > ARENA_BYTES_MAX {
                break;
            }
        }
        arena
    }
}

impl Pregenerated {
    pub(super) fn new(plan: &Plan, thread: usize, requests: usize) -> Result<Self, LoadError> {
        let poller = Poller::new()?;
        let connect = |connection| -> Result<_, LoadError> {
            Ok(Connection {
                socket: poller.connect(&plan.target, connection)?,
                block: 0,
                written: 0,
                sent_ns: 0,
                framed: 0,
                framer: Framer::default(),
            })
        };
        let connections: Result<Vec<_>, _> =
            (0..plan.connections_of(thread)).map(connect).collect();
        Ok(Self {
            arena: Arena::new(plan, thread, requests),
            next_block: 0,
            blocks_answered: 0,
            connections: connections?,
            poller,
            recorder: plan.recorder()?,
            buffer: vec![0; BUFFER_BYTES],
            protocol: plan.workload.protocol,
            spin: plan.spin,
        })
    }

    pub(super) fn run(mut self, clock: Clock) -> Result<Recorder, LoadError> {
        for connection in 0..self.connections.len() {
            self.next(connection, clock.now_ns())?;
        }
        let patience = if self.spin {
            Duration::ZERO
        } else {
            Duration::from_millis(5)
        };
        while clock.now_ns() < clock.end_ns {
            for index in 0..self.poller.wait(patience)? {
                let ready = self.poller.ready(index);
                self.serve(ready, clock)?;
            }
        }
        Ok(self.recorder)
    }

    fn serve(&mut self, ready: Ready, clock: Clock) -> Result<(), LoadError> {
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
        if self.is_answered(ready.connection, kept, received)? {
            self.blocks_answered += 1;
            self.record(ready.connection, now_ns);
            self.next(ready.connection, now_ns)?;
        }
        Ok(())
    }

    /// Whether the block of a connection is answered by the bytes at the buffer's start.
    fn is_answered(
        &mut self,
        index: usize,
        kept: usize,
        received: usize,
    ) -> Result<bool, LoadError> {
        let connection = &mut self.connections[index];
        let block = self.arena.blocks[connection.block];
        let mut input = &self.buffer[..kept + received];
        let is_first =
            kept == 0 && connection.framed == 0 && connection.framer.is_between_replies();
        let as_expected = input.len() == block.reply_bytes && input.ends_with(b"\r\n");
        let is_sample = self.blocks_answered.is_multiple_of(FRAMED_EVERY);
        if is_first && as_expected && !is_sample {
            let sets = self.arena.pipeline as u64 - block.gets;
            self.recorder.counts.hits += block.gets;
            self.recorder.counts.stored += sets;
            return Ok(true);
        }
        let first_request = connection.block * self.arena.pipeline;
        while connection.framed < self.arena.pipeline && !input.is_empty() {
            let (kind, value_bytes) = self.arena.requests[first_request + connection.framed];
            let Some(reply) = connection.framer.next(self.protocol, kind, &mut input) else {
                break;
            };
            self.recorder.reply(reply, value_bytes);
            connection.framed += 1;
        }
        let is_answered = connection.framed == self.arena.pipeline;
        if is_answered && !input.is_empty() {
            return Err(LoadError::Protocol("a reply that nobody asked for".into()));
        }
        if !connection.framer.keep(input) {
            return Err(LoadError::Protocol("a line without an end".into()));
        }
        Ok(is_answered)
    }

    fn record(&mut self, index: usize, now_ns: u64) {
        let connection = &self.connections[index];
        let gets = self.arena.blocks[connection.block].gets;
        let sets = self.arena.pipeline as u64 - gets;
        let sent_ns = connection.sent_ns;
        self.recorder.latency(Kind::Get, sent_ns, now_ns, gets);
        self.recorder.latency(Kind::Set, sent_ns, now_ns, sets);
    }

    /// Gives a connection the next block and sends what the kernel takes of it.
    fn next(&mut self, index: usize, now_ns: u64) -> Result<(), LoadError> {
        let connection = &mut self.connections[index];
        connection.block = self.next_block;
        connection.written = 0;
        connection.framed = 0;
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
