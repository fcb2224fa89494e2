//! Cells in which threads leave requests for the thread that owns the session, and find the
//! replies.
//!
//! Client-side delegation (Juneberry, NSDI 2025, section 4; JB-15): one socket serves all threads
//! of a process. A thread reserves a cell, writes its request there and publishes the cell's number
//! in a ring; the owner takes numbers from the ring in order, exchanges each request for an answer,
//! and wakes the thread that waits for it.
//!
//! ```text
//!            reserve           publish          take             settle          collect, drop
//!   free bit -------> Reserved -------> Pending ----> (the owner) -------> Done ------------> free
//!                                          |                                ^
//!                                          +-- dropped by its handle -------+-- free at once
//! ```
//!
//! Invariants. A cell is one party's at a time: its bit, then the number in the ring, then the
//! stage say whose. The ring has as many places as there are cells, so it is never full. The lock
//! of a cell is met by its handle and the owner alone, and held for a copy.

use std::{
    cell::Cell as Local,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    command::Command,
    error::ClientError,
    machine::Ask,
    outcome::{Accepted, Answer},
    polled_session::KeptRequest,
};

/// The cells of a session, and the ring of those that are published.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Box<[RequestCell]>,
    /// One bit for each cell that is free.
    free: Box<[AtomicU64]>,
    /// Numbers of published cells plus one, at their place in the order; 0 where there is none.
    ring: Box<[AtomicU32]>,
    /// Places of the ring that were given out.
    tail: AtomicU64,
    /// Threads that wait for a cell.
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

/// A request and its answer, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct RequestCell {
    stage: AtomicU8,
    body: Mutex<CellBody>,
}

