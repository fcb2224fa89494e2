//! The checkers against histories with a known verdict: by hand, by construction, and by trying
//! every order.

use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_types::Instant;
use curtail_workload::Random;

const STEPS_MAX: u64 = 1_000_000;

/// `client key invoked..returned action -> outcome`, with times in nanoseconds.
fn entry(client: u32, from: u64, to: u64, action: Action, outcome: Outcome) -> Entry {
    Entry {
        client,
        key: 1,
        invoked: Instant { ns: from },
        action,
        returned: Some((Instant { ns: to }, outcome)),
    }
}

fn open(client: u32, from: u64, action: Action) -> Entry {
    Entry {
        returned: None,
        ..entry(client, from, from, action, Outcome::Done)
    }
}

fn write(client: u32, from: u64, to: u64, value: u64) -> Entry {
    entry(client, from, to, Action::Write(value), Outcome::Done)
}

fn read(client: u32, from: u64, to: u64, value: u64) -> Entry {
    entry(client, from, to, Action::Read, Outcome::Value(value))
}

fn read_missing(client: u32, from: u64, to: u64) -> Entry {
    entry(client, from, to, Action::Read, Outcome::Missing)
}

fn perhaps_lost(from: u64, to: u64) -> Entry {
    entry(8, from, to, Action::Delete, Outcome::Perhaps)
}

fn swap(client: u32, from: u64, to: u64, values: (u64, u64), outcome: Outcome) -> Entry {
    let (expected, new) = values;
    entry(
        client,
        from,
        to,
        Action::CompareAndSet { expected, new },
        outcome,
    )
}

fn is_linearizable(entries: &[Entry]) -> bool {
    match check_linearizable(&entries.iter().copied().collect(), STEPS_MAX) {
        Verdict::Consistent => true,
        Verdict::Violation(_) => false,
        Verdict::TooHard { .. } => panic!("too hard: {entries:?}"),
    }
}

#[test]
fn histories_that_an_order_explains_are_accepted() {
    let good: [&[Entry]; 10] = [
        &[],
        &[read_missing(0, 0, 1), write(0, 2, 3, 1), read(1, 4, 5, 1)],
        // Overlapping: the read may see either.
        &[
            write(0, 0, 1, 1),
            write(1, 2, 9, 2),
            read(2, 3, 4, 2),
            read(2, 5, 6, 2),
        ],
        &[
            write(0, 0, 1, 1),
            write(1, 2, 9, 2),
            read(2, 3, 4, 1),
            read(2, 5, 6, 2),
        ],
        // Touching instants overlap.
        &[write(0, 0, 5, 1), read_missing(1, 5, 6)],
        // A write that was never answered was seen.
        &[
            open(0, 0, Action::Write(7)),
            read_missing(1, 1, 2),
            read(1, 3, 4, 7),
        ],
        // One that was never answered was never seen.
        &[
            open(0, 0, Action::Delete),
            write(1, 1, 2, 3),
            read(1, 3, 4, 3),
        ],
        // What was there may have been lost.
        &[write(0, 0, 1, 1), perhaps_lost(2, 5), read_missing(1, 6, 7)],
        &[write(0, 0, 1, 1), perhaps_lost(2, 5), read(1, 6, 7, 1)],
        // Of two compare-and-sets from one value one is refused.
        &[
            write(0, 0, 1, 1),
            swap(1, 2, 9, (1, 2), Outcome::Done),
            swap(2, 2, 9, (1, 3), Outcome::Refused),
            read(0, 10, 11, 2),
        ],
    ];
    for history in good {
        assert!(is_linearizable(history), "{history:?}");
    }
}

