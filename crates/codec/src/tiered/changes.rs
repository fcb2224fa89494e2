//! Which operations a back end carries out for [`TieredOpcode::Change`](super::TieredOpcode::Change).

use curtail_types::{Operation, SetMode};

/// Whether a back end does this to an item. It has no stale items, gives versions itself, and
/// answers no value to a request that changes something, because it remembers what it answered.
pub fn is_tier_change(operation: &Operation) -> bool {
    if operation.new_cas().is_some() {
        return false;
    }
    match operation {
        Operation::Get(get) => get.touch.is_some() && get.vivify.is_none() && get.recache.is_none(),
        Operation::Set(set) => {
            let joins = matches!(set.mode, SetMode::Append | SetMode::Prepend);
            !set.invalidate && (joins || set.vivify.is_none())
        }
        Operation::Delete(delete) => {
            !delete.invalidate && !delete.drop_value && delete.touch.is_none()
        }
        Operation::Arithmetic(_) => true,
    }
}
