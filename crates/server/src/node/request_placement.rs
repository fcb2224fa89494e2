//! Where a request runs: on this node past the protocol, through the protocol, or on another node.
//!
//! ```text
//!                    the key is ...
//!              Ordinary                     Valid               Unsettled
//!   home       here (R = 1, or a read),     read: here, looked
//!              else protocol                at twice            protocol
//!   other      the home                     write: protocol     protocol
//! ```

use curtail_consistency::moves::Stand;
use curtail_dispatch::{Seen, SharedState};
use curtail_types::{Access, NodeId, RouteHash};
use twox_hash::XxHash3_64;

use crate::{
    node::{Cluster, InForce},
    test_faults::Fault,
};

/// Where a request runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Here, as on a server that is alone.
    Here,
    /// Here, and what was read is shown only if the key still looks like this then.
    Looked(Seen),
    /// Where the protocol of its slice says.
    Protocol,
    /// On this node.
    At(NodeId),
    /// Here, after the item has arrived from an earlier holder.
    Arriving,
}

/// The hash that places a key on nodes: xxh3-64, the same everywhere.
#[inline]
pub(crate) fn route_of(key: &[u8]) -> RouteHash {
    RouteHash(XxHash3_64::oneshot(key))
}

impl Cluster {
    /// Where a request for `key` runs.
    #[inline]
    pub(crate) fn place(&self, in_force: &InForce, key: RouteHash, access: Access) -> Way {
        let seen = self.keys.look(key);
        if seen.state == SharedState::Ordinary {
            match in_force.stand(key, self.me) {
                Stand::Elsewhere(home) => return Way::At(home),
                Stand::Arriving => return Way::Arriving,
                Stand::Here if self.replicas == 1 => return Way::Here,
                Stand::Here => {}
            }
        }
        match (seen.state, access) {
            (SharedState::Ordinary | SharedState::Valid, Access::Read) => Way::Looked(seen),
            _ if self.has(Fault::ShowsUnsettled) && access == Access::Read => Way::Here,
            _ => Way::Protocol,
        }
    }
}
