//! The steps that a view of slices lacks until every slice has its replicas and the nodes share the
//! work evenly (CL-8).
//!
//! The plan is a function of the view, so every node makes the same one and no node coordinates:
//! each primary wishes the steps of its own slices. It looks for the target with few moves: who
//! holds a slice keeps it unless it leaves or has more than its share. A step follows only when the
//! one before it is in a view:
//!
//! ```text
//!   Hold (a new holder catches up, and the machine makes it Enter) -> HandOver -> Exit
//! ```
//!
//! A holder exits only when all nodes of the target are in sync, so a plan never makes a slice have
//! fewer copies than it had, or than it shall have.

use alloc::{collections::VecDeque, vec::Vec};

use curtail_types::{NodeId, NodeSet};

use crate::by_node::ByNode;
use crate::slice_view::{RowStep, SliceId, SliceRow, SliceView};

/// What a placement shall reach, and how fast.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PlacementGoal {
    /// Nodes that hold a slice, if there are so many.
    pub replicas: usize,
    /// Members that shall hold nothing: they leave.
    pub leaving: NodeSet,
    /// Slices that may catch up at a node, or be sent by one, at a time; the same number of slices
    /// may be handed over by a node, or to one, in one view.
    pub moves_max: usize,
}

impl PlacementGoal {
    /// Slices on their way to or from a node at a time, if nothing else is wanted: enough to hide
    /// the time of a view change, few enough to leave requests their share of the network.
    pub const MOVES_MAX: usize = 32;

    /// So many nodes hold a slice, and nobody leaves.
    pub const fn replicas(replicas: usize) -> Self {
        Self {
            replicas,
            leaving: NodeSet::NONE,
            moves_max: Self::MOVES_MAX,
        }
    }

    /// The same while these members leave.
    #[must_use]
    pub const fn without(mut self, leaving: NodeSet) -> Self {
        self.leaving = leaving;
        self
    }
}

/// The steps that the primaries of `view` shall wish now, in the order of their slices, at most one
/// of a slice. Empty if the placement is as it shall be, or waits for a holder to catch up.
pub fn wished_steps(view: &SliceView, goal: &PlacementGoal) -> Vec<(SliceId, RowStep)> {
    let Some(target) = Target::of(view, goal) else {
        return Vec::new();
    };
    let mut budget = Budget::of(view, goal.moves_max);
    let mut order: Vec<_> = view.rows().zip(&target.rows).collect();
    // What has the fewest copies comes first.
    order.sort_by_key(|((slice, row), _)| (row.in_sync.len(), *slice));
    let mut steps: Vec<_> = order
        .into_iter()
        .filter_map(|((slice, row), wanted)| {
            let step = next_step(row, wanted)?;
            budget.allows(row.primary, step).then_some((slice, step))
        })
        .collect();
    steps.sort_unstable();
    steps
}

/// Whether nothing is wished and nobody catches up.
pub fn is_settled(view: &SliceView, goal: &PlacementGoal) -> bool {
    view.rows().all(|(_, row)| row.catching_up().is_empty()) && wished_steps(view, goal).is_empty()
}

/// Whether a member has no slice, so that it may leave.
pub fn holds_nothing(view: &SliceView, node: NodeId) -> bool {
    view.rows().all(|(_, row)| !row.holders.contains(node))
}

/// So many slices of each node.
type Counts = ByNode<usize>;

/// Who shall have a slice.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    holders: NodeSet,
    primary: NodeId,
    /// Members that stay and have a copy of the slice, or a part of one.
    copies: NodeSet,
}

/// The placement that a view shall reach.
struct Target {
    nodes: NodeSet,
    replicas: usize,
    rows: Vec<Wanted>,
    /// By node: the slices that it shall hold.
    held: Counts,
    /// By node: the slices whose primary it shall be.
    led: Counts,
}

