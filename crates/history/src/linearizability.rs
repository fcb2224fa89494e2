//! The linearizability checker: Wing and Gong's search with Lowe's memory.
//!
//! Wing and Gong ("Testing and verifying concurrent objects", 1993) try the operations that may
//! come next, one after the other, and take back what led nowhere. Lowe ("Testing for
//! linearizability", 2017) remembers every pair of *operations placed so far* and *state reached*:
//! a pair that was tried before is not tried again, which makes real histories easy. The events of
//! a key form a linked list in time order; an operation may be placed next if its invocation stands
//! before the first return in the list, and placing it lifts both of its events out.
//!
//! ```text
//!   events   inv A   inv B   ret A   inv C   ret B   ret C
//!            └── may be next ──┘ stuck here with A not placed: take the last placement back
//! ```
//!
//! Three things keep the search short where many operations overlap, and lose no order:
//!
//! - An operation that changes nothing and may be next is next: wherever else it stands in an
//!   order, it can stand here, too.
//! - What somebody still has to see is not overwritten, unless it is to be written again.
//! - Two states that hold values which nobody asks for any more are one.

use alloc::{collections::BTreeSet, vec, vec::Vec};

use crate::{
    Verdict,
    minimal_violation::Violation,
    record::{Entry, History, Outcome},
    register::State,
    values_still_needed::Values,
};

/// Judges every key's register, each empty at the start.
///
/// `steps_max` bounds the search of one key, in placements tried; a history of `n` operations by
/// `c` clients seldom takes more than `n * c`.
pub fn check_linearizable(history: &History, steps_max: u64) -> Verdict {
    let mut too_hard = None;
    for (key, entries) in history.by_key() {
        match Search::new(&entries, State::Missing).run(steps_max).0 {
            Found::Order => {}
            Found::Nothing => {
                return Verdict::Violation(Violation::of(key, &entries, steps_max));
            }
            Found::TooHard => {
                too_hard.get_or_insert(Verdict::TooHard {
                    key,
                    entries: entries.len(),
                });
            }
        }
    }
    too_hard.unwrap_or(Verdict::Consistent)
}

/// How a search ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Found {
    Order,
    Nothing,
    TooHard,
}

/// The search over one key's entries.
pub(crate) struct Search<'a> {
    entries: &'a [Entry],
    events: Events,
    state: State,
    placed: Placed,
    values: Values,
    /// What was reached, by [`Placed::end`]: what is not placed before it, and the state.
    seen: Vec<BTreeSet<(Vec<usize>, Option<State>)>>,
    /// Placements made, with the state before each.
    trail: Vec<Placement>,
    /// Where the walk along the list stands.
    event: usize,
}

/// A step of the search, to be taken back.
#[derive(Clone, Copy)]
struct Placement {
    entry: usize,
    before: State,
    /// Placed as one that was never carried out.
    is_skipped: bool,
}

/// Which entries are placed: in time that does not depend on how many there are, because those
/// before the last one that are not are few. They overlap with it in time, or never returned.
#[derive(Default)]
struct Placed {
    /// Behind the last entry that is placed.
    end: usize,
    /// Those before it that are not, in order.
    gaps: Vec<usize>,
}

/// The events in time order, as a doubly linked list over a vector. Event 0 is the head.
struct Events {
    events: Vec<Event>,
    returns_left: usize,
    invocation_of: Vec<usize>,
    return_of: Vec<Option<usize>>,
}

#[derive(Clone, Copy)]
struct Event {
    entry: usize,
    is_return: bool,
    previous: usize,
    next: usize,
}

/// Marks the end of the list.
const END: usize = usize::MAX;

impl<'a> Search<'a> {
    /// `entries` are in order of invocation.
    pub(crate) fn new(entries: &'a [Entry], initial: State) -> Self {
        Self {
            entries,
            events: Events::new(entries),
            state: initial,
            placed: Placed::default(),
            values: Values::new(entries),
            seen: vec![BTreeSet::new(); entries.len() + 1],
            trail: Vec::new(),
            event: 0,
        }
    }

    /// How it ended, and after how many steps.
    pub(crate) fn run(mut self, steps_max: u64) -> (Found, u64) {
        self.begin_again();
        for step in 0..steps_max {
            if self.events.returns_left == 0 {
                return (Found::Order, step);
            }
            let event = self.events.events[self.event];
            if !event.is_return {
                match self.place(event.entry) {
                    true => self.begin_again(),
                    false => self.event = event.next,
                }
            } else if !self.take_back() {
                return (Found::Nothing, step);
            }
        }
        (Found::TooHard, steps_max)
    }

    /// Places what changes nothing, and looks at the first of the others next.
    fn begin_again(&mut self) {
        self.event = self.events.first();
        let mut event = self.event;
        while self.events.returns_left > 0 && !self.events.events[event].is_return {
            let Event { entry, next, .. } = self.events.events[event];
            event = if self.observes(entry) {
                self.put(entry, self.state, false);
                // A return may have gone, and more may be next.
                self.events.first()
            } else {
                next
            };
        }
        if self.events.returns_left > 0 {
            self.event = self.events.first();
        }
    }

