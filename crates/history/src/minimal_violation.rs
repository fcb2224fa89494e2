//! Reduces a violation to the few operations that show it.
//!
//! The whole history is what was judged; this is the explanation. Each cut keeps a sound argument:
//! what is left is itself impossible, whatever was cut away.
//!
//! 1. *After*: one return ends the shortest impossible prefix. Operations that were still open then
//!    may or may not have happened.
//! 2. *Before*: at an instant when nothing was under way everything earlier is replaced by "the
//!    register holds anything".
//! 3. *Beside*: an operation that changed nothing can be left out; where only reads, writes and
//!    carried-out compare-and-sets remain, so can a write whose value nobody saw.

use alloc::{string::String, vec::Vec};
use core::{
    cell::Cell,
    fmt::{self, Write as _},
};

use curtail_types::Instant;

use crate::{
    linearizability::{Found, Search},
    record::{Action, Entry, Outcome},
    register::State,
};

/// The searches of a reduction together may take so many times the steps that one may take: a long
/// history without an order is told with more operations than are needed, but soon.
const REDUCTION: u64 = 4;

/// Operations on one key that no order explains.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// The operation whose return cannot be explained.
    pub culprit: Entry,
    /// The fewest operations found that show it, the culprit among them, by invocation. Those
    /// still open when the culprit returned are given without an outcome.
    pub window: Vec<Entry>,
    /// Whether the window starts from an empty register; else it is impossible from any value.
    pub starts_missing: bool,
}

impl Violation {
    /// Cuts the entries of `key` down, which no order explains.
    pub(crate) fn of(key: u64, entries: &[Entry], steps_max: u64) -> Self {
        let left = Cell::new(steps_max.saturating_mul(REDUCTION));
        let shows = |window: &[Entry], initial| {
            let (found, steps) = Search::new(window, initial).run(steps_max.min(left.get()));
            left.set(left.get() - steps);
            found == Found::Nothing
        };
        let culprit = culprit_of(entries, |prefix| shows(prefix, State::Missing));
        let end = culprit.returned.map_or(culprit.invoked, |(end, _)| end);
        let prefix = up_to(entries, end);
        let end = without_the_past(&prefix, |window| shows(window, State::Unknown));
        let starts_missing = end.is_none();
        let (mut window, initial) = match end {
            Some(end) => (end.to_vec(), State::Unknown),
            None => (prefix, State::Missing),
        };
        // Newest first: what is close to the culprit is the likeliest to matter and tried last
        // would be kept by accident.
        for index in (0..window.len()).rev() {
            let entry = window[index];
            if entry == culprit || !can_be_left_out(&window, &entry, starts_missing) {
                continue;
            }
            window.remove(index);
            if !shows(&window, initial) {
                window.insert(index, entry);
            }
        }
        Self {
            key,
            culprit,
            window,
            starts_missing,
        }
    }
}

/// The operation whose return ends the shortest prefix that is impossible: everything before it can
/// be explained, it cannot.
fn culprit_of(entries: &[Entry], shows: impl Fn(&[Entry]) -> bool) -> Entry {
    let mut returned: Vec<&Entry> = entries.iter().filter(|e| e.returned.is_some()).collect();
    returned.sort_by_key(|entry| entry.returned.map(|(end, _)| end));
    let ends_possible = |entry: &&Entry| {
        let end = entry.returned.map_or(entry.invoked, |(end, _)| end);
        !shows(&up_to(entries, end))
    };
    let first = returned.partition_point(ends_possible);
    // A prefix may be too hard to judge; the whole was not.
    *returned[first.min(returned.len() - 1)]
}

/// What was known when `end` came: later invocations are gone, later returns unknown.
fn up_to(entries: &[Entry], end: Instant) -> Vec<Entry> {
    let known = entries.iter().filter(|entry| entry.invoked <= end);
    known
        .map(|entry| Entry {
            returned: entry.returned.filter(|(returned, _)| *returned <= end),
            ..*entry
        })
        .collect()
}

/// The shortest end of the entries that begins when nothing was under way and is impossible from
/// any state, if there is one.
fn without_the_past(entries: &[Entry], shows: impl Fn(&[Entry]) -> bool) -> Option<&[Entry]> {
    let mut quiet = Vec::new();
    let mut busy_to = Some(Instant::default());
    for (index, entry) in entries.iter().enumerate() {
        if busy_to.is_some_and(|busy_to| busy_to < entry.invoked) {
            quiet.push(index);
        }
        // An operation that never returned is under way for ever.
        busy_to = busy_to.and_then(|busy_to| Some(busy_to.max(entry.returned?.0)));
    }
    let mut ends = quiet.into_iter().rev().map(|start| &entries[start..]);
    ends.find(|end| shows(end))
}

/// Whether leaving the entry out of an explicable window leaves an explicable window.
fn can_be_left_out(window: &[Entry], entry: &Entry, starts_missing: bool) -> bool {
    let Some((_, outcome)) = entry.returned else {
        return false;
    };
    match (entry.action, outcome) {
        (Action::Read, _) | (_, Outcome::Refused | Outcome::Missing) => true,
        (Action::Write(value), _) => {
            !starts_missing && window.iter().all(|other| is_plain(other, value))
        }
        _ => false,
    }
}

/// Whether the entry is a read, a write or a carried-out compare-and-set that does not need
/// `value` to be there.
fn is_plain(entry: &Entry, value: u64) -> bool {
    match (entry.action, entry.returned.map(|(_, outcome)| outcome)) {
        (Action::Read, Some(Outcome::Value(seen))) => seen != value,
        (Action::CompareAndSet { expected, .. }, Some(Outcome::Done)) => expected != value,
        (Action::Read | Action::Write(_), _) => true,
        _ => false,
    }
}

/// A first line that says it all, then one line an operation, drawn in time.
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.starts_missing {
            "from an empty register"
        } else {
            "whatever was there before"
        };
        let outcome = self.culprit.returned.map(|(_, outcome)| outcome);
        write!(
            f,
            "key {}: client {} {} -> {} cannot be explained by any order of {} operations {from}",
            self.key,
            self.culprit.client,
            self.culprit.action,
            outcome.unwrap_or(Outcome::Missing),
            self.window.len()
        )?;
        let start = self.window.first().map_or(0, |entry| entry.invoked.ns);
        let end = self.culprit.returned.map_or(start, |(end, _)| end.ns);
        let column = |at: Instant| {
            let share = u128::from(at.ns.saturating_sub(start)) * u128::from(COLUMNS - 1);
            (share / u128::from(end.saturating_sub(start).max(1))).min(u128::from(COLUMNS - 1))
        };
        for entry in &self.window {
            let bar = bar(entry, column);
            let text = match entry.returned {
                Some((_, outcome)) => alloc::format!("{} -> {outcome}", entry.action),
                None => alloc::format!("{} (open)", entry.action),
            };
            write!(f, "\n  client {:<3} {bar} {text}", entry.client)?;
        }
        Ok(())
    }
}

/// Width of the drawing.
const COLUMNS: u64 = 48;

fn bar(entry: &Entry, column: impl Fn(Instant) -> u128) -> String {
    let from = column(entry.invoked);
    let to = entry.returned.map(|(returned, _)| column(returned));
    let mut bar = String::new();
    for at in 0..u128::from(COLUMNS) {
        let sign = match to {
            Some(to) if at == from || at == to => '|',
            None if at == from => '|',
            Some(to) if from < at && at < to => '-',
            None if from < at => '-',
            _ => ' ',
        };
        // Writing to a String cannot fail.
        let _ = bar.write_char(sign);
    }
    bar
}
