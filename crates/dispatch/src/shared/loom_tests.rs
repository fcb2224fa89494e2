//! Every interleaving of claims, releases and credits of a few threads.

use alloc::vec::Vec;

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicU64 as Counter, Ordering as Order},
    },
    thread,
};

use super::*;

/// What a partition's owner writes without a lock; loom reports two writers, or a read that is not
/// ordered after the last write.
struct Partitioned {
    writers: SharedWriters<1>,
    value: UnsafeCell<u64>,
}

/// Goal: a partition has one writer at a time, and each sees what the one before wrote. Method:
/// two threads claim, write what the partition guards if they own it, and release.
#[test]
fn loom_ownership_is_exclusive_and_hands_over() {
    loom::model(|| {
        let shared = Arc::new(Partitioned {
            writers: SharedWriters::new(8),
            value: UnsafeCell::new(0),
        });
        let written = Arc::new(Counter::new(0));
        let threads: Vec<_> = [1, 2]
            .map(|me| {
                let (shared, written) = (shared.clone(), written.clone());
                thread::spawn(move || {
                    let Claim::Granted(owner, ticket) =
                        shared.writers.claim(Partition(0), Worker(me))
                    else {
                        panic!("eight claims fit");
                    };
                    if owner == Worker(me) {
                        shared.value.with_mut(|_| ());
                        written.fetch_add(1, Order::Relaxed);
                    }
                    assert!(shared.writers.release(ticket).is_ok());
                })
            })
            .into();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(written.load(Order::Relaxed) >= 1);
        assert_eq!(shared.writers.owner(Partition(0)), None);
    });
}

/// Goal: the bound is exact. Method: two threads take from one worker with one credit.
#[test]
fn loom_a_credit_is_taken_once() {
    loom::model(|| {
        let credits = Arc::new(SharedCredits::new(1, 1));
        let other = {
            let credits = credits.clone();
            thread::spawn(move || credits.take_shortest(0).is_some())
        };
        let mine = credits.take_shortest(0).is_some();
        let theirs = other.join().unwrap();
        assert!(mine != theirs);
        credits.give_back(Worker(0));
        assert_eq!(credits.outstanding(Worker(0)), 0);
    });
}
