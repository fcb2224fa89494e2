//! Where a request runs: on this node beside the machine of its slice, through that machine, or on
//! another node.
//!
//! ```text
//!                       the slice's gate is ...
//!                 Open           Reads                   Closed
//!   Ordinary      here           reads: here, looked     its primary, if that is another node;
//!                                at twice                else the machine
//!   Valid         reads: here, looked at twice           reads: the copy
//!   Unsettled     the machine
//! ```

use curtail_consistency::{replica::Gate, slice_view::SliceId};
use curtail_dispatch::{Seen, SeenGate, SharedState};
use curtail_types::{Access, NodeId, RouteHash};

use crate::{
    node::{Cluster, ViewInForce},
    test_faults::Fault,
};

pub(crate) use curtail_store::route_of;

/// Where a request runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Here, as on a server that is alone.
    Here,
    /// Here, and what was read is shown only if the key still looks like this then.
    Looked(SeenKey),
    /// Here, on the copy of a hot key.
    Copy,
    /// Where the machine of its slice says.
    Machine,
    /// On this node.
    At(NodeId),
}

/// What was seen of a key before its item was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenKey {
    slice: SliceId,
    gate: SeenGate,
    key: Seen,
}

impl SeenKey {
    /// Whether the key is hot.
    pub(crate) fn is_hot(&self) -> bool {
        self.key.state == SharedState::Valid
    }
}

impl Cluster {
    /// Where a request for `key` runs.
    #[inline]
    pub(crate) fn place(&self, in_force: &ViewInForce, key: RouteHash, access: Access) -> Way {
        let seen = self.keys.look(key);
        let slice = in_force.slices.slice_of(key);
        let (gate, word) = self.gates.look(slice);
        let looked = Way::Looked(SeenKey {
            slice,
            gate: word,
            key: seen,
        });
        match (gate, seen.state, access) {
            (Gate::Open, SharedState::Ordinary, _) => return Way::Here,
            (Gate::Closed, ..) => {}
            (_, SharedState::Ordinary | SharedState::Valid, Access::Read) => return looked,
            _ if self.has(Fault::ShowsUnsettled) && access == Access::Read => return Way::Here,
            _ => return Way::Machine,
        }
        match (in_force.primary(slice), seen.state, access) {
            (_, SharedState::Valid, Access::Read) => Way::Copy,
            (primary, SharedState::Ordinary, _) if primary != self.me && !self.keeps_sessions => {
                Way::At(primary)
            }
            _ => Way::Machine,
        }
    }

    /// Whether a key still looks as it did when a reader began to copy its item.
    #[inline]
    pub(crate) fn is_as(&self, key: RouteHash, seen: &SeenKey) -> bool {
        self.gates.is_as(seen.slice, seen.gate) && self.keys.is_as(key, seen.key)
    }
}
