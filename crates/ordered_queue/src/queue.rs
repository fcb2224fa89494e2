//! One queue: its control page and its slots, and the steps of a producer that concern them.

use curtail_types::numbered_enum;

use crate::{
    admission::Arrival,
    entry::{EntryKind, QueueEntry},
    layout::{
        self, CONTROL_WORDS, FRONT_PAYLOAD_BYTES, FRONT_WORDS, REST_WORDS, SLOT_HEADER_WORDS,
        control, slot,
    },
    sync::{AtomicU64, Ordering, fence},
};

/// A queue in words that somebody lends.
#[derive(Clone, Copy, Debug)]
pub struct OrderedQueue<'a> {
    words: &'a [AtomicU64],
    slots: u64,
}

/// A place in the order that is taken and not yet published.
#[derive(Debug, Eq, PartialEq)]
#[must_use = "a place that is never published stops the queue"]
pub struct QueueReservation {
    /// The position.
    pub pos: u64,
    /// Whether it may be acknowledged as soon as it is committed.
    pub early: bool,
}

numbered_enum! {
    /// Whether a queue takes writes.
    pub enum QueueState: u64 {
        /// Takes nothing: being made or recovered.
        Closed = 0,
        /// Takes writes and acknowledges them early.
        Open = 1,
        /// Takes writes, acknowledges none early: before a planned stop (JB-50).
        Draining = 2,
    }
}

/// How much waits in a queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Backlog {
    /// The first position that is not executed.
    pub head: u64,
    /// The next position to be given out.
    pub tail: u64,
    /// Slots that are free.
    pub free: u64,
}

/// What a read may do that found a stamp.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Forward {
    /// The store has it: everything up to the stamp is executed.
    Executed,
    /// The newest write of the bucket is an unconditional set of this very key: its payload.
    Payload {
        /// Bytes that were copied.
        bytes: usize,
        /// When it was accepted, in nanoseconds of wall time; expiry counts from here.
        arrived_ns: u64,
        /// Its position.
        pos: u64,
    },
    /// To be waited for, or helped with.
    Wait,
}

/// Why some words are no queue.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OpenError {
    /// They were never formatted, or by another version: to be removed by an operator.
    Unknown,
    /// Their number does not fit the shape that they record.
    Length,
}

impl<'a> OrderedQueue<'a> {
    /// Makes an empty queue of `slots` (a power of two) in words that nobody else uses; closed,
    /// with no early acknowledgement until [`OrderedQueue::set_backlog_max`].
    pub fn format(words: &'a [AtomicU64], slots: u64, incarnation: u64) -> Self {
        assert!(slots.is_power_of_two() && slots <= layout::QUEUE_SLOTS_MAX);
        assert_eq!(words.len(), layout::queue_words(slots));
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        let queue = Self { words, slots };
        queue
            .control(control::INCARNATION)
            .store(incarnation, Ordering::Relaxed);
        // Release pairs with the Acquire in `open`: who finds the shape finds the rest.
        let shape = layout::SHAPE_MARK | slots;
        queue
            .control(control::SHAPE)
            .store(shape, Ordering::Release);
        queue
    }

    /// The queue that is in these words already.
    pub fn open(words: &'a [AtomicU64]) -> Result<Self, OpenError> {
        let shape = words.get(control::SHAPE).ok_or(OpenError::Length)?;
        // Acquire pairs with the Release in `format`.
        let shape = shape.load(Ordering::Acquire);
        let slots = shape & u64::from(u32::MAX);
        if shape & !u64::from(u32::MAX) != layout::SHAPE_MARK {
            return Err(OpenError::Unknown);
        }
        let fits = slots.is_power_of_two()
            && slots <= layout::QUEUE_SLOTS_MAX
            && words.len() == layout::queue_words(slots);
        fits.then_some(Self { words, slots })
            .ok_or(OpenError::Length)
    }

    /// The incarnation of the memory; positions of another one mean nothing.
    pub fn incarnation(&self) -> u64 {
        self.control(control::INCARNATION).load(Ordering::Relaxed)
    }

    /// Whether it takes writes.
    #[inline]
    pub fn state(&self) -> QueueState {
        // Acquire pairs with the Release in `set_state`.
        let number = self.control(control::STATE).load(Ordering::Acquire);
        QueueState::from_number(number).unwrap_or(QueueState::Closed)
    }

    /// Says whether it takes writes.
    pub fn set_state(&self, state: QueueState) {
        // Release pairs with the Acquire in `state`: what was recovered is seen by who may write.
        self.control(control::STATE)
            .store(state as u64, Ordering::Release);
    }

