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

/// Who shall have a slice.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    holders: NodeSet,
    primary: NodeId,
}

/// The placement that a view shall reach.
struct Target {
    nodes: NodeSet,
    replicas: usize,
    rows: Vec<Wanted>,
    /// By node: the slices that it shall hold.
    held: [usize; NodeSet::NODES_MAX],
    /// By node: the slices whose primary it shall be.
    led: [usize; NodeSet::NODES_MAX],
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
        };
        let mut target = Self {
            nodes,
            replicas: goal.replicas.clamp(1, nodes.len()),
            rows: view.rows().map(row).collect(),
            held: [0; NodeSet::NODES_MAX],
            led: [0; NodeSet::NODES_MAX],
        };
        for wanted in &target.rows {
            for node in wanted.holders {
                add(&mut target.held, node, 1);
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
    /// these, who has it for longer.
    fn trim(&mut self, view: &SliceView) {
        for ((_, row), wanted) in view.rows().zip(&mut self.rows) {
            while wanted.holders.len() > self.replicas {
                let most = |node: &NodeId| (of(&self.held, *node), row.in_sync.contains(*node));
                let Some(node) = wanted.holders.into_iter().max_by_key(most) else {
                    break;
                };
                wanted.holders = wanted.holders.without(node);
                add(&mut self.held, node, -1);
            }
        }
    }

    /// Too few hold a slice: who holds the least comes.
    fn fill(&mut self) {
        for wanted in &mut self.rows {
            while wanted.holders.len() < self.replicas {
                let others = self.nodes.difference(wanted.holders).into_iter();
                let Some(node) = others.min_by_key(|node| of(&self.held, *node)) else {
                    break;
                };
                wanted.holders = wanted.holders.with(node);
                add(&mut self.held, node, 1);
            }
        }
    }

    /// Moves slices from who holds the most to who holds the least, until they differ by one at
    /// most. Who holds more has a slice that the other has not.
    fn level_holders(&mut self) {
        loop {
            let held = |node: &NodeId| of(&self.held, *node);
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
            wanted.holders = wanted.holders.without(from).with(to);
            add(&mut self.held, from, -1);
            add(&mut self.held, to, 1);
        }
    }

    /// The primary stays if it holds the slice still.
    fn choose_primaries(&mut self) {
        for wanted in &self.rows {
            if wanted.holders.contains(wanted.primary) {
                add(&mut self.led, wanted.primary, 1);
            }
        }
        for wanted in &mut self.rows {
            if wanted.holders.contains(wanted.primary) {
                continue;
            }
            let heirs = wanted.holders.into_iter();
            if let Some(heir) = heirs.min_by_key(|node| of(&self.led, *node)) {
                wanted.primary = heir;
                add(&mut self.led, heir, 1);
            }
        }
    }

    /// Hands primaries over along paths of holders, from who leads the most to who leads the least,
    /// until nobody can be given one more with gain. If everybody holds the same number of slices
    /// but for one, everybody leads the same number but for one then.
    fn level_primaries(&mut self) {
        let mut order: Vec<NodeId> = self.nodes.into_iter().collect();
        loop {
            order.sort_by_key(|node| (usize::MAX - of(&self.led, *node), *node));
            let found = order.iter().find_map(|&from| self.path(from));
            let Some(path) = found else {
                return;
            };
            for (row, heir) in path {
                if let Some(wanted) = self.rows.get_mut(row) {
                    add(&mut self.led, wanted.primary, -1);
                    add(&mut self.led, heir, 1);
                    wanted.primary = heir;
                }
            }
        }
    }

    /// Rows and their new primaries, so that `from` leads one less and a node that leads two less
    /// leads one more.
    fn path(&self, from: NodeId) -> Option<Vec<(usize, NodeId)>> {
        let mut came: [Option<(usize, NodeId)>; NodeSet::NODES_MAX] = [None; NodeSet::NODES_MAX];
        let mut seen = NodeSet::only(from);
        let mut next = VecDeque::from([from]);
        while let Some(node) = next.pop_front() {
            if of(&self.led, node) + 2 <= of(&self.led, from) {
                return Some(steps_to(&came, node, from));
            }
            let led = self.rows.iter().enumerate();
            for (row, wanted) in led.filter(|(_, wanted)| wanted.primary == node) {
                for heir in wanted.holders.difference(seen) {
                    seen = seen.with(heir);
                    if let Some(way) = came.get_mut(usize::from(heir.0)) {
                        *way = Some((row, node));
                    }
                    next.push_back(heir);
                }
            }
        }
        None
    }
}

/// The rows of a path that ends at `to`.
fn steps_to(
    came: &[Option<(usize, NodeId)>],
    mut to: NodeId,
    from: NodeId,
) -> Vec<(usize, NodeId)> {
    let mut path = Vec::new();
    while to != from
        && let Some(&Some((row, before))) = came.get(usize::from(to.0))
    {
        path.push((row, to));
        to = before;
    }
    path
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
    catching_up: [usize; NodeSet::NODES_MAX],
    handing_over: [usize; NodeSet::NODES_MAX],
}

impl Budget {
    fn of(view: &SliceView, moves_max: usize) -> Self {
        let mut budget = Self {
            moves_max: moves_max.max(1),
            catching_up: [0; NodeSet::NODES_MAX],
            handing_over: [0; NodeSet::NODES_MAX],
        };
        for (_, row) in view.rows() {
            for node in row.catching_up() {
                add(&mut budget.catching_up, node, 1);
                add(&mut budget.catching_up, row.primary, 1);
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
        let fits = nodes.iter().all(|&node| of(counts, node) < self.moves_max);
        for node in nodes.into_iter().filter(|_| fits) {
            add(counts, node, 1);
        }
        fits
    }
}

fn of(counts: &[usize; NodeSet::NODES_MAX], node: NodeId) -> usize {
    counts.get(usize::from(node.0)).copied().unwrap_or(0)
}

fn add(counts: &mut [usize; NodeSet::NODES_MAX], node: NodeId, change: isize) {
    if let Some(count) = counts.get_mut(usize::from(node.0)) {
        *count = count.saturating_add_signed(change);
    }
}

#[cfg(test)]
mod tests;
