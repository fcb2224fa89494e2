//! The histories of the clients, and the checkers that judge them.

use std::collections::BTreeMap;

use curtail_consistency::symmetric::Model;
use curtail_history::{
    Action, Entry, History, Numbered, Outcome, Updates, Verdict, check_agreed, check_linearizable,
};
use curtail_types::{Cas, Instant};

use super::packet::{Command, Demand, Done, Effect};

/// Every operation that may have had an effect.
#[derive(Debug, Default)]
pub(super) struct Record {
    answered: Vec<(Asked, u64, Effect)>,
    unanswered: Vec<Asked>,
    /// What an operation did, each time that it ran, until it is answered.
    ran: BTreeMap<u64, Vec<(Option<u64>, Cas)>>,
    /// Keys that may have been lost, and between when.
    lost: Vec<(usize, [u64; 2])>,
    /// Keys that were promoted while absent, when, and the version of nothing from then on.
    absent: Vec<(usize, u64, Cas)>,
    /// Versions of nothing that came by a promotion, and which nothing it was before.
    same: BTreeMap<u64, u64>,
}

/// An operation as its client knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) client: u32,
    pub(super) invoked: u64,
    pub(super) demand: Demand,
}

impl Record {
    pub(super) fn ran(&mut self, number: u64, from: Option<u64>, version: Cas) {
        self.ran.entry(number).or_default().push((from, version));
    }

    pub(super) fn answered(&mut self, asked: Asked, at: u64, effect: Effect) {
        self.ran.remove(&asked.demand.number);
        self.answered.push((asked, at, effect));
    }

    /// Its client will never know.
    pub(super) fn unanswered(&mut self, asked: Asked) {
        self.unanswered.push(asked);
    }

    /// What was there of the key may have been lost, in this time and not later.
    pub(super) fn lost(&mut self, key: usize, between: [u64; 2]) {
        self.lost.push((key, between));
    }

    /// An absent key was promoted: nothing has another version, which no client sees, but it is the
    /// same nothing.
    pub(super) fn promoted_absent(&mut self, key: usize, at: u64, [version, before]: [Cas; 2]) {
        if version > Cas(0) && before > Cas(0) {
            self.same.insert(version.0, before.0);
        } else if version > Cas(0) {
            self.absent.push((key, at, version));
        }
    }

    /// The version of a write that somebody made.
    fn made(&self, version: Cas) -> u64 {
        let mut number = version.0;
        while let Some(before) = self.same.get(&number) {
            number = *before;
        }
        number
    }

    /// Whether an operation that was refused ran all the same.
    pub(super) fn has_run(&self, number: u64) -> bool {
        self.ran.contains_key(&number)
    }

    /// Nothing that came by a promotion before any write of its key is what was there at first,
    /// which the next home may call so again, if it has not heard of the promotion.
    fn find_first(&mut self) {
        let (first, absent) = std::mem::take(&mut self.absent)
            .into_iter()
            .partition(|(key, _, version)| self.is_before_writes(*key, *version));
        self.absent = absent;
        let first: Vec<(usize, u64, Cas)> = first;
        let same = first.into_iter().map(|(_, _, version)| (version.0, 0));
        self.same.extend(same);
    }

    fn is_before_writes(&self, key: usize, version: Cas) -> bool {
        let answered = self.answered.iter().filter(|(asked, _, effect)| {
            asked.demand.key == key && effect.version != effect.replaced
        });
        let unanswered = self.unanswered.iter();
        let unanswered = unanswered.filter(|asked| asked.demand.key == key);
        let runs = unanswered.filter_map(|asked| self.ran.get(&asked.demand.number));
        let of_runs = runs.flatten().map(|(_, made)| *made);
        let made = answered.map(|(_, _, effect)| effect.version);
        made.chain(of_runs).all(|made| made > version)
    }

    pub(super) fn judge(&mut self, model: Model) -> Verdict {
        self.find_first();
        match model {
            Model::Lin => check_linearizable(&self.history(), STEPS_MAX),
            Model::Sc => {
                let absent = self.absent.iter().map(|(key, at, version)| Numbered {
                    entry: deleted(*key, *at),
                    number: version.0,
                    replaced: 0,
                });
                let all: Vec<_> = self.numbered().into_iter().chain(absent).collect();
                check_agreed(&all, Updates::Loose)
            }
        }
    }

