//! Whether every key stays linearizable under every policy: histories of real clients, judged.
//!
//! Clients pipeline reads, writes, inserts and deletes of a few keys whose items flip between small
//! and large, while sizes are now served apart and now together. Each request is recorded from when
//! its packet was sent to when its reply was read; requests of one pipeline overlap, so each
//! position counts as a client of its own, and that a client reads what it wrote before is checked
//! beside.
//!
//! Where assertions are on, contention is forced, too: in debug builds, and in the long tests with
//! the profile that is made for them:
//!
//! ```text
//! cargo test --profile checked -p curtail-server --test system for_long -- --ignored
//!     --test-threads 1 --nocapture
//! ```

mod clients;
mod counters;

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::sync_channel,
    },
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::{History, Verdict, check_linearizable};
use curtail_server::{Config, Fault, PolicyName, Sizes};
use curtail_testing::{Client, config, start, together};

use self::clients::{Amount, Run};
use crate::support::beside;

const CLIENTS: usize = 6;

/// Runs in which everything has to take part at least once.
const RUNS_MAX: usize = 20;

/// From here on values are large in these tests.
const LARGE_BYTES: u32 = 4500;

/// Steps that the checker may take for one key.
const STEPS_MAX: u64 = 2_000_000;

/// The same where a run that is too hard to judge is as good as one without a fault.
const STEPS_FEW: u64 = 100_000;

/// What a run recorded.
struct Recorded {
    history: History,
    /// Some client read what it had overwritten.
    old: bool,
    took_part: TookPart,
}

/// How often each of the ways took part that requests can go.
#[derive(Clone, Copy, Debug, Default)]
struct TookPart {
    delegations: u64,
    compacted: u64,
    hand_offs: u64,
}

impl TookPart {
    fn add(&mut self, other: Self) {
        self.delegations += other.delegations;
        self.compacted += other.compacted;
        self.hand_offs += other.hand_offs;
    }

    /// Whether all did that can under `policy`.
    fn is_all(self, policy: PolicyName) -> bool {
        let delegates = policy.to_string() != "size-aware+crcw";
        let forced = self.compacted > 0 && (self.delegations > 0 || !delegates);
        self.hand_offs > 0 && (forced || !cfg!(debug_assertions))
    }
}

/// Runs clients against a server of `policy` and records what they saw.
fn record(policy: PolicyName, workers: usize, amount: Amount, fault: Fault, seed: u64) -> Recorded {
    let server = start(Config {
        policy,
        workers,
        threshold: Some(LARGE_BYTES),
        epoch_ms: 2,
        faults: fault.into(),
        ..config()
    });
    let run = Run {
        server: &server,
        seed,
        started: Clock::now(),
        next_value: AtomicU64::new(1),
        old: AtomicBool::new(false),
        amount,
    };
    let change_roles = |client: &mut Client, _| change_roles(client, policy);
    let entries = beside(&server, 1, change_roles, || {
        together(CLIENTS, |number| run.client(number as u32))
    });
    let history = entries.into_iter().flatten().collect();
    let mut client = Client::connect(&server);
    Recorded {
        history,
        old: run.old.load(Ordering::Relaxed),
        took_part: TookPart {
            delegations: client.stat("curtail", "delegations"),
            compacted: client.stat("curtail", "writes_compacted"),
            hand_offs: client.stat("curtail", "hand_offs"),
        },
    }
}

/// Judges what a server without a bug let its clients see. Returns how many requests were judged: 0
/// of a history that is too hard, which says nothing.
#[track_caller]
fn judge_right(policy: PolicyName, workers: usize, recorded: &Recorded) -> usize {
    let verdict = check_linearizable(&recorded.history, STEPS_MAX);
    if matches!(verdict, Verdict::TooHard { .. }) {
        return 0;
    }
    assert_eq!(verdict, Verdict::Consistent, "{policy}, {workers}");
    let old = recorded.old;
    assert!(!old, "{policy}: a client read what it had overwritten");
    recorded.history.len()
}

