//! Which slices shall be where: the steps that a placement wants of the rows of a view (CL-8).
//!
//! The plan is a function of the view and of a few wishes, so every node makes the same one; each
//! gives its machines the steps of the slices of which it is the primary, again and again, until
//! another view is in force. It never asks for a copy less than there are to be: a node exits when
//! enough others are in sync.
//!
//! ```text
//!   a slice has too few holders:   Hold the node that has the fewest slices
//!   too many, or one that leaves:  HandOver if the one to go is the primary, then Exit
//!   enough, unevenly spread:       Hold for one that has two slices less; HandOver likewise
//! ```
//!
//! It ends: what is wanted beyond repairs makes the sum of the squares of all loads smaller, where
//! a slice that is on its way counts as having arrived. Then the loads of any two nodes differ by
//! one slice at most.

use alloc::{collections::VecDeque, vec, vec::Vec};

use curtail_types::{NodeId, NodeSet};

use crate::slice_view::{RowStep, SliceId, SliceRow, SliceView};

/// What a placement is to be like.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PlacementPlan {
    /// Nodes that hold each slice, as far as there are so many.
    pub replicas: usize,
    /// Members that shall have no slice any more.
    pub leaving: NodeSet,
    /// Members that have no room for further slices.
    pub full: NodeSet,
    /// Slices that a node catches up on at a time. Each takes room of what the node has, before
    /// others give theirs up.
    pub catch_ups_max: usize,
}

/// A plan in the making.
struct Plan<'a> {
    wishes: &'a PlacementPlan,
    staying: NodeSet,
    /// How many nodes hold a slice in the end.
    enough: usize,
    /// By node: the slices that it holds and of which it is the primary, once all steps are done.
    holds: Loads,
    leads: Loads,
    /// By node: slices that it catches up on.
    behind: Loads,
    steps: Vec<(SliceId, RowStep)>,
}

impl PlacementPlan {
    /// The steps that it wants next, at most one of each slice.
    pub fn steps(&self, view: &SliceView) -> Vec<(SliceId, RowStep)> {
        let staying = view.members.difference(self.leaving);
        if staying.is_empty() {
            return Vec::new();
        }
        let mut plan = Plan {
            wishes: self,
            staying,
            enough: self.replicas.clamp(1, staying.len()),
            holds: Loads::default(),
            leads: Loads::default(),
            behind: Loads::default(),
            steps: Vec::new(),
        };
        for (_, row) in view.rows() {
            row.holders
                .into_iter()
                .for_each(|node| plan.holds.add(node, 1));
            let behind = row.catching_up().into_iter();
            behind.for_each(|node| plan.behind.add(node, 1));
            plan.leads.add(row.primary, 1);
        }
        // Who goes is known first: then the loads are those that will be.
        let rows: Vec<_> = view.rows().collect();
        let mut settled = vec![false; rows.len()];
        for (&(slice, row), settled) in rows.iter().zip(&mut settled) {
            *settled = plan.shrink(slice, row);
        }
        for (&(slice, row), settled) in rows.iter().zip(&mut settled) {
            *settled = *settled && plan.grow(slice, row);
        }
        for (&(slice, row), settled) in rows.iter().zip(&mut settled) {
            *settled = *settled && plan.spread(slice, row);
        }
        let settled = rows.iter().zip(settled);
        let settled: Vec<_> = settled.filter_map(|(row, is)| is.then_some(*row)).collect();
        plan.share_primaries(&settled);
        plan.steps
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self, view: &SliceView) -> bool {
        view.rows().all(|(_, row)| row.catching_up().is_empty()) && self.steps(view).is_empty()
    }
}

