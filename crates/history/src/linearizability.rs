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
//! The furthest return at which the search was ever stuck ends the shortest prefix that no order
//! explains: everything before it can be explained, it cannot.

use alloc::{collections::BTreeSet, vec, vec::Vec};

use crate::{
    Verdict,
    record::{Entry, History},
    register::State,
    violation::Violation,
};

/// Judges every key's register, each empty at the start.
///
/// `steps_max` bounds the search of one key, in placements tried; a history of `n` operations by
/// `c` clients seldom takes more than `n * c`.
pub fn check_linearizable(history: &History, steps_max: u64) -> Verdict {
    let mut too_hard = None;
    for (key, entries) in history.by_key() {
        match Search::new(&entries, State::Missing).run(steps_max) {
            Found::Order => {}
            Found::Nothing { stuck_at } => {
                return Verdict::Violation(Violation::of(key, &entries, stuck_at, steps_max));
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
    /// No order; the entry whose return ends the shortest prefix without one.
    Nothing {
        stuck_at: usize,
    },
    TooHard,
}

/// The search over one key's entries.
pub(crate) struct Search<'a> {
    entries: &'a [Entry],
    events: Events,
    state: State,
    placed: Placed,
    /// What was reached, by [`Placed::complete_to`]: the others that were placed, and the state.
    seen: Vec<BTreeSet<(Vec<usize>, State)>>,
    /// Placements made, with the state before each.
    trail: Vec<(usize, State)>,
}

/// Which entries are placed: in time that does not depend on how many there are, because those
/// beyond the first gap are few; they overlap in time with the gap.
#[derive(Default)]
struct Placed {
    /// Every entry before this one is placed, and it is not.
    complete_to: usize,
    /// The others that are placed, in order.
    beyond: Vec<usize>,
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
            seen: vec![BTreeSet::new(); entries.len() + 1],
            trail: Vec::new(),
        }
    }

    pub(crate) fn run(mut self, steps_max: u64) -> Found {
        let mut stuck_event = 0;
        let mut event = self.events.first();
        for _ in 0..steps_max {
            if self.events.returns_left == 0 {
                return Found::Order;
            }
            let Event {
                entry,
                is_return,
                next,
                ..
            } = self.events.events[event];
            if !is_return {
                event = if self.place(entry) {
                    self.events.first()
                } else {
                    next
                };
                continue;
            }
            stuck_event = stuck_event.max(event);
            let Some((entry, state)) = self.trail.pop() else {
                return Found::Nothing {
                    stuck_at: self.events.events[stuck_event].entry,
                };
            };
            self.take_back(entry, state);
            event = self.events.events[self.events.invocation_of[entry]].next;
        }
        Found::TooHard
    }

    /// Places an entry next, if its outcome is possible and nobody has been here before.
    fn place(&mut self, entry: usize) -> bool {
        let Entry {
            action, returned, ..
        } = self.entries[entry];
        let outcome = returned.map(|(_, outcome)| outcome);
        let Some(next) = self.state.after(action, outcome) else {
            return false;
        };
        self.placed.add(entry);
        let reached = (self.placed.beyond.clone(), next);
        if !self.seen[self.placed.complete_to].insert(reached) {
            self.placed.remove(entry);
            return false;
        }
        self.trail.push((entry, self.state));
        self.state = next;
        self.events.lift(entry);
        true
    }

    fn take_back(&mut self, entry: usize, state: State) {
        self.events.unlift(entry);
        self.placed.remove(entry);
        self.state = state;
    }
}

impl Placed {
    fn add(&mut self, entry: usize) {
        if entry != self.complete_to {
            let place = self.beyond.partition_point(|&other| other < entry);
            self.beyond.insert(place, entry);
            return;
        }
        let gap = (entry + 1..).zip(&self.beyond);
        let closed = gap.take_while(|(next, other)| next == *other).count();
        self.beyond.drain(..closed);
        self.complete_to = entry + 1 + closed;
    }

    fn remove(&mut self, entry: usize) {
        if entry < self.complete_to {
            self.beyond.splice(..0, entry + 1..self.complete_to);
            self.complete_to = entry;
        } else {
            self.beyond.retain(|&other| other != entry);
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
