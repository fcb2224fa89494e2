//! The stages of a turn: receive and decode, batch, execute, delegate, compact, reply.

pub(crate) mod batch;
pub(crate) mod compaction;
pub(crate) mod delegate;
pub(crate) mod delegated_batch;
pub(crate) mod execute;
pub(crate) mod large_write;
pub(crate) mod owned_form;
pub(crate) mod receive;
pub(crate) mod reply_buffer;
pub(crate) mod send;
