//! The store of views, and what nodes make of it: leases, fencing, and placement.
//!
//! This stands for the membership of nodes, which has a simulation of its own: a removed node
//! has stopped serving before another node follows the view, and no sooner than it must.

use std::sync::Arc;

use curtail_consistency::{
    replica::ReplicaEvent,
    slice_placement::{PlacementGoal, wished_steps},
    slice_view::{RowStep, SliceId, SliceView},
};
use curtail_types::{NodeId, NodeSet};

use super::{PLACING_NS, PROPOSING_NS, World, stage_of};
use crate::cluster::{
    Mutant, STAGES,
    clock::{Clock, LEASE_NS, READING_NS, SUSPICION_NS},
    run_state::{Event, StoreChange, What},
};

impl World<'_> {
    /// A node reads the store.
    pub(super) fn read_store(&mut self, node: usize, repeats: bool) {
        if repeats {
            self.env.plan_for(node, READING_NS, What::Read(true));
        }
        if self.nodes[node].local.store_cut_until > self.env.now {
            return;
        }
        let delay = self.env.random.below(STORE_NS);
        let view = Arc::clone(&self.view);
        let local = &mut self.nodes[node].local;
        if local.joined.is_some() && view.joined(local.me) == local.joined {
            local.granted_until = lease_end(&local.clock, self.env.now);
        }
        self.env
            .plan_for(node, delay, What::Said(self.env.now, view));
    }

    /// It has read it: it may serve for a lease, or it was taken out.
    pub(super) fn take_reading(&mut self, node: usize, started: u64, view: Arc<SliceView>) {
        let local = &mut self.nodes[node].local;
        let me = local.me;
        match local.joined {
            Some(joined) if view.joined(me) == Some(joined) => {
                let until = lease_end(&local.clock, started);
                local.serve_until = local.serve_until.max(until);
                self.adopt(node);
            }
            Some(joined) if view.number > joined => self.crash(node, REBIRTH_NS),
            Some(_) => {}
            None => {
                let change = StoreChange::Join(node, self.env.lives[node]);
                self.env.plan_soon(Event::Store(change));
            }
        }
    }

    /// Follows the newest view that it has read, once everybody who is out of it has stopped.
    pub(super) fn adopt(&mut self, node: usize) {
        let view = Arc::clone(&self.view);
        let follows = self.env.views[node].as_ref().map(|view| view.number);
        let is_member = view.joined(NodeId(node as u8)) == self.nodes[node].local.joined;
        if follows >= Some(view.number) || !is_member {
            return;
        }
        if self.env.run.mutant != Some(Mutant::Unfenced)
            && let Some(until) = self.stops_at(&view)
        {
            let delay = until - self.env.now + self.env.random.below(STORE_NS);
            return self.env.plan_for(node, delay, What::Adopt);
        }
        self.env.outcome.views += 1;
        self.env.trace(|| format!("node {node} follows {view:?}"));
        self.nodes[node].local.proposals.clear();
        self.env.views[node] = Some(Arc::clone(&view));
        for stage in 0..STAGES {
            self.step(node, stage, ReplicaEvent::View(&view), None);
        }
        self.place_now(node);
    }

    /// When the last of those who are not in a view any more, and do not know it, stops.
    fn stops_at(&self, view: &SliceView) -> Option<u64> {
        let serving = self.nodes.iter().map(|node| &node.local).filter(|local| {
            let joined = local.joined.filter(|joined| *joined <= view.number);
            let is_out = joined.is_some() && view.joined(local.me) != joined;
            is_out && local.is_up && local.granted_until > self.env.now
        });
        serving.map(|local| local.granted_until).max()
    }

    /// A node sends what it wants changed.
    pub(super) fn send_proposals(&mut self, node: usize) {
        let local = &mut self.nodes[node].local;
        local.is_proposing = false;
        if local.proposals.is_empty() {
            return;
        }
        // They stand until another view is followed: what gets lost is sent again.
        let changes = local.proposals.clone();
        local.is_proposing = true;
        let is_cut = local.store_cut_until > self.env.now;
        let again = 10 * PROPOSING_NS + self.env.random.below(PROPOSING_NS);
        self.env.plan_for(node, again, What::Propose);
        if !is_cut {
            self.env.plan_soon(Event::Store(StoreChange::Rows(changes)));
        }
    }

    /// The store takes a change, if it still applies.
    pub(super) fn change_view(&mut self, change: StoreChange) {
        let none = NodeSet::NONE;
        let (changes, joining, dead) = match change {
            StoreChange::Rows(changes) => (changes, none, none),
            StoreChange::Join(node, life) => {
                let is_there = self.env.lives[node] == life && self.nodes[node].local.is_up;
                let me = NodeSet::only(NodeId(node as u8));
                let is_member = !self.view.members.intersection(me).is_empty();
                if !is_there || self.nodes[node].local.joined.is_some() {
                    return;
                }
                // A former life is out.
                (Vec::new(), me, if is_member { me } else { none })
            }
            StoreChange::Remove(node, life) => {
                let is_same = self.env.lives[node] == life;
                let me = NodeSet::only(NodeId(node as u8));
                if !is_same || self.view.members == me {
                    return;
                }
                (Vec::new(), none, me)
            }
        };
        let Some(next) = self.view.next(&changes, joining, dead) else {
            return;
        };
        for node in joining {
            self.nodes[usize::from(node.0)].local.joined = Some(next.number);
        }
        for (slice, _) in next.rows().filter(|(_, row)| row.born == next.number) {
            self.env.outcome.lost += 1;
            for key in self.env.keys.of_slice(slice) {
                self.env.record.lost(key, next.number, self.env.now);
            }
        }
        self.leaving = self.leaving.intersection(next.members);
        self.env
            .trace(|| format!("{changes:?} +{joining:?} -{dead:?}: {next:?}"));
        self.view = Arc::new(next);
        self.spread_view();
    }

    /// Nodes hear of a new view, most of them soon.
    fn spread_view(&mut self) {
        for node in 0..self.nodes.len() {
            let delay = match self.env.random.below(8) {
                0 => self.env.random.below(READING_NS),
                1 => self.env.random.below(2_000_000),
                _ => self.env.random.below(STORE_NS),
            };
            self.env.plan_for(node, delay, What::Read(false));
        }
    }

    /// A node starts: it joins.
    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].local.is_up {
            return;
        }
        let (life, made) = (self.env.lives[node], self.made[node]);
        let (run, full) = (self.env.run, self.env.memory_full);
        let me = NodeId(node as u8);
        self.nodes[node] = super::Node::new(run, full, me, life, made);
        self.nodes[node].local.up_since = self.env.now;
        self.plan_life(node);
    }

    /// If a node is still silent, another one has it removed.
    pub(super) fn suspect(&mut self, node: usize, life: u32) {
        let members = self.view.members;
        let is_member = members.contains(NodeId(node as u8));
        let now = self.env.now;
        let local = &self.nodes[node].local;
        let is_silent = self.env.lives[node] != life || !local.is_up || local.paused_until > now;
        let mut others: Vec<usize> = members.into_iter().map(|id| usize::from(id.0)).collect();
        others.retain(|other| {
            let local = &self.nodes[*other].local;
            *other != node && local.is_up && local.paused_until <= now
        });
        let is_deaf = |other: &&usize| self.env.network.is_cut(now, [node, **other]);
        let is_apart = 2 * others.iter().filter(is_deaf).count() > others.len();
        let can_tell = |other: &&usize| {
            let hears = !is_deaf(other);
            let reaches = self.nodes[**other].local.store_cut_until <= now;
            reaches && (is_silent || !hears)
        };
        if is_member && (is_silent || is_apart) && others.iter().any(|other| can_tell(&other)) {
            // One that is back as another life has the former one out when it joins.
            if self.env.lives[node] == life || !self.nodes[node].local.is_up {
                let change = StoreChange::Remove(node, self.env.lives[node]);
                self.env.plan_soon(Event::Store(change));
            }
        }
    }

    /// Plans that the others miss a node.
    pub(super) fn miss(&mut self, node: usize) {
        let jitter = self.env.random.below(SUSPICION_NS / 4);
        let life = self.env.lives[node];
        self.env
            .plan_in(SUSPICION_NS + jitter, Event::Suspect(node, life));
    }

    // ---- placement ----

    pub(super) fn place(&mut self, node: usize) {
        self.env.plan_for(node, PLACING_NS, What::Place);
        let local = &mut self.nodes[node].local;
        if local.reserved_until <= self.env.now {
            local.store.reserved = 0;
        }
        self.place_now(node);
        self.end_leaving(node);
    }

    /// Tells the machines what the placement wants of their slices.
    fn place_now(&mut self, node: usize) {
        let Some(view) = self.env.views[node].clone() else {
            return;
        };
        if self.plan.0 != view.number || self.plan.1 != self.leaving {
            let goal = PlacementGoal {
                moves_max: 2,
                ..PlacementGoal::replicas(self.env.run.replicas).without(self.leaving)
            };
            let steps = wished_steps(&view, &goal);
            self.plan = (view.number, self.leaving, steps.into());
        }
        let steps: Arc<[(SliceId, RowStep)]> = Arc::clone(&self.plan.2);
        let me = self.nodes[node].local.me;
        for (slice, step) in steps.iter() {
            if view.row(*slice).is_some_and(|row| row.primary == me) {
                let event = ReplicaEvent::Wanted(*slice, *step);
                self.step(node, stage_of(*slice), event, None);
            }
        }
    }

    /// A node that leaves, and has nothing any more, goes; one that finds no place for what it has
    /// stays.
    fn end_leaving(&mut self, node: usize) {
        let me = self.nodes[node].local.me;
        if !self.leaving.contains(me) {
            return;
        }
        if self.env.now > self.leaving_until {
            self.leaving = self.leaving.without(me);
            return;
        }
        let has_nothing = |view: &SliceView| view.rows().all(|(_, row)| !row.holders.contains(me));
        let follows = self.env.views[node].as_ref().map(|view| view.number);
        if follows == Some(self.view.number) && has_nothing(&self.view) {
            self.leaving = self.leaving.without(me);
            self.env.outcome.departures += 1;
            let down = self.env.random.below(20_000_000);
            self.crash(node, down);
            self.change_view(StoreChange::Remove(node, self.env.lives[node]));
        }
    }
}

/// When the lease of a reading that began then ends.
fn lease_end(clock: &Clock, started: u64) -> u64 {
    let mut end = clock.instant(started);
    end.ns += LEASE_NS;
    clock.world(end)
}

/// The longest that the store of views takes.
const STORE_NS: u64 = 300_000;
/// How soon a node that was taken out starts anew.
const REBIRTH_NS: u64 = 100_000;
