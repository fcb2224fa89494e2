//! What two cores do to each other: in lockstep, one does one thing while the other waits, then the
//! other does, so that cache lines move and nothing else happens. One thing at a time, because a
//! processor that has many to do waits for many lines at once, and what is hot is one line.

use std::{
    hint::{black_box, spin_loop},
    io,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
};

use curtail_dispatch::{Claim, Partition, SharedWriters, Ticket, Worker};
use curtail_runtime::pin_current_thread;
use curtail_store::{Store, Writer};
use curtail_types::{Get, Key, Set, WriterId};

use crate::{Medians, PARTITIONS, Problem, key, now, timed};

/// What the second core does when it is its turn.
#[derive(Clone, Copy)]
enum Other {
    Nothing,
    Reads,
    Writes,
    Pushes,
    Claims,
}

/// Adds what two cores on the same items, partitions and rings cost each other.
pub(crate) fn measure(store: &Store, table: &mut Medians) -> Result<(), Problem> {
    let shared = Shared::new();
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            pin_current_thread(1)?;
            shared.follow(store);
            Ok::<(), io::Error>(())
        });
        // The main thread stays free to move: other measurements are not bound to a core.
        let first = scope.spawn(|| {
            pin_current_thread(0)?;
            let measured = shared.lead(store);
            shared.turn.store(STOP, Ordering::Release);
            Ok::<_, io::Error>(measured)
        });
        let measured = first.join().map_err(|_| "the first core failed")??;
        second.join().map_err(|_| "the second core failed")??;
        for (name, ns) in measured {
            table.add(name, 1, ns);
        }
        Ok(())
    })
}

/// What the two cores share.
struct Shared {
    /// Odd: the second core's turn; what to do is above the lowest bit.
    turn: AtomicU32,
    ring: Ring,
    writers: SharedWriters<PARTITIONS>,
    other_ns: AtomicU64,
}

impl Shared {
    fn new() -> Self {
        Self {
            turn: AtomicU32::new(0),
            ring: Ring::new(),
            writers: SharedWriters::new(63),
            other_ns: AtomicU64::new(0),
        }
    }

    fn lead(&self, store: &Store) -> [(&'static str, f64); 5] {
        let mut writer = store.writer(WriterId(1));
        let mut added = |other, work: &mut dyn FnMut(&mut Writer)| {
            let (touched, _) = self.after(other, |_| {}, |()| work(&mut writer));
            let (alone, _) = self.after(Other::Nothing, |_| {}, |()| work(&mut writer));
            touched - alone
        };
        let read = added(Other::Writes, &mut |writer| hot_read(store, writer));
        let write = added(Other::Reads, &mut |writer| hot_write(store, writer));
        let again = added(Other::Writes, &mut |writer| hot_write(store, writer));
        // What the sender and what the receiver of a message pay.
        let (received, sent) = self.after(Other::Pushes, |_| {}, |()| self.take());
        let hand_off = received + sent;
        let (served, left) = self.after(Other::Claims, Self::hold, |ticket| self.serve(ticket));
        let delegated = served + left;
        [
            ("read", read),
            ("write", write),
            ("write after write", again),
            ("hand off", hand_off),
            ("delegated", delegated),
        ]
    }

    /// Nanoseconds of `work` after `before` was done here and then the other core did its part,
    /// and of that part; the mean of the middle half of many.
    fn after<T>(
        &self,
        other: Other,
        before: fn(&Self) -> T,
        mut work: impl FnMut(T),
    ) -> (f64, f64) {
        let (mut times, mut others) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let ready = before(self);
            // Release pairs with the Acquire in `follow`.
            self.turn.store(other as u32 * 2 + 1, Ordering::Release);
            // Acquire pairs with the Release in `follow`.
            while self.turn.load(Ordering::Acquire) & 1 == 1 {
                spin_loop();
            }
            others.push(f64::from_bits(self.other_ns.load(Ordering::Relaxed)));
            times.push(timed(1, || work(ready)));
        }
        let clock = clock_ns();
        (middle(times) - clock, middle(others) - clock)
    }

