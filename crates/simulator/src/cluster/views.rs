//! The store of the views: one register that is read and replaced as a whole.

use curtail_consistency::membership::{Change, Members};
use curtail_types::NodeId;

/// What etcd, or a file, holds.
#[derive(Clone, Debug)]
pub(super) struct ViewStore {
    pub(super) members: Members,
    pub(super) revision: u64,
}

impl ViewStore {
    pub(super) fn new() -> Self {
        Self {
            members: Members::NOBODY,
            revision: 0,
        }
    }

    /// Writes a change if nobody was faster; the new revision.
    pub(super) fn propose(
        &mut self,
        expected: u64,
        change: Change,
        me: NodeId,
        replicas: usize,
    ) -> Option<u64> {
        if expected != self.revision {
            return None;
        }
        self.members = self.members.after(change, me, replicas)?;
        self.revision += 1;
        Some(self.revision)
    }
}
