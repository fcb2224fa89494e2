//! The checker for sequential consistency where the order of a key's writes is known.
//!
//! Per-key sequential consistency asks that all sessions agree on one order of the writes to a key
//! and see it in their own order (ccKVS, section 5.1). To find such an order is hard in general; a
//! store that numbers its writes has claimed one, and whether the answers keep to it is seen in one
//! look at each. What this accepts is sequentially consistent: put every write where its number
//! says and every read behind the write it saw, those of a session in its order. What it refuses
//! may still have some other order, but not the one that was claimed.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};
use core::ops::Bound;

use crate::{
    Verdict,
    minimal_violation::Violation,
    record::{Action, Entry, Outcome},
};

/// An operation, and where the store says that it stands among the writes of its key: a number, or
/// whatever else has an order and a least value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Numbered<N = u64> {
    /// The operation.
    pub entry: Entry,
    /// The number of the write that it made; of one that made none, of the write that it saw. The
    /// least (0) is a key that was never written.
    pub number: N,
    /// The write that was there when it made its own; the least for one that saw nothing, and of
    /// no meaning where an operation does not depend on what is there.
    pub replaced: N,
}

/// What is promised of an operation that writes depending on what is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Updates {
    /// It stands right behind the write that it saw.
    Atomic,
    /// A write of another session may have come between, whose value then is overwritten unseen: a
    /// store that does not wait for its other copies cannot know of it.
    Loose,
}

/// Judges every key, each empty at the start: no two writes have one number, an answer is what the
/// write that it saw wrote, a write stands behind the one that it saw, as `updates` says, and a
/// session never goes back.
pub fn check_agreed<N: Copy + Default + Ord>(entries: &[Numbered<N>], updates: Updates) -> Verdict {
    let mut keys: BTreeMap<u64, Vec<Numbered<N>>> = BTreeMap::new();
    for numbered in entries {
        keys.entry(numbered.entry.key).or_default().push(*numbered);
    }
    for (key, mut entries) in keys {
        entries.sort_by_key(|numbered| numbered.entry.invoked);
        if let Some((culprit, others)) = broken(&entries, updates) {
            let mut window: Vec<Entry> = others.iter().map(|other| other.entry).collect();
            window.push(culprit.entry);
            return Verdict::Violation(Violation {
                key,
                culprit: culprit.entry,
                window,
                starts_missing: true,
            });
        }
    }
    Verdict::Consistent
}

/// An operation that does not fit, with those that it does not fit to.
fn broken<N: Copy + Default + Ord>(
    entries: &[Numbered<N>],
    updates: Updates,
) -> Option<(Numbered<N>, Vec<Numbered<N>>)> {
    let mut writes: BTreeMap<N, Numbered<N>> = BTreeMap::new();
    for numbered in entries.iter().filter(|numbered| numbered.writes()) {
        if let Some(other) = writes.insert(numbered.number, *numbered) {
            return Some((*numbered, vec![other]));
        }
    }
    let shown: BTreeSet<N> = entries.iter().filter_map(Numbered::shows).collect();
    let is_certain = |one: &Numbered<N>| {
        one.entry.returned.is_some() || one.writes() && shown.contains(&one.number)
    };
    let mut furthest: BTreeMap<u32, Numbered<N>> = BTreeMap::new();
    for numbered in entries.iter().filter(|numbered| is_certain(numbered)) {
        if numbered.entry.returned.is_some() {
            let seen = writes.get(&numbered.seen());
            if !numbered.agrees_with(seen) {
                return Some((*numbered, seen.copied().into_iter().collect()));
            }
            if numbered.depends() && updates == Updates::Atomic {
                let behind = writes.range((Bound::Excluded(numbered.replaced), Bound::Unbounded));
                let behind = behind.map(|(_, other)| other);
                let mut between = behind.take_while(|other| other.number < numbered.number);
                if let Some(other) = between.find(|other| is_certain(other)) {
                    return Some((*numbered, vec![*other]));
                }
            }
        }
        if let Some(before) = furthest.insert(numbered.entry.client, *numbered)
            && numbered.goes_back_behind(&before)
        {
            return Some((*numbered, vec![before]));
        }
    }
    None
}