    /// The second core's loop.
    fn follow(&self, store: &Store) {
        let mut writer = store.writer(WriterId(2));
        loop {
            // Acquire pairs with the Release in `after`.
            let turn = self.turn.load(Ordering::Acquire);
            if turn == STOP {
                return;
            }
            if turn & 1 == 0 {
                spin_loop();
                continue;
            }
            let ns = timed(1, || match turn / 2 {
                turn if turn == Other::Reads as u32 => hot_read(store, &mut writer),
                turn if turn == Other::Writes as u32 => hot_write(store, &mut writer),
                turn if turn == Other::Pushes as u32 => self.ring.push(1),
                turn if turn == Other::Claims as u32 => self.claim_and_push(),
                _ => {}
            });
            self.other_ns.store(ns.to_bits(), Ordering::Relaxed);
            // Release pairs with the Acquire in `after`.
            self.turn.store(turn & !1, Ordering::Release);
        }
    }

    /// Worker 0 holds the partition.
    fn hold(&self) -> Option<Ticket> {
        match self.writers.claim(HELD, Worker(0)) {
            Claim::Granted(Worker(0), ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Worker 1 finds the partition held and leaves its write to the holder.
    fn claim_and_push(&self) {
        let claim = self.writers.claim(HELD, Worker(1));
        assert!(matches!(claim, Claim::Granted(Worker(0), _)));
        self.ring.push(1);
    }

    /// Worker 0 takes it out and gives back the other's claim, then its own.
    fn serve(&self, ticket: Option<Ticket>) {
        self.take();
        let ends = ticket.map(|ticket| {
            let other = self.writers.release(ticket);
            (other, self.writers.release(ticket))
        });
        assert_eq!(ends, Some((Ok(false), Ok(true))));
    }

    fn take(&self) {
        assert!(black_box(self.ring.pop()).is_some());
    }
}

/// A ring from one thread to another: the sender owns `tail`, the receiver `head`.
struct Ring {
    slots: Vec<AtomicU64>,
    head: OwnLine,
    tail: OwnLine,
}

#[repr(align(128))]
struct OwnLine(AtomicU64);

impl Ring {
    fn new() -> Self {
        Self {
            slots: (0..128).map(|_| AtomicU64::new(0)).collect(),
            head: OwnLine(AtomicU64::new(0)),
            tail: OwnLine(AtomicU64::new(0)),
        }
    }

    fn push(&self, message: u64) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `pop`.
        assert!(tail - self.head.0.load(Ordering::Acquire) < self.slots.len() as u64);
        self.slots[tail as usize % self.slots.len()].store(message, Ordering::Relaxed);
        // Release pairs with the Acquire in `pop`.
        self.tail.0.store(tail + 1, Ordering::Release);
    }

    fn pop(&self) -> Option<u64> {
        let head = self.head.0.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `push`.
        if head == self.tail.0.load(Ordering::Acquire) {
            return None;
        }
        let message = self.slots[head as usize % self.slots.len()].load(Ordering::Relaxed);
        // Release pairs with the Acquire in `push`.
        self.head.0.store(head + 1, Ordering::Release);
        Some(message)
    }
}

/// The mean of the middle half: finer than the clock, and deaf to what is far out.
fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let half = &times[times.len() / 4..times.len() * 3 / 4];
    half.iter().sum::<f64>() / half.len() as f64
}

/// What reading the clock twice takes.
fn clock_ns() -> f64 {
    middle((0..STEPS).map(|_| timed(1, || {})).collect())
}

/// Reads the item of 512 bytes that is hot.
fn hot_read(store: &Store, writer: &mut Writer) {
    {
        let bytes = key(HOT, 0);
        let Ok(handle) = Key::new(&bytes) else { return };
        let mut value = [0; 512];
        let found = store.get(
            writer,
            now(),
            handle,
            store.hash(&bytes),
            &Get::default(),
            |view| view.copy_value(0, &mut value),
        );
        black_box((found, value));
    }
}

/// Writes it.
fn hot_write(store: &Store, writer: &mut Writer) {
    {
        let bytes = key(HOT, 0);
        let Ok(handle) = Key::new(&bytes) else { return };
        let hash = store.hash(&bytes);
        black_box(store.set(writer, now(), handle, hash, &Set::default(), &[9; 512]));
    }
}

const HELD: Partition = Partition(77);
/// Odd, so that there is a median.
const STEPS: usize = 2_001;
/// The first digits of the key that two cores share.
const HOT: usize = 99;
const STOP: u32 = u32::MAX;
