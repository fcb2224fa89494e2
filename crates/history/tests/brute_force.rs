//! The judges against independent ones that try every order, on many small random histories with
//! operations that never returned.

use curtail_history::{
    Action, Entry, History, Numbered, Outcome, Updates, Verdict, check_agreed, check_linearizable,
};
use curtail_types::Instant;
use curtail_workload::Random;

const STEPS_MAX: u64 = 1_000_000;
const ROUNDS: u32 = 50_000;

/// A register's answer and what it holds afterwards, written from the definition of the commands.
fn run(action: Action, holds: Option<u64>) -> (Outcome, Option<u64>) {
    match action {
        Action::Read => (holds.map_or(Outcome::Missing, Outcome::Value), holds),
        Action::Write(value) => (Outcome::Done, Some(value)),
        Action::Insert(value) if holds.is_none() => (Outcome::Done, Some(value)),
        Action::Insert(_) => (Outcome::Refused, holds),
        Action::CompareAndSet { expected, new } => match holds {
            None => (Outcome::Missing, None),
            Some(value) if value == expected => (Outcome::Done, Some(new)),
            Some(_) => (Outcome::Refused, holds),
        },
        Action::Delete if holds.is_none() => (Outcome::Missing, None),
        Action::Delete | Action::Clear => (Outcome::Done, None),
    }
}

/// Whether some order of the entries explains them from what is held, where `precedes` says which
/// entry has to come before which. An operation that never returned, or of which nobody knows
/// whether it was carried out, may be left out.
fn is_explained(
    entries: &[Entry],
    holds: Option<u64>,
    precedes: fn(&Entry, &Entry) -> bool,
) -> bool {
    fn go(
        entries: &[Entry],
        left: u32,
        holds: Option<u64>,
        precedes: fn(&Entry, &Entry) -> bool,
    ) -> bool {
        let is_left = |index: &usize| left >> index & 1 == 1;
        let lefts = || (0..entries.len()).filter(is_left);
        if lefts().all(|index| entries[index].returned.is_none()) {
            return true;
        }
        lefts().any(|index| {
            let entry = &entries[index];
            if lefts().any(|other| other != index && precedes(&entries[other], entry)) {
                return false;
            }
            let rest = left & !(1 << index);
            let (answer, next) = run(entry.action, holds);
            match entry.returned.map(|(_, outcome)| outcome) {
                Some(Outcome::Perhaps) | None => {
                    go(entries, rest, next, precedes) || go(entries, rest, holds, precedes)
                }
                Some(outcome) => outcome == answer && go(entries, rest, next, precedes),
            }
        })
    }
    go(entries, (1 << entries.len()) - 1, holds, precedes)
}

/// In real time.
fn returned_before(one: &Entry, other: &Entry) -> bool {
    one.returned.is_some_and(|(at, _)| at < other.invoked)
}

/// In the client's own order.
fn same_client_before(one: &Entry, other: &Entry) -> bool {
    one.client == other.client && one.invoked < other.invoked
}

fn action(random: &mut Random, values: u64) -> Action {
    let value = random.below(values);
    match random.below(10) {
        0..=3 => Action::Read,
        4..=5 => Action::Write(value),
        6 => Action::Insert(value),
        7 => Action::CompareAndSet {
            expected: value,
            new: random.below(values),
        },
        8 => Action::Delete,
        _ => Action::Clear,
    }
}

/// Operations whose effects come in a random order between invocation and return; then, in half of
/// the histories, one answer is another one. Some never return, some are known by halves.
fn history(random: &mut Random, operations: usize) -> Vec<Entry> {
    let values = 2 + random.below(3);
    let mut holds = None;
    let mut entries: Vec<Entry> = (0..operations as u64)
        .map(|at| {
            let action = action(random, values);
            let (outcome, next) = run(action, holds);
            holds = next;
            let at = at * 10 + 100;
            let end = Instant {
                ns: at + random.below(40),
            };
            let returned = match random.below(12) {
                0 => None,
                1 => Some((end, Outcome::Perhaps)),
                _ => Some((end, outcome)),
            };
            Entry {
                client: at as u32,
                key: 7,
                invoked: Instant {
                    ns: at - random.below(40),
                },
                action,
                returned,
            }
        })
        .collect();
    if random.below(2) == 0 {
        let wrong = random.below(entries.len() as u64) as usize;
        let entry = &mut entries[wrong];
        let outcomes = [
            Outcome::Value(random.below(values)),
            Outcome::Missing,
            Outcome::Done,
            Outcome::Refused,
        ];
        let outcome = outcomes[random.below(4) as usize];
        if let Some((_, told)) = &mut entry.returned {
            *told = outcome;
        }
    }
    entries
}

