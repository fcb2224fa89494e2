//! A worker: one thread, its event loop and what it carries from turn to turn.

pub(crate) mod busy_poll;
pub(crate) mod context;
pub(crate) mod event_loop;
pub(crate) mod mailbox;
pub(crate) mod prefault;
pub(crate) mod shared;
pub(crate) mod store_context;
