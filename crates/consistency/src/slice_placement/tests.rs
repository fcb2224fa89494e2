//! A simulated cluster carries out plans.

use curtail_types::ViewNumber;
use curtail_workload::Random;

use super::*;
use crate::slice_view::RowChange;

fn nodes(count: u8) -> NodeSet {
    (0..count).map(NodeId).collect()
}

fn loads(view: &SliceView, of_row: impl Fn(&SliceRow) -> NodeSet, among: NodeSet) -> Vec<usize> {
    let count = |node: NodeId| {
        view.rows()
            .filter(|(_, row)| of_row(row).contains(node))
            .count()
    };
    among.into_iter().map(count).collect()
}

fn is_level(loads: &[usize]) -> bool {
    loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1
}

/// A cluster whose primaries carry out the plan, each step in a view of its own or not at all.
struct World {
    view: SliceView,
    goal: PlacementGoal,
    random: Random,
    holds: usize,
    steps: usize,
}

impl World {
    fn new(seed: u64, members: u8, slices: u16, replicas: usize) -> Self {
        Self {
            view: SliceView::first(ViewNumber(1), nodes(members), slices, replicas),
            goal: PlacementGoal::replicas(replicas),
            random: Random::new(seed),
            holds: 0,
            steps: 0,
        }
    }

    fn chance(&mut self, of: u64) -> bool {
        self.random.below(of) == 0
    }

    fn replicas(&self) -> usize {
        let staying = self.view.members.difference(self.goal.leaving);
        self.goal.replicas.min(staying.len())
    }

    /// One view, with some of what is wished and some of what has caught up.
    fn turn(&mut self, joining: NodeSet, dead: NodeSet, skips: u64) {
        let mut wished = wished_steps(&self.view, &self.goal);
        for (slice, row) in self.view.rows() {
            let entered = row.catching_up().into_iter().map(RowStep::Enter);
            wished.extend(entered.map(|step| (slice, step)));
        }
        let mut changes = Vec::new();
        for (slice, step) in wished {
            if skips > 0 && self.chance(skips) {
                continue;
            }
            let row = self.view.row(slice).unwrap();
            assert!(
                row.after(step, self.view.number).is_some(),
                "a step applies: {step:?} {row:?}"
            );
            self.check_exit(row, step);
            self.holds += usize::from(matches!(step, RowStep::Hold(_)));
            self.steps += 1;
            let view = self.view.number;
            changes.push(RowChange { slice, view, step });
        }
        if let Some(next) = self.view.next(&changes, joining, dead) {
            self.view = next;
        }
        self.check_moves();
    }

    /// No exit leaves a slice with fewer copies than it shall have.
    fn check_exit(&self, row: &SliceRow, step: RowStep) {
        if let RowStep::Exit(node) = step {
            let left = row.in_sync.without(node).difference(self.goal.leaving);
            let enough = left.len() >= self.replicas();
            assert!(enough || !row.in_sync.contains(node), "{row:?} {step:?}");
        }
    }

    /// No node has more slices on their way than it may. (A death may make one node the primary
    /// of many of them.)
    fn check_moves(&self) {
        for node in self.view.members {
            let comes = |row: &SliceRow| row.catching_up().contains(node);
            let coming = self.view.rows().filter(|(_, row)| comes(row)).count();
            assert!(coming <= self.goal.moves_max, "{coming} come to {node:?}");
        }
    }

    /// Turns until nothing is wished; returns how many that took.
    fn settle(&mut self, skips: u64) -> usize {
        for turn in 0..10_000 {
            if is_settled(&self.view, &self.goal) {
                return turn;
            }
            self.turn(NodeSet::NONE, NodeSet::NONE, skips);
        }
        panic!("the placement never settles");
    }

    fn check_settled(&self) {
        let staying = self.view.members.difference(self.goal.leaving);
        for (slice, row) in self.view.rows() {
            assert_eq!(row.holders, row.in_sync, "{slice:?}");
            assert_eq!(row.holders.len(), self.replicas(), "{slice:?}");
            assert!(staying.contains_all(row.holders), "{slice:?}");
        }
        let held = loads(&self.view, |row| row.holders, staying);
        let led = loads(&self.view, |row| NodeSet::only(row.primary), staying);
        assert!(is_level(&held), "held {held:?}");
        assert!(is_level(&led), "led {led:?}");
    }
}

