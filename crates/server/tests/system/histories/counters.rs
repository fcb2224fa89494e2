//! Counters under concurrent clients: that each request is answered with what it counted to itself.
//!
//! The judge of histories knows no counting, but a request that added `delta` and was answered
//! `number` is a compare-and-set from `number - delta` to `number` that succeeded. As nothing else
//! writes, all numbers differ, and a wrong one has no place in any order.

use std::time::Instant as Clock;

use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_server::{Config, Fault, PolicyName};
use curtail_testing::{Client, config, start, together};
use curtail_types::Instant;

use super::STEPS_MAX;
const CLIENTS: usize = 6;
const COUNTERS: u64 = 3;
const ROUNDS: u64 = 60;

/// Requests in a pipeline.
const DEPTH: u64 = 20;

/// What clients saw of a server, and how many requests were carried out together with others.
fn record(policy: PolicyName, workers: usize, fault: Fault) -> (History, u64) {
    let server = start(Config {
        policy,
        workers,
        faults: fault.into(),
        ..config()
    });
    let started = Clock::now();
    let now = || Instant {
        ns: u64::try_from(started.elapsed().as_nanos()).unwrap(),
    };
    let mut first = Client::connect(&server);
    let mut all = Vec::new();
    for key in 0..COUNTERS {
        let invoked = now();
        first.set(format_args!("c{key}"), "0");
        all.push(Entry {
            client: u32::MAX,
            key,
            invoked,
            action: Action::Write(0),
            returned: Some((now(), Outcome::Done)),
        });
    }
    let counted = together(CLIENTS, |number| {
        let mut client = Client::connect(&server);
        let one = |round| count(&mut client, number as u32, number as u64 + round, &now);
        (0..ROUNDS).flat_map(one).collect::<Vec<_>>()
    });
    all.extend(counted.into_iter().flatten());
    let compacted = first.stat("curtail", "writes_compacted");
    (all.into_iter().collect(), compacted)
}

/// One pipeline of a client: runs of increments, with reads between them.
fn count(client: &mut Client, number: u32, salt: u64, now: &impl Fn() -> Instant) -> Vec<Entry> {
    let asked: Vec<(u64, u64)> = (0..DEPTH)
        .map(|position| {
            // Four or five of a kind; 0 is a read.
            let key = (salt + position / 9) % COUNTERS;
            let is_read = position % 5 == 4;
            (key, u64::from(!is_read) * (1 + position % 3))
        })
        .collect();
    let spell = |&(key, delta): &(u64, u64)| match delta {
        0 => format!("mg c{key} v\r\n"),
        _ => format!("incr c{key} {delta}\r\n"),
    };
    let invoked = now();
    client.send(asked.iter().map(spell).collect::<String>());
    let mut entries = Vec::new();
    for (position, (key, delta)) in asked.into_iter().enumerate() {
        let mut line = client.line();
        if delta == 0 {
            assert!(line.starts_with("VA "), "{line}");
            line = client.line();
        }
        let value: u64 = line.parse().unwrap();
        let (action, outcome) = match delta {
            0 => (Action::Read, Outcome::Value(value)),
            _ => {
                let (expected, new) = (value.wrapping_sub(delta), value);
                (Action::CompareAndSet { expected, new }, Outcome::Done)
            }
        };
        entries.push(Entry {
            // The requests of a pipeline overlap.
            client: number * DEPTH as u32 + position as u32,
            key,
            invoked,
            action,
            returned: Some((now(), outcome)),
        });
    }
    entries
}

#[test]
fn every_policy_keeps_counters_linearizable() {
    for policy in ["crcw", "d-crew", "crew"] {
        for workers in [1, 3] {
            let (history, compacted) = record(policy.parse().unwrap(), workers, Fault::Contends);
            let verdict = check_linearizable(&history, STEPS_MAX);
            assert_eq!(verdict, Verdict::Consistent, "{policy}, {workers}");
            assert!(compacted > 1000, "{policy}, {workers}: {compacted}");
        }
    }
}

/// The judge notices requests of a run that are all answered alike.
#[test]
#[cfg(debug_assertions)]
fn answers_alike_are_caught() {
    for workers in [1, 3] {
        let policy = "d-crew".parse().unwrap();
        let (history, _) = record(policy, workers, Fault::AnswersLast);
        let verdict = check_linearizable(&history, STEPS_MAX);
        assert!(matches!(verdict, Verdict::Violation(_)), "{verdict:?}");
    }
}
