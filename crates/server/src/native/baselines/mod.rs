//! Baselines of the papers: other ways to queue and receive native requests.

pub(crate) mod pull;
pub(crate) mod software_queue;
