//! Waits until the host leaves the machine's processors alone. A host takes virtual processors away
//! for milliseconds at a time, which no counter of the guest need show, and a tail that was
//! measured meanwhile is the host's.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::cpu;

/// How long to look at the processors.
const LOOK: Duration = Duration::from_millis(400);

/// How long to wait for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(15);

const PAUSE: Duration = Duration::from_millis(600);

/// Between two readings of the clock by a thread that does nothing else: the processor was away.
const GAP: Duration = Duration::from_micros(50);

/// Waits until less than `percent` of the time of `cores` is taken away; whether that came in time.
pub(super) fn wait(cores: usize, percent: f64) -> bool {
    let start = Instant::now();
    while taken(cores) * 100.0 >= percent {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}

/// The share of the processors' time that was taken away, now, by whomever: nothing else should be
/// running.
fn taken(cores: usize) -> f64 {
    let lost = thread::scope(|scope| {
        let looks = (0..cores).map(|core| {
            scope.spawn(move || {
                // Where it may not be pinned it looks at some processor.
                let _ = cpu::pin(core);
                let start = Instant::now();
                lost(|| Instant::now().duration_since(start))
            })
        });
        let looks: Vec<_> = looks.collect();
        let each = looks.into_iter().map(|look| look.join().unwrap_or(LOOK));
        each.sum::<Duration>()
    });
    lost.as_secs_f64() / LOOK.as_secs_f64() / cores as f64
}

/// What is missing between readings of a clock until it has reached the end.
fn lost(mut clock: impl FnMut() -> Duration) -> Duration {
    let (mut lost, mut last) = (Duration::ZERO, clock());
    while last < LOOK {
        let now = clock();
        let gap = now.saturating_sub(last);
        if gap > GAP {
            lost += gap;
        }
        last = now;
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: gaps are what is lost, and steps are not. Method: a clock made up.
    #[test]
    fn only_gaps_are_lost() {
        let mut us = 0;
        let found = lost(|| {
            us += if us == 1_000 || us == 60_000 {
                4_000
            } else {
                10
            };
            Duration::from_micros(us)
        });
        assert_eq!(found, Duration::from_millis(8));
    }
}
