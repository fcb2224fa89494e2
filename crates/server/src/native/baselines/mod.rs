//! Baselines of the papers: other ways to queue and receive native requests.

pub(crate) mod hand_off_and_stealing;
pub(crate) mod software_queue;
