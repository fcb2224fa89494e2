//! What the store of the view holds of a cluster, and the changes that a node may propose.
//!
//! A change is carried out on the very value that was read, and written only if that value is still
//! there, so views are numbered without gaps and everybody agrees on their order. Every change
//! makes another view, whether or not a row changes.

use alloc::sync::Arc;

use curtail_types::{NodeId, NodeSet, ViewNumber};

use crate::{
    by_node::ByNode,
    slice_placement::{PlacementGoal, holds_nothing},
    slice_view::{RowChange, SliceView},
};

/// Which life of a node: drawn at random when its process starts and whenever it joins again after
/// it was removed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Incarnation(pub u64);

/// A cluster, as the store of its view holds it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ClusterRecord {
    /// Which one of the cluster's views this is.
    pub number: ViewNumber,
    /// Members on their way out: they hand over what they hold.
    pub leaving: NodeSet,
    /// Members that miss another's answers, and serve by the lease of the store alone: a
    /// member that removes one of them waits for that lease.
    pub detached: NodeSet,
    /// The last view that one of them is not among any more.
    pub released: ViewNumber,
    /// The last view that took out a life which may not have known: it may serve until its lease
    /// has ended.
    pub removal: ViewNumber,
    /// The view in which the cluster was formed: what began empty then is not lost.
    pub formed: ViewNumber,
    /// Nodes that wait for a cluster to be formed.
    waiting: NodeSet,
    slices: Option<Arc<SliceView>>,
    incarnations: ByNode<Incarnation>,
}

/// What a node proposes to change.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum RecordChange {
    /// It is a member from now on, under this life, and holds nothing; another life of it is
    /// removed.
    Join(Incarnation),
    /// The nodes that wait are a cluster, and share its empty slices.
    Form,
    /// Changes of rows, by their primaries.
    Rows(Arc<[RowChange]>),
    /// This node is to leave.
    Drain(NodeId),
    /// It has left: it serves nobody any more.
    Depart,
    /// This node misses somebody's answers, and serves by the lease of the store alone.
    Detach,
    /// It has all answers again.
    Attach,
    /// These are silent.
    Remove(NodeSet),
}

/// What all nodes agree on of the slices.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SlicePlan {
    /// How many slices there are.
    pub slices: u16,
    /// How many nodes hold each, if there are so many.
    pub replicas: usize,
}

impl Default for ClusterRecord {
    fn default() -> Self {
        Self::NOBODY
    }
}

impl ClusterRecord {
    /// A cluster before its first view.
    pub const NOBODY: Self = Self {
        number: ViewNumber(0),
        leaving: NodeSet::NONE,
        detached: NodeSet::NONE,
        released: ViewNumber(0),
        removal: ViewNumber(0),
        formed: ViewNumber(0),
        waiting: NodeSet::NONE,
        slices: None,
        incarnations: ByNode::all(Incarnation(0)),
    };

    /// A formed cluster with these slices, or one whose nodes wait, as a store keeps it; whose
    /// lives they are is told with [`with_incarnation`](Self::with_incarnation).
    #[must_use]
    pub fn stored(mut self, waiting: NodeSet, slices: Option<SliceView>) -> Self {
        self.waiting = match slices {
            Some(_) => NodeSet::NONE,
            None => waiting,
        };
        self.slices = slices.map(Arc::new);
        self
    }

    /// Who has which slice; `None` before the cluster is formed.
    pub const fn slices(&self) -> Option<&Arc<SliceView>> {
        self.slices.as_ref()
    }

    /// Who takes part: all of them answer clients, once the cluster is formed.
    pub fn members(&self) -> NodeSet {
        match &self.slices {
            Some(slices) => slices.members,
            None => self.waiting,
        }
    }

    /// Nodes that answer clients: nobody before the cluster is formed.
    pub fn serving(&self) -> NodeSet {
        match &self.slices {
            Some(slices) => slices.members,
            None => NodeSet::NONE,
        }
    }

    /// The members that are not leaving.
    pub fn staying(&self) -> NodeSet {
        self.members().difference(self.leaving)
    }

    /// The members that hold something in sync: their word counts when others are silent, since
    /// only with them the slices' contents go on.
    pub fn keepers(&self) -> NodeSet {
        let Some(slices) = &self.slices else {
            return NodeSet::NONE;
        };
        let rows = slices.rows().map(|(_, row)| row.in_sync);
        rows.fold(NodeSet::NONE, NodeSet::union)
    }

    /// What the placement of slices shall reach.
    pub fn goal(&self, replicas: usize) -> PlacementGoal {
        PlacementGoal::replicas(replicas).without(self.leaving)
    }

    /// Whether a member may go without loss: it holds nothing, or nobody is there to take it.
    pub fn may_depart(&self, node: NodeId) -> bool {
        let is_empty = |slices: &Arc<SliceView>| holds_nothing(slices, node);
        self.slices.as_ref().is_none_or(is_empty) || self.staying().is_empty()
    }

