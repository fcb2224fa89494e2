//! Size-aware sharding: large requests run on threads of their own.

pub(crate) mod control_loop;
pub(crate) mod hand_off;
pub(crate) mod lent_connections;
pub(crate) mod plan_snapshot;
pub(crate) mod policy_name;
pub(crate) mod thread_priority;
