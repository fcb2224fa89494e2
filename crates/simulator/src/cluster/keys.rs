//! The keys of a run, and where they are placed.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use curtail_consistency::{moves::InForce, placement::Placement, symmetric::Place};
use curtail_types::{NodeSet, RouteHash, View};
use curtail_workload::mix;

use super::ClusterRun;

/// A few keys, and the placements that were asked for.
#[derive(Debug)]
pub(super) struct Keys {
    routes: Vec<RouteHash>,
    replicas: usize,
    placements: RefCell<BTreeMap<NodeSet, Arc<Placement>>>,
}

impl Keys {
    pub(super) fn new(run: &ClusterRun) -> Self {
        let route = |index: usize| RouteHash(mix(mix(run.seed) ^ index as u64));
        Self {
            routes: (0..run.keys).map(route).collect(),
            replicas: run.replicas,
            placements: RefCell::default(),
        }
    }

    pub(super) fn route(&self, key: usize) -> RouteHash {
        self.routes[key]
    }

    /// Which key this is; every hash is of one.
    pub(super) fn index_of(&self, route: RouteHash) -> usize {
        let found = self.routes.iter().position(|known| *known == route);
        found.unwrap_or_default()
    }

    /// Where a key belongs among these nodes.
    pub(super) fn place(&self, key: usize, nodes: NodeSet) -> Place {
        if nodes.is_empty() {
            return Place::default();
        }
        let (placement, route) = (self.placement(nodes), self.routes[key]);
        Place {
            home: placement.home(route),
            holders: placement.holders(route),
        }
    }

    /// A view, as servers see it; none if no node has keys.
    pub(super) fn in_force(&self, view: &View) -> Option<InForce> {
        InForce::placed_by(*view, view.placed, self.replicas, |nodes| {
            self.placement(nodes)
        })
    }

    fn placement(&self, nodes: NodeSet) -> Arc<Placement> {
        let mut placements = self.placements.borrow_mut();
        let placed = placements.entry(nodes);
        Arc::clone(placed.or_insert_with(|| Arc::new(Placement::new(nodes, self.replicas))))
    }
}
