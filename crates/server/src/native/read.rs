//! Reads: answered where they arrive, once every accepted write of their bucket is executed, or
//! from the newest of these (JB-40, JB-42).
//!
//! ```text
//!   stamp S of the bucket, once --> head >= S ----------------------> from the store
//!                                   newest entry is a set of the key -> from its slot
//!                                   nobody has the lease ------------> help, then from the store
//!                                   else ----------------------------> wait, with others
//! ```
//!
//! A value that is forwarded has no version yet and is told with version 0, which no comparison
//! matches.

use curtail_codec::native::{ErrorCode, Head, Reply, Request, Status};
use curtail_dispatch::RequestId;
use curtail_ordered_queue::{Forward, Parked, TURN_MAX};
use curtail_types::{Exptime, Get, Key, KeyHash};

use crate::{
    limits::READS_WAITING_MAX,
    native::{
        counters::NativeCount,
        executor::{at_arrival, read_and_touch, split},
        receiver::{HELP_TURNS, NOWHERE, Receiver, ReceiverContext, place_of},
        reply_sender::{Sender, value_bytes_max},
    },
};

/// Reads that wait for a queue.
pub(super) struct WaitingReads {
    parked: Parked,
    places: Box<[Waiting]>,
    free: Vec<u32>,
    due: Vec<RequestId>,
}

#[derive(Clone)]
struct Waiting {
    head: Head,
    from: Sender,
    hash: KeyHash,
    key: [u8; Key::BYTES_MAX],
}

