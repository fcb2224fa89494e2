//! The placement of keys under a view, and the moves of keys while reads and writes go on.
//!
//! ```text
//!   old holder (source)                          new holder
//!   targets: the key leaves --------- Move -----> take: installs it if newer
//!            <-------------------- asks --------- stand: Arriving, so requests for it wait
//!   gives: the key, or that there is none ------> take: runs what waited
//! ```
//!
//! The source of a key is the first of its old holders that lives; if none does, all new holders
//! are each other's, for one of them may have got it, and its home not. With one holder it forgets
//! a key as it sends it, so there is never an old copy to come back to; with several, the old
//! holders take part in every write until all has moved.
//!
//! These are the decisions; who drives them (a server's workers, the checker) has the items, the
//! links and the requests that wait.

mod steps;

use alloc::sync::Arc;

use curtail_types::{NodeId, NodeSet, RouteHash, View, ViewNumber};

pub use self::steps::{Arrived, CLEAN_SCANS, Duty, Leaving, Scan};
use crate::{
    placement::Placement,
    symmetric::{Place, Visibility},
};

/// A view, and where it places keys.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct InForce {
    /// The view.
    pub view: View,
    replicas: usize,
    placement: Arc<Placement>,
    /// Where they were, while they move.
    before: Option<Arc<Placement>>,
    /// Keys neither move nor are about to.
    pub is_settled: bool,
    /// The first view of this node's life.
    since: ViewNumber,
}

/// Where a request for a key that is not shared runs, as seen from one node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stand {
    /// On this node, which is another.
    Elsewhere(NodeId),
    /// Here, when the key has come from one of those who had it.
    Arriving,
    /// Here.
    Here,
}

/// What is to be done about something that came or is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Due {
    /// It is to be done.
    Now,
    /// It is looked at again in a later view, or when every thread acts on this one.
    Later,
    /// Nothing: it is of a move that is over.
    Never,
}

impl InForce {
    /// `view`, with `replicas` holders of each key, who are to be among `staying`.
    pub fn new(view: View, staying: NodeSet, replicas: usize) -> Option<Self> {
        Self::placed_by(view, staying, replicas, |nodes| {
            Arc::new(Placement::new(nodes, replicas))
        })
    }

    /// The same with placements from elsewhere.
    pub fn placed_by(
        view: View,
        staying: NodeSet,
        replicas: usize,
        mut place: impl FnMut(NodeSet) -> Arc<Placement>,
    ) -> Option<Self> {
        if view.placed.is_empty() {
            return None;
        }
        let moves = view.moves() && !view.placed_before.is_empty();
        Some(Self {
            view,
            replicas,
            placement: place(view.placed),
            before: moves.then(|| place(view.placed_before)),
            is_settled: !view.moves() && view.placed == staying,
            since: ViewNumber(0),
        })
    }

    /// The same on a node whose life as a member began with view `since`.
    pub fn of_life(self, since: ViewNumber) -> Self {
        Self { since, ..self }
    }

    /// The node that decides about `key`.
    #[inline]
    pub fn home(&self, key: RouteHash) -> NodeId {
        self.placement.home(key)
    }

    /// The nodes that store `key`: with several holders those who had it too, until all has moved.
    #[inline]
    pub fn holders(&self, key: RouteHash) -> NodeSet {
        let holders = self.placement.holders(key);
        match &self.before {
            Some(before) if self.replicas > 1 => {
                holders.union(before.holders(key).intersection(self.view.live))
            }
            _ => holders,
        }
    }

    /// Both.
    pub fn place(&self, key: RouteHash) -> Place {
        Place {
            home: self.home(key),
            holders: self.holders(key),
        }
    }

    /// Where a request for `key`, which is not shared, runs as seen from `me`.
    #[inline]
    pub fn stand(&self, key: RouteHash, me: NodeId) -> Stand {
        match self.home(key) {
            home if home != me => Stand::Elsewhere(home),
            _ if !self.sources(key).is_empty() => Stand::Arriving,
            _ => Stand::Here,
        }
    }

    /// Whom `me`, to which `key` may still have to come, asks for it before it runs a request:
    /// nobody if the item `is_here` already, or the key `is_shared` and its machine knows what it
    /// is. `denied` have answered that they have none; one that had it before is to be believed.
    pub fn asks(
        &self,
        key: RouteHash,
        denied: NodeSet,
        (is_here, is_shared): (bool, bool),
    ) -> Option<NodeId> {
        let is_over = is_here || is_shared || !(denied.is_empty() || self.is_bereft(key));
        let left = self.sources(key).difference(denied);
        left.first().filter(|_| !is_over)
    }

