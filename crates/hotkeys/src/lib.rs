//! Finds the keys that are requested most, in this epoch and lately.
//!
//! One tracker serves both papers that need one (ccKVS requirement CC-78): the servers of ccKVS
//! (Gavrielatos, Katsarakis et al., EuroSys 2018), whose coordinator decides which keys every node
//! replicates, and the back ends and caches of SwitchKV (Li, dissertation, 2016, section 2.2.2).
//! Each thread has its own and shares nothing; what threads and nodes found is merged as
//! [`LoadReport`](curtail_types::LoadReport)s.
//!
//! ```text
//!  requests --> Sampler --> Counter --- end of a segment ---> load list --> LoadReport
//!               one in so   space-saving    its top k,         L = alpha f
//!               many          |             then cleared         + (1 - alpha) L'
//!                             v
//!                           Bursts: a circular log of the latest, and their counts
//! ```
//!
//! # Parameters
//!
//! Both papers leave most of them open (SW-56). Loads are comparable only if the first three are
//! equal everywhere; every report carries them, and unlike reports are refused.
//!
//! | parameter | the paper | [`Parameters::switchkv`] | [`Parameters::sampled`] |
//! |---|---|---|---|
//! | segment, a period of reports | 1 s (SW-46) | 1 s | 1 s |
//! | alpha, the newest segment's weight | open | 1/2 | 1/2 |
//! | sampled, one in | "a small fraction" (SW-52) | 1 | 64 |
//! | N, keys counted at a time | open | 20 k | 1,024 |
//! | k, keys listed | open; 5 reported | 10 | 256 |
//! | entries of the circular log | 200 (SW-58) | 200 | 0: no log |
//! | a burst: times in the log, more than | 8 (SW-58) | 8 | 8 |
//!
//! The third column is what this crate takes where the paper says nothing; the fourth is meant for
//! a thread that sees every request of an in-memory store and must not notice it. SwitchKV's second
//! condition of a burst, that the node is loaded (SW-59), is the driver's to know.
//!
//! Everything is allocated when it is made. Nothing here reads a clock, and chance comes from a
//! seed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod burst_detector;
mod hash_index;
mod linked_rings;
mod load_list;
mod parameters;
mod sampler;
mod space_saving;
mod tracker;

pub use burst_detector::Bursts;
pub use parameters::{CheckedParameters, Parameters, ParametersError};
pub use sampler::Sampler;
pub use space_saving::{CountedKey, Counter};
pub use tracker::Tracker;

/// What a request does to its key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Access {
    /// It leaves the key as it is.
    Read,
    /// It may change the key.
    Write,
}