impl<N: Copy + Default + Ord> Numbered<N> {
    /// Whether it wrote, or may have.
    fn writes(&self) -> bool {
        match (self.entry.action, self.entry.returned) {
            (Action::Read, _) => false,
            (_, Some((_, outcome))) => outcome == Outcome::Done,
            (_, None) => self.number != N::default(),
        }
    }

    /// Whether it wrote behind a certain write.
    fn depends(&self) -> bool {
        self.writes() && !matches!(self.entry.action, Action::Write(_) | Action::Clear)
    }

    /// The write that its answer tells of.
    fn seen(&self) -> N {
        match self.writes() {
            true if self.depends() => self.replaced,
            true => N::default(),
            false => self.number,
        }
    }

    /// The write whose value its answer tells of, which therefore was carried out, whatever its
    /// client heard. An answer of nothing proves no removal: a recorder may only suppose which one
    /// was seen.
    fn shows(&self) -> Option<N> {
        let (_, outcome) = self.entry.returned?;
        let found_something = matches!(
            (self.entry.action, outcome),
            (_, Outcome::Value(_) | Outcome::Refused)
                | (Action::CompareAndSet { .. } | Action::Delete, Outcome::Done)
        );
        found_something.then(|| self.seen())
    }

    /// Whether it stands behind the write that it saw, if there is one, and its answer is right.
    fn agrees_with(&self, seen: Option<&Self>) -> bool {
        let is_known = seen.is_some() || self.seen() == N::default();
        let is_behind = !self.writes() || self.number > self.seen();
        is_known && is_behind && self.fits(seen.and_then(|seen| seen.entry.action.leaves()))
    }

    /// Whether it stands, or what it saw stands, before what its session had come to.
    fn goes_back_behind(&self, before: &Self) -> bool {
        let saw_older =
            self.entry.returned.is_some() && self.depends() && self.replaced < before.number;
        let is_again = self.writes() && self.number == before.number;
        self.number < before.number || saw_older || is_again
    }

