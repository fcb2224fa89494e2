//! Simulates points on several threads; results come in the order of the points, so output does not
//! depend on the number of threads.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

/// How many threads, and what they are busy with.
#[derive(Debug)]
pub struct Threads {
    count: usize,
    /// Whether progress is shown; on a terminal only.
    shows: bool,
    /// Once it is set no further point is begun.
    stop: Arc<AtomicBool>,
}

impl Threads {
    /// `count` of them; 0 is as many as there are processors.
    pub fn new(count: usize) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            count: if count == 0 { processors } else { count },
            shows: std::io::stderr().is_terminal(),
            stop: Arc::default(),
        }
    }

    /// The same, which begin no further point once `stop` is set.
    pub fn until(self, stop: &Arc<AtomicBool>) -> Self {
        let stop = Arc::clone(stop);
        Self { stop, ..self }
    }

    /// Whether somebody stopped them.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// `run` of every point, or of the first ones if they were stopped. A panic of a point ends the
    /// whole.
    pub fn map<P: Sync, A: Send>(
        &self,
        what: &str,
        points: &[P],
        run: impl Fn(&P) -> A + Sync,
    ) -> Vec<A> {
        let start = Instant::now();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let answers: Mutex<Vec<(usize, A)>> = Mutex::new(Vec::with_capacity(points.len()));
        thread::scope(|scope| {
            for _ in 0..self.count.min(points.len()) {
                scope.spawn(|| {
                    while !self.is_stopped() {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(point) = points.get(index) else {
                            return;
                        };
                        let answer = run(point);
                        if let Ok(mut answers) = answers.lock() {
                            answers.push((index, answer));
                        }
                        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                        self.show(what, done, points.len(), start);
                    }
                });
            }
        });
        let mut answers = answers
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        answers.sort_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn show(&self, what: &str, done: usize, all: usize, start: Instant) {
        if !self.shows {
            return;
        }
        let seconds = start.elapsed().as_secs_f64();
        let left = seconds / done as f64 * (all - done) as f64;
        let bar: String = (0..20)
            .map(|n| if n * all < done * 20 { '#' } else { '.' })
            .collect();
        let mut terminal = std::io::stderr().lock();
        // A terminal that is gone takes the progress with it, not the run.
        let _ = match done == all {
            true => write!(terminal, "\r\x1b[K"),
            false => write!(
                terminal,
                "\r{what} [{bar}] {done}/{all}, {left:.0} s left\x1b[K"
            ),
        };
        let _ = terminal.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who stops keeps the answers of the first points, with none missing between them.
    /// Method: the tenth of a hundred points asks for it.
    #[test]
    fn stopped_threads_answer_the_first_points() {
        let points: Vec<u64> = (0..100).collect();
        for count in [1, 2, 7] {
            let stop = Arc::new(AtomicBool::new(false));
            let threads = Threads::new(count).until(&stop);
            let answers = threads.map("squares", &points, |point| {
                if *point == 10 {
                    stop.store(true, Ordering::Relaxed);
                }
                *point
            });
            assert!((11..100).contains(&answers.len()), "{}", answers.len());
            assert_eq!(answers, points[..answers.len()]);
        }
    }

    #[test]
    fn answers_are_in_order_whatever_the_threads() {
        let points: Vec<u64> = (0..100).collect();
        for count in [1, 2, 7, 200] {
            let threads = Threads::new(count);
            let answers = threads.map("squares", &points, |point| point * point);
            assert!(
                answers
                    .iter()
                    .zip(&points)
                    .all(|(answer, point)| *answer == point * point)
            );
        }
        let none: Vec<u64> = Threads::new(2).map("none", &[], |point: &u64| *point);
        assert!(none.is_empty());
    }
}
