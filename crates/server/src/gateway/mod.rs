//! A gateway to a cache tier: memcached's clients on one side, the tier's datagrams on the other.
//!
//! ```text
//!   request of a client --begin--> entry, datagram --> switch --> cache node or back end
//!        |                          |     ^ again after 20, 40, ... ms, past the cache node
//!   place in the replies <--answer--+-----+------------ reply; nothing for two seconds: it is late
//! ```
//!
//! A worker has a socket and a client's number of its own, so nothing is shared between threads. A
//! request is an entry of a table of fixed size, whose bytes are allocated once; more requests are
//! refused. A write that is sent again keeps its number: back ends run it once (SW-14).
//!
//! The gateway stores nothing and decides nothing about consistency: every answer is the tier's.

mod answers;
mod entries;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use curtail_codec::tiered::{
    BODY_BYTES_MAX, FrameEnds, TierAddress, TierEnd, TierNetwork, TierRequests, TierTarget,
    TieredDatagram, TieredHead, TieredStatus, WRITE_RETRY_NS,
};
use curtail_runtime::{
    DatagramOptions, DatagramSocket, FrameSocket, Inbox, Outbox, Poller, Token as SocketToken,
    WatchError, bind_udp,
};
use curtail_types::{BackEndId, Failure, Key, Now, Operation};

use crate::{
    completion::Token,
    gateway::entries::Entries,
    test_faults::{Fault, TestFaults},
};

pub(crate) use answers::outcome_of;

/// The token of the socket: far above the slots of connections, below the waker.
pub(crate) const GATEWAY: SocketToken = SocketToken(usize::MAX - 1);

/// What one worker has of a gateway.
pub(crate) struct GatewayWorker {
    requests: TierRequests,
    socket: DatagramSocket,
    inbox: Inbox,
    outbox: Outbox,
    frames: Option<FrameOutbox>,
    entries: Entries,
    /// Datagrams may be there.
    pub(crate) is_readable: bool,
    /// The keys of this turn's requests of one connection.
    turn: TurnKeys,
    target: TierTarget,
    faults: TestFaults,
    /// Requests that were sent again, and are not counted yet.
    pub(crate) repeated: u64,
}

/// What leaves as frames, with encoding `mac`.
struct FrameOutbox {
    socket: FrameSocket,
    outbox: Outbox,
    own: TierEnd,
}

/// What a connection has asked for in this turn. In a later turn nothing is under way for it: it is
/// not read from before everything is answered.
#[derive(Debug, Default)]
struct TurnKeys {
    slot: usize,
    hashes: Vec<u64>,
    is_flushing: bool,
}

/// A reply, or its absence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Who waits.
    pub(crate) token: Token,
    /// What was asked; `None` is a flush.
    pub(crate) operation: Option<Operation>,
    /// What was told.
    pub(crate) told: Result<TieredHead, Failure>,
}

/// Why a request was not begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotBegun {
    /// Too many are under way.
    Full,
    /// It fits no datagram.
    TooLarge,
}

impl GatewayWorker {
    /// A socket by which the tier replies, with a number that no other client has: `random`.
    pub(crate) fn open(
        target: TierTarget,
        random: u64,
        (now, faults): (Now, TestFaults),
    ) -> io::Result<Self> {
        let options = DatagramOptions {
            receive_bytes: RECEIVE_BYTES,
            ..DatagramOptions::default()
        };
        let here = own_address(&target)?;
        let socket =
            bind_udp(here, options).map_err(|error| io::Error::other(error.to_string()))?;
        let at = socket.address().unwrap_or(here);
        let frames = FrameOutbox::open(&target, at)?;
        let own = frames.as_ref().map_or(at.into(), |frames| frames.own);
        // The first numbers are those of cache nodes.
        let sender = (random as u32).max(256);
        Ok(Self {
            requests: TierRequests::new(target, sender, own, 0),
            socket,
            inbox: Inbox::new(BATCH),
            outbox: Outbox::new(BATCH),
            frames,
            entries: Entries::new(now.unix_ns),
            is_readable: true,
            turn: TurnKeys::default(),
            target,
            faults,
            repeated: 0,
        })
    }

