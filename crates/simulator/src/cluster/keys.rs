//! The keys of a run, and where they are placed.

use std::{collections::BTreeMap, sync::Arc};

use curtail_consistency::{moves::InForce, placement::Placement, symmetric::Place};
use curtail_types::{NodeId, NodeSet, RouteHash, View};
use curtail_workload::mix;

/// A few keys, and the placements that were asked for.
#[derive(Debug)]
pub(super) struct Keys {
    routes: Vec<RouteHash>,
    replicas: usize,
    placements: BTreeMap<NodeSet, Arc<Placement>>,
}

impl Keys {
    pub(super) fn new(count: usize, replicas: usize, seed: u64) -> Self {
        let route = |index: usize| RouteHash(mix(mix(seed) ^ index as u64));
        Self {
            routes: (0..count).map(route).collect(),
            replicas,
            placements: BTreeMap::new(),
        }
    }

    pub(super) fn replicas(&self) -> usize {
        self.replicas
    }

    pub(super) fn route(&self, key: usize) -> RouteHash {
        self.routes[key]
    }

    /// Which key this is; every hash is of one.
    pub(super) fn index_of(&self, route: RouteHash) -> usize {
        let found = self.routes.iter().position(|known| *known == route);
        found.unwrap_or_default()
    }

    /// Where a key belongs under a view: while keys move, a write goes to those that held it
    /// before, too.
    pub(super) fn place(&mut self, key: usize, view: &View) -> Place {
        let home = self.home(key, view.placed);
        let mut holders = self.holders(key, view.placed);
        if self.replicas > 1 && view.moves() {
            let before = self.holders(key, view.placed_before);
            holders = holders.union(before.intersection(view.live));
        }
        Place { home, holders }
    }

    pub(super) fn home(&mut self, key: usize, nodes: NodeSet) -> NodeId {
        let route = self.route(key);
        self.placement(nodes)
            .map_or(NodeId(0), |placement| placement.home(route))
    }

    pub(super) fn holders(&mut self, key: usize, nodes: NodeSet) -> NodeSet {
        let route = self.route(key);
        self.placement(nodes)
            .map_or(NodeSet::NONE, |placement| placement.holders(route))
    }

    /// A view, as servers see it; none if no node has keys.
    pub(super) fn in_force(&mut self, view: &View) -> Option<InForce> {
        let replicas = self.replicas;
        InForce::placed_by(*view, view.placed, replicas, |nodes| {
            let placed = self.placements.entry(nodes);
            let place = || Arc::new(Placement::new(nodes, replicas));
            Arc::clone(placed.or_insert_with(place))
        })
    }

    fn placement(&mut self, nodes: NodeSet) -> Option<Arc<Placement>> {
        if nodes.is_empty() {
            return None;
        }
        let replicas = self.replicas;
        let placed = self.placements.entry(nodes);
        Some(
            placed
                .or_insert_with(|| Arc::new(Placement::new(nodes, replicas)))
                .clone(),
        )
    }
}
