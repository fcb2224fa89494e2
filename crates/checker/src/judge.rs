//! Checks every reply, when it is given, against the replies that the model allows.
//!
//! Under Lin the judge keeps every way in which the requests so far may have taken effect one after
//! the other: the value that the key would have, and which of the requests that are not answered
//! yet have taken effect (Lowe, "Testing for linearizability", 2016, just-in-time linearization).
//! An answer leaves the ways that explain it; if none is left, no order does. It is exact, and
//! small: a way is looked for only when an answer asks for it.
//!
//! Under SC all sessions have to see the writes in the order of their timestamps, and each its own;
//! nothing is what a delete leaves.
//! What only a dead node had may be missed by who has seen it.

use curtail_types::Cas;

use crate::setup::Kind;
use crate::world::{Item, Label};

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

    /// The writes, the first one first.
    pub(crate) fn labels(self) -> impl Iterator<Item = Label> {
        let digits = (0..16).rev().map(move |place| self.0 >> (4 * place) & 15);
        let written = digits.skip_while(|digit| *digit == 0);
        written.map(|digit| Label((digit as u8).saturating_sub(1)))
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

    /// The same for whoever will not be asked any more.
    pub(crate) fn at_rest() -> Self {
        Self::new(Written(0))
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

/// What the sessions have seen.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Sessions {
    /// The last write that each has.
    seen: Vec<Cas>,
    /// The writes that left nothing, which a session may yet find.
    removed: Vec<Cas>,
    loss: Loss,
}

/// Whether the key may be gone.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Loss {
    /// It may not.
    No,
    /// It may from some time on.
    May,
    /// It was, with all writes up to this one. Who finds nothing does not find those any more.
    Was(Cas),
}

impl Sessions {
    /// So many, all of which have seen the first value: there is nothing earlier to be seen.
    pub(crate) fn new(count: usize, first: Cas) -> Self {
        Self {
            seen: vec![first; count],
            removed: Vec::new(),
            loss: Loss::No,
        }
    }

    /// The write `ts` left nothing.
    pub(crate) fn removed(&mut self, ts: Cas) {
        self.removed.push(ts);
        self.removed.sort_unstable();
        self.forget_removed();
    }

    /// Nobody who has seen a later write may find what an earlier one left.
    fn forget_removed(&mut self) {
        let first = self.seen.iter().min().copied().unwrap_or_default();
        self.removed.retain(|ts| *ts >= first);
    }

    /// The same for whoever will not be asked any more.
    pub(crate) fn at_rest(&self) -> Self {
        Self::new(self.seen.len(), Cas(0))
    }

    /// A session's answer showed, or was, the write `answer`; `newest` is the last one so far.
    pub(crate) fn answered(
        &mut self,
        session: usize,
        kind: Kind,
        (answer, newest): (Item, Cas),
    ) -> bool {
        if answer.value == Written::NOTHING {
            return self.found_nothing(session, (answer.ts, newest));
        }
        let Some(last) = self.seen.get_mut(session) else {
            return false;
        };
        let is_right = match kind {
            Kind::Get => answer.ts >= *last,
            Kind::Set | Kind::Append | Kind::Delete => answer.ts > *last,
        };
        *last = answer.ts.max(*last);
        self.forget_removed();
        is_right
    }

    /// A session finds nothing: what a delete left that is not before what it has seen, or what was
    /// lost. Only while the key is hot is it known which delete it was; else it was the first that
    /// may have been, which forbids the least.
    fn found_nothing(&mut self, session: usize, (ts, newest): (Cas, Cas)) -> bool {
        let Some(last) = self.seen.get_mut(session) else {
            return false;
        };
        let is_known = self.removed.contains(&ts);
        let mut left = self.removed.iter();
        let found = left.find(|one| **one >= *last && (!is_known || **one == ts));
        if let Some(found) = found {
            *last = *found;
            self.forget_removed();
            return true;
        }
        if self.loss == Loss::May {
            self.loss = Loss::Was(newest);
        }
        let Loss::Was(lost) = self.loss else {
            return false;
        };
        let is_right = *last <= lost;
        *last = lost;
        self.forget_removed();
        is_right
    }