    /// Records the server's heartbeat, at `now_ns`.
    pub fn beat(&self, now_ns: u64) {
        self.control(control::HEARTBEAT)
            .store(now_ns, Ordering::Relaxed);
    }

    /// When the server was last known to live.
    #[inline]
    pub fn heartbeat_ns(&self) -> u64 {
        self.control(control::HEARTBEAT).load(Ordering::Relaxed)
    }

    /// How many entries may wait for a write still to be acknowledged early (JB-44): the reads'
    /// limit on waiting divided by the time that one execution takes. 0: nothing is, as in mode D2.
    pub fn set_backlog_max(&self, entries: u64) {
        self.control(control::BACKLOG_MAX)
            .store(entries, Ordering::Relaxed);
    }

    /// How many entries may wait for a write still to be acknowledged early.
    #[inline]
    pub fn backlog_max(&self) -> u64 {
        self.control(control::BACKLOG_MAX).load(Ordering::Relaxed)
    }

    /// Memory credits: bytes that may still be acknowledged before they are stored. To be set while
    /// nobody admits.
    pub fn set_credits(&self, bytes: u64) {
        self.control(control::CREDITS)
            .store(bytes, Ordering::Relaxed);
    }

    /// Bytes that may still be acknowledged before they are stored; `None` if they are not counted.
    pub fn credits(&self) -> Option<u64> {
        let granted = self.control(control::CREDITS).load(Ordering::Relaxed);
        (granted < layout::BYTES_UNLIMITED).then_some(granted)
    }

    /// Bytes of the entries that wait and were acknowledged; for who is alone with the queue.
    pub fn accepted_bytes(&self) -> u64 {
        let waiting = (self.head()..self.tail()).filter_map(|pos| self.entry(pos));
        waiting.map(|entry| entry.accepted_bytes()).sum()
    }

