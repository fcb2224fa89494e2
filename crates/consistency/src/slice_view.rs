//! The view of a cluster of slices: who takes part, and for each slice its primary, its holders and
//! its in-sync set (CL-1).
//!
//! ```text
//!   holder, not in sync --Enter--> in sync --HandOver--> primary
//!            ^                        |
//!            +--Hold-- no holder <--Exit
//! ```
//!
//! A view is changed by compare-and-swap in the store of the view, so its numbers have no gaps and
//! everybody agrees on their order. A member that is removed is fenced before any node adopts the
//! view that removes it.

use alloc::{boxed::Box, vec::Vec};

use curtail_types::{NodeId, NodeSet, RouteHash, ViewNumber};

use crate::by_node::ByNode;

/// One of the fixed number of parts that the keys are divided into.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SliceId(pub u16);

/// Who has a slice.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SliceRow {
    /// The node that orders its changes; one of `in_sync`.
    pub primary: NodeId,
    /// The nodes that have every acknowledged change.
    pub in_sync: NodeSet,
    /// These and the nodes that catch up.
    pub holders: NodeSet,
    /// The view that last changed the primary. Sequence numbers count within it.
    pub term: ViewNumber,
    /// The view in which it last began empty, because nobody of its in-sync set lived.
    pub born: ViewNumber,
}

/// Who takes part, and who has which slice.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SliceView {
    /// Which one of the cluster's views this is.
    pub number: ViewNumber,
    /// The nodes that take part.
    pub members: NodeSet,
    /// The view in which a member joined, which tells its lives apart; 0 for other nodes.
    joined: ByNode<ViewNumber>,
    rows: Box<[SliceRow]>,
}

/// A change of one row, for the view store.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RowChange {
    /// Whose row.
    pub slice: SliceId,
    /// The view in which its primary proposes it: as a change of another one it is void.
    pub view: ViewNumber,
    /// What changes.
    pub step: RowStep,
}

/// What changes in a row.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RowStep {
    /// The node becomes a holder, which catches up from empty.
    Hold(NodeId),
    /// The holder has caught up: it is in sync.
    Enter(NodeId),
    /// The node, which is not the primary, holds the slice no more.
    Exit(NodeId),
    /// The node, which is in sync, becomes the primary.
    HandOver(NodeId),
}

/// How many slices a cluster has: a constant of every cluster, written in its view. Enough to
/// share evenly among 64 nodes, few enough to be written as a whole.
pub const SLICES: u16 = 256;

impl RowStep {
    /// The node that it is about.
    pub const fn node(self) -> NodeId {
        let (Self::Hold(node) | Self::Enter(node) | Self::Exit(node) | Self::HandOver(node)) = self;
        node
    }
}

impl SliceRow {
    /// A slice that begins empty at `primary` in view `number`.
    pub const fn empty(primary: NodeId, number: ViewNumber) -> Self {
        Self {
            primary,
            in_sync: NodeSet::only(primary),
            holders: NodeSet::only(primary),
            term: number,
            born: number,
        }
    }

    /// The row after `step`, in view `number`; `None` if the step does not apply to it.
    #[must_use]
    pub fn after(&self, step: RowStep, number: ViewNumber) -> Option<Self> {
        let mut next = *self;
        match step {
            RowStep::Hold(node) if !self.holders.contains(node) => {
                next.holders = self.holders.with(node);
            }
            RowStep::Enter(node) if self.catching_up().contains(node) => {
                next.in_sync = self.in_sync.with(node);
            }
            RowStep::Exit(node) if node != self.primary && self.holders.contains(node) => {
                next.in_sync = self.in_sync.without(node);
                next.holders = self.holders.without(node);
            }
            RowStep::HandOver(node) if node != self.primary && self.in_sync.contains(node) => {
                next.primary = node;
                next.term = number;
            }
            _ => return None,
        }
        Some(next)
    }

    /// The holders that are not in sync.
    pub const fn catching_up(&self) -> NodeSet {
        self.holders.difference(self.in_sync)
    }

    /// The holders but the primary.
    pub const fn followers(&self) -> NodeSet {
        self.holders.without(self.primary)
    }
}

impl SliceView {
    /// The first view: every slice begins empty at so many nodes, and the members share them
    /// evenly. What is empty is in sync.
    ///
    /// # Panics
    /// When there is no member or no slice.
    pub fn first(number: ViewNumber, members: NodeSet, slices: u16, replicas: usize) -> Self {
        assert!(!members.is_empty(), "slices need a node");
        assert!(slices > 0, "keys need a slice");
        let order: Vec<NodeId> = members.into_iter().collect();
        let row = |slice: u16| {
            let (slice, count) = (usize::from(slice), order.len());
            let others = (count - 1).max(1);
            // Each turn around the nodes pairs a primary with other followers.
            let following = |step: usize| match step {
                0 => order.get(slice % count),
                _ => order.get((slice + 1 + (slice / count + step - 1) % others) % count),
            };
            let holders = (0..replicas.clamp(1, count)).filter_map(following);
            let holders: NodeSet = holders.copied().collect();
            let primary = following(0).copied().unwrap_or_default();
            SliceRow {
                in_sync: holders.with(primary),
                holders: holders.with(primary),
                ..SliceRow::empty(primary, number)
            }
        };
        Self {
            number,
            members,
            joined: ByNode::default().with(members, number),
            rows: (0..slices).map(row).collect(),
        }
    }

