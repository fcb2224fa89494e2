//! The histories of the clients, and the checkers that judge them.
//!
//! What nobody asked for is judged as an operation of nobody: an eviction is a delete between
//! the moment at which its primary made it and the next request for the key, which may come to
//! nothing if the primary dies; a slice that begins
//! empty is cleared between the view that says so and the first request that its new primary runs.
//! So a value that is gone for any other reason is found, and one that comes back, too.

use std::collections::BTreeMap;

use curtail_consistency::{replica::Model, slice_view::SliceId};
use curtail_history::{
    Action, Entry, History, Numbered, Outcome, Updates, Verdict, check_agreed, check_linearizable,
};
use curtail_types::{Instant, ViewNumber};

use super::{
    keys::Keys,
    packet::{Command, Demand, Done, Effect, Stamp},
};

/// Every operation that may have had an effect.
#[derive(Debug, Default)]
pub(super) struct Record {
    answered: Vec<(Asked, u64, Effect)>,
    unanswered: Vec<Asked>,
    /// What an operation wrote, each time that it ran, until it is answered.
    ran: BTreeMap<u64, Vec<Ran>>,
    evicted: Vec<Eviction>,
    flushed: Vec<Flush>,
    lost: Vec<Loss>,
}

/// An operation as its client knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) client: u32,
    pub(super) invoked: u64,
    pub(super) demand: Demand,
}

/// A write, and what it found.
#[derive(Clone, Copy, Debug)]
struct Ran {
    from: Option<u64>,
    stamp: Stamp,
}

/// An item that was evicted; nobody can tell before the next request for its key runs.
#[derive(Clone, Copy, Debug)]
struct Eviction {
    key: usize,
    stamp: Stamp,
    since: u64,
    until: Option<u64>,
}

/// A flush of a slice.
#[derive(Clone, Copy, Debug)]
struct Flush {
    number: u64,
    slice: SliceId,
    asked: u64,
    answered: Option<u64>,
    /// What is older went, if it ran.
    stamp: Option<Stamp>,
}

/// A key of a slice that began empty.
#[derive(Clone, Copy, Debug)]
struct Loss {
    key: usize,
    born: ViewNumber,
    since: u64,
    until: Option<u64>,
}

impl Record {
    /// An operation wrote, whether or not its answer ever arrives.
    pub(super) fn ran(&mut self, number: u64, from: Option<u64>, stamp: Stamp) {
        self.ran
            .entry(number)
            .or_default()
            .push(Ran { from, stamp });
    }

    pub(super) fn answered(&mut self, asked: Asked, at: u64, effect: Effect) {
        self.ran.remove(&asked.demand.number);
        self.answered.push((asked, at, effect));
    }

    /// Its client will never know.
    pub(super) fn unanswered(&mut self, asked: Asked) {
        self.unanswered.push(asked);
    }

    /// Whether an operation that was refused wrote all the same.
    pub(super) fn has_run(&self, number: u64) -> bool {
        self.ran.contains_key(&number)
    }

    pub(super) fn evicted(&mut self, key: usize, at: u64, stamp: Stamp) {
        self.evicted.push(Eviction {
            key,
            stamp,
            since: at,
            until: None,
        });
    }

    pub(super) fn flush_asked(&mut self, number: u64, slice: SliceId, at: u64) {
        self.flushed.push(Flush {
            number,
            slice,
            asked: at,
            answered: None,
            stamp: None,
        });
    }

    fn flush(&mut self, number: u64) -> Option<&mut Flush> {
        let mut all = self.flushed.iter_mut().rev();
        all.find(|flush| flush.number == number)
    }

    pub(super) fn flush_ran(&mut self, number: u64, stamp: Stamp) {
        if let Some(flush) = self.flush(number) {
            flush.stamp = Some(stamp);
        }
    }