    /// Which life of `node` takes part; 0 if none does.
    pub fn incarnation(&self, node: NodeId) -> Incarnation {
        self.incarnations.get(node)
    }

    /// The same with `incarnation` as the life of `node`.
    #[must_use]
    pub fn with_incarnation(mut self, node: NodeId, incarnation: Incarnation) -> Self {
        self.incarnations.set(node, incarnation);
        self
    }

    /// Whether this life of `node` takes part.
    pub fn has(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.members().contains(node) && self.incarnation(node) == incarnation
    }

    /// The next view, as `me` proposes it, or nothing if the change does not fit or changes
    /// nothing.
    pub fn after(&self, change: &RecordChange, me: NodeId, plan: SlicePlan) -> Option<Self> {
        let mut next = self.clone();
        match change {
            RecordChange::Join(life) => next.join(me, *life)?,
            RecordChange::Form => next.form(plan)?,
            RecordChange::Rows(changes) => {
                let view = self.slices.as_ref()?;
                next.slices = Some(Arc::new(view.next(
                    changes,
                    NodeSet::NONE,
                    NodeSet::NONE,
                )?));
            }
            RecordChange::Drain(node) => {
                next.leaving = next.leaving.with(*node).intersection(next.members());
            }
            RecordChange::Depart => next.take_out(NodeSet::only(me)),
            RecordChange::Detach => {
                let serves = next.serving().intersection(NodeSet::only(me));
                next.detached = next.detached.union(serves);
            }
            RecordChange::Attach => next.detached = next.detached.without(me),
            RecordChange::Remove(nodes) => next.take_out(nodes.without(me)),
        }
        if next == *self {
            return None;
        }
        next.number = ViewNumber(self.number.0.checked_add(1)?);
        if let Some(slices) = &mut next.slices
            && slices.number != next.number
        {
            *slices = Arc::new(slices.renumbered(next.number));
        }
        if *change != RecordChange::Depart && self.takes_out_serving(&next) {
            next.removal = next.number;
        }
        if !next.detached.contains_all(self.detached) {
            next.released = next.number;
        }
        Some(next)
    }

    /// Whether `next` lacks a life of a node that may answer clients under this view.
    fn takes_out_serving(&self, next: &Self) -> bool {
        let stays = |node| next.has(node, self.incarnation(node));
        !self.serving().into_iter().all(stays)
    }

    fn join(&mut self, me: NodeId, life: Incarnation) -> Option<()> {
        if self.has(me, life) {
            return None;
        }
        let one = NodeSet::only(me);
        self.leaving = self.leaving.without(me);
        self.detached = self.detached.without(me);
        match &mut self.slices {
            Some(view) => *view = Arc::new(view.next(&[], one, one.intersection(view.members))?),
            None => self.waiting = self.waiting.with(me),
        }
        self.incarnations.set(me, life);
        Some(())
    }

    fn form(&mut self, plan: SlicePlan) -> Option<()> {
        if self.slices.is_some() || self.waiting.is_empty() || plan.slices == 0 {
            return None;
        }
        let number = ViewNumber(self.number.0.checked_add(1)?);
        let waiting = core::mem::take(&mut self.waiting);
        self.leaving = NodeSet::NONE;
        self.formed = number;
        let first = SliceView::first(number, waiting, plan.slices, plan.replicas);
        self.slices = Some(Arc::new(first));
        Some(())
    }

