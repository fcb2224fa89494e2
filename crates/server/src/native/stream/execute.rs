//! Executes the complete requests of one stream and encodes their replies.

use curtail_codec::native::{Checksum, ErrorCode, Head, Opcode, Place, Reply, Request, Status};
use curtail_ordered_queue::{Claim, Peer, SessionName};
use curtail_runtime::Sent;
use curtail_store::{COPY_BYTES_MAX, ValueLease};
use curtail_types::{Exptime, Get, Key, KeyHash};

use crate::{
    limits::NATIVE_UNDER_WAY_MAX,
    native::{
        Native,
        counters::NativeCount,
        executor::{Executor, at_arrival, execute, reply_to, set_done},
        reply_cache::Done,
        reply_sender::{place, session_name},
        stream::decode::{Behind, Line, Progress, Whole, error, push},
    },
    store_context::StoreContext,
};

/// Turns with a queue before others have theirs.
const HELP_TURNS: usize = 4;

/// Bytes of a value sent in one call.
const SEND_BYTES_MAX: usize = 256 << 10;

impl Line {
    /// Sends what is to be sent; false if the kernel takes no more now, `None` if it broke.
    pub(super) fn send(&mut self, now_ns: u64) -> Option<bool> {
        while self.sent < self.output.len() {
            let rest = self.output.get(self.sent..).unwrap_or_default();
            match self.stream.send(rest) {
                Sent::Bytes(0) => return Some(false),
                Sent::Bytes(bytes) => self.sent += bytes,
                Sent::Broken => return None,
            }
            self.moved_ns = now_ns;
        }
        self.output.clear();
        self.sent = 0;
        while let Some((lease, from)) = &mut self.lease {
            let part = lease.part(*from);
            let part = part
                .get(..part.len().min(SEND_BYTES_MAX))
                .unwrap_or_default();
            if part.is_empty() {
                self.lease = None;
                break;
            }
            match self.stream.send(part) {
                Sent::Bytes(0) => return Some(false),
                Sent::Bytes(bytes) => *from += bytes,
                Sent::Broken => return None,
            }
            self.moved_ns = now_ns;
        }
        Some(true)
    }

    /// Carries out the request that waits, if its queues have come far enough.
    pub(super) fn serve(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
    ) -> bool {
        let Progress::Waiting(whole) = &self.state else {
            return true;
        };
        let is_reached = match &whole.behind {
            Behind::One(number, stamp) => {
                executor.reach(native, store_cx, *number, *stamp, HELP_TURNS)
            }
            Behind::All(tails) => {
                let mut tails = tails.iter().enumerate();
                tails.all(|(number, tail)| {
                    executor.reach(native, store_cx, number, *tail, HELP_TURNS)
                })
            }
        };
        if !is_reached {
            return false;
        }
        if let Progress::Waiting(mut whole) = std::mem::replace(&mut self.state, Progress::Between)
        {
            self.carry_out(native, executor, store_cx, &mut whole);
            self.values = whole.value;
        }
        true
    }