    /// A flush is answered; whether it had run.
    pub(super) fn flush_answered(&mut self, number: u64, at: u64) -> bool {
        self.flush(number).is_some_and(|flush| {
            flush.answered = Some(at);
            flush.stamp.is_some()
        })
    }

    /// A view says that the slice of a key begins empty.
    pub(super) fn lost(&mut self, key: usize, born: ViewNumber, at: u64) {
        self.lost.push(Loss {
            key,
            born,
            since: at,
            until: None,
        });
    }

    /// The primary of this term runs a request for a key.
    pub(super) fn runs(&mut self, key: usize, term: ViewNumber, at: u64) {
        let of_key = |one: &&mut Eviction| one.key == key;
        let last = self.evicted.iter_mut().rev().find(of_key);
        if let Some(last) = last {
            last.until = last.until.or(Some(at));
        }
        let of_term = |loss: &&mut Loss| loss.key == key && loss.born <= term;
        for loss in self.lost.iter_mut().rev().filter(of_term) {
            loss.until = loss.until.or(Some(at));
        }
    }

    pub(super) fn judge(&self, model: Model, keys: &Keys) -> Verdict {
        match model {
            Model::Lin => check_linearizable(&self.history(keys), STEPS_MAX),
            Model::Sc => check_agreed(&self.numbered(keys), Updates::Atomic),
        }
    }

    /// Operations that were not answered, once for each time that they wrote.
    fn open(&self) -> impl Iterator<Item = (Entry, Stamp)> + '_ {
        self.unanswered.iter().flat_map(|asked| {
            let runs = self.ran.get(&asked.demand.number).into_iter().flatten();
            runs.map(|ran| {
                let action = unseen(asked.demand.command, ran.from);
                (entry(asked, action, None), ran.stamp)
            })
        })
    }

    /// What nobody asked for, and flushes.
    fn removals(&self, keys: &Keys) -> Vec<(Entry, Absence)> {
        let mut all = Vec::new();
        for eviction in &self.evicted {
            let (key, since) = (eviction.key, eviction.since);
            let returned = eviction.until.map(|ns| (Instant { ns }, Outcome::Perhaps));
            let entry = nobodys(key, since, Action::Delete, returned);
            all.push((entry, (eviction.stamp, 1)));
        }
        for flush in &self.flushed {
            let Some(stamp) = flush.stamp else { continue };
            let returned = flush.answered.map(|ns| (Instant { ns }, Outcome::Done));
            for key in keys.of_slice(flush.slice) {
                let entry = nobodys(key, flush.asked, Action::Clear, returned);
                all.push((entry, (stamp, 0)));
            }
        }
        for loss in &self.lost {
            let returned = loss.until.map(|ns| (Instant { ns }, Outcome::Done));
            let born = loss.born.0;
            let stamp = Stamp {
                born,
                ..Stamp::default()
            };
            let entry = nobodys(loss.key, loss.since, Action::Clear, returned);
            all.push((entry, (stamp, 0)));
        }
        all
    }

    /// The operations in the words of the judge; an increment is a compare-and-set of what it
    /// found.
    fn history(&self, keys: &Keys) -> History {
        let answered = self.answered.iter().map(|(asked, at, effect)| {
            let (action, outcome) = in_words(asked.demand.command, effect.outcome);
            entry(asked, action, Some((Instant { ns: *at }, outcome)))
        });
        let open = self.open().map(|(entry, _)| entry);
        let removals = self.removals(keys).into_iter().map(|(entry, _)| entry);
        answered.chain(open).chain(removals).collect()
    }

    // ---- the order that the store claims ----

    /// The operations, each where its version says that it stands. Of nothing there are no
    /// versions: a session that sees nothing is taken to see the earliest nothing that it may.
    fn numbered(&self, keys: &Keys) -> Vec<Numbered> {
        let removals = self.removals(keys);
        let mut ranks = Ranks::new(keys, self, &removals);
        let mut answered: Vec<_> = self.answered.iter().collect();
        answered.sort_by_key(|(asked, ..)| asked.invoked);
        let mut all: Vec<Numbered> = answered
            .into_iter()
            .map(|answered| ranks.place(answered))
            .collect();
        let claimed = |(entry, number): (Entry, u64)| Numbered {
            entry,
            number,
            replaced: 0,
        };
        for (entry, stamp) in self.open() {
            all.push(claimed((entry, ranks.of(entry.key, (stamp, 0)))));
        }
        let mut seen = BTreeMap::new();
        for (entry, absence) in removals {
            let number = ranks.of(entry.key, absence);
            if seen.insert((entry.key, number), ()).is_none() {
                let entry = Entry {
                    returned: None,
                    ..entry
                };
                all.push(claimed((entry, number)));
            }
        }
        all
    }
}

