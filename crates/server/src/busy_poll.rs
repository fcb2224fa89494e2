//! Polls for a moment before sleeping.
//!
//! Waking a thread that sleeps takes the kernel longer than a short request takes us, so a worker
//! that usually gets its next request at once had better stay awake for it. Whether it usually does
//! is learnt from the last waits; a worker with nothing to do sleeps, and one whose processor
//! somebody else could use (as many workers as processors, or a quota that spinning would eat up)
//! never spins.
//!
//! ```text
//!   nothing in line ---> pays? --yes--> look, look, look ... found ---> next turn
//!                         | no               | 20 us without an event       ^
//!                         +-----> sleep <----+                              |
//!                                   +---------------------------------------+
//! ```

/// Whether a worker spins, and what it has learnt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusyPoll {
    allowed: bool,
    mode: WaitMode,
}

/// How a worker waits. Going over to spinning is slow and giving it up is quick, because a spin in
/// vain may have kept the very client that we wait for off this processor.
#[derive(Clone, Copy, Debug)]
enum WaitMode {
    /// It sleeps at once; so many of its sleeps were short.
    Sleeps { short: u16 },
    /// It looks again first, as long as the balance of that is positive.
    Spins { balance: u16 },
}

/// How long a worker looks again before it sleeps.
pub(crate) const SPIN_NS_MAX: u64 = 20_000;

/// How long after its event a sleeping worker runs, at most: a sleep within both was short.
const WAKE_NS_MAX: u64 = 30_000;

/// After so many short sleeps it tries to spin.
const SHORT_SLEEPS: u16 = 256;

/// The balance to begin with, and the highest.
const BALANCE_FIRST: u16 = 32;
const BALANCE_MAX: u16 = 128;

/// What a spin in vain takes off the balance; one that found something adds 1.
const IN_VAIN: u16 = 8;

/// Whether workers may spin at all: each has a processor to itself and another is left.
pub(crate) fn is_allowed(workers: usize) -> bool {
    workers < curtail_runtime::cpus_usable() && curtail_runtime::quota_cpus().is_none()
}

impl BusyPoll {
    pub(crate) const fn new(allowed: bool) -> Self {
        Self {
            allowed,
            mode: WaitMode::Sleeps { short: 0 },
        }
    }

    /// Whether waits are worth measuring.
    pub(crate) const fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Whether to look again before sleeping.
    pub(crate) const fn pays(&self) -> bool {
        self.allowed && matches!(self.mode, WaitMode::Spins { .. })
    }

    /// Learns whether a spin found something.
    pub(crate) fn spun(&mut self, found: bool) {
        let WaitMode::Spins { balance } = &mut self.mode else {
            return;
        };
        if found {
            *balance = (*balance + 1).min(BALANCE_MAX);
        } else if *balance > IN_VAIN {
            *balance -= IN_VAIN;
        } else {
            self.mode = WaitMode::Sleeps { short: 0 };
        }
    }

    /// Learns how long a sleep took.
    pub(crate) fn slept(&mut self, ns: u64) {
        let WaitMode::Sleeps { short } = &mut self.mode else {
            return;
        };
        if ns > SPIN_NS_MAX + WAKE_NS_MAX {
            *short = short.saturating_sub(IN_VAIN);
        } else if *short < SHORT_SLEEPS {
            *short += 1;
        } else {
            self.mode = WaitMode::Spins {
                balance: BALANCE_FIRST,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that has gone over to spinning.
    fn spinning() -> BusyPoll {
        let mut busy_poll = BusyPoll::new(true);
        for _ in 0..=SHORT_SLEEPS {
            assert!(!busy_poll.pays());
            busy_poll.slept(40_000);
        }
        assert!(busy_poll.pays());
        busy_poll
    }

    #[test]
    fn a_worker_spins_while_that_finds_something() {
        let mut busy_poll = spinning();
        for _ in 0..1000 {
            busy_poll.spun(true);
        }
        for _ in 0..BALANCE_MAX / IN_VAIN {
            assert!(busy_poll.pays());
            busy_poll.spun(false);
        }
        assert!(!busy_poll.pays());
    }

    /// One spin of five in vain, as it was measured with a client on the worker's processor.
    #[test]
    fn a_worker_that_is_in_its_clients_way_gives_up_soon() {
        let mut busy_poll = spinning();
        let spins = (0..).take_while(|turn| {
            busy_poll.spun(turn % 5 != 0);
            busy_poll.pays()
        });
        assert!(spins.count() < 50);
    }

    #[test]
    fn long_sleeps_outweigh_short_ones() {
        let mut busy_poll = BusyPoll::new(true);
        for turn in 0..10_000 {
            busy_poll.slept(if turn % 4 == 0 { 1_000_000 } else { 10_000 });
        }
        assert!(!busy_poll.pays());
    }

    #[test]
    fn a_worker_whose_processor_is_wanted_never_spins() {
        let mut busy_poll = BusyPoll::new(false);
        for _ in 0..1000 {
            busy_poll.slept(0);
        }
        assert!(!busy_poll.pays());
        assert!(!is_allowed(curtail_runtime::cpus_usable()));
    }
}