    /// Whether its answer is right where `there` is.
    fn fits(&self, there: Option<u64>) -> bool {
        let Some((_, outcome)) = self.entry.returned else {
            return true;
        };
        match (self.entry.action, outcome) {
            (Action::Read, Outcome::Value(value)) => there == Some(value),
            (Action::Write(_) | Action::Clear, Outcome::Done) => true,
            (Action::Insert(_), Outcome::Refused) | (Action::Delete, Outcome::Done) => {
                there.is_some()
            }
            (Action::CompareAndSet { expected, .. }, Outcome::Done) => there == Some(expected),
            (Action::CompareAndSet { expected, .. }, Outcome::Refused) => {
                there.is_some_and(|value| value != expected)
            }
            (Action::Insert(_), Outcome::Done)
            | (Action::Read | Action::CompareAndSet { .. } | Action::Delete, Outcome::Missing) => {
                there.is_none()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::Instant;

    use super::*;

    fn done(client: u32, at: u64, action: Action, outcome: Outcome, numbers: [u64; 2]) -> Numbered {
        Numbered {
            entry: Entry {
                client,
                key: 7,
                invoked: Instant { ns: at },
                action,
                returned: Some((Instant { ns: at + 1 }, outcome)),
            },
            number: numbers[0],
            replaced: numbers[1],
        }
    }

    fn write(client: u32, at: u64, value: u64, number: u64) -> Numbered {
        done(client, at, Action::Write(value), Outcome::Done, [number, 0])
    }

    fn read(client: u32, at: u64, value: u64, number: u64) -> Numbered {
        done(client, at, Action::Read, Outcome::Value(value), [number, 0])
    }

    fn later(mut one: Numbered, ns: u64) -> Numbered {
        one.entry.invoked = Instant { ns };
        one
    }

    fn is_violation(entries: &[Numbered]) -> bool {
        matches!(
            check_agreed(entries, Updates::Atomic),
            Verdict::Violation(_)
        )
    }

    /// Goal: the paper's Fig. 5 is allowed, its Fig. 6 is not. Method: a late reader; two readers
    /// that see two writes in different orders, so that one goes back whichever order is claimed.
    #[test]
    fn late_is_allowed_and_disagreement_is_not() {
        let late = [
            write(1, 0, 1, 1),
            read(1, 10, 1, 1),
            done(2, 20, Action::Read, Outcome::Missing, [0, 0]),
            read(2, 30, 1, 1),
        ];
        assert_eq!(check_agreed(&late, Updates::Atomic), Verdict::Consistent);
        for (one, two) in [(1, 2), (2, 1)] {
            let disagree = [
                write(1, 0, 10, one),
                write(4, 0, 20, two),
                read(2, 5, 10, one),
                read(2, 7, 20, two),
                read(3, 5, 20, two),
                read(3, 7, 10, one),
            ];
            assert!(is_violation(&disagree));
        }
    }

    /// Goal: each rule is one that can be broken.
    #[test]
    fn every_rule_is_enforced() {
        let twice = [write(1, 0, 1, 5), write(2, 0, 2, 5)];
        let torn = [write(1, 0, 1, 5), read(2, 9, 3, 5)];
        let from_nowhere = [read(1, 0, 3, 4)];
        let own_write_unseen = [
            write(1, 0, 1, 5),
            done(1, 9, Action::Read, Outcome::Missing, [0, 0]),
        ];
        let swap = Action::CompareAndSet {
            expected: 1,
            new: 3,
        };
        let overtaken = [
            write(1, 0, 1, 5),
            write(2, 0, 2, 6),
            done(3, 9, swap, Outcome::Done, [7, 5]),
        ];
        let of_the_future = [done(3, 0, swap, Outcome::Done, [5, 6]), write(3, 9, 1, 6)];
        let before_all = [write(1, 0, 1, 0)];
        for wrong in [
            &twice[..],
            &torn,
            &from_nowhere,
            &own_write_unseen,
            &overtaken,
            &of_the_future,
            &before_all,
        ] {
            assert!(is_violation(wrong), "{wrong:?}");
        }
        assert_eq!(
            check_agreed(&overtaken, Updates::Loose),
            Verdict::Consistent
        );
        // Only a write of another session may be overwritten unseen.
        let own_write_overwritten = [
            write(1, 0, 1, 5),
            write(3, 0, 2, 6),
            done(3, 9, swap, Outcome::Done, [7, 5]),
        ];
        let loose = check_agreed(&own_write_overwritten, Updates::Loose);
        assert!(matches!(loose, Verdict::Violation(_)));
        let right = [
            write(1, 0, 1, 5),
            done(3, 9, swap, Outcome::Done, [7, 5]),
            done(3, 20, Action::Delete, Outcome::Done, [9, 7]),
            done(3, 30, Action::Delete, Outcome::Missing, [9, 0]),
            read(2, 40, 3, 7),
        ];
        assert_eq!(check_agreed(&right, Updates::Atomic), Verdict::Consistent);
    }

    /// Goal: a write whose answer nobody heard explains what was read of it.
    #[test]
    fn an_unanswered_write_may_be_seen() {
        let open = Numbered {
            entry: Entry {
                returned: None,
                ..write(1, 0, 1, 5).entry
            },
            number: 5,
            replaced: 0,
        };
        assert_eq!(
            check_agreed(&[open, read(2, 9, 1, 5)], Updates::Atomic),
            Verdict::Consistent
        );
        assert!(is_violation(&[open, read(2, 9, 2, 5)]));
        // What was read was there, so no write that does not know of it stands right behind.
        let swap = Action::CompareAndSet {
            expected: 2,
            new: 3,
        };
        let before = write(3, 0, 2, 4);
        let after = done(3, 9, swap, Outcome::Done, [6, 4]);
        assert!(is_violation(&[before, open, read(2, 9, 1, 5), after]));
        assert!(is_violation(&[read(1, 0, 1, 5), later(open, 9)]));
        let unread = [before, open, after];
        assert_eq!(check_agreed(&unread, Updates::Atomic), Verdict::Consistent);
    }
}