    /// A view of these rows, as a store keeps them; `None` if they cannot be.
    pub fn of_rows(
        number: ViewNumber,
        joined: impl IntoIterator<Item = (NodeId, ViewNumber)>,
        rows: Vec<SliceRow>,
    ) -> Option<Self> {
        let (mut members, mut by_node) = (NodeSet::NONE, ByNode::default());
        for (node, view) in joined {
            members = members.with(node);
            by_node.set(node, view);
        }
        let is_sound = |row: &SliceRow| {
            row.in_sync.contains(row.primary)
                && row.holders.contains_all(row.in_sync)
                && members.contains_all(row.holders)
                && row.born <= row.term
                && row.term <= number
        };
        let fits = !rows.is_empty() && u16::try_from(rows.len()).is_ok();
        (fits && rows.iter().all(is_sound)).then(|| Self {
            number,
            members,
            joined: by_node,
            rows: rows.into(),
        })
    }

    /// How many slices there are.
    pub fn slices(&self) -> u16 {
        self.rows.len() as u16
    }

    /// All rows, in the order of their slices.
    pub fn rows(&self) -> impl Iterator<Item = (SliceId, &SliceRow)> {
        (0..).map(SliceId).zip(&self.rows)
    }

    /// The row of a slice.
    pub fn row(&self, slice: SliceId) -> Option<&SliceRow> {
        self.rows.get(slice.0 as usize)
    }

    /// The view in which a member joined.
    pub fn joined(&self, node: NodeId) -> Option<ViewNumber> {
        let is_member = self.members.contains(node);
        is_member.then(|| self.joined.get(node))
    }

    /// The member that joined first, the lowest of several, and the view in which it did.
    pub fn oldest(&self) -> Option<(NodeId, ViewNumber)> {
        let joined = |node| self.joined(node).map(|view| (node, view));
        let members = self.members.into_iter().filter_map(joined);
        members.min_by_key(|&(node, view)| (view, node))
    }

    /// The members that joined before view `number`.
    pub fn members_before(&self, number: ViewNumber) -> NodeSet {
        let members = self.members.into_iter();
        let before = members.filter(|node| self.joined(*node).is_some_and(|at| at < number));
        before.collect()
    }

    /// The members that are the same, and have not died in between, as in `other`.
    pub fn lasting(&self, other: &Self) -> NodeSet {
        let lasts = |node: &NodeId| self.joined(*node) == other.joined(*node);
        let both = self.members.intersection(other.members);
        both.into_iter().filter(lasts).collect()
    }

    /// The slice of a key.
    pub fn slice_of(&self, key: RouteHash) -> SliceId {
        slice_of(key, self.slices())
    }

    /// The same rows and members, as another view.
    #[must_use]
    pub fn renumbered(&self, number: ViewNumber) -> Self {
        Self {
            number,
            ..self.clone()
        }
    }

    /// The next view, with those of `changes` that still apply, without `dead`, and with `joining`
    /// as members without slices: one that is dead, too, joins as another life. `None` if that is
    /// what it is.
    pub fn next(&self, changes: &[RowChange], joining: NodeSet, dead: NodeSet) -> Option<Self> {
        let number = ViewNumber(self.number.0 + 1);
        let staying = self.members.difference(dead);
        // A view is what its store keeps of it: nothing of nodes that are no members.
        let joined = self.joined.with(dead, ViewNumber(0));
        let mut next = Self {
            number,
            members: staying.union(joining),
            joined: joined.with(joining.difference(staying), number),
            rows: self.rows.clone(),
        };
        next.leave(staying);
        for change in changes {
            let row = next.rows.get_mut(change.slice.0 as usize);
            let (Some(row), true) = (row, change.view == self.number) else {
                continue;
            };
            // Its primary died with this view: the next one decides.
            let is_void = row.term == number;
            if !is_void && next.members.contains(change.step.node()) {
                *row = row.after(change.step, number).unwrap_or(*row);
            }
        }
        let changes =
            next.joined != self.joined || next.members != self.members || next.rows != self.rows;
        changes.then_some(next)
    }

