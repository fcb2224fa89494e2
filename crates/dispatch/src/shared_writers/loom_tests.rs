//! Every interleaving of the claims and releases of a few threads.

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

/// What a thread was told: by its claim, and by its release, if it was granted one.
type Told = (Option<Worker>, Option<bool>);

/// A claim and its release, of one partition.
fn claim_and_release(writers: &SharedWriters<1>, me: u16, between: impl FnOnce()) -> Told {
    let Claim::Granted(owner, ticket) = writers.claim(Partition(0), Worker(me)) else {
        between();
        return (None, None);
    };
    between();
    let released = writers.release(ticket);
    assert!(released.is_ok(), "the ticket is of the owner's time");
    (Some(owner), released.ok())
}

/// What two threads are told if their calls come in this order: one goes through its own between
/// the other's claim and release, or behind them.
fn told_in_turn(writes_max: u16) -> Vec<[Told; 2]> {
    let mut all = Vec::new();
    for first in [1, 2] {
        let second = 3 - first;
        let mut push = |of_first, of_second| {
            all.push(if first == 1 {
                [of_first, of_second]
            } else {
                [of_second, of_first]
            });
        };
        let writers = SharedWriters::<1>::new(writes_max);
        let of_first = claim_and_release(&writers, first, || ());
        push(of_first, claim_and_release(&writers, second, || ()));
        let writers = SharedWriters::<1>::new(writes_max);
        let mut of_second = (None, None);
        let of_first = claim_and_release(&writers, first, || {
            of_second = claim_and_release(&writers, second, || ());
        });
        push(of_first, of_second);
        // Claim, claim, release of the first, release of the second.
        let writers = SharedWriters::<1>::new(writes_max);
        let claims = [first, second].map(|me| writers.claim(Partition(0), Worker(me)));
        let [of_first, of_second] = claims.map(|claim| match claim {
            Claim::Granted(owner, ticket) => (Some(owner), writers.release(ticket).ok()),
            Claim::Full(_) => (None, None),
        });
        push(of_first, of_second);
    }
    all
}

/// Goal: whatever the interleaving, two threads are told what some order of their calls tells them;
/// of orders, the simulator's tests show that the paper's table gives the same answers. Method: two
/// threads claim and release one partition, with room for one write and for two.
#[test]
fn loom_answers_are_those_of_some_order() {
    for writes_max in [1, 2] {
        loom::model(move || {
            let expected = told_in_turn(writes_max);
            let writers = Arc::new(SharedWriters::<1>::new(writes_max));
            let other = {
                let writers = writers.clone();
                thread::spawn(move || claim_and_release(&writers, 2, || ()))
            };
            let mine = claim_and_release(&writers, 1, || ());
            let told = [mine, other.join().unwrap()];
            assert!(expected.contains(&told), "{told:?} of {expected:?}");
            assert_eq!(writers.writes(Partition(0)), 0);
        });
    }
}
