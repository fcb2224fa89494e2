//! Which keys every node holds, and how a key becomes one of them.

pub(crate) mod coordinator;
pub(crate) mod promote;