impl WaitingReads {
    pub(super) fn new() -> Self {
        let nobody = Waiting {
            head: Head::new(
                curtail_codec::native::Opcode::Get,
                curtail_codec::native::Flags::NONE,
                curtail_codec::native::Session::default(),
            ),
            from: Sender {
                socket: 0,
                address: NOWHERE,
                local: None,
            },
            hash: KeyHash(0),
            key: [0; Key::BYTES_MAX],
        };
        Self {
            parked: Parked::new(READS_WAITING_MAX),
            places: vec![nobody; READS_WAITING_MAX].into_boxed_slice(),
            free: (0..READS_WAITING_MAX as u32).collect(),
            due: Vec::with_capacity(READS_WAITING_MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Has a read wait; false if there is no room.
    fn park(&mut self, queue: usize, stamp: u64, waiting: Waiting) -> bool {
        let Some(id) = self.free.pop() else {
            return false;
        };
        if let Some(place) = self.places.get_mut(id as usize) {
            *place = waiting;
        }
        self.parked.park(queue as u16, stamp, RequestId(id))
    }
}

impl Receiver<'_> {
    /// Answers a read, or has it wait.
    pub(super) fn read(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        request: &Request<'_>,
        from: Sender,
    ) {
        let head = &request.head;
        let Some(key) = request.key else {
            return;
        };
        if !self.admits(receiver_cx, head, from) {
            return;
        }
        let hash = receiver_cx.store_cx.store.hash(key.bytes());
        receiver_cx.store_cx.store.prefetch(hash);
        let number = self.native.queue_number(hash.0);
        let stamp = self.native.stamp(hash.0);
        let Some(queue) = self.queues.get(number) else {
            return;
        };
        let forward = queue.forward(stamp, hash.0, key.bytes(), &mut self.copy[..]);
        match forward {
            Forward::Executed => self.read_store(receiver_cx, head, key, hash, from),
            Forward::Payload {
                bytes, arrived_ns, ..
            } => self.read_entry(receiver_cx, head, (bytes, arrived_ns), number, from),
            Forward::Wait => {
                let ahead = stamp.saturating_sub(queue.backlog().head);
                let ReceiverContext {
                    executor, store_cx, ..
                } = receiver_cx;
                // What is far behind is the workers' to execute: they run side by side.
                let helps = ahead <= (HELP_TURNS * TURN_MAX) as u64;
                if helps && executor.reach(self.native, store_cx, number, stamp, HELP_TURNS) {
                    return self.read_store(receiver_cx, head, key, hash, from);
                }
                self.wait(receiver_cx, head, key, hash, (number, stamp), from);
            }
        }
    }

    fn wait(
        &mut self,
        receiver_cx: &mut ReceiverContext<'_>,
        head: &Head,
        key: Key<'_>,
        hash: KeyHash,
        (number, stamp): (usize, u64),
        from: Sender,
    ) {
        let mut waiting = Waiting {
            head: *head,
            from,
            hash,
            key: [0; Key::BYTES_MAX],
        };
        let bytes = key.bytes();
        if let Some(place) = waiting.key.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
        }
        let is_parked = self.waiting.park(number, stamp, waiting);
        if is_parked {
            let counts = &mut receiver_cx.executor.state().counts;
            return counts.add(NativeCount::Parked, 1);
        }
        let place = place_of(self, number, 0);
        self.refuse_busy(receiver_cx, head.echo(), place, from);
    }

    /// Answers the reads whose queues have come far enough, and helps the oldest of the others.
    pub(super) fn serve_waiting(&mut self, receiver_cx: &mut ReceiverContext<'_>) {
        let Some((number, stamp)) = self.waiting.parked.oldest() else {
            return;
        };
        let ReceiverContext {
            executor, store_cx, ..
        } = receiver_cx;
        executor.reach(self.native, store_cx, usize::from(number), stamp, 1);
        let WaitingReads { parked, due, .. } = &mut self.waiting;
        due.clear();
        for (number, queue) in self.queues.iter().enumerate() {
            parked.wake(number as u16, queue.backlog().head, |id| due.push(id));
        }
        let due = std::mem::take(&mut self.waiting.due);
        for RequestId(id) in &due {
            let Some(waiting) = self.waiting.places.get(*id as usize).cloned() else {
                continue;
            };
            let length = usize::from(waiting.head.key_bytes);
            let key = waiting.key.get(..length).unwrap_or_default();
            if let Ok(key) = Key::new(key) {
                self.read_store(receiver_cx, &waiting.head, key, waiting.hash, waiting.from);
            }
            self.waiting.free.push(*id);
        }
        self.waiting.due = due;
    }

    /// Answers from the store.
    fn read_store(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        head: &Head,
        key: Key<'_>,
        hash: KeyHash,
        from: Sender,
    ) {
        let ReceiverContext {
            executor, store_cx, ..
        } = receiver_cx;
        let state = executor.state();
        let room = self.native.datagram_bytes_for(from.address);
        let value = state.value.get_mut(..room).unwrap_or_default();
        self.native.pretend_work();
        let done = read_and_touch(store_cx, key, hash, &Get::default(), value);
        let hit = match done.status {
            Status::NotFound => NativeCount::GetMisses,
            _ => NativeCount::GetHits,
        };
        state.counts.add(hit, 1);
        if done.status == Status::TooLarge {
            return self.error(receiver_cx, head, ErrorCode::TooLarge, from);
        }
        let number = self.native.queue_number(hash.0);
        let reply = Reply::Result {
            echo: head.echo(),
            place: place_of(self, number, 0),
            status: done.status,
            version: done.version,
            number: 0,
            item_flags: done.item_flags,
            value: state.value.get(..done.value_bytes).unwrap_or_default(),
        };
        state
            .post
            .reply(self.native, &mut state.counts, from, &reply);
    }

    /// Answers from the entry whose payload was copied.
    fn read_entry(
        &self,
        receiver_cx: &mut ReceiverContext<'_>,
        head: &Head,
        (bytes, arrived_ns): (usize, u64),
        number: usize,
        from: Sender,
    ) {
        let Some(entry) = self.copy.get(..bytes).and_then(split) else {
            return;
        };
        let exptime = at_arrival(Exptime(i64::from(entry.head.exptime)), arrived_ns);
        let is_over = exptime
            .expiry(receiver_cx.store_cx.now)
            .is_past(receiver_cx.store_cx.now);
        let room = value_bytes_max(self.native.datagram_bytes_for(from.address));
        let (status, value) = match is_over {
            true => (Status::NotFound, &[][..]),
            false if entry.value.len() > room => {
                return self.error(receiver_cx, head, ErrorCode::TooLarge, from);
            }
            false => (Status::Value, entry.value),
        };
        let place = place_of(self, number, 0);
        let counts = &mut receiver_cx.executor.state().counts;
        counts.add(NativeCount::Forwarded, 1);
        counts.add(NativeCount::GetHits, u64::from(!is_over));
        counts.add(NativeCount::GetMisses, u64::from(is_over));
        let reply = Reply::Result {
            echo: head.echo(),
            place,
            status,
            version: 0,
            number: 0,
            item_flags: if is_over { 0 } else { entry.head.item_flags },
            value,
        };
        self.reply(receiver_cx, from, &reply);
    }
}