    /// The nodes to which `me` has to send `key`: its new holders, if `me` is the first of those
    /// that had it.
    pub fn targets(&self, key: RouteHash, me: NodeId) -> NodeSet {
        let Some(before) = &self.before else {
            return NodeSet::NONE;
        };
        let (had, holders) = (before.holders(key), self.placement.holders(key));
        match had.intersection(self.view.live).first() {
            Some(first) if first == me => holders.difference(had),
            None if holders.contains(me) => holders.without(me),
            _ => NodeSet::NONE,
        }
    }

    /// Whether all who had `key` before it moved are gone, and some of those that it was to come to
    /// may have got it. Each sends the others what it has, and its home hears them all before it
    /// says that there is none.
    pub fn is_bereft(&self, key: RouteHash) -> bool {
        self.had(key).is_some_and(NodeSet::is_empty)
    }

    /// Who had `key` before it moved, and lives.
    fn had(&self, key: RouteHash) -> Option<NodeSet> {
        let before = self.before.as_ref()?;
        Some(before.holders(key).intersection(self.view.live))
    }

    /// Whether `me` answers `by`, who asks for `key` under view `asked`. `all_act` says that every
    /// thread of `me` acts on this view, and `state` whether the protocol is done with the key:
    /// what is shared may have been given up elsewhere, in a word that is on its way here, and a
    /// write may be superseded yet.
    pub fn gives(
        &self,
        key: RouteHash,
        me: NodeId,
        (by, asked): (NodeId, ViewNumber),
        (all_act, state): (bool, Visibility),
    ) -> Due {
        let is_done = matches!(state, Visibility::Ordinary | Visibility::Gone);
        match self.targets(key, me).contains(by) {
            _ if self.view.number < asked || !all_act => Due::Later,
            true if !is_done => Due::Later,
            true => Due::Now,
            // It asked under a view that is over, and asks again, if need be, under its next.
            false => Due::Never,
        }
    }

    /// Whether who has sent a key away has it no more.
    pub fn forgets_sent(&self) -> bool {
        self.replicas == 1
    }

    /// Whether `me` takes `key` in, which `from` has sent under view `sent`.
    pub fn takes(&self, key: RouteHash, me: NodeId, (from, sent): (NodeId, ViewNumber)) -> Due {
        match self.awaits(key, from, me) {
            _ if self.view.number < sent => Due::Later,
            // It was meant for this node's former life, and may have been written since.
            _ if sent < self.since => Due::Never,
            // The view may have changed since it was sent, which has nothing to do with this key:
            // who had it has it no more.
            true => Due::Now,
            // What nobody awaits may have been given up, and written anew.
            false => Due::Never,
        }
    }

    /// Whether `key` may still have to come from `from` to `me`: it was there, that node lives, and
    /// this one did not have it.
    pub fn awaits(&self, key: RouteHash, from: NodeId, me: NodeId) -> bool {
        let holders = self.placement.holders(key);
        let comes = match self.had(key) {
            None => false,
            Some(had) if had.is_empty() => holders.contains(from) && from != me,
            Some(had) => had.contains(from) && !had.contains(me),
        };
        comes && holders.contains(me)
    }

    /// Whether the move of view `last` has ended since, though this node has not come to a view in
    /// between that said so. What did not belong to it when that move ended is worth nothing now:
    /// if it is to come to it again, it has missed writes.
    pub fn has_ended(&self, last: &Self) -> bool {
        self.replicas > 1
            && last.before.is_some()
            && last.view.placed_before != self.view.placed_before
    }

    /// Where `key` is when all has moved.
    pub fn place_in_the_end(&self, key: RouteHash) -> Place {
        Place {
            home: self.home(key),
            holders: self.placement.holders(key),
        }
    }

    /// Whether an item of `key` has its place on `me`: as that of a holder, or to be moved from
    /// there.
    pub fn keeps(&self, key: RouteHash, me: NodeId) -> bool {
        self.holders(key).contains(me) || !self.targets(key, me).is_empty()
    }

