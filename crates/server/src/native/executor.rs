//! The executor: a thread that holds a queue's lease executes its entries in order, and answers
//! those that were not acknowledged when they arrived.
//!
//! ```text
//!   lease -> Turn::run -> Apply  -> store, at the time of arrival for what expires (JB-4)
//!                      -> Answer -> kept for who asks again -> post, sent when head has moved
//! ```
//!
//! Every worker has one, and so has the thread that receives: whoever waits for a queue that nobody
//! executes takes the lease and helps (JB-42). It does not know whether an entry was admitted by a
//! thread or by the XDP program. Nothing here allocates but what the store does for
//! values above its own bound for copying.

use curtail_codec::native::{
    Ack, DATAGRAM_BYTES_MAX, ErrorCode, Flags, HEADER_BYTES, Head, Opcode, Place, Promise, Reply,
    ReplyError, Request, Status,
};
use curtail_dispatch::Worker as Id;
use curtail_ordered_queue::{
    Drained, EntryKind, OrderedQueue, QueueEntry, QueueLease, TURN_MAX, Turn, TurnEnd, TurnStep,
    before_looking_again, layout,
};
use curtail_types::{
    ArithmeticOutcome, DeleteOutcome, Exptime, Get, Key, KeyHash, Operation, Outcome, SetOutcome,
};

use crate::{
    native::{
        Native,
        counters::{NativeCount, NativeCounts},
        execution_pace::TurnStart,
        reply_cache::Done,
        reply_sender::{Post, Sender, address_of, place, session_name, value_bytes_max},
    },
    store_context::StoreContext,
    test_faults::Fault,
};

/// The memory of a thread that executes.
pub(crate) struct Executor {
    id: Id,
    turn: Turn,
    state: ExecutorState,
    /// A bit for each queue that it had the lease of as a helper since the last
    /// [`Executor::take_helped`].
    helped: u64,
    /// Whether the last turn executed many entries.
    was_long: bool,
}

const _: () = assert!(TURN_MAX <= u64::BITS as usize, "bits of `damaged`");

/// What carrying out a step needs beside the turn.
pub(crate) struct ExecutorState {
    /// How each entry of this turn ended; covered ones are done when the covering one is.
    done: [Done; TURN_MAX],
    /// A bit for each entry of this turn whose bytes were damaged, so that it was not executed.
    damaged: u64,
    /// The datagram of the entry at hand.
    payload: Box<[u8; layout::PAYLOAD_BYTES_MAX]>,
    /// The value that a read found.
    pub(crate) value: Box<[u8; DATAGRAM_BYTES_MAX]>,
    pub(crate) post: Post,
    pub(crate) counts: NativeCounts,
    /// The last set of a queue, for the fault that executes it again.
    last: Option<(usize, Vec<u8>)>,
}

impl Executor {
    /// The executor of thread `id`, which answers from the sockets from `first_socket` on.
    pub(crate) fn new(id: usize, addresses: usize, first_socket: usize) -> Self {
        Self {
            id: Id(u16::try_from(id).unwrap_or(u16::MAX - 1)),
            turn: Turn::new(),
            state: ExecutorState {
                done: [Done::default(); TURN_MAX],
                damaged: 0,
                payload: Box::new([0; layout::PAYLOAD_BYTES_MAX]),
                value: Box::new([0; DATAGRAM_BYTES_MAX]),
                post: Post::new(addresses, first_socket),
                counts: NativeCounts::new(),
                last: None,
            },
            helped: 0,
            was_long: false,
        }
    }

    pub(crate) fn state(&mut self) -> &mut ExecutorState {
        &mut self.state
    }

