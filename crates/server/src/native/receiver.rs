//! The receiver: receives datagrams, and handles at once what needs no execution.
//!
//! ```text
//!   datagram --> decode --> class
//!     malformed      ERROR, or nothing               write   admit: ACK, NACK, or its executor's
//!     handshake      COOKIE, GRANT                   read    stamp reached: from the store
//!     PING, CLOSE    PONG, nothing                           newest entry is it: from the queue
//!     barrier        waits for all queues                    else help, or wait
//! ```
//!
//! A receiver belongs to one thread: the one that does nothing else, or a worker. Juneberry's
//! servers differ in what happens to the rest of a batch while one request of it is executed:
//!
//! ```text
//!   io-ack, xdp: a thread apart      all of a batch is admitted and answered, then its reads run
//!   raw, deferred: a worker (JB-24)  one after another: admit, [acknowledge,] execute, answer
//!   the same, placement by owner     all of a batch is admitted and answered; owners execute
//! ```
//!
//! The second is the paper's: "when processing a nilext request, the server CPU first returns a
//! software ACK to commit and then executes it", and what arrives meanwhile waits in the receive
//! queue (sections 6.1 and 6.3). A worker that acknowledges all that it received before it executes
//! any of it is quicker to acknowledge and is neither of the paper's servers. One after another
//! costs a system call for each answer.
//!
//! No acknowledgement leaves before its write is published, stamped and committed. No client can
//! observe that reads come last in a batch, since none of it is answered yet.

use std::net::SocketAddr;

use curtail_codec::native::{
    Ack, Class, Echo, ErrorCode, Flags, Head, Malformed, Nack, NackReason, Opcode, Place, Promise,
    Reply, ReplyError, Request, Status,
};
use curtail_ordered_queue::{
    Arrival, Claim, ClaimTicket, EntryKind, Ingress, OrderedQueue, Sessions, Stamps, TURN_MAX,
    Verdict, layout,
};
use curtail_runtime::Inbox;
use curtail_types::{Exptime, KeyHash};

#[cfg(feature = "baselines")]
use crate::native::baselines::hand_off_and_stealing::HandOff;
use crate::{
    native::{
        HEARTBEAT_NS_MAX, Host, Native, NativeMode, NativePlacement,
        counters::NativeCount,
        executor::{Executor, read_and_touch, reply_to},
        handshake::Budget,
        on_node::RequestsOnNode,
        read::WaitingReads,
        reply_cache::Done,
        reply_sender::{OPCODE_AT, Sender, place, queue_peer, session_name},
    },
    store_context::StoreContext,
    test_faults::Fault,
};

/// The receiver of one thread.
pub(crate) struct Receiver<'a> {
    pub(super) native: &'a Native,
    pub(super) queues: Vec<OrderedQueue<'a>>,
    stamps: Stamps<'a>,
    sessions: Sessions<'a>,
    inbox: Option<Inbox>,
    first_socket: usize,
    pub(super) waiting: WaitingReads,
    pub(super) on_node: RequestsOnNode,
    /// The payload of an entry that a read is answered from.
    pub(super) copy: Box<[u8; layout::PAYLOAD_BYTES_MAX]>,
    barrier: Option<Barrier>,
    budget: Budget,
    /// A bit for each queue that took an entry since the last [`Receiver::take_touched`].
    touched: u64,
    #[cfg(feature = "baselines")]
    pub(super) hand_off: HandOff,
}

/// What of a batch is looked at.
#[derive(Clone, Copy)]
enum Pass {
    All,
    ButReads,
    Reads,
}

impl Pass {
    #[inline]
    fn has(self, datagram: &[u8]) -> bool {
        let is_read = || datagram.get(OPCODE_AT as usize) == Some(&(Opcode::Get as u8));
        match self {
            Self::All => true,
            Self::ButReads => !is_read(),
            Self::Reads => is_read(),
        }
    }
}

/// What a turn of the receiver works with.
pub(crate) struct ReceiverContext<'m> {
    pub(crate) executor: &'m mut Executor,
    pub(crate) store_cx: &'m mut StoreContext,
    /// The machine's monotonic clock, which heartbeats and leases go by.
    pub(crate) monotonic_ns: u64,
    pub(crate) host: &'m dyn Host,
}

/// A flush that waits until every queue has come as far as it was when the flush arrived.
struct Barrier {
    ticket: ClaimTicket,
    head: Head,
    from: Sender,
    tails: [u64; QUEUES_MAX],
}

