//! A doorbell: wakes a sleeping thread when work arrives, without a system call while it is awake.
//!
//! ```text
//!            try_sleep                    ring (the ringer has to wake it)
//!   Quiet ---------------> Asleep ------------------------------+
//!    ^ ^ |                  |  |                                v
//!    | | |  ring, tap       |  | tap                            |
//!    | | +------------------|--|------------------------------> Rung
//!    | +-------- wake ------+  v      wake, or ring             ^ |
//!    |                       Tapped ----------------------------+ |
//!    +------------------------------- answer --------------------+
//! ```
//!
//! A tap is for what has time until the owner wakes for something else: it hears of it then, and at
//! once when it is awake.
//!
//! A sender leaves its message first and rings then; the owner answers first and looks then.
//! One word holds the whole state, so the owner cannot fall asleep between the two without being
//! woken: either its `try_sleep` finds the bell rung, or the ringer finds it asleep.

use crate::sync::{AtomicU32, Ordering};

/// The bell of one sleeper; any number of threads ring it.
#[derive(Debug)]
pub struct Doorbell(AtomicU32);

const QUIET: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;
const TAPPED: u32 = 3;

impl Doorbell {
    /// A bell that has not been rung, of an owner that is awake.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(QUIET))
    }

    /// The same under loom.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(QUIET))
    }

    /// Tells the owner that something was left for it. True when it sleeps and the caller has to
    /// wake it.
    #[must_use = "a sleeper has to be woken"]
    pub fn ring(&self) -> bool {
        // Release pairs with the Acquire in `answer` and `wake`: an owner that hears the bell finds
        // what was left before it was rung.
        matches!(self.0.swap(RUNG, Ordering::AcqRel), ASLEEP | TAPPED)
    }

    /// Tells the owner, when it is next awake, that something was left for it.
    pub fn tap(&self) {
        let told = |state| {
            Some(match state {
                QUIET | RUNG => RUNG,
                _ => TAPPED,
            })
        };
        // Release pairs with the Acquire in `answer`, also for a bell that is tapped or rung
        // already: an owner that hears it finds what all senders had left.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, told);
    }

    /// Whether the bell was rung since the last answer; the owner then looks what there is.
    #[inline]
    pub fn answer(&self) -> bool {
        if self.0.load(Ordering::Relaxed) != RUNG {
            return false;
        }
        // Acquire pairs with the Release in `ring`.
        self.0.swap(QUIET, Ordering::Acquire) == RUNG
    }

    /// Whether it was rung, without answering.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RUNG
    }

    /// The owner goes to sleep; false when the bell was rung, and it must look first.
    #[must_use = "not to be slept through"]
    pub fn try_sleep(&self) -> bool {
        let tried = self
            .0
            .compare_exchange(QUIET, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        tried.is_ok()
    }

    /// The owner woke up, for whatever reason; a bell that was rung stays rung, and so does one
    /// that was tapped.
    pub fn wake(&self) {
        // What is written is read by this thread alone, in `answer`; its exchange there continues
        // what the tap released.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| match state {
                ASLEEP => Some(QUIET),
                TAPPED => Some(RUNG),
                _ => None,
            });
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_has_to_be_woken() {
        let bell = Doorbell::new();
        assert!(!bell.answer());
        assert!(!bell.ring());
        assert!(!bell.try_sleep());
        assert!(bell.answer() && !bell.answer());
        assert!(bell.try_sleep());
        assert!(bell.ring() && !bell.ring());
        bell.wake();
        assert!(bell.answer());
        assert!(bell.try_sleep());
        bell.wake();
        assert!(!bell.answer() && !bell.is_rung());
    }

    #[test]
    fn a_tap_is_heard_when_the_owner_is_awake() {
        let bell = Doorbell::new();
        bell.tap();
        assert!(!bell.try_sleep() && bell.answer());
        assert!(bell.try_sleep());
        bell.tap();
        bell.tap();
        assert!(!bell.answer(), "it sleeps");
        bell.wake();
        assert!(bell.answer() && !bell.answer());
        assert!(bell.try_sleep());
        bell.tap();
        assert!(bell.ring(), "a sleeper has to be woken, tapped or not");
        bell.tap();
        bell.wake();
        assert!(bell.answer() && !bell.answer());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        cell::UnsafeCell,
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicUsize, Ordering as Order},
        },
        thread,
    };

    use super::*;

    /// Goal: nothing that was left is slept through, and what is found is seen whole. Method: one
    /// thread leaves something and rings; the owner sleeps until it is woken and no less. Loom
    /// tries every interleaving, and reports a look that is not ordered behind the leaving.
    #[test]
    fn loom_nobody_sleeps_through_a_ring() {
        loom::model(|| {
            struct Door {
                bell: Doorbell,
                left: UnsafeCell<()>,
                woken: AtomicBool,
            }
            let door = Arc::new(Door {
                bell: Doorbell::new(),
                left: UnsafeCell::new(()),
                woken: AtomicBool::new(false),
            });
            let ringer = {
                let door = door.clone();
                thread::spawn(move || {
                    door.left.with_mut(|_| ());
                    if door.bell.ring() {
                        door.woken.store(true, Order::Relaxed);
                    }
                })
            };
            let mut found = false;
            while !found {
                if door.bell.answer() {
                    door.left.with(|_| ());
                    found = true;
                } else if door.bell.try_sleep() {
                    while !door.woken.load(Order::Relaxed) {
                        thread::yield_now();
                    }
                    door.bell.wake();
                }
            }
            ringer.join().unwrap();
        });
    }

    /// Goal: what was left with a tap is found, whole, by the owner's first look after it woke, if
    /// it was left before, and a ring after a tap wakes. Method: one thread leaves something and
    /// taps, then leaves a second thing and rings, while the owner sleeps and wakes; it ends only
    /// when it has heard of both.
    #[test]
    fn loom_a_tap_does_not_swallow_a_ring() {
        loom::model(|| {
            struct Door {
                bell: Doorbell,
                left: [UnsafeCell<()>; 2],
                told: AtomicUsize,
                woken: AtomicBool,
            }
            let door = Arc::new(Door {
                bell: Doorbell::new(),
                left: [UnsafeCell::new(()), UnsafeCell::new(())],
                told: AtomicUsize::new(0),
                woken: AtomicBool::new(false),
            });
            let teller = {
                let door = door.clone();
                thread::spawn(move || {
                    door.left[0].with_mut(|_| ());
                    door.told.store(1, Order::Relaxed);
                    door.bell.tap();
                    door.left[1].with_mut(|_| ());
                    door.told.store(2, Order::Relaxed);
                    if door.bell.ring() {
                        door.woken.store(true, Order::Relaxed);
                    }
                })
            };
            let mut found = 0;
            while found < 2 {
                if door.bell.answer() {
                    // Heard of at least what was told before.
                    found = door.told.load(Order::Relaxed);
                    door.left.iter().take(1).for_each(|one| one.with(|_| ()));
                } else if door.bell.try_sleep() {
                    while !door.woken.load(Order::Relaxed) {
                        thread::yield_now();
                    }
                    door.bell.wake();
                }
            }
            teller.join().unwrap();
            door.left.iter().for_each(|one| one.with(|_| ()));
        });
    }
}