    /// Executes up to `entries_max` entries of a queue and sends the answers; `None` if somebody
    /// else has its lease.
    pub(crate) fn drain(
        &mut self,
        native: &Native,
        store_cx: &mut StoreContext,
        number: usize,
        entries_max: usize,
    ) -> Option<Drained> {
        let queue = native.queue(number)?;
        let mut lease = self.lease(queue)?;
        let start = TurnStart::now(&lease, self.was_long);
        let (turn, state) = (&mut self.turn, &mut self.state);
        let first = lease.head();
        let mut applied = 0;
        let mut queue_cx = QueueContext {
            native,
            store_cx,
            queue,
            number,
            first,
        };
        state.done.fill(Done::default());
        state.damaged = 0;
        state.redo(&mut queue_cx);
        let drained = turn.run(
            &mut lease,
            entries_max,
            Some(native.sessions()),
            |step| match step {
                TurnStep::Apply(entry) => {
                    applied += 1;
                    state.apply(&mut queue_cx, entry);
                }
                TurnStep::Answer(entry) => state.answer(&queue_cx, entry),
            },
        );
        self.was_long = native.account_turn(number, queue, start, drained);
        drop(lease);
        state.counts.add(NativeCount::Leases, 1);
        state.counts.add(NativeCount::Executed, drained.entries);
        let compacted = drained.entries.saturating_sub(applied);
        state.counts.add(NativeCount::Compacted, compacted);
        state.post.send(native, &mut state.counts);
        Some(drained)
    }

    /// Helps until the queue is executed up to `stamp`, or somebody else has its lease, or
    /// `turns_max` turns are over. Whether it is.
    pub(crate) fn reach(
        &mut self,
        native: &Native,
        store_cx: &mut StoreContext,
        number: usize,
        stamp: u64,
        turns_max: usize,
    ) -> bool {
        let Some(queue) = native.queue(number) else {
            return true;
        };
        for _ in 0..turns_max {
            if queue.has_reached(stamp) {
                break;
            }
            let Some(drained) = self.drain(native, store_cx, number, TURN_MAX) else {
                break;
            };
            if drained.stop == TurnEnd::Hole {
                std::hint::spin_loop();
            }
            self.helped |= 1 << (number % 64);
            self.state.counts.add(NativeCount::Helped, 1);
        }
        queue.has_reached(stamp)
    }

    /// The lease of a queue; if somebody else has it, that one looks at the queue once more after
    /// giving it back, and finds what was published before this was asked.
    #[inline]
    fn lease<'q>(&self, queue: OrderedQueue<'q>) -> Option<QueueLease<'q>> {
        queue.take_lease(self.id).or_else(|| {
            before_looking_again();
            queue.take_lease(self.id)
        })
    }

    /// The queues whose lease it had as a helper, as bits: what was published there meanwhile found
    /// it held, and was left to us.
    pub(super) fn take_helped(&mut self) -> u64 {
        std::mem::take(&mut self.helped)
    }
}

/// Where a turn takes place.
struct QueueContext<'b> {
    native: &'b Native,
    store_cx: &'b mut StoreContext,
    queue: OrderedQueue<'b>,
    number: usize,
    first: u64,
}

impl ExecutorState {
    /// Carries out an entry.
    fn apply(&mut self, queue_cx: &mut QueueContext<'_>, entry: QueueEntry<'_>) {
        let QueueContext {
            native, store_cx, ..
        } = queue_cx;
        let bytes = entry.copy_payload(&mut self.payload[..]).unwrap_or(0);
        if native.has(Fault::DamagesMemory) && native.corrupt() == 0 {
            damage(self.payload.get_mut(..bytes).unwrap_or_default());
        }
        let payload = self.payload.get(..bytes).unwrap_or_default();
        let decoded = match native.verifies {
            true => Request::decode(payload).ok(),
            false => split(payload),
        };
        let Some(request) = decoded else {
            return self.note_damage(queue_cx, &entry);
        };
        native.pretend_work();
        if native.has(Fault::RedoesWrites) && request.head.opcode == Opcode::Set {
            self.last = Some((queue_cx.number, payload.to_vec()));
        }
        let hash = KeyHash(entry.key_hash());
        let room = match request.head.opcode {
            Opcode::GetTouch => native.datagram_bytes_for(address_of(entry.peer())),
            _ => 0,
        };
        let value = self.value.get_mut(..room).unwrap_or_default();
        let done = execute(store_cx, &request, hash, entry.arrived_ns(), value);
        self.note_refusal(&done);
        let index = (entry.pos() - queue_cx.first) as usize;
        if let Some(place) = self.done.get_mut(index) {
            *place = done;
        }
    }