    /// The store has room for `bytes` more that are acknowledged before they are stored.
    pub fn grant_bytes(&self, bytes: u64) {
        self.control(control::CREDITS)
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// Everything below this position is on stable storage.
    pub fn durable_pos(&self) -> u64 {
        // Acquire pairs with the Release in `raise_durable_pos`.
        self.control(control::DURABLE_POS).load(Ordering::Acquire)
    }

    /// Everything below `pos` is on stable storage; never goes back.
    pub fn raise_durable_pos(&self, pos: u64) {
        // Release pairs with the Acquire in `durable_pos`.
        self.control(control::DURABLE_POS)
            .fetch_max(pos, Ordering::Release);
    }

    /// What waits, a moment ago.
    #[inline]
    pub fn backlog(&self) -> Backlog {
        let head = self.head();
        let tail = self.tail();
        let free = self.slots.saturating_sub(tail.wrapping_sub(head));
        Backlog { head, tail, free }
    }

    /// Free slots, as far as producers have seen: what an acknowledgement by the kernel's program
    /// says. An eighth of the slots too few at most.
    pub fn free_seen(&self) -> u64 {
        let seen = self.control(control::HEAD_SEEN).load(Ordering::Relaxed);
        self.slots.saturating_sub(self.tail().wrapping_sub(seen))
    }

    /// The next position to be given out, once whoever admits was told to accept no more
    /// ([`Ingress::accept`](crate::Ingress::accept)).
    pub fn tail_behind_a_gate(&self) -> u64 {
        // Pairs with the fence in `accept`.
        fence(Ordering::SeqCst);
        self.tail()
    }

    /// Whether the next write may be acknowledged early, as far as the backlog says.
    #[inline]
    pub fn is_early(&self) -> bool {
        let Backlog { head, tail, .. } = self.backlog();
        tail.wrapping_sub(head) < self.backlog_max() && self.state() == QueueState::Open
    }

    /// Whether the entry at head is there to be executed.
    #[inline]
    pub fn has_entry(&self) -> bool {
        self.entry(self.head()).is_some()
    }

    /// Writes that were acknowledged early, that were only queued, and that found no slot.
    pub fn counts(&self) -> [u64; 3] {
        let [queued, full] =
            [control::QUEUED, control::FULL].map(|word| self.control(word).load(Ordering::Relaxed));
        // What has a place and is not queued was accepted; nobody counts that one by one.
        [self.tail().saturating_sub(queued), queued, full]
    }

    /// Whether everything below `stamp` is executed, so that a read that took this stamp may look
    /// into the store, and a write past the queue may be applied (JB-40, JB-41).
    #[inline]
    pub fn has_reached(&self, stamp: u64) -> bool {
        self.head() >= stamp
    }

    /// Step 4: a place in the order for a payload of `bytes`, or `None` if there is no free slot.
    /// It is `early` if the write asks for that, the backlog allows it and memory was granted.
    #[inline]
    pub fn reserve(&self, bytes: usize, nilext: bool) -> Option<QueueReservation> {
        let tail = self.control(control::TAIL);
        loop {
            let head = self.head_for(tail);
            let pos = tail.load(Ordering::Relaxed);
            let waiting = pos.wrapping_sub(head);
            // Head above tail, which nobody writes, reads as full.
            if waiting >= self.slots {
                self.count(control::FULL);
                return None;
            }
            // Acquire and Release pair with each other, so that who reserves sees the positions
            // before it as reserved.
            let taken =
                tail.compare_exchange_weak(pos, pos + 1, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                // Release pairs with the Acquire fence in `forward`: who reads a word of this lap
                // finds tail moved.
                fence(Ordering::Release);
                let early = nilext && self.may_be_early(waiting, bytes);
                return Some(QueueReservation { pos, early });
            }
        }
    }

    /// Step 5: the request's words go into the slot. Fails, and makes the entry a no-op, if the
    /// payload is longer than a slot.
    #[inline]
    pub fn fill(&self, reservation: &QueueReservation, arrival: &Arrival<'_>) -> bool {
        let (words, rest) = (self.front(reservation.pos), self.rest(reservation.pos));
        let fits = arrival.payload.len() <= layout::PAYLOAD_BYTES_MAX;
        let meta = if fits {
            arrival.meta(reservation.early)
        } else {
            EntryKind::Noop as u64
        };
        store(words, slot::META, meta);
        store(words, slot::SESSION, arrival.session_word());
        store(words, slot::SEQUENCE, arrival.sequence_word());
        store(words, slot::KEY_HASH, arrival.key_hash);
        store(words, slot::ARRIVED_NS, arrival.arrived_ns);
        let [first, second] = arrival.peer.address;
        store(words, slot::ADDRESS, first);
        store(words, slot::ADDRESS + 1, second);
        if fits {
            let in_front = arrival.payload.len().min(FRONT_PAYLOAD_BYTES);
            let (first, others) = arrival.payload.split_at(in_front);
            fill_payload(&words[SLOT_HEADER_WORDS..], first);
            fill_payload(rest, others);
        }
        fits
    }

    /// Step 6: the entry is there for its executor.
    #[inline]
    pub fn publish(&self, reservation: &QueueReservation) {
        let commit = &self.front(reservation.pos)[slot::COMMIT];
        // Release pairs with the Acquire in `entry`: who finds the entry finds its words. An
        // exchange, because that is what the kernel's program has.
        commit.swap(reservation.pos + 1, Ordering::AcqRel);
        self.ring(reservation.pos);
        if !reservation.early {
            self.count(control::QUEUED);
        }
    }

    /// The entry at `pos`, if it is published and its slot not used again.
    #[inline]
    pub fn entry(&self, pos: u64) -> Option<QueueEntry<'a>> {
        let front = self.front(pos);
        // Acquire pairs with the Release in `publish`.
        let is_published = front[slot::COMMIT].load(Ordering::Acquire) == pos + 1;
        let rest = self.rest(pos);
        is_published.then_some(QueueEntry { front, rest, pos })
    }

    /// Answers a read of `key` from the entry that its bucket's `stamp` names (JB-42), so that it
    /// need not wait for the writes before. `out` takes the payload: [`layout::PAYLOAD_BYTES_MAX`].
    pub fn forward(&self, stamp: u64, key_hash: u64, key: &[u8], out: &mut [u8]) -> Forward {
        if self.has_reached(stamp) {
            return Forward::Executed;
        }
        let pos = stamp - 1;
        let Some(entry) = self.entry(pos) else {
            return self.executed_or_wait(stamp);
        };
        let is_value = entry.kind() == EntryKind::Set && entry.key_hash() == key_hash;
        let arrived_ns = entry.arrived_ns();
        let copied = match is_value && entry.has_key(key) {
            true => entry.copy_payload(out),
            false => None,
        };
        // Acquire pairs with the Release fence in `reserve`: if a word of a later lap was copied,
        // tail is seen beyond it.
        fence(Ordering::Acquire);
        let is_reused = self.tail().wrapping_sub(pos) > self.slots;
        match copied {
            Some(bytes) if !is_reused => Forward::Payload {
                bytes,
                arrived_ns,
                pos,
            },
            _ => self.executed_or_wait(stamp),
        }
    }

