//! What a node makes of the list: the keys that its primaries shall heat and cool.

use alloc::{collections::BTreeMap, vec::Vec};

use curtail_types::{KeyName, NodeId, RouteHash, ViewNumber};

use super::HotList;
use crate::slice_view::SliceView;

/// The newest list at a node, and what its machines were told of it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct KeysToHeat {
    list: HotList,
    /// The keys, as the machines know them.
    routes: Vec<RouteHash>,
    /// Keys of this node's slices that machines were told to heat in this view, and how often since
    /// they left the list to cool them.
    told: BTreeMap<RouteHash, u32>,
    view: ViewNumber,
}

impl KeysToHeat {
    /// Takes a list, if it is newer than what is known; whether it was. `route` is the hash of a
    /// key.
    pub fn take(&mut self, list: &HotList, route: impl Fn(&KeyName) -> RouteHash) -> bool {
        if list.number <= self.list.number {
            return false;
        }
        self.list = list.clone();
        self.routes = list.keys.iter().map(route).collect();
        self.routes.sort_unstable();
        true
    }

    /// The newest list.
    pub const fn list(&self) -> &HotList {
        &self.list
    }

    /// What to tell the machines of node `me` under `view`: keys and whether they shall be hot. A
    /// machine may have no use for it now, so all of it is told again at every call: after each
    /// list, after each view, and a few times in a second.
    pub fn heats(&mut self, view: &SliceView, me: NodeId) -> Vec<(RouteHash, bool)> {
        if view.number != self.view {
            // No key is hot any more, but who was told to be.
            self.view = view.number;
            self.told.clear();
        }
        let leads = |route: RouteHash| {
            let row = view.row(view.slice_of(route));
            row.is_some_and(|row| row.primary == me)
        };
        let hot = self.routes.iter().copied().filter(|&route| leads(route));
        let hot: Vec<RouteHash> = hot.collect();
        for route in &hot {
            self.told.insert(*route, 0);
        }
        let mut heats: Vec<_> = Vec::new();
        self.told.retain(|route, cooled| {
            let is_hot = hot.binary_search(route).is_ok();
            heats.push((*route, is_hot));
            *cooled += u32::from(!is_hot);
            *cooled < COOLED_MAX
        });
        heats
    }
}

/// A key that left the list is cooled so often: a machine cannot while the key is written.
const COOLED_MAX: u32 = 50;