    /// Has the worker's poller tell of replies.
    pub(crate) fn watch(&mut self, poller: &Poller) -> Result<(), WatchError> {
        self.socket.watch(poller, GATEWAY)
    }

    // ---- requests ----

    /// A turn begins.
    pub(crate) fn begin_turn(&mut self) {
        self.turn.slot = usize::MAX;
    }

    /// Whether a request of a connection must wait for one before it: one of the same key, or a
    /// flush.
    pub(crate) fn is_under_way(&mut self, slot: usize, hash: u64) -> bool {
        let turn = &self.turn;
        turn.slot == slot && (turn.is_flushing || turn.hashes.contains(&hash))
    }

    /// The same of a flush, which waits for everything.
    pub(crate) fn has_any(&self, slot: usize) -> bool {
        let turn = &self.turn;
        turn.slot == slot && (turn.is_flushing || !turn.hashes.is_empty())
    }

    /// A head for a request about `key`; its number is given when it begins.
    pub(crate) fn requests(&mut self) -> &mut TierRequests {
        &mut self.requests
    }

    /// The back ends of the tier.
    pub(crate) fn back_ends(&self) -> impl Iterator<Item = BackEndId> + use<> {
        (0..self.target.map.back_ends).map(BackEndId)
    }

    /// Whether so many more requests can be under way.
    pub(crate) fn has_room(&self, requests: usize) -> bool {
        self.entries.room() >= requests
    }

