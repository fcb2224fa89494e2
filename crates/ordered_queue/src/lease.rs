//! The lease: makes one thread at a time the executor of a queue.
//!
//! d-CREW on the datagram path: any worker may take the lease of an idle queue, executes what is
//! there in order, and gives it back, so that writes are balanced and dependent writes meet. Who
//! waits for a queue that nobody executes takes the lease itself and helps (JB-42).
//!
//! ```text
//! lease word: generation 48 | worker + 1, or 0 for nobody, 16
//! ```
//!
//! The holder's effects are seen by the next one: giving back is a Release and taking an Acquire of
//! the same word. A process that died never gave its leases back; the next one *seizes* them, after
//! it has made sure that nobody of the old one runs.

use curtail_dispatch::Worker;

use crate::{entry::QueueEntry, queue::OrderedQueue, sync::Ordering};

/// The right to execute a queue; given back when dropped.
#[derive(Debug)]
pub struct QueueLease<'a> {
    queue: OrderedQueue<'a>,
    word: u64,
    head: u64,
}

/// What is at a place of the queue.
#[derive(Clone, Copy, Debug)]
pub enum Peek<'a> {
    /// This entry.
    Entry(QueueEntry<'a>),
    /// A place that was given out and is not published yet: to be waited for.
    Hole,
    /// Nothing; the place was not given out.
    Empty,
}

impl<'a> OrderedQueue<'a> {
    /// The lease, for `worker`, if nobody has it.
    #[inline]
    pub fn take_lease(&self, worker: Worker) -> Option<QueueLease<'a>> {
        let seen = self.lease_word().load(Ordering::Relaxed);
        match seen & HOLDER_MASK {
            0 => self.take(seen, worker),
            _ => None,
        }
    }

    /// Takes the lease from any holder: for the process that follows one that died.
    pub fn seize_lease(&self, worker: Worker) -> QueueLease<'a> {
        loop {
            let seen = self.lease_word().load(Ordering::Relaxed);
            if let Some(lease) = self.take(seen, worker) {
                return lease;
            }
        }
    }

    /// Who executes the queue, a moment ago.
    #[inline]
    pub fn lease_holder(&self) -> Option<Worker> {
        let holder = self.lease_word().load(Ordering::Relaxed) & HOLDER_MASK;
        holder.checked_sub(1).map(|worker| Worker(worker as u16))
    }

    #[inline]
    fn take(&self, seen: u64, worker: Worker) -> Option<QueueLease<'a>> {
        let generation = (seen | HOLDER_MASK).wrapping_add(1);
        let word = generation | (u64::from(worker.0) + 1);
        // Acquire pairs with the Release in `drop`: what the last holder did is seen.
        let taken =
            self.lease_word()
                .compare_exchange(seen, word, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| QueueLease {
            queue: *self,
            word,
            head: self.head(),
        })
    }
}

impl<'a> QueueLease<'a> {
    /// What is `ahead` places behind head.
    #[inline]
    pub fn peek(&self, ahead: u64) -> Peek<'a> {
        let pos = self.head + ahead;
        match self.queue.entry(pos) {
            Some(entry) => Peek::Entry(entry),
            None if pos < self.queue.tail() => Peek::Hole,
            None => Peek::Empty,
        }
    }

    /// The entry that is `ahead` places behind head, if it is published.
    #[inline]
    pub fn entry(&self, ahead: u64) -> Option<QueueEntry<'a>> {
        self.queue.entry(self.head + ahead)
    }

    /// The first position that is not executed.
    #[inline]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// The next `count` entries are executed, and what they did can be seen; their slots are free.
    /// Each must have been peeked at.
    #[inline]
    pub fn advance(&mut self, count: u64) {
        assert!(self.is_held(), "executed by two");
        self.head += count;
        self.queue.set_head(self.head);
    }

    /// How often this queue's lease has been taken, roughly: 48 bits.
    #[inline]
    pub const fn number(&self) -> u64 {
        self.word >> HOLDER_MASK.trailing_ones()
    }

    /// Whether nobody has seized it.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.queue.lease_word().load(Ordering::Relaxed) == self.word
    }

    /// The queue.
    #[inline]
    pub const fn queue(&self) -> &OrderedQueue<'a> {
        &self.queue
    }
}

impl Drop for QueueLease<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `take`. Fails only if it was seized.
        let _ = self.queue.lease_word().compare_exchange(
            self.word,
            self.word & !HOLDER_MASK,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}

/// The bits of the lease word that name the holder.
const HOLDER_MASK: u64 = 0xffff;
