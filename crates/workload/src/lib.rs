//! Workloads: keys, value lengths, operations and arrival times of requests.
//!
//! The simulator and the load generator draw the same requests from here, so that a figure of one
//! can be laid over a figure of the other. Everything is a function of a seed and of virtual time:
//! the crate opens no file, looks at no clock and starts no thread. It uses the standard library
//! only for floating-point mathematics and collections.
//!
//! ```
//! use curtail_workload::{Phases, Poisson, Stream, Workload};
//!
//! let workload: Workload = "etc:p-large=0.25,keys=1m".parse()?;
//! let mut generator = workload.generator(42, Stream::ONLY);
//! let mut key = Vec::new();
//! for now_ns in Poisson::new(Phases::fixed(1e6), 42).take(3) {
//!     let request = generator.draw(now_ns);
//!     key.clear();
//!     generator.items().key_text().put(request.key, &mut key);
//!     assert_eq!(key.len(), 8);
//! }
//! # Ok::<(), curtail_workload::WorkloadError>(())
//! ```
//!
//! From the whole to its parts: [`Catalogue`] knows workloads by name, [`Workload`] is one as plain
//! data, [`Generator`] draws its [`Request`]s, [`Items`] is its data set; [`trace`] reads recorded
//! requests; the rest are the distributions.
#![forbid(unsafe_code)]

mod alias;
mod arrivals;
mod catalogue;
mod exponential;
mod generator;
mod items;
mod keys;
mod mix;
mod popularity_change;
pub mod quantity;
mod random;
mod rank_sampler;
mod requests_after_sets;
mod scramble;
mod stepped_value;
pub mod trace;
mod twitter;
mod value_sizes;
mod workload;
mod zipf_sampler;
pub mod zipf_sums;

pub use alias::Alias;
pub use arrivals::{Arrivals, ClosedLoop, Constant, Poisson};
pub use catalogue::Catalogue;
pub use generator::{Generator, Request, Stream};
pub use items::{Item, Items, Ttls};
pub use keys::KeyText;
pub use mix::{Kind, Mix};
pub use popularity_change::{Change, HotSet, Pattern, Period};
pub use random::{Chance, Random, mix};
pub use rank_sampler::{Popularity, Ranks};
pub use requests_after_sets::{GAP_S, WriteGaps};
pub use scramble::Scramble;
pub use stepped_value::Phases;
pub use twitter::ClusterError;
pub use value_sizes::{BYTES_MAX, SizeClass, SizeTable, Sizes};
pub use workload::{Large, Workload, WorkloadError};