/// Datagrams of one receive.
const BATCH: usize = 64;

/// Queues at most.
const QUEUES_MAX: usize = 64;

impl<'a> Receiver<'a> {
    /// A receiver for the sockets from `first_socket` on, one for each address.
    pub(crate) fn new(native: &'a Native, first_socket: usize) -> Self {
        Self {
            native,
            queues: native.all_queues(),
            stamps: native.stamps(),
            sessions: native.sessions(),
            inbox: Some(Inbox::new(BATCH)),
            first_socket,
            waiting: WaitingReads::new(),
            on_node: RequestsOnNode::default(),
            copy: Box::new([0; layout::PAYLOAD_BYTES_MAX]),
            barrier: None,
            budget: Budget::default(),
            touched: 0,
            #[cfg(feature = "baselines")]
            hand_off: HandOff::nothing(),
        }
    }

    /// The same for the one thread that receives: it leaves to the workers what the placement says.
    pub(crate) fn of_receiver(native: &'a Native) -> Self {
        Self {
            #[cfg(feature = "baselines")]
            hand_off: HandOff::of_receiver(native),
            ..Self::new(native, 0)
        }
    }

    /// Receives one batch from each socket, looks at all of it, and sends what is to be answered.
    /// Returns how many datagrams came.
    pub(crate) fn turn(&mut self, receiver_cx: &mut ReceiverContext<'_>) -> usize {
        let total = match self.native.mode {
            _ if self.runs_each() => self.receive(receiver_cx, Self::run),
            NativeMode::Raw => self.receive(receiver_cx, Self::take),
            _ => self.receive_in(&[Pass::ButReads, Pass::Reads], receiver_cx, Self::take),
        };
        self.attend(receiver_cx);
        total
    }

    /// Whether requests are run one by one: by a worker that receives and executes itself (JB-24).
    fn runs_each(&self) -> bool {
        let here = matches!(
            self.native.config.placement,
            NativePlacement::Any | NativePlacement::Arrival
        );
        here && self.native.mode.workers_receive()
    }

