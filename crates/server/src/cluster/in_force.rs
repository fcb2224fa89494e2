//! The view that is in force on this node, and the threads that have come to it.
//!
//! A worker looks once a turn whether there is another view. What must not begin before nobody acts
//! on the old one (a key that moves away, or that becomes hot while requests run past the protocol)
//! waits until every thread has begun a turn since:
//!
//! ```text
//!   mark = marks.set()      a new number: whoever begins a turn from now on knows what led to it
//!   ...                     every thread notes the number that it saw when its turn began
//!   marks.is_passed(mark)   nobody is in a turn that began before
//! ```

use std::sync::Arc;

use curtail_consistency::placement::Placement;
use curtail_types::{NodeId, NodeSet, RouteHash, View};

use crate::sync::{AtomicU64, Mutex, Relaxed, lock};

/// A view, and where it places keys.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) view: View,
    replicas: usize,
    placement: Placement,
    /// Where they were, while they move.
    before: Option<Placement>,
    /// Keys neither move nor are about to.
    pub(crate) is_settled: bool,
}

/// The view in force.
#[derive(Debug)]
pub(crate) struct Views {
    /// Counts the views; a worker compares it once a turn.
    generation: AtomicU64,
    current: Mutex<Option<Arc<InForce>>>,
}

/// Numbers that threads pass, one after the other.
#[derive(Debug)]
pub(crate) struct Marks {
    /// The last number; looked at once a turn, and what follows from it is read under the lock.
    last: AtomicU64,
    passed: Mutex<Box<[u64]>>,
}

impl InForce {
    /// `view`, with `replicas` holders of each key, who are to be among `staying`.
    pub(crate) fn new(view: View, staying: NodeSet, replicas: usize) -> Option<Self> {
        if view.placed.is_empty() {
            return None;
        }
        let moves = view.moves() && !view.placed_before.is_empty();
        Some(Self {
            view,
            replicas,
            placement: Placement::new(view.placed, replicas),
            before: moves.then(|| Placement::new(view.placed_before, replicas)),
            is_settled: !view.moves() && view.placed == staying,
        })
    }

    /// The node that decides about `key`.
    #[inline]
    pub(crate) fn home(&self, key: RouteHash) -> NodeId {
        self.placement.home(key)
    }

    /// The nodes that store `key`: with several holders those who had it too, until all has moved.
    #[inline]
    pub(crate) fn holders(&self, key: RouteHash) -> NodeSet {
        let holders = self.placement.holders(key);
        match &self.before {
            Some(before) if self.replicas > 1 => {
                holders.union(before.holders(key).intersection(self.view.live))
            }
            _ => holders,
        }
    }

    /// The nodes to which `me` has to send `key`: its new holders, if `me` is the first of those
    /// that had it.
    pub(crate) fn targets(&self, key: RouteHash, me: NodeId) -> NodeSet {
        let Some(before) = &self.before else {
            return NodeSet::NONE;
        };
        let had = before.holders(key);
        match had.intersection(self.view.live).first() == Some(me) {
            true => self.placement.holders(key).difference(had),
            false => NodeSet::NONE,
        }
    }

    /// Whether `key` may still have to come from `from` to `me`: it was there, that node lives, and
    /// this one did not have it.
    pub(crate) fn awaits(&self, key: RouteHash, from: NodeId, me: NodeId) -> bool {
        let Some(before) = &self.before else {
            return false;
        };
        let had = before.holders(key).intersection(self.view.live);
        had.contains(from) && !had.contains(me) && self.placement.holders(key).contains(me)
    }

    /// How many nodes send to each that receives, while keys move: all send to a node that is
    /// added, and one that leaves sends to all.
    pub(crate) fn senders(&self) -> u64 {
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
    pub(crate) fn sources(&self, key: RouteHash) -> NodeSet {
        let Some(before) = &self.before else {
            return NodeSet::NONE;
        };
        let had = before.holders(key).intersection(self.view.live);
        match had.contains(self.home(key)) {
            true => NodeSet::NONE,
            false => had,
        }
    }
}

impl Views {
    pub(crate) fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            current: Mutex::new(None),
        }
    }

    pub(crate) fn put_in_force(&self, next: Option<Arc<InForce>>) {
        *lock(&self.current) = next;
        self.generation.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    pub(crate) fn current(&self) -> Option<Arc<InForce>> {
        lock(&self.current).clone()
    }
}

impl Marks {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            last: AtomicU64::new(0),
            passed: Mutex::new(vec![0; threads].into_boxed_slice()),
        }
    }

    /// A number that nobody has passed yet. Whoever passes it has seen what was done before.
    pub(crate) fn set(&self) -> u64 {
        let _passed = lock(&self.passed);
        self.last.fetch_add(1, Relaxed) + 1
    }

    /// The last number.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Thread `index` has no turn, and nothing of an earlier turn on its way, that began before
    /// `mark` was set.
    pub(crate) fn pass(&self, index: usize, mark: u64) {
        if let Some(passed) = lock(&self.passed).get_mut(index) {
            *passed = mark;
        }
    }

    /// Whether every thread has passed `mark`.
    pub(crate) fn is_passed(&self, mark: u64) -> bool {
        lock(&self.passed).iter().all(|&passed| passed >= mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_passed_when_every_thread_has_begun_a_turn_since() {
        let marks = Marks::new(2);
        let before = marks.last();
        let mark = marks.set();
        marks.pass(0, before);
        assert!(!marks.is_passed(mark));
        marks.pass(0, marks.last());
        assert!(!marks.is_passed(mark));
        marks.pass(1, marks.last());
        assert!(marks.is_passed(mark));
    }

    #[test]
    fn a_key_comes_from_those_that_had_it() {
        let nodes: NodeSet = [NodeId(0), NodeId(1)].into_iter().collect();
        let view = View {
            live: nodes,
            placed: nodes,
            placed_before: NodeSet::only(NodeId(0)),
            ..View::default()
        };
        let in_force = InForce::new(view, nodes, 1).unwrap();
        for slot in 0..64 {
            let key = RouteHash(slot << 58);
            let moves = in_force.home(key) == NodeId(1);
            let sources = in_force.sources(key);
            assert_eq!(!sources.is_empty(), moves);
            assert!(!moves || sources == NodeSet::only(NodeId(0)));
            assert_eq!(in_force.awaits(key, NodeId(0), NodeId(1)), moves);
            assert!(!in_force.awaits(key, NodeId(1), NodeId(0)));
        }
    }
}