#[test]
fn histories_that_no_order_explains_are_rejected() {
    let bad: [&[Entry]; 9] = [
        // What may have been lost by then is not lost later.
        &[
            write(0, 0, 1, 1),
            perhaps_lost(2, 5),
            read(1, 6, 7, 1),
            read_missing(1, 8, 9),
        ],
        // Stale.
        &[write(0, 0, 1, 1), write(0, 2, 3, 2), read(1, 4, 5, 1)],
        // From nowhere.
        &[read(0, 0, 1, 9)],
        // Lost.
        &[write(0, 0, 1, 1), read_missing(1, 2, 3)],
        // New, then old, while the write is still under way.
        &[
            write(0, 0, 1, 1),
            write(1, 2, 9, 2),
            read(2, 3, 4, 2),
            read(2, 5, 6, 1),
        ],
        // Both compare-and-sets from one value carried out.
        &[
            write(0, 0, 1, 1),
            swap(1, 2, 9, (1, 2), Outcome::Done),
            swap(2, 2, 9, (1, 3), Outcome::Done),
        ],
        // An insert over something.
        &[
            write(0, 0, 1, 1),
            entry(1, 2, 3, Action::Insert(2), Outcome::Done),
        ],
        // Deleted, yet there.
        &[
            write(0, 0, 1, 1),
            entry(1, 2, 3, Action::Delete, Outcome::Done),
            read(0, 4, 5, 1),
        ],
        // Two readers see two writes in different orders.
        &[
            write(0, 0, 20, 1),
            write(1, 0, 20, 2),
            read(2, 1, 2, 1),
            read(2, 3, 4, 2),
            read(3, 5, 6, 1),
            read(3, 7, 8, 2),
        ],
    ];
    for history in bad {
        assert!(!is_linearizable(history), "{history:?}");
    }
}

#[test]
fn keys_are_judged_apart() {
    let other = |entry: Entry| Entry { key: 2, ..entry };
    let good = [write(0, 0, 1, 1), other(read_missing(0, 2, 3))];
    assert!(is_linearizable(&good));
    let bad = [
        write(0, 0, 1, 1),
        other(write(0, 2, 3, 5)),
        other(read(1, 4, 5, 1)),
    ];
    let verdict = check_linearizable(&bad.into_iter().collect(), STEPS_MAX);
    assert!(matches!(verdict, Verdict::Violation(violation) if violation.key == 2));
}

#[test]
fn a_search_that_is_cut_short_says_so() {
    let entries = (0..20).map(|client| write(client, 0, 100, u64::from(client)));
    let history: History = entries.chain([read(20, 200, 201, 99)]).collect();
    let too_hard = Verdict::TooHard {
        key: 1,
        entries: 21,
    };
    assert_eq!(check_linearizable(&history, 1000), too_hard);
}

/// Goal: the explanation is small and about the right operation. Method: a stale read in the
/// middle of a long good history.
#[test]
fn a_violation_is_cut_down_to_the_operations_that_show_it() {
    let mut entries = Vec::new();
    for value in 1..=200 {
        let at = value * 100;
        entries.push(write(0, at, at + 50, value));
        entries.push(read(1, at + 51, at + 60, value));
        entries.push(read(2, at + 55, at + 70, value));
    }
    entries.push(read(3, 10_080, 10_090, 98));
    let verdict = check_linearizable(&entries.into_iter().collect(), STEPS_MAX);
    let Verdict::Violation(violation) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(violation.culprit, read(3, 10_080, 10_090, 98));
    // The write of a value that the read did not see, and the read.
    assert!(violation.window.len() <= 3, "{violation}");
    let text = violation.to_string();
    let first = "key 1: client 3 read -> 98 cannot be explained by any order of";
    assert!(text.starts_with(first), "{text}");
    assert_eq!(text.lines().count(), violation.window.len() + 1);
}

/// What a planted bug does to the simulated register.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    StaleRead,
    LostWrite,
    BlindCompareAndSet,
    DeleteForgotten,
}