    fn carry_out(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        store_cx: &mut StoreContext,
        whole: &mut Whole,
    ) {
        let head = whole.head;
        let name = session_name(head.session);
        let key = whole
            .key
            .get(..usize::from(head.key_bytes))
            .unwrap_or_default();
        let key = Key::new(key).ok();
        let ticket = whole.ticket.take();
        let done = match (head.opcode, key) {
            (Opcode::Flush, _) => {
                native.log_flush(store_cx.now, &head);
                store_cx.store.flush_all(store_cx.now, Exptime(0));
                Done::default()
            }
            (Opcode::Get, Some(key)) => {
                let counts = &mut executor.state().counts;
                let hit = self.read(native, store_cx, &head, (key, whole.hash), &Get::default());
                let count = match hit.status {
                    Status::NotFound => NativeCount::GetMisses,
                    _ => NativeCount::GetHits,
                };
                return counts.add(count, 1);
            }
            (Opcode::GetTouch, Some(key)) => {
                let exptime = Exptime(i64::from(head.exptime));
                let get = Get {
                    touch: Some(at_arrival(exptime, store_cx.now.unix_ns)),
                    ..Get::default()
                };
                let done = self.read(native, store_cx, &head, (key, whole.hash), &get);
                if let Some(ticket) = ticket {
                    native.answers.keep(name, head.slot, head.sequence, done);
                    native.sessions().commit_executed(ticket);
                }
                return;
            }
            _ => match whole.reservation.take() {
                Some(reservation) => set_done(store_cx.commit(reservation)),
                None => {
                    let request = Request {
                        head,
                        key,
                        value: &whole.value,
                    };
                    execute(
                        store_cx,
                        &request,
                        whole.hash,
                        store_cx.now.unix_ns,
                        &mut [],
                    )
                }
            },
        };
        executor.state().note_refusal(&done);
        native.answers.keep(name, head.slot, head.sequence, done);
        if let Some(ticket) = ticket {
            native.sessions().commit_executed(ticket);
        }
        self.push_result(native, &head, &done);
    }

