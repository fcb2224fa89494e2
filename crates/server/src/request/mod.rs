//! The stages of a turn: receive and decode, batch, execute, delegate, compact, reply.

pub(crate) mod batch;
pub(crate) mod delegated_batch;
pub(crate) mod owned_form;
pub(crate) mod reply_buffer;