    /// An entry's bytes are not those that were admitted: it has no effect, and what it was to make
    /// invisible is visible.
    #[cold]
    fn note_damage(&mut self, queue_cx: &mut QueueContext<'_>, entry: &QueueEntry<'_>) {
        self.counts.add(NativeCount::CorruptAfterAck, 1);
        queue_cx.native.alarm();
        self.damaged |= 1 << (entry.pos() - queue_cx.first);
        if entry.kind() != EntryKind::Set {
            return;
        }
        let queue = queue_cx.queue;
        let before = (queue_cx.first..entry.pos()).rev();
        let before = before.filter_map(|pos| queue.entry(pos));
        let newest = before
            .filter(|before| before.kind() != EntryKind::Noop && before.same_key(entry))
            .find(|before| self.damaged >> (before.pos() - queue_cx.first) & 1 == 0);
        // One that was applied has its version, which its client may know.
        let is_applied = |covered: &QueueEntry<'_>| {
            let done = self.done.get((covered.pos() - queue_cx.first) as usize);
            done.is_some_and(|done| done.version != Done::default().version)
        };
        if let Some(covered) = newest
            && covered.kind() == EntryKind::Set
            && !is_applied(&covered)
        {
            self.apply(queue_cx, covered);
        }
    }

    /// Answers the client of an entry that was damaged as if its datagram had been, if there is
    /// enough left of it; its request may be sent again.
    #[cold]
    fn answer_damage(&mut self, queue_cx: &QueueContext<'_>, entry: &QueueEntry<'_>, to: Sender) {
        let native = queue_cx.native;
        native.sessions().reopen_entry(entry);
        let bytes = entry.copy_payload(&mut self.payload[..]).unwrap_or(0);
        if let Some(Ok(head)) = self.payload.get(..bytes).map(Head::decode) {
            let error = ReplyError {
                echo: head.echo(),
                code: ErrorCode::Checksum,
                incarnation: native.incarnation,
            };
            let error = Reply::Error(error);
            self.post.reply(native, &mut self.counts, to, &error);
        }
    }

    /// The fault of a server that does not know what it has executed already.
    #[inline]
    fn redo(&mut self, queue_cx: &mut QueueContext<'_>) {
        let Some((number, payload)) = &self.last else {
            return;
        };
        if *number == queue_cx.number
            && let Some(request) = split(payload)
            && let Some(key) = request.key
        {
            let hash = queue_cx.store_cx.store.hash(key.bytes());
            execute(queue_cx.store_cx, &request, hash, 0, &mut []);
        }
    }

    /// Counts what found no room: one that was accepted is lost.
    pub(super) fn note_refusal(&mut self, done: &Done) {
        let found_no_room = done.status == Status::OutOfMemory;
        self.counts
            .add(NativeCount::NoMemory, u64::from(found_no_room));
    }

    /// Answers an entry's client.
    fn answer(&mut self, queue_cx: &QueueContext<'_>, entry: QueueEntry<'_>) {
        let QueueContext {
            native,
            queue,
            number,
            first,
            ..
        } = queue_cx;
        let index = (entry.pos() - first) as usize;
        let to = Sender {
            socket: native.socket_of(entry),
            address: address_of(entry.peer()),
            local: native.locals.of(entry.session().index),
        };
        if self.damaged >> index & 1 != 0 {
            return self.answer_damage(queue_cx, &entry, to);
        }
        let done = self.done.get(index).copied().unwrap_or_default();
        // A covered entry's bytes were never looked at.
        let bytes = entry.copy_payload(&mut self.payload[..]).unwrap_or(0);
        let head = self.payload.get(..bytes).map(Head::decode);
        let Some(Ok(head)) = head else {
            return;
        };
        let is_nilext = head.flags.has(Flags::NILEXT) && !done.is_failure();
        if !is_nilext {
            let name = session_name(head.session);
            native.answers.keep(name, head.slot, head.sequence, done);
        }
        let place = place(*number, queue, native.incarnation, entry.pos());
        let value = self.value.get(..done.value_bytes).unwrap_or_default();
        let reply = reply_to(&head, place, &done, value);
        self.post.reply(native, &mut self.counts, to, &reply);
    }
}