/// Operations that take effect at one instant between invocation and return, each client one at a
/// time: 100 ns apart, with up to `spread_ns` before and after. The value before the last change is
/// kept for the bugs to show.
fn simulate(seed: u64, clients: u32, spread_ns: u64, bug: Bug) -> (History, bool) {
    let mut random = Random::new(seed);
    let (mut register, mut before) = (None, None);
    let mut free_at = vec![0; clients as usize];
    let mut history = History::new();
    let mut has_struck = false;
    for step in 0..400 {
        let effect = (step + 1) * 100;
        let client = random.below(u64::from(clients)) as usize;
        let invoked = (effect - random.below(spread_ns).min(effect)).max(free_at[client]);
        if invoked > effect {
            continue;
        }
        let strikes = bug != Bug::None && random.below(20) == 0;
        let new = step + 1;
        let (action, outcome) = match random.below(10) {
            0..=3 => {
                let stale = strikes && bug == Bug::StaleRead && before != register;
                has_struck |= stale;
                let seen: Option<u64> = if stale { before } else { register };
                (Action::Read, seen.map_or(Outcome::Missing, Outcome::Value))
            }
            4..=6 => {
                let lost = strikes && bug == Bug::LostWrite;
                has_struck |= lost;
                if !lost {
                    (before, register) = (register, Some(new));
                }
                (Action::Write(new), Outcome::Done)
            }
            7..=8 => {
                let expected = register.unwrap_or(0) + random.below(2);
                let blind = strikes && bug == Bug::BlindCompareAndSet;
                let outcome = match register {
                    Some(value) if value == expected || blind => {
                        has_struck |= value != expected;
                        (before, register) = (register, Some(new));
                        Outcome::Done
                    }
                    Some(_) => Outcome::Refused,
                    None => Outcome::Missing,
                };
                (Action::CompareAndSet { expected, new }, outcome)
            }
            _ => match register {
                Some(_) => {
                    let forgotten = strikes && bug == Bug::DeleteForgotten;
                    has_struck |= forgotten;
                    if !forgotten {
                        (before, register) = (register, None);
                    }
                    (Action::Delete, Outcome::Done)
                }
                None => (Action::Delete, Outcome::Missing),
            },
        };
        let returned = effect + random.below(spread_ns);
        free_at[client] = returned + 1;
        history.push(entry(client as u32, invoked, returned, action, outcome));
    }
    (history, has_struck)
}

#[test]
fn histories_of_an_atomic_register_are_accepted() {
    for seed in 1..60 {
        let (history, _) = simulate(seed, 5, 400, Bug::None);
        assert!(history.len() > 200);
        let verdict = check_linearizable(&history, STEPS_MAX);
        assert_eq!(verdict, Verdict::Consistent, "seed {seed}");
    }
}

/// Goal: planted bugs are found. Method: each bug in many histories. A bug may strike without
/// anybody seeing it, so most, not all, must be rejected.
#[test]
fn histories_with_planted_bugs_are_rejected() {
    let bugs = [
        Bug::StaleRead,
        Bug::LostWrite,
        Bug::BlindCompareAndSet,
        Bug::DeleteForgotten,
    ];
    for bug in bugs {
        let (mut struck, mut found) = (0, 0);
        for seed in 1..60 {
            let (history, has_struck) = simulate(seed, 3, 120, bug);
            let is_found = check_linearizable(&history, STEPS_MAX) != Verdict::Consistent;
            assert!(
                has_struck || !is_found,
                "seed {seed}: rejected without a bug"
            );
            struck += u32::from(has_struck);
            found += u32::from(is_found);
        }
        assert!(
            struck >= 30 && found * 10 >= struck * 6,
            "{found} of {struck}"
        );
    }
}

/// Whether some order of all entries that respects real time explains them: every order is tried.
fn brute_force(entries: &[Entry]) -> bool {
    fn precedes(one: &Entry, other: &Entry) -> bool {
        one.returned.is_some_and(|(at, _)| at < other.invoked)
    }
    fn go(left: &[Entry], state: Option<u64>) -> bool {
        left.is_empty()
            || left.iter().enumerate().any(|(index, entry)| {
                let may_be_next = !left.iter().any(|other| precedes(other, entry));
                let mut rest = left.to_vec();
                rest.remove(index);
                let perhaps = entry.returned.map(|(_, outcome)| outcome) == Some(Outcome::Perhaps);
                let mut nexts = step(state, entry)
                    .into_iter()
                    .chain(perhaps.then_some(state));
                may_be_next && nexts.any(|next| go(&rest, next))
            })
    }
    go(entries, None)
}