/// Judges a server that has nothing wrong, and demands that everything took part: in one run, or in
/// a few on a machine where it rarely happens that writes meet.
#[track_caller]
fn demand_right(policy: PolicyName, workers: usize, amount: Amount) {
    let mut took_part = TookPart::default();
    for seed in 0..RUNS_MAX as u64 {
        let recorded = record(policy, workers, amount, Fault::Contends, seed);
        if judge_right(policy, workers, &recorded) > 0 {
            took_part.add(recorded.took_part);
        }
        if took_part.is_all(policy) {
            return;
        }
    }
    panic!("{policy}: {took_part:?}");
}

/// Every 2 ms sizes are served apart, by another rule, or together.
fn change_roles(client: &mut Client, policy: PolicyName) {
    for sizes in [Sizes::Learned, Sizes::Together, Sizes::Static] {
        let name = PolicyName { sizes, ..policy };
        client.demand(format!("policy {name}\r\n"), "OK\r\n");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_policy_keeps_every_key_linearizable() {
    let few = Amount {
        rounds: 150,
        keys: 7,
    };
    for policy in PolicyName::all().filter(|policy| policy.sizes == Sizes::Learned) {
        demand_right(policy, 4, few);
    }
}

/// Many more workers than processors, so that each may stop in the middle of anything.
#[test]
fn a_crowd_of_workers_keeps_every_key_linearizable() {
    let few = Amount {
        rounds: 150,
        keys: 5,
    };
    demand_right(PolicyName::default(), 12, few);
}

/// The judges notice a bug in delegation, in compaction and in hand-offs, within a few runs.
#[test]
#[cfg(debug_assertions)]
fn planted_bugs_are_caught() {
    let few = Amount {
        rounds: 120,
        keys: 4,
    };
    for (fault, policy, workers) in [
        (Fault::Overtakes, "size-aware+crew", 4),
        (Fault::FoldsAcross, "size-aware+d-crew", 1),
        (Fault::AnswersAhead, "size-aware+d-crew", 4),
    ] {
        let caught = (0..100).any(|seed| {
            let recorded = record(policy.parse().unwrap(), workers, few, fault, seed);
            let verdict = check_linearizable(&recorded.history, STEPS_FEW);
            recorded.old || matches!(verdict, Verdict::Violation(_))
        });
        assert!(caught, "{fault:?} went unnoticed");
    }
}

/// Requests that a long test judges.
const MANY: usize = 10_000_000;

/// Ten million requests under one policy in its three forms, with 2 to 8 workers. A history is
/// judged whole, so the millions come in runs, and one is judged while the next is recorded. Says
/// now and then how far it is.
fn judge_for_long(policy: &str) {
    let policy: PolicyName = policy.parse().unwrap();
    let much = Amount {
        rounds: 4000,
        keys: 9,
    };
    let started = Clock::now();
    let (mut requests, mut too_hard) = (0, 0);
    let mut took_part = TookPart::default();
    // Dropped with the judge, should that find something.
    let (sender, recorded) = sync_channel::<(usize, Recorded)>(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            for run in 0.. {
                let workers = 2 + run % 7;
                let recorded = record(policy, workers, much, Fault::Contends, run as u64);
                if sender.send((workers, recorded)).is_err() {
                    return;
                }
            }
        });
        for (run, (workers, recorded)) in recorded.into_iter().enumerate() {
            let judged = judge_right(policy, workers, &recorded);
            requests += judged;
            too_hard += usize::from(judged == 0);
            took_part.add(recorded.took_part);
            let seconds = started.elapsed().as_secs();
            if run % 10 == 9 || requests >= MANY {
                println!(
                    "{policy}: {} histories ({too_hard} too hard to judge), {requests} requests \
                     judged in {seconds} s, {took_part:?}",
                    run + 1
                );
            }
            if requests >= MANY {
                assert!(too_hard * 4 <= run, "{too_hard} of {run} were too hard");
                break;
            }
        }
    });
    assert!(took_part.is_all(policy), "{policy}: {took_part:?}");
}

#[test]
#[ignore = "ten million requests: minutes"]
fn the_default_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+d-crew");
}

#[test]
#[ignore = "ten million requests: minutes"]
fn crcw_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+crcw");
}

#[test]
#[ignore = "ten million requests: minutes"]
fn crew_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+crew");
}

#[test]
#[ignore = "ten million requests: minutes"]
fn erew_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+erew");
}