/// Goal: the search accepts what an order explains and nothing else, with operations that never
/// returned, too, and what it shows of a violation is itself impossible.
#[test]
fn linearizability_is_judged_as_by_trying_every_order() {
    let mut random = Random::new(2024);
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..ROUNDS {
        let operations = 3 + random.below(5) as usize;
        let entries = history(&mut random, operations);
        let expected = is_explained(&entries, None, returned_before);
        let history: History = entries.iter().copied().collect();
        match check_linearizable(&history, STEPS_MAX) {
            Verdict::Consistent => assert!(expected, "accepted: {entries:#?}"),
            Verdict::TooHard { .. } => panic!("too hard: {entries:#?}"),
            Verdict::Violation(violation) => {
                assert!(!expected, "refused: {entries:#?}");
                let window = &violation.window;
                assert!(window.contains(&violation.culprit), "{violation}");
                let befores: &[Option<u64>] = match violation.starts_missing {
                    true => &[None],
                    false => &[None, Some(0), Some(1), Some(2), Some(3), Some(99)],
                };
                for before in befores {
                    let explained = is_explained(window, *before, returned_before);
                    assert!(!explained, "{violation}\nafter {before:?}, of {entries:#?}");
                }
            }
        }
        right += u32::from(expected);
        wrong += u32::from(!expected);
    }
    assert!(
        right > ROUNDS / 10 && wrong > ROUNDS / 10,
        "{right} {wrong}"
    );
}

/// Operations of three sessions in an order in which they were carried out, with the numbers that
/// a store would give them; then, mostly, some numbers or answers
/// are others, or two operations change their places in time.
fn numbered(random: &mut Random) -> (Vec<Numbered>, bool) {
    let operations = 2 + random.below(5);
    let (mut holds, mut number) = (None, 0);
    let mut all: Vec<Numbered> = (0..operations)
        .map(|at| {
            let action = action(random, 3);
            let (outcome, next) = run(action, holds);
            holds = next;
            let replaced = number;
            if outcome == Outcome::Done {
                number += 1 + random.below(2);
            }
            Numbered {
                entry: Entry {
                    client: random.below(3) as u32,
                    key: 7,
                    invoked: Instant { ns: at * 10 },
                    action,
                    returned: Some((Instant { ns: at * 10 + 5 }, outcome)),
                },
                number,
                replaced,
            }
        })
        .collect();
    for one in &mut all {
        if matches!(one.entry.action, Action::Write(_)) && random.below(4) == 0 {
            // Its client never learnt what the store knows.
            one.entry.returned = None;
        }
    }
    let changes = random.below(4);
    for _ in 0..changes {
        let changed = random.below(operations) as usize;
        let other = all[random.below(operations) as usize].entry;
        let one = &mut all[changed];
        let end = Instant {
            ns: one.entry.invoked.ns + 5,
        };
        match random.below(6) {
            0 => one.number = random.below(number + 2),
            1 => one.replaced = random.below(number + 2),
            2 => one.entry.client = other.client,
            3 => one.entry.returned = Some((end, Outcome::Value(random.below(3)))),
            4 => {
                if let Some((_, outcome)) = other.returned {
                    one.entry.returned = Some((end, outcome));
                }
            }
            _ => {
                let at = one.entry.invoked;
                let other = random.below(operations) as usize;
                let there = std::mem::replace(&mut all[other].entry.invoked, at);
                all[changed].entry.invoked = there;
            }
        }
    }
    let is_changed = changes > 0;
    (all, is_changed)
}

/// Goal: what the judge of numbered histories accepts is sequentially consistent, and what a sound
/// store did it accepts.
#[test]
fn what_agrees_with_its_numbers_is_sequentially_consistent() {
    let mut random = Random::new(5);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let (all, is_changed) = numbered(&mut random);
        let entries: Vec<Entry> = all.iter().map(|one| one.entry).collect();
        match check_agreed(&all, Updates::Atomic) {
            Verdict::Consistent => {
                let explained = is_explained(&entries, None, same_client_before);
                assert!(explained, "accepted: {all:#?}");
                accepted += 1;
            }
            _ => {
                assert!(is_changed, "refused: {all:#?}");
                refused += 1;
            }
        }
    }
    assert!(accepted > ROUNDS / 10 && refused > ROUNDS / 10);
}
