//! The sequential specification of histories: a register that may be empty.

use crate::record::{Action, Outcome};

/// What a register holds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum State {
    Missing,
    Holds(u64),
    /// Not known: any outcome is possible and tells what it can. Used to judge a piece of a
    /// history without what came before it; it never rules out what a known state would allow.
    Unknown,
}

impl State {
    /// The state after an action with this outcome, or `None` if the outcome is impossible here.
    /// Without an outcome every effect that the action can have is taken.
    pub(crate) fn after(self, action: Action, outcome: Option<Outcome>) -> Option<Self> {
        match outcome {
            None => Some(self.after_unseen(action)),
            Some(outcome) => self.after_seen(action, outcome),
        }
    }

    fn after_seen(self, action: Action, outcome: Outcome) -> Option<Self> {
        let possible = |is_possible: bool, next: Self| is_possible.then_some(next);
        let may_hold = |value| self == Self::Holds(value) || self == Self::Unknown;
        let may_miss = self == Self::Missing || self == Self::Unknown;
        match (action, outcome) {
            (Action::Read, Outcome::Value(value)) => possible(may_hold(value), Self::Holds(value)),
            (Action::Write(value), Outcome::Done) => Some(Self::Holds(value)),
            (Action::Insert(value), Outcome::Done) => possible(may_miss, Self::Holds(value)),
            (Action::Insert(_), Outcome::Refused) => possible(self != Self::Missing, self),
            (Action::CompareAndSet { expected, new }, Outcome::Done) => {
                possible(may_hold(expected), Self::Holds(new))
            }
            (Action::CompareAndSet { expected, .. }, Outcome::Refused) => {
                let differs = self != Self::Missing && self != Self::Holds(expected);
                possible(differs, self)
            }
            (Action::Delete, Outcome::Done) => possible(self != Self::Missing, Self::Missing),
            (Action::Read | Action::CompareAndSet { .. } | Action::Delete, Outcome::Missing) => {
                possible(may_miss, Self::Missing)
            }
            (Action::Clear, Outcome::Done) => Some(Self::Missing),
            (action, Outcome::Perhaps) => Some(self.after_unseen(action)),
            // An outcome that the action cannot have.
            _ => None,
        }
    }

    fn after_unseen(self, action: Action) -> Self {
        match action {
            Action::Read => self,
            Action::Write(value) => Self::Holds(value),
            Action::Insert(value) if self == Self::Missing => Self::Holds(value),
            Action::Insert(_) => self,
            Action::CompareAndSet { expected, new } if self == Self::Holds(expected) => {
                Self::Holds(new)
            }
            Action::CompareAndSet { .. } => self,
            Action::Delete | Action::Clear => Self::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_possible_exactly_where_it_should_be() {
        use Outcome::{Done, Missing, Refused, Value};
        let (empty, one) = (State::Missing, State::Holds(1));
        let swap = Action::CompareAndSet {
            expected: 1,
            new: 2,
        };
        let cases = [
            (empty, Action::Read, Missing, Some(empty)),
            (empty, Action::Read, Value(1), None),
            (one, Action::Read, Value(1), Some(one)),
            (one, Action::Read, Value(2), None),
            (one, Action::Read, Missing, None),
            (one, Action::Write(3), Done, Some(State::Holds(3))),
            (one, Action::Write(3), Refused, None),
            (empty, Action::Insert(3), Done, Some(State::Holds(3))),
            (empty, Action::Insert(3), Refused, None),
            (one, Action::Insert(3), Done, None),
            (one, Action::Insert(3), Refused, Some(one)),
            (one, swap, Done, Some(State::Holds(2))),
            (one, swap, Refused, None),
            (one, swap, Missing, None),
            (State::Holds(5), swap, Refused, Some(State::Holds(5))),
            (empty, swap, Missing, Some(empty)),
            (empty, swap, Refused, None),
            (one, Action::Delete, Done, Some(empty)),
            (empty, Action::Delete, Done, None),
            (empty, Action::Delete, Missing, Some(empty)),
            (empty, Action::Clear, Done, Some(empty)),
            (one, Action::Clear, Done, Some(empty)),
            (one, Action::Clear, Missing, None),
        ];
        for (state, action, outcome, next) in cases {
            assert_eq!(
                state.after(action, Some(outcome)),
                next,
                "{state:?} {action} -> {outcome}"
            );
        }
    }
}
