//! The steps of a single key that moves, and of the scan for such keys.

use curtail_types::{Cas, NodeId, NodeSet, RouteHash};

use super::InForce;
use crate::symmetric::Visibility;

/// What a source does about a key that it has come across.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Leaving {
    /// It sends the key to these.
    Goes(NodeSet),
    /// Nothing: the key does not leave, or is everywhere.
    Stays,
    /// It looks at the key again: something is under way with it.
    Later,
}

/// What is done about a key that has moved here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrived {
    /// It is put in.
    IsNew,
    /// It waits: the machine knows the key, and may yet come to the end that it has nothing.
    Waits,
    /// Nothing: something later is here, or was.
    IsOld,
}

/// What a node has to do for keys when it comes to a view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Duty {
    /// To send those that leave, when all its threads have come to the view.
    Sends,
    /// To sweep out what does not belong here any more.
    Sweeps,
    /// Nothing.
    Rests,
}

/// A source's looking through all its keys, again and again until nothing is left to be sent. An
/// item that is displaced meanwhile may slip by it once, so it has to find nothing twice in a row.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Scan {
    clean: u8,
    found: bool,
}

/// Times that a source finds nothing before it has ended.
pub const CLEAN_SCANS: u8 = 2;

impl Scan {
    /// A key was found that had to be sent, and was.
    pub fn note_sent(&mut self) {
        self.found = true;
    }

    /// All keys have been looked at once more: the next time, if there is to be one. With several
    /// holders keys stay, so they are found every time.
    pub fn again(self, now: &InForce) -> Option<Self> {
        if self.found && now.forgets_sent() {
            return Some(Self::default());
        }
        let clean = self.clean + 1;
        let found = false;
        (clean < CLEAN_SCANS).then_some(Self { clean, found })
    }
}

impl InForce {
    /// What `me` has to do first, if this view comes after one under which it had to do something
    /// (`was_busy`).
    pub fn duty(&self, me: NodeId, was_busy: bool) -> Duty {
        match self.view.moves() {
            true if self.view.sources().contains(me) => Duty::Sends,
            false if was_busy => Duty::Sweeps,
            _ => Duty::Rests,
        }
    }

    /// Whether what did not belong here when the move of view `last` ended is to go before this
    /// view is come to: it would be taken for what has arrived. Seldom so: only if it `is_unswept`,
    /// or this node has not heard that the last move ended.
    pub fn sweeps_first(&self, last: &Self, is_unswept: bool) -> bool {
        self.view.moves() && (is_unswept || self.has_ended(last))
    }

    /// What `me` does about `key`, which it has come across in this state.
    pub fn leaving(&self, key: RouteHash, me: NodeId, state: Visibility) -> Leaving {
        let to = self.targets(key, me);
        match state {
            _ if to.is_empty() => Leaving::Stays,
            // A hot key that is about to be so is not everywhere, and one that ceases to be may
            // stay here only.
            Visibility::Unsettled => Leaving::Later,
            // A hot key is everywhere already: who is not its home, and shows it, was told so by
            // the home. With several holders it may be the home, which shows it before all have it.
            Visibility::Valid if self.forgets_sent() => Leaving::Stays,
            _ => Leaving::Goes(to),
        }
    }