    /// Whatever was published last in the slot of `pos`, of any lap: what nobody may execute, for
    /// the tests that show why.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn entry_of_any_lap(&self, pos: u64) -> Option<QueueEntry<'a>> {
        let (front, rest) = (self.front(pos), self.rest(pos));
        let was_published = front[slot::COMMIT].load(Ordering::Relaxed) != 0;
        was_published.then_some(QueueEntry { front, rest, pos })
    }

    #[inline]
    pub(crate) fn head(&self) -> u64 {
        // Acquire pairs with the Release in `set_head`: who sees it moved sees what was executed,
        // and may write over what was read.
        self.control(control::HEAD).load(Ordering::Acquire)
    }

    /// Head, or an older one if by that one, too, few entries wait: then nothing is decided
    /// otherwise, and head's line stays where executors write it. Head comes before tail: what it
    /// has passed was reserved, so that tail, read after it, is not below it. The other way round
    /// an old tail would read as a full queue.
    #[inline]
    fn head_for(&self, tail: &AtomicU64) -> u64 {
        let seen = self.control(control::HEAD_SEEN);
        // Acquire pairs with the Release below: what the head seen has passed was executed.
        let head = seen.load(Ordering::Acquire);
        let waiting = tail.load(Ordering::Relaxed).wrapping_sub(head);
        if waiting < self.backlog_max().min(layout::seen_max(self.slots)) {
            return head;
        }
        let head = self.head();
        // Release pairs with the Acquire above. It may write over a greater one, and be old.
        seen.store(head, Ordering::Release);
        head
    }

    #[inline]
    pub(crate) fn set_head(&self, head: u64) {
        // Release pairs with the Acquire in `head`.
        self.control(control::HEAD).store(head, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        // Acquire pairs with the Release in `reserve`.
        self.control(control::TAIL).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn lease_word(&self) -> &'a AtomicU64 {
        &self.words[control::LEASE]
    }

    /// Makes the hole at `pos` an entry that does nothing.
    pub(crate) fn fill_hole(&self, pos: u64) {
        let words = self.front(pos);
        store(words, slot::META, EntryKind::Noop as u64);
        // No session: what an earlier lap left here is nobody's claim.
        store(words, slot::SESSION, u64::MAX);
        self.publish(&QueueReservation { pos, early: false });
    }

    fn executed_or_wait(&self, stamp: u64) -> Forward {
        match self.has_reached(stamp) {
            true => Forward::Executed,
            false => Forward::Wait,
        }
    }

    /// Gives back what an early write took that will not be stored.
    #[inline]
    pub(crate) fn give_back(&self, reservation: &QueueReservation, bytes: usize) {
        if reservation.early {
            self.grant_bytes(bytes as u64);
        }
    }

    #[inline]
    fn may_be_early(&self, waiting: u64, bytes: usize) -> bool {
        waiting < self.backlog_max()
            && self.state() == QueueState::Open
            && self.take_bytes(bytes as u64)
    }

    /// Takes granted memory; false if there is less than that, nothing where it is unlimited.
    #[inline]
    fn take_bytes(&self, bytes: u64) -> bool {
        let credits = self.control(control::CREDITS);
        let mut granted = credits.load(Ordering::Relaxed);
        while granted >= bytes {
            if granted >= layout::BYTES_UNLIMITED {
                return true;
            }
            let left = granted - bytes;
            let order = Ordering::Relaxed;
            match credits.compare_exchange_weak(granted, left, order, order) {
                Ok(_) => return true,
                Err(other) => granted = other,
            }
        }
        false
    }

    #[inline]
    fn front(&self, pos: u64) -> &'a [AtomicU64] {
        let index = (pos & (self.slots - 1)) as usize;
        let start = CONTROL_WORDS + index * FRONT_WORDS;
        &self.words[start..start + FRONT_WORDS]
    }

    #[inline]
    fn rest(&self, pos: u64) -> &'a [AtomicU64] {
        let index = (pos & (self.slots - 1)) as usize;
        let start = layout::rests_at(self.slots) + index * REST_WORDS;
        &self.words[start..start + REST_WORDS]
    }

    #[inline]
    pub(crate) fn control(&self, word: usize) -> &'a AtomicU64 {
        &self.words[word]
    }

    #[inline]
    fn count(&self, word: usize) {
        if !cfg!(loom) {
            self.control(word).fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[inline]
fn store(words: &[AtomicU64], index: usize, word: u64) {
    words[index].store(word, Ordering::Relaxed);
}

#[inline]
fn fill_payload(words: &[AtomicU64], payload: &[u8]) {
    let (whole, rest) = payload.as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get(whole.len())) {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}