/// What a cell holds.
#[derive(Debug)]
pub(crate) struct CellBody {
    pub(crate) frame: KeptRequest,
    pub(crate) ask: Option<Ask>,
    end: Option<CallEnd>,
    waker: Option<Waker>,
    has_handle: bool,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallEnd {
    /// Accepted, and no more is to come.
    Accepted(Accepted),
    /// Answered.
    Answered(Answer),
    /// Without an answer.
    Failed(ClientError),
}

const RESERVED: u8 = 0;
const PENDING: u8 = 1;
const DONE: u8 = 2;

/// What the owner saw in the ring.
#[derive(Debug, Default)]
pub(crate) struct RingEntry(u64);

impl Cells {
    /// `count` cells, a power of two, 64 at least.
    pub(crate) fn new(count: usize) -> Self {
        assert!(
            count.is_power_of_two() && count >= 64,
            "whole words of bits"
        );
        let cell = || RequestCell {
            stage: AtomicU8::new(RESERVED),
            body: Mutex::new(CellBody {
                frame: KeptRequest {
                    head: Command::flush().head(),
                    key_bytes: 0,
                    body: Vec::new(),
                },
                ask: None,
                end: None,
                waker: None,
                has_handle: false,
            }),
        };
        Self {
            cells: std::iter::repeat_with(cell).take(count).collect(),
            free: (0..count / 64).map(|_| AtomicU64::new(u64::MAX)).collect(),
            ring: (0..count).map(|_| AtomicU32::new(0)).collect(),
            tail: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// A free cell, now the caller's.
    pub(crate) fn reserve(&self) -> Option<u32> {
        let words = self.free.len();
        let first = lane() % words;
        (first..first + words).find_map(|word| {
            let word = word % words;
            let bits = self.free.get(word)?;
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != 0 {
                // Acquire pairs with the Release in `free`: what its last user left is there.
                let taken = bits.compare_exchange_weak(
                    seen,
                    seen & (seen - 1),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                match taken {
                    Ok(_) => return Some(word as u32 * 64 + seen.trailing_zeros()),
                    Err(now) => seen = now,
                }
            }
            None
        })
    }

    /// Waits a little for a cell to be freed.
    pub(crate) fn wait(&self, patience: Duration) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let none = self
            .free
            .iter()
            .all(|bits| bits.load(Ordering::SeqCst) == 0);
        if none {
            let _ = self.freed.wait_timeout(guard, patience);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether every cell is done and kept by a handle, so that waiting for one is in vain unless
    /// another thread drops its handles.
    pub(crate) fn all_are_kept(&self) -> bool {
        let done = |cell: &RequestCell| cell.stage.load(Ordering::Relaxed) == DONE;
        self.cells.iter().all(done)
    }

    /// Fills a reserved cell and publishes it.
    pub(crate) fn publish(&self, index: u32, command: &Command<'_>, key_hash: u64) {
        if let Some((cell, mut body)) = self.open(index) {
            body.frame.head = command.head();
            body.frame.key_bytes = command.key.len();
            body.frame.body.clear();
            body.frame.body.extend_from_slice(command.key);
            body.frame.body.extend_from_slice(command.value);
            body.ask = Some(Ask::new(command, u64::from(index), key_hash));
            body.end = None;
            body.has_handle = true;
            cell.stage.store(PENDING, Ordering::Relaxed);
        }
        let place = self.tail.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.ring.get(place as usize & (self.ring.len() - 1)) {
            // SeqCst pairs with the owner's in `take` and with its sleep: either it sees this, or
            // the caller sees that it sleeps.
            entry.store(index + 1, Ordering::SeqCst);
        }
    }

    /// The next published cell, for the owner.
    pub(crate) fn take(&self, taken: &mut RingEntry) -> Option<u32> {
        let entry = self.ring.get(taken.0 as usize & (self.ring.len() - 1))?;
        // SeqCst pairs with the store in `publish`.
        let seen = entry.load(Ordering::SeqCst);
        if seen == 0 {
            return None;
        }
        entry.store(0, Ordering::Relaxed);
        taken.0 += 1;
        Some(seen - 1)
    }

    /// Whether nothing is published that was not taken.
    pub(crate) fn is_empty(&self, taken: &RingEntry) -> bool {
        let entry = self.ring.get(taken.0 as usize & (self.ring.len() - 1));
        // SeqCst pairs with the store in `publish`.
        entry.is_none_or(|entry| entry.load(Ordering::SeqCst) == 0)
    }

    /// A pending cell's content, for the owner.
    pub(crate) fn body(&self, index: u32) -> Option<MutexGuard<'_, CellBody>> {
        self.open(index).map(|(_, body)| body)
    }

    /// Ends a request and wakes the thread that waits for it.
    pub(crate) fn settle(&self, index: u32, end: CallEnd) {
        let Some((cell, mut body)) = self.open(index) else {
            return;
        };
        if !body.has_handle {
            drop(body);
            self.free(index);
            return;
        }
        body.end = Some(end);
        let waker = body.waker.take();
        // Release pairs with the Acquire in `is_done`. Under the lock, since the handle may free
        // the cell as soon as it is open.
        cell.stage.store(DONE, Ordering::Release);
        drop(body);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether a request has ended.
    pub(crate) fn is_done(&self, index: u32) -> bool {
        let cell = self.cells.get(index as usize);
        // Acquire pairs with the Release in `settle`.
        cell.is_none_or(|cell| cell.stage.load(Ordering::Acquire) == DONE)
    }

    /// How a request ended; until then the waker is kept and called.
    pub(crate) fn poll(&self, index: u32, context: &Context<'_>) -> Poll<CallEnd> {
        let Some((_, mut body)) = self.open(index) else {
            return Poll::Ready(CallEnd::Failed(ClientError::Closed));
        };
        match body.end.take() {
            Some(end) => Poll::Ready(end),
            None => {
                if !body
                    .waker
                    .as_ref()
                    .is_some_and(|waker| waker.will_wake(context.waker()))
                {
                    body.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// The handle is gone; the cell is free now, or when its request has ended.
    pub(crate) fn forsake(&self, index: u32) {
        let Some((cell, mut body)) = self.open(index) else {
            return;
        };
        body.has_handle = false;
        body.waker = None;
        // Under the lock: `settle` either saw the handle and has put the end, or will not.
        let is_done = body.end.take().is_some() || cell.stage.load(Ordering::Relaxed) == DONE;
        drop(body);
        if is_done {
            self.free(index);
        }
    }

    /// Gives a cell back.
    pub(crate) fn free(&self, index: u32) {
        if let Some(cell) = self.cells.get(index as usize) {
            cell.stage.store(RESERVED, Ordering::Relaxed);
        }
        if let Some(bits) = self.free.get(index as usize / 64) {
            // Release pairs with the Acquire in `reserve`; SeqCst so that a thread about to wait
            // is seen, or sees the bit.
            let before = bits.fetch_or(1 << (index % 64), Ordering::SeqCst);
            assert!(before & 1 << (index % 64) == 0, "a cell is freed once");
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.freed.notify_one();
        }
    }

    fn open(&self, index: u32) -> Option<(&RequestCell, MutexGuard<'_, CellBody>)> {
        let cell = self.cells.get(index as usize)?;
        let body = cell.body.lock().unwrap_or_else(PoisonError::into_inner);
        Some((cell, body))
    }
}

/// Where the calling thread looks for a free cell first, so that threads meet in different words.
fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: Local<usize> = Local::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    LANE.with(Local::get)
}