impl Plan<'_> {
    /// Sends away who is too many, or shall leave; returns whether nobody is.
    fn shrink(&mut self, slice: SliceId, row: &SliceRow) -> bool {
        let mut going = row.holders.difference(self.staying);
        let stuck = row.catching_up().intersection(self.wishes.full);
        going = going.union(stuck);
        let stay = row.holders.difference(going);
        if stay.len() > self.enough {
            let most = |node: &NodeId| {
                let is_behind = row.catching_up().contains(*node);
                let leads = *node == row.primary;
                (self.holds.of(*node), is_behind, !leads, *node)
            };
            let most = stay.into_iter().max_by_key(most);
            going = most.map_or(going, |node| going.with(node));
        }
        for node in going {
            self.holds.take(node, 1);
        }
        let (stay, heirs) = (row.holders.difference(going), row.in_sync.difference(going));
        let has_enough = heirs.len() >= self.enough;
        if going.contains(row.primary) {
            let leads = |plan: &Self, node| plan.leads.of(node);
            let heir = self.least(heirs, leads).or_else(|| self.least(stay, leads));
            if let Some(heir) = heir {
                self.leads.move_one(row.primary, heir);
            }
            if let (Some(heir), true) = (heir, has_enough) {
                self.steps.push((slice, RowStep::HandOver(heir)));
            }
        }
        // One that is not in sync is no copy: it may go at once.
        let may_go =
            |node: &NodeId| *node != row.primary && (has_enough || !row.in_sync.contains(*node));
        let goes_now = going.into_iter().find(may_go);
        if let (Some(node), false) = (goes_now, self.has_step(slice)) {
            self.steps.push((slice, RowStep::Exit(node)));
        }
        if !going.is_empty() {
            self.hold_more(slice, row, stay);
        }
        going.is_empty()
    }

    /// Brings in holders while there are too few; returns whether there are enough.
    fn grow(&mut self, slice: SliceId, row: &SliceRow) -> bool {
        self.hold_more(slice, row, row.holders.intersection(self.staying));
        row.holders.len() >= self.enough && !self.has_step(slice)
    }

    fn hold_more(&mut self, slice: SliceId, row: &SliceRow, holders: NodeSet) {
        if holders.len() >= self.enough || self.has_step(slice) {
            return;
        }
        let others = self.staying.difference(row.holders);
        let others = others.difference(self.wishes.full);
        let may = |node: &NodeId| self.behind.of(*node) < self.wishes.catch_ups_max;
        let others = others.into_iter().filter(may).collect();
        if let Some(node) = self.least(others, |plan, node| plan.holds.of(node)) {
            self.hold(slice, node);
        }
    }

    fn hold(&mut self, slice: SliceId, node: NodeId) {
        self.holds.add(node, 1);
        self.behind.add(node, 1);
        self.steps.push((slice, RowStep::Hold(node)));
    }

    /// Moves a slice from who has many to who has few; returns whether it stays where it is.
    fn spread(&mut self, slice: SliceId, row: &SliceRow) -> bool {
        if !row.catching_up().is_empty() {
            return false;
        }
        let others = self.staying.difference(row.holders);
        let others = others.difference(self.wishes.full);
        let to = self.least(others, |plan, node| plan.holds.of(node));
        let from = row.holders.into_iter();
        let from = from.max_by_key(|node| (self.holds.of(*node), *node != row.primary, *node));
        let (Some(to), Some(from)) = (to, from) else {
            return true;
        };
        let is_uneven = self.holds.of(from) >= self.holds.of(to) + 2;
        if !is_uneven || self.behind.of(to) >= self.wishes.catch_ups_max {
            return true;
        }
        self.holds.take(from, 1);
        self.hold(slice, to);
        false
    }

    /// Hands slices over from who leads many to who leads few, by way of others if need be.
    fn share_primaries(&mut self, rows: &[(SliceId, &SliceRow)]) {
        let mut left = rows.to_vec();
        // Each way makes the sum of squares smaller; there are fewer ways than slices.
        for _ in 0..rows.len() {
            let most = self
                .staying
                .into_iter()
                .max_by_key(|node| self.leads.of(*node));
            let Some(way) = most.and_then(|from| self.way(&left, from)) else {
                return;
            };
            for (slice, from, to) in way {
                self.leads.move_one(from, to);
                self.steps.push((slice, RowStep::HandOver(to)));
                left.retain(|(of, _)| *of != slice);
            }
        }
    }

    /// The shortest way of hand-overs from `from` to a node that leads at least two slices less.
    fn way(
        &self,
        rows: &[(SliceId, &SliceRow)],
        from: NodeId,
    ) -> Option<Vec<(SliceId, NodeId, NodeId)>> {
        let mut came: [Option<(SliceId, NodeId)>; NodeSet::NODES_MAX] = [None; NodeSet::NODES_MAX];
        let (mut seen, mut next) = (NodeSet::only(from), VecDeque::from([from]));
        while let Some(node) = next.pop_front() {
            for (slice, row) in rows.iter().filter(|(_, row)| row.primary == node) {
                let new = row.in_sync.intersection(self.staying).difference(seen);
                for to in new {
                    seen = seen.with(to);
                    *came.get_mut(usize::from(to.0))? = Some((*slice, node));
                    if self.leads.of(from) < self.leads.of(to) + 2 {
                        next.push_back(to);
                        continue;
                    }
                    let mut way = Vec::new();
                    let mut at = to;
                    while let Some((slice, before)) = *came.get(usize::from(at.0))? {
                        way.push((slice, before, at));
                        at = before;
                    }
                    return Some(way);
                }
            }
        }
        None
    }

    fn least<K: Ord>(&self, nodes: NodeSet, key: impl Fn(&Self, NodeId) -> K) -> Option<NodeId> {
        nodes
            .into_iter()
            .min_by_key(|node| (key(self, *node), *node))
    }

    fn has_step(&self, slice: SliceId) -> bool {
        self.steps.last().is_some_and(|(last, _)| *last == slice)
    }
}