    /// Receives one batch from each socket and has `run` look at each datagram; how many came.
    pub(super) fn receive(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        run: impl FnMut(&mut Self, &mut ReceiverContext<'_>, &[u8], Sender),
    ) -> usize {
        self.receive_in(&[Pass::All], receiver_cx, run)
    }

    /// The same, each batch in several passes; replies leave between them.
    fn receive_in(
        &mut self,
        passes: &[Pass],
        receiver_cx: &mut ReceiverContext<'_>,
        mut run: impl FnMut(&mut Self, &mut ReceiverContext<'_>, &[u8], Sender),
    ) -> usize {
        let Some(mut inbox) = self.inbox.take() else {
            return 0;
        };
        let mut total = 0;
        for number in 0..self.native.addresses.len() {
            let Some(socket) = self.native.sockets.get(self.first_socket + number) else {
                continue;
            };
            let count = inbox.receive(socket);
            if count == 0 {
                continue;
            }
            let counts = &mut receiver_cx.executor.state().counts;
            counts.add(NativeCount::Received, count as u64);
            counts.add(NativeCount::Receives, 1);
            total += count;
            for (done, pass) in passes.iter().enumerate() {
                if done > 0 {
                    let state = receiver_cx.executor.state();
                    state.post.send(self.native, &mut state.counts);
                }
                for index in 0..count {
                    let found = inbox.get(index).filter(|(bytes, _)| pass.has(bytes));
                    if let Some((bytes, address)) = found {
                        let (socket, local) = (number as u8, inbox.local(index));
                        let from = Sender {
                            socket,
                            address,
                            local,
                        };
                        run(self, receiver_cx, bytes, from);
                    }
                }
            }
        }
        self.inbox = Some(inbox);
        total
    }

    /// Goes on with what waits here, and sends what is to be answered.
    pub(super) fn attend(&mut self, receiver_cx: &mut ReceiverContext<'_>) {
        if self.native.is_on_node {
            let host = receiver_cx.host;
            self.take_from_node(receiver_cx, host);
        }
        self.serve_waiting(receiver_cx);
        self.go_on_with_barrier(receiver_cx);
        let state = receiver_cx.executor.state();
        state.post.send(self.native, &mut state.counts);
    }

    /// The queues that took entries since the last call, as bits.
    pub(crate) fn take_touched(&mut self) -> u64 {
        std::mem::take(&mut self.touched)
    }

    /// Has queues among those that took entries.
    pub(super) const fn touch(&mut self, queues: u64) {
        self.touched |= queues;
    }

    /// Whether a node of the cluster has requests of this receiver.
    pub(crate) fn is_asking(&self) -> bool {
        !self.on_node.is_empty()
    }

    /// Whether something waits here for queues.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.barrier.is_some()
    }

    pub(super) fn take(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        bytes: &[u8],
        from: Sender,
    ) {
        let request = match Request::decode(bytes) {
            Ok(request) => request,
            Err(why) => return self.refuse(receiver_cx, bytes, why, from),
        };
        if bytes.len() > self.native.datagram_bytes_for(from.address) {
            return self.refuse(receiver_cx, bytes, Malformed::TooLarge, from);
        }
        let class = request.head.class();
        match class.class() {
            Class::Local => self.local(receiver_cx, &request, from),
            _ if self.native.is_on_node => {
                let host = receiver_cx.host;
                self.ask_node(receiver_cx, host, (&request, bytes), from);
            }
            Class::Barrier => self.barrier(receiver_cx, &request, from),
            #[cfg(feature = "baselines")]
            _ if self.hand_off.takes(class.is_queued()) => {
                self.hand_off(receiver_cx, &request, bytes, from)
            }
            _ if class.is_queued() => self.write(receiver_cx, &request, bytes, from),
            _ => self.read(receiver_cx, &request, from),
        }
    }

    /// Runs one datagram to its end, as far as nobody else holds its queue, and sends its answer.
    pub(crate) fn run(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        bytes: &[u8],
        from: Sender,
    ) {
        let native = self.native;
        let before = self.take_touched();
        self.take(receiver_cx, bytes, from);
        // What is acknowledged before it is executed leaves before that.
        let state = receiver_cx.executor.state();
        state.post.send(native, &mut state.counts);
        let mut touched = self.take_touched();
        self.touch(before | touched);
        while touched != 0 {
            let number = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            receiver_cx
                .executor
                .drain(native, receiver_cx.store_cx, number, TURN_MAX);
        }
        let state = receiver_cx.executor.state();
        state.post.send(native, &mut state.counts);
    }

    /// Answers what is no request, if it is answered at all.
    #[cold]
    fn refuse(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        bytes: &[u8],
        why: Malformed,
        from: Sender,
    ) {
        match Reply::refuse(bytes, why, self.native.incarnation) {
            Some(reply) => {
                receiver_cx
                    .executor
                    .state()
                    .counts
                    .add(NativeCount::Errors, 1);
                self.reply(receiver_cx, from, &reply);
            }
            None => {
                let counts = &mut receiver_cx.executor.state().counts;
                counts.add(NativeCount::DroppedForeign, 1);
            }
        }
    }

    fn local(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        from: Sender,
    ) {
        let native = self.native;
        let unix_seconds = receiver_cx.store_cx.now.unix_seconds();
        let head = &request.head;
        match head.opcode {
            Opcode::Hello if self.budget.takes_hello(unix_seconds) => {
                receiver_cx
                    .executor
                    .state()
                    .counts
                    .add(NativeCount::Cookies, 1);
                let cookie = native.cookie(request, from.address, unix_seconds);
                self.reply(receiver_cx, from, &cookie);
            }
            Opcode::Confirm if self.budget.takes_confirm(unix_seconds) => {
                let now_ns = receiver_cx.monotonic_ns;
                let reply = native.grant(request, from.address, unix_seconds, now_ns);
                let count = match reply {
                    Reply::Grant(grant) => {
                        native.locals.note(grant.session.index, from.local);
                        NativeCount::Grants
                    }
                    _ => NativeCount::GrantsRefused,
                };
                receiver_cx.executor.state().counts.add(count, 1);
                self.reply(receiver_cx, from, &reply);
            }
            Opcode::Hello | Opcode::Confirm => {
                let counts = &mut receiver_cx.executor.state().counts;
                counts.add(NativeCount::DroppedHandshakes, 1);
            }
            Opcode::Close => {
                let name = session_name(head.session);
                if !self.sessions.close(name, queue_peer(from.address)) {
                    self.error(receiver_cx, head, ErrorCode::Session, from);
                }
            }
            _ => self.ping(receiver_cx, head, from),
        }
    }

    fn ping(&mut self, receiver_cx: &mut ReceiverContext<'_>, head: &Head, from: Sender) {
        if !self.admits(receiver_cx, head, from) {
            return;
        }
        let number = usize::try_from(head.argument).unwrap_or(usize::MAX);
        let Some(queue) = self.queues.get(number) else {
            return self.error(receiver_cx, head, ErrorCode::Malformed, from);
        };
        let place = place(number, queue, self.native.incarnation, queue.backlog().head);
        let echo = head.echo();
        self.reply(receiver_cx, from, &Reply::Pong { echo, place });
    }

    /// Whether the session of a request that claims no slot is its sender's; an error if not.
    pub(super) fn admits(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        head: &Head,
        from: Sender,
    ) -> bool {
        let name = session_name(head.session);
        let sessions = self.sessions;
        let is_known = sessions.is_known(name, queue_peer(from.address));
        if is_known {
            self.native.locals.note(name.index, from.local);
            sessions.renew(name, self.native.limits(receiver_cx.monotonic_ns));
        } else {
            self.error(receiver_cx, head, ErrorCode::Session, from);
        }
        is_known
    }

    /// Admits a write.
    fn write(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        bytes: &[u8],
        from: Sender,
    ) {
        let head = &request.head;
        let Some(key) = request.key else {
            return;
        };
        if request.value.len() > self.native.item_bytes_max {
            return self.error(receiver_cx, head, ErrorCode::TooLarge, from);
        }
        let hash = receiver_cx.store_cx.store.hash(key.bytes());
        receiver_cx.store_cx.store.prefetch(hash);
        let arrived_ns = receiver_cx.store_cx.now.unix_ns;
        let arrival = arrival_of(head, hash, bytes, (arrived_ns, from));
        let ingress = self.ingress();
        if self.native.has(Fault::AcceptsAhead) && arrival.nilext {
            self.reply(receiver_cx, from, &ack(head.echo(), Place::default()));
            let state = receiver_cx.executor.state();
            state.post.send(self.native, &mut state.counts);
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        let verdict = ingress.admit(&arrival, receiver_cx.monotonic_ns);
        if self.native.has(Fault::ForgetsRequests)
            && matches!(verdict, Verdict::Repeated(_) | Verdict::Replay(_))
        {
            let anew = Arrival {
                slot: arrival.slot + 32,
                sequence: receiver_cx.monotonic_ns >> 10,
                ..arrival
            };
            ingress.admit(&anew, receiver_cx.monotonic_ns);
        }
        self.follow(receiver_cx, request, hash, verdict, from);
    }

    /// What a write meets on its way into the queues.
    pub(super) fn ingress(&self) -> Ingress<'_> {
        Ingress {
            queues: &self.queues,
            stamps: self.stamps,
            sessions: self.sessions,
            heartbeat_ns_max: HEARTBEAT_NS_MAX,
        }
    }

    /// Does what the verdict on a write says.
    fn follow(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        hash: KeyHash,
        verdict: Verdict,
        from: Sender,
    ) {
        let number = self.native.queue_number(hash.0);
        let head = &request.head;
        let nack = |reason| (reason, place_of(self, number, 0));
        let (count, reason, place) = match verdict {
            Verdict::Accepted(pos) | Verdict::Repeated(pos) => {
                if let Verdict::Accepted(_) = verdict {
                    self.touched |= 1 << number;
                } else {
                    let counts = &mut receiver_cx.executor.state().counts;
                    counts.add(NativeCount::Reacknowledged, 1);
                }
                let limits = self.native.limits(receiver_cx.monotonic_ns);
                let name = session_name(head.session);
                self.sessions.renew(name, limits);
                let place = place_of(self, number, pos);
                return self.reply(receiver_cx, from, &ack(head.echo(), place));
            }
            Verdict::Queued(_) => {
                self.touched |= 1 << number;
                let limits = self.native.limits(receiver_cx.monotonic_ns);
                let name = session_name(head.session);
                return self.sessions.renew(name, limits);
            }
            Verdict::Replay(pos) => return self.replay(receiver_cx, request, hash, pos, from),
            Verdict::NoSession => return self.error(receiver_cx, head, ErrorCode::Session, from),
            Verdict::TooLarge => return self.error(receiver_cx, head, ErrorCode::TooLarge, from),
            Verdict::Dropped => {
                let counts = &mut receiver_cx.executor.state().counts;
                return counts.add(NativeCount::DroppedStale, 1);
            }
            Verdict::Absent => {
                let counts = &mut receiver_cx.executor.state().counts;
                return counts.add(NativeCount::DroppedAbsent, 1);
            }
            Verdict::Full => {
                let (reason, place) = nack(NackReason::Full);
                (NativeCount::NackFull, reason, place)
            }
            Verdict::NotReady => {
                let (reason, place) = nack(NackReason::NotReady);
                (NativeCount::NackNotReady, reason, place)
            }
        };
        receiver_cx.executor.state().counts.add(count, 1);
        self.nack(receiver_cx, head.echo(), place, reason, from);
    }

    /// Answers a request that has its place already and was not acknowledged at once.
    fn replay(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        hash: KeyHash,
        pos: Option<u64>,
        from: Sender,
    ) {
        let head = &request.head;
        let number = self.native.queue_number(hash.0);
        let name = session_name(head.session);
        let kept = self.native.answers.find(name, head.slot, head.sequence);
        let is_over = pos.is_none_or(|pos| self.native.has_reached(number, pos + 1));
        if kept.is_none() && !is_over {
            // Its executor answers.
            let counts = &mut receiver_cx.executor.state().counts;
            return counts.add(NativeCount::DroppedStale, 1);
        }
        receiver_cx
            .executor
            .state()
            .counts
            .add(NativeCount::Replayed, 1);
        let done = kept.unwrap_or(Done::of(Status::Executed));
        // What came over TCP has no position, and so no queue that anybody could wait for.
        let place = match pos {
            Some(pos) => place_of(self, number, pos),
            None => self.native.place_of(&done),
        };
        if head.opcode == Opcode::GetTouch {
            return self.read_and_touch_again(receiver_cx, request, hash, place, from);
        }
        let reply = reply_to(head, place, &done, &[]);
        self.reply(receiver_cx, from, &reply);
    }

    /// A read with a touch whose value was lost on the way: no harm in doing it again, but as a
    /// direct write, which waits for its bucket.
    fn read_and_touch_again(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        hash: KeyHash,
        place: Place,
        from: Sender,
    ) {
        let (number, stamp) = self.native.behind(hash.0).unwrap_or((0, 0));
        let ReceiverContext {
            executor, store_cx, ..
        } = receiver_cx;
        let (Some(key), true) = (
            request.key,
            executor.reach(self.native, store_cx, number, stamp, HELP_TURNS),
        ) else {
            return;
        };
        let get = curtail_types::Get {
            touch: Some(Exptime(i64::from(request.head.exptime))),
            ..curtail_types::Get::default()
        };
        let room = self.native.datagram_bytes_for(from.address);
        let state = executor.state();
        let value = state.value.get_mut(..room).unwrap_or_default();
        let done = read_and_touch(store_cx, key, hash, &get, value);
        let value = state.value.get(..done.value_bytes).unwrap_or_default();
        let reply = reply_to(&request.head, place, &done, value);
        state
            .post
            .reply(self.native, &mut state.counts, from, &reply);
    }

    /// Takes a flush on, if none waits already.
    fn barrier(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        from: Sender,
    ) {
        let head = &request.head;
        if !self.native.flush_allowed {
            return self.error(receiver_cx, head, ErrorCode::Unsupported, from);
        }
        let name = session_name(head.session);
        let (native, peer) = (self.native, queue_peer(from.address));
        if self.barrier.is_some() {
            let place = place_of(self, 0, 0);
            return self.refuse_busy(receiver_cx, head.echo(), place, from);
        }
        match native
            .sessions()
            .claim(name, peer, head.slot, head.sequence)
        {
            Claim::Granted(ticket) => {
                let mut tails = [0; QUEUES_MAX];
                for (tail, queue) in tails.iter_mut().zip(&self.queues) {
                    *tail = queue.backlog().tail;
                }
                native
                    .sessions()
                    .renew(name, native.limits(receiver_cx.monotonic_ns));
                self.barrier = Some(Barrier {
                    ticket,
                    head: *head,
                    from,
                    tails,
                });
            }
            Claim::Repeated { .. } => {
                let kept = native.answers.find(name, head.slot, head.sequence);
                let done = kept.unwrap_or(Done::of(Status::Executed));
                let reply = reply_to(head, place_of(self, 0, 0), &done, &[]);
                self.reply(receiver_cx, from, &reply);
            }
            Claim::Stale => {
                let counts = &mut receiver_cx.executor.state().counts;
                counts.add(NativeCount::DroppedStale, 1);
            }
            Claim::Unknown => self.error(receiver_cx, head, ErrorCode::Session, from),
        }
    }

    /// Helps the queues that the flush waits for, and flushes when none is left.
    fn go_on_with_barrier(&mut self, receiver_cx: &mut ReceiverContext<'_>) {
        let Some(barrier) = self.barrier.take() else {
            return;
        };
        let native = self.native;
        let ReceiverContext {
            executor, store_cx, ..
        } = receiver_cx;
        let mut is_reached = true;
        for (number, tail) in barrier.tails.iter().enumerate().take(self.queues.len()) {
            is_reached &= executor.reach(native, store_cx, number, *tail, 1);
        }
        if !is_reached {
            self.barrier = Some(barrier);
            return;
        }
        native.log_flush(store_cx.now, &barrier.head);
        store_cx.store.flush_all(store_cx.now, Exptime(0));
        let head = &barrier.head;
        let (name, done) = (session_name(head.session), Done::default());
        native.answers.keep(name, head.slot, head.sequence, done);
        self.sessions.commit_executed(barrier.ticket);
        executor.state().counts.add(NativeCount::Direct, 1);
        let reply = reply_to(head, place_of(self, 0, 0), &done, &[]);
        self.reply(receiver_cx, barrier.from, &reply);
    }

    #[cold]
    pub(super) fn error(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        head: &Head,
        code: ErrorCode,
        from: Sender,
    ) {
        receiver_cx
            .executor
            .state()
            .counts
            .add(NativeCount::Errors, 1);
        let error = ReplyError {
            echo: head.echo(),
            code,
            incarnation: self.native.incarnation,
        };
        self.reply(receiver_cx, from, &Reply::Error(error));
    }

    /// Refuses a request, since the server has no place for it now.
    pub(super) fn refuse_busy(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        echo: Echo,
        place: Place,
        from: Sender,
    ) {
        let counts = &mut receiver_cx.executor.state().counts;
        counts.add(NativeCount::NackBusy, 1);
        self.nack(receiver_cx, echo, place, NackReason::Busy, from);
    }

    pub(super) fn nack(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        echo: Echo,
        place: Place,
        reason: NackReason,
        from: Sender,
    ) {
        let nack = Nack {
            echo,
            place,
            reason,
        };
        self.reply(receiver_cx, from, &Reply::Nack(nack));
    }

    #[inline]
    pub(super) fn reply(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        to: Sender,
        reply: &Reply<'_>,
    ) {
        let state = receiver_cx.executor.state();
        state.post.reply(self.native, &mut state.counts, to, reply);
    }
}

/// What a reply from here says of a queue.
pub(super) fn place_of(receiver: &Receiver<'_>, number: usize, pos: u64) -> Place {
    match receiver.queues.get(number) {
        Some(queue) => place(number, queue, receiver.native.incarnation, pos),
        None => Place::default(),
    }
}

/// A datagram as it meets the queues.
pub(super) fn arrival_of<'b>(
    head: &Head,
    hash: KeyHash,
    bytes: &'b [u8],
    (arrived_ns, from): (u64, Sender),
) -> Arrival<'b> {
    Arrival {
        session: session_name(head.session),
        peer: queue_peer(from.address),
        slot: head.slot,
        sequence: head.sequence,
        nilext: head.flags.has(Flags::NILEXT),
        kind: kind_of(head),
        key_hash: hash.0,
        arrived_ns,
        payload: bytes,
        key_at: KEY_AT,
        key_bytes: head.key_bytes,
        opcode_and_flags: (head.opcode as u8, head.flags.0 as u8),
        rx_queue: from.socket,
    }
}

/// An acknowledgement of an accepted write.
pub(super) fn ack(echo: Echo, place: Place) -> Reply<'static> {
    Reply::Ack(Ack {
        echo,
        place,
        promise: Promise::Accepted,
    })
}

/// What a write does to its key.
pub(super) fn kind_of(head: &Head) -> EntryKind {
    match head.opcode {
        Opcode::Set if !head.flags.has(Flags::COMPARE) => EntryKind::Set,
        _ => EntryKind::Write,
    }
}

/// Where the key of a datagram begins.
const KEY_AT: u8 = curtail_codec::native::HEADER_BYTES as u8;

/// Turns with a queue that a waiting request has somebody take before it waits for others.
pub(super) const HELP_TURNS: usize = 4;

/// Where a sender is told to be, for what has no sender.
pub(super) const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