    /// Takes `nodes` out of everything. When nobody is left the contents are gone, and a new
    /// cluster may be formed.
    fn take_out(&mut self, nodes: NodeSet) {
        for node in nodes {
            self.incarnations.set(node, Incarnation(0));
        }
        self.leaving = self.leaving.difference(nodes);
        self.detached = self.detached.difference(nodes);
        self.waiting = self.waiting.difference(nodes);
        if let Some(view) = &self.slices
            && let Some(next) = view.next(&[], NodeSet::NONE, nodes.intersection(view.members))
        {
            self.slices = (!next.members.is_empty()).then(|| Arc::new(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice_view::{RowStep, SliceId};

    const PLAN: SlicePlan = SlicePlan {
        slices: 12,
        replicas: 2,
    };

    fn set(bits: u64) -> NodeSet {
        NodeSet::from_bits(bits)
    }

    fn formed(bits: u64) -> ClusterRecord {
        let mut record = ClusterRecord::NOBODY;
        for node in set(bits) {
            record = joined(&record, node.0, 100 + u64::from(node.0));
        }
        record.after(&RecordChange::Form, NodeId(0), PLAN).unwrap()
    }

    fn joined(record: &ClusterRecord, node: u8, life: u64) -> ClusterRecord {
        let join = RecordChange::Join(Incarnation(life));
        record.after(&join, NodeId(node), PLAN).unwrap()
    }

    fn changed(record: &ClusterRecord, change: &RecordChange, me: u8) -> ClusterRecord {
        let next = record.after(change, NodeId(me), PLAN).unwrap();
        assert_eq!(next.number.0, record.number.0 + 1);
        let slices = next.slices().map(|slices| slices.number);
        assert!(slices.is_none_or(|number| number == next.number));
        next
    }

    #[test]
    fn a_cluster_forms_grows_and_shrinks() {
        let three = formed(0b111);
        assert_eq!((three.number, three.serving()), (ViewNumber(4), set(0b111)));
        let four = joined(&three, 3, 7);
        assert_eq!(four.members(), set(0b1111));
        assert_eq!(four.keepers(), set(0b111), "it holds nothing yet");
        assert!(four.may_depart(NodeId(3)) && !four.may_depart(NodeId(0)));
        let leaving = changed(&four, &RecordChange::Drain(NodeId(1)), 0);
        assert_eq!(leaving.staying(), set(0b1101));
        let gone = changed(&leaving, &RecordChange::Depart, 3);
        assert_eq!((gone.members(), gone.leaving), (set(0b111), set(0b010)));
        assert_eq!(gone.removal, ViewNumber(0), "nobody waits for its lease");
    }

    #[test]
    fn only_nodes_that_may_serve_are_waited_for() {
        let three = formed(0b111);
        let removed = changed(&three, &RecordChange::Remove(set(0b100)), 0);
        assert_eq!(removed.removal, removed.number);
        let reborn = joined(&three, 1, 9);
        assert_eq!(reborn.removal, reborn.number, "its old life may serve");
        assert_eq!(reborn.keepers(), set(0b101));
        let remove_me = RecordChange::Remove(set(0b1));
        assert_eq!(three.after(&remove_me, NodeId(0), PLAN), None);
        let mut waiting = joined(&ClusterRecord::NOBODY, 0, 1);
        waiting = joined(&waiting, 1, 2);
        waiting = changed(&waiting, &RecordChange::Remove(set(0b10)), 0);
        assert_eq!((waiting.members(), waiting.removal.0), (set(0b1), 0));
    }

    #[test]
    fn who_serves_by_the_store_alone_is_told_of() {
        let three = formed(0b111);
        let detached = changed(&three, &RecordChange::Detach, 1);
        assert_eq!((detached.detached, detached.released.0), (set(0b10), 0));
        assert_eq!(detached.after(&RecordChange::Detach, NodeId(1), PLAN), None);
        assert_eq!(detached.after(&RecordChange::Detach, NodeId(5), PLAN), None);
        let attached = changed(&detached, &RecordChange::Attach, 1);
        assert_eq!(attached.detached, NodeSet::NONE);
        assert_eq!(attached.released, attached.number);
        let gone = changed(&detached, &RecordChange::Remove(set(0b10)), 0);
        assert_eq!(gone.released, gone.number);
        let other = changed(&attached, &RecordChange::Remove(set(0b10)), 0);
        assert_eq!(other.released, attached.released);
    }

    #[test]
    fn changes_of_rows_are_one_view_and_void_in_another() {
        let three = formed(0b111);
        let step = |slice, step| RowChange {
            slice: SliceId(slice),
            view: three.number,
            step,
        };
        let rows = |slice: u16| *three.slices().unwrap().row(SliceId(slice)).unwrap();
        let others = |slice: u16| three.members().difference(rows(slice).holders);
        let two = [0, 1].map(|slice| step(slice, RowStep::Hold(others(slice).first().unwrap())));
        let change = RecordChange::Rows(two.into());
        let next = changed(&three, &change, 2);
        let behind = next.slices().unwrap().rows();
        assert_eq!(
            behind
                .filter(|(_, row)| !row.catching_up().is_empty())
                .count(),
            2
        );
        assert_eq!(next.after(&change, NodeId(2), PLAN), None);
    }

    #[test]
    fn when_everybody_is_gone_a_new_cluster_may_be_formed() {
        let mut record = formed(0b11);
        record = changed(&record, &RecordChange::Drain(NodeId(0)), 0);
        record = changed(&record, &RecordChange::Drain(NodeId(1)), 1);
        assert!(record.may_depart(NodeId(0)), "nobody takes what it has");
        record = changed(&record, &RecordChange::Depart, 0);
        record = changed(&record, &RecordChange::Depart, 1);
        assert!(record.slices().is_none() && record.members().is_empty());
        record = joined(&record, 1, 7);
        assert!(record.serving().is_empty());
        let again = changed(&record, &RecordChange::Form, 1);
        assert!(
            again
                .slices()
                .unwrap()
                .rows()
                .all(|(_, row)| row.born == again.number)
        );
    }

    /// A slice whose only holder starts again begins empty, and is counted by its birth.
    #[test]
    fn who_starts_again_holds_nothing() {
        let alone = formed(0b1);
        let again = joined(&alone, 0, 9);
        assert!(again.has(NodeId(0), Incarnation(9)));
        assert!(
            again
                .slices()
                .unwrap()
                .rows()
                .all(|(_, row)| row.born == again.number)
        );
        assert_eq!(again.removal, again.number);
    }
}
