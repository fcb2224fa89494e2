//! Asks a node to leave, from outside it.

use curtail_types::NodeId;

use crate::{RosterStore, ViewStoreError};

/// Notes in the store that `node` is to leave, as often as others come first. The node finds it
/// there and leaves without loss. False if it is no member, or is leaving already.
///
/// # Errors
/// When the store cannot be used.
pub fn drain(store: &mut RosterStore, node: NodeId) -> Result<bool, ViewStoreError> {
    for _ in 0..TRIES_MAX {
        let Some(stored) = store.read_roster()? else {
            return Ok(false);
        };
        let Some(next) = stored.roster.draining(node) else {
            return Ok(false);
        };
        if store.replace_roster(stored.revision, &next)?.is_some() {
            return Ok(true);
        }
    }
    Err(ViewStoreError::Changing(TRIES_MAX))
}

const TRIES_MAX: usize = 20;