impl Target {
    /// `None` if nobody stays.
    fn of(view: &SliceView, goal: &PlacementGoal) -> Option<Self> {
        let nodes = view.members.difference(goal.leaving);
        if nodes.is_empty() {
            return None;
        }
        let row = |(_, row): (SliceId, &SliceRow)| Wanted {
            holders: row.holders.intersection(nodes),
            primary: row.primary,
            copies: row.holders.intersection(nodes),
        };
        let mut target = Self {
            nodes,
            replicas: goal.replicas.clamp(1, nodes.len()),
            rows: view.rows().map(row).collect(),
            held: Counts::default(),
            led: Counts::default(),
        };
        for wanted in &target.rows {
            for node in wanted.holders {
                target.held.change(node, |count| count + 1);
            }
        }
        target.trim(view);
        target.fill();
        target.level_holders();
        target.choose_primaries();
        target.level_primaries();
        Some(target)
    }

    /// Too many hold a slice after a holder has come: who holds the most goes, and of two like
    /// these, the node that has it for longer.
    fn trim(&mut self, view: &SliceView) {
        for ((_, row), wanted) in view.rows().zip(&mut self.rows) {
            while wanted.holders.len() > self.replicas {
                let most = |node: &NodeId| (self.held.get(*node), row.in_sync.contains(*node));
                let Some(node) = wanted.holders.into_iter().max_by_key(most) else {
                    break;
                };
                wanted.holders = wanted.holders.without(node);
                self.held.change(node, |count| count.saturating_sub(1));
            }
        }
    }

    /// Too few hold a slice: who holds the least comes.
    fn fill(&mut self) {
        for wanted in &mut self.rows {
            while wanted.holders.len() < self.replicas {
                let others = self.nodes.difference(wanted.holders).into_iter();
                let Some(node) = others.min_by_key(|node| self.held.get(*node)) else {
                    break;
                };
                wanted.holders = wanted.holders.with(node);
                self.held.change(node, |count| count + 1);
            }
        }
    }

    /// Makes the nodes hold the same number of slices but for one. What costs no move comes first:
    /// of the copies that exist, others are to stay than `trim` chose. Only then does a slice move,
    /// so the slices on their way make the plan no longer, however many they are.
    fn level_holders(&mut self) {
        loop {
            self.level_copies();
            let held = |node: &NodeId| self.held.get(*node);
            let most = self.nodes.into_iter().max_by_key(held);
            let least = self.nodes.into_iter().min_by_key(held);
            let (Some(from), Some(to)) = (most, least) else {
                return;
            };
            if held(&from) < held(&to) + 2 {
                return;
            }
            // A follower's place is cheaper to move than the primary's.
            let may_move = |wanted: &&mut Wanted| {
                wanted.holders.contains(from) && !wanted.holders.contains(to)
            };
            let rows = self.rows.iter_mut().filter(may_move);
            let Some(wanted) = rows.min_by_key(|wanted| wanted.primary == from) else {
                return;
            };
            wanted.give(from, to, &mut self.held);
        }
    }

    /// Gives slices to other nodes that have a copy, until nobody can be given one more with gain.
    fn level_copies(&mut self) {
        let others = |wanted: &Wanted, node| {
            let holds = wanted.holders.contains(node);
            holds.then(|| wanted.copies.difference(wanted.holders))
        };
        while let Some(path) = level_path(&self.rows, self.nodes, &self.held, others) {
            for Pass { row, from, to } in path {
                if let Some(wanted) = self.rows.get_mut(row) {
                    wanted.give(from, to, &mut self.held);
                }
            }
        }
    }

    /// The primary stays if it holds the slice still.
    fn choose_primaries(&mut self) {
        for wanted in &self.rows {
            if wanted.holders.contains(wanted.primary) {
                self.led.change(wanted.primary, |count| count + 1);
            }
        }
        for wanted in &mut self.rows {
            if wanted.holders.contains(wanted.primary) {
                continue;
            }
            let heirs = wanted.holders.into_iter();
            if let Some(heir) = heirs.min_by_key(|node| self.led.get(*node)) {
                wanted.primary = heir;
                self.led.change(heir, |count| count + 1);
            }
        }
    }

    /// Hands primaries over until nobody can be given one more with gain. If everybody holds the
    /// same number of slices but for one, everybody leads the same number but for one then.
    fn level_primaries(&mut self) {
        let others = |wanted: &Wanted, node| (wanted.primary == node).then_some(wanted.holders);
        while let Some(path) = level_path(&self.rows, self.nodes, &self.led, others) {
            for Pass { row, from, to } in path {
                if let Some(wanted) = self.rows.get_mut(row) {
                    wanted.primary = to;
                    self.led.change(from, |count| count.saturating_sub(1));
                    self.led.change(to, |count| count + 1);
                }
            }
        }
    }
}

