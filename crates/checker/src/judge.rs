//! Checks every reply, when it is given, against the replies that linearizability allows.
//!
//! The judge keeps every way in which the requests so far may have taken effect one after
//! the other: the value that the key would have, and which of the requests that are not answered
//! yet have taken effect (Lowe, "Testing for linearizability", 2016, just-in-time linearization).
//! An answer leaves the ways that explain it; if none is left, no order does. It is exact, and
//! small: a way is looked for only when an answer asks for it.

use std::fmt;

use crate::requests::{Kind, Label};

/// The writes that led to a value: a set starts with itself, an append adds itself to what was
/// there. Four bits for each, the last one lowest.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Written(pub(crate) u64);

impl Written {
    /// What a key that has no item reads as: as if one more client had set it so.
    pub(crate) const NOTHING: Self = Self(Label::EVICTION.0 as u64 + 1);

    /// What a delete says that found something.
    pub(crate) const GONE: Self = Self(0);

    /// What operation `label` makes of it.
    #[cfg(test)]
    pub(crate) fn after(self, label: Label, kind: Kind) -> Self {
        self.outcome(label, kind).0
    }

    /// The set that left it.
    pub(crate) fn set_by(self) -> Option<Label> {
        let label = self.0.checked_sub(1)?;
        (self != Self::NOTHING).then_some(Label(label as u8))
    }

    /// What operation `label` makes of it, and what it says.
    pub(crate) fn outcome(self, label: Label, kind: Kind) -> (Self, Self) {
        let written = Self(u64::from(label.0) + 1);
        match kind {
            Kind::Get => (self, self),
            Kind::Set => (written, written),
            Kind::Append => {
                let both = Self(self.0 << 4 | written.0);
                (both, both)
            }
            Kind::Delete if self == Self::NOTHING => (self, self),
            Kind::Delete => (Self::NOTHING, Self::GONE),
        }
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NOTHING {
            return f.write_str("no item");
        }
        // The writes, the first one first; an append to nothing begins with itself.
        let places = (0..u64::BITS).step_by(4).rev();
        let labels = places.map(|place| self.0 >> place & 0xf);
        let mut writes = labels.filter(|label| *label != 0 && *label != Self::NOTHING.0);
        let Some(first) = writes.next() else {
            return f.write_str("the first value");
        };
        write!(f, "the value of request {first}")?;
        writes.try_for_each(|next| write!(f, " and {next}"))
    }
}

/// One way in which the requests may have taken effect.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Way {
    value: Written,
    /// Requests that have taken effect and are not answered, with what they will say.
    early: Vec<(Label, Written)>,
}

/// The ways that are left.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Linearizable {
    ways: Vec<Way>,
    /// Requests that were asked and not answered.
    open: Vec<(Label, Kind)>,
}

impl Linearizable {
    pub(crate) fn new(value: Written) -> Self {
        let early = Vec::new();
        Self {
            ways: vec![Way { value, early }],
            open: Vec::new(),
        }
    }

    /// Gets leave nothing behind, and are of no interest where they are answered at once.
    pub(crate) fn asked(&mut self, label: Label, kind: Kind) {
        if kind != Kind::Get {
            self.begun(label, kind);
        }
    }

    /// The same where a get may have taken effect some time before it is answered.
    pub(crate) fn begun(&mut self, label: Label, kind: Kind) {
        self.open.push((label, kind));
        self.open.sort_unstable();
    }

    /// The same, unless it was asked before.
    pub(crate) fn asked_once(&mut self, label: Label, kind: Kind) {
        if !self.open.contains(&(label, kind)) {
            self.asked(label, kind);
        }
    }

    /// Request `label` is answered: a get with the value, a set or append having left it, a delete
    /// with whether something was there. Whether
    /// some order explains that.
    pub(crate) fn answered(&mut self, label: Label, kind: Kind, value: Written) -> bool {
        let mut left = Vec::new();
        for way in core::mem::take(&mut self.ways) {
            self.explain(way, (label, kind, value), &mut left);
        }
        left.sort_unstable();
        left.dedup();
        self.ways = left;
        self.open.retain(|open| open.0 != label);
        !self.ways.is_empty()
    }

    /// Request `label` had no effect, and will have none. Whether some order explains that.
    pub(crate) fn had_no_effect(&mut self, label: Label) -> bool {
        self.open.retain(|open| open.0 != label);
        self.ways
            .retain(|way| way.early.iter().all(|early| early.0 != label));
        !self.ways.is_empty()
    }

    /// Delete `label` has taken effect, whatever it found.
    pub(crate) fn took_effect(&mut self, label: Label) -> bool {
        let mut other = self.clone();
        let found = self.answered(label, Kind::Delete, Written::GONE);
        let missed = other.answered(label, Kind::Delete, Written::NOTHING);
        self.ways.append(&mut other.ways);
        self.ways.sort_unstable();
        self.ways.dedup();
        found || missed
    }

    fn explain(&self, mut way: Way, answer: (Label, Kind, Written), left: &mut Vec<Way>) {
        let (label, kind, value) = answer;
        let early = way.early.iter().position(|early| early.0 == label);
        if let Some(early) = early {
            if way.early.remove(early).1 == value {
                left.push(way);
            }
            return;
        }
        let (after, said) = way.value.outcome(label, kind);
        if said == value {
            let early = way.early.clone();
            left.push(Way {
                value: after,
                early,
            });
            if kind == Kind::Get {
                return;
            }
        }
        for &(other, kind) in &self.open {
            let is_done = way.early.iter().any(|early| early.0 == other);
            if other == label || is_done {
                continue;
            }
            let mut next = way.clone();
            let (after, said) = next.value.outcome(other, kind);
            next.value = after;
            next.early.push((other, said));
            next.early.sort_unstable();
            self.explain(next, answer, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Written = Written(0);

    #[test]
    fn a_get_after_a_set_does_not_see_what_was_before() {
        let mut judge = Linearizable::new(START);
        let set = START.after(Label(0), Kind::Set);
        judge.asked(Label(0), Kind::Set);
        judge.asked(Label(1), Kind::Get);
        assert!(judge.answered(Label(1), Kind::Get, set));
        judge.asked(Label(2), Kind::Get);
        assert!(!judge.clone().answered(Label(2), Kind::Get, START));
        assert!(judge.answered(Label(2), Kind::Get, set));
        assert!(judge.answered(Label(0), Kind::Set, set));
    }

    #[test]
    fn two_appends_do_not_start_from_the_same_value() {
        let mut judge = Linearizable::new(START);
        judge.asked(Label(0), Kind::Append);
        judge.asked(Label(1), Kind::Append);
        assert!(judge.answered(Label(0), Kind::Append, START.after(Label(0), Kind::Append)));
        let again = START.after(Label(1), Kind::Append);
        assert!(!judge.clone().answered(Label(1), Kind::Append, again));
        let both = START
            .after(Label(0), Kind::Append)
            .after(Label(1), Kind::Append);
        assert!(judge.answered(Label(1), Kind::Append, both));
    }

    #[test]
    fn a_set_that_was_never_answered_may_take_effect_late() {
        let mut judge = Linearizable::new(START);
        judge.asked(Label(0), Kind::Set);
        judge.asked(Label(1), Kind::Get);
        assert!(judge.answered(Label(1), Kind::Get, START));
        judge.asked(Label(2), Kind::Get);
        let set = START.after(Label(0), Kind::Set);
        assert!(judge.answered(Label(2), Kind::Get, set));
        judge.asked(Label(3), Kind::Get);
        assert!(!judge.answered(Label(3), Kind::Get, START));
    }
}
