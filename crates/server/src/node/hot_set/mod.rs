//! The hot set: the keys that every node holds, and how a key is promoted.

pub(crate) mod coordinator;
pub(crate) mod promote;