/// How many slices each node has.
struct Loads([u16; NodeSet::NODES_MAX]);

impl Default for Loads {
    fn default() -> Self {
        Self([0; NodeSet::NODES_MAX])
    }
}

impl Loads {
    fn of(&self, node: NodeId) -> usize {
        self.0.get(usize::from(node.0)).copied().unwrap_or(0).into()
    }

    fn add(&mut self, node: NodeId, count: u16) {
        if let Some(of) = self.0.get_mut(usize::from(node.0)) {
            *of += count;
        }
    }

    fn take(&mut self, node: NodeId, count: u16) {
        if let Some(of) = self.0.get_mut(usize::from(node.0)) {
            *of = of.saturating_sub(count);
        }
    }

    fn move_one(&mut self, from: NodeId, to: NodeId) {
        self.take(from, 1);
        self.add(to, 1);
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::ViewNumber;
    use curtail_workload::Random;

    use super::*;
    use crate::slice_view::RowChange;

    fn nodes(count: u8) -> NodeSet {
        (0..count).map(NodeId).collect()
    }

    fn plan(replicas: usize) -> PlacementPlan {
        PlacementPlan {
            replicas,
            leaving: NodeSet::NONE,
            full: NodeSet::NONE,
            catch_ups_max: 2,
        }
    }

    fn first(count: u8, slices: u16, replicas: usize) -> SliceView {
        SliceView::first(ViewNumber(1), nodes(count), slices, replicas)
    }

    /// Takes some of the steps, each of which must apply and leave enough in sync.
    fn take(plan: &PlacementPlan, view: &SliceView, mut takes: impl FnMut() -> bool) -> SliceView {
        let mut changes = Vec::new();
        let staying = view.members.difference(plan.leaving);
        let enough = plan.replicas.min(staying.len());
        for (slice, step) in plan.steps(view) {
            let row = view.row(slice).unwrap();
            let after = row.after(step, ViewNumber(0));
            let after = after.unwrap_or_else(|| panic!("{step:?} of {row:?}"));
            let copies = |row: &SliceRow| row.in_sync.len();
            assert!(
                copies(&after) >= copies(row).min(enough),
                "{step:?} of {row:?}"
            );
            if takes() {
                let view = view.number;
                changes.push(RowChange { slice, view, step });
            }
        }
        for (slice, row) in view.rows() {
            let view = view.number;
            for node in row.catching_up() {
                let step = RowStep::Enter(node);
                let is_planned = changes.iter().any(|change| change.slice == slice);
                if !is_planned && takes() {
                    changes.push(RowChange { slice, view, step });
                }
            }
        }
        let next = view.next(&changes, NodeSet::NONE, NodeSet::NONE);
        next.unwrap_or_else(|| view.clone())
    }

    /// Goes on until nothing is wanted; returns the holders that were brought in.
    fn settle(plan: &PlacementPlan, view: &mut SliceView) -> usize {
        let mut held = 0;
        for _ in 0..10_000 {
            if plan.is_done(view) {
                return held;
            }
            let next = take(plan, view, || true);
            let rows = next.rows().zip(view.rows());
            held += rows
                .map(|((_, new), (_, old))| new.holders.difference(old.holders).len())
                .sum::<usize>();
            *view = next;
        }
        panic!("no end: {:?} of {view:?}", plan.steps(view));
    }

    fn spread(view: &SliceView, among: NodeSet, has: impl Fn(&SliceRow, NodeId) -> bool) -> usize {
        let load = |node| view.rows().filter(|(_, row)| has(row, node)).count();
        let loads: Vec<usize> = among.into_iter().map(load).collect();
        loads.iter().max().unwrap() - loads.iter().min().unwrap()
    }

    fn is_even(plan: &PlacementPlan, view: &SliceView) {
        let staying = view.members.difference(plan.leaving);
        let enough = plan.replicas.min(staying.len());
        for (_, row) in view.rows() {
            assert_eq!(row.holders.len(), enough, "{row:?}");
            assert!(staying.contains_all(row.holders));
        }
        let holds = spread(view, staying, |row, node| row.holders.contains(node));
        let leads = spread(view, staying, |row, node| row.primary == node);
        assert!(holds <= 1 && leads <= 1, "{holds} {leads}: {view:?}");
    }

    /// Goal: a node that joins takes its share, and little else moves. Method: from four nodes to
    /// five.
    #[test]
    fn a_node_that_joins_takes_its_share() {
        for replicas in 1..=3 {
            let before = first(4, 64, replicas);
            let mut view = before
                .next(&[], NodeSet::only(NodeId(4)), NodeSet::NONE)
                .unwrap();
            let held = settle(&plan(replicas), &mut view);
            is_even(&plan(replicas), &view);
            let share = 64 * replicas / 5;
            assert!((share..=share + 3).contains(&held), "{held} of {share}");
        }
    }

    /// Goal: a node that leaves has nothing in the end, and every slice has all its copies at all
    /// times.
    #[test]
    fn a_node_that_leaves_has_nothing_in_the_end() {
        for replicas in 1..=3 {
            let mut view = first(4, 32, replicas);
            let leaving = NodeSet::only(NodeId(1));
            let plan = PlacementPlan {
                leaving,
                ..plan(replicas)
            };
            settle(&plan, &mut view);
            is_even(&plan, &view);
        }
    }

    /// Goal: who has no room is brought nothing, and what it could not take goes elsewhere.
    #[test]
    fn a_full_node_is_brought_nothing() {
        let view = first(4, 16, 2);
        let mut view = view
            .next(&[], NodeSet::NONE, NodeSet::only(NodeId(0)))
            .unwrap();
        let full = NodeSet::only(NodeId(1));
        let before = view.clone();
        let wishes = PlacementPlan { full, ..plan(2) };
        settle(&wishes, &mut view);
        for ((_, row), (_, old)) in view.rows().zip(before.rows()) {
            assert_eq!(row.holders.len(), 2);
            assert!(!row.holders.difference(old.holders).contains(NodeId(1)));
        }
    }

    /// Goal: whatever happens, every step applies, none takes a copy away that is needed, and the
    /// plan ends, evenly. Method: members come, leave and die at random, while some of the steps
    /// are taken.
    #[test]
    fn it_ends_evenly_after_anything() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut plan = plan(1 + random.below(3) as usize);
            let slices = 1 + random.below(40) as u16;
            let mut view = first(1 + random.below(6) as u8, slices, plan.replicas);
            for _ in 0..60 {
                let node = NodeId(random.below(8) as u8);
                let one = NodeSet::only(node);
                let (joining, dead) = match random.below(12) {
                    0 => (one, NodeSet::NONE),
                    1 if view.members.len() > 1 => (NodeSet::NONE, one),
                    2 => {
                        plan.leaving = match plan.leaving.contains(node) {
                            true => plan.leaving.without(node),
                            false => plan.leaving.with(node),
                        };
                        continue;
                    }
                    _ => {
                        view = take(&plan, &view, || random.below(3) > 0);
                        continue;
                    }
                };
                view = view.next(&[], joining, dead).unwrap_or(view);
            }
            plan.leaving = plan.leaving.intersection(view.members);
            if !view.members.difference(plan.leaving).is_empty() {
                settle(&plan, &mut view);
                is_even(&plan, &view);
            }
        }
    }
}