    /// A session hears no more.
    pub(crate) fn end(&mut self, session: usize, first: Cas) {
        if let Some(seen) = self.seen.get_mut(session) {
            *seen = first;
        }
    }

    /// The key may be gone from now on.
    pub(crate) fn lose(&mut self) {
        self.loss = Loss::May;
    }

    /// All writes after `ts` are gone: whoever has seen one may find that.
    pub(crate) fn lose_after(&mut self, ts: Cas) {
        for seen in &mut self.seen {
            *seen = ts.min(*seen);
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

    #[test]
    fn a_session_does_not_go_back() {
        let mut judge = Sessions::new(2, Cas(0));
        assert!(judge.answered(0, Kind::Set, write(5)));
        assert!(judge.answered(1, Kind::Get, write(3)));
        assert!(!judge.answered(0, Kind::Get, write(3)));
    }

    fn write(ts: u64) -> (Item, Cas) {
        let (ts, value) = (Cas(ts), START);
        (Item { ts, value }, Cas(5))
    }

    /// Goal: nothing is found only where all may be lost, and what was lost does not come back.
    /// Method: answers before a loss and after it.
    #[test]
    fn a_session_finds_nothing_only_after_a_loss() {
        let (ts, value) = (Cas(0), Written::NOTHING);
        let nothing = (Item { ts, value }, Cas(5));
        let mut judge = Sessions::new(2, Cas(0));
        assert!(judge.answered(0, Kind::Set, write(5)));
        assert!(!judge.clone().answered(1, Kind::Get, nothing));
        judge.lose();
        assert!(judge.answered(1, Kind::Get, write(3)), "not lost yet");
        assert!(judge.answered(1, Kind::Get, nothing));
        assert!(judge.answered(1, Kind::Get, nothing));
        assert!(judge.answered(0, Kind::Get, write(5)), "it lags behind");
        assert!(!judge.clone().answered(1, Kind::Get, write(4)));
        assert!(judge.answered(1, Kind::Get, write(6)));
        assert!(!judge.answered(1, Kind::Get, nothing));
    }

    /// Goal: a session finds nothing only where something was removed that it has not seen a later
    /// write of. Method: reads of nothing before a delete, after it, and after a later write.
    #[test]
    fn a_session_finds_nothing_only_after_a_delete() {
        let nothing = |ts| {
            let (ts, value) = (Cas(ts), Written::NOTHING);
            (Item { ts, value }, Cas(9))
        };
        let mut judge = Sessions::new(2, Cas(0));
        assert!(judge.answered(0, Kind::Get, write(3)));
        assert!(!judge.clone().answered(0, Kind::Get, nothing(0)));
        judge.removed(Cas(5));
        assert!(judge.answered(0, Kind::Get, nothing(0)));
        assert!(
            !judge.clone().answered(0, Kind::Get, write(3)),
            "it is gone"
        );
        assert!(judge.answered(0, Kind::Get, nothing(5)), "while it is hot");
        assert!(judge.answered(0, Kind::Set, write(7)));
        assert!(!judge.clone().answered(0, Kind::Get, nothing(0)));
        assert!(!judge.clone().answered(0, Kind::Get, nothing(5)));
        assert!(judge.answered(1, Kind::Get, nothing(5)), "it lags behind");
        judge.removed(Cas(8));
        assert!(
            judge.answered(0, Kind::Delete, nothing(0)),
            "nothing to delete"
        );
    }

    /// Goal: of a death a session may notice what died, and no more. Method: reads of what is left,
    /// and of less.
    #[test]
    fn a_session_goes_back_to_what_is_left() {
        let mut judge = Sessions::new(1, Cas(0));
        assert!(judge.answered(0, Kind::Get, write(7)));
        judge.lose_after(Cas(5));
        assert!(!judge.clone().answered(0, Kind::Get, write(4)));
        assert!(judge.answered(0, Kind::Get, write(5)));
    }
}
