//! The values that operations not yet placed still need: the search must not overwrite them, and
//! need not tell others apart.
//!
//! Recorders write each value once, as a rule, and that is what makes histories easy to judge. A
//! value that a read still has to see must stay until then, unless it is to be written again; and
//! two states that hold values which nobody will ask for are one.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use crate::{
    record::{Action, Entry, Outcome},
    register::State,
};

/// What the operations left to place have to do with each value.
pub(crate) struct Values {
    numbers: BTreeMap<u64, usize>,
    left: Vec<Left>,
    roles: Vec<Roles>,
}

/// How many operations are left in each role.
#[derive(Clone, Copy, Default)]
struct Left {
    /// The value must be there when they are carried out.
    need: usize,
    /// They may write it.
    write: usize,
    /// What they return may depend on whether it is there.
    name: usize,
}

/// The numbers of the values for which an operation has a role.
#[derive(Clone, Copy, Default)]
struct Roles {
    needs: Option<usize>,
    writes: Option<usize>,
    names: Option<usize>,
}

impl Values {
    pub(crate) fn new(entries: &[Entry]) -> Self {
        let mut values = Self {
            numbers: BTreeMap::new(),
            left: Vec::new(),
            roles: Vec::with_capacity(entries.len()),
        };
        for entry in entries {
            let roles = values.roles_of(entry);
            values.roles.push(roles);
        }
        values.left = vec![Left::default(); values.numbers.len()];
        (0..entries.len()).for_each(|entry| values.give_back(entry));
        values
    }

    fn roles_of(&mut self, entry: &Entry) -> Roles {
        let outcome = entry.returned.map(|(_, outcome)| outcome);
        let is_done = matches!(outcome, None | Some(Outcome::Done | Outcome::Perhaps));
        let mut number = |value| {
            let next = self.numbers.len();
            Some(*self.numbers.entry(value).or_insert(next))
        };
        let mut roles = Roles::default();
        match (entry.action, outcome) {
            (Action::Read, Some(Outcome::Value(value))) => {
                roles.needs = number(value);
                roles.names = roles.needs;
            }
            (Action::Write(value) | Action::Insert(value), _) if is_done => {
                roles.writes = number(value);
            }
            (Action::CompareAndSet { expected, new }, _) => {
                roles.names = number(expected);
                roles.needs = roles.names.filter(|_| outcome == Some(Outcome::Done));
                roles.writes = if is_done { number(new) } else { None };
            }
            _ => {}
        }
        roles
    }

    /// The entry is placed.
    pub(crate) fn take(&mut self, entry: usize) {
        self.change(entry, |count| *count -= 1);
    }

    /// It is not, after all.
    pub(crate) fn give_back(&mut self, entry: usize) {
        self.change(entry, |count| *count += 1);
    }

    fn change(&mut self, entry: usize, change: impl Fn(&mut usize)) {
        let roles = self.roles[entry];
        if let Some(number) = roles.needs {
            change(&mut self.left[number].need);
        }
        if let Some(number) = roles.writes {
            change(&mut self.left[number].write);
        }
        if let Some(number) = roles.names {
            change(&mut self.left[number].name);
        }
    }

    /// Whether what `state` holds is still to be seen and comes never again.
    pub(crate) fn must_stay(&self, state: State) -> bool {
        let left = self.left_of(state);
        left.is_some_and(|left| left.need > 0 && left.write == 0)
    }

    /// The state, as far as it can make a difference: `None` for all values that no operation left
    /// names.
    pub(crate) fn told_apart(&self, state: State) -> Option<State> {
        match state {
            State::Holds(_) => self
                .left_of(state)
                .and_then(|left| (left.name > 0).then_some(state)),
            State::Missing | State::Unknown => Some(state),
        }
    }

    fn left_of(&self, state: State) -> Option<Left> {
        match state {
            State::Holds(value) => self.numbers.get(&value).map(|&number| self.left[number]),
            State::Missing | State::Unknown => None,
        }
    }
}