    /// Reads and answers with the value: copied if it is small, else from where it lies.
    fn read(
        &mut self,
        native: &Native,
        store_cx: &mut StoreContext,
        head: &Head,
        (key, hash): (Key<'_>, KeyHash),
        get: &Get,
    ) -> Done {
        let mut small = [0; COPY_BYTES_MAX];
        let mut lease = None;
        let get = Get {
            keep_token: true,
            ..*get
        };
        let found = store_cx.get(key, hash, &get, |view| {
            let bytes = view.value_bytes();
            lease = None;
            let mut status = Status::Value;
            match small.get_mut(..bytes) {
                Some(room) => {
                    view.copy_value(0, room);
                }
                None => {
                    lease = view.lease_value();
                    if lease.is_none() {
                        status = Status::OutOfMemory;
                    }
                }
            }
            Done {
                status,
                version: view.status().cas.0,
                number: 0,
                item_flags: view.status().flags,
                value_bytes: bytes,
                ..Done::of(status)
            }
        });
        let done = found.unwrap_or(Done::of(Status::NotFound));
        match lease.filter(|_| done.status == Status::Value) {
            Some(lease) => self.push_leased(native, head, &done, lease),
            None => {
                let bytes = if done.status == Status::Value {
                    done.value_bytes
                } else {
                    0
                };
                let value = small.get(..bytes).unwrap_or_default();
                self.push_value(native, head, &done, value);
            }
        }
        Done {
            value_bytes: 0,
            ..done
        }
    }

    /// Answers a request that may have been answered before.
    pub(super) fn answer_again(
        &mut self,
        native: &Native,
        executor: &mut Executor,
        head: &Head,
        name: SessionName,
        hash: KeyHash,
    ) {
        let counts = &mut executor.state().counts;
        let peer = native.sessions().peer_of(name.index).unwrap_or_default();
        let (pos, accepted) = match native
            .sessions()
            .claim(name, peer, head.slot, head.sequence)
        {
            Claim::Repeated { pos, accepted } => (pos, accepted),
            Claim::Granted(ticket) => return native.sessions().reopen(ticket),
            Claim::Stale => return counts.add(NativeCount::DroppedStale, 1),
            Claim::Unknown => {
                counts.add(NativeCount::Errors, 1);
                return push(
                    &mut self.output,
                    Some(&error(native, head, ErrorCode::Session)),
                );
            }
        };
        if native.answers.is_unknown(name, head.slot, head.sequence) {
            self.closing = true;
            return counts.add(NativeCount::DroppedStale, 1);
        }
        let number = native.queue_number(hash.0);
        let kept = native.answers.find(name, head.slot, head.sequence);
        let is_executed = pos.is_none_or(|pos| native.has_reached(number, pos + 1));
        let is_over = accepted || native.is_on_node || is_executed;
        if kept.is_none() && !is_over {
            // Its executor answers, by datagram.
            return counts.add(NativeCount::DroppedStale, 1);
        }
        counts.add(NativeCount::Replayed, 1);
        let done = kept.unwrap_or(Done::of(Status::Executed));
        let place = match pos.filter(|_| accepted) {
            Some(pos) => Place {
                pos,
                ..native.queue_place(number)
            },
            None => native.place_of(&done),
        };
        push(&mut self.output, Some(&reply_to(head, place, &done, &[])));
    }

    /// Answers PING and CLOSE.
    pub(super) fn local(&mut self, native: &Native, head: &Head, name: SessionName, peer: Peer) {
        if head.opcode == Opcode::Close {
            native.sessions().close(name, peer);
            return;
        }
        let number = usize::try_from(head.argument).unwrap_or(usize::MAX);
        let reply = match native.queue(number) {
            Some(queue) => Reply::Pong {
                echo: head.echo(),
                place: place(number, &queue, native.incarnation, queue.backlog().head),
            },
            None => error(native, head, ErrorCode::Malformed),
        };
        push(&mut self.output, Some(&reply));
    }

    /// Answers without a value.
    pub(super) fn push_result(&mut self, native: &Native, head: &Head, done: &Done) {
        let place = native.place_of(done);
        push(&mut self.output, Some(&reply_to(head, place, done, &[])));
    }

    pub(super) fn push_value(&mut self, native: &Native, head: &Head, done: &Done, value: &[u8]) {
        let reply = Reply::Result {
            echo: head.echo(),
            place: native.place_of(done),
            status: done.status,
            version: done.version,
            number: 0,
            item_flags: done.item_flags,
            value,
        };
        push(&mut self.output, Some(&reply));
    }

    /// Answers with a value that is sent from where it lies: the head is that of an empty one, with
    /// the length and the checksum of this.
    fn push_leased(&mut self, native: &Native, head: &Head, done: &Done, lease: ValueLease) {
        self.push_value(native, head, done, &[]);
        let start = self.output.len() - RESULT_HEAD_BYTES;
        let Some(result) = self.output.get_mut(start..) else {
            return;
        };
        let bytes = lease.value_bytes();
        if let Some(place) = result.get_mut(VALUE_BYTES_AT..VALUE_BYTES_AT + 4) {
            place.copy_from_slice(&(bytes as u32).to_le_bytes());
        }
        let first = result.first_chunk::<8>().copied().unwrap_or_default();
        let mut checksum = Checksum::new(u64::from_le_bytes(first));
        checksum.update(result.get(16..).unwrap_or_default());
        let mut from = 0;
        while from < bytes {
            let part = lease.part(from);
            if part.is_empty() {
                break;
            }
            checksum.update(part);
            from += part.len();
        }
        if let Some(place) = result.get_mut(8..16) {
            place.copy_from_slice(&checksum.finish().to_le_bytes());
        }
        self.lease = Some((lease, 0));
    }
}

impl Native {
    /// What a reply says whose request did not go through a queue: so it has no position that
    /// anybody could wait for, and was executed.
    pub(in crate::native) fn place_of(&self, done: &Done) -> Place {
        self.node_place(done.copies, NATIVE_UNDER_WAY_MAX as u32)
    }

    /// What a reply says of a queue.
    fn queue_place(&self, number: usize) -> Place {
        match self.queue(number) {
            Some(queue) => place(number, &queue, self.incarnation, 0),
            None => Place::default(),
        }
    }

    /// The tails of all queues.
    pub(super) fn tails(&self) -> Vec<u64> {
        let queues = self.all_queues();
        queues.iter().map(|queue| queue.backlog().tail).collect()
    }
}

/// Bytes of a result before its value, and where in it the value's length is.
const RESULT_HEAD_BYTES: usize = 88;
const VALUE_BYTES_AT: usize = 80;
