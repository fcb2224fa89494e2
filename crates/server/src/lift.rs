//! Large workers step aside for everybody (`SCHED_IDLE`), and forward again when they starve.
//!
//! ```text
//!   the control, 20 times a second while a large worker has connections:
//!     its thread could run, but ended no turn since the last look ──> forward, for a second
//!     that second is over ──> aside
//! ```
//!
//! So a large request never waits for longer than two looks because others want every processor all
//! the time; and where they do not, small requests meet large workers only inside a system call.
//! The price is up to 20 wake-ups a second of the control while large requests are under way.

use std::time::{Duration, Instant};

use crate::{config::Niceness, counts::Count, shared::Shared, sync::Relaxed};

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Looks for which a worker that starved takes its turns among the others.
const LOOKS_FORWARD: u32 = 20;

/// What is known of all large workers.
#[derive(Debug)]
pub(crate) struct Lift {
    workers: Vec<Watched>,
    looked: Instant,
}

/// What is known of one.
#[derive(Debug, Default)]
struct Watched {
    /// When it was looked at last, if it had connections then.
    turns: Option<u64>,
    /// Looks until it steps aside again; 0 if it has.
    forward: u32,
}

/// What a thread is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Forward,
    Aside,
}

impl Lift {
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
        workers.fold(false, |goes_on, (watched, face)| {
            let is_busy = face.visitors.load(Relaxed) > 0;
            let turns = face.counts.read().get(Count::Turns);
            let thread = face.thread.get();
            let could_run = || thread.is_some_and(|thread| thread.is_runnable());
            // Refused, it stays as it is.
            let _ = match (watched.look(is_busy, turns, could_run), thread) {
                (Some(Step::Forward), Some(thread)) => {
                    face.lifts.fetch_add(1, Relaxed);
                    thread.step_forward()
                }
                (Some(Step::Aside), Some(thread)) => thread.step_aside(),
                _ => Ok(()),
            };
            goes_on || is_busy || watched.forward > 0
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
        let before = self.turns.replace(turns).filter(|_| is_busy);
        self.turns = self.turns.filter(|_| is_busy);
        if self.forward > 0 {
            self.forward -= 1;
            return (self.forward == 0).then_some(Step::Aside);
        }
        let starves = before == Some(turns) && could_run();
        self.forward = if starves { LOOKS_FORWARD } else { 0 };
        starves.then_some(Step::Forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who gets nowhere though it could run is lifted for a second, again if it has to be.
    /// Method: a worker without a turn between looks.
    #[test]
    fn who_starves_steps_forward_for_a_while() {
        let mut worker = Watched::default();
        assert_eq!(worker.look(true, 7, || true), None, "not looked at before");
        assert_eq!(worker.look(true, 7, || true), Some(Step::Forward));
        for _ in 1..LOOKS_FORWARD {
            assert_eq!(worker.look(true, 7, || true), None);
        }
        assert_eq!(worker.look(true, 7, || true), Some(Step::Aside));
        assert_eq!(worker.look(true, 7, || true), Some(Step::Forward));
    }

    /// Goal: who gets on, waits for a client, or has nothing to do stays aside.
    #[test]
    fn who_gets_on_or_waits_stays_aside() {
        let mut worker = Watched::default();
        for turns in 0..5 {
            assert_eq!(worker.look(true, turns, || true), None, "gets on");
        }
        assert_eq!(worker.look(true, 4, || false), None, "waits for a client");
        assert_eq!(worker.look(false, 4, || true), None, "has no connection");
        assert_eq!(worker.look(true, 4, || true), None, "has just got one");
        assert_eq!(worker.look(true, 4, || true), Some(Step::Forward));
    }
}