/// The fault of memory that does not keep what was written.
fn damage(payload: &mut [u8]) {
    if payload.ends_with(b"damaged")
        && let Some(last) = payload.last_mut()
    {
        *last ^= 1;
    }
}

/// The reply to a write, or a read with a touch, that was executed.
pub(crate) fn reply_to<'v>(head: &Head, place: Place, done: &Done, value: &'v [u8]) -> Reply<'v> {
    let echo = head.echo();
    if head.flags.has(Flags::NILEXT) && !done.is_failure() {
        return Reply::Ack(Ack {
            echo,
            place,
            promise: match place.queue {
                Place::NO_QUEUE => place.promise_of_executed(),
                _ => Promise::Accepted,
            },
        });
    }
    if head.opcode == Opcode::GetTouch && done.status == Status::TooLarge {
        return Reply::Error(ReplyError {
            echo,
            code: ErrorCode::TooLarge,
            incarnation: place.incarnation,
        });
    }
    Reply::Result {
        echo,
        place,
        status: done.status,
        version: done.version,
        number: done.number,
        item_flags: done.item_flags,
        value,
    }
}

/// A request of a payload whose checksum was looked at when it was admitted.
pub(crate) fn split(payload: &[u8]) -> Option<Request<'_>> {
    let head = Head::decode(payload).ok()?;
    Request::from_parts(head, payload.get(HEADER_BYTES..)?).ok()
}

/// Carries a request out on the store, `arrived_ns` being when it was accepted. A value that it
/// reads goes into `value`.
pub(crate) fn execute(
    store_cx: &mut StoreContext,
    request: &Request<'_>,
    hash: KeyHash,
    arrived_ns: u64,
    value: &mut [u8],
) -> Done {
    let (Some(key), Some(operation)) = (request.key, request.operation()) else {
        return Done::of(Status::Done);
    };
    match operation {
        Operation::Get(mut get) => {
            get.touch = get.touch.map(|touch| at_arrival(touch, arrived_ns));
            match request.head.opcode {
                Opcode::Touch => {
                    let touch = Operation::Get(get);
                    done(&store_cx.execute(key, hash, &touch, &[], |_| ()))
                }
                _ => read_and_touch(store_cx, key, hash, &get, value),
            }
        }
        mut change => {
            if let Operation::Set(set) = &mut change {
                set.exptime = at_arrival(set.exptime, arrived_ns);
            }
            done(&store_cx.execute(key, hash, &change, request.value, |_| ()))
        }
    }
}

/// What a client is told of an outcome.
pub(super) fn done(outcome: &Outcome) -> Done {
    match outcome {
        Outcome::Found(status) => Done {
            version: status.cas.0,
            ..Done::of(Status::Done)
        },
        Outcome::Missing => Done::of(Status::NotFound),
        Outcome::Set(outcome) => set_done(*outcome),
        Outcome::Delete(outcome) => Done::of(match outcome {
            DeleteOutcome::Deleted => Status::Done,
            DeleteOutcome::NotFound => Status::NotFound,
            DeleteOutcome::Exists => Status::Exists,
            DeleteOutcome::OutOfMemory => Status::OutOfMemory,
        }),
        Outcome::Arithmetic(outcome) => arithmetic_done(outcome),
    }
}