/// The register once more, written independently of the checkers' own.
fn step(state: Option<u64>, entry: &Entry) -> Option<Option<u64>> {
    let (answer, next) = match (entry.action, state) {
        (Action::Read, None) => (Outcome::Missing, None),
        (Action::Read, Some(value)) => (Outcome::Value(value), state),
        (Action::Write(value), _) => (Outcome::Done, Some(value)),
        (Action::Insert(value), None) => (Outcome::Done, Some(value)),
        (Action::Insert(_), Some(_)) => (Outcome::Refused, state),
        (Action::CompareAndSet { .. } | Action::Delete, None) => (Outcome::Missing, None),
        (Action::CompareAndSet { expected, new }, Some(value)) if value == expected => {
            (Outcome::Done, Some(new))
        }
        (Action::CompareAndSet { .. }, Some(_)) => (Outcome::Refused, state),
        (Action::Delete, Some(_)) | (Action::Clear, _) => (Outcome::Done, None),
    };
    let outcome = entry.returned.map(|(_, outcome)| outcome)?;
    (outcome == answer || outcome == Outcome::Perhaps).then_some(next)
}

/// Six operations with random times, actions and outcomes.
fn arbitrary(random: &mut Random) -> Vec<Entry> {
    let mut free_at = [0; 3];
    (0..6)
        .map(|_| {
            let client = random.below(3) as usize;
            let from = free_at[client] + random.below(4);
            let to = from + random.below(8);
            free_at[client] = to + 1;
            let value = random.below(3);
            let (action, outcome) = match random.below(9) {
                0..=1 => (Action::Read, Outcome::Value(value)),
                2 => (Action::Read, Outcome::Missing),
                3..=4 => (Action::Write(value), Outcome::Done),
                5 => (
                    Action::Insert(value),
                    [Outcome::Done, Outcome::Refused][random.below(2) as usize],
                ),
                6 => (
                    Action::CompareAndSet {
                        expected: value,
                        new: random.below(3),
                    },
                    [Outcome::Done, Outcome::Refused, Outcome::Missing][random.below(3) as usize],
                ),
                7 => (
                    Action::Delete,
                    [Outcome::Done, Outcome::Missing][random.below(2) as usize],
                ),
                _ => (
                    [Action::Delete, Action::Write(value), Action::Insert(value)]
                        [random.below(3) as usize],
                    [Outcome::Perhaps, Outcome::Done][random.below(2) as usize],
                ),
            };
            entry(client as u32, from, to, action, outcome)
        })
        .collect()
}

/// Goal: the searches and their memory lose no order and invent none. Method: small random
/// histories, good and bad, against trying every order.
#[test]
fn agrees_with_trying_every_order() {
    let mut random = Random::new(99);
    let mut linearizable = 0;
    const HISTORIES: u32 = 4000;
    for _ in 0..HISTORIES {
        let entries = arbitrary(&mut random);
        let expected = brute_force(&entries);
        assert_eq!(is_linearizable(&entries), expected, "{entries:?}");
        linearizable += u32::from(expected);
    }
    // Neither verdict is rare.
    let rare = HISTORIES / 100;
    assert!(
        (rare..HISTORIES - rare).contains(&linearizable),
        "{linearizable}"
    );
}

/// Goal: what a violation shows is itself impossible. Method: cut-down windows of random bad
/// histories, judged by trying every order from every value that could have been there.
#[test]
fn a_cut_down_window_is_itself_impossible() {
    let mut random = Random::new(7);
    let mut cut = 0;
    for _ in 0..3000 {
        let entries = arbitrary(&mut random);
        let history: History = entries.iter().copied().collect();
        let Verdict::Violation(violation) = check_linearizable(&history, STEPS_MAX) else {
            continue;
        };
        // Operations still open make the independent check undefined; leave those out.
        if violation
            .window
            .iter()
            .any(|entry| entry.returned.is_none())
        {
            continue;
        }
        cut += 1;
        assert!(!brute_force(&violation.window), "{violation}");
        for value in (0..3).filter(|_| !violation.starts_missing) {
            let before = Entry {
                invoked: Instant { ns: 0 },
                ..write(9, 0, 0, value)
            };
            let shifted = violation.window.iter().map(|entry| Entry {
                invoked: Instant {
                    ns: entry.invoked.ns + 10,
                },
                returned: entry
                    .returned
                    .map(|(at, outcome)| (Instant { ns: at.ns + 10 }, outcome)),
                ..*entry
            });
            let entries: Vec<Entry> = core::iter::once(before).chain(shifted).collect();
            assert!(!brute_force(&entries), "{violation}");
        }
    }
    assert!(cut > 500, "{cut}");
}
