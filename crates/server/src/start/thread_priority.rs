//! Thread priorities: large workers run under `SCHED_IDLE` and get a boost when they starve.
//!
//! ```text
//!   the control thread, 20 times a second while a large worker has connections:
//!     the worker's thread was runnable at five checks in a row, but ended no turn ──> boost
//!     at the next check ──> SCHED_IDLE again
//! ```
//!
//! So other threads that keep all processors busy delay a large request by at most a quarter of a
//! second. A large worker delays small requests only during a system call or, if the server's own
//! threads need more processor time than there is, during a boost, which is at most every sixth
//! interval between two checks. The cost is up to 20 wake-ups of the control thread per second
//! while there are large requests.

use std::time::Instant;

use crate::{
    config::Niceness, metrics::counters::Count, size_aware::control_handle::LOOK, sync::Relaxed,
    worker::shared::Shared,
};

/// After so many looks without a turn a worker starves.
const LOOKS_STARVED: u32 = 5;

/// What is known of all large workers.
#[derive(Debug)]
pub(crate) struct StarvationBoost {
    workers: Vec<Watched>,
    looked: Instant,
}

/// What is known of one.
#[derive(Debug, Default)]
struct Watched {
    /// As of the last look.
    turns: u64,
    /// Looks in a row at which it could run, had connections, and had ended no turn.
    starved: u32,
}

/// What a thread is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Forward,
    Aside,
}

impl StarvationBoost {
    /// For the large workers of a server. Those that give way by their niceness are left alone.
    pub(crate) fn new(shared: &Shared) -> Self {
        let watched = match shared.config.large_nice {
            Niceness::Idle => shared.large_workers().len(),
            Niceness::Level(_) => 0,
        };
        Self {
            workers: (0..watched).map(|_| Watched::default()).collect(),
            looked: Instant::now(),
        }
    }

    /// Looks at all of them; whether there is more to look at soon.
    pub(crate) fn look(&mut self, shared: &Shared) -> bool {
        if self.workers.is_empty() {
            return false;
        }
        if self.looked.elapsed() < LOOK / 2 {
            return true;
        }
        self.looked = Instant::now();
        let workers = self.workers.iter_mut().zip(shared.large_workers());
        workers.fold(false, |goes_on, (watched, handle)| {
            let is_busy = handle.loans.load(Relaxed) > 0;
            let turns = handle.counts.read().get(Count::Turns);
            let thread = handle.thread.get();
            let could_run = || thread.is_some_and(|thread| thread.is_runnable());
            // Refused, it stays as it is.
            let _ = match (watched.look(is_busy, turns, could_run), thread) {
                (Some(Step::Forward), Some(thread)) => {
                    handle.boosts.fetch_add(1, Relaxed);
                    thread.step_forward()
                }
                (Some(Step::Aside), Some(thread)) => thread.step_aside(),
                _ => Ok(()),
            };
            goes_on || is_busy || watched.starved > 0
        })
    }
}

impl Watched {
    fn look(
        &mut self,
        is_busy: bool,
        turns: u64,
        could_run: impl FnOnce() -> bool,
    ) -> Option<Step> {
        let was_forward = self.starved == LOOKS_STARVED;
        let is_stuck = is_busy && turns == self.turns && !was_forward && could_run();
        self.turns = turns;
        self.starved = if is_stuck { self.starved + 1 } else { 0 };
        if was_forward {
            return Some(Step::Aside);
        }
        (self.starved == LOOKS_STARVED).then_some(Step::Forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thread that gets nowhere though it could run is let forward until the next look,
    /// again if it has to be. Method: a worker without a turn between looks.
    #[test]
    fn who_starves_steps_forward_for_a_look() {
        let mut worker = Watched::default();
        assert_eq!(worker.look(true, 7, || true), None, "not looked at before");
        for _ in 0..3 {
            for _ in 1..LOOKS_STARVED {
                assert_eq!(worker.look(true, 7, || true), None);
            }
            assert_eq!(worker.look(true, 7, || true), Some(Step::Forward));
            assert_eq!(worker.look(true, 7, || true), Some(Step::Aside));
        }
        for _ in 1..LOOKS_STARVED {
            assert_eq!(worker.look(true, 7, || true), None);
        }
        assert_eq!(worker.look(true, 7, || true), Some(Step::Forward));
        assert_eq!(worker.look(false, 8, || true), Some(Step::Aside), "idle");
    }

    /// Goal: a thread that gets on, waits for a client, or has nothing to do stays aside.
    #[test]
    fn who_gets_on_or_waits_stays_aside() {
        let mut worker = Watched::default();
        for turns in 1..20 {
            assert_eq!(worker.look(true, turns, || true), None, "gets on");
        }
        for look in 0..20 {
            let could_run = look % LOOKS_STARVED > 0;
            assert_eq!(worker.look(true, 19, || could_run), None, "waits");
        }
        for look in 0..20 {
            let is_busy = look % LOOKS_STARVED > 0;
            assert_eq!(worker.look(is_busy, 19, || true), None, "has nothing");
        }
    }
}