/// How a write ended.
pub(crate) fn set_done(outcome: SetOutcome) -> Done {
    match outcome {
        SetOutcome::Stored(cas) => Done {
            version: cas.0,
            ..Done::of(Status::Done)
        },
        SetOutcome::NotStored => Done::of(Status::NotStored),
        SetOutcome::Exists => Done::of(Status::Exists),
        SetOutcome::NotFound => Done::of(Status::NotFound),
        SetOutcome::TooLarge => Done::of(Status::TooLarge),
        SetOutcome::OutOfMemory => Done::of(Status::OutOfMemory),
    }
}

fn arithmetic_done(outcome: &ArithmeticOutcome) -> Done {
    match outcome {
        ArithmeticOutcome::Counted { number, status, .. } => Done {
            version: status.cas.0,
            number: *number,
            ..Done::of(Status::Done)
        },
        ArithmeticOutcome::NotFound => Done::of(Status::NotFound),
        ArithmeticOutcome::Exists => Done::of(Status::Exists),
        ArithmeticOutcome::NotANumber => Done::of(Status::NotANumber),
        ArithmeticOutcome::OutOfMemory => Done::of(Status::OutOfMemory),
    }
}

/// Reads, with or without a touch; a value that is too long for a datagram is left as it is.
pub(crate) fn read_and_touch(
    store_cx: &mut StoreContext,
    key: Key<'_>,
    hash: KeyHash,
    get: &Get,
    value: &mut [u8],
) -> Done {
    let room = value_bytes_max(value.len());
    let looks = Get {
        touch: None,
        keep_token: true,
        quiet_access: get.touch.is_some(),
        ..*get
    };
    let done = read(store_cx, key, hash, &looks, value, room);
    let is_there = matches!(done.status, Status::Value);
    match get.touch {
        Some(_) if is_there => {
            let touches = Get {
                keep_token: true,
                ..*get
            };
            read(store_cx, key, hash, &touches, value, room)
        }
        _ => done,
    }
}

fn read(
    store_cx: &mut StoreContext,
    key: Key<'_>,
    hash: KeyHash,
    get: &Get,
    value: &mut [u8],
    room: usize,
) -> Done {
    let found = store_cx.get(key, hash, get, |view| {
        let status = view.status();
        let value_bytes = view.value_bytes();
        let fits = value_bytes <= room;
        if let (true, Some(place)) = (fits, value.get_mut(..value_bytes)) {
            view.copy_value(0, place);
        }
        Done {
            status: if fits {
                Status::Value
            } else {
                Status::TooLarge
            },
            version: status.cas.0,
            number: 0,
            item_flags: status.flags,
            value_bytes: if fits { value_bytes } else { 0 },
            ..Done::of(Status::Value)
        }
    });
    found.unwrap_or(Done::of(Status::NotFound))
}

/// An expiry as the client wrote it, counted from when its request was accepted.
pub(crate) fn at_arrival(exptime: Exptime, arrived_ns: u64) -> Exptime {
    let arrived_seconds = (arrived_ns / 1_000_000_000) as i64;
    match exptime.0 {
        1..=Exptime::RELATIVE_SECONDS_MAX => Exptime(arrived_seconds + exptime.0),
        _ => exptime,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_expiry_counts_from_arrival() {
        let arrived = 1_800_000_000 * 1_000_000_000;
        assert_eq!(at_arrival(Exptime(10), arrived).0, 1_800_000_010);
        assert_eq!(at_arrival(Exptime(0), arrived).0, 0);
        assert_eq!(at_arrival(Exptime(1_900_000_000), arrived).0, 1_900_000_000);
    }
}
