//! The keys of a run, and their slices.

use curtail_consistency::slice_view::{SliceId, slice_of};
use curtail_types::RouteHash;
use curtail_workload::mix;

use super::ClusterRun;

/// A few keys. The lowest byte of a key's route hash is its number.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    routes: Vec<RouteHash>,
    slices: Vec<SliceId>,
}

impl Keys {
    pub(super) fn new(run: &ClusterRun) -> Self {
        let word = |key: usize| mix(mix(run.seed) ^ key as u64);
        let route = |key: usize| RouteHash(word(key) & !0xff | key as u64);
        let routes: Vec<_> = (0..run.keys).map(route).collect();
        let slices = routes.iter().map(|route| slice_of(*route, run.slices));
        Self {
            slices: slices.collect(),
            routes,
        }
    }

    pub(super) fn route(&self, key: usize) -> RouteHash {
        self.routes[key]
    }

    pub(super) fn slice(&self, key: usize) -> SliceId {
        self.slices[key]
    }

    pub(super) fn count(&self) -> usize {
        self.routes.len()
    }

    /// Which key this is.
    pub(super) fn index_of(&self, route: RouteHash) -> usize {
        (route.0 & 0xff) as usize
    }

    /// The keys of a slice.
    pub(super) fn of_slice(&self, slice: SliceId) -> impl Iterator<Item = usize> + '_ {
        let all = self.slices.iter().enumerate();
        all.filter_map(move |(key, of)| (*of == slice).then_some(key))
    }
}