    /// Sends a request. `hash` is that of its key; `None` of a flush.
    pub(crate) fn begin(
        &mut self,
        (token, operation): (Token, Option<Operation>),
        head: TieredHead,
        (key, value, hash): (Key<'_>, &[u8], Option<u64>),
        now_ns: u64,
    ) -> Result<(), NotBegun> {
        if key.bytes().len() + value.len() > BODY_BYTES_MAX {
            return Err(NotBegun::TooLarge);
        }
        let number = self
            .entries
            .begin((token, operation), head, (key, value), now_ns);
        let number = number.ok_or(NotBegun::Full)?;
        if self.turn.slot != token.slot {
            self.turn.slot = token.slot;
            self.turn.hashes.clear();
            self.turn.is_flushing = false;
        }
        match hash {
            Some(hash) => self.turn.hashes.push(hash),
            None => self.turn.is_flushing = true,
        }
        self.send(number);
        Ok(())
    }

    fn send(&mut self, number: usize) {
        if is_full(&self.outbox, self.frames.as_ref()) {
            self.flush();
        }
        let Some((entry, key, value)) = self.entries.get(number) else {
            return;
        };
        let to = self.requests.destination(&entry.head);
        let ways = (&mut self.outbox, &mut self.frames);
        push(ways, to, (&entry.head, key, value));
    }

    /// Sends what was gathered. What the kernel does not take is lost, as on any network.
    pub(crate) fn flush(&mut self) {
        send_all((&mut self.outbox, &mut self.frames), &self.socket);
    }

    // ---- replies ----

    /// Receives some replies; how many.
    pub(crate) fn receive(&mut self) -> usize {
        let count = self.inbox.receive(&self.socket);
        self.is_readable = count == self.inbox.capacity();
        count
    }

    /// The reply that one of those is, if its request is still under way; it has ended then. Also
    /// its key and value.
    pub(crate) fn reply(&mut self, number: usize, now_ns: u64) -> Option<(Ended, &[u8], &[u8])> {
        let (datagram, _) = self.inbox.get(number)?;
        let reply = self.requests.reply(datagram)?;
        let told = reply.head;
        let (number, entry) = self.entries.find(told.sequence)?;
        let name = reply.key?;
        if !TierRequests::answers(&entry.head, &told) {
            return None;
        }
        if told.status == TieredStatus::NotCached {
            entry.head = self.requests.past_caches(entry.head, name);
            let to = self.requests.destination(&entry.head);
            if is_full(&self.outbox, self.frames.as_ref()) {
                send_all((&mut self.outbox, &mut self.frames), &self.socket);
            }
            let ways = (&mut self.outbox, &mut self.frames);
            push(ways, to, (&entry.head, name, &[]));
            return None;
        }
        let key = name.bytes();
        if told.status == TieredStatus::Busy && entry.pause(now_ns) {
            self.entries.note_due(number);
            return None;
        }
        let ended = Ended {
            token: entry.token,
            operation: entry.operation,
            told: match told.status {
                TieredStatus::Busy => Err(entry.failure()),
                TieredStatus::WrongPartition => Err(Failure::OutOfService),
                _ => Ok(told),
            },
        };
        self.entries.end(number);
        Some((ended, key, reply.value))
    }

    /// Sends again what has no reply for too long; a request whose patience has ended, if there is
    /// one: call this again then.
    pub(crate) fn next_late(&mut self, now_ns: u64) -> Option<Ended> {
        while let Some(number) = self.entries.next_due(now_ns) {
            let (entry, key, _) = self.entries.get(number)?;
            let mut head = self.requests.again(entry.head, key);
            if self.faults.has(Fault::NumbersAgain) {
                head.sequence += Entries::ENTRIES_MAX as u64;
            }
            let entry = self.entries.get_mut(number)?;
            if entry.again(head, now_ns) {
                self.repeated += 1;
                self.entries.note_due(number);
                self.send(number);
                continue;
            }
            let ended = Ended {
                token: entry.token,
                operation: entry.operation,
                told: Err(entry.failure()),
            };
            self.entries.end(number);
            return Some(ended);
        }
        None
    }

    /// When something is due.
    pub(crate) fn due_ns(&self) -> u64 {
        match self.is_readable {
            true => 0,
            false => self.entries.due_ns(),
        }
    }
}

impl FrameOutbox {
    /// What a worker that receives there sends frames by, if it does.
    fn open(target: &TierTarget, at: SocketAddr) -> io::Result<Option<Self>> {
        let (TierNetwork::Mac { .. }, SocketAddr::V4(v4)) = (target.network, at) else {
            return Ok(None);
        };
        let with_reason = |error| {
            let why = format!("encoding mac needs CAP_NET_RAW to send frames from {at}: {error}");
            io::Error::other(why)
        };
        let socket = FrameSocket::sender_at(*v4.ip()).map_err(with_reason)?;
        let own = TierEnd::of_client(at, socket.mac()).map_err(io::Error::other)?;
        let outbox = Outbox::new(BATCH);
        Ok(Some(Self {
            socket,
            outbox,
            own,
        }))
    }
}

fn is_full(outbox: &Outbox, frames: Option<&FrameOutbox>) -> bool {
    outbox.is_full() || frames.is_some_and(|frames| frames.outbox.is_full())
}

fn send_all((outbox, frames): (&mut Outbox, &mut Option<FrameOutbox>), socket: &DatagramSocket) {
    if !outbox.is_empty() {
        outbox.send(socket);
    }
    if let Some(frames) = frames
        && !frames.outbox.is_empty()
    {
        frames.outbox.send_frames(&frames.socket);
    }
}

fn push(
    (outbox, frames): (&mut Outbox, &mut Option<FrameOutbox>),
    to: TierEnd,
    (head, key, value): (&TieredHead, Key<'_>, &[u8]),
) {
    let (head, key) = (*head, Some(key));
    let datagram = TieredDatagram { head, key, value };
    let write = |room: &mut [u8]| datagram.encode(room, None).ok();
    match frames {
        Some(frames) => {
            if let (Some(from), Some(to)) = (frames.own.in_frame(), to.in_frame()) {
                let ends = FrameEnds { from, to };
                frames.outbox.push_frame(|room| ends.enclose(room, write));
            }
        }
        None => _ = outbox.push(to.socket, write),
    }
}

/// This host's address on the way to the switch, with port 0.
fn own_address(target: &TierTarget) -> io::Result<SocketAddr> {
    let switch = target
        .network
        .destination(TierAddress::back_end(curtail_types::KeyAddress::default()));
    let switch = switch.socket;
    let any: SocketAddr = match switch {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let probe = UdpSocket::bind(any)?;
    probe.connect(switch)?;
    let mut own = probe.local_addr()?;
    own.set_port(0);
    Ok(own)
}

/// Datagrams that are sent or received together.
const BATCH: usize = 64;
const RECEIVE_BYTES: usize = 4 << 20;
/// How long a request is sent again.
const PATIENCE_NS: u64 = WRITE_RETRY_NS;
