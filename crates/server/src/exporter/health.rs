//! `/livez` and `/readyz`: whether the server makes progress, and whether it is ready for clients.
//!
//! They are apart because what follows is: a server that is not ready gets no clients for now, one
//! that does not live is started anew. A node that lost its lease is not ready, and starting it
//! anew would cost its contents for nothing.
//!
//! Every worker runs a turn at least once a second, also with nothing to do, and the control thread
//! begins an epoch when the last one is over. [`Pulse`] looks once a second whether they have; a
//! thread that has not for ten seconds is stuck. Large workers give way to others and may rest
//! while they have nothing, so they count only with connections.

use std::time::{Duration, Instant};

use crate::{metrics::counters::Count, sync::Relaxed, worker::shared::Shared};

/// Why the server is not ready for clients, if it is not.
pub(crate) fn unready(shared: &Shared) -> Option<&'static str> {
    if shared.stopping.load(Relaxed) {
        return Some("the server shuts down");
    }
    let cluster = shared.cluster.as_ref()?;
    cluster.out_of_service(shared.clock.now().instant)
}

/// How long each thread has made no progress.
#[derive(Debug)]
pub(crate) struct Pulse {
    looked: Instant,
    threads: Vec<Beat>,
}

#[derive(Debug, Default)]
struct Beat {
    count: u64,
    still: Duration,
}

/// What a thread shows of itself.
struct Shown {
    name: String,
    count: u64,
    /// It may rest for so long.
    rests: Duration,
    /// It has something to do, or does it at all times.
    is_due: bool,
}

/// Between two looks. No more than that counts as a thread's rest: while this thread did not run,
/// others may not have, either.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a thread may make no progress.
const STILL_MAX: Duration = Duration::from_secs(10);

impl Pulse {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            looked: now,
            threads: Vec::new(),
        }
    }

    /// Looks at all threads, if that is due.
    pub(crate) fn look(&mut self, shared: &Shared, now: Instant) {
        let elapsed = now.saturating_duration_since(self.looked);
        if elapsed >= LOOK_EVERY {
            self.looked = now;
            self.note(&threads(shared), elapsed.min(2 * LOOK_EVERY));
        }
    }

    fn note(&mut self, shown: &[Shown], elapsed: Duration) {
        self.threads.resize_with(shown.len(), Beat::default);
        for (beat, shown) in self.threads.iter_mut().zip(shown) {
            if shown.count != beat.count || !shown.is_due {
                *beat = Beat {
                    count: shown.count,
                    still: Duration::ZERO,
                };
            } else {
                beat.still += elapsed;
            }
        }
    }

    /// What is stuck, if something is.
    pub(crate) fn stuck(&self, shared: &Shared) -> Option<String> {
        self.stuck_among(&threads(shared))
    }

    fn stuck_among(&self, shown: &[Shown]) -> Option<String> {
        let mut all = self.threads.iter().zip(shown);
        let (beat, shown) = all.find(|(beat, shown)| {
            beat.count == shown.count && beat.still > STILL_MAX + shown.rests
        })?;
        let (name, seconds) = (&shown.name, beat.still.as_secs());
        Some(format!("{name} has made no progress for {seconds} s"))
    }
}

fn threads(shared: &Shared) -> Vec<Shown> {
    let smalls = shared.config.workers;
    let worker = |(index, worker): (usize, &crate::worker::shared::WorkerHandle)| Shown {
        name: format!("worker {index}"),
        count: worker.count(Count::Turns),
        rests: Duration::ZERO,
        is_due: index < smalls || worker.loans.load(Relaxed) > 0,
    };
    let control = Shown {
        name: "the control thread".to_owned(),
        count: shared.control.epoch.load(Relaxed),
        rests: Duration::from_millis(u64::from(shared.config.epoch_ms)),
        is_due: true,
    };
    let workers = shared.workers.iter().enumerate().map(worker);
    workers.chain([control]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(count: u64, is_due: bool) -> Vec<Shown> {
        vec![Shown {
            name: "worker 0".to_owned(),
            count,
            rests: Duration::ZERO,
            is_due,
        }]
    }

    /// Goal: a thread is stuck when it has not moved for long, and not before, nor afterwards.
    #[test]
    fn a_thread_that_does_not_move_is_stuck() {
        let mut pulse = Pulse::new(Instant::now());
        pulse.note(&shown(7, true), LOOK_EVERY);
        for _ in 0..10 {
            pulse.note(&shown(7, true), LOOK_EVERY);
            assert_eq!(pulse.stuck_among(&shown(7, true)), None);
        }
        pulse.note(&shown(7, true), LOOK_EVERY);
        let stuck = pulse.stuck_among(&shown(7, true)).unwrap();
        assert_eq!(stuck, "worker 0 has made no progress for 11 s");
        assert_eq!(pulse.stuck_among(&shown(8, true)), None, "it moves again");
        pulse.note(&shown(8, true), LOOK_EVERY);
        assert_eq!(pulse.stuck_among(&shown(8, true)), None);
    }

    /// Goal: an idle worker may rest.
    #[test]
    fn a_thread_without_work_is_not_stuck() {
        let mut pulse = Pulse::new(Instant::now());
        for _ in 0..30 {
            pulse.note(&shown(7, false), LOOK_EVERY);
        }
        assert_eq!(pulse.stuck_among(&shown(7, false)), None);
    }
}
