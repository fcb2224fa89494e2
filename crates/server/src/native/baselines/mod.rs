//! Baselines of the papers: other ways to queue and to take native writes.

pub(crate) mod pull;
pub(crate) mod software_queue;
