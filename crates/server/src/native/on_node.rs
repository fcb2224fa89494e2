//! Native requests at a node of a cluster: a worker executes each, or has another node execute it,
//! and the reply leaves when every node in sync has what it shows. Marked writes of slices that
//! this node alone holds are accepted: they enter the queues and are acknowledged at once.
//!
//! ```text
//!   datagram --> admitted, its slot claimed --> marked, gate open --> queued, ACK accepted
//!                         |                 |                              worker executes it
//!                         |                 +--> worker --> answered: kept, committed, reply
//!                         |                           +--> not executed, for certain: NACK
//!                         +-- under way: dropped      +--> unknown: committed, never a reply
//! ```
//!
//! A request is given to the node once, however often it is sent: its slot is claimed before. If
//! its outcome is unknown, its client is not answered and finds it indeterminate; the slot is free
//! for the next request.
//!
//! Invariants of accepted writes, which `curtail check` searches (`accepted-...`). A write is
//! accepted only while the gate of its slice is open, which is looked at again when the write has
//! its place in the queue. Whoever asks this node for the key, a peer too, waits until the write is
//! executed. A gate that is being closed counts as closed only when the queues are executed up to
//! where they were: so what is accepted is lost only with its slice, when this node is lost.

use curtail_codec::{
    native::{Class, ErrorCode, Flags, Head, NackReason, Opcode, Place, Request, Status},
    node::{ItemRequest, Shows},
};
use curtail_ordered_queue::{Claim, ClaimTicket};
use curtail_store::route_of;
use curtail_types::{Failure, Operation, Outcome};

use crate::{
    completion::{AskingThread, ThreadAsker, Told},
    limits::NATIVE_UNDER_WAY_MAX,
    native::{
        Host, Native, ShowsEnded,
        counters::{NativeCount, NativeCounts},
        executor::{at_arrival, done, reply_to},
        receiver::{Receiver, ReceiverContext, ack, arrival_of, place_of},
        reply_cache::Done,
        reply_sender::{Sender, queue_peer, session_name, value_bytes_max},
    },
    places::Places,
};

/// The requests that the node has.
#[derive(Default)]
pub(super) struct RequestsOnNode {
    under_way: Places<UnderWay>,
    /// Memory of requests that have ended: two pieces each.
    spare: Vec<Vec<u8>>,
}

struct UnderWay {
    head: Head,
    from: Sender,
    /// Of what changes something.
    ticket: Option<ClaimTicket>,
}

/// How a request ended that the node had.
pub(super) enum Ended<'v> {
    /// It was executed, and shows this value.
    Done(Done, &'v [u8]),
    /// It had no effect, and its client may send it again.
    NotReady,
    /// Nobody knows whether it had one.
    Unknown,
}

impl RequestsOnNode {
    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.len() == 0
    }

    /// How many more there may be.
    fn left(&self) -> u32 {
        (NATIVE_UNDER_WAY_MAX - self.under_way.len()) as u32
    }

    fn memory(&mut self) -> [Vec<u8>; 2] {
        let mut piece = || self.spare.pop().unwrap_or_default();
        [piece(), piece()]
    }
}

