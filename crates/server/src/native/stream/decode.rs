//! Decodes the bytes of one stream into requests.
//!
//! ```text
//!   Between --head, key--> Value (large: into the store's room) --> Waiting --> answer --> Between
//!              |                                                       ^
//!              +--- small: gathered with its head ---------------------+
//!              +--- not wanted: Skipping, to the end of its value ----> answer
//! ```

use std::net::SocketAddr;

use curtail_codec::native::{
    Checksum, Class, ErrorCode, HEADER_BYTES, Head, Malformed, Opcode, Reply, ReplyError, Request,
};
use curtail_ordered_queue::{Claim, ClaimTicket, Peer, SessionName, SlotState};
use curtail_runtime::{Readiness, Received, Stream};
use curtail_store::{Reservation, ValueLease};
use curtail_types::{Key, KeyHash, Operation, Set};

use crate::{
    limits::INLINE_VALUE_BYTES_MAX,
    native::{
        Native,
        counters::NativeCount,
        executor::{Executor, at_arrival, set_done},
        reply_cache::Done,
        reply_sender::{queue_peer, session_name},
    },
    store_context::StoreContext,
};

/// One stream.
pub(super) struct Line {
    pub(super) stream: Stream,
    /// Where it comes from, without the port: sessions are of an address.
    address: [u64; 2],
    input: Box<[u8]>,
    /// What of the input is not looked at yet.
    start: usize,
    end: usize,
    pub(super) state: Progress,
    /// What is to be sent, and how much of it was.
    pub(super) output: Vec<u8>,
    pub(super) sent: usize,
    /// Room for small values, used again for every request.
    pub(super) values: Vec<u8>,
    /// A value that is sent from where it lies, behind the output.
    pub(super) lease: Option<(ValueLease, usize)>,
    readable: bool,
    pub(super) closing: bool,
    /// When bytes last moved.
    pub(super) moved_ns: u64,
}

/// How far the request at hand is.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each stream, and a request should allocate nothing"
)]
pub(super) enum Progress {
    /// The next one is awaited.
    Between,
    /// Its value is on its way into the store.
    Value(Arriving),
    /// It is not wanted: so many bytes of it are thrown away, then this is answered.
    Skipping(u64, Option<Refusal>),
    /// It is complete and waits for queues.
    Waiting(Whole),
}

/// A large write on its way.
pub(super) struct Arriving {
    head: Head,
    reservation: Reservation,
    checksum: Checksum,
}

/// What is answered to a request whose value was thrown away.
pub(super) enum Refusal {
    /// This error.
    Error(Head, ErrorCode),
    /// What became of it.
    Result(Head, SessionName, Done),
    /// It may be one that was answered before.
    Again(Head, SessionName, KeyHash),
}

/// A complete request.
pub(super) struct Whole {
    pub(super) head: Head,
    pub(super) hash: KeyHash,
    pub(super) key: [u8; Key::BYTES_MAX],
    pub(super) value: Vec<u8>,
    pub(super) reservation: Option<Reservation>,
    /// The claim of its slot; reads have none.
    pub(super) ticket: Option<ClaimTicket>,
    /// Up to where each queue has to come.
    pub(super) behind: Behind,
    /// At a node of a cluster: what the node was asked under.
    pub(super) asked: Option<u64>,
}

/// What a complete request waits for.
pub(super) enum Behind {
    /// One queue.
    One(usize, u64),
    /// All of them.
    All(Vec<u64>),
}

/// Bytes of input that a stream holds: a head, a key and a small value, twice.
pub(super) const INPUT_BYTES: usize = 16 << 10;

const _: () =
    assert!(INPUT_BYTES > HEADER_BYTES + Key::BYTES_MAX + INLINE_VALUE_BYTES_MAX as usize);

/// Steps of one stream in a turn.
const STEPS: usize = 16;

/// Longer values that are not wanted end their stream.
const SKIPPED_BYTES_MAX: u64 = 128 << 20;

impl Line {
    pub(super) fn new(stream: Stream, from: SocketAddr, now_ns: u64) -> Self {
        Self {
            stream,
            address: queue_peer(from).address,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            state: Progress::Between,
            output: Vec::new(),
            values: Vec::new(),
            sent: 0,
            lease: None,
            readable: true,
            closing: false,
            moved_ns: now_ns,
        }
    }

    /// Notes what the poller told.
    pub(super) fn note(&mut self, readiness: Readiness) {
        self.readable |= readiness.read;
    }