    /// Whether an operation changes nothing wherever it stands, and may stand here.
    fn observes(&self, entry: usize) -> bool {
        let Entry {
            action, returned, ..
        } = self.entries[entry];
        match returned {
            // One that may never have been carried out may be of use later.
            Some((_, outcome)) if !matches!(outcome, Outcome::Done | Outcome::Perhaps) => {
                self.state.after(action, Some(outcome)) == Some(self.state)
            }
            _ => false,
        }
    }

    /// Places an entry next, if its outcome is possible, nothing is lost by it that is still needed
    /// and nobody has been here before.
    fn place(&mut self, entry: usize) -> bool {
        let Entry {
            action, returned, ..
        } = self.entries[entry];
        let outcome = returned.map(|(_, outcome)| outcome);
        let next = self.state.after(action, outcome);
        next.is_some_and(|next| self.try_next(entry, next, false)) || self.skip(entry)
    }

    /// Places an entry that may never have been carried out as such.
    fn skip(&mut self, entry: usize) -> bool {
        let returned = self.entries[entry].returned;
        let may_skip = returned.is_some_and(|(_, outcome)| outcome == Outcome::Perhaps);
        may_skip && self.try_next(entry, self.state, true)
    }

    fn try_next(&mut self, entry: usize, next: State, is_skipped: bool) -> bool {
        let before = self.state;
        self.put(entry, next, is_skipped);
        let is_lost = next != before && self.values.must_stay(before);
        let reached = (self.placed.gaps.clone(), self.values.told_apart(self.state));
        if is_lost || !self.seen[self.placed.end].insert(reached) {
            self.trail.pop();
            self.lift_out(entry, before);
            return false;
        }
        true
    }

    fn put(&mut self, entry: usize, next: State, is_skipped: bool) {
        self.trail.push(Placement {
            entry,
            before: self.state,
            is_skipped,
        });
        self.placed.add(entry);
        self.values.take(entry);
        self.events.lift(entry);
        self.state = next;
    }

    fn lift_out(&mut self, entry: usize, before: State) {
        self.events.unlift(entry);
        self.placed.remove(entry);
        self.values.give_back(entry);
        self.state = before;
    }

    /// Takes the last placement back that was one of several, and looks at the next one instead.
    /// False if there is none.
    fn take_back(&mut self) -> bool {
        while let Some(Placement {
            entry,
            before,
            is_skipped,
        }) = self.trail.pop()
        {
            self.lift_out(entry, before);
            if self.observes(entry) {
                continue;
            }
            if !is_skipped && self.skip(entry) {
                self.begin_again();
            } else {
                self.event = self.events.events[self.events.invocation_of[entry]].next;
            }
            return true;
        }
        false
    }
}

impl Placed {
    fn add(&mut self, entry: usize) {
        if entry >= self.end {
            self.gaps.extend(self.end..entry);
            self.end = entry + 1;
        } else {
            self.gaps.retain(|&gap| gap != entry);
        }
    }

    fn remove(&mut self, entry: usize) {
        if entry + 1 != self.end {
            let place = self.gaps.partition_point(|&gap| gap < entry);
            return self.gaps.insert(place, entry);
        }
        self.end = entry;
        while self.gaps.last().is_some_and(|&gap| gap + 1 == self.end) {
            self.gaps.pop();
            self.end -= 1;
        }
    }
}

impl Events {
    fn new(entries: &[Entry]) -> Self {
        let mut order = Vec::with_capacity(entries.len() * 2);
        for (index, entry) in entries.iter().enumerate() {
            order.push((entry.invoked, false, index));
            if let Some((returned, _)) = entry.returned {
                order.push((returned.max(entry.invoked), true, index));
            }
        }
        // At one instant invocations stand before returns: such operations overlap.
        order.sort_unstable();
        let mut list = Self {
            events: Vec::with_capacity(order.len() + 1),
            returns_left: order.iter().filter(|(_, is_return, _)| *is_return).count(),
            invocation_of: vec![END; entries.len()],
            return_of: vec![None; entries.len()],
        };
        let count = order.len();
        let head = (false, END);
        let events = order
            .into_iter()
            .map(|(_, is_return, entry)| (is_return, entry));
        for (position, (is_return, entry)) in core::iter::once(head).chain(events).enumerate() {
            list.events.push(Event {
                entry,
                is_return,
                previous: position.wrapping_sub(1),
                next: if position == count { END } else { position + 1 },
            });
            if is_return {
                list.return_of[entry] = Some(position);
            } else if entry != END {
                list.invocation_of[entry] = position;
            }
        }
        list
    }

    /// Valid while returns are left.
    fn first(&self) -> usize {
        self.events[0].next
    }

    fn lift(&mut self, entry: usize) {
        self.unlink(self.invocation_of[entry]);
        if let Some(event) = self.return_of[entry] {
            self.unlink(event);
            self.returns_left -= 1;
        }
    }

    fn unlift(&mut self, entry: usize) {
        if let Some(event) = self.return_of[entry] {
            self.relink(event);
            self.returns_left += 1;
        }
        self.relink(self.invocation_of[entry]);
    }

    fn unlink(&mut self, event: usize) {
        let Event { previous, next, .. } = self.events[event];
        self.events[previous].next = next;
        if next != END {
            self.events[next].previous = previous;
        }
    }

    /// Undoes the last [`Events::unlink`] that is not undone yet.
    fn relink(&mut self, event: usize) {
        let Event { previous, next, .. } = self.events[event];
        self.events[previous].next = event;
        if next != END {
            self.events[next].previous = event;
        }
    }
}
