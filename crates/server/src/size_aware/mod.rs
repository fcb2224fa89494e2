//! Size-aware sharding: large requests run on threads of their own.

pub(crate) mod lent_connections;
pub(crate) mod plan_snapshot;