    /// Whether it is idle.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.state, Progress::Between) && self.output.is_empty()
    }

    /// Gives the claim of a request that will not be carried out back.
    pub(super) fn give_up(&mut self, native: &Native) {
        if let Progress::Waiting(whole) = &self.state
            && let Some(ticket) = whole.ticket
        {
            match whole.asked {
                None => native.sessions().reopen(ticket),
                Some(_) => native.commit_unknown(&whole.head, ticket),
            }
        }
    }

    /// Its next steps, up to a bound; whether it could go on at once, or `None` when it has ended.
    pub(super) fn go_on(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
        now_ns: u64,
    ) -> Option<bool> {
        for _ in 0..STEPS {
            if !self.send(now_ns)? {
                return Some(false);
            }
            if self.closing {
                return None;
            }
            let went_on = match self.state {
                Progress::Waiting(_) if native.is_on_node => return Some(false),
                Progress::Waiting(_) => {
                    if !self.serve(native, executor, store_cx) {
                        return Some(true);
                    }
                    true
                }
                Progress::Value(_) => self.receive_value(native, executor, now_ns)?,
                Progress::Between | Progress::Skipping(..) => {
                    self.advance(native, executor, store_cx) || self.receive(now_ns)?
                }
            };
            if !went_on {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Receives into the input; false if nothing is there.
    fn receive(&mut self, now_ns: u64) -> Option<bool> {
        if !self.readable {
            return Some(false);
        }
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = self.input.get_mut(self.end..).unwrap_or_default();
        match self.stream.receive(room) {
            Received::Bytes(bytes) => {
                self.end += bytes;
                self.moved_ns = now_ns;
                Some(true)
            }
            Received::Nothing => {
                self.readable = false;
                Some(false)
            }
            Received::End => None,
        }
    }

    /// Makes what it can of the input; false if it needs more.
    fn advance(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
    ) -> bool {
        if let Progress::Skipping(left, refusal) = &mut self.state {
            let skipped = (*left).min((self.end - self.start) as u64);
            self.start += skipped as usize;
            *left -= skipped;
            if *left == 0 {
                let refusal = refusal.take();
                self.state = Progress::Between;
                if let Some(refusal) = refusal {
                    self.refused(native, executor, refusal);
                }
            }
            return skipped > 0;
        }
        let input = self.input.get(self.start..self.end).unwrap_or_default();
        if input.len() < HEADER_BYTES {
            return false;
        }
        let head = match Head::decode(input) {
            Ok(head) => head,
            Err(why) => {
                let head = input.get(..HEADER_BYTES).unwrap_or_default();
                let reply = Reply::refuse(head, why, native.incarnation);
                push(&mut self.output, reply.as_ref());
                executor.state().counts.add(NativeCount::Errors, 1);
                self.closing = true;
                return true;
            }
        };
        let key_bytes = usize::from(head.key_bytes);
        let is_large = head.value_bytes > INLINE_VALUE_BYTES_MAX;
        let needed = match is_large {
            true => HEADER_BYTES + key_bytes,
            false => HEADER_BYTES + head.body_bytes(),
        };
        if input.len() < needed {
            return false;
        }
        let begin = self.start;
        self.start += needed;
        match is_large {
            true => self.begin_value(native, store_cx, head, begin..begin + needed),
            false => self.complete(native, executor, store_cx, head, begin..begin + needed),
        }
        true
    }

    /// A large write begins: room is made for it, or it is skipped.
    fn begin_value(
        &mut self,
        native: &Native,
        store_cx: &mut StoreContext,
        head: Head,
        frame: std::ops::Range<usize>,
    ) {
        let left = u64::from(head.value_bytes);
        let name = session_name(head.session);
        let frame = self.input.get(frame).unwrap_or_default();
        let key = frame.get(HEADER_BYTES..).unwrap_or_default();
        let skip = |refusal| Progress::Skipping(left, Some(refusal));
        let Ok(key) = Key::new(key) else {
            self.closing = true;
            return;
        };
        if left > SKIPPED_BYTES_MAX.max(native.item_bytes_max as u64) {
            let error = error(native, &head, ErrorCode::TooLarge);
            push(&mut self.output, Some(&error));
            self.closing = true;
            return;
        }
        if left > native.item_bytes_max as u64 {
            self.state = skip(Refusal::Error(head, ErrorCode::TooLarge));
            return;
        }
        let Some(peer) = known(native, name, self.address) else {
            self.state = skip(Refusal::Error(head, ErrorCode::Session));
            return;
        };
        let hash = store_cx.store.hash(key.bytes());
        let (state, newest) = native.sessions().slot(name.index, head.slot);
        let is_old = head.sequence < newest || head.sequence == newest && state != SlotState::Open;
        if is_old || !native.sessions().is_known(name, peer) {
            self.state = skip(Refusal::Again(head, name, hash));
            return;
        }
        let request = Request {
            head,
            key: Some(key),
            value: &[],
        };
        let Some(Operation::Set(mut set)) = request.operation() else {
            self.closing = true;
            return;
        };
        set.exptime = at_arrival(set.exptime, store_cx.now.unix_ns);
        let bytes = head.value_bytes as usize;
        let room = match native.is_on_node {
            // Only its value is kept here, for whoever has the key.
            true => store_cx.reserve_only(key, hash, &Set::default(), bytes),
            false => store_cx.reserve(key, hash, &set, bytes),
        };
        let mut checksum = head.start_checksum();
        checksum.update(key.bytes());
        match room {
            Ok(reservation) => {
                let arriving = Arriving {
                    head,
                    reservation,
                    checksum,
                };
                self.state = Progress::Value(arriving);
            }
            Err(outcome) => {
                let done = set_done(outcome);
                self.state = skip(Refusal::Result(head, name, done));
            }
        }
    }

    /// Takes bytes of a value in: those that came with its head, then from the socket. False if
    /// nothing is there.
    fn receive_value(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        now_ns: u64,
    ) -> Option<bool> {
        let Progress::Value(arriving) = &mut self.state else {
            return Some(true);
        };
        let waiting = self.input.get(self.start..self.end).unwrap_or_default();
        if waiting.is_empty() {
            let spare = arriving.reservation.spare();
            if !spare.is_empty() {
                if !self.readable {
                    return Some(false);
                }
                match self.stream.receive(spare) {
                    Received::Bytes(bytes) => {
                        arriving
                            .checksum
                            .update(spare.get(..bytes).unwrap_or_default());
                        arriving.reservation.advance(bytes);
                        self.moved_ns = now_ns;
                    }
                    Received::Nothing => {
                        self.readable = false;
                        return Some(false);
                    }
                    Received::End => return None,
                }
            }
        } else {
            let missing = arriving.reservation.missing_bytes().min(waiting.len());
            let taken = waiting.get(..missing).unwrap_or_default();
            arriving.checksum.update(taken);
            arriving.reservation.write(taken);
            self.start += missing;
        }
        if !arriving.reservation.is_full() {
            return Some(true);
        }
        let Progress::Value(arriving) = std::mem::replace(&mut self.state, Progress::Between)
        else {
            return Some(true);
        };
        let Arriving {
            head,
            reservation,
            checksum,
        } = arriving;
        if checksum.finish() != head.checksum {
            executor.state().counts.add(NativeCount::Errors, 1);
            push(
                &mut self.output,
                Some(&error(native, &head, ErrorCode::Checksum)),
            );
            return Some(true);
        }
        let (hash, key) = (reservation.hash(), kept(reservation.key()));
        let whole = Whole {
            head,
            hash,
            key,
            value: std::mem::take(&mut self.values),
            reservation: Some(reservation),
            ticket: None,
            behind: Behind::One(0, 0),
            asked: None,
        };
        self.admit(native, executor, whole);
        Some(true)
    }

    /// A request that lies in the input whole.
    fn complete(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
        head: Head,
        frame: std::ops::Range<usize>,
    ) {
        let frame = self.input.get(frame).unwrap_or_default();
        let body = frame.get(HEADER_BYTES..).unwrap_or_default();
        let checked = match Request::checksum(frame) == Some(head.checksum) {
            true => Request::from_parts(head, body),
            false => Err(Malformed::Checksum),
        };
        let request = match checked {
            Ok(request) => request,
            Err(why) => {
                let refusal = frame.get(..HEADER_BYTES).unwrap_or_default();
                let reply = Reply::refuse(refusal, why, native.incarnation);
                push(&mut self.output, reply.as_ref());
                executor.state().counts.add(NativeCount::Errors, 1);
                return;
            }
        };
        let (hash, key) = match request.key {
            Some(key) => (store_cx.store.hash(key.bytes()), kept(key)),
            None => (KeyHash(0), [0; Key::BYTES_MAX]),
        };
        let mut value = std::mem::take(&mut self.values);
        value.clear();
        value.extend_from_slice(request.value);
        let whole = Whole {
            head,
            hash,
            key,
            value,
            reservation: None,
            ticket: None,
            behind: Behind::One(0, 0),
            asked: None,
        };
        self.admit(native, executor, whole);
    }

    /// Whether a complete request is its sender's and new, and what it waits for.
    fn admit(&mut self, native: &Native, executor: &mut Executor, mut whole: Whole) {
        let head = whole.head;
        let name = session_name(head.session);
        let class = head.class().class();
        let counts = &mut executor.state().counts;
        if matches!(head.opcode, Opcode::Hello | Opcode::Confirm) {
            counts.add(NativeCount::Errors, 1);
            let error = error(native, &head, ErrorCode::Unsupported);
            return push(&mut self.output, Some(&error));
        }
        let Some(peer) = known(native, name, self.address) else {
            counts.add(NativeCount::Errors, 1);
            let error = error(native, &head, ErrorCode::Session);
            return push(&mut self.output, Some(&error));
        };
        native.sessions().renew(name, native.limits(self.moved_ns));
        if class == Class::Local {
            return self.local(native, &head, name, peer);
        }
        if class == Class::Barrier && !native.flush_allowed {
            let error = error(native, &head, ErrorCode::Unsupported);
            return push(&mut self.output, Some(&error));
        }
        if head.opcode != Opcode::Get {
            match native
                .sessions()
                .claim(name, peer, head.slot, head.sequence)
            {
                Claim::Granted(ticket) => whole.ticket = Some(ticket),
                Claim::Repeated { .. } if head.opcode == Opcode::GetTouch => {}
                Claim::Repeated { .. } => {
                    let refusal = Refusal::Again(head, name, whole.hash);
                    return self.refused(native, executor, refusal);
                }
                Claim::Stale => return counts.add(NativeCount::DroppedStale, 1),
                Claim::Unknown => {
                    counts.add(NativeCount::Errors, 1);
                    let error = error(native, &head, ErrorCode::Session);
                    return push(&mut self.output, Some(&error));
                }
            }
            counts.add(NativeCount::Direct, 1);
        }
        whole.behind = match class {
            Class::Barrier => Behind::All(native.tails()),
            _ => {
                let (number, stamp) = native.behind(whole.hash.0).unwrap_or((0, 0));
                Behind::One(number, stamp)
            }
        };
        self.state = Progress::Waiting(whole);
    }

    /// Answers what was not carried out.
    fn refused(&mut self, native: &Native, executor: &mut Executor, refusal: Refusal) {
        match refusal {
            Refusal::Error(head, code) => {
                executor.state().counts.add(NativeCount::Errors, 1);
                push(&mut self.output, Some(&error(native, &head, code)));
            }
            Refusal::Result(head, name, done) => {
                executor.state().note_refusal(&done);
                self.result_without_effect(native, &head, name, done);
            }
            Refusal::Again(head, name, hash) => {
                self.answer_again(native, executor, &head, name, hash);
            }
        }
    }

    /// A write that failed for want of room is over all the same: its number is used up.
    fn result_without_effect(
        &mut self,
        native: &Native,
        head: &Head,
        name: SessionName,
        done: Done,
    ) {
        let peer = known(native, name, self.address);
        let claim = peer.map(|peer| {
            native
                .sessions()
                .claim(name, peer, head.slot, head.sequence)
        });
        if let Some(Claim::Granted(ticket)) = claim {
            native.answers.keep(name, head.slot, head.sequence, done);
            native.sessions().commit_executed(ticket);
            self.push_result(native, head, &done);
        }
    }
}

/// The peer that a session was granted to, if the session is one of this address.
fn known(native: &Native, name: SessionName, address: [u64; 2]) -> Option<Peer> {
    let peer = native.sessions().peer_of(name.index)?;
    let is_known = peer.address == address && native.sessions().is_known(name, peer);
    is_known.then_some(peer)
}

fn kept(key: Key<'_>) -> [u8; Key::BYTES_MAX] {
    let mut kept = [0; Key::BYTES_MAX];
    for (place, byte) in kept.iter_mut().zip(key.bytes()) {
        *place = *byte;
    }
    kept
}

pub(super) fn error(native: &Native, head: &Head, code: ErrorCode) -> Reply<'static> {
    Reply::Error(ReplyError {
        echo: head.echo(),
        code,
        incarnation: native.incarnation,
    })
}

/// Adds a reply to what is to be sent.
pub(super) fn push(output: &mut Vec<u8>, reply: Option<&Reply<'_>>) {
    let Some(reply) = reply else {
        return;
    };
    let start = output.len();
    output.resize(start + reply.bytes(), 0);
    if let Some(room) = output.get_mut(start..) {
        // It has just the room that it says it needs.
        let _ = reply.encode(room);
    }
}