    /// What is done here about a key that came with version `moved`. The item that is here has
    /// version `here`, an item that was here was removed by `removed`, and the machine `knows` the
    /// key, or not.
    pub fn arrived(moved: Cas, here: Option<Cas>, removed: Option<Cas>, knows: bool) -> Arrived {
        let is_old = |seen: Option<Cas>| seen.is_some_and(|seen| seen >= moved);
        match knows {
            true => Arrived::Waits,
            false if is_old(here) || is_old(removed) => Arrived::IsOld,
            false => Arrived::IsNew,
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{View, ViewNumber};

    use super::*;

    fn moving(replicas: usize) -> InForce {
        let view = View {
            number: ViewNumber(2),
            live: NodeSet::from_bits(0b111),
            placed: NodeSet::from_bits(0b111),
            placed_before: NodeSet::from_bits(0b011),
            ..View::default()
        };
        InForce::new(view, view.placed, replicas).unwrap()
    }

    /// A key that node 0 has to send to node 2.
    fn leaver(in_force: &InForce) -> RouteHash {
        let keys = (0..64).map(|slot| RouteHash(slot << 58));
        let mut leavers = keys.filter(|key| !in_force.targets(*key, NodeId(0)).is_empty());
        leavers.next().unwrap()
    }

    /// Goal: a key is not taken for one that is everywhere unless it is. Method: each state, with
    /// one holder and with two.
    #[test]
    fn a_key_that_something_is_under_way_with_does_not_leave_yet() {
        let goes = Leaving::Goes(NodeSet::only(NodeId(2)));
        for (replicas, valid) in [(1, Leaving::Stays), (2, goes)] {
            let in_force = moving(replicas);
            let key = leaver(&in_force);
            let leaving = |state| in_force.leaving(key, NodeId(0), state);
            assert_eq!(leaving(Visibility::Ordinary), goes);
            assert_eq!(leaving(Visibility::Unsettled), Leaving::Later);
            assert_eq!(leaving(Visibility::Valid), valid);
            let elsewhere = in_force.leaving(key, NodeId(2), Visibility::Ordinary);
            assert_eq!(elsewhere, Leaving::Stays);
        }
    }

    /// Goal: what has moved never comes over something later, nor over a removal. Method: versions
    /// before, at and after it.
    #[test]
    fn nothing_old_is_put_in() {
        let (before, at, after) = (Some(Cas(4)), Some(Cas(5)), Some(Cas(6)));
        let arrived = |here, removed| InForce::arrived(Cas(5), here, removed, false);
        assert_eq!(arrived(None, None), Arrived::IsNew);
        assert_eq!(arrived(before, before), Arrived::IsNew);
        for old in [(at, None), (after, None), (None, at), (before, after)] {
            assert_eq!(arrived(old.0, old.1), Arrived::IsOld);
        }
        let known = InForce::arrived(Cas(5), after, None, true);
        assert_eq!(known, Arrived::Waits);
    }

    /// Goal: a source ends when it found nothing twice; with one holder whatever it sends begins
    /// that anew. Method: the same looks with one holder and with two.
    #[test]
    fn a_source_looks_until_it_finds_nothing() {
        let looks = |replicas| {
            let in_force = moving(replicas);
            let (mut scan, mut looks) = (Scan::default(), 1);
            scan.note_sent();
            while let Some(next) = scan.again(&in_force) {
                (scan, looks) = (next, looks + 1);
            }
            looks
        };
        assert_eq!((looks(1), looks(2)), (3, 2));
    }

    /// Goal: an old copy is gone before keys move again. Method: a view that settles, and others
    /// that move, after a move that this node heard the end of or not.
    #[test]
    fn what_is_left_goes_before_keys_move_again() {
        let last = moving(2);
        let view = |number, placed_before| {
            let view = View {
                number: ViewNumber(number),
                placed_before: NodeSet::from_bits(placed_before),
                ..last.view
            };
            InForce::new(view, view.placed, 2).unwrap()
        };
        let (same, settled, other) = (view(3, 0b011), view(3, 0b111), view(4, 0b110));
        assert!(!same.sweeps_first(&last, false));
        assert!(same.sweeps_first(&settled, true), "its sweep is not over");
        assert!(!settled.sweeps_first(&last, true), "it sweeps then");
        assert!(other.sweeps_first(&last, false), "unheard");
        assert_eq!(settled.duty(NodeId(0), true), Duty::Sweeps);
        assert_eq!(settled.duty(NodeId(0), false), Duty::Rests);
        assert_eq!(last.duty(NodeId(0), true), Duty::Sends);
        assert_eq!(last.duty(NodeId(2), true), Duty::Rests);
    }
}