#[test]
fn a_first_view_needs_nothing() {
    for (members, replicas) in [(1, 1), (2, 2), (3, 1), (3, 2), (5, 3), (4, 9)] {
        let mut world = World::new(1, members, 256, replicas);
        world.settle(0);
        assert_eq!(world.holds, 0, "{members} members, {replicas} replicas");
        world.check_settled();
    }
}

/// A node that joins is given its share, and nothing else moves.
#[test]
fn a_node_that_joins_takes_its_share_and_no_more() {
    for replicas in 1..=3 {
        for members in 2..=7 {
            let mut world = World::new(2, members, 256, replicas);
            world.settle(0);
            let before = world.goal.replicas.min(usize::from(members));
            world.holds = 0;
            world.turn(NodeSet::only(NodeId(members)), NodeSet::NONE, 0);
            let turns = world.settle(0);
            world.check_settled();
            let lacking = 256 * (world.replicas() - before);
            let share = 256 * world.replicas() / usize::from(members + 1);
            assert!(
                world.holds <= share.max(lacking) + 1,
                "{members} members, {replicas} replicas: {} holds",
                world.holds
            );
            assert!(
                turns < 5 * share / PlacementGoal::MOVES_MAX + 10,
                "{turns} turns"
            );
        }
    }
}

/// A node that leaves has nothing in the end, and its slices have as many copies as before.
#[test]
fn a_node_that_leaves_hands_everything_over() {
    for (members, replicas) in [(2, 1), (3, 1), (3, 2), (3, 3), (5, 2)] {
        let mut world = World::new(3, members, 256, replicas);
        world.goal = world.goal.without(NodeSet::only(NodeId(1)));
        world.settle(3);
        world.check_settled();
        assert!(holds_nothing(&world.view, NodeId(1)));
        assert!(world.view.rows().all(|(_, row)| row.born == ViewNumber(1)));
    }
    let mut alone = World::new(3, 2, 256, 1);
    alone.goal = alone.goal.without(nodes(2));
    assert_eq!(wished_steps(&alone.view, &alone.goal), []);
}

/// Whatever joins, leaves and dies, the placement becomes level when it is left alone, in few
/// views, and then stays as it is.
#[test]
fn from_any_view_the_placement_becomes_level_and_rests() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let replicas = 1 + random.below(4) as usize;
        let slices = [8, 64, 256][random.below(3) as usize];
        let mut world = World::new(seed, 1 + random.below(6) as u8, slices, replicas);
        world.goal.moves_max = 1 + random.below(8) as usize;
        for _ in 0..random.below(60) {
            let node = NodeSet::only(NodeId(random.below(9) as u8));
            let (mut joining, mut dead) = (NodeSet::NONE, NodeSet::NONE);
            match random.below(8) {
                0 => joining = node,
                1 if node != world.view.members => dead = node,
                2 => world.goal.leaving = world.goal.leaving.union(node),
                3 => world.goal.leaving = world.goal.leaving.difference(node),
                _ => {}
            }
            world.turn(joining, dead, 2);
        }
        if world.view.members.difference(world.goal.leaving).is_empty() {
            continue;
        }
        world.steps = 0;
        let turns = world.settle(0);
        world.check_settled();
        let each = usize::from(slices) * (world.replicas() + 1);
        assert!(
            world.steps <= 5 * each,
            "seed {seed}: {} steps",
            world.steps
        );
        assert!(
            turns <= 5 * each / world.goal.moves_max + 50,
            "seed {seed}: {turns} turns"
        );
    }
}

/// With 64 nodes nothing is different.
#[test]
fn the_largest_cluster_becomes_level() {
    let mut world = World::new(5, 63, 256, 3);
    world.settle(0);
    world.turn(NodeSet::only(NodeId(63)), NodeSet::only(NodeId(7)), 0);
    world.settle(0);
    world.check_settled();
}

/// What has the fewest copies is copied first.
#[test]
fn slices_with_the_fewest_copies_come_first() {
    let mut world = World::new(6, 4, 256, 2);
    world.goal.moves_max = 1;
    world.view = world
        .view
        .next(&[], NodeSet::only(NodeId(4)), NodeSet::only(NodeId(0)))
        .unwrap();
    for _ in 0..20 {
        let lacking = |slice: SliceId| world.view.row(slice).unwrap().in_sync.len() < 2;
        for (slice, step) in wished_steps(&world.view, &world.goal) {
            if matches!(step, RowStep::Hold(_)) {
                assert!(lacking(slice), "{slice:?} {step:?}");
            }
        }
        world.turn(NodeSet::NONE, NodeSet::NONE, 0);
    }
}