    /// The operations in the words of the judge. One that was not answered counts once for each
    /// time that it ran; an increment is a compare-and-set of what it found.
    fn history(&self) -> History {
        let numbered = self.numbered().into_iter();
        let mut history: History = numbered.map(|numbered| numbered.entry).collect();
        history.extend(self.lost.iter().map(|(key, [from, to])| Entry {
            returned: Some((Instant { ns: *to }, Outcome::Perhaps)),
            ..deleted(*key, *from)
        }));
        history
    }

    fn numbered(&self) -> Vec<Numbered> {
        let answered = self.answered.iter().map(|(asked, at, effect)| {
            let (action, outcome) = in_words(asked.demand.command, effect.outcome);
            Numbered {
                entry: entry(asked, action, Some((Instant { ns: *at }, outcome))),
                number: self.made(effect.version),
                replaced: self.made(effect.replaced),
            }
        });
        let unanswered = self.unanswered.iter().flat_map(|asked| {
            let runs = self.ran.get(&asked.demand.number).into_iter().flatten();
            runs.map(|(from, version)| Numbered {
                entry: entry(asked, unseen(asked.demand.command, *from), None),
                number: version.0,
                replaced: 0,
            })
        });
        answered.chain(unanswered).collect()
    }
}

/// Nobody's delete: the key has nothing from some time after `at` on.
fn deleted(key: usize, at: u64) -> Entry {
    Entry {
        client: u32::MAX,
        key: key as u64,
        invoked: Instant { ns: at },
        action: Action::Delete,
        returned: None,
    }
}

fn entry(asked: &Asked, action: Action, returned: Option<(Instant, Outcome)>) -> Entry {
    Entry {
        client: asked.client,
        key: asked.demand.key as u64,
        invoked: Instant { ns: asked.invoked },
        action,
        returned,
    }
}

fn in_words(command: Command, done: Done) -> (Action, Outcome) {
    let action = match (command, done) {
        (Command::Increment(_), Done::Counted { from, to }) => Action::CompareAndSet {
            expected: from,
            new: to,
        },
        (command, _) => unseen(command, None),
    };
    let outcome = match done {
        Done::Value(value) => Outcome::Value(value),
        Done::Missing => Outcome::Missing,
        Done::Written | Done::Counted { .. } => Outcome::Done,
        Done::Exists => Outcome::Refused,
    };
    (action, outcome)
}

/// A command of which only is known what it found when it ran.
fn unseen(command: Command, from: Option<u64>) -> Action {
    match command {
        Command::Get => Action::Read,
        Command::Set(value) => Action::Write(value),
        Command::Add(value) => Action::Insert(value),
        Command::Delete => Action::Delete,
        Command::Increment(by) => {
            let expected = from.unwrap_or(u64::MAX);
            Action::CompareAndSet {
                expected,
                new: expected.wrapping_add(by),
            }
        }
        Command::Swap { expected, new, .. } => Action::CompareAndSet { expected, new },
    }
}

/// Placements that the search of one key may try.
const STEPS_MAX: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::super::packet::Demand;
    use super::*;

    fn answered(record: &mut Record, number: u64, command: Command, effect: Effect) {
        let asked = Asked {
            client: 1,
            invoked: 10 * number,
            demand: Demand {
                number,
                key: 0,
                command,
            },
        };
        record.answered(asked, 10 * number + 5, effect);
    }

    fn missing(version: u64) -> Effect {
        let version = Cas(version);
        Effect {
            outcome: Done::Missing,
            version,
            replaced: version,
        }
    }

    /// Goal: nothing is nothing before a key was ever written, and is not what was there at first
    /// when it was. Method: a session sees a promotion's nothing, and then nothing of no version;
    /// once more with a write before.
    #[test]
    fn nothing_goes_back_to_nothing_only_if_there_was_no_write() {
        for is_written in [false, true] {
            let mut record = Record::default();
            if is_written {
                let (version, replaced) = (Cas(50), Cas(0));
                let outcome = Done::Written;
                let effect = Effect {
                    outcome,
                    version,
                    replaced,
                };
                answered(&mut record, 1, Command::Set(7), effect);
            }
            record.promoted_absent(0, 20, [Cas(100), Cas(0)]);
            answered(&mut record, 3, Command::Get, missing(100));
            answered(&mut record, 4, Command::Get, missing(0));
            let verdict = record.judge(Model::Sc);
            assert_eq!(verdict == Verdict::Consistent, !is_written, "{verdict:?}");
        }
    }
}