impl Receiver<'_> {
    /// Accepts a write, or has the node execute a request that is not answered here.
    pub(super) fn ask_node(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        host: &dyn Host,
        (request, bytes): (&Request<'_>, &[u8]),
        from: Sender,
    ) {
        let head = &request.head;
        let is_flush = head.class().class() == Class::Barrier;
        if is_flush && !self.native.flush_allowed || !is_flush && request.key.is_none() {
            return self.error(receiver_cx, head, ErrorCode::Unsupported, from);
        }
        if request.value.len() > self.native.item_bytes_max {
            return self.error(receiver_cx, head, ErrorCode::TooLarge, from);
        }
        if !self.admits(receiver_cx, head, from) {
            return;
        }
        let ticket = match head.opcode {
            Opcode::Get => None,
            _ => match self.claim(receiver_cx, request, from) {
                Some(ticket) => ticket,
                None => return,
            },
        };
        if let Some(ticket) = ticket
            && self.accept(receiver_cx, (request, bytes), ticket, from)
        {
            return;
        }
        if self.on_node.left() == 0 {
            self.native.reopen(ticket);
            let place = self.node_place(0);
            return self.refuse_busy(receiver_cx, head.echo(), place, from);
        }
        let asked = asked_of(request, receiver_cx.store_cx.now.unix_ns);
        if asked.is_none() {
            self.native.log_flush(receiver_cx.store_cx.now, head);
        }
        let head = *head;
        let name = self.on_node.under_way.keep(UnderWay { head, from, ticket });
        let asker = ThreadAsker {
            thread: AskingThread::Native,
            name,
        };
        host.ask_node(asker, asked.as_ref(), self.on_node.memory());
    }

    /// Accepts a marked write whose slice no other node holds: its client is answered, and a worker
    /// executes it later. False if the node has to execute it first.
    fn accept(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        (request, bytes): (&Request<'_>, &[u8]),
        ticket: ClaimTicket,
        from: Sender,
    ) -> bool {
        let (head, host) = (&request.head, receiver_cx.host);
        let Some(key) = request.key.filter(|_| head.flags.has(Flags::NILEXT)) else {
            return false;
        };
        let route = route_of(key.bytes());
        if !host.may_accept(route) {
            return false;
        }
        let store_cx = &receiver_cx.store_cx;
        let hash = store_cx.store.hash_of_route(route);
        let number = self.native.queue_number(hash.0);
        let arrival = arrival_of(head, hash, bytes, (store_cx.now.unix_ns, from));
        let now_ns = receiver_cx.monotonic_ns;
        let tail = self.queues.get(number).map(|queue| queue.backlog().tail);
        let may = || host.may_accept(route);
        let accepted = self.ingress().accept(&arrival, ticket, now_ns, may);
        // One that got a place and was not accepted is to be passed, too.
        if self.queues.get(number).map(|queue| queue.backlog().tail) != tail {
            self.touch(1 << number);
        }
        let Some(pos) = accepted else {
            return false;
        };
        let place = place_of(self, number, pos);
        self.reply(receiver_cx, from, &ack(head.echo(), place));
        true
    }

    /// The claim of a request that changes something; `None` if it is answered, or dropped. A read
    /// with a touch that was answered is carried out again, without a claim: values are not kept,
    /// and another touch does no harm.
    fn claim(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        from: Sender,
    ) -> Option<Option<ClaimTicket>> {
        let head = &request.head;
        let (native, name) = (self.native, session_name(head.session));
        let claimed =
            native
                .sessions()
                .claim(name, queue_peer(from.address), head.slot, head.sequence);
        let counts = &mut receiver_cx.executor.state().counts;
        match claimed {
            Claim::Granted(ticket) => return Some(Some(ticket)),
            Claim::Repeated { .. } if native.answers.is_unknown(name, head.slot, head.sequence) => {
                counts.add(NativeCount::DroppedStale, 1);
            }
            Claim::Repeated {
                pos: Some(pos),
                accepted: true,
            } => {
                counts.add(NativeCount::Reacknowledged, 1);
                let key = request.key.map_or(&[][..], |key| key.bytes());
                let hash = receiver_cx.store_cx.store.hash(key);
                let place = place_of(self, native.queue_number(hash.0), pos);
                self.reply(receiver_cx, from, &ack(head.echo(), place));
            }
            Claim::Repeated { .. } => {
                counts.add(NativeCount::Replayed, 1);
                if head.opcode == Opcode::GetTouch {
                    return Some(None);
                }
                let kept = native.answers.find(name, head.slot, head.sequence);
                let done = kept.unwrap_or(Done::of(Status::Executed));
                let place = self.node_place(done.copies);
                self.reply(receiver_cx, from, &reply_to(head, place, &done, &[]));
            }
            Claim::Stale => counts.add(NativeCount::DroppedStale, 1),
            Claim::Unknown => self.error(receiver_cx, head, ErrorCode::Session, from),
        }
        None
    }

    fn node_place(&self, copies: u8) -> Place {
        self.native.node_place(copies, self.on_node.left())
    }

    /// Answers what the node has executed.
    pub(super) fn take_from_node(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        host: &dyn Host,
    ) {
        let mut spare = std::mem::take(&mut self.on_node.spare);
        let show: &mut ShowsEnded<'_> = &mut |name, told, copies| {
            if let Some(under_way) = self.on_node.under_way.take(name) {
                self.answer(receiver_cx, &under_way, (told, copies));
            }
        };
        host.take_from_node(AskingThread::Native, &mut spare, show);
        self.on_node.spare = spare;
    }

    fn answer(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        under_way: &UnderWay,
        (told, copies): (Told<'_>, u8),
    ) {
        let UnderWay { head, from, ticket } = under_way;
        let place = self.node_place(copies);
        let counts = &mut receiver_cx.executor.state().counts;
        let (done, value) = match self.native.ended(counts, (head, *ticket), (told, copies)) {
            Ended::Done(done, value) => (done, value),
            Ended::NotReady => {
                return self.nack(receiver_cx, head.echo(), place, NackReason::NotReady, *from);
            }
            // The client must not send it again, and waits no longer than for a lost reply.
            Ended::Unknown => return,
        };
        if head.opcode == Opcode::Get {
            let hit = match done.status {
                Status::Value => NativeCount::GetHits,
                _ => NativeCount::GetMisses,
            };
            receiver_cx.executor.state().counts.add(hit, 1);
        }
        if value.len() > value_bytes_max(self.native.datagram_bytes_for(from.address)) {
            // It may be sent again over TCP.
            self.native.reopen(*ticket);
            return self.error(receiver_cx, head, ErrorCode::TooLarge, *from);
        }
        self.native.commit_done(head, *ticket, done);
        self.reply(receiver_cx, *from, &reply_to(head, place, &done, value));
    }
}

impl Native {
    /// What a reply says of a queue: there is none, and so many nodes have what it shows.
    pub(super) fn node_place(&self, copies: u8, credits: u32) -> Place {
        Place {
            queue: Place::NO_QUEUE,
            credits,
            incarnation: self.incarnation,
            pos: u64::from(copies),
            durable_pos: 0,
        }
    }

    /// What becomes of a request that the node has ended, and of its claim unless it is done.
    pub(super) fn ended<'v>(
        &self,
        counts: &mut NativeCounts,
        (head, ticket): (&Head, Option<ClaimTicket>),
        (told, copies): (Told<'v>, u8),
    ) -> Ended<'v> {
        match told {
            Ok(Some((outcome, value))) => {
                let done = done_of(head, &outcome);
                Ended::Done(Done { copies, ..done }, value)
            }
            Ok(None) => {
                let done = Done::default();
                Ended::Done(Done { copies, ..done }, &[])
            }
            Err(failure) if had_no_effect(head.opcode, ticket.is_some(), failure) => {
                self.reopen(ticket);
                counts.add(NativeCount::NackNotReady, 1);
                Ended::NotReady
            }
            Err(_) => {
                if let Some(ticket) = ticket {
                    self.commit_unknown(head, ticket);
                }
                Ended::Unknown
            }
        }
    }

    /// The request of a claim was not executed, and may come again.
    fn reopen(&self, ticket: Option<ClaimTicket>) {
        if let Some(ticket) = ticket {
            self.sessions().reopen(ticket);
        }
    }

    /// The request of a claim, if there is one, ended so: whoever sends it again is told.
    pub(super) fn commit_done(&self, head: &Head, ticket: Option<ClaimTicket>, done: Done) {
        if let Some(ticket) = ticket {
            let name = session_name(head.session);
            self.answers.keep(name, head.slot, head.sequence, done);
            self.sessions().commit_executed(ticket);
        }
    }

    /// Nobody knows how the request of a claim ended: whoever sends it again is not answered.
    pub(super) fn commit_unknown(&self, head: &Head, ticket: ClaimTicket) {
        let name = session_name(head.session);
        self.answers.keep_unknown(name, head.slot, head.sequence);
        self.sessions().commit_executed(ticket);
    }
}