    /// Whether `me` remembers which version of `key` was removed there, until all has moved: an
    /// earlier one may still come. With one holder a key comes once, and before it is removed.
    pub fn keeps_removed(&self, key: RouteHash, me: NodeId) -> bool {
        let had = self.had(key).filter(|_| self.replicas > 1);
        had.is_some_and(|had| !had.contains(me)) && self.placement.holders(key).contains(me)
    }

    /// Whether this node may say that it has seen all that a source sent under view `ended`: not
    /// before it has come to that view, and taken in what was kept for it.
    pub fn sees_end(&self, ended: ViewNumber) -> Due {
        match self.view.number < ended {
            true => Due::Later,
            false => Due::Now,
        }
    }

    /// How many nodes send to each that receives, while keys move: all send to a node that is
    /// added, and one that leaves sends to all.
    pub fn senders(&self) -> u64 {
        let View {
            placed,
            placed_before,
            live,
            ..
        } = self.view;
        let receivers = placed.difference(placed_before).len();
        let senders = placed_before.intersection(live).len();
        senders.checked_div(receivers).unwrap_or(1).max(1) as u64
    }

    /// The nodes from which `key` may still have to come to its home, the best first.
    pub fn sources(&self, key: RouteHash) -> NodeSet {
        let home = self.home(key);
        match self.had(key) {
            None => NodeSet::NONE,
            Some(had) if had.is_empty() => self.placement.holders(key).without(home),
            Some(had) if had.contains(home) => NodeSet::NONE,
            Some(had) => had,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(bits: u64) -> NodeSet {
        NodeSet::from_bits(bits)
    }

    fn growing(replicas: usize) -> InForce {
        let view = View {
            number: ViewNumber(2),
            live: nodes(0b11),
            placed: nodes(0b11),
            placed_before: nodes(0b01),
            ..View::default()
        };
        InForce::new(view, nodes(0b11), replicas).unwrap()
    }

    /// Goal: whoever a key comes from is who sends it. Method: every slot, one node and a second.
    #[test]
    fn a_key_comes_from_those_that_had_it() {
        let in_force = growing(1);
        for slot in 0..64 {
            let key = RouteHash(slot << 58);
            let moves = in_force.home(key) == NodeId(1);
            let sources = in_force.sources(key);
            assert_eq!(!sources.is_empty(), moves);
            assert!(!moves || sources == NodeSet::only(NodeId(0)));
            assert_eq!(in_force.awaits(key, NodeId(0), NodeId(1)), moves);
            assert!(!in_force.awaits(key, NodeId(1), NodeId(0)));
            let stand = in_force.stand(key, NodeId(1));
            assert_eq!(stand == Stand::Arriving, moves);
            assert_eq!(!in_force.targets(key, NodeId(0)).is_empty(), moves);
        }
    }

    /// Goal: nothing is given away or taken in before its view, nor after its move. Method: a key
    /// that moves, and views before and after.
    #[test]
    fn what_is_of_another_view_waits_or_is_over() {
        let in_force = growing(2);
        let keys = (0..64).map(|slot| RouteHash(slot << 58));
        let mut moving = keys.filter(|key| in_force.home(*key) == NodeId(1));
        let key = moving.next().unwrap();
        let (old, new) = (NodeId(0), NodeId(1));
        let gives = |view, all_act, state| {
            in_force.gives(key, old, (new, ViewNumber(view)), (all_act, state))
        };
        let asks = |view, all_act| gives(view, all_act, Visibility::Ordinary);
        assert_eq!(asks(3, true), Due::Later);
        assert_eq!(asks(2, false), Due::Later);
        assert_eq!(asks(2, true), Due::Now);
        assert_eq!(gives(2, true, Visibility::Valid), Due::Later);
        assert_eq!(gives(2, true, Visibility::Unsettled), Due::Later);
        let takes = |from, view| in_force.takes(key, new, (from, ViewNumber(view)));
        assert_eq!(takes(old, 3), Due::Later);
        assert_eq!(takes(old, 1), Due::Now);
        assert_eq!(takes(NodeId(2), 2), Due::Never);
        let anew = in_force.clone().of_life(ViewNumber(2));
        let takes = |view| anew.takes(key, new, (old, ViewNumber(view)));
        assert_eq!((takes(1), takes(2)), (Due::Never, Due::Now));
    }

    fn view(number: u32, live: u64, (before, placed): (u64, u64), replicas: usize) -> InForce {
        let view = View {
            number: ViewNumber(number),
            live: nodes(live),
            placed: nodes(placed),
            placed_before: nodes(before),
            ..View::default()
        };
        InForce::new(view, nodes(placed), replicas).unwrap()
    }

    /// Goal: a node that did not hear that a move ended knows so from the next, and from nothing
    /// else. Method: the views of a node that comes and dies, as the membership makes them.
    #[test]
    fn a_move_that_ended_unheard_is_told_from_one_that_goes_on() {
        let moving = view(2, 0b111, (0b011, 0b111), 2);
        let settled = view(3, 0b111, (0b111, 0b111), 2);
        let died_moving = view(3, 0b011, (0b011, 0b011), 2);
        let died_settled = view(4, 0b011, (0b111, 0b011), 2);
        let other_died = view(3, 0b110, (0b011, 0b110), 2);
        assert!(died_settled.has_ended(&moving));
        assert!(settled.has_ended(&moving));
        assert!(!other_died.has_ended(&moving), "the same goes on");
        assert!(!died_moving.has_ended(&moving));
        assert!(!died_settled.has_ended(&settled), "it has heard so");
        let with_one = |number, live, ring| view(number, live, ring, 1);
        let (first, next) = (
            with_one(2, 0b111, (0b011, 0b111)),
            with_one(3, 0b110, (0b010, 0b110)),
        );
        assert!(
            !next.has_ended(&first),
            "what is not sent must not be swept"
        );
    }

    /// Goal: when all who had a key are gone, those it was to come to ask each other, one by one.
    /// Method: every slot, two and three holders, and one old holder that lives.
    #[test]
    fn new_holders_are_each_others_sources_when_no_old_one_lives() {
        for replicas in [2, 3] {
            let bereft = view(2, 0b111000, (0b000111, 0b111000), replicas);
            let one_lives = view(2, 0b111001, (0b000111, 0b111000), 3);
            let two_live = view(2, 0b111011, (0b000111, 0b111000), 3);
            for slot in 0..64 {
                let key = RouteHash(slot << 58);
                let home = bereft.home(key);
                let others = bereft.holders(key).without(home);
                assert!(bereft.is_bereft(key) && !one_lives.is_bereft(key));
                assert_eq!(bereft.stand(key, home), Stand::Arriving);
                let mut denied = NodeSet::NONE;
                while let Some(asked) = bereft.asks(key, denied, (false, false)) {
                    let (by, how) = ((home, ViewNumber(2)), (true, Visibility::Ordinary));
                    assert_eq!(bereft.gives(key, asked, by, how), Due::Now);
                    assert!(bereft.awaits(key, asked, home) && bereft.awaits(key, home, asked));
                    assert!(bereft.keeps_removed(key, asked));
                    denied = denied.with(asked);
                }
                assert_eq!(denied, others);
                assert_eq!(bereft.asks(key, NodeSet::NONE, (true, false)), None);
                let old = NodeSet::only(NodeId(0));
                assert_eq!(one_lives.sources(key), old);
                assert_eq!(two_live.sources(key), NodeSet::from_bits(0b11));
                let asks = |denied| two_live.asks(key, denied, (false, false));
                assert_eq!(asks(NodeSet::NONE), Some(NodeId(0)));
                assert_eq!(asks(old), None, "who had it is to be believed");
            }
            assert_eq!(bereft.duty(NodeId(3), false), Duty::Sends);
        }
    }

    /// Goal: who is to have a key, and did not, remembers that it was removed. Method: every slot.
    #[test]
    fn what_is_removed_is_remembered_by_those_it_may_still_come_to() {
        let (two, one) = (
            view(2, 0b111, (0b011, 0b111), 2),
            view(2, 0b111, (0b011, 0b111), 1),
        );
        let settled = view(3, 0b111, (0b111, 0b111), 2);
        let mut count = 0;
        for slot in 0..64 {
            let key = RouteHash(slot << 58);
            let comes = two.targets(key, NodeId(0)).contains(NodeId(2));
            assert_eq!(two.keeps_removed(key, NodeId(2)), comes);
            assert!(!two.keeps_removed(key, NodeId(0)), "it had the key");
            assert!(!one.keeps_removed(key, NodeId(2)));
            assert!(!settled.keeps_removed(key, NodeId(2)));
            count += u32::from(comes);
        }
        assert!(count > 10, "{count}");
    }
}
