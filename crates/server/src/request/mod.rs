//! The requests of a turn, their replies, and what is delegated to other workers.

pub(crate) mod batch;
pub(crate) mod delegated_batch;
pub(crate) mod outstanding_delegations;
pub(crate) mod reply_buffer;