impl Wanted {
    fn give(&mut self, from: NodeId, to: NodeId, held: &mut Counts) {
        self.holders = self.holders.without(from).with(to);
        held.change(from, |count| count.saturating_sub(1));
        held.change(to, |count| count + 1);
    }
}

/// A row's place that goes from one node to another.
#[derive(Clone, Copy)]
struct Pass {
    row: usize,
    from: NodeId,
    to: NodeId,
}

/// The passes along a path from a node to one whose load is less by two or more, of those with the
/// most load first: every node between them gets one place and gives one. `others` says which nodes
/// may take the place that a node has in a row, if it has one.
fn level_path(
    rows: &[Wanted],
    nodes: NodeSet,
    loads: &Counts,
    others: impl Fn(&Wanted, NodeId) -> Option<NodeSet>,
) -> Option<Vec<Pass>> {
    let mut order: Vec<NodeId> = nodes.into_iter().collect();
    order.sort_by_key(|node| (usize::MAX - loads.get(*node), *node));
    order.into_iter().find_map(|start| {
        let mut came = ByNode::default();
        let mut seen = NodeSet::only(start);
        let mut next = VecDeque::from([start]);
        while let Some(from) = next.pop_front() {
            if loads.get(from) + 2 <= loads.get(start) {
                return Some(passes_to(&came, from));
            }
            for (row, wanted) in rows.iter().enumerate() {
                let Some(takers) = others(wanted, from) else {
                    continue;
                };
                for to in takers.difference(seen) {
                    seen = seen.with(to);
                    came.set(to, Some(Pass { row, from, to }));
                    next.push_back(to);
                }
            }
        }
        None
    })
}

/// The passes that led to a node, the last one first.
fn passes_to(came: &ByNode<Option<Pass>>, end: NodeId) -> Vec<Pass> {
    core::iter::successors(came.get(end), |pass| came.get(pass.from)).collect()
}

/// What a row lacks first.
fn next_step(row: &SliceRow, wanted: &Wanted) -> Option<RowStep> {
    if !row.catching_up().is_empty() {
        // One node catches up at a time, and the primary stays meanwhile.
        let superfluous = row.catching_up().difference(wanted.holders);
        return superfluous.first().map(RowStep::Exit);
    }
    if row.primary != wanted.primary && row.in_sync.contains(wanted.primary) {
        return Some(RowStep::HandOver(wanted.primary));
    }
    if let Some(node) = wanted.holders.difference(row.holders).first() {
        return Some(RowStep::Hold(node));
    }
    let superfluous = row.holders.difference(wanted.holders).without(row.primary);
    superfluous.first().map(RowStep::Exit)
}

/// How many more slices each node may move.
struct Budget {
    moves_max: usize,
    catching_up: Counts,
    handing_over: Counts,
}

impl Budget {
    fn of(view: &SliceView, moves_max: usize) -> Self {
        let mut budget = Self {
            moves_max: moves_max.max(1),
            catching_up: Counts::default(),
            handing_over: Counts::default(),
        };
        for (_, row) in view.rows() {
            for node in row.catching_up() {
                budget.catching_up.change(node, |count| count + 1);
                budget.catching_up.change(row.primary, |count| count + 1);
            }
        }
        budget
    }

    /// Takes a step of a slice of `primary` into account, if both nodes may have one more.
    fn allows(&mut self, primary: NodeId, step: RowStep) -> bool {
        let counts = match step {
            RowStep::Hold(_) => &mut self.catching_up,
            RowStep::HandOver(_) => &mut self.handing_over,
            RowStep::Enter(_) | RowStep::Exit(_) => return true,
        };
        let nodes = [primary, step.node()];
        let fits = nodes.iter().all(|&node| counts.get(node) < self.moves_max);
        for node in nodes.into_iter().filter(|_| fits) {
            counts.change(node, |count| count + 1);
        }
        fits
    }
}

#[cfg(test)]
mod tests;
