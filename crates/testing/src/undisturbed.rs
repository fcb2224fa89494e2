//! Tests of deadlines, on machines that stand still now and then.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// A pause that is long enough to exceed a deadline of the product.
const PAUSE: Duration = Duration::from_millis(100);
const ATTEMPTS_MAX: usize = 10;

/// What `attempt` returns. If it fails, and the machine did not run the test for a while meanwhile,
/// it is tried again: a virtual machine that stands still for a second ends leases and exceeds
/// deadlines, as it should. A failure without such a pause is a failure.
pub fn undisturbed<T>(mut attempt: impl FnMut() -> T) -> T {
    first_undisturbed(|| watched(|| catch_unwind(AssertUnwindSafe(&mut attempt))))
}

fn first_undisturbed<T>(mut attempt: impl FnMut() -> (thread::Result<T>, Duration)) -> T {
    for left in (0..ATTEMPTS_MAX).rev() {
        match attempt() {
            (Ok(value), _) => return value,
            (Err(panic), pause) if pause < PAUSE || left == 0 => resume_unwind(panic),
            (Err(_), _) => {} // The panic was printed; the next attempt decides.
        }
    }
    unreachable!("the last attempt returns or panics")
}

/// What `run` returns, and the longest time for which the machine did not run a thread that slept.
fn watched<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            let mut before = Instant::now();
            while !is_done.load(Relaxed) {
                thread::sleep(Duration::from_millis(2));
                longest = longest.max(before.elapsed());
                before = Instant::now();
            }
            longest
        });
        let result = run();
        is_done.store(true, Relaxed);
        (result, watch.join().unwrap())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of attempts that fail with these pauses, before one that succeeds; and how many
    /// there were.
    fn tried(pauses: &[Duration]) -> (thread::Result<()>, usize) {
        let mut attempts = 0;
        let result = catch_unwind(AssertUnwindSafe(|| {
            first_undisturbed(|| {
                attempts += 1;
                match pauses.get(attempts - 1) {
                    None => (Ok(()), Duration::ZERO),
                    Some(pause) => (Err(Box::new("it failed")), *pause),
                }
            })
        }));
        (result, attempts)
    }

    #[test]
    fn only_a_failure_during_a_pause_is_tried_again() {
        let is_tried = |pauses: &[Duration]| {
            let (result, attempts) = tried(pauses);
            (result.is_ok(), attempts)
        };
        assert_eq!(is_tried(&[]), (true, 1));
        assert_eq!(is_tried(&[Duration::ZERO]), (false, 1));
        assert_eq!(is_tried(&[PAUSE]), (true, 2));
        assert_eq!(is_tried(&[PAUSE, Duration::ZERO]), (false, 2));
        assert_eq!(is_tried(&[PAUSE; 20]), (false, ATTEMPTS_MAX));
    }

    #[test]
    fn a_pause_is_seen() {
        let (value, pause) = watched(|| {
            thread::sleep(Duration::from_millis(10));
            7
        });
        assert_eq!(value, 7);
        assert!(
            pause >= Duration::from_millis(2),
            "of the watch's own sleep"
        );
    }
}
