//! A figure that is stopped gives the rows of the points that were simulated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread::{scope, sleep};
use std::time::Duration;

use curtail_simulator::{FigureError, Options, Threads, figures};

/// Goal: no figure needs an answer of every point to make rows of those that it has. Method: every
/// figure, stopped before its first point, and at some moments after it.
#[test]
fn every_figure_bears_being_stopped() {
    let options = Options {
        requests: Some(1_000),
        ..Options::default()
    };
    for figure in figures() {
        for ms in [0, 5, 50] {
            let stop = Arc::new(AtomicBool::new(ms == 0));
            let threads = Threads::new(2).until(&stop);
            scope(|scope| {
                scope.spawn(|| {
                    sleep(Duration::from_millis(ms));
                    stop.store(true, Ordering::Relaxed);
                });
                let rows = match figure.rows(&options, &threads) {
                    // Some figures have no number of requests.
                    Err(FigureError::Refused(..)) => figure.rows(&Options::default(), &threads),
                    rows => rows,
                };
                assert!(rows.is_ok(), "{}: {rows:?}", figure.name);
            });
        }
    }
}