    /// Takes all nodes out of the rows but `staying`. A primary that is gone is replaced by the
    /// member of the in-sync set that has the fewest slices; if nobody of it lives, the slice
    /// begins empty anywhere, as soon as there is a member.
    fn leave(&mut self, staying: NodeSet) {
        if self.members.is_empty() {
            return;
        }
        // How many slices each node is the primary of.
        let mut load = ByNode::default();
        for row in &self.rows {
            load.change(row.primary, |count: u16| count + 1);
        }
        for row in &mut self.rows {
            if staying.contains_all(row.holders) {
                continue;
            }
            row.holders = row.holders.intersection(staying);
            row.in_sync = row.in_sync.intersection(staying);
            if staying.contains(row.primary) {
                continue;
            }
            let lost = row.in_sync.is_empty();
            let heirs = if lost { self.members } else { row.in_sync };
            let least = |node: &NodeId| (load.get(*node), *node);
            let Some(heir) = heirs.into_iter().min_by_key(least) else {
                continue;
            };
            load.change(heir, |count| count + 1);
            match lost {
                true => *row = SliceRow::empty(heir, self.number),
                false => (row.primary, row.term) = (heir, self.number),
            }
        }
    }
}

/// The slice of a key, when there are so many: the top bits of its route hash.
#[inline]
pub const fn slice_of(key: RouteHash, slices: u16) -> SliceId {
    SliceId((((key.0 >> 32) * slices as u64) >> 32) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: [NodeId; 4] = [NodeId(0), NodeId(1), NodeId(2), NodeId(3)];

    fn nodes(count: usize) -> NodeSet {
        N.into_iter().take(count).collect()
    }

    fn change(view: &SliceView, slice: u16, step: RowStep) -> RowChange {
        let (slice, view) = (SliceId(slice), view.number);
        RowChange { slice, view, step }
    }

    fn step(view: &SliceView, slice: u16, step: RowStep) -> Option<SliceView> {
        view.next(&[change(view, slice, step)], NodeSet::NONE, NodeSet::NONE)
    }

    #[test]
    fn a_holder_enters_becomes_primary_and_the_old_one_exits() {
        let view = SliceView::first(ViewNumber(1), nodes(2), 2, 1);
        let view = step(&view, 0, RowStep::Hold(N[1])).unwrap();
        assert_eq!(step(&view, 0, RowStep::HandOver(N[1])), None);
        let view = step(&view, 0, RowStep::Enter(N[1])).unwrap();
        let view = step(&view, 0, RowStep::HandOver(N[1])).unwrap();
        assert_eq!(step(&view, 0, RowStep::Exit(N[1])), None);
        let view = step(&view, 0, RowStep::Exit(N[0])).unwrap();
        let row = *view.row(SliceId(0)).unwrap();
        assert_eq!((row.primary, row.holders), (N[1], NodeSet::only(N[1])));
        assert_eq!((row.term, row.born), (ViewNumber(4), ViewNumber(1)));
    }

    #[test]
    fn a_change_of_an_earlier_view_is_void() {
        let view = SliceView::first(ViewNumber(1), nodes(2), 1, 1);
        let view = step(&view, 0, RowStep::Hold(N[1])).unwrap();
        let view = step(&view, 0, RowStep::Enter(N[1])).unwrap();
        let late = change(&view, 0, RowStep::Exit(N[0]));
        let view = step(&view, 0, RowStep::HandOver(N[1])).unwrap();
        assert_eq!(view.next(&[late], NodeSet::NONE, NodeSet::NONE), None);
    }

    #[test]
    fn an_heir_is_in_sync_and_a_slice_without_one_begins_empty() {
        let view = SliceView::first(ViewNumber(1), nodes(3), 3, 1);
        let view = step(&view, 0, RowStep::Hold(N[1])).unwrap();
        let view = step(&view, 0, RowStep::Enter(N[1])).unwrap();
        let view = step(&view, 0, RowStep::Hold(N[2])).unwrap();
        let after = view.next(&[], NodeSet::NONE, NodeSet::only(N[0])).unwrap();
        let row = after.row(SliceId(0)).unwrap();
        assert_eq!((row.primary, row.term), (N[1], after.number));
        assert_eq!(row.born, ViewNumber(1));
        let after = view.next(&[], NodeSet::NONE, NodeSet::only(N[1])).unwrap();
        let row = after.row(SliceId(1)).unwrap();
        assert_eq!((row.term, row.born), (after.number, after.number));
        assert!(after.members.contains(row.primary));
    }

    #[test]
    fn what_only_a_former_life_had_begins_empty() {
        let (one, none) = (NodeSet::only(N[0]), NodeSet::NONE);
        let view = SliceView::first(ViewNumber(1), nodes(1), 1, 1);
        let again = view.next(&[], one, one).unwrap();
        let nobody = view.next(&[], none, one).unwrap();
        for view in [again, nobody.next(&[], one, none).unwrap()] {
            let row = view.row(SliceId(0)).unwrap();
            assert_eq!((row.primary, row.born), (N[0], view.number));
            assert_eq!(view.joined(N[0]), Some(view.number));
        }
        let view = view.next(&[], NodeSet::only(N[1]), none).unwrap();
        assert_eq!(view.oldest(), Some((N[0], ViewNumber(1))));
        let view = view.next(&[], one, one).unwrap();
        assert_eq!(view.oldest(), Some((N[1], ViewNumber(2))));
    }

    #[test]
    fn every_slice_has_keys() {
        let of = |top: u64| slice_of(RouteHash(top << 54), 1024);
        assert!((0..1024).all(|top| of(top) == SliceId(top as u16)));
    }
}