/// What a client is told of an outcome.
fn done_of(head: &Head, outcome: &Outcome) -> Done {
    match (head.opcode, outcome) {
        (Opcode::Get | Opcode::GetTouch, Outcome::Found(found)) => Done {
            status: Status::Value,
            item_flags: found.flags,
            ..done(outcome)
        },
        _ => done(outcome),
    }
}

/// What the node is asked for; `None` for a flush.
pub(super) fn asked_of<'r>(request: &Request<'r>, arrived_ns: u64) -> Option<ItemRequest<'r>> {
    Some(ItemRequest {
        key: request.key?,
        operation: operation_of(request, arrived_ns)?,
        shows: match request.head.opcode {
            Opcode::Get | Opcode::GetTouch => Shows::Value,
            _ => Shows::Nothing,
        },
        value: request.value,
    })
}

/// What a request asks for, a relative expiry counted from its arrival.
fn operation_of(request: &Request<'_>, arrived_ns: u64) -> Option<Operation> {
    let mut operation = request.operation()?;
    match &mut operation {
        Operation::Get(get) if request.head.opcode == Opcode::Get => get.touch = None,
        Operation::Get(get) => get.touch = get.touch.map(|touch| at_arrival(touch, arrived_ns)),
        Operation::Set(set) => set.exptime = at_arrival(set.exptime, arrived_ns),
        Operation::Delete(_) | Operation::Arithmetic(_) => {}
    }
    Some(operation)
}

/// Whether a request that ended so has changed nothing that its client could mind, for certain.
fn had_no_effect(opcode: Opcode, is_claimed: bool, failure: Failure) -> bool {
    match (opcode, failure) {
        // Nodes may have flushed before another one failed.
        (Opcode::Flush, _) => failure == Failure::OutOfService,
        _ if !is_claimed => true,
        (_, Failure::Busy | Failure::OutOfService | Failure::Unreachable | Failure::NotBegun) => {
            true
        }
        (
            _,
            Failure::OutOfMemory
            | Failure::Late
            | Failure::ViewChanged
            | Failure::NodeLost
            | Failure::LeaseEnded,
        ) => false,
    }
}