/// Where a write or an absence stands: an eviction right behind the write that it evicted.
type Absence = (Stamp, u8);

/// The writes and absences of each key in their order.
struct Ranks {
    /// By key: each in order, and whether nothing is there after it.
    of: Vec<Vec<(Absence, bool)>>,
    /// How far each session has come with each key.
    last: BTreeMap<(u32, usize), u64>,
}

impl Ranks {
    fn new(keys: &Keys, record: &Record, removals: &[(Entry, Absence)]) -> Self {
        let mut of = vec![vec![((Stamp::default(), 0), true)]; keys.count()];
        for (asked, _, effect) in &record.answered {
            if let (Done::Written | Done::Counted { .. }, Some(stamp)) =
                (effect.outcome, effect.stamp)
            {
                let removes = asked.demand.command == Command::Delete;
                of[asked.demand.key].push(((stamp, 0), removes));
            }
        }
        for (entry, stamp) in record.open() {
            of[entry.key as usize].push(((stamp, 0), entry.action == Action::Delete));
        }
        for (entry, absence) in removals {
            of[entry.key as usize].push((*absence, true));
        }
        of.iter_mut().for_each(|all| {
            all.sort_unstable();
            all.dedup_by_key(|(at, _)| *at);
        });
        Self {
            of,
            last: BTreeMap::new(),
        }
    }

    /// The number of a write; one that nobody made has none that fits.
    fn of(&self, key: u64, at: Absence) -> u64 {
        let all = &self.of[key as usize];
        match all.binary_search_by_key(&at, |(of, _)| *of) {
            Ok(rank) => rank as u64,
            Err(_) => u64::MAX,
        }
    }

    fn place(&mut self, (asked, at, effect): &(Asked, u64, Effect)) -> Numbered {
        let key = asked.demand.key;
        let (action, outcome) = in_words(asked.demand.command, effect.outcome);
        let last = self.last.get(&(asked.client, key)).copied().unwrap_or(0);
        let all = &self.of[key];
        let nothing = |rank: &usize| all[*rank].1;
        let number = match effect.stamp {
            Some(stamp) => self.of(key as u64, (stamp, 0)),
            None => {
                let first = (last as usize..all.len()).find(nothing);
                first.map_or(u64::MAX, |rank| rank as u64)
            }
        };
        let replaced = match effect.replaced {
            Some(stamp) => self.of(key as u64, (stamp, 0)),
            None => {
                let before = 0..(number as usize).min(all.len());
                before.rev().find(nothing).map_or(0, |rank| rank as u64)
            }
        };
        self.last.insert((asked.client, key), number.max(last));
        let entry = entry(asked, action, Some((Instant { ns: *at }, outcome)));
        Numbered {
            entry,
            number,
            replaced,
        }
    }
}

/// What nobody asked for.
fn nobodys(key: usize, at: u64, action: Action, returned: Option<(Instant, Outcome)>) -> Entry {
    Entry {
        client: u32::MAX,
        key: key as u64,
        invoked: Instant { ns: at },
        action,
        returned,
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
